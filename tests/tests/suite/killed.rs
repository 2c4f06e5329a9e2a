//! `kill -9` of Iggy and of the host, in any order: no message that was acknowledged is missing afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use e2e::deployment::Deployment;
use e2e::packet;
use e2e::raw::{Answer, RawClient};

const TOPIC: &str = "device/7/x";
/// Unacknowledged messages at a time.
const WINDOW: usize = 32;
/// Acknowledged messages between two kills.
const BETWEEN: usize = 200;
const RECOVERY: Duration = Duration::from_secs(120);

/// A publisher that behaves as a device should: it keeps each message until its PUBACK, comes back when the connection
/// breaks, and sends again in order what was not acknowledged.
struct Device {
    deployment_mqtt: std::net::SocketAddr,
    client: Option<RawClient>,
    next: u32,
    /// By packet id; ids are given in the order of the messages and each message keeps its own.
    waiting: BTreeMap<u32, u16>,
    acknowledged: BTreeSet<u32>,
}

impl Device {
    fn new(deployment: &Deployment) -> Self {
        Self {
            deployment_mqtt: deployment.mqtt(),
            client: None,
            next: 1,
            waiting: BTreeMap::new(),
            acknowledged: BTreeSet::new(),
        }
    }

    /// One round of what a device does all the time; errors of the connection are nothing special.
    fn work(&mut self) {
        if self.client.is_none() {
            self.client = self.connect();
        }
        let Some(client) = self.client.as_mut() else {
            return;
        };
        let mut alive = true;
        while alive && self.waiting.len() < WINDOW {
            let id = u16::try_from(self.next % 65_535 + 1).unwrap_or(1);
            alive = client
                .try_send(&packet::publish(TOPIC, id, self.next.to_string()))
                .is_ok();
            self.waiting.insert(self.next, id);
            self.next += 1;
        }
        match client.answer(Duration::from_millis(20)) {
            Answer::Silence => {}
            Answer::Closed => alive = false,
            Answer::Packet(bytes) => {
                // PUBACKs come in the order of the messages.
                let (message, id) = self.waiting.pop_first().expect("something waits");
                assert_eq!(bytes, packet::puback(id));
                self.acknowledged.insert(message);
            }
        }
        if !alive {
            self.client = None;
        }
    }

    fn connect(&self) -> Option<RawClient> {
        let mut client = RawClient::try_open(self.deployment_mqtt).ok()?;
        client.try_send(&packet::connect("device", 0)).ok()?;
        if client.answer(Duration::from_secs(5)) != Answer::Packet(packet::CONNECTED.to_vec()) {
            return None;
        }
        for (message, id) in &self.waiting {
            let again = packet::publish_flags(0x3A, TOPIC, *id, message.to_string());
            client.try_send(&again).ok()?;
        }
        Some(client)
    }

    /// Works until `count` more messages were acknowledged.
    fn work_until_acknowledged(&mut self, count: usize) {
        let goal = self.acknowledged.len() + count;
        let end = Instant::now() + RECOVERY;
        while self.acknowledged.len() < goal {
            assert!(
                Instant::now() < end,
                "only {} of {goal} messages were acknowledged",
                self.acknowledged.len()
            );
            self.work();
        }
    }

    /// Works for some rounds, whatever comes of it.
    fn work_rounds(&mut self, rounds: usize) {
        for _ in 0..rounds {
            self.work();
        }
    }
}

#[test]
fn no_acknowledged_message_is_missing_after_kills_of_iggy_and_host_in_any_order() {
    let mut deployment = Deployment::start();
    if !deployment.iggy.may_be_killed("kills of Iggy and host") {
        return;
    }
    let mut device = Device::new(&deployment);

    device.work_until_acknowledged(BETWEEN);
    deployment.iggy.kill();
    device.work_rounds(20);
    deployment.iggy.start_again();

    device.work_until_acknowledged(BETWEEN);
    deployment.host.kill();
    device.work_rounds(5);
    deployment.host.start();

    device.work_until_acknowledged(BETWEEN);
    deployment.iggy.kill();
    deployment.host.kill();
    device.work_rounds(5);
    deployment.iggy.start_again();
    deployment.host.start();

    device.work_until_acknowledged(BETWEEN);
    deployment.host.kill();
    deployment.iggy.kill();
    device.work_rounds(5);
    // The host comes first and waits for Iggy.
    deployment.host.launch();
    device.work_rounds(20);
    deployment.iggy.start_again();

    device.work_until_acknowledged(BETWEEN);
    deployment.host.kill();
    deployment.iggy.kill();
    deployment.iggy.start_again();

    let mut stored = Vec::new();
    for record in deployment.device_records() {
        stored.push(record.payload_text().parse::<u32>().unwrap());
    }
    let found: BTreeSet<u32> = stored.iter().copied().collect();
    let missing: Vec<&u32> = device.acknowledged.difference(&found).collect();
    assert!(
        missing.is_empty(),
        "acknowledged but not stored: {missing:?}"
    );

    let mut seen = BTreeSet::new();
    let first_ones: Vec<u32> = stored
        .into_iter()
        .filter(|message| seen.insert(*message))
        .collect();
    assert!(
        first_ones.is_sorted(),
        "the first occurrences are not in the order of publishing: {first_ones:?}"
    );
}

#[test]
fn a_host_that_is_asked_to_end_acknowledges_what_it_has_stored_and_ends() {
    let mut deployment = Deployment::start();
    let mut client = deployment.client("publisher");
    client.publish(TOPIC, 1, "1");
    for id in 2..=50 {
        client.send(&packet::publish(TOPIC, id, id.to_string()));
    }
    let status = deployment.host.process().terminate(Duration::from_secs(60));
    assert!(status.success(), "the host ended with {status}");

    let mut acknowledged = 1;
    loop {
        match client.answer(Duration::from_secs(5)) {
            Answer::Packet(bytes) => {
                acknowledged += 1;
                assert_eq!(bytes, packet::puback(acknowledged));
            }
            Answer::Closed => break,
            Answer::Silence => panic!("the connection is still open"),
        }
    }
    let stored = deployment.device_records().len();
    assert!(
        stored >= usize::from(acknowledged),
        "{acknowledged} were acknowledged and {stored} stored"
    );
}
