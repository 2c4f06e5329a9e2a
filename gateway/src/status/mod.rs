//! What a gateway looks like from outside, at one moment: all that the status page, `mqtt-gateway status` and
//! `mqtt-gateway top` show.
//!
//! What always holds: [`Status`] is a picture that is whole in itself, made when it is asked for; making it takes each lock
//! of the data path for as long as a list takes to be copied, and lists are bounded ([`MOST_ROWS`]), the rows that need
//! someone's attention first. No payload, password or token is in it. New fields may come with each version, and none goes
//! or changes its meaning within one major version; whoever reads it must ignore what it does not know.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

mod attention;
mod collect;
mod history;
pub mod readiness;

pub use collect::{Observer, Picture};

/// The most rows of a list; how many there are in all stands beside it.
pub const MOST_ROWS: usize = 200;

/// A gateway at one moment. Times of day are milliseconds since 1970 (UTC); durations are seconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// When the picture was made.
    pub at_ms: u64,
    /// The gateway's name.
    pub gateway: String,
    /// The node's name.
    pub node: String,
    /// The version of the gateway.
    pub version: String,
    /// For how long it has run.
    pub uptime_seconds: f64,
    /// Whether it can do its work.
    pub readiness: Readiness,
    /// What needs somebody's attention, in sentences; empty if nothing does.
    pub attention: Vec<String>,
    /// Which roles are attached: `ingest`, `delivery`.
    pub roles: Vec<String>,
    /// What somebody has to see to.
    pub alarms: Vec<AlarmStatus>,
    /// Where clients connect.
    pub listeners: Vec<ListenerStatus>,
    /// How many clients are connected.
    pub clients: u64,
    /// Every counter, by its name, since the start. What each counts: `docs/metrics.md`.
    pub counters: BTreeMap<String, u64>,
    /// From clients to Iggy; `None` without the role.
    pub ingest: Option<IngestStatus>,
    /// From Iggy to clients; `None` without the role.
    pub delivery: Option<DeliveryStatus>,
    /// What was refused or closed lately, the newest first.
    pub refusals: Vec<RefusalStatus>,
    /// The topic map.
    pub map: MapStatus,
    /// Rates of the last minutes, for curves.
    pub history: History,
}

/// Whether a gateway can do its work, and why not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Readiness {
    /// Whether all checks passed.
    pub ready: bool,
    /// Each check: `listener`, `topic_map`, `iggy`.
    pub checks: Vec<Check>,
    /// What is not as it should be and does not stop the gateway from working, such as weak durability.
    pub notes: Vec<String>,
}

/// One check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// Its name.
    pub name: String,
    /// Whether it passed.
    pub ok: bool,
    /// How long ago it was made.
    pub age_seconds: f64,
    /// Why it did not pass, and what to do.
    pub reason: Option<String>,
    /// Since when it has not passed, in seconds.
    pub failing_for_seconds: Option<f64>,
}

/// What somebody has to see to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AlarmStatus {
    /// Its name, such as `users_file`.
    pub name: String,
    /// What is wrong, and what to do.
    pub text: String,
    /// For how long it has stood.
    pub standing_for_seconds: f64,
}

/// A listener.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ListenerStatus {
    /// Its address, with the real port.
    pub address: String,
    /// `mqtt`, `mqtts`, `ws` or `wss`.
    pub scheme: String,
    /// How clients are told apart there, in order.
    pub authentication: Vec<String>,
    /// `accepting`, `draining` or `drained`.
    pub state: String,
    /// Clients that came in by it and are connected.
    pub connected: u64,
    /// Sockets whose CONNECT has not been accepted yet.
    pub handshaking: u64,
    /// Sockets accepted since the start.
    pub accepted: u64,
    /// When its certificate ends.
    pub certificate_ends_ms: Option<u64>,
}

/// From clients to Iggy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IngestStatus {
    /// `client` or `runtime`: who appends.
    pub produce: String,
    /// Bytes that wait to be stored.
    pub waiting_bytes: u64,
    /// The most that may wait (`ingest_bytes`).
    pub max_waiting_bytes: u64,
    /// Messages that wait until Iggy has said whether their topic exists.
    pub looking_up: u64,
    /// How many lanes have something to do.
    pub lanes_total: u64,
    /// The lanes, those with the oldest message first.
    pub lanes: Vec<LaneStatus>,
}

/// The queue in front of one partition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LaneStatus {
    /// The Iggy stream.
    pub stream: String,
    /// The Iggy topic.
    pub topic: String,
    /// The partition.
    pub partition: u32,
    /// Messages that wait for the next append.
    pub queued: u64,
    /// Messages in the append that is under way.
    pub in_flight: u64,
    /// How long the oldest of these has been here.
    pub oldest_seconds: f64,
    /// For how long its append has failed and been tried again; `None` if it has not.
    pub failing_for_seconds: Option<f64>,
    /// Why the last try failed, while it fails.
    pub error: Option<String>,
}

/// From Iggy to clients.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeliveryStatus {
    /// Bytes queued in all outboxes.
    pub outbox_bytes: u64,
    /// The most that may be queued (`outbox_bytes_total`).
    pub max_outbox_bytes: u64,
    /// After how long without an acknowledgement a subscriber is closed (`ack_timeout`).
    pub ack_timeout_seconds: f64,
    /// How many readers there are.
    pub readers_total: u64,
    /// The readers, those whose oldest unacknowledged record is the oldest first.
    pub readers: Vec<ReaderStatus>,
    /// How many clients have subscriptions.
    pub subscribers_total: u64,
    /// Clients that have subscriptions, those that owe an acknowledgement for the longest time first, then those that are
    /// furthest behind.
    pub subscribers: Vec<SubscriberStatus>,
}

/// The reader of one partition and its ledger.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReaderStatus {
    /// The Iggy stream.
    pub stream: String,
    /// The Iggy topic.
    pub topic: String,
    /// The partition.
    pub partition: u32,
    /// The next offset that it reads.
    pub position: u64,
    /// The offset after the newest record, as Iggy said last.
    pub end: u64,
    /// How many records are stored that it has not read.
    pub lag: u64,
    /// The largest offset up to which everything is done.
    pub safe: Option<u64>,
    /// The largest offset that is committed in Iggy.
    pub committed: Option<u64>,
    /// Records that wait for an acknowledgement or to be written.
    pub open_records: u64,
    /// How many clients read with it.
    pub subscribers: u64,
    /// How many of them are behind it.
    pub behind: u64,
    /// For how long it has not been able to read.
    pub failing_for_seconds: Option<f64>,
    /// Why, while it fails.
    pub error: Option<String>,
    /// Who holds the offset after `safe`; `None` if nobody does.
    pub held_by: Option<Holder>,
}

/// Who holds an offset: nothing from there on can be committed before it has acknowledged, or is closed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Holder {
    /// The client id.
    pub client: String,
    /// Where it connects from.
    pub peer: String,
    /// The offset.
    pub offset: u64,
    /// For how long it has owed this, or has been behind.
    pub for_seconds: f64,
}

/// A client that has subscriptions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SubscriberStatus {
    /// The client id.
    pub client: String,
    /// Where it connects from.
    pub peer: String,
    /// The number of its connection, as in log lines.
    pub connection: u64,
    /// How many topics it is subscribed to.
    pub topics: u64,
    /// Copies that wait to be written.
    pub queued: u64,
    /// The bytes that count against `outbox_bytes`.
    pub queued_bytes: u64,
    /// QoS 1 copies that it has not acknowledged.
    pub unacknowledged: u64,
    /// For how long it has owed the acknowledgement of the oldest.
    pub owes_for_seconds: Option<f64>,
    /// How many records it is behind, on the partition where that is most.
    pub lag: u64,
    /// QoS 0 copies that were dropped because there was no room.
    pub dropped: u64,
}

/// Something that was refused, or a connection that the gateway closed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RefusalStatus {
    /// When.
    pub at_ms: u64,
    /// `connect`, `publish`, `subscribe`, `protocol`, `closed` or `evicted`.
    pub kind: String,
    /// The client id, if it is known.
    pub client: Option<String>,
    /// Where it connects from.
    pub peer: Option<String>,
    /// The listener.
    pub listener: Option<String>,
    /// The number of the connection, as in log lines.
    pub connection: Option<u64>,
    /// The MQTT topic or filter.
    pub topic: Option<String>,
    /// Why.
    pub reason: String,
    /// How many like it were left out since the one before.
    pub left_out: u64,
}

/// The topic map.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MapStatus {
    /// Its file.
    pub file: String,
    /// How often it was read, counted from 1.
    pub generation: u64,
    /// When it was read.
    pub loaded_at_ms: u64,
    /// How many rules it has.
    pub rules_total: u64,
    /// Its rules in their order.
    pub rules: Vec<RuleStatus>,
    /// What is doubtful in it.
    pub warnings: Vec<String>,
}

/// A rule of the topic map.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RuleStatus {
    /// Which one, such as `rule 3` or `fallback`.
    pub rule: String,
    /// Its pattern.
    pub mqtt_topic: String,
    /// Its stream, as written in the map.
    pub stream: String,
    /// Its topic, as written in the map.
    pub topic: String,
    /// Its partition key, as written in the map.
    pub partition_key: Option<String>,
}

/// Rates of the last minutes: one value for each interval, the newest last, all lists of the same length.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// The length of an interval.
    pub interval_seconds: f64,
    /// PUBLISHes from clients, a second.
    pub received: Vec<f64>,
    /// PUBLISHes stored, a second.
    pub stored: Vec<f64>,
    /// PUBLISHes refused, shed or failed, and those that broke the protocol, a second.
    pub not_stored: Vec<f64>,
    /// Messages sent to subscribers, a second.
    pub delivered: Vec<f64>,
    /// Bytes of packets from clients, a second.
    pub bytes_in: Vec<f64>,
    /// Bytes of packets to clients, a second.
    pub bytes_out: Vec<f64>,
    /// Clients connected at the end of the interval.
    pub clients: Vec<f64>,
    /// The oldest unacknowledged record of all ledgers at the end of the interval, seconds.
    pub oldest_unacknowledged: Vec<f64>,
}
