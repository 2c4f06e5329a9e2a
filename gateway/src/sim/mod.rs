//! The gateway as a whole, without sockets: clients on in-memory streams, the log in memory with faults, time that is
//! only as long as something waits. One fixture ([`Sim`]) for all scenarios; a failing random run names its seed.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use tokio::time::Instant;

use crate::config::{Config, Limits, ListenerConfig};
use crate::delivery::Delivery;
use crate::gateway::{Gateway, Role};
use crate::listener::door::Door;
use crate::log::memory::MemoryLog;
use crate::log::{Log, Name, Record, StoredRecord, Target, Triple};
use crate::mapping::envelope::{HeaderSet, Published};
use crate::mapping::{TopicMap, envelope};
use crate::mqtt::{ClientId, QoS, TopicName};
use crate::session::connection;
use crate::session::peer::Peer;

mod access;
mod again;
mod bounds;
mod client;
mod delivery;
mod duplicates;
mod endings;
mod figures;
mod files;
mod ingest;
mod listeners;
mod maps;
mod mortal;
mod outcomes;
mod partitions;
mod random;
mod rates;
mod resume;
mod runtime;
mod seeds;
mod session;
mod slow;
mod storm;
mod subscribers;
mod subscribing;
mod topics;
mod trace;

pub(crate) use client::{Client, Got};
pub(crate) use files::Files;

/// Devices `d/<device>/…` go to `s/t`, four partitions, by device; everything else to `s/rest`.
const MAP: &str = r#"
default_stream = "s"
default_topic = "rest"

[[rule]]
mqtt_topic = 'd/([^/]+)/.*'
stream = 's'
topic = 't'
partition_key = '$1'
partitions = 4

[[rule]]
mqtt_topic = 'dynamic/([^/]+)'
stream = 's'
topic = 'dynamic_$1'
"#;

/// A gateway with both roles on a log in memory.
pub(crate) struct Sim {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) log: Arc<MemoryLog>,
    /// What clients would have come to.
    pub(crate) door: Arc<Door>,
}

impl Sim {
    pub(crate) async fn new() -> Self {
        Self::on(MemoryLog::new(), |_| ()).await
    }

    pub(crate) async fn on(log: MemoryLog, limit: impl FnOnce(&mut Limits)) -> Self {
        Self::with(log, |config| limit(&mut config.limits)).await
    }

    pub(crate) async fn with(log: MemoryLog, configure: impl FnOnce(&mut Config)) -> Self {
        Self::with_map(MAP, log, configure).await
    }

    pub(crate) async fn with_map(
        map: &str,
        log: MemoryLog,
        configure: impl FnOnce(&mut Config),
    ) -> Self {
        let log = Arc::new(log);
        Self::start(map, log.clone(), log, configure).await
    }

    /// On a `log` that rests on `memory`.
    pub(crate) async fn start(
        map: &str,
        log: Arc<dyn Log>,
        memory: Arc<MemoryLog>,
        configure: impl FnOnce(&mut Config),
    ) -> Self {
        Self::listening(map, log, memory, |config| {
            configure(config);
            config.listen.clear();
        })
        .await
    }

    /// As [`Sim::start`], with the listeners that `configure` leaves in the configuration.
    pub(crate) async fn listening(
        map: &str,
        log: Arc<dyn Log>,
        memory: Arc<MemoryLog>,
        configure: impl FnOnce(&mut Config),
    ) -> Self {
        let environment = [
            ("MQTT_GATEWAY_IGGY_PASSWORD", "secret"),
            ("MQTT_GATEWAY_AUTHENTICATION", "anonymous"),
            ("MQTT_GATEWAY_HTTP_LISTEN", ""),
        ];
        let mut config = Config::load(&json!({}), environment).unwrap();
        configure(&mut config);
        let (nowhere, methods) = ("127.0.0.1:1883", config.access.authentication.clone());
        let listener = ListenerConfig::plain(nowhere.parse().unwrap(), methods);
        let map = TopicMap::compile("map.toml", map).unwrap();
        let gateway = Gateway::start_on(config, map, log).await.unwrap();
        assert!(gateway.add_role(Role::Ingest));
        assert!(gateway.add_role(Role::Delivery));
        let door = door(&gateway, listener);
        Self {
            gateway,
            log: memory,
            door,
        }
    }

    /// A client that has not sent anything; the stream buffers `buffer` bytes in each direction.
    pub(crate) fn dial(&self, buffer: usize) -> Client {
        let (ours, theirs) = tokio::io::duplex(buffer);
        let (read, write) = tokio::io::split(theirs);
        let context = self.gateway.context().clone();
        let peer = Peer {
            address: "192.0.2.1:1".parse().unwrap(),
            id: context.sessions.next_id(),
            visit: self.door.enter(),
            certificate: None,
            deadline: Instant::now() + context.config.limits.connect_timeout,
            admitted: Arc::default(),
            refuse: None,
        };
        tokio::spawn(connection::serve(context, read, write, Box::new(peer)));
        Client::new(ours)
    }

    /// A client that is connected.
    pub(crate) async fn connect(&self, id: &str) -> Client {
        let mut client = self.dial(1 << 16);
        client.connect(id).await;
        client
    }

    /// The delivery role.
    pub(crate) fn delivery(&self) -> Arc<Delivery> {
        self.gateway.context().delivery.load_full().unwrap()
    }

    pub(crate) fn count(&self, name: &str) -> u64 {
        let snapshot = self.gateway.counters().snapshot();
        snapshot
            .iter()
            .find(|(other, _)| *other == name)
            .unwrap_or_else(|| panic!("no counter {name}"))
            .1
    }

    /// N7, to be called when nothing is on its way.
    pub(crate) fn assert_outcomes_add_up(&self) {
        let outcomes = ["stored", "protocol_error", "refused", "shed", "failed"];
        let sum: u64 = outcomes
            .iter()
            .map(|name| self.count(&format!("publishes_{name}")))
            .sum();
        assert_eq!(
            self.count("publishes_received"),
            sum,
            "{:?}",
            self.gateway.counters().snapshot()
        );
        self.assert_parts_add_up();
    }

    /// Every counter that is told apart by something is the sum of its parts.
    fn assert_parts_add_up(&self) {
        let sum = |prefix: &str, parts: &[&str]| -> u64 {
            let parts = parts.iter();
            parts
                .map(|part| self.count(&format!("{prefix}_{part}")))
                .sum()
        };
        let by_prefix = |prefix: &str| -> u64 {
            let all = self.gateway.counters().snapshot().into_iter();
            let parts = all.filter(|(name, _)| name.starts_with(prefix));
            parts.map(|(_, count)| count).sum()
        };
        let codes = ["0x01", "0x02", "0x03", "0x04", "0x05", "silently"];
        for (whole, parts) in [
            (
                "publishes_received",
                sum("publishes_received", &["qos0", "qos1", "invalid"]),
            ),
            ("copies_sent", sum("copies_sent", &["qos0", "qos1"])),
            ("connects_refused", sum("connects_refused", &codes)),
            ("publishes_refused", by_prefix("refused_")),
            ("evictions", by_prefix("evictions_")),
        ] {
            assert_eq!(self.count(whole), parts, "{whole}");
        }
    }

    /// Waits until `condition` holds; panics after a minute.
    pub(crate) async fn until(&self, what: &str, mut condition: impl FnMut(&Self) -> bool) {
        for _ in 0..60_000 {
            if condition(self) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!(
            "not within a minute: {what}; {:?}",
            self.gateway.counters().snapshot()
        );
    }
}

/// Where clients of `gateway` come in, who do not come over the network.
pub(crate) fn door(gateway: &Gateway, listener: ListenerConfig) -> Arc<Door> {
    let stopping = &gateway.context().stopping;
    let address = listener.address;
    Arc::new(Door::new(address, Arc::new(listener), None, stopping))
}

pub(crate) fn triple(topic: &str, partition: u32) -> Triple {
    Triple {
        target: Target {
            stream: Name::new("s").unwrap(),
            topic: Name::new(topic).unwrap(),
        },
        partition,
    }
}

/// The partition of a device's topic.
pub(crate) fn device(device: &str) -> Triple {
    triple("t", crate::mapping::PartitionKey::new(device).partition(4))
}

/// The only partition of the dead-letter topic.
pub(crate) fn dead_letters() -> Triple {
    Triple {
        target: Target {
            stream: Name::new("mqtt_gateway").unwrap(),
            topic: Name::new("dead_letter").unwrap(),
        },
        partition: 0,
    }
}

/// A record as another gateway stores it.
pub(crate) fn record(topic: &str, payload: &str, qos: u8) -> Record {
    let published = Published {
        topic: &TopicName::new(topic).unwrap(),
        qos: if qos == 0 {
            QoS::AtMostOnce
        } else {
            QoS::AtLeastOnce
        },
        packet_id: None,
        retain: false,
        dup: false,
        client_id: &ClientId::new("elsewhere").unwrap(),
        payload: &Bytes::copy_from_slice(payload.as_bytes()),
    };
    envelope::seal(&published, rand::random(), HeaderSet::ALL)
}

/// The payloads of stored records as text.
pub(crate) fn payloads(records: &[StoredRecord]) -> Vec<String> {
    records
        .iter()
        .map(|record| String::from_utf8(envelope::open(record).unwrap().payload.to_vec()).unwrap())
        .collect()
}
