//! What clients can make the gateway hold (N4): however they behave, others are served and memory stays within the limits.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::client::{publish, publish_again};
use super::{Got, Sim, device, payloads};
use crate::ingest::Publisher;
use crate::log::memory::{HoldAt, MemoryLog};

/// How long a send may take that the gateway does not take as a whole.
const STUCK: Duration = Duration::from_secs(30);

/// The outcomes of publishes so far.
fn settled(sim: &Sim) -> u64 {
    ["stored", "protocol_error", "refused", "shed", "failed"]
        .iter()
        .map(|name| sim.count(&format!("publishes_{name}")))
        .sum()
}

/// What the client that is connected publishes through.
fn publisher(sim: &Sim) -> Weak<Publisher> {
    let mut found = Weak::new();
    sim.gateway.context().sessions.for_each(|_, live| {
        found = Arc::downgrade(&live.publisher);
    });
    found
}

#[tokio::test(start_paused = true)]
async fn n4_a_client_that_publishes_and_never_reads_is_not_read_further_and_others_are_served() {
    const MESSAGES: u32 = 70_000;
    let sim = Sim::new().await;
    let mut deaf = sim.dial(256);
    deaf.connect("deaf").await;
    let id = |n: u32| (n % 65_535 + 1) as u16;
    let all: Vec<u8> = (0..MESSAGES)
        .flat_map(|n| publish("d/1/x", &n.to_be_bytes(), Some(id(n))))
        .collect();
    {
        let sending = deaf.send_and_take(&all, 0);
        assert!(tokio::time::timeout(STUCK, sending).await.is_err());
    }
    let received = sim.count("publishes_received");
    // The answers that fill its outbox, the pipe, and a window of messages.
    assert!(received < 16_384 / 4 + 256 + 256, "{received}");
    let mut other = sim.connect("other").await;
    for n in 1..=20 {
        other.publish("d/1/x", "mine", Some(n)).await;
        assert_eq!(other.next().await, Got::PubAck(n));
    }
    assert_eq!(sim.count("publishes_received"), received + 20);
}

#[tokio::test(start_paused = true)]
async fn n3_a_client_that_reads_late_gets_all_its_pubacks_in_order() {
    const MESSAGES: u32 = 10_000;
    let sim = Sim::new().await;
    let mut client = sim.dial(256);
    client.connect("late").await;
    let id = |n: u32| (n % 65_535 + 1) as u16;
    let all: Vec<u8> = (0..MESSAGES)
        .flat_map(|n| publish("d/1/x", &n.to_be_bytes(), Some(id(n))))
        .collect();
    let answers = client.send_and_take(&all, MESSAGES as usize).await;
    for (n, answer) in (0..).zip(answers) {
        assert_eq!(answer, Got::PubAck(id(n)));
    }
    sim.assert_outcomes_add_up();
}

#[tokio::test(start_paused = true)]
async fn n4_one_message_sent_again_and_again_while_it_waits_does_not_pile_up() {
    let sim = Sim::on(MemoryLog::new(), |limits| limits.receive_window = 4).await;
    let mut client = sim.connect("a").await;
    sim.log.hold(HoldAt::BeforeCommit);
    let again = publish_again("d/1/x", b"1", 1).repeat(10_000);
    {
        let sending = client.send_and_take(&again, 0);
        let _ = tokio::time::timeout(STUCK, sending).await;
    }
    let waiting = sim.count("publishes_received") - settled(&sim);
    assert!(waiting <= 4 + 1, "{waiting} wait");
    sim.log.release();
    assert_eq!(client.next().await, Got::PubAck(1));
}

#[tokio::test(start_paused = true)]
async fn n4_a_client_that_reconnects_all_the_time_leaves_little_behind() {
    let sim = Sim::new().await;
    let mut gone = Vec::new();
    for round in 1..=50_u16 {
        let mut client = sim.connect("a").await;
        client.publish("d/1/x", "x", Some(round)).await;
        assert_eq!(client.next().await, Got::PubAck(round));
        gone.push(publisher(&sim));
        // By turns it leaves, and is taken over.
        if round % 2 == 0 {
            drop(client);
            sim.until("gone", |sim| sim.gateway.context().sessions.is_empty())
                .await;
        } else {
            tokio::spawn(async move { client.rest().await });
        }
    }
    let kept = gone.iter().filter(|gone| gone.strong_count() > 0).count();
    assert!(kept <= 3, "{kept} of 50 connections are still in memory");
}

/// A gateway with room for ten messages of about a thousand bytes, on a log that answers nothing.
async fn narrow() -> Sim {
    let sim = Sim::on(MemoryLog::new(), |limits| {
        limits.max_packet_size = 9_000;
        limits.max_connect_size = 9_000;
        limits.max_batch_bytes = 9_000;
        limits.ingest_bytes = 10_000;
    })
    .await;
    sim.log.hold(HoldAt::BeforeCommit);
    sim
}

#[tokio::test(start_paused = true)]
async fn n4_a_client_that_left_while_it_waited_for_room_keeps_nobody_out() {
    let sim = narrow().await;
    let mut flood = sim.connect("flood").await;
    for id in 1..=4 {
        flood.publish("d/1/x", &"f".repeat(800), Some(id)).await;
    }
    sim.until("flooded", |sim| sim.count("publishes_received") == 4)
        .await;
    let mut large = sim.connect("large").await;
    large.publish("d/1/x", &"l".repeat(8_000), Some(1)).await;
    sim.until("waits", |sim| sim.count("publishes_received") == 5)
        .await;
    // What it sent before is not read any more, so only its return shows that it has gone.
    drop(large);
    drop(sim.connect("large").await);
    sim.until("gone", |sim| sim.gateway.context().sessions.len() == 1)
        .await;
    let mut small = sim.connect("small").await;
    small.publish("d/2/x", "0", None).await;
    small.publish("d/2/x", "1", Some(1)).await;
    small.ping().await;
    assert_eq!(small.next().await, Got::PingResp);
    assert_eq!(sim.count("publishes_shed"), 0);
    sim.log.release();
    assert_eq!(small.next().await, Got::PubAck(1));
    assert_eq!(payloads(&sim.log.records(&device("2"))), ["0", "1"]);
}

#[tokio::test(start_paused = true)]
async fn n4_a_client_that_reconnects_and_floods_again_leaves_room_for_others() {
    let sim = narrow().await;
    for round in 0..10_u16 {
        let mut flood = sim.connect("flood").await;
        for n in 0..10 {
            let id = round * 10 + n + 1;
            let message = publish("d/1/x", "f".repeat(800).as_bytes(), Some(id));
            let sending = flood.send_and_take(&message, 0);
            let _ = tokio::time::timeout(Duration::from_secs(1), sending).await;
        }
    }
    let mut other = sim.connect("other").await;
    other.publish("d/2/x", &"o".repeat(800), None).await;
    other.ping().await;
    assert_eq!(other.next().await, Got::PingResp);
    assert_eq!(sim.count("publishes_shed"), 0);
    sim.log.release();
}
