//! What a client sends again after its connection has ended: what of it is known, and that coming back is never punished.

use std::time::Duration;

use super::client::{connect, publish_again};
use super::{Got, Sim, device, payloads};
use crate::log::memory::{HoldAt, MemoryLog};

async fn gone(sim: &Sim) {
    sim.until("gone", |sim| sim.gateway.context().sessions.is_empty())
        .await;
}

#[tokio::test(start_paused = true)]
async fn what_is_sent_again_is_known_also_after_a_connection_that_ended_without_a_publish() {
    let sim = Sim::new().await;
    let mut client = sim.connect("a").await;
    client.publish("d/1/x", "1", Some(1)).await;
    assert_eq!(client.next().await, Got::PubAck(1));
    drop(client);
    gone(&sim).await;
    // A link that breaks again at once.
    drop(sim.connect("a").await);
    gone(&sim).await;
    let mut client = sim.connect("a").await;
    client.publish_again("d/1/x", "1", 1).await;
    assert_eq!(client.next().await, Got::PubAck(1));
    assert_eq!(payloads(&sim.log.records(&device("1"))), ["1"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_sent_again_is_known_also_after_a_connection_that_ended_in_the_middle_of_sending_it()
 {
    let sim = Sim::new().await;
    let mut client = sim.connect("a").await;
    for id in 1..=4 {
        client.publish("d/1/x", &id.to_string(), Some(id)).await;
    }
    for id in 1..=4 {
        assert_eq!(client.next().await, Got::PubAck(id));
    }
    drop(client);
    gone(&sim).await;
    let mut client = sim.connect("a").await;
    client.publish_again("d/1/x", "1", 1).await;
    assert_eq!(client.next().await, Got::PubAck(1));
    drop(client);
    gone(&sim).await;
    let mut client = sim.connect("a").await;
    for id in 1..=4 {
        client.publish_again("d/1/x", &id.to_string(), id).await;
        assert_eq!(client.next().await, Got::PubAck(id));
    }
    assert_eq!(
        payloads(&sim.log.records(&device("1"))),
        ["1", "2", "3", "4"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_client_that_comes_back_while_its_message_waits_for_room_is_served() {
    let sim = Sim::on(MemoryLog::new(), |limits| {
        limits.max_packet_size = 1_500;
        limits.max_connect_size = 1_500;
        limits.max_batch_bytes = 1_500;
        limits.ingest_bytes = 2_500;
    })
    .await;
    sim.log.hold(HoldAt::BeforeCommit);
    let payload = "x".repeat(1_000);
    let mut client = sim.connect("a").await;
    client.publish("d/1/x", &payload, Some(1)).await;
    client.publish("d/1/x", &payload, Some(2)).await;
    sim.until("the second waits", |sim| {
        sim.count("publishes_received") == 2
    })
    .await;
    let mut again = sim.dial(1 << 16);
    let mut bytes = connect("a", 0);
    for id in 1..=2 {
        bytes.extend(publish_again("d/1/x", payload.as_bytes(), id));
    }
    // In one piece, as a client may: it need not wait for the CONNACK (3.1.4-5).
    again.send(&bytes).await;
    assert_eq!(again.next().await, Got::ConnAck(0));
    assert!(client.rest().await.is_empty());
    assert!(again.is_quiet_for(Duration::from_secs(5)).await);
    sim.log.release();
    for id in 1..=2 {
        assert_eq!(again.next().await, Got::PubAck(id));
    }
    sim.assert_outcomes_add_up();
}
