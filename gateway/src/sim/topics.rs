//! Topics that change under a gateway: their partitions grow, they vanish and come back, or promise less than their rule asks.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::{Got, MAP, Sim, dead_letters, device, payloads, triple};
use crate::config::{Config, OnWeakDurability};
use crate::gateway::Gateway;
use crate::log::Durability;
use crate::log::memory::{HoldAt, MemoryLog};
use crate::mapping::{TopicMap, envelope};

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
    let environment = [
        ("MQTT_GATEWAY_IGGY_PASSWORD", "secret"),
        ("MQTT_GATEWAY_AUTHENTICATION", "anonymous"),
    ];
    let mut config = Config::load(&json!({"on_weak_durability": "refuse"}), environment).unwrap();
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
