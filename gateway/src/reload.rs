//! Files that change while the gateway runs: certificates, users, permissions, keys of tokens, the topic map.
//!
//! What always holds: what has changed is read as a whole or not at all; what cannot be used raises an alarm that says why,
//! and what was read before stays in force; living connections go on, but for those whose user was removed or changed, and
//! those that may no longer subscribe to what they have, or for which the new map has no place. One task reads; who asks
//! for it ([`Asking::reload`]) waits for their turn.
//!
//! Files are looked at now and then, not watched by the system: mounted secrets are replaced by turning a link round, and
//! remote folders tell nobody. A file counts as changed when its identity, size or times differ; a change of its permissions
//! is one, too.

use std::collections::HashMap;
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

use crate::access::{Action, Part};
use crate::alarms::Alarms;
use crate::config::{AccessConfig, Config, TlsConfig};
use crate::listener::tls::Tls;
use crate::session::{Context, End};

mod map;

pub use map::MapError;

/// A certificate that ends to be valid within this time is one to see to.
const EXPIRES_SOON: Duration = Duration::from_secs(14 * 86_400);
/// How often files are looked at that are read anew on the signal only; certificates expire all the same.
const ONLY_EXPIRY: Duration = Duration::from_secs(3_600);
/// How soon something that has waited for Iggy in vain is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// The name of the topic map for alarms and log lines.
const TOPIC_MAP: &str = "topic_map";

/// What is made of some files together.
#[derive(Clone)]
enum Subject {
    Tls(Arc<Tls>),
    Access(Part),
    Map,
}

/// Files that are read together.
struct Watched {
    /// For alarms and log lines.
    name: String,
    files: Vec<PathBuf>,
    subject: Subject,
    /// What the system said of the files when they were read last.
    seen: Seen,
    /// What was read waits for Iggy.
    waits: bool,
}

/// What became of files that were read anew.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Reloaded {
    /// What they are for: `topic_map`, `users_file`, `acl_file`, `jwt_key_files`, or `listener` and its address.
    pub name: String,
    /// The files.
    pub files: Vec<PathBuf>,
    /// Whether what they hold is in force; if not, why, and what to do. What was read before stays in force then.
    pub outcome: Result<(), String>,
}

/// Why what files hold is not in force.
struct NotInForce {
    why: String,
    /// It is tried again without anybody doing anything.
    waits: bool,
}

impl NotInForce {
    fn as_it_is(error: impl fmt::Display) -> Self {
        Self {
            why: error.to_string(),
            waits: false,
        }
    }
}

/// What tells whether files were changed: what the system says of each; `None` if it is not there.
type Seen = Vec<Option<Marks>>;

/// Of a file its device, number, size, and times of change.
type Marks = [i128; 5];

fn marks(file: &Path) -> Option<Marks> {
    let metadata = std::fs::metadata(file).ok()?;
    let nanoseconds =
        |seconds: i64, rest: i64| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
    Some([
        metadata.dev().into(),
        metadata.ino().into(),
        metadata.size().into(),
        nanoseconds(metadata.mtime(), metadata.mtime_nsec()),
        nanoseconds(metadata.ctime(), metadata.ctime_nsec()),
    ])
}

fn look(files: &[PathBuf]) -> Seen {
    files.iter().map(|file| marks(file)).collect()
}

/// How all files looked before the gateway read them at its start, which may then wait for Iggy for a while: what changes in
/// that time is a change, too.
pub struct AtStart(HashMap<PathBuf, Option<Marks>>);

impl AtStart {
    /// Looks at every file that `config` names and that may change; blocks on that.
    pub fn look(config: &Config) -> Self {
        let access = access_files(&config.access).into_iter();
        let listeners = config.listener.iter().filter_map(|one| one.tls.as_ref());
        let files = access
            .flat_map(|(_, files, _)| files)
            .chain(listeners.flat_map(TlsConfig::files))
            .chain([config.topic_map.clone()]);
        Self(files.map(|file| (file.clone(), marks(&file))).collect())
    }

    fn seen(&self, files: &[PathBuf]) -> Seen {
        let one = |file| self.0.get(file).copied().flatten();
        files.iter().map(one).collect()
    }
}

/// The files that decide who may do what, with their names for alarms and log lines.
fn access_files(access: &AccessConfig) -> [(&'static str, Vec<PathBuf>, Part); 3] {
    let one = |file: &Option<PathBuf>| file.iter().cloned().collect();
    [
        ("users_file", one(&access.users_file), Part::Users),
        ("acl_file", one(&access.acl_file), Part::Acl),
        ("jwt_key_files", access.jwt.key_files.clone(), Part::Jwt),
    ]
}

type Answer = oneshot::Sender<Vec<Reloaded>>;

/// How all files are asked to be read anew.
#[derive(Clone)]
pub struct Asking(mpsc::UnboundedSender<Answer>);

impl Asking {
    /// Reads all files anew, as SIGHUP does, and says what became of each. Whoever comes while files are being read waits,
    /// and they are read once more. Empty if the gateway stops. What was begun is finished if this is dropped.
    pub async fn reload(&self) -> Vec<Reloaded> {
        let (answer, answered) = oneshot::channel();
        // Bounded by who is let ask: each waits for the answer.
        match self.0.send(answer) {
            Ok(()) => answered.await.unwrap_or_default(),
            Err(_) => Vec::new(),
        }
    }
}

/// All files of a gateway that may change.
pub struct Reload {
    context: Arc<Context>,
    watched: Vec<Watched>,
    asked: mpsc::UnboundedReceiver<Answer>,
}

/// Why files are looked at.
enum Because {
    Time,
    Signal,
    Asked(Answer),
}

impl Reload {
    /// Those of the listeners with TLS, each with its name for log lines, those that decide who may do what, and the topic
    /// map.
    pub fn new(
        context: Arc<Context>,
        listeners: Vec<(String, Arc<Tls>)>,
        at_start: &AtStart,
    ) -> (Self, Asking) {
        let tls = listeners.into_iter();
        let tls = tls.map(|(name, tls)| (name, tls.files(), Subject::Tls(tls)));
        let access = access_files(&context.config.access).into_iter();
        let access =
            access.map(|(name, files, part)| (name.to_owned(), files, Subject::Access(part)));
        let map = vec![context.config.topic_map.clone()];
        let map = (TOPIC_MAP.to_owned(), map, Subject::Map);
        // The map last: it may wait for Iggy.
        // Who starts a gateway on a map of their own has no file of it.
        let has_file = at_start.seen(&map.1).iter().any(Option::is_some);
        let all = tls.chain(access).chain(has_file.then_some(map));
        let watched =
            all.filter(|(_, files, _)| !files.is_empty())
                .map(|(name, files, subject)| Watched {
                    name,
                    seen: at_start.seen(&files),
                    files,
                    subject,
                    waits: false,
                });
        let (asking, asked) = mpsc::unbounded_channel();
        let reload = Self {
            watched: watched.collect(),
            context,
            asked,
        };
        (reload, Asking(asking))
    }

    /// Looks at the files now and then, and reads all of them on SIGHUP and when it is asked to, for as long as it is polled.
    pub async fn watch(mut self) {
        // Of the whole process: without it the signal would end the process, and another part of it may listen, too.
        let mut hangup = signal(SignalKind::hangup())
            .inspect_err(|error| tracing::warn!(%error, "SIGHUP cannot be listened for"))
            .ok();
        let interval = self.context.config.limits.reload_interval;
        loop {
            let waits = self.watched.iter().any(|watched| watched.waits);
            let pause = match interval.is_zero() {
                true => ONLY_EXPIRY,
                false => interval,
            };
            let because = tokio::select! {
                () = received(&mut hangup) => Because::Signal,
                Some(answer) = self.asked.recv() => Because::Asked(answer),
                () = sleep(if waits { pause.min(AGAIN) } else { pause }) => Because::Time,
            };
            match because {
                Because::Time => {
                    let only_waiting = interval.is_zero();
                    self.pass(|watched, seen| {
                        watched.waits || (!only_waiting && watched.seen != *seen)
                    })
                    .await;
                }
                Because::Signal => {
                    tracing::info!("SIGHUP: all files are read anew");
                    self.pass(|_, _| true).await;
                }
                Because::Asked(answer) => {
                    tracing::info!("all files are read anew, as was asked for");
                    let reloaded = self.pass(|_, _| true).await;
                    // Who has asked may be gone.
                    let _ = answer.send(reloaded);
                }
            }
            self.check_expiry(SystemTime::now());
            self.context.alarms.repeat(Instant::now());
        }
    }

    /// Reads anew what is `due`, by what the system says of its files now.
    async fn pass(&mut self, due: impl Fn(&Watched, &Seen) -> bool) -> Vec<Reloaded> {
        let files: Vec<_> = self.watched.iter().map(|one| one.files.clone()).collect();
        // A file system that hangs takes for ever.
        let looking = spawn_blocking(move || files.iter().map(|files| look(files)).collect());
        let seen: Vec<Seen> = match looking.await {
            Ok(seen) => seen,
            Err(error) => {
                tracing::error!(%error, "looking at files has failed; they are looked at again. Please report this");
                return Vec::new();
            }
        };
        let mut reloaded = Vec::new();
        for (at, seen) in seen.into_iter().enumerate() {
            let Some(watched) = self.watched.get_mut(at).filter(|one| due(one, &seen)) else {
                continue;
            };
            // From before reading: what changes meanwhile is found the next time.
            let has_changed = watched.seen != seen;
            watched.seen = seen;
            let was_waiting = std::mem::take(&mut watched.waits) && !has_changed;
            let (name, files) = (watched.name.clone(), watched.files.clone());
            let subject = watched.subject.clone();
            let outcome = self.read(&subject).await;
            let waits = outcome.as_ref().is_err_and(|error| error.waits);
            if let Some(watched) = self.watched.get_mut(at) {
                watched.waits = waits;
            }
            let outcome = outcome.map_err(|error| error.why);
            self.tell(&name, &subject, &outcome, was_waiting && waits);
            reloaded.push(Reloaded {
                name,
                files,
                outcome,
            });
        }
        reloaded
    }

    async fn read(&self, subject: &Subject) -> Result<(), NotInForce> {
        let context = self.context.clone();
        let reading = match subject {
            Subject::Map => {
                return map::reload(&context).await.map_err(|error| NotInForce {
                    why: error.to_string(),
                    waits: error.waits(),
                });
            }
            // Reading and hashing takes a moment.
            Subject::Tls(tls) => {
                let tls = tls.clone();
                spawn_blocking(move || tls.reload().map_err(NotInForce::as_it_is))
            }
            Subject::Access(part) => {
                let part = *part;
                spawn_blocking(move || context.access.reload(part).map_err(NotInForce::as_it_is))
            }
        };
        reading.await.unwrap_or_else(|error| {
            Err(NotInForce::as_it_is(format!(
                "reading has failed: {error}; please report this"
            )))
        })
    }

    /// Says what became of files, and ends the connections that end with it.
    fn tell(&self, name: &str, subject: &Subject, outcome: &Result<(), String>, still_waits: bool) {
        let (counters, alarms) = (&self.context.counters, &self.context.alarms);
        match outcome {
            Ok(()) => {
                counters.reloads.increment();
                alarms.clear(name);
                tracing::info!(what = name, "read anew");
                match subject {
                    Subject::Access(Part::Users) => end_revoked(&self.context),
                    Subject::Access(Part::Acl) => end_not_allowed(&self.context),
                    Subject::Access(Part::Jwt) | Subject::Tls(_) | Subject::Map => {}
                }
            }
            Err(why) => {
                if !still_waits {
                    counters.reloads_failed.increment();
                }
                let text = format!("{why}. What was read before stays in force");
                alarms.raise(name, text, Instant::now());
            }
        }
    }

    fn check_expiry(&self, now: SystemTime) {
        for watched in &self.watched {
            if let Subject::Tls(tls) = &watched.subject {
                check_expiry(&self.context.alarms, &watched.name, tls.not_after(), now);
            }
        }
    }
}

/// Raises an alarm for a certificate that is not valid any more, or not for long.
pub fn check_expiry(alarms: &Alarms, name: &str, not_after: Option<SystemTime>, now: SystemTime) {
    let alarm = format!("{name} certificate");
    let text = match not_after.map(|end| end.duration_since(now)) {
        Some(Ok(remaining)) if remaining > EXPIRES_SOON => None,
        // In days, so that the text does not change all the time.
        Some(Ok(remaining)) => Some(format!(
            "the certificate of {name} is valid for {} more days; renew it",
            remaining.as_secs() / 86_400
        )),
        Some(Err(_)) => Some(format!(
            "the certificate of {name} is not valid any more, and clients that check it do not connect; renew it"
        )),
        None => None,
    };
    match text {
        Some(text) => alarms.raise(&alarm, text, Instant::now()),
        None => alarms.clear(&alarm),
    }
}

async fn received(signal: &mut Option<Signal>) {
    let heard = match signal {
        Some(signal) => signal.recv().await,
        None => None,
    };
    if heard.is_none() {
        std::future::pending().await
    }
}

/// Ends the connections of users who would not be let in any more.
fn end_revoked(context: &Context) {
    for (_, live) in context.sessions.all() {
        if !context.access.still_holds(&live.identity) {
            live.end.end(End::Revoked);
        }
    }
}

/// Ends the connections that have a subscription which they may not have any more. MQTT 3.1.1 has no word for taking a
/// subscription back; a client that has to connect again is told by its SUBACK.
fn end_not_allowed(context: &Context) {
    for (client, live) in context.sessions.all() {
        let mut grant = context.access.grant(live.identity.clone(), &client);
        let topics: Vec<_> = live.subscribed.lock().values().cloned().collect();
        let mut allows = |topic| grant.allows(&context.access, &client, Action::Subscribe, topic);
        if !topics.iter().all(&mut allows) {
            live.end.end(End::SubscriptionNotAllowed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_certificate_raises_an_alarm_from_two_weeks_before_its_end_until_it_is_renewed() {
        let (alarms, end) = (Alarms::default(), SystemTime::now());
        let day = Duration::from_secs(86_400);
        let text = |now| {
            check_expiry(&alarms, "listener x", Some(end), now);
            let standing = alarms.standing();
            standing.into_iter().map(|(_, alarm)| alarm.text).next()
        };
        assert_eq!(text(end - 15 * day), None);
        assert!(text(end - 13 * day).is_some_and(|text| text.contains("13 more days")));
        assert!(text(end + day).is_some_and(|text| text.contains("not valid any more")));
        assert_eq!(text(end - 90 * day), None, "renewed");
        check_expiry(&alarms, "listener x", None, end);
        assert!(alarms.standing().is_empty());
    }
}
