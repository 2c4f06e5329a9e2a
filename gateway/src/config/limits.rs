//! Every bound on what clients and Iggy can make the gateway hold or do, with its default, unit and reason.
//!
//! What always holds: the defaults stand here and nowhere else in the code.

use std::time::Duration;

const KIB: usize = 1_024;
const MIB: usize = 1_024 * KIB;

/// The bounds of the gateway, table `[limits]`. Sizes are in bytes.
///
/// `Limits::default()` is what an operator gets who configures nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The longest MQTT packet, fixed header included, in bytes; default 256 KiB, at most 64 MB (Iggy's largest
    /// payload). At the limit the connection is closed before the body is read. A default below what real devices
    /// send would cut them off without a word; a larger one lets a stranger reserve more memory per connection.
    pub max_packet_size: usize,
    /// The longest CONNECT packet in bytes; default 8 KiB, at most `max_packet_size`. It is all that a peer nobody has
    /// admitted yet can make the gateway buffer.
    pub max_connect_size: usize,
    /// The longest topic name or filter in bytes; default 65,535, MQTT's own maximum, so that no legal topic is
    /// refused unless the operator wants it. At the limit the connection is closed.
    pub max_topic_length: usize,
    /// The most levels (parts between `/`) of a topic name or filter; default 256. Bounds the work of matching one.
    /// At the limit the connection is closed.
    pub max_topic_levels: usize,
    /// The most connections at a time; default 10,000. At the limit CONNACK 0x03. Each needs a file descriptor.
    pub max_connections: usize,
    /// The most connections at a time from one IP address; default 1,000, so that one host cannot take every place
    /// while a site behind one NAT address still fits. At the limit CONNACK 0x03.
    pub max_connections_per_address: usize,
    /// How long a connection may take until its CONNECT is complete; default 10 s. Then it is closed.
    pub connect_timeout: Duration,
    /// The longest keep-alive a client gets; default 1 h. A client that asks for none (0) or more is treated as if it
    /// had asked for this, so that dead connections are found.
    pub max_keep_alive: Duration,
    /// The most QoS 1 messages from one client that wait for their PUBACK; default 256. At the limit its socket is not
    /// read until acknowledgements go out: backpressure, no loss.
    pub receive_window: usize,
    /// The bytes of messages from all clients together that wait to be stored; default 64 MiB. At the limit reading
    /// stops and QoS 0 messages are dropped and counted. This is what an outage of Iggy can cost in memory.
    pub ingest_bytes: usize,
    /// The most messages in one append to Iggy; default 1,000. Bounds how long one request occupies a connection.
    pub max_batch_messages: usize,
    /// The most bytes in one append to Iggy; default 1 MiB. A single larger message is appended alone.
    pub max_batch_bytes: usize,
    /// The most QoS 1 messages to one client that wait for its PUBACK; default 32, enough to fill a slow link and
    /// little enough for small devices. At the limit the outbox waits.
    pub send_window: usize,
    /// The bytes of messages queued for one client; default 1 MiB, at least `max_packet_size` so that every message
    /// which can come in can also go out. At the limit QoS 0 copies are dropped and counted, QoS 1 copies wait in Iggy.
    pub outbox_bytes: usize,
    /// The bytes of messages queued for all clients together; default 256 MiB, at least `outbox_bytes`. At the limit
    /// the client with the largest outbox is disconnected first.
    pub outbox_bytes_total: usize,
    /// The most subscriptions of one client; default 256. At the limit SUBACK 0x80 for the filter.
    pub max_subscriptions: usize,
    /// The most messages one poll of Iggy returns; default 1,000. Together with their size this is what one reader
    /// holds at a time.
    pub max_poll_messages: u32,
    /// The pause between polls of a partition just after messages came; default 1 ms, at most `poll_interval_max`.
    pub poll_interval_min: Duration,
    /// The pause between polls of a partition that is idle; default 50 ms. The longest delay that polling adds to a
    /// message stored by someone else than this gateway.
    pub poll_interval_max: Duration,
    /// How often consumer offsets are committed to Iggy at most; default 1 s. After a crash up to this much is
    /// delivered again.
    pub commit_interval: Duration,
    /// After a restart, messages older than this are not delivered any more; default 60 s, the time in which clients
    /// come back after a crash. 0 resumes at the end of the log.
    pub resume_window: Duration,
    /// How long a client may leave QoS 1 messages unacknowledged; default 30 s. Then it is disconnected, because it
    /// would hold back the committed offset for everyone.
    pub ack_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_packet_size: 256 * KIB,
            max_connect_size: 8 * KIB,
            max_topic_length: 65_535,
            max_topic_levels: 256,
            max_connections: 10_000,
            max_connections_per_address: 1_000,
            connect_timeout: Duration::from_secs(10),
            max_keep_alive: Duration::from_secs(3_600),
            receive_window: 256,
            ingest_bytes: 64 * MIB,
            max_batch_messages: 1_000,
            max_batch_bytes: MIB,
            send_window: 32,
            outbox_bytes: MIB,
            outbox_bytes_total: 256 * MIB,
            max_subscriptions: 256,
            max_poll_messages: 1_000,
            poll_interval_min: Duration::from_millis(1),
            poll_interval_max: Duration::from_millis(50),
            commit_interval: Duration::from_secs(1),
            resume_window: Duration::from_secs(60),
            ack_timeout: Duration::from_secs(30),
        }
    }
}
