//! How often clients may connect and publish.

use std::time::Duration;

use tokio::time::Instant;

use super::{Got, Sim};
use crate::log::memory::MemoryLog;

#[tokio::test(start_paused = true)]
async fn a_client_over_publish_rate_is_read_from_more_slowly_and_loses_nothing_and_is_not_taken_for_silent()
 {
    let sim = Sim::on(MemoryLog::new(), |limits| limits.publish_rate = 2).await;
    let mut client = sim.dial(1 << 16);
    // Silence is allowed for 1.5 seconds.
    client.send_connect("fast", 1).await;
    client.next().await;
    let start = Instant::now();
    for n in 1..=10 {
        client.publish("d/1/x", "x", Some(n)).await;
        client.publish("d/1/x", "x", None).await;
    }
    client.ping().await;
    for n in 1..=10 {
        assert_eq!(client.next().await, Got::PubAck(n));
    }
    assert_eq!(client.next().await, Got::PingResp);
    let took = start.elapsed().as_millis();
    // Two at once, and eighteen more.
    assert!((8_950..9_500).contains(&took), "{took}");
    assert_eq!(sim.count("publishes_stored"), 20);
    assert_eq!(sim.count("publishes_slowed"), 18);
    assert_eq!(sim.count("keep_alive_timeouts"), 0);
    assert!(client.rest().await.is_empty());
    assert_eq!(sim.count("keep_alive_timeouts"), 1, "then it is silent");
}

#[tokio::test(start_paused = true)]
async fn clients_of_one_address_share_its_publish_rate_and_none_of_them_starves() {
    let sim = Sim::on(MemoryLog::new(), |limits| {
        limits.publish_rate_per_address = 10
    })
    .await;
    let mut greedy = sim.connect("greedy").await;
    let mut modest = sim.connect("modest").await;
    let start = Instant::now();
    for n in 1..=200 {
        greedy.publish("d/1/x", "x", Some(n)).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    for n in 1..=5 {
        modest.publish("d/1/x", "x", Some(n)).await;
        assert_eq!(modest.next().await, Got::PubAck(n));
    }
    assert!(
        start.elapsed() < Duration::from_secs(3),
        "it waits its turn only"
    );
    for n in 1..=200 {
        assert_eq!(greedy.next().await, Got::PubAck(n));
    }
    let took = start.elapsed().as_millis();
    assert!((19_400..20_500).contains(&took), "{took}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_waits_for_its_rate_can_be_replaced_and_its_places_are_free_again() {
    let sim = Sim::on(MemoryLog::new(), |limits| {
        limits.publish_rate_per_address = 1
    })
    .await;
    let start = Instant::now();
    for n in 0..50 {
        let mut client = sim.connect("again").await;
        client.publish("d/1/x", "x", None).await;
        client.publish("d/1/x", "x", None).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(sim.gateway.context().sessions.len() <= 1, "{n}");
    }
    assert!(start.elapsed() < Duration::from_secs(1));
    let mut client = sim.connect("again").await;
    client.publish("d/1/x", "x", Some(1)).await;
    assert_eq!(client.next().await, Got::PubAck(1));
    assert!(
        start.elapsed() < Duration::from_secs(3),
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_client_id_over_connect_rate_gets_connack_3_and_others_come_in() {
    let sim = Sim::on(MemoryLog::new(), |limits| limits.connect_rate = 3).await;
    for _ in 0..3 {
        sim.connect("often").await;
    }
    for _ in 0..5 {
        let mut client = sim.dial(1_024);
        client.send_connect("often", 0).await;
        assert_eq!(client.rest().await, [Got::ConnAck(3)]);
    }
    sim.connect("other").await;
    assert_eq!(sim.count("connects_over_rate"), 5);
    assert_eq!(sim.count("connects_refused"), 5);
    tokio::time::sleep(Duration::from_secs(1)).await;
    sim.connect("often").await;
}
