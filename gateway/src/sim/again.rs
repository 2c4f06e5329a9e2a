//! What a client sends again after its connection has ended: what of it is known, and that coming back is never punished.

use std::time::Duration;

use super::client::{connect, publish_again};
use super::{Got, Sim, device, payloads, triple};
use crate::config::OnUnstorable;
use crate::log::LogError;
use crate::log::memory::{Call, Fault, HoldAt, MemoryLog};

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

#[tokio::test(start_paused = true)]
async fn what_a_refused_message_keeps_from_being_stored_is_stored_for_the_connection_that_sent_it_again()
 {
    let sim = Sim::with(MemoryLog::new(), |config| {
        config.ingest.on_unstorable = OnUnstorable::Close;
    })
    .await;
    let refused = triple("dynamic_1", 0).target;
    let never = LogError::NotPermitted("never".to_owned());
    sim.log.refuse(&refused, Some(never));
    sim.log
        .script(Call::Append, Fault::Delay(Duration::from_secs(5)));
    sim.log
        .script(Call::Topic, Fault::Delay(Duration::from_secs(1)));
    let mut client = sim.connect("a").await;
    client.publish("d/1/x", "1", Some(1)).await;
    sim.until("on its way", |sim| {
        sim.log.counts(&device("1")).appends == 1
    })
    .await;
    client.publish("dynamic/1", "2", Some(2)).await;
    client.publish("d/1/x", "3", Some(3)).await;
    sim.until("received", |sim| sim.count("publishes_received") == 3)
        .await;
    let mut again = sim.connect("a").await;
    again.publish_again("d/1/x", "3", 3).await;
    assert_eq!(again.next().await, Got::PubAck(3));
    assert_eq!(sim.count("refused_not_permitted"), 1);
    assert_eq!(payloads(&sim.log.records(&device("1"))), ["1", "3"]);
    sim.assert_outcomes_add_up();
}

#[tokio::test(start_paused = true)]
async fn n4_a_client_that_sends_one_message_on_connection_after_connection_is_waited_for_once() {
    let sim = Sim::new().await;
    sim.log.hold(HoldAt::BeforeCommit);
    let mut client = sim.connect("a").await;
    client.publish("d/1/x", "1", Some(1)).await;
    for round in 1..=20 {
        let mut again = sim.connect("a").await;
        again.publish_again("d/1/x", "1", 1).await;
        sim.until("received", |sim| {
            sim.count("publishes_received") == 1 + round
        })
        .await;
        assert_eq!(sim.count("publishes_failed"), round - 1);
        client = again;
    }
    sim.log.release();
    assert_eq!(client.next().await, Got::PubAck(1));
    assert_eq!(payloads(&sim.log.records(&device("1"))), ["1"]);
    sim.assert_outcomes_add_up();
}
