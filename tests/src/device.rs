//! A device as it should be: it keeps each message until its PUBACK, comes back when the connection breaks, and then sends
//! again, in order and with DUP, what was not acknowledged (MQTT 3.1.1, 4.4).
//!
//! Always holds: messages are numbered from 1 in the order of publishing, and each is sent to the topic that its number
//! gives; a PUBACK that is not for the oldest message that waits is a failure, and so is any other packet.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::packet;
use crate::raw::{Answer, RawClient};
use crate::wait;

/// How long a round of work waits for an answer.
const ROUND: Duration = Duration::from_millis(20);
/// How long the CONNACK may take. A device that waits longer tries again.
const CONNACK: Duration = Duration::from_secs(5);
/// How long the last PUBACK may take after everything works again.
const RECOVERY: Duration = Duration::from_secs(120);

/// The first byte of a QoS 1 PUBLISH with DUP.
const PUBLISH_AGAIN: u8 = 0x3A;

/// See the module.
#[derive(Debug)]
pub struct Device {
    gateway: SocketAddr,
    id: String,
    topics: Vec<String>,
    window: usize,
    padding: usize,
    client: Option<RawClient>,
    /// The number of the next message.
    next: u32,
    /// Numbers and packet ids, oldest first.
    waiting: VecDeque<(u32, u16)>,
    acknowledged: BTreeSet<u32>,
    connects: u32,
}

impl Device {
    /// A device that publishes to `topics` by turns.
    pub fn new(gateway: SocketAddr, id: &str, topics: &[&str]) -> Self {
        Self {
            gateway,
            id: id.to_owned(),
            topics: topics.iter().map(|topic| (*topic).to_owned()).collect(),
            window: 20,
            padding: 0,
            client: None,
            next: 1,
            waiting: VecDeque::new(),
            acknowledged: BTreeSet::new(),
            connects: 0,
        }
    }

    /// With at most `window` messages that wait for their PUBACK.
    pub fn window(mut self, window: usize) -> Self {
        self.window = window;
        self
    }

    /// With payloads of about `bytes`.
    pub fn payload_bytes(mut self, bytes: usize) -> Self {
        self.padding = bytes;
        self
    }

    /// The client id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// How often it was connected.
    pub fn connects(&self) -> u32 {
        self.connects
    }

    /// How many messages it has published.
    pub fn published(&self) -> u32 {
        self.next - 1
    }

    /// The numbers of the messages that were acknowledged.
    pub fn acknowledged(&self) -> &BTreeSet<u32> {
        &self.acknowledged
    }

    /// Whether every message was acknowledged.
    pub fn is_done(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The topic of a message.
    pub fn topic(&self, number: u32) -> &str {
        self.topics
            .get(number as usize % self.topics.len())
            .map_or("", String::as_str)
    }

    /// The payload of a message: the client id, the number, and perhaps padding.
    pub fn payload(&self, number: u32) -> String {
        let padding = ".".repeat(self.padding);
        format!("{} {number} {padding}", self.id)
    }

    /// One round of what a device does all the time. Errors of the connection are nothing special.
    ///
    /// # Panics
    /// When the gateway answers what it must not.
    pub fn work(&mut self, publishing: bool) {
        if self.client.is_none() {
            self.client = self.connect();
        }
        let Some(mut client) = self.client.take() else {
            thread::sleep(ROUND);
            return;
        };
        while publishing && self.waiting.len() < self.window {
            let number = self.next;
            let id = u16::try_from(number % 65_535 + 1).unwrap_or(1);
            let bytes = packet::publish(self.topic(number), id, self.payload(number));
            self.waiting.push_back((number, id));
            self.next += 1;
            if client.try_send(&bytes).is_err() {
                return;
            }
        }
        let mut patience = ROUND;
        loop {
            match client.answer(patience) {
                Answer::Silence => break,
                Answer::Closed => return,
                Answer::Packet(bytes) => self.acknowledge(&bytes),
            }
            // The rest of what has come already.
            patience = Duration::ZERO;
        }
        self.client = Some(client);
    }

    /// Breaks the connection, in the middle of whatever is on its way.
    pub fn disconnect(&mut self) {
        self.client = None;
    }

    fn acknowledge(&mut self, bytes: &[u8]) {
        let Some((number, id)) = self.waiting.pop_front() else {
            panic!("{}: nothing waits, and {bytes:02x?} came", self.id);
        };
        let expected = packet::puback(id);
        assert_eq!(bytes, expected, "{}: message {number} is next", self.id);
        self.acknowledged.insert(number);
    }

    fn connect(&mut self) -> Option<RawClient> {
        let mut client = RawClient::try_open(self.gateway).ok()?;
        client.try_send(&packet::connect(&self.id, 0)).ok()?;
        if client.answer(CONNACK) != Answer::Packet(packet::CONNECTED.to_vec()) {
            return None;
        }
        self.connects += 1;
        for (number, id) in &self.waiting {
            let again = packet::publish_flags(
                PUBLISH_AGAIN,
                self.topic(*number),
                *id,
                self.payload(*number),
            );
            client.try_send(&again).ok()?;
        }
        Some(client)
    }
}

/// What others see of devices at work.
#[derive(Debug, Default)]
pub struct Progress {
    acknowledged: AtomicUsize,
    stopped: AtomicBool,
}

impl Progress {
    /// How many messages were acknowledged, of all devices together.
    pub fn acknowledged(&self) -> usize {
        self.acknowledged.load(Ordering::SeqCst)
    }

    /// Waits until `count` more messages were acknowledged than now.
    ///
    /// # Panics
    /// When they are not in time.
    pub fn wait_for_more(&self, count: usize) {
        let goal = self.acknowledged() + count;
        wait::until(
            &format!("{count} more messages are acknowledged"),
            RECOVERY,
            || {
                assert!(!self.stopped.load(Ordering::SeqCst), "a device has failed");
                self.acknowledged() >= goal
            },
        );
    }
}

/// Tells everybody to stop, also when its holder fails.
struct Stops<'a>(&'a Progress);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.stopped.store(true, Ordering::SeqCst);
    }
}

/// Lets every device publish in a thread of its own for as long as `meanwhile` takes, and then until nothing waits.
///
/// # Panics
/// When `meanwhile` or a device fails, or a PUBACK is missing too long after the end.
pub fn all_publish<T>(devices: &mut [Device], meanwhile: impl FnOnce(&Progress) -> T) -> T {
    let progress = Progress::default();
    thread::scope(|scope| {
        for device in devices {
            scope.spawn(|| publish(device, &progress));
        }
        let _stops = Stops(&progress);
        meanwhile(&progress)
    })
}

fn publish(device: &mut Device, progress: &Progress) {
    let work = |device: &mut Device, publishing| {
        let before = device.acknowledged.len();
        device.work(publishing);
        let more = device.acknowledged.len() - before;
        progress.acknowledged.fetch_add(more, Ordering::SeqCst);
    };
    let _stops = Stops(progress);
    while !progress.stopped.load(Ordering::SeqCst) {
        work(device, true);
    }
    let end = Instant::now() + RECOVERY;
    while !device.is_done() {
        assert!(
            Instant::now() < end,
            "{}: {} messages wait for their PUBACK",
            device.id,
            device.waiting.len()
        );
        work(device, false);
    }
}
