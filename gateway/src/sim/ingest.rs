//! From PUBLISH to PUBACK: what a publisher sees while the log is well, slow, away and lying.

use std::time::Duration;

use super::{Got, Sim, dead_letters, device, payloads, triple};
use crate::log::memory::{Call, Fault, HoldAt, MemoryLog};
use crate::log::{HeaderValue, LogError, Target};
use crate::mapping::envelope;
use crate::mqtt::QoS;

fn unreachable_error() -> LogError {
    LogError::Unreachable {
        address: "memory".to_owned(),
        reason: "cut".to_owned(),
    }
}

#[tokio::test(start_paused = true)]
async fn n1_a_puback_waits_for_the_append_while_pings_are_answered() {
    let sim = Sim::new().await;
    let mut client = sim.connect("a").await;
    sim.log.hold(HoldAt::AfterCommit);
    client.publish("d/1/x", "hello", Some(7)).await;
    assert!(client.is_quiet_for(Duration::from_secs(10)).await);
    client.ping().await;
    assert_eq!(client.next().await, Got::PingResp);
    sim.log.release();
    assert_eq!(client.next().await, Got::PubAck(7));
    assert_eq!(payloads(&sim.log.records(&device("1"))), ["hello"]);
    sim.assert_outcomes_add_up();
}

#[tokio::test(start_paused = true)]
async fn a_publish_is_stored_with_its_headers_and_an_empty_payload_stays_empty() {
    let sim = Sim::new().await;
    let mut client = sim.connect("dev").await;
    client.publish("d/1/x", "", Some(3)).await;
    assert_eq!(client.next().await, Got::PubAck(3));
    let records = sim.log.records(&device("1"));
    let record = &records[0];
    assert!(!record.payload.is_empty(), "Iggy stores no empty payload");
    let opened = envelope::open(record).unwrap();
    assert_eq!(
        (opened.topic.as_str(), opened.qos, opened.payload.len()),
        ("d/1/x", QoS::AtLeastOnce, 0)
    );
    assert_eq!(
        record.headers.get("mqtt.client_id"),
        Some(&HeaderValue::Text("dev".into()))
    );
    assert_eq!(
        record.headers.get("mqtt.packet_id"),
        Some(&HeaderValue::U16(3))
    );
}

#[tokio::test(start_paused = true)]
async fn qos_0_is_stored_without_an_answer() {
    let sim = Sim::new().await;
    let mut client = sim.connect("a").await;
    client.publish("elsewhere", "x", None).await;
    client.ping().await;
    assert_eq!(client.next().await, Got::PingResp);
    sim.until("stored", |sim| sim.count("publishes_stored") == 1)
        .await;
    assert_eq!(payloads(&sim.log.records(&triple("rest", 0))), ["x"]);
}

#[tokio::test(start_paused = true)]
async fn n3_pubacks_keep_the_order_of_publishes_that_went_to_lanes_of_different_speed() {
    let sim = Sim::new().await;
    let mut client = sim.connect("a").await;
    // The first append to be asked for is the slow one.
    sim.log
        .script(Call::Append, Fault::Delay(Duration::from_secs(5)));
    for id in 1..=20 {
        client.publish(&format!("d/{id}/x"), "x", Some(id)).await;
    }
    for id in 1..=20 {
        assert_eq!(client.next().await, Got::PubAck(id));
    }
}

#[tokio::test(start_paused = true)]
async fn n6_a_lost_reply_is_tried_again_with_the_same_ids_and_nothing_overtakes_it() {
    let sim = Sim::new().await;
    let mut client = sim.connect("a").await;
    sim.log
        .script(Call::Append, Fault::LoseReply(unreachable_error()));
    for id in 1..=5 {
        client.publish("d/1/x", &id.to_string(), Some(id)).await;
    }
    for id in 1..=5 {
        assert_eq!(client.next().await, Got::PubAck(id));
    }
    let records = sim.log.records(&device("1"));
    let mut firsts = Vec::new();
    for record in &records {
        if !firsts.contains(&record.id) {
            firsts.push(record.id);
        }
    }
    assert_eq!(firsts.len(), 5, "a retry made no new ids");
    assert!(records.len() > 5, "the lost reply caused a second append");
    let mut texts = payloads(&records);
    texts.dedup();
    assert!(texts.is_sorted() || texts[..5].is_sorted());
}

#[tokio::test(start_paused = true)]
async fn n5_an_outage_keeps_clients_and_ends_with_everything_stored_in_order() {
    let sim = Sim::new().await;
    let mut client = sim.connect("a").await;
    sim.log.set_outage(true);
    for id in 1..=60 {
        client.publish("d/1/x", &format!("{id:03}"), Some(id)).await;
        assert!(client.is_quiet_for(Duration::from_secs(1)).await);
        client.ping().await;
        assert_eq!(client.next().await, Got::PingResp);
    }
    let mut late = sim.dial(1_024);
    late.send_connect("late", 0).await;
    assert_eq!(
        late.next().await,
        Got::ConnAck(3),
        "after iggy_grace nobody else comes in"
    );
    sim.log.set_outage(false);
    for id in 1..=60 {
        assert_eq!(client.next().await, Got::PubAck(id));
    }
    assert!(payloads(&sim.log.records(&device("1"))).is_sorted());
    sim.assert_outcomes_add_up();
    sim.until("welcome again", |sim| {
        sim.gateway.context().health.away_for().is_none()
    })
    .await;
    sim.connect("late").await;
}

#[tokio::test(start_paused = true)]
async fn queued_publishes_go_in_one_batch_when_the_append_before_them_returns() {
    let sim = Sim::new().await;
    let mut client = sim.connect("a").await;
    sim.log.hold(HoldAt::BeforeCommit);
    for id in 1..=100 {
        client.publish("d/1/x", "x", Some(id)).await;
    }
    sim.until("the first append", |sim| sim.log.held() == 1)
        .await;
    sim.until("all read", |sim| sim.count("publishes_received") == 100)
        .await;
    sim.log.release();
    for id in 1..=100 {
        assert_eq!(client.next().await, Got::PubAck(id));
    }
    assert!(
        sim.count("appends") <= 3,
        "{} appends",
        sim.count("appends")
    );
}

#[tokio::test(start_paused = true)]
async fn n4_a_client_with_a_full_window_is_not_read_any_more() {
    let sim = Sim::on(MemoryLog::new(), |limits| limits.receive_window = 4).await;
    let mut client = sim.connect("a").await;
    sim.log.hold(HoldAt::BeforeCommit);
    for id in 1..=10 {
        client.publish("d/1/x", "x", Some(id)).await;
    }
    assert!(client.is_quiet_for(Duration::from_secs(60)).await);
    assert_eq!(sim.count("publishes_received"), 4);
    sim.log.release();
    for id in 1..=10 {
        assert_eq!(client.next().await, Got::PubAck(id));
    }
}

#[tokio::test(start_paused = true)]
async fn qos_0_is_shed_and_counted_when_the_buffers_are_full_and_qos_1_waits() {
    let sim = Sim::on(MemoryLog::new(), |limits| {
        limits.max_packet_size = 1_000;
        limits.max_connect_size = 1_000;
        limits.max_batch_bytes = 1_000;
        limits.ingest_bytes = 2_000;
    })
    .await;
    let mut client = sim.connect("a").await;
    sim.log.hold(HoldAt::BeforeCommit);
    for _ in 0..20 {
        client.publish("d/1/x", &"x".repeat(500), None).await;
    }
    sim.until("shed", |sim| sim.count("publishes_shed") > 10)
        .await;
    client.publish("d/1/x", &"y".repeat(500), Some(1)).await;
    assert!(client.is_quiet_for(Duration::from_secs(5)).await);
    sim.log.release();
    assert_eq!(client.next().await, Got::PubAck(1));
    sim.assert_outcomes_add_up();
}

#[tokio::test(start_paused = true)]
async fn a_poisoned_record_does_not_fail_its_batch() {
    let sim = Sim::new().await;
    let mut good = sim.connect("good").await;
    let mut bad = sim.connect("bad").await;
    sim.log.hold(HoldAt::BeforeCommit);
    good.publish("d/1/x", "first", Some(1)).await;
    sim.until("held", |sim| sim.log.held() == 1).await;
    bad.publish("d/1/x", "bad", Some(1)).await;
    sim.until("queued", |sim| sim.count("publishes_received") == 2)
        .await;
    good.publish("d/1/x", "good", Some(2)).await;
    sim.until("queued", |sim| sim.count("publishes_received") == 3)
        .await;
    // The batch of both is refused, then the first one of it alone.
    for _ in 0..2 {
        sim.log.script(
            Call::Append,
            Fault::Fail(LogError::TooLarge("test".to_owned())),
        );
    }
    sim.log.release();
    assert_eq!(good.next().await, Got::PubAck(1));
    assert_eq!(good.next().await, Got::PubAck(2));
    assert_eq!(bad.next().await, Got::PubAck(1));
    assert_eq!(payloads(&sim.log.records(&device("1"))), ["first", "good"]);
    assert_eq!(payloads(&sim.log.records(&dead_letters())), ["bad"]);
    sim.assert_outcomes_add_up();
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_was_deleted_is_made_anew_and_the_publish_stored() {
    let sim = Sim::new().await;
    let mut client = sim.connect("a").await;
    client.publish("d/1/x", "1", Some(1)).await;
    assert_eq!(client.next().await, Got::PubAck(1));
    let target: Target = device("1").target;
    sim.log.delete_topic(&target);
    client.publish("d/1/x", "2", Some(2)).await;
    assert_eq!(client.next().await, Got::PubAck(2));
    assert_eq!(payloads(&sim.log.records(&device("1"))), ["2"]);
}

#[tokio::test(start_paused = true)]
async fn n5_a_topic_that_was_deleted_is_made_anew_however_often_iggy_does_not_answer() {
    let sim = Sim::new().await;
    let mut client = sim.connect("a").await;
    client.publish("d/1/x", "1", Some(1)).await;
    assert_eq!(client.next().await, Got::PubAck(1));
    sim.log.delete_topic(&device("1").target);
    for _ in 0..20 {
        sim.log
            .script(Call::Topic, Fault::Fail(unreachable_error()));
    }
    client.publish("d/1/x", "2", Some(2)).await;
    assert_eq!(client.next().await, Got::PubAck(2));
    assert_eq!(payloads(&sim.log.records(&device("1"))), ["2"]);
    assert_eq!(sim.count("dead_letters"), 0);
}

#[tokio::test(start_paused = true)]
async fn publishes_to_a_topic_that_is_still_being_made_keep_their_order_and_pings_are_answered() {
    let sim = Sim::new().await;
    let mut client = sim.connect("a").await;
    sim.log
        .script(Call::Topic, Fault::Delay(Duration::from_secs(9)));
    sim.log
        .script(Call::Topic, Fault::Fail(unreachable_error()));
    for id in 1..=5 {
        client.publish("dynamic/1", &id.to_string(), Some(id)).await;
    }
    client.ping().await;
    assert_eq!(client.next().await, Got::PingResp);
    for id in 1..=5 {
        assert_eq!(client.next().await, Got::PubAck(id));
    }
    assert_eq!(
        payloads(&sim.log.records(&triple("dynamic_1", 0))),
        ["1", "2", "3", "4", "5"]
    );
}

#[tokio::test(start_paused = true)]
async fn stopping_acknowledges_what_is_in_flight_and_closes() {
    let sim = Sim::new().await;
    let mut client = sim.connect("a").await;
    sim.log
        .script(Call::Append, Fault::Delay(Duration::from_secs(2)));
    for id in 1..=3 {
        client.publish("d/1/x", "x", Some(id)).await;
    }
    sim.until("taken", |sim| sim.count("publishes_received") == 3)
        .await;
    sim.gateway.stop().await;
    assert_eq!(client.rest().await, [1, 2, 3].map(Got::PubAck));
    sim.assert_outcomes_add_up();
}

#[tokio::test(start_paused = true)]
async fn n7_appends_that_are_given_up_at_a_stop_count_as_failed_and_are_never_acknowledged() {
    let sim = Sim::new().await;
    let mut client = sim.connect("a").await;
    sim.log.hold(HoldAt::BeforeCommit);
    for id in 1..=3 {
        client.publish("d/1/x", "x", Some(id)).await;
    }
    sim.until("taken", |sim| sim.count("publishes_received") == 3)
        .await;
    sim.gateway.stop().await;
    assert!(client.rest().await.is_empty());
    assert_eq!(sim.count("publishes_failed"), 3);
    sim.assert_outcomes_add_up();
}
