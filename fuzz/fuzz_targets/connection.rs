//! The connection loop: clients that send any packets, or any bytes, in any order, on a log that stops and goes on. Every
//! PUBLISH has one outcome (N7), a PUBACK is only for what is stored (N1), and nothing is left of who has gone.

#![no_main]

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use mqtt_gateway::config::{Config, ListenerConfig, Method};
use mqtt_gateway::listener::door::Door;
use mqtt_gateway::log::memory::{HoldAt, MemoryLog};
use mqtt_gateway::log::{Name, Target, Triple};
use mqtt_gateway::mapping::{TopicMap, envelope};
use mqtt_gateway::session::connection;
use mqtt_gateway::session::peer::Peer;
use mqtt_gateway::{Gateway, Role};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, duplex, split};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

/// Every topic has one of few places, so that all that is stored can be looked at.
const MAP: &str = r#"
default_stream = "s"
default_topic = "rest"

[[rule]]
mqtt_topic = 'd/([^/]+)/.*'
stream = 's'
topic = 't'
partition_key = '$1'
partitions = 2
"#;
const CLIENTS: u8 = 3;

thread_local! {
    static RUNTIME: RefCell<Runtime> = RefCell::new(
        Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime"),
    );
}

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    steps: Vec<(u8, Step<'a>)>,
}

#[derive(Debug, Arbitrary)]
enum Step<'a> {
    /// A new connection that sends nothing yet; every other step connects first, if there is none.
    Dial,
    Connect {
        id: u8,
        keep_alive: u8,
    },
    Publish {
        topic: Topic<'a>,
        id: u8,
        qos: bool,
        retain: bool,
    },
    /// The last PUBLISH with QoS 1 once more, with DUP.
    Again,
    Subscribe {
        topic: Topic<'a>,
        id: u8,
        qos: u8,
    },
    Unsubscribe {
        topic: Topic<'a>,
        id: u8,
    },
    PubAck {
        id: u8,
    },
    Ping,
    Disconnect,
    Bytes(&'a [u8]),
    Wait(u16),
    Gone,
    Hold(bool),
    Release,
    Outage(bool),
}

#[derive(Debug, Arbitrary)]
enum Topic<'a> {
    Device(u8),
    Rest,
    Dollar,
    Wildcard,
    Any(&'a str),
}

impl Topic<'_> {
    fn text(&self) -> String {
        match self {
            Self::Device(n) => format!("d/{}/x", n % 4),
            Self::Rest => "rest".to_owned(),
            Self::Dollar => "$x".to_owned(),
            Self::Wildcard => "d/+/#".to_owned(),
            Self::Any(text) => text.chars().take(300).collect(),
        }
    }
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u16).to_be_bytes()[..], text.as_bytes()].concat()
}

fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    let mut length = body.len();
    while length > 0x7f {
        bytes.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
    bytes.extend_from_slice(body);
    bytes
}

/// A connection, seen from its client.
struct Client {
    write: WriteHalf<DuplexStream>,
    reading: JoinHandle<Vec<u8>>,
    serving: JoinHandle<()>,
    /// The payloads that were sent with each packet id.
    sent: HashMap<u16, Vec<[u8; 4]>>,
    last: Option<Vec<u8>>,
    /// Whether it is still known what was sent.
    is_tracked: bool,
}

async fn read_all(mut read: ReadHalf<DuplexStream>) -> Vec<u8> {
    let mut all = Vec::new();
    let _ = read.read_to_end(&mut all).await;
    all
}

impl Client {
    fn dial(gateway: &Gateway) -> Self {
        let (ours, theirs) = duplex(4_096);
        let (read, write) = split(theirs);
        let context = gateway.context().clone();
        let authentication = [Method::Anonymous].into_iter().collect();
        let listener = ListenerConfig::plain(([127, 0, 0, 1], 1883).into(), authentication);
        let door = Door::new(listener.address, Arc::new(listener), None, &context.stopping);
        let peer = Peer {
            address: ([192, 0, 2, 1], 1).into(),
            id: context.sessions.next_id(),
            visit: Arc::new(door).enter(),
            certificate: None,
            deadline: Instant::now() + context.config.limits.connect_timeout,
            admitted: Arc::default(),
            refuse: None,
        };
        let serving = connection::serve(context, read, write, Box::new(peer));
        let (read, write) = split(ours);
        Self {
            write,
            reading: tokio::spawn(read_all(read)),
            serving: tokio::spawn(serving),
            sent: HashMap::new(),
            last: None,
            is_tracked: true,
        }
    }

    async fn send(&mut self, bytes: &[u8]) {
        let sent = timeout(Duration::from_millis(10), self.write.write_all(bytes)).await;
        // The gateway does not read on: what was sent may end in the middle of a packet.
        self.is_tracked &= sent.is_ok();
    }

    /// Closes, waits for the end, and checks what came.
    async fn end(mut self, stored: impl AsyncFnOnce() -> HashSet<Vec<u8>>) {
        let _ = self.write.shutdown().await;
        drop(self.write);
        let served = timeout(Duration::from_secs(600), self.serving).await;
        served.expect("it ends").expect("no panic");
        let got = self.reading.await.expect("no panic");
        if !self.is_tracked {
            return;
        }
        let stored = stored().await;
        let mut rest = &got[..];
        while let [first, after @ ..] = rest {
            let mut length = 0;
            let mut at = 0;
            loop {
                let Some(byte) = after.get(at) else { return };
                length |= usize::from(byte & 0x7f) << (7 * at);
                at += 1;
                if byte & 0x80 == 0 {
                    break;
                }
            }
            let Some(body) = after.get(at..at + length) else {
                return;
            };
            if *first == 0x40 {
                let id = u16::from_be_bytes([body[0], body[1]]);
                let payloads = self.sent.get(&id).expect("a PUBACK for nothing");
                let is_stored = |payload: &[u8; 4]| stored.contains(&payload[..]);
                assert!(payloads.iter().any(is_stored), "N1: {id} is not stored");
            }
            rest = &after[at + length..];
        }
    }
}

fn all_stored(log: &MemoryLog) -> HashSet<Vec<u8>> {
    let places = [
        ("s", "t", 0),
        ("s", "t", 1),
        ("s", "rest", 0),
        ("mqtt_gateway", "dead_letter", 0),
    ];
    let name = |name| Name::new(name).expect("a name");
    let mut payloads = HashSet::new();
    for (stream, topic, partition) in places {
        let target = Target {
            stream: name(stream),
            topic: name(topic),
        };
        for record in log.records(&Triple { target, partition }) {
            if let Ok(opened) = envelope::open(&record) {
                payloads.insert(opened.payload.to_vec());
            }
        }
    }
    payloads
}

async fn run(input: &Input<'_>) {
    let environment = [
        ("MQTT_GATEWAY_IGGY_PASSWORD", "secret"),
        ("MQTT_GATEWAY_AUTHENTICATION", "anonymous"),
        ("MQTT_GATEWAY_HTTP_LISTEN", ""),
    ];
    let mut config = Config::load(&json!({}), environment).expect("a configuration");
    config.listen.clear();
    config.limits.receive_window = 4;
    config.limits.ingest_bytes = config.limits.max_packet_size;
    config.limits.flap_limit = 0;
    let map = TopicMap::compile("map.toml", MAP).expect("a map");
    let log = Arc::new(MemoryLog::new());
    let gateway = Gateway::start_on(config, map, log.clone())
        .await
        .expect("a start");
    gateway.add_role(Role::Ingest);
    gateway.add_role(Role::Delivery);
    let mut clients: [Option<Client>; CLIENTS as usize] = Default::default();
    let mut gone = Vec::new();
    let mut serial = 0_u32;
    for (client, step) in input.steps.iter().take(64) {
        match step {
            Step::Wait(millis) => sleep(Duration::from_millis((*millis).into())).await,
            Step::Hold(true) => log.hold(HoldAt::BeforeCommit),
            Step::Hold(false) => log.hold(HoldAt::AfterCommit),
            Step::Release => log.release(),
            Step::Outage(is_down) => log.set_outage(*is_down),
            step => {
                let number = client % CLIENTS;
                let place = &mut clients[usize::from(number)];
                if matches!(step, Step::Dial | Step::Gone) {
                    gone.extend(place.take());
                }
                if matches!(step, Step::Gone) {
                    continue;
                }
                if place.is_none() {
                    let client = place.insert(Client::dial(&gateway));
                    // So that not every input has to find out how to connect.
                    if !matches!(step, Step::Dial) {
                        let connect = Step::Connect {
                            id: number,
                            keep_alive: 0,
                        };
                        perform(client, &connect, &mut serial).await;
                    }
                }
                if let Some(client) = place {
                    perform(client, step, &mut serial).await;
                }
            }
        }
    }
    log.set_outage(false);
    log.release();
    gone.extend(clients.into_iter().flatten());
    for client in gone {
        client.end(async || all_stored(&log)).await;
    }
    assert!(gateway.context().sessions.is_empty(), "somebody is left");
    gateway.remove_role(Role::Ingest).await;
    gateway.remove_role(Role::Delivery).await;
    gateway.stop().await;
    let counters = gateway.counters();
    let outcomes = [
        &counters.publishes_stored,
        &counters.publishes_protocol_error,
        &counters.publishes_refused,
        &counters.publishes_shed,
        &counters.publishes_failed,
    ];
    let sum: u64 = outcomes.iter().map(|counter| counter.get()).sum();
    assert_eq!(
        counters.publishes_received.get(),
        sum,
        "N7: {:?}",
        counters.snapshot()
    );
    assert_eq!(counters.connection_panics.get(), 0);
}

async fn perform(client: &mut Client, step: &Step<'_>, serial: &mut u32) {
    let id = |id: &u8| u16::from(*id % 8).to_be_bytes();
    match step {
        Step::Connect { id, keep_alive } => {
            let mut body = [&string("MQTT")[..], &[4, 2, 0, *keep_alive]].concat();
            body.extend(string(&format!("c{}", id % CLIENTS)));
            client.send(&packet(0x10, &body)).await;
        }
        Step::Publish {
            topic,
            id: number,
            qos,
            retain,
        } => {
            *serial += 1;
            let payload = serial.to_be_bytes();
            let mut body = string(&topic.text());
            if *qos {
                body.extend(id(number));
                let id = u16::from_be_bytes(id(number));
                client.sent.entry(id).or_default().push(payload);
            }
            body.extend(payload);
            let bytes = packet(0x30 | u8::from(*qos) << 1 | u8::from(*retain), &body);
            client.send(&bytes).await;
            if *qos {
                client.last = Some(bytes);
            }
        }
        Step::Again => {
            if let Some(mut bytes) = client.last.clone() {
                bytes[0] |= 8;
                client.send(&bytes).await;
            }
        }
        Step::Subscribe {
            topic,
            id: number,
            qos,
        } => {
            let mut body = id(number).to_vec();
            body.extend(string(&topic.text()));
            body.push(qos % 4);
            client.send(&packet(0x82, &body)).await;
        }
        Step::Unsubscribe { topic, id: number } => {
            let mut body = id(number).to_vec();
            body.extend(string(&topic.text()));
            client.send(&packet(0xa2, &body)).await;
        }
        Step::PubAck { id: number } => client.send(&packet(0x40, &id(number))).await,
        Step::Ping => client.send(&[0xc0, 0]).await,
        Step::Disconnect => client.send(&[0xe0, 0]).await,
        Step::Bytes(bytes) => {
            client.is_tracked = false;
            client.send(bytes).await;
        }
        _ => {}
    }
}

fuzz_target!(|input: Input<'_>| {
    RUNTIME.with_borrow(|runtime| runtime.block_on(run(&input)));
});
