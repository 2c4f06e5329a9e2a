//! Topics that change under their subscribers: more or fewer partitions, deleted and made anew.

use std::time::Duration;

use tokio::time::sleep;

use super::{Client, Got, Sim, record, triple};
use crate::log::memory::MemoryLog;
use crate::log::{Log, Triple};
use crate::mapping::PartitionKey;

/// A topic that has three partitions and no key.
async fn unkeyed() -> (Sim, Client) {
    let log = MemoryLog::new();
    log.add_topic(&triple("rest", 0).target, 3, None);
    let sim = Sim::on(log, |_| ()).await;
    let mut client = sim.connect("s").await;
    client.subscribe("elsewhere", 1).await;
    (sim, client)
}

/// Another producer appends.
async fn append(sim: &Sim, to: &Triple, topic: &str, payloads: &[&str]) {
    let records: Vec<_> = payloads.iter().map(|text| record(topic, text, 1)).collect();
    sim.log.append(to, &records).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn d5_what_others_store_in_new_partitions_before_they_are_noticed_is_delivered() {
    let (sim, mut client) = unkeyed().await;
    sim.log.add_partitions(&triple("rest", 0).target, 5);
    append(&sim, &triple("rest", 4), "elsewhere", &["a", "b"]).await;
    assert_eq!(client.take().await.text(), "a");
    assert_eq!(client.take().await.text(), "b");
    assert_eq!(sim.delivery().readers(), 5);
    assert_eq!(sim.count("subscriptions_moved"), 1);
    append(&sim, &triple("rest", 3), "elsewhere", &["c"]).await;
    assert_eq!(client.take().await.text(), "c");
    assert!(client.is_quiet_for(Duration::from_secs(60)).await);
}

#[tokio::test(start_paused = true)]
async fn d5_a_key_that_moves_to_another_partition_takes_its_subscribers_along() {
    let log = MemoryLog::new();
    let target = triple("t", 0).target;
    log.add_topic(&target, 2, None);
    let sim = Sim::on(log, |_| ()).await;
    let place = |key: &str, count| triple("t", PartitionKey::new(key).partition(count));
    // One that moves between two partitions that are there already.
    let keys = (0..1_000).map(|n| n.to_string());
    let key = keys
        .filter(|key| place(key, 3) != place(key, 2) && place(key, 3).partition < 2)
        .find(|key| !key.is_empty())
        .unwrap();
    let topic = format!("d/{key}/x");
    let mut client = sim.connect("s").await;
    // Long enough that what is there is older than any tolerance.
    append(&sim, &place(&key, 3), &topic, &["ancient"]).await;
    sleep(Duration::from_secs(60)).await;
    client.subscribe(&topic, 1).await;
    sim.log.add_partitions(&target, 3);
    append(&sim, &place(&key, 3), &topic, &["moved"]).await;
    assert_eq!(client.take().await.text(), "moved");
    // By one who has not noticed yet that there are more.
    append(&sim, &place(&key, 2), &topic, &["late"]).await;
    assert_eq!(client.take().await.text(), "late");
    assert_eq!(sim.delivery().readers(), 2);
}

#[tokio::test(start_paused = true)]
async fn partitions_that_vanish_are_left() {
    let (sim, mut client) = unkeyed().await;
    sim.log.add_partitions(&triple("rest", 0).target, 1);
    sim.until("two readers have ended", |sim| {
        sim.delivery().readers() == 1
    })
    .await;
    append(&sim, &triple("rest", 0), "elsewhere", &["a"]).await;
    assert_eq!(client.take().await.text(), "a");
}

#[tokio::test(start_paused = true)]
async fn a_number_that_publishing_meets_is_used_for_delivery_at_once() {
    let log = MemoryLog::new();
    let target = triple("rest", 0).target;
    log.add_topic(&target, 3, None);
    let sim = Sim::on(log, |limits| {
        limits.topology_interval = Duration::from_secs(3_600);
    })
    .await;
    let mut client = sim.connect("s").await;
    client.subscribe("elsewhere", 1).await;
    let mut publisher = sim.connect("p").await;
    sim.log.add_partitions(&target, 1);
    for n in 1..=4 {
        publisher
            .publish("elsewhere", &n.to_string(), Some(n))
            .await;
        assert_eq!(publisher.next().await, Got::PubAck(n));
        assert_eq!(client.take().await.text(), n.to_string());
    }
    sim.until("two readers have ended", |sim| {
        sim.delivery().readers() == 1
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn ingest_learns_of_new_partitions_without_an_error() {
    let (sim, _client) = unkeyed().await;
    let mut publisher = sim.connect("p").await;
    publisher.publish("elsewhere", "x", Some(1)).await;
    publisher.next().await;
    sim.log.add_partitions(&triple("rest", 0).target, 5);
    // The lanes must not have been dropped as idle meanwhile, so something is published now and then.
    let mut id = 1;
    while sim.count("repartitions") == 0 {
        assert!(id < 1_000, "not within a minute");
        id += 1;
        publisher.publish("elsewhere", "x", Some(id)).await;
        publisher.next().await;
        sleep(Duration::from_millis(60)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn d5_a_topic_that_was_made_anew_with_as_many_records_between_two_polls_is_noticed() {
    let sim = Sim::new().await;
    let place = triple("rest", 0);
    let mut client = sim.connect("s").await;
    client.subscribe("elsewhere", 1).await;
    append(&sim, &place, "elsewhere", &["1", "2"]).await;
    assert_eq!(client.take().await.text(), "1");
    assert_eq!(client.take().await.text(), "2");
    sleep(Duration::from_secs(2)).await;
    // In one moment, so that no poll meets the absence.
    sim.log.delete_topic(&place.target);
    sim.log.add_topic(&place.target, 1, None);
    append(&sim, &place, "elsewhere", &["3", "4", "5"]).await;
    let mut got = Vec::new();
    while got.len() < 3 {
        let text = client.take().await.text().to_owned();
        if !got.contains(&text) {
            got.push(text);
        }
    }
    got.sort();
    assert_eq!(got, ["3", "4", "5"]);
    // What was read before it was noticed comes again.
    assert_eq!(client.take().await.text(), "5");
    sim.until("committed there", |sim| {
        sim.log.commits(&place, "mqtt-gateway.node-1").last() == Some(&2)
    })
    .await;
    assert!(client.is_quiet_for(Duration::from_secs(90)).await);
}

#[tokio::test(start_paused = true)]
async fn d3_a_log_that_ends_early_because_it_is_another_is_read_from_its_first_record_in_order() {
    let sim = Sim::new().await;
    let place = triple("rest", 0);
    let mut client = sim.connect("s").await;
    client.subscribe("elsewhere", 1).await;
    append(&sim, &place, "elsewhere", &["1", "2", "3"]).await;
    for text in ["1", "2", "3"] {
        assert_eq!(client.take().await.text(), text);
    }
    // In one moment, so that no poll meets the absence.
    sim.log.delete_topic(&place.target);
    sim.log.add_topic(&place.target, 1, None);
    append(&sim, &place, "elsewhere", &["4"]).await;
    sim.until("the early end is noticed", |sim| {
        sim.count("log_regressions") == 1
    })
    .await;
    append(&sim, &place, "elsewhere", &["5"]).await;
    for text in ["4", "5"] {
        assert_eq!(client.take().await.text(), text);
    }
    assert!(client.is_quiet_for(Duration::from_secs(90)).await);
}
