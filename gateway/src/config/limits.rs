//! Every bound on what clients and Iggy can make the gateway hold or do, with its default, unit and reason.
//!
//! What always holds: the defaults stand here and nowhere else in the code. After [`Config::load`](super::Config::load)
//! each value lies in the range that [`Limits::slots`] gives it and the relations of [`Limits::broken_relations`]
//! hold, so the parts of the gateway need not check them again.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::wire::WireLimits;

use super::value::{DAY, KIB, MIB, MILLISECOND, Slot, TIB, duration_text, size_text};

/// Iggy's largest payload (Iggy 0.9). A packet that is as long carries a little less.
const MAX_PAYLOAD: u64 = 64_000_000;
/// The shortest CONNECT there is: an empty client id and nothing else (MQTT 3.1.1, 3.1).
const MIN_CONNECT: u64 = 14;
/// Packet ids are 1 to 65,535 (MQTT 3.1.1, 2.3.1): no more messages can be unacknowledged at a time.
const MAX_PACKET_IDS: u64 = 65_535;
/// More than any partition will ever hold.
const MAX_LAG_MESSAGES: u64 = 1_000_000_000_000_000;
/// Rates a second; 0 for no limit.
const RATES: RangeInclusive<u64> = 0..=1_000_000;
/// The longest keep-alive that fits into CONNECT (MQTT 3.1.1, 3.1.2.10).
const LONGEST_KEEP_ALIVE: Duration = Duration::from_secs(65_535);

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
    /// The most connections at a time from one IP address, of IPv6 from one /64; default 1,000, so that one host cannot take every place
    /// while a site behind one NAT address still fits. At the limit CONNACK 0x03.
    pub max_connections_per_address: usize,
    /// How long a connection may take until its CONNECT is complete; default 10 s. Then it is closed.
    pub connect_timeout: Duration,
    /// How long a user name and a password that Iggy knew are taken for right without asking it again; default 30 s.
    /// 0 asks for each CONNECT. A user who is removed from Iggy can come back for so long.
    pub login_cache: Duration,
    /// How often the files of certificates, users, permissions, keys and the topic map are looked at; default 5 s, 0 for never.
    /// What has changed counts from then on.
    pub reload_interval: Duration,
    /// How often one client id may connect, a second; default 0, no limit. Above it CONNACK 0x03.
    pub connect_rate: u32,
    /// How often clients of one IP address may connect, a second; default 0, no limit. Above it CONNACK 0x03. What counts as
    /// one address is said at [`Host`](crate::host::Host).
    pub connect_rate_per_address: u32,
    /// How many messages a client may publish, a second; default 0, no limit. Above it it is read from more slowly: no loss.
    pub publish_rate: u32,
    /// How many messages the clients of one IP address may publish together, a second; default 0, no limit. Above it they
    /// are read from more slowly: no loss.
    pub publish_rate_per_address: u32,
    /// The longest keep-alive a client gets; default 1 h. A client that asks for none (0) or more is treated as if it
    /// had asked for this, so that dead connections are found.
    pub max_keep_alive: Duration,
    /// The most QoS 1 messages from one client that wait for their PUBACK; default 256. At the limit its socket is not
    /// read until acknowledgements go out: backpressure, no loss.
    pub receive_window: usize,
    /// The bytes of messages from all clients together that wait to be stored; default 64 MiB. At the limit reading
    /// stops and QoS 0 messages are dropped and counted. This is what an outage of Iggy can cost in memory.
    pub ingest_bytes: usize,
    /// About the bytes of memory for where topics are stored, so that a topic which comes again need not be matched with
    /// the rules; default 8 MiB, room for some 20,000 topics. 0 remembers nothing. At the limit the topics that come
    /// least often are forgotten.
    pub resolution_cache_bytes: usize,
    /// The most messages in one append to Iggy; default 1,000. Bounds how long one request occupies a connection.
    pub max_batch_messages: usize,
    /// The most bytes in one append to Iggy; default 1 MiB. A single larger message is appended alone.
    pub max_batch_bytes: usize,
    /// The most messages per second that go to the dead-letter topic; default 100. Above it a QoS 0 message is dropped and
    /// counted, and a QoS 1 message waits, and its client with it.
    pub dead_letter_rate: u32,
    /// How often one client may be closed for the same reason within a minute; default 5. Then its CONNECT is answered
    /// 0x03 for `flap_pause`: it would send the same message again and be closed again, for ever. 0 lets it.
    pub flap_limit: usize,
    /// How long such a client is kept out; default 30 s.
    pub flap_pause: Duration,
    /// How many of a client's last QoS 1 messages are remembered after its connection has ended, so that what it sends
    /// again with DUP is not stored twice; default 256, 0 for none. Each takes some 40 bytes.
    pub dedup_window: usize,
    /// How long they are remembered; default 60 s.
    pub dedup_time: Duration,
    /// The most QoS 1 messages to one client that wait for its PUBACK; default 32, enough to fill a slow link and
    /// little enough for small devices. At the limit the outbox waits.
    pub send_window: usize,
    /// The bytes of messages queued for one client; default 1 MiB, at least `max_packet_size` so that every message
    /// which can come in can also go out. At the limit QoS 0 copies are dropped and counted, QoS 1 copies wait in Iggy.
    pub outbox_bytes: usize,
    /// The bytes of messages queued for all clients together; default 256 MiB, at least `outbox_bytes`. At the limit
    /// every outbox that is not empty is full.
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
    /// How often consumer offsets are committed to Iggy at most; default 1 s.
    pub commit_interval: Duration,
    /// How long a client may leave the oldest of its QoS 1 messages unacknowledged; default 30 s. Then it is disconnected,
    /// because it would hold back the committed offset for everyone.
    pub ack_timeout: Duration,
    /// How many reads for subscribers that are behind run at once; default 8. The others wait their turn.
    pub max_catchup_reads: usize,
    /// How many records a subscriber may be behind; default 10,000,000. Then it is disconnected: nobody who falls behind
    /// for ever is read for, for ever.
    pub max_lag_messages: usize,
    /// How much older than the newest record that which a subscriber needs may be; default 1 h. Then it is disconnected.
    pub max_lag_time: Duration,
    /// How long after the delivery role has started those who subscribe also get what its last run had not finished, and
    /// how old that may be; default 60 s. 0 for nothing of it.
    pub resume_window: Duration,
    /// How long a QoS 1 message waits for its PUBACK until it is sent again on a living connection; default 0, never: TCP
    /// loses nothing, and most devices take it for a second message. Each message is kept until then.
    pub retransmit_interval: Duration,
    /// How often it is sent again; default 3. Then the client is disconnected.
    pub retransmit_max: u32,
    /// How often Iggy is asked how many partitions the topics in use have; default 30 s. Nothing is missed meanwhile, but
    /// what is stored in a new partition is delivered only then.
    pub topology_interval: Duration,
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
            login_cache: Duration::from_secs(30),
            reload_interval: Duration::from_secs(5),
            connect_rate: 0,
            connect_rate_per_address: 0,
            publish_rate: 0,
            publish_rate_per_address: 0,
            max_keep_alive: Duration::from_secs(3_600),
            receive_window: 256,
            ingest_bytes: 64 * MIB,
            resolution_cache_bytes: 8 * MIB,
            max_batch_messages: 1_000,
            max_batch_bytes: MIB,
            dead_letter_rate: 100,
            flap_limit: 5,
            flap_pause: Duration::from_secs(30),
            dedup_window: 256,
            dedup_time: Duration::from_secs(60),
            send_window: 32,
            outbox_bytes: MIB,
            outbox_bytes_total: 256 * MIB,
            max_subscriptions: 256,
            max_poll_messages: 1_000,
            poll_interval_min: Duration::from_millis(1),
            poll_interval_max: Duration::from_millis(50),
            commit_interval: Duration::from_secs(1),
            ack_timeout: Duration::from_secs(30),
            max_catchup_reads: 8,
            max_lag_messages: 10_000_000,
            max_lag_time: Duration::from_secs(3_600),
            resume_window: Duration::from_secs(60),
            retransmit_interval: Duration::ZERO,
            retransmit_max: 3,
            topology_interval: Duration::from_secs(30),
        }
    }
}

/// Two limits of which the first must not be greater than the second, found to be the other way round.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{lesser} ({lesser_value}) must not be greater than {greater} ({greater_value}): {reason}")]
pub struct BrokenRelation {
    /// The key of the limit that must not be greater.
    pub lesser: &'static str,
    /// Its value.
    pub lesser_value: String,
    /// The key of the limit that must not be less.
    pub greater: &'static str,
    /// Its value.
    pub greater_value: String,
    /// Why.
    pub reason: &'static str,
}

impl Limits {
    /// What one packet may take.
    pub fn wire(&self) -> WireLimits {
        WireLimits {
            max_packet_size: self.max_packet_size,
            max_connect_size: self.max_connect_size,
            max_topic_length: self.max_topic_length,
            max_topic_levels: self.max_topic_levels,
        }
    }

    /// Every limit with its key and range, in the order of the fields.
    pub(super) fn slots(&mut self) -> Vec<(&'static str, Slot<'_>)> {
        // Without `..`: a new limit does not compile until it has a key and a range.
        let Self {
            max_packet_size,
            max_connect_size,
            max_topic_length,
            max_topic_levels,
            max_connections,
            max_connections_per_address,
            connect_timeout,
            login_cache,
            reload_interval,
            connect_rate,
            connect_rate_per_address,
            publish_rate,
            publish_rate_per_address,
            max_keep_alive,
            receive_window,
            ingest_bytes,
            resolution_cache_bytes,
            max_batch_messages,
            max_batch_bytes,
            dead_letter_rate,
            flap_limit,
            flap_pause,
            dedup_window,
            dedup_time,
            send_window,
            outbox_bytes,
            outbox_bytes_total,
            max_subscriptions,
            max_poll_messages,
            poll_interval_min,
            poll_interval_max,
            commit_interval,
            ack_timeout,
            max_catchup_reads,
            max_lag_messages,
            max_lag_time,
            resume_window,
            retransmit_interval,
            retransmit_max,
            topology_interval,
        } = self;
        vec![
            (
                "limits.max_packet_size",
                Slot::Size(max_packet_size, MIN_CONNECT..=MAX_PAYLOAD),
            ),
            (
                "limits.max_connect_size",
                Slot::Size(max_connect_size, MIN_CONNECT..=MAX_PAYLOAD),
            ),
            (
                "limits.max_topic_length",
                Slot::Size(max_topic_length, 1..=65_535),
            ),
            (
                "limits.max_topic_levels",
                Slot::Count(max_topic_levels, 1..=65_536),
            ),
            (
                "limits.max_connections",
                Slot::Count(max_connections, 1..=1_000_000),
            ),
            (
                "limits.max_connections_per_address",
                Slot::Count(max_connections_per_address, 1..=1_000_000),
            ),
            (
                "limits.connect_timeout",
                Slot::Time(connect_timeout, MILLISECOND..=DAY),
            ),
            (
                "limits.login_cache",
                Slot::Time(login_cache, Duration::ZERO..=DAY),
            ),
            (
                "limits.reload_interval",
                Slot::Time(reload_interval, Duration::ZERO..=DAY),
            ),
            ("limits.connect_rate", Slot::Count32(connect_rate, RATES)),
            (
                "limits.connect_rate_per_address",
                Slot::Count32(connect_rate_per_address, RATES),
            ),
            ("limits.publish_rate", Slot::Count32(publish_rate, RATES)),
            (
                "limits.publish_rate_per_address",
                Slot::Count32(publish_rate_per_address, RATES),
            ),
            (
                "limits.max_keep_alive",
                Slot::Time(max_keep_alive, Duration::from_secs(1)..=LONGEST_KEEP_ALIVE),
            ),
            (
                "limits.receive_window",
                Slot::Count(receive_window, 1..=MAX_PACKET_IDS),
            ),
            ("limits.ingest_bytes", Slot::Size(ingest_bytes, 1..=TIB)),
            (
                "limits.resolution_cache_bytes",
                Slot::Size(resolution_cache_bytes, 0..=TIB),
            ),
            (
                "limits.max_batch_messages",
                Slot::Count(max_batch_messages, 1..=100_000),
            ),
            (
                "limits.max_batch_bytes",
                Slot::Size(max_batch_bytes, 1..=MAX_PAYLOAD),
            ),
            (
                "limits.dead_letter_rate",
                Slot::Count32(dead_letter_rate, 1..=1_000_000),
            ),
            ("limits.flap_limit", Slot::Count(flap_limit, 0..=1_000)),
            (
                "limits.flap_pause",
                Slot::Time(flap_pause, MILLISECOND..=DAY),
            ),
            (
                "limits.dedup_window",
                Slot::Count(dedup_window, 0..=MAX_PACKET_IDS),
            ),
            (
                "limits.dedup_time",
                Slot::Time(dedup_time, MILLISECOND..=DAY),
            ),
            (
                "limits.send_window",
                Slot::Count(send_window, 1..=MAX_PACKET_IDS),
            ),
            ("limits.outbox_bytes", Slot::Size(outbox_bytes, 1..=TIB)),
            (
                "limits.outbox_bytes_total",
                Slot::Size(outbox_bytes_total, 1..=TIB),
            ),
            (
                "limits.max_subscriptions",
                Slot::Count(max_subscriptions, 1..=100_000),
            ),
            (
                "limits.max_poll_messages",
                Slot::Count32(max_poll_messages, 1..=100_000),
            ),
            (
                "limits.poll_interval_min",
                Slot::Time(poll_interval_min, MILLISECOND..=DAY),
            ),
            (
                "limits.poll_interval_max",
                Slot::Time(poll_interval_max, MILLISECOND..=DAY),
            ),
            (
                "limits.commit_interval",
                Slot::Time(commit_interval, MILLISECOND..=DAY),
            ),
            (
                "limits.ack_timeout",
                Slot::Time(ack_timeout, MILLISECOND..=DAY),
            ),
            (
                "limits.max_catchup_reads",
                Slot::Count(max_catchup_reads, 1..=1_000),
            ),
            (
                "limits.max_lag_messages",
                Slot::Count(max_lag_messages, 1..=MAX_LAG_MESSAGES),
            ),
            (
                "limits.max_lag_time",
                Slot::Time(max_lag_time, MILLISECOND..=7 * DAY),
            ),
            (
                "limits.resume_window",
                Slot::Time(resume_window, Duration::ZERO..=DAY),
            ),
            (
                "limits.retransmit_interval",
                Slot::Time(retransmit_interval, Duration::ZERO..=DAY),
            ),
            (
                "limits.retransmit_max",
                Slot::Count32(retransmit_max, 1..=1_000),
            ),
            (
                "limits.topology_interval",
                Slot::Time(topology_interval, MILLISECOND..=DAY),
            ),
        ]
    }

    /// The relations between limits that do not hold. A limit that merely never comes into play beside another one
    /// (more connections from one address than there may be at all) is not among them.
    pub(super) fn broken_relations(&self) -> Vec<BrokenRelation> {
        let size = |bytes: usize| (bytes as u128, size_text(bytes as u64));
        let time = |time: Duration| (time.as_nanos(), duration_text(time));
        let packet = ("limits.max_packet_size", size(self.max_packet_size));
        let outbox = ("limits.outbox_bytes", size(self.outbox_bytes));
        let relations = [
            (
                ("limits.max_connect_size", size(self.max_connect_size)),
                packet.clone(),
                "a CONNECT is a packet too",
            ),
            (
                packet.clone(),
                ("limits.ingest_bytes", size(self.ingest_bytes)),
                "a packet that is longer than the room for all of them could never be taken",
            ),
            (
                packet,
                outbox.clone(),
                "a message that is longer than an outbox could be published but never delivered",
            ),
            (
                outbox,
                ("limits.outbox_bytes_total", size(self.outbox_bytes_total)),
                "one outbox alone would exceed the room for all of them",
            ),
            (
                ("limits.poll_interval_min", time(self.poll_interval_min)),
                ("limits.poll_interval_max", time(self.poll_interval_max)),
                "the pause grows from the one to the other",
            ),
        ];
        let broken = relations
            .into_iter()
            .filter(|((_, lesser), (_, greater), _)| lesser.0 > greater.0);
        let broken = broken.map(
            |((lesser, (_, lesser_value)), (greater, (_, greater_value)), reason)| BrokenRelation {
                lesser,
                lesser_value,
                greater,
                greater_value,
                reason,
            },
        );
        broken.collect()
    }
}
