//! Connections: coming in, staying, being replaced, and what they see of roles that come and go.

use std::time::Duration;

use super::{Got, Sim};
use crate::gateway::Role;

#[tokio::test(start_paused = true)]
async fn a_second_connect_with_the_same_id_ends_the_first_and_the_new_one_is_served() {
    let sim = Sim::new().await;
    let mut publisher = sim.connect("p").await;
    let mut newest = sim.connect("x").await;
    newest.subscribe("d/1/x", 1).await;
    for round in 1..=20 {
        let mut next = sim.connect("x").await;
        assert!(
            newest.rest().await.is_empty(),
            "the old one is closed without a word"
        );
        next.subscribe("d/1/x", 1).await;
        publisher
            .publish("d/1/x", &round.to_string(), Some(round))
            .await;
        assert_eq!(next.take().await.text(), round.to_string());
        assert_eq!(publisher.next().await, Got::PubAck(round));
        newest = next;
    }
    assert_eq!(sim.count("takeovers"), 20);
    assert_eq!(sim.gateway.context().sessions.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn b67_pings_keep_a_client_and_silence_or_half_a_packet_does_not() {
    let sim = Sim::new().await;
    let mut pinging = sim.dial(1_024);
    pinging.send_connect("pinging", 2).await;
    assert_eq!(pinging.next().await, Got::ConnAck(0));
    for _ in 0..10 {
        assert!(pinging.is_quiet_for(Duration::from_millis(2_900)).await);
        pinging.ping().await;
        assert_eq!(pinging.next().await, Got::PingResp);
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    pinging.send(&[0xc0]).await;
    let half_sent = tokio::time::Instant::now();
    assert!(pinging.rest().await.is_empty());
    assert!(half_sent.elapsed() < Duration::from_millis(1_200));
    assert_eq!(sim.count("keep_alive_timeouts"), 1);
}

#[tokio::test(start_paused = true)]
async fn what_the_gateway_sends_does_not_keep_a_client_alive() {
    let sim = Sim::new().await;
    let mut subscriber = sim.dial(1 << 16);
    subscriber.send_connect("s", 2).await;
    subscriber.next().await;
    subscriber.subscribe("d/1/x", 0).await;
    let mut publisher = sim.connect("p").await;
    let started = tokio::time::Instant::now();
    for _ in 0..20 {
        publisher.publish("d/1/x", "x", None).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert!(!subscriber.rest().await.is_empty());
    assert!(started.elapsed() < Duration::from_secs(5));
    assert_eq!(sim.count("keep_alive_timeouts"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_socket_that_never_sends_connect_is_closed_after_the_connect_timeout() {
    let sim = Sim::new().await;
    let mut silent = sim.dial(64);
    let mut half = sim.dial(64);
    half.send(&[0x10, 20, 0, 4]).await;
    let started = tokio::time::Instant::now();
    assert!(silent.rest().await.is_empty());
    assert!(half.rest().await.is_empty());
    assert!(started.elapsed() < Duration::from_secs(12));
    assert_eq!(sim.count("connects_unfinished"), 2);
}

#[tokio::test(start_paused = true)]
async fn without_a_source_publishes_are_refused_and_without_a_sink_subscriptions() {
    let sim = Sim::new().await;
    sim.gateway.remove_role(Role::Ingest).await;
    let mut client = sim.connect("a").await;
    client.subscribe("d/1/x", 1).await;
    client.publish("d/1/x", "x", Some(1)).await;
    assert!(client.rest().await.is_empty(), "never a PUBACK");
    assert!(sim.gateway.add_role(Role::Ingest));
    sim.gateway.remove_role(Role::Delivery).await;
    let mut client = sim.connect("a").await;
    client.send_subscribe("d/1/x", 1).await;
    assert_eq!(client.next().await, Got::SubAck(1, vec![0x80]));
    client.publish("d/1/x", "x", Some(1)).await;
    assert_eq!(client.next().await, Got::PubAck(1));
}

#[tokio::test(start_paused = true)]
async fn a_role_that_ends_closes_only_the_connections_that_depend_on_it() {
    let sim = Sim::new().await;
    let mut publisher = sim.connect("p").await;
    let mut subscriber = sim.connect("s").await;
    subscriber.subscribe("d/1/x", 1).await;
    sim.gateway.remove_role(Role::Delivery).await;
    assert!(subscriber.rest().await.is_empty());
    publisher.publish("d/1/x", "x", Some(1)).await;
    assert_eq!(publisher.next().await, Got::PubAck(1));
    assert!(sim.gateway.add_role(Role::Delivery));
    let mut subscriber = sim.connect("s").await;
    subscriber.subscribe("d/1/x", 1).await;
    sim.gateway.remove_role(Role::Ingest).await;
    assert!(sim.gateway.add_role(Role::Ingest));
    publisher.publish("d/1/x", "y", Some(2)).await;
    assert_eq!(publisher.next().await, Got::PubAck(2));
    assert_eq!(subscriber.take().await.text(), "y");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_asks_and_never_reads_is_not_read_from_any_more() {
    let sim = Sim::new().await;
    let mut client = sim.dial(256);
    client.connect("a").await;
    let pings = [0xc0, 0].repeat(100_000);
    let flood = tokio::time::timeout(Duration::from_secs(5), client.send(&pings)).await;
    assert!(flood.is_err(), "the gateway went on reading");
}

#[tokio::test(start_paused = true)]
async fn a_subscribe_waits_a_moment_for_a_delivery_role_that_is_about_to_come() {
    let sim = Sim::new().await;
    sim.gateway.remove_role(Role::Delivery).await;
    let mut client = sim.connect("s").await;
    client.send_subscribe("d/1/x", 1).await;
    assert!(client.is_quiet_for(Duration::from_secs(1)).await);
    assert!(sim.gateway.add_role(Role::Delivery));
    assert_eq!(client.next().await, Got::SubAck(1, vec![1]));
}
