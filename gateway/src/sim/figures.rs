//! What ingest looks like from outside while messages are on their way.

use std::time::Duration;

use tokio::time::{Instant, advance};

use super::{Client, Got, Sim};
use crate::ingest::IngestState;
use crate::log::LogError;
use crate::log::memory::{Call, Fault, HoldAt, MemoryLog};

fn figures(sim: &Sim) -> IngestState {
    let ingest = sim.gateway.context().ingest.load_full().unwrap();
    ingest.state(Instant::now())
}

/// Messages that wait in the only lane, and messages that are being appended.
fn lane(sim: &Sim) -> (usize, usize) {
    match &figures(sim).lanes[..] {
        [] => (0, 0),
        [lane] => (lane.queued, lane.in_flight),
        lanes => panic!("{lanes:?}"),
    }
}

/// For how long the only lane fails, and why.
fn failing(sim: &Sim) -> Option<(Duration, String)> {
    figures(sim).lanes.first()?.failing.clone()
}

/// Publishes `d/1/x` with these ids, and waits until all were read.
async fn publish(sim: &Sim, client: &mut Client, ids: std::ops::RangeInclusive<u16>) {
    let all = sim.count("publishes_received") + ids.len() as u64;
    for id in ids {
        client.publish("d/1/x", "x", Some(id)).await;
    }
    sim.until("all are read", |sim| sim.count("publishes_received") == all)
        .await;
}

async fn expect_acknowledged(client: &mut Client, ids: std::ops::RangeInclusive<u16>) {
    for id in ids {
        assert_eq!(client.next().await, Got::PubAck(id));
    }
}

#[tokio::test(start_paused = true)]
async fn a_lane_shows_what_waits_and_what_is_being_appended_and_since_when() {
    let sim = Sim::new().await;
    let mut client = sim.connect("a").await;
    sim.log.hold(HoldAt::BeforeCommit);
    publish(&sim, &mut client, 1..=1).await;
    sim.until("the first is held", |sim| sim.log.held() == 1)
        .await;
    assert_eq!(lane(&sim), (0, 1));
    let of_one = figures(&sim).waiting_bytes;
    assert!(of_one > 0);
    publish(&sim, &mut client, 2..=5).await;
    sim.until("the others wait", |sim| lane(sim) == (4, 1))
        .await;
    assert_eq!(figures(&sim).waiting_bytes, 5 * of_one);
    let before = figures(&sim).lanes[0].oldest;
    advance(Duration::from_secs(3)).await;
    let since = figures(&sim).lanes[0].oldest - before;
    assert_eq!(since, Duration::from_secs(3));
    sim.log.release();
    expect_acknowledged(&mut client, 1..=5).await;
    let nothing = figures(&sim);
    assert!(nothing.lanes.is_empty(), "{nothing:?}");
    assert_eq!(nothing.waiting_bytes, 0);
}

#[tokio::test(start_paused = true)]
async fn what_was_queued_during_an_append_shows_as_being_appended_by_the_next() {
    let sim = Sim::new().await;
    let mut client = sim.connect("a").await;
    let slowly = || Fault::Delay(Duration::from_secs(10));
    sim.log.script(Call::Append, slowly());
    sim.log.script(Call::Append, slowly());
    publish(&sim, &mut client, 1..=1).await;
    publish(&sim, &mut client, 2..=4).await;
    sim.until("three wait", |sim| lane(sim) == (3, 1)).await;
    expect_acknowledged(&mut client, 1..=1).await;
    sim.until("they are appended", |sim| lane(sim) == (0, 3))
        .await;
    expect_acknowledged(&mut client, 2..=4).await;
}

#[tokio::test(start_paused = true)]
async fn a_lane_that_fails_says_why_and_for_how_long_until_it_does_not() {
    let sim = Sim::on(MemoryLog::new(), |limits| limits.max_batch_messages = 1).await;
    let mut client = sim.connect("a").await;
    let away = LogError::Busy("test".to_owned());
    for _ in 0..2 {
        sim.log.script(Call::Append, Fault::Fail(away.clone()));
    }
    // The one that succeeds, and the one of the message behind it.
    for _ in 0..2 {
        let slowly = Fault::Delay(Duration::from_secs(10));
        sim.log.script(Call::Append, slowly);
    }
    publish(&sim, &mut client, 1..=2).await;
    sim.until("it fails", |sim| failing(sim).is_some()).await;
    advance(Duration::from_secs(2)).await;
    let (failing_for, reason) = failing(&sim).unwrap();
    assert!(failing_for >= Duration::from_secs(2), "{failing_for:?}");
    assert_eq!(reason, away.to_string());
    expect_acknowledged(&mut client, 1..=1).await;
    assert_eq!(figures(&sim).lanes[0].failing, None);
    expect_acknowledged(&mut client, 2..=2).await;
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_an_answer_about_its_topic_is_counted_until_it_comes() {
    const BY_DEVICE: &str = "on_unmatched = 'refuse'\n[[rule]]\nmqtt_topic = 'd/([^/]+)/.*'\nstream = 's'\ntopic = 'of_$1'\n";
    let sim = Sim::with_map(BY_DEVICE, MemoryLog::new(), |_| ()).await;
    let mut client = sim.connect("a").await;
    let slowly = Fault::Delay(Duration::from_secs(10));
    sim.log.script(Call::Topic, slowly);
    publish(&sim, &mut client, 1..=3).await;
    sim.until("they wait", |sim| figures(sim).looking_up == 3)
        .await;
    expect_acknowledged(&mut client, 1..=3).await;
    assert_eq!(figures(&sim).looking_up, 0);
}
