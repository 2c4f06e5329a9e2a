//! What comes twice: under a packet id that still waits, and again after a reconnect.

use std::time::Duration;

use super::{Got, Sim, device, payloads};
use crate::log::memory::HoldAt;

#[tokio::test(start_paused = true)]
async fn a_packet_id_that_waits_is_the_same_message_with_the_same_content() {
    let sim = Sim::new().await;
    let mut client = sim.connect("a").await;
    sim.log.hold(HoldAt::BeforeCommit);
    client.publish("d/1/x", "1", Some(1)).await;
    client.publish("d/1/x", "2", Some(2)).await;
    client.publish_again("d/1/x", "1", 1).await;
    client.publish("d/1/x", "2", Some(2)).await;
    sim.until("received", |sim| sim.count("publishes_received") == 4)
        .await;
    sim.log.release();
    assert_eq!(client.next().await, Got::PubAck(1));
    assert_eq!(client.next().await, Got::PubAck(2));
    assert!(client.is_quiet_for(Duration::from_secs(5)).await);
    assert_eq!(payloads(&sim.log.records(&device("1"))), ["1", "2"]);
    assert_eq!(sim.count("publishes_deduplicated"), 2);
    sim.assert_outcomes_add_up();
    // Its PUBACK has freed the id.
    client.publish("d/1/x", "3", Some(1)).await;
    assert_eq!(client.next().await, Got::PubAck(1));
}

#[tokio::test(start_paused = true)]
async fn a_packet_id_that_waits_with_other_content_is_a_protocol_error() {
    let sim = Sim::new().await;
    let mut client = sim.connect("a").await;
    sim.log.hold(HoldAt::BeforeCommit);
    client.publish("d/1/x", "1", Some(1)).await;
    client.publish("d/1/x", "other", Some(1)).await;
    assert!(client.rest().await.is_empty());
    sim.log.release();
    sim.until("settled", |sim| sim.count("publishes_stored") == 1)
        .await;
    assert_eq!(sim.count("publishes_protocol_error"), 1);
    assert_eq!(payloads(&sim.log.records(&device("1"))), ["1"]);
    sim.assert_outcomes_add_up();
}

#[tokio::test(start_paused = true)]
async fn what_a_client_sends_again_after_a_reconnect_is_stored_once_and_acknowledged() {
    let sim = Sim::new().await;
    let mut client = sim.connect("a").await;
    client.publish("d/1/x", "stored", Some(1)).await;
    sim.until("stored", |sim| sim.count("publishes_stored") == 1)
        .await;
    sim.log.hold(HoldAt::BeforeCommit);
    client.publish("d/1/x", "in flight", Some(2)).await;
    sim.until("held", |sim| sim.log.held() == 1).await;
    drop(client);
    sim.until("gone", |sim| sim.gateway.context().sessions.is_empty())
        .await;

    let mut client = sim.connect("a").await;
    client.publish_again("d/1/x", "stored", 1).await;
    assert_eq!(client.next().await, Got::PubAck(1));
    client.publish_again("d/1/x", "in flight", 2).await;
    // Not the same: another content, another id, no DUP.
    client.publish_again("d/1/x", "never seen", 1).await;
    client.publish_again("d/1/x", "stored", 3).await;
    client.publish("d/1/x", "stored", Some(4)).await;
    sim.until("received", |sim| sim.count("publishes_received") == 7)
        .await;
    sim.log.release();
    for id in [2, 1, 3, 4] {
        assert_eq!(client.next().await, Got::PubAck(id));
    }
    assert_eq!(
        payloads(&sim.log.records(&device("1"))),
        ["stored", "in flight", "never seen", "stored", "stored"]
    );
    assert_eq!(sim.count("publishes_deduplicated"), 2);
    sim.assert_outcomes_add_up();
}

#[tokio::test(start_paused = true)]
async fn what_is_sent_again_is_known_after_a_takeover_and_over_a_connection_that_published_nothing()
{
    let sim = Sim::new().await;
    let mut first = sim.connect("a").await;
    first.publish("d/1/x", "1", Some(1)).await;
    assert_eq!(first.next().await, Got::PubAck(1));
    let _second = sim.connect("a").await;
    let mut third = sim.connect("a").await;
    third.publish_again("d/1/x", "1", 1).await;
    assert_eq!(third.next().await, Got::PubAck(1));
    let mut other = sim.connect("b").await;
    other.publish_again("d/1/x", "1", 1).await;
    assert_eq!(other.next().await, Got::PubAck(1));
    assert_eq!(payloads(&sim.log.records(&device("1"))), ["1", "1"]);
    assert_eq!(sim.count("publishes_deduplicated"), 1);
}

#[tokio::test(start_paused = true)]
async fn what_was_sent_long_ago_or_failed_is_stored_again() {
    let sim = Sim::new().await;
    let mut client = sim.connect("a").await;
    client.publish("d/1/x", "1", Some(1)).await;
    assert_eq!(client.next().await, Got::PubAck(1));
    drop(client);
    sim.until("gone", |sim| sim.gateway.context().sessions.is_empty())
        .await;
    tokio::time::sleep(Duration::from_secs(61)).await;
    let mut client = sim.connect("a").await;
    client.publish_again("d/1/x", "1", 1).await;
    assert_eq!(client.next().await, Got::PubAck(1));
    assert_eq!(payloads(&sim.log.records(&device("1"))), ["1", "1"]);
    assert_eq!(sim.count("publishes_deduplicated"), 0);
}
