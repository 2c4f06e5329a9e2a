//! What becomes of a PUBLISH that cannot be stored where it should, comes twice, or comes from a client that floods.

use std::sync::Arc;
use std::time::Duration;

use super::{Client, Got, Sim, dead_letters, device, payloads, triple};
use serde_json::json;

use super::MAP;
use crate::config::{Config, OnDenied, OnUnstorable, OnWeakDurability};
use crate::gateway::{Gateway, Role};
use crate::log::memory::{Call, Fault, HoldAt, MemoryLog};
use crate::log::{Durability, HeaderValue, LogError, Record, StoredRecord};
use crate::mapping::{TopicMap, envelope};

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

#[tokio::test(start_paused = true)]
async fn m3_keys_move_with_the_number_of_partitions_and_keep_their_order() {
    let sim = Sim::new().await;
    let mut client = sim.connect("a").await;
    for (id, device) in (1..).zip(["1", "2", "3", "4", "5", "6"]) {
        client
            .publish(&format!("d/{device}/x"), "before", Some(id))
            .await;
        assert_eq!(client.next().await, Got::PubAck(id));
    }
    let target = device("1").target;
    // What is queued behind an append that hangs finds another topic when it returns.
    sim.log.hold(HoldAt::BeforeCommit);
    let mut id = 100;
    for round in 0..5 {
        for device in ["1", "2", "3", "4", "5", "6"] {
            id += 1;
            client
                .publish(&format!("d/{device}/x"), &round.to_string(), Some(id))
                .await;
        }
    }
    sim.until("queued", |sim| sim.count("publishes_received") == 36)
        .await;
    sim.log.delete_topic(&target);
    sim.log.add_topic(&target, 2, None);
    sim.log.release();
    for expected in 101..=130 {
        assert_eq!(client.next().await, Got::PubAck(expected));
    }
    let mut stored = 0;
    for partition in 0..2 {
        let mut seen: std::collections::HashMap<String, Vec<String>> = Default::default();
        for record in sim.log.records(&triple("t", partition)) {
            let opened = envelope::open(&record).unwrap();
            let device = opened.topic.as_str().split('/').nth(1).unwrap().to_owned();
            let key = crate::mapping::PartitionKey::new(device.as_str());
            assert_eq!(key.partition(2), partition, "M3 {device}");
            let payload = String::from_utf8(opened.payload.to_vec()).unwrap();
            seen.entry(device).or_default().push(payload);
            stored += 1;
        }
        for (device, payloads) in seen {
            assert!(payloads.is_sorted(), "N2 {device}: {payloads:?}");
        }
    }
    assert_eq!(stored, 30);
    assert!(sim.count("repartitions") >= 1);
    sim.assert_outcomes_add_up();
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_promises_less_than_its_rule_asks_is_used_and_counted_or_refused() {
    let weak = triple("dynamic_weak", 0).target;
    let unknown = triple("dynamic_unknown", 0).target;
    for policy in [OnWeakDurability::Warn, OnWeakDurability::Refuse] {
        let log = MemoryLog::new();
        log.add_topic(&weak, 1, Some(Durability::Commit));
        log.add_topic(&unknown, 1, None);
        let sim = Sim::with(log, |config| config.ingest.on_weak_durability = policy).await;
        let mut client = sim.connect("a").await;
        for (id, topic) in [
            (1, "dynamic/weak"),
            (2, "dynamic/unknown"),
            (3, "dynamic/new"),
        ] {
            client.publish(topic, topic, Some(id)).await;
            assert_eq!(client.next().await, Got::PubAck(id));
        }
        let refused = match policy {
            OnWeakDurability::Warn => 0,
            OnWeakDurability::Refuse => 2,
        };
        assert_eq!(sim.count("refused_weak_durability"), refused);
        assert_eq!(sim.count("weak_targets"), 2 - refused);
        assert_eq!(sim.log.records(&dead_letters()).len() as u64, refused);
        let new = triple("dynamic_new", 0);
        assert_eq!(payloads(&sim.log.records(&new)), ["dynamic/new"]);
        sim.assert_outcomes_add_up();
    }
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_refuses_weak_topics_does_not_start_with_one_that_its_map_names() {
    let log = Arc::new(MemoryLog::new());
    log.add_topic(&device("1").target, 4, Some(Durability::Commit));
    let password = ("MQTT_GATEWAY_IGGY_PASSWORD", "secret");
    let mut config = Config::load(&json!({"on_weak_durability": "refuse"}), [password]).unwrap();
    config.listen.clear();
    let map = TopicMap::compile("map.toml", MAP).unwrap();
    let error = match Gateway::start_on(config, map, log).await {
        Ok(_) => panic!("started"),
        Err(error) => error.to_string(),
    };
    assert!(error.contains("rule 1") && error.contains("s/t"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn n2_messages_for_a_topic_that_vanishes_and_comes_back_keep_their_order() {
    const GUARDED: &str = r#"
default_stream = "s"
default_topic = "rest"
[[rule]]
mqtt_topic = 'g/([^/]+)'
stream = 's'
topic = 'guarded'
partition_key = '$1'
auto_create = false
"#;
    let target = triple("guarded", 0).target;
    let log = MemoryLog::new();
    log.add_topic(&target, 3, None);
    let sim = Sim::with_map(GUARDED, log, |_| ()).await;
    let mut client = sim.connect("a").await;
    for round in 0..8_u16 {
        sim.log.hold(HoldAt::BeforeCommit);
        for n in 0..20 {
            let id = round * 20 + n + 1;
            let topic = format!("g/{}", n % 5);
            client.publish(&topic, &format!("{id:03}"), Some(id)).await;
        }
        let received = u64::from(round + 1) * 20;
        sim.until("queued", |sim| sim.count("publishes_received") == received)
            .await;
        sim.log.delete_topic(&target);
        if round % 2 == 0 {
            sim.log.add_topic(&target, 2 + u32::from(round) % 3, None);
        }
        sim.log.release();
        for n in 0..20 {
            assert_eq!(client.next().await, Got::PubAck(round * 20 + n + 1));
        }
        // What was stored before it vanished is gone with it, and what came meanwhile is in the dead-letter topic.
        let mut found = payloads(&sim.log.records(&dead_letters()));
        for partition in 0..4 {
            let stored = payloads(&sim.log.records(&triple("guarded", partition)));
            let mut by_key: std::collections::HashMap<u16, Vec<&String>> = Default::default();
            for payload in &stored {
                let id: u16 = payload.parse().unwrap();
                by_key.entry((id - 1) % 5).or_default().push(payload);
            }
            assert!(by_key.values().all(|ids| ids.is_sorted()), "N2 {by_key:?}");
            found.extend(stored);
        }
        for n in 0..20 {
            let id = format!("{:03}", round * 20 + n + 1);
            assert!(found.contains(&id), "N1 {id}");
        }
        if round % 2 == 1 {
            sim.log.add_topic(&target, 3, None);
        }
    }
    sim.assert_outcomes_add_up();
}

#[tokio::test(start_paused = true)]
async fn n5_after_an_outage_the_partitions_are_asked_for_again() {
    let sim = Sim::new().await;
    let mut client = sim.connect("a").await;
    client.publish("d/1/x", "1", Some(1)).await;
    assert_eq!(client.next().await, Got::PubAck(1));
    sim.log.set_outage(true);
    client.publish("d/1/x", "2", Some(2)).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    // While nobody could look, someone has added partitions.
    sim.log.add_partitions(&device("1").target, 7);
    sim.log.set_outage(false);
    assert_eq!(client.next().await, Got::PubAck(2));
    sim.until("noticed", |sim| sim.count("repartitions") == 1)
        .await;
    client.publish("d/1/x", "3", Some(3)).await;
    assert_eq!(client.next().await, Got::PubAck(3));
    let partition = crate::mapping::PartitionKey::new("1").partition(7);
    assert!(payloads(&sim.log.records(&triple("t", partition))).contains(&"3".to_owned()));
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
