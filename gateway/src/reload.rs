//! Files that change while the gateway runs: certificates, users, permissions, keys of tokens.
//!
//! What always holds: what has changed is read as a whole or not at all; what cannot be used raises an alarm that says why,
//! and what was read before stays in force; living connections go on, but for those whose user was removed or changed, and
//! those that may no longer subscribe to what they have.
//!
//! Files are looked at now and then, not watched by the system: mounted secrets are replaced by turning a link round, and
//! remote folders tell nobody. A file counts as changed when its identity, size or times differ; a change of its permissions
//! is one, too.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

use crate::access::{Action, Part};
use crate::alarms::Alarms;
use crate::config::{AccessConfig, Config, TlsConfig};
use crate::listener::tls::Tls;
use crate::session::{Context, End};

/// A certificate that ends to be valid within this time is one to see to.
const EXPIRES_SOON: Duration = Duration::from_secs(14 * 86_400);
/// How often files are looked at that are read anew on the signal only; certificates expire all the same.
const ONLY_EXPIRY: Duration = Duration::from_secs(3_600);

/// What is made of some files together.
enum Subject {
    Tls(Arc<Tls>),
    Access(Part),
}

/// Files that are read together.
struct Watched {
    /// For alarms and log lines.
    name: String,
    files: Vec<PathBuf>,
    subject: Subject,
    /// What the system said of the files when they were read last.
    seen: Seen,
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
            .chain(listeners.flat_map(TlsConfig::files));
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

/// All files of a gateway that may change.
pub struct Reload {
    context: Arc<Context>,
    watched: Vec<Watched>,
}

impl Reload {
    /// Those of the listeners with TLS, each with its name for log lines, and those that decide who may do what.
    pub fn new(
        context: Arc<Context>,
        listeners: Vec<(String, Arc<Tls>)>,
        at_start: &AtStart,
    ) -> Self {
        let tls = listeners.into_iter();
        let tls = tls.map(|(name, tls)| (name, tls.files(), Subject::Tls(tls)));
        let access = access_files(&context.config.access).into_iter();
        let access =
            access.map(|(name, files, part)| (name.to_owned(), files, Subject::Access(part)));
        let all = tls.chain(access).filter(|(_, files, _)| !files.is_empty());
        let watched = all.map(|(name, files, subject)| Watched {
            name,
            seen: at_start.seen(&files),
            files,
            subject,
        });
        Self {
            watched: watched.collect(),
            context,
        }
    }

    /// Looks at the files now and then, and reads all of them on SIGHUP, for as long as it is polled.
    pub async fn watch(mut self) {
        // Of the whole process: without it the signal would end the process, and another part of it may listen, too.
        let mut hangup = signal(SignalKind::hangup())
            .inspect_err(|error| tracing::warn!(%error, "SIGHUP cannot be listened for"))
            .ok();
        let interval = self.context.config.limits.reload_interval;
        let pause = if interval.is_zero() {
            ONLY_EXPIRY
        } else {
            interval
        };
        loop {
            let all = tokio::select! {
                () = received(&mut hangup) => true,
                () = sleep(pause), if !self.watched.is_empty() => false,
            };
            if all {
                tracing::info!("SIGHUP: all files are read anew");
            }
            let only_expiry = !all && interval.is_zero();
            // Reading and compiling takes a moment; a file system that hangs takes for ever.
            let passed = spawn_blocking(move || {
                if !only_expiry {
                    self.pass(all);
                }
                self.check_expiry(SystemTime::now());
                self.context.alarms.repeat(Instant::now());
                self
            });
            match passed.await {
                Ok(back) => self = back,
                Err(error) => {
                    tracing::error!(%error, "reading files anew has ended; they are not looked at any more. Please report this");
                    return std::future::pending().await;
                }
            }
        }
    }

    /// Reads anew what has changed, or `all` of it.
    fn pass(&mut self, all: bool) {
        for watched in &mut self.watched {
            let seen = look(&watched.files);
            if !all && seen == watched.seen {
                continue;
            }
            // Before reading: what changes meanwhile is found the next time.
            watched.seen = seen;
            let read = match &watched.subject {
                Subject::Tls(tls) => tls.reload().map_err(|error| error.to_string()),
                Subject::Access(part) => self
                    .context
                    .access
                    .reload(*part)
                    .map_err(|error| error.to_string()),
            };
            let (counters, alarms) = (&self.context.counters, &self.context.alarms);
            match read {
                Ok(()) => {
                    counters.reloads.increment();
                    alarms.clear(&watched.name);
                    tracing::info!(what = watched.name, "read anew");
                    match watched.subject {
                        Subject::Access(Part::Users) => end_revoked(&self.context),
                        Subject::Access(Part::Acl) => end_not_allowed(&self.context),
                        Subject::Access(Part::Jwt) | Subject::Tls(_) => {}
                    }
                }
                Err(error) => {
                    counters.reloads_failed.increment();
                    let text = format!("{error}. What was read before stays in force");
                    alarms.raise(&watched.name, text, Instant::now());
                }
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
