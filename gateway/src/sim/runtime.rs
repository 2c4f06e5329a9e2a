//! `produce = "runtime"`: what a publisher sees while the connectors runtime stores, refuses and is away. The test is the
//! runtime: it takes batches and tells their results.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::time::timeout;

use super::{Got, Sim, dead_letters, triple};
use crate::config::{Config, Produce};
use crate::gateway::{Gateway, Role, StartError};
use crate::ingest::runtime::Batches;
use crate::log::memory::MemoryLog;
use crate::log::{HeaderValue, Log, Record};
use crate::mapping::TopicMap;

/// Long past anything that happens by itself.
const NEVER: Duration = Duration::from_secs(3600);
/// Everything that is not for another gateway's `$` topics is stored in `s/one`, which has three partitions.
const MAP: &str = "default_stream = 's'\ndefault_topic = 'one'\npartitions = 3\n";

pub(super) async fn start(
    map: &str,
    configure: impl FnOnce(&mut Config),
) -> Result<Sim, StartError> {
    let environment = [
        ("MQTT_GATEWAY_IGGY_PASSWORD", "secret"),
        ("MQTT_GATEWAY_AUTHENTICATION", "anonymous"),
        ("MQTT_GATEWAY_HTTP_LISTEN", ""),
    ];
    let mut config = Config::load(&json!({"produce": "runtime"}), environment).unwrap();
    assert_eq!(config.ingest.produce, Produce::Runtime);
    let listener = config.listeners().remove(0);
    config.listen.clear();
    configure(&mut config);
    let log = Arc::new(MemoryLog::new());
    let map = TopicMap::compile("map.toml", map).unwrap();
    let gateway = Gateway::start_on(config, map, log.clone()).await?;
    let door = super::door(&gateway, listener);
    Ok(Sim { gateway, log, door })
}

/// A gateway with both roles, and the end from which the runtime takes.
async fn started() -> (Sim, Batches) {
    let sim = start(MAP, |_| ()).await.unwrap();
    assert!(sim.gateway.add_role(Role::Ingest));
    assert!(sim.gateway.add_role(Role::Delivery));
    let batches = sim.gateway.take_batches().unwrap();
    assert!(sim.gateway.take_batches().is_none());
    (sim, batches)
}

async fn next(batches: &Batches) -> Arc<[Record]> {
    timeout(NEVER, batches.next()).await.expect("no batch")
}

/// Does what the runtime does with a batch: stores it in a partition of its choice.
async fn store(sim: &Sim, batch: &[Record], partition: u32) {
    let appended = sim.log.append(&triple("one", partition), batch).await;
    appended.unwrap();
}

fn texts(batch: &[Record]) -> Vec<&str> {
    batch
        .iter()
        .map(|record| std::str::from_utf8(&record.payload).unwrap())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn n1_n3_pubacks_follow_the_acknowledgement_in_the_order_of_the_publishes() {
    let (sim, batches) = started().await;
    let mut a = sim.connect("a").await;
    let mut b = sim.connect("b").await;
    a.publish("x/1", "1", Some(7)).await;
    let first = next(&batches).await;
    assert_eq!(texts(&first), ["1"]);
    assert_eq!(
        first[0].headers.get("mqtt.client_id"),
        Some(&HeaderValue::Text("a".into()))
    );
    assert_eq!(
        first[0].headers.get("mqtt.topic"),
        Some(&HeaderValue::Text("x/1".into()))
    );
    // What comes meanwhile goes in one batch.
    for (id, text) in [(9, "2"), (8, "3")] {
        a.publish("y/2", text, Some(id)).await;
        sim.until("read", |sim| {
            sim.count("publishes_received") == u64::from(12 - id) - 1
        })
        .await;
    }
    b.publish("x/1", "4", Some(1)).await;
    store(&sim, &first, 2).await;
    assert!(
        a.is_quiet_for(Duration::from_secs(3600)).await,
        "stored, and not acknowledged"
    );
    a.ping().await;
    assert_eq!(a.next().await, Got::PingResp);

    batches.acknowledge();
    assert_eq!(a.next().await, Got::PubAck(7));
    let second = next(&batches).await;
    assert_eq!(texts(&second), ["2", "3", "4"]);
    assert!(a.is_quiet_for(Duration::from_secs(60)).await);
    batches.acknowledge();
    assert_eq!(a.next().await, Got::PubAck(9));
    assert_eq!(a.next().await, Got::PubAck(8));
    assert_eq!(b.next().await, Got::PubAck(1));
    assert_eq!(
        sim.log.records(&triple("one", 0)).len(),
        0,
        "the gateway appended itself"
    );
    sim.assert_outcomes_add_up();
}

#[tokio::test(start_paused = true)]
async fn n6_a_refused_batch_is_handed_over_again_as_it_was_and_nobody_is_acknowledged_meanwhile() {
    let (sim, batches) = started().await;
    let mut client = sim.connect("a").await;
    client.publish("x", "1", Some(1)).await;
    let first = next(&batches).await;
    client.publish("x", "2", Some(2)).await;
    for _ in 0..2 {
        batches.refuse();
        assert_eq!(next(&batches).await, first);
        assert!(client.is_quiet_for(Duration::from_secs(60)).await);
    }
    assert_eq!(sim.count("runtime_nacks"), 2);
    batches.acknowledge();
    assert_eq!(client.next().await, Got::PubAck(1));
    assert_eq!(texts(&next(&batches).await), ["2"]);
    batches.acknowledge();
    assert_eq!(client.next().await, Got::PubAck(2));
    sim.assert_outcomes_add_up();
}

#[tokio::test(start_paused = true)]
async fn what_the_runtime_stored_is_delivered_from_any_partition() {
    let (sim, batches) = started().await;
    let mut subscriber = sim.connect("subscriber").await;
    subscriber.subscribe("x", 0).await;
    let mut client = sim.connect("a").await;
    for (id, partition) in [(1, 2), (2, 0), (3, 1)] {
        client.publish("x", &id.to_string(), Some(id)).await;
        let batch = next(&batches).await;
        store(&sim, &batch, partition).await;
        batches.acknowledge();
        assert_eq!(client.next().await, Got::PubAck(id));
        assert_eq!(subscriber.next().await.text(), id.to_string());
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_goes_through_the_gateways_own_client() {
    let (sim, batches) = started().await;
    let mut client = sim.connect("a").await;
    client.publish("$nobody", "x", Some(1)).await;
    assert_eq!(client.next().await, Got::PubAck(1));
    assert_eq!(sim.log.records(&dead_letters()).len(), 1);
    assert!(timeout(NEVER, batches.next()).await.is_err());
    sim.assert_outcomes_add_up();
}

#[tokio::test(start_paused = true)]
async fn a_source_that_goes_with_a_batch_in_hand_fails_it_after_the_grace_and_the_next_goes_on() {
    let (sim, batches) = started().await;
    let mut lost = sim.connect("lost").await;
    for id in [1, 2] {
        lost.publish("x", &id.to_string(), Some(id)).await;
    }
    let batch = next(&batches).await;
    store(&sim, &batch, 0).await;
    // As the connector does: its polling has ended, then it leaves.
    batches.refuse();
    sim.gateway.remove_role(Role::Ingest).await;
    drop(batches);
    assert_eq!(lost.rest().await, []);
    assert_eq!(sim.count("publishes_failed"), 2);
    sim.assert_outcomes_add_up();

    assert!(sim.gateway.add_role(Role::Ingest));
    let batches = sim.gateway.take_batches().unwrap();
    let mut client = sim.connect("lost").await;
    for id in [1, 2] {
        client.publish_again("x", &id.to_string(), id).await;
    }
    let mut again = Vec::new();
    while again.len() < 2 {
        let batch = next(&batches).await;
        again.extend(texts(&batch).iter().map(|text| text.to_string()));
        batches.acknowledge();
    }
    assert_eq!(again, ["1", "2"]);
    assert_eq!(client.next().await, Got::PubAck(1));
    assert_eq!(client.next().await, Got::PubAck(2));
    sim.assert_outcomes_add_up();
}

#[tokio::test(start_paused = true)]
async fn n4_while_nobody_takes_qos_1_waits_within_the_window_and_qos_0_is_shed() {
    let sim = start(MAP, |Config { limits, .. }| {
        limits.receive_window = 4;
        limits.max_packet_size = 1_000;
        limits.max_connect_size = 1_000;
        limits.max_batch_bytes = 1_000;
        limits.ingest_bytes = 4_000;
    })
    .await
    .unwrap();
    assert!(sim.gateway.add_role(Role::Ingest));
    let batches = sim.gateway.take_batches().unwrap();
    let mut client = sim.connect("a").await;
    for id in 1..=10 {
        client.publish("x", "x", Some(id)).await;
    }
    let mut other = sim.connect("b").await;
    for _ in 0..20 {
        other.publish("x", &"x".repeat(500), None).await;
    }
    sim.until("shed", |sim| sim.count("publishes_shed") > 0)
        .await;
    assert!(client.is_quiet_for(Duration::from_secs(60)).await);
    let taking = tokio::spawn(async move {
        loop {
            batches.next().await;
            batches.acknowledge();
        }
    });
    for id in 1..=10 {
        assert_eq!(client.next().await, Got::PubAck(id));
    }
    taking.abort();
}

#[tokio::test(start_paused = true)]
async fn a_map_with_keys_or_several_topics_does_not_start_and_says_which_rule_it_is() {
    let map = format!(
        "{MAP}[[rule]]\nmqtt_topic = 'd/(.*)'\nstream = 's'\ntopic = 'one'\npartition_key = '$1'\n"
    );
    let Err(error) = start(&map, |_| ()).await else {
        panic!("it started");
    };
    let text = error.to_string();
    for part in ["produce = \"runtime\"", "rule 1 (line 4)", "partition_key"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains('\n'), "{text}");
}
