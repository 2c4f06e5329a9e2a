//! What becomes of a PUBLISH that cannot be stored where it should, or comes from a client that floods.

use std::time::Duration;

use super::{Client, Got, Sim, dead_letters, device, payloads};
use crate::config::{OnDenied, OnUnstorable};
use crate::gateway::Role;
use crate::log::memory::{Call, Fault, HoldAt, MemoryLog};
use crate::log::{HeaderValue, LogError, Record, StoredRecord};
use crate::mapping::envelope;

fn header(record: &StoredRecord, key: &str) -> Option<String> {
    match record.headers.get(key)? {
        HeaderValue::Text(text) => Some(text.to_string()),
        other => panic!("{other:?}"),
    }
}

async fn closing() -> Sim {
    Sim::with(MemoryLog::new(), |config| {
        config.ingest.on_unstorable = OnUnstorable::Close;
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn n3_a_message_without_a_place_goes_to_the_dead_letter_topic_and_is_acknowledged_in_order() {
    let sim = Sim::new().await;
    let mut client = sim.connect("a").await;
    client.publish("d/1/x", "1", Some(1)).await;
    client.publish("$no/rule", "2", Some(2)).await;
    client.publish("$no/rule", "2b", None).await;
    client.publish("d/1/x", "3", Some(3)).await;
    for id in 1..=3 {
        assert_eq!(client.next().await, Got::PubAck(id));
    }
    sim.until("settled", |sim| sim.count("dead_letters") == 2)
        .await;
    let letters = sim.log.records(&dead_letters());
    assert_eq!(payloads(&letters), ["2", "2b"]);
    assert_eq!(
        header(&letters[0], envelope::REFUSED).as_deref(),
        Some("dollar_topic")
    );
    assert_eq!(header(&letters[0], envelope::REFUSED_RULE), None);
    assert_eq!(
        header(&letters[0], envelope::TOPIC).as_deref(),
        Some("$no/rule")
    );
    assert_eq!(
        header(&letters[0], envelope::CLIENT_ID).as_deref(),
        Some("a")
    );
    assert_eq!(payloads(&sim.log.records(&device("1"))), ["1", "3"]);
    assert_eq!(sim.count("refused_dollar_topic"), 2);
    sim.assert_outcomes_add_up();
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_names_the_rule_and_who_published_it_although_headers_are_narrowed() {
    let sim = Sim::with(MemoryLog::new(), |config| {
        config.headers = envelope::HeaderSet::NONE;
    })
    .await;
    let mut client = sim.connect("a").await;
    sim.log.script(
        Call::Append,
        Fault::Fail(LogError::NotPermitted("test".to_owned())),
    );
    client.publish("d/1/x", "1", Some(1)).await;
    assert_eq!(client.next().await, Got::PubAck(1));
    let letters = sim.log.records(&dead_letters());
    let named = [
        envelope::REFUSED,
        envelope::REFUSED_RULE,
        envelope::CLIENT_ID,
        envelope::TOPIC,
    ]
    .map(|key| header(&letters[0], key).unwrap());
    assert_eq!(named, ["not_permitted", "rule 1", "a", "d/1/x"]);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_not_even_the_dead_letter_topic_takes_closes_its_connection_and_no_other() {
    let sim = Sim::new().await;
    let mut other = sim.connect("other").await;
    let refused = LogError::NotPermitted("test".to_owned());
    sim.log.refuse(&dead_letters().target, Some(refused));
    let mut client = sim.connect("a").await;
    client.publish("d/1/x", "1", Some(1)).await;
    assert_eq!(client.next().await, Got::PubAck(1));
    client.publish("$no/rule", "2", Some(2)).await;
    assert!(client.rest().await.is_empty());
    assert_eq!(sim.count("dead_letters_failed"), 1);
    other.publish("d/1/x", "3", Some(1)).await;
    assert_eq!(other.next().await, Got::PubAck(1));
    sim.assert_outcomes_add_up();
}

#[tokio::test(start_paused = true)]
async fn with_close_a_qos_1_message_without_a_place_ends_its_connection_and_a_qos_0_one_is_dropped()
{
    let sim = closing().await;
    let mut client = sim.connect("a").await;
    client.publish("$no/rule", "0", None).await;
    client.publish("d/1/x", "1", Some(1)).await;
    assert_eq!(client.next().await, Got::PubAck(1));
    client.publish("$no/rule", "2", Some(2)).await;
    client.publish("d/1/x", "3", Some(3)).await;
    assert!(client.rest().await.is_empty());
    sim.until("settled", |sim| sim.gateway.context().sessions.is_empty())
        .await;
    assert_eq!(sim.count("publishes_refused"), 2);
    assert!(sim.log.records(&dead_letters()).is_empty());
    sim.assert_outcomes_add_up();
}

#[tokio::test(start_paused = true)]
async fn the_dead_letter_topic_fills_no_faster_than_its_rate() {
    let sim = Sim::on(MemoryLog::new(), |limits| limits.dead_letter_rate = 10).await;
    let mut flood = sim.connect("flood").await;
    let mut other = sim.connect("other").await;
    let start = tokio::time::Instant::now();
    for id in 1..=50 {
        flood.publish("$no/rule", "x", Some(id)).await;
    }
    other.publish("d/1/x", "y", Some(1)).await;
    assert_eq!(other.next().await, Got::PubAck(1));
    assert!(start.elapsed() < Duration::from_secs(1));
    for id in 1..=50 {
        assert_eq!(flood.next().await, Got::PubAck(id));
    }
    assert!(start.elapsed() >= Duration::from_millis(3_900));
    for _ in 0..100 {
        flood.publish("$no/rule", "x", None).await;
    }
    sim.until("settled", |sim| sim.count("publishes_refused") == 150)
        .await;
    assert!(sim.count("dead_letters_dropped") >= 80);
    sim.assert_outcomes_add_up();
}

#[tokio::test(start_paused = true)]
async fn b05_a_message_that_may_not_be_published_is_never_answered_with_silence() {
    for then in [OnDenied::Close, OnDenied::Acknowledge] {
        let sim = Sim::with(MemoryLog::new(), |config| config.ingest.on_denied = then).await;
        sim.gateway.remove_role(Role::Ingest).await;
        let mut client = sim.connect("a").await;
        client.publish("d/1/x", "0", None).await;
        client.publish("d/1/x", "1", Some(1)).await;
        match then {
            OnDenied::Close => assert!(client.rest().await.is_empty()),
            OnDenied::Acknowledge => assert_eq!(client.next().await, Got::PubAck(1)),
        }
        assert!(sim.log.records(&device("1")).is_empty());
        assert_eq!(sim.count("refused_no_ingest_role"), 2);
        sim.assert_outcomes_add_up();
    }
}

#[tokio::test(start_paused = true)]
async fn n2_what_comes_behind_a_refused_message_is_not_stored_before_it() {
    let sim = closing().await;
    let mut client = sim.connect("a").await;
    sim.log.hold(HoldAt::BeforeCommit);
    client.publish("d/1/x", "1", Some(1)).await;
    client.publish("$no/rule", "2", Some(2)).await;
    client.publish("d/1/x", "3", Some(3)).await;
    sim.until("received", |sim| sim.count("publishes_received") == 3)
        .await;
    sim.log.release();
    assert_eq!(client.rest().await, [Got::PubAck(1)]);
    assert_eq!(payloads(&sim.log.records(&device("1"))), ["1"]);
    sim.assert_outcomes_add_up();
}

#[tokio::test(start_paused = true)]
async fn n2_a_message_waits_for_a_source_that_is_about_to_start_and_keeps_its_place() {
    let sim = Sim::new().await;
    sim.gateway.remove_role(Role::Ingest).await;
    let mut client = sim.connect("a").await;
    for id in 1..=5 {
        client.publish("d/1/x", &id.to_string(), Some(id)).await;
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(sim.gateway.add_role(Role::Ingest));
    for id in 1..=5 {
        assert_eq!(client.next().await, Got::PubAck(id));
    }
    let stored = payloads(&sim.log.records(&device("1")));
    assert_eq!(stored, ["1", "2", "3", "4", "5"]);
    sim.assert_outcomes_add_up();
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_closed_again_and_again_for_the_same_reason_is_kept_out_for_a_while() {
    let sim = closing().await;
    for _ in 0..5 {
        let mut client = sim.connect("a").await;
        client.publish("$no/rule", "x", Some(1)).await;
        assert!(client.rest().await.is_empty());
    }
    let mut client = sim.dial(1 << 16);
    client.send_connect("a", 0).await;
    assert_eq!(client.next().await, Got::ConnAck(3));
    sim.connect("another").await;
    tokio::time::sleep(Duration::from_secs(31)).await;
    sim.connect("a").await;
    assert_eq!(sim.count("connects_flapping"), 1);
}

#[tokio::test(start_paused = true)]
async fn n4_a_client_that_floods_while_iggy_hangs_does_not_keep_others_from_their_share() {
    let sim = Sim::on(MemoryLog::new(), |limits| {
        limits.max_packet_size = 2_048;
        limits.max_connect_size = 2_048;
        limits.ingest_bytes = 40_000;
        limits.receive_window = 1_000;
    })
    .await;
    sim.log.hold(HoldAt::BeforeCommit);
    let (mut flood, flooding) = {
        let client = sim.connect("flood").await;
        let (done, wait) = tokio::sync::oneshot::channel();
        (client, (done, wait))
    };
    let payload = "x".repeat(1_000);
    let sending = tokio::spawn(async move {
        for id in 1..=200 {
            flood.publish("d/1/x", &payload, Some(id)).await;
        }
        let _ = flooding.0.send(());
        flood
    });
    let room = |sim: &Sim| sim.count("publishes_received");
    sim.until("flooded", |sim| room(sim) > 10).await;
    let mut others: Vec<Client> = Vec::new();
    for n in 0..5 {
        let mut other = sim.connect(&format!("other-{n}")).await;
        other.publish("d/2/x", "mine", Some(1)).await;
        other.publish("d/2/x", "gone", None).await;
        others.push(other);
    }
    // Their messages wait in their lane, not in front of it.
    sim.until("queued", |sim| sim.log.held() == 2).await;
    sim.until("all in", |sim| {
        sim.gateway.context().sessions.len() == 6 && sim.count("publishes_shed") == 0
    })
    .await;
    sim.log.release();
    for other in &mut others {
        assert_eq!(other.next().await, Got::PubAck(1));
    }
    let mut flood = sending.await.unwrap();
    let _ = flooding.1.await;
    for id in 1..=200 {
        assert_eq!(flood.next().await, Got::PubAck(id));
    }
    sim.until("settled", |sim| sim.count("publishes_stored") == 210)
        .await;
    sim.assert_outcomes_add_up();
}

#[test]
fn a_record_says_that_it_was_refused_in_its_own_headers_only() {
    let mut record = Record {
        id: 1,
        headers: Default::default(),
        payload: bytes::Bytes::from_static(b"x"),
    };
    let client = crate::mqtt::ClientId::new("c").unwrap();
    envelope::mark_refused(&mut record, "no_rule", None, &client);
    assert_eq!(record.headers.len(), 2);
}
