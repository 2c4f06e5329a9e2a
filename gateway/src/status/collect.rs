//! Makes the picture of a gateway.
//!
//! What always holds: a picture is made at most every [`FRESH`], however many ask for one; rows that need someone's attention
//! come before the others and survive the cut to [`MOST_ROWS`].

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use super::history::Recorder;
use super::{
    AlarmStatus, DeliveryStatus, Holder, IngestStatus, LaneStatus, ListenerStatus, MOST_ROWS,
    MapStatus, ReaderStatus, RefusalStatus, RuleStatus, Status, SubscriberStatus, attention,
    readiness,
};
use crate::config::Produce;
use crate::delivery::ConnectionId;
use crate::delivery::state::{DeliveryState, ReaderState, SubscriberState};
use crate::ingest::IngestState;
use crate::listener::door::Door;
use crate::recent::Entry;
use crate::session::Context;

/// For how long a picture is given to everyone who asks.
const FRESH: Duration = Duration::from_millis(500);

/// A picture, and the same as JSON.
#[derive(Debug)]
pub struct Picture {
    /// The picture.
    pub status: Status,
    /// It in JSON, on one line.
    pub json: Bytes,
    made: Instant,
}

/// Makes pictures of a gateway.
pub struct Observer {
    context: Arc<Context>,
    started: Instant,
    recorder: Recorder,
    last: Mutex<Option<Arc<Picture>>>,
    /// One at a time makes a picture; the others get the same.
    making: tokio::sync::Mutex<()>,
}

impl Observer {
    /// Of the gateway that has just been started.
    pub fn new(context: Arc<Context>) -> Arc<Self> {
        Arc::new(Self {
            recorder: Recorder::default(),
            context,
            started: Instant::now(),
            last: Mutex::default(),
            making: tokio::sync::Mutex::default(),
        })
    }

    /// What is looked at.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// For how long the gateway has run.
    pub fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// Keeps the rates of the last minutes, for as long as it is polled.
    pub async fn record(self: Arc<Self>) {
        self.recorder.record(&self.context).await;
    }

    fn fresh(&self) -> Option<Arc<Picture>> {
        let last = self.last.lock();
        last.clone()
            .filter(|picture| picture.made.elapsed() < FRESH)
    }

    /// The picture of now, or of a moment ago. `None` if the runtime is stopping.
    pub async fn picture(self: &Arc<Self>) -> Option<Arc<Picture>> {
        if let Some(picture) = self.fresh() {
            return Some(picture);
        }
        let _one_at_a_time = self.making.lock().await;
        if let Some(picture) = self.fresh() {
            return Some(picture);
        }
        let observer = self.clone();
        // With thousands of subscribers it takes milliseconds, in which others are to be served.
        let picture = spawn_blocking(move || {
            let status = observer.status();
            let json = serde_json::to_vec(&status).unwrap_or_default();
            Arc::new(Picture {
                status,
                json: json.into(),
                made: Instant::now(),
            })
        });
        let picture = picture.await.ok()?;
        *self.last.lock() = Some(picture.clone());
        Some(picture)
    }

    fn status(&self) -> Status {
        let (context, now) = (&*self.context, Instant::now());
        let ingest = context.ingest.load_full();
        let delivery = context.delivery.load_full();
        let roles = [
            ingest.as_ref().map(|_| "ingest"),
            delivery.as_ref().map(|_| "delivery"),
        ];
        let mut status = Status {
            attention: Vec::new(),
            at_ms: unix_ms(SystemTime::now()),
            gateway: context.config.name.clone(),
            node: context.config.node.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_seconds: self.uptime().as_secs_f64(),
            readiness: readiness::check(context),
            roles: roles.into_iter().flatten().map(str::to_owned).collect(),
            alarms: alarms(context, now),
            listeners: context.doors.iter().map(|door| listener(door)).collect(),
            clients: context.sessions.len() as u64,
            counters: context
                .counters
                .snapshot()
                .into_iter()
                .map(|(name, count)| (name.to_owned(), count))
                .collect(),
            ingest: ingest.map(|ingest| ingest_status(context, ingest.state(now))),
            delivery: delivery.map(|delivery| delivery_status(context, &delivery.seen())),
            refusals: context.recent.entries().into_iter().map(refusal).collect(),
            map: self.map(),
            history: self.recorder.history(),
        };
        status.attention = attention::of(&status);
        status
    }

    fn map(&self) -> MapStatus {
        let context = &self.context;
        let map = context.map.map();
        let rules: Vec<RuleStatus> = map
            .rules()
            .map(|rule| RuleStatus {
                rule: rule.id.to_string(),
                mqtt_topic: rule.mqtt_topic.to_owned(),
                stream: rule.stream.to_owned(),
                topic: rule.topic.to_owned(),
                partition_key: rule.partition_key.map(str::to_owned),
            })
            .collect();
        let warnings = map.warnings().iter().take(MOST_ROWS);
        MapStatus {
            file: context.config.topic_map.display().to_string(),
            generation: context.map.generation(),
            loaded_at_ms: unix_ms(context.map.loaded_at()),
            rules_total: rules.len() as u64,
            rules: rules.into_iter().take(MOST_ROWS).collect(),
            warnings: warnings.map(ToString::to_string).collect(),
        }
    }
}

/// Milliseconds since 1970.
pub(super) fn unix_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn alarms(context: &Context, now: Instant) -> Vec<AlarmStatus> {
    let standing = context.alarms.standing().into_iter();
    standing
        .map(|(name, alarm)| AlarmStatus {
            name,
            text: alarm.text,
            standing_for_seconds: now.saturating_duration_since(alarm.since).as_secs_f64(),
        })
        .collect()
}

fn text(address: Option<SocketAddr>) -> Option<String> {
    address.map(|address| address.to_string())
}

fn refusal(entry: Entry) -> RefusalStatus {
    RefusalStatus {
        at_ms: unix_ms(entry.at),
        kind: entry.kind.name().to_owned(),
        client: entry.client,
        peer: text(entry.origin.peer),
        listener: text(entry.origin.listener),
        connection: entry.origin.connection.map(|id| id.0),
        topic: entry.topic,
        reason: entry.reason,
        left_out: entry.left_out,
    }
}

fn listener(door: &Door) -> ListenerStatus {
    let methods = door.config.authentication.iter();
    ListenerStatus {
        address: door.address.to_string(),
        scheme: door.config.scheme().to_owned(),
        authentication: methods.map(|method| method.name().to_owned()).collect(),
        state: door.phase().name().to_owned(),
        connected: door.connected(),
        handshaking: door.handshaking(),
        accepted: door.accepted.get(),
        certificate_ends_ms: door.certificate_ends().map(unix_ms),
    }
}

/// What takes less time comes and goes; lists that follow it could not be read.
fn notable(time: Duration) -> Option<Duration> {
    (time >= Duration::from_secs(1)).then_some(time)
}

fn ingest_status(context: &Context, mut state: IngestState) -> IngestStatus {
    let lanes_total = (state.lanes.len() + state.lanes_not_shown) as u64;
    state
        .lanes
        .sort_by_key(|lane| (Reverse(notable(lane.oldest)), lane.triple.clone()));
    state.lanes.truncate(MOST_ROWS);
    let lanes = state.lanes.into_iter().map(|lane| {
        let (failing_for, error) = lane.failing.unzip();
        LaneStatus {
            stream: lane.triple.target.stream.to_string(),
            topic: lane.triple.target.topic.to_string(),
            partition: lane.triple.partition,
            queued: lane.queued as u64,
            in_flight: lane.in_flight as u64,
            oldest_seconds: lane.oldest.as_secs_f64(),
            failing_for_seconds: failing_for.as_ref().map(Duration::as_secs_f64),
            error,
        }
    });
    IngestStatus {
        produce: match context.config.ingest.produce {
            Produce::Client => "client",
            Produce::Runtime => "runtime",
        }
        .to_owned(),
        waiting_bytes: state.waiting_bytes as u64,
        max_waiting_bytes: context.config.limits.ingest_bytes as u64,
        looking_up: state.looking_up as u64,
        lanes_total,
        lanes: lanes.collect(),
    }
}

fn delivery_status(context: &Context, state: &DeliveryState) -> DeliveryStatus {
    let mut readers: Vec<&ReaderState> = state.readers.iter().collect();
    let mut subscribers: Vec<&SubscriberState> = state.subscribers.iter().collect();
    let limits = &context.config.limits;
    let (readers_total, subscribers_total) = (readers.len() as u64, subscribers.len() as u64);
    let mut lags: HashMap<ConnectionId, u64> = HashMap::new();
    for cursor in readers.iter().flat_map(|reader| &reader.cursors) {
        if cursor.lag > 0 {
            let lag = lags.entry(cursor.connection).or_default();
            *lag = cursor.lag.max(*lag);
        }
    }
    let lag = |connection: ConnectionId| lags.get(&connection).copied().unwrap_or_default();
    readers.sort_by_key(|reader| {
        let held = reader.held.map(|(_, held_for)| held_for);
        (
            Reverse(reader.failing_for),
            Reverse(held.and_then(notable)),
            reader.triple.clone(),
        )
    });
    readers.truncate(MOST_ROWS);
    subscribers.sort_by_key(|one| {
        (
            Reverse(one.outbox.oldest_unacknowledged.and_then(notable)),
            Reverse(lag(one.connection)),
            one.connection,
        )
    });
    subscribers.truncate(MOST_ROWS);
    let holders = readers.iter().filter_map(|reader| reader.holder.as_ref());
    let wanted = holders
        .map(|holder| holder.connection)
        .chain(subscribers.iter().map(|one| one.connection));
    let names = names(
        context,
        wanted.map(|connection| (connection, None)).collect(),
    );
    DeliveryStatus {
        outbox_bytes: context.outbox_total.bytes() as u64,
        max_outbox_bytes: limits.outbox_bytes_total as u64,
        ack_timeout_seconds: limits.ack_timeout.as_secs_f64(),
        readers_total,
        readers: readers
            .into_iter()
            .map(|reader| reader_status(reader, &names))
            .collect(),
        subscribers_total,
        subscribers: subscribers
            .into_iter()
            .map(|one| subscriber_status(one, lag(one.connection), &names))
            .collect(),
    }
}

/// Client id and address of connections; `None` of one that has ended meanwhile.
type Names = HashMap<ConnectionId, Option<(String, Option<SocketAddr>)>>;

/// Looks up who the wanted ones are.
fn names(context: &Context, mut wanted: Names) -> Names {
    context.sessions.for_each(|client, live| {
        if let Some(name) = wanted.get_mut(&live.outbox.id()) {
            *name = Some((client.to_string(), live.publisher.origin.peer));
        }
    });
    wanted
}

fn name(names: &Names, connection: ConnectionId) -> (String, String) {
    match names.get(&connection).cloned().flatten() {
        Some((client, peer)) => (client, text(peer).unwrap_or_default()),
        None => ("(gone)".to_owned(), String::new()),
    }
}

fn reader_status(reader: &ReaderState, names: &Names) -> ReaderStatus {
    let behind = reader.cursors.iter().filter(|cursor| cursor.lag > 0);
    let held_for = reader.held.map(|(_, held_for)| held_for);
    let held_by = reader
        .holder
        .as_ref()
        .zip(reader.held)
        .map(|(holder, (offset, _))| {
            let (client, peer) = name(names, holder.connection);
            Holder {
                client,
                peer,
                offset,
                for_seconds: held_for
                    .unwrap_or_default()
                    .max(holder.holds_for)
                    .as_secs_f64(),
            }
        });
    ReaderStatus {
        position: reader.position,
        end: reader.end,
        lag: reader.end.saturating_sub(reader.position),
        safe: reader.safe,
        committed: reader.committed,
        open_records: reader.open_records as u64,
        subscribers: reader.cursors.len() as u64,
        behind: behind.count() as u64,
        failing_for_seconds: reader.failing_for.as_ref().map(Duration::as_secs_f64),
        error: reader.error.clone(),
        held_by,
        partition: reader.triple.partition,
        stream: reader.triple.target.stream.to_string(),
        topic: reader.triple.target.topic.to_string(),
    }
}

fn subscriber_status(one: &SubscriberState, lag: u64, names: &Names) -> SubscriberStatus {
    let (client, peer) = name(names, one.connection);
    let owes = one.outbox.oldest_unacknowledged;
    SubscriberStatus {
        client,
        peer,
        connection: one.connection.0,
        topics: one.topics as u64,
        queued: one.outbox.queued as u64,
        queued_bytes: one.outbox.bytes as u64,
        unacknowledged: one.outbox.unacknowledged as u64,
        owes_for_seconds: owes.as_ref().map(Duration::as_secs_f64),
        lag,
        dropped: one.outbox.dropped,
    }
}
