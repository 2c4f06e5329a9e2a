//! What subscribers get after the gateway was killed or stopped.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::mortal::Mortal;
use super::{Client, Got, MAP, Sim, device};
use crate::config::Limits;
use crate::log::Log;
use crate::log::memory::MemoryLog;

const CONSUMER: &str = "mqtt-gateway.node-1";
const TOPIC: &str = "d/1/x";

/// A gateway that can be killed.
struct Life {
    sim: Sim,
    log: Arc<Mortal>,
}

async fn start_with(memory: &Arc<MemoryLog>, limit: impl FnOnce(&mut Limits)) -> Life {
    let log = Mortal::on(memory.clone());
    let limit = |config: &mut crate::config::Config| limit(&mut config.limits);
    let sim = Sim::start(MAP, log.clone(), memory.clone(), limit).await;
    Life { sim, log }
}

async fn start(memory: &Arc<MemoryLog>) -> Life {
    start_with(memory, |_| ()).await
}

async fn subscriber(life: &Life, name: &str) -> Client {
    let mut client = life.sim.connect(name).await;
    client.subscribe(TOPIC, 1).await;
    client
}

async fn publish(life: &Life, range: std::ops::Range<u16>) {
    let mut publisher = life.sim.connect("p").await;
    for n in range {
        publisher.publish(TOPIC, &n.to_string(), Some(n + 1)).await;
        assert_eq!(publisher.next().await, Got::PubAck(n + 1));
    }
}

async fn committed(life: &Life) -> Option<u64> {
    life.sim
        .log
        .committed(&device("1"), CONSUMER)
        .await
        .unwrap()
}

async fn until_committed(life: &Life, offset: u64) {
    life.sim
        .until("committed", |sim| {
            sim.log.commits(&device("1"), CONSUMER).last() == Some(&offset)
        })
        .await;
}

async fn expect(client: &mut Client, range: std::ops::Range<u16>) {
    for n in range {
        match client.take().await {
            Got::Publish { payload, dup, .. } => {
                assert_eq!(payload, n.to_string().into_bytes());
                assert!(!dup, "for this connection it is the first time");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn b32_what_was_not_acknowledged_when_the_gateway_was_killed_comes_again() {
    let memory = Arc::new(MemoryLog::new());
    let life = start_with(&memory, |limits| limits.send_window = 100).await;
    let mut client = subscriber(&life, "s").await;
    publish(&life, 0..100).await;
    expect(&mut client, 0..40).await;
    for _ in 40..100 {
        client.next().await;
    }
    until_committed(&life, 39).await;
    life.log.kill();

    let life = start(&memory).await;
    let mut client = subscriber(&life, "s").await;
    expect(&mut client, 40..100).await;
    publish(&life, 100..101).await;
    expect(&mut client, 100..101).await;
    assert!(client.is_quiet_for(Duration::from_secs(5)).await);
}

#[tokio::test(start_paused = true)]
async fn everyone_who_subscribes_in_time_gets_what_the_last_run_had_not_finished_and_nobody_later()
{
    let memory = Arc::new(MemoryLog::new());
    let life = start(&memory).await;
    let _silent = subscriber(&life, "silent").await;
    publish(&life, 0..1).await;
    let mut client = subscriber(&life, "s").await;
    let mut publisher = life.sim.connect("p").await;
    publisher.publish("d/1/y", "y", Some(9)).await;
    publisher.next().await;
    publish(&life, 1..5).await;
    expect(&mut client, 1..5).await;
    // Nothing was committed: the partition was empty, and the first message is not acknowledged. So one is.
    sleep(Duration::from_secs(2)).await;
    assert_eq!(committed(&life).await, None);
    life.log.kill();
    memory.commit(&device("1"), CONSUMER, 0).await.unwrap();

    let life = start(&memory).await;
    let mut first = subscriber(&life, "first").await;
    expect(&mut first, 1..5).await;
    drop(first);
    sleep(Duration::from_secs(30)).await;
    let mut second = subscriber(&life, "second").await;
    expect(&mut second, 1..5).await;
    second.subscribe("d/1/y", 1).await;
    assert_eq!(second.take().await.text(), "y", "a topic of its own");
    assert!(second.is_quiet_for(Duration::from_secs(1)).await);
    assert_eq!(committed(&life).await, Some(0), "until all had their time");
    sleep(Duration::from_secs(30)).await;
    let mut late = subscriber(&life, "late").await;
    assert!(late.is_quiet_for(Duration::from_secs(5)).await);
    until_committed(&life, 5).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_older_than_the_window_is_resumed() {
    let memory = Arc::new(MemoryLog::new());
    let life = start(&memory).await;
    let mut client = subscriber(&life, "s").await;
    publish(&life, 0..1).await;
    expect(&mut client, 0..1).await;
    until_committed(&life, 0).await;
    publish(&life, 1..5).await;
    life.log.kill();
    sleep(Duration::from_secs(50)).await;
    let life = start(&memory).await;
    // A gateway without subscribers stores something meanwhile.
    publish(&life, 5..7).await;
    sleep(Duration::from_secs(20)).await;
    let mut client = subscriber(&life, "s").await;
    expect(&mut client, 5..7).await;
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_is_stopped_in_order_leaves_what_was_not_acknowledged_to_the_next() {
    let memory = Arc::new(MemoryLog::new());
    let life = start_with(&memory, |limits| {
        limits.max_packet_size = 512;
        limits.max_connect_size = 512;
        limits.outbox_bytes = 512;
        limits.send_window = 2;
    })
    .await;
    let mut client = subscriber(&life, "s").await;
    publish(&life, 0..50).await;
    expect(&mut client, 0..10).await;
    life.sim.gateway.stop().await;
    client.rest().await;
    let last = committed(&life).await.unwrap();
    assert!((9..13).contains(&last), "{last}");

    let life = start(&memory).await;
    let mut client = subscriber(&life, "s").await;
    expect(&mut client, last as u16 + 1..50).await;
}

#[tokio::test(start_paused = true)]
async fn where_all_had_left_nothing_is_resumed() {
    let memory = Arc::new(MemoryLog::new());
    let life = start(&memory).await;
    let mut client = subscriber(&life, "s").await;
    publish(&life, 0..3).await;
    expect(&mut client, 0..3).await;
    until_committed(&life, 2).await;
    drop(client);
    let delivery = life.sim.delivery();
    life.sim
        .until("no reader", |_| delivery.readers() == 0)
        .await;
    assert_eq!(committed(&life).await, None);
    publish(&life, 3..5).await;
    life.log.kill();
    let life = start(&memory).await;
    let mut client = subscriber(&life, "s").await;
    assert!(client.is_quiet_for(Duration::from_secs(5)).await);
    publish(&life, 5..6).await;
    expect(&mut client, 5..6).await;
}

#[tokio::test(start_paused = true)]
async fn a_committed_offset_beyond_the_end_is_lowered() {
    for end in [0, 2] {
        let memory = Arc::new(MemoryLog::new());
        let life = start(&memory).await;
        let mut client = subscriber(&life, "s").await;
        publish(&life, 0..5).await;
        expect(&mut client, 0..5).await;
        until_committed(&life, 4).await;
        life.log.kill();
        memory.truncate(&device("1"), end);

        let life = start(&memory).await;
        let mut client = subscriber(&life, "s").await;
        assert_eq!(life.sim.count("log_regressions"), 1);
        sleep(Duration::from_secs(2)).await;
        assert_eq!(committed(&life).await, end.checked_sub(1));
        publish(&life, 7..8).await;
        expect(&mut client, 7..8).await;
        until_committed(&life, end).await;
    }
}

#[tokio::test(start_paused = true)]
async fn commits_are_few_and_none_is_sent_when_nothing_changes() {
    let memory = Arc::new(MemoryLog::new());
    let life = start(&memory).await;
    let mut client = subscriber(&life, "s").await;
    for n in 0..100 {
        publish(&life, n..n + 1).await;
        expect(&mut client, n..n + 1).await;
        sleep(Duration::from_millis(100)).await;
    }
    let commits = memory.counts(&device("1")).commits;
    assert!((5..=12).contains(&commits), "{commits} in ten seconds");
    sleep(Duration::from_secs(2)).await;
    let commits = memory.counts(&device("1")).commits;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(memory.counts(&device("1")).commits, commits);
}
