//! One listener is taken out of service while another goes on. Over real sockets: a port is closed and opened.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{Client, Got, MAP, Sim, device, payloads};
use crate::config::{ListenerConfig, Method};
use crate::gateway::DrainError;
use crate::listener::door::{Door, Phase};
use crate::log::memory::{HoldAt, MemoryLog};
use crate::status::readiness;

/// Longer than anything here takes, by far.
const PATIENCE: Duration = Duration::from_secs(30);

/// A gateway that listens at two ports.
async fn two() -> (Sim, SocketAddr, SocketAddr) {
    let log = std::sync::Arc::new(MemoryLog::new());
    let sim = Sim::listening(MAP, log.clone(), log, |config| {
        let methods = || [Method::Anonymous].into_iter().collect();
        let one = || ListenerConfig::plain("127.0.0.1:0".parse().unwrap(), methods());
        config.listen.clear();
        config.listener = vec![one(), one()];
        config.shutdown_grace = Duration::from_secs(10);
    })
    .await;
    let addresses = sim.gateway.addresses().to_vec();
    (sim, addresses[0], addresses[1])
}

async fn drained(sim: &Sim, door: &Door) {
    sim.until("it is drained", |_| door.phase() == Phase::Drained)
        .await;
}

/// The listener is dropped by its own task.
async fn port_is_closed(address: SocketAddr) {
    let closed = async { while TcpStream::connect(address).await.is_ok() {} };
    timeout(PATIENCE, closed).await.unwrap();
}

async fn connect(address: SocketAddr, id: &str) -> Client {
    let mut client = Client::new(TcpStream::connect(address).await.unwrap());
    client.connect(id).await;
    client
}

async fn answers(client: &mut Client) {
    client.ping().await;
    assert_eq!(client.next().await, Got::PingResp);
}

#[tokio::test]
async fn a_listener_that_is_drained_finishes_what_its_clients_sent_and_the_others_see_nothing() {
    let (sim, first, second) = two().await;
    let mut leaves = connect(first, "leaves").await;
    let mut silent = Client::new(TcpStream::connect(first).await.unwrap());
    let mut stays = connect(second, "stays").await;
    stays.subscribe("d/1/x", 1).await;
    let [one, other] = &sim.gateway.context().doors[..] else {
        panic!("two listeners");
    };
    sim.until("all are counted", |_| {
        one.here() == 2 && one.handshaking() == 1
    })
    .await;
    assert_eq!((one.connected(), other.connected()), (1, 1));
    sim.log.hold(HoldAt::BeforeCommit);
    leaves.publish("d/1/x", "in flight", Some(7)).await;
    sim.until("it is received", |sim| sim.count("publishes_received") == 1)
        .await;

    sim.gateway.drain_listener(first).unwrap();
    port_is_closed(first).await;
    assert!(
        silent.rest().await.is_empty(),
        "who has not come in is closed"
    );
    assert_eq!(one.phase(), Phase::Draining, "an append is in flight");
    answers(&mut stays).await;
    sim.log.release();
    assert_eq!(leaves.rest().await, [Got::PubAck(7)]);
    drained(&sim, one).await;
    assert_eq!(one.phase(), Phase::Drained);
    assert_eq!((one.here(), one.connected(), one.handshaking()), (0, 0, 0));
    assert_eq!((one.accepted.get(), other.accepted.get()), (2, 1));

    assert_eq!(stays.take().await.text(), "in flight");
    stays.publish("d/1/x", "goes on", Some(1)).await;
    let mut got = vec![stays.next().await, stays.next().await];
    got.retain(|got| *got != Got::PubAck(1));
    assert_eq!(got[0].text(), "goes on");
    assert_eq!(
        payloads(&sim.log.records(&device("1"))),
        ["in flight", "goes on"]
    );
    sim.gateway.stop().await;
}

#[tokio::test]
async fn what_is_queued_for_a_client_of_a_drained_listener_is_sent() {
    let (sim, first, second) = two().await;
    let mut reader = connect(first, "reader").await;
    reader.subscribe("d/1/x", 1).await;
    let mut publisher = connect(second, "publisher").await;
    for id in 1..=20 {
        publisher.publish("d/1/x", &id.to_string(), Some(id)).await;
        assert_eq!(publisher.next().await, Got::PubAck(id));
    }
    sim.until("all are queued", |sim| sim.count("copies_queued") == 20)
        .await;
    sim.gateway.drain_listener(first).unwrap();
    let got = reader.rest().await;
    let texts: Vec<_> = got.iter().map(Got::text).collect();
    let expected: Vec<_> = (1..=20).map(|n| n.to_string()).collect();
    assert_eq!(texts, expected);
    answers(&mut publisher).await;
    sim.gateway.stop().await;
}

#[tokio::test]
async fn a_drained_listener_can_be_opened_again_and_drained_again() {
    let (sim, first, second) = two().await;
    for _ in 0..3 {
        let mut client = connect(first, "a").await;
        answers(&mut client).await;
        sim.gateway.drain_listener(first).unwrap();
        assert!(client.rest().await.is_empty());
        drained(&sim, &sim.gateway.context().doors[0]).await;
        port_is_closed(first).await;
        sim.gateway.open_listener(first).await.unwrap();
        assert_eq!(sim.gateway.context().doors[0].phase(), Phase::Accepting);
    }
    assert_eq!(sim.gateway.context().doors[0].accepted.get(), 3);
    let mut clients = [connect(first, "b").await, connect(second, "c").await];
    for client in &mut clients {
        answers(client).await;
    }
    sim.gateway.stop().await;
    for client in &mut clients {
        assert!(client.rest().await.is_empty(), "it ends with the gateway");
    }
}

#[tokio::test]
async fn a_gateway_is_ready_while_one_of_its_listeners_accepts() {
    let (sim, first, second) = two().await;
    sim.until("Iggy answers", |sim| {
        readiness::check(sim.gateway.context()).ready
    })
    .await;
    let check = || readiness::check(sim.gateway.context());
    assert!(check().notes.is_empty());
    sim.gateway.drain_listener(first).unwrap();
    drained(&sim, &sim.gateway.context().doors[0]).await;
    assert!(check().ready);
    assert_eq!(check().notes, [format!("listener {first} is drained")]);
    sim.gateway.drain_listener(second).unwrap();
    drained(&sim, &sim.gateway.context().doors[1]).await;
    let closed = check();
    assert!(!closed.ready);
    let listener = closed.checks.iter().find(|check| check.name == "listener");
    let reason =
        format!("no listener accepts: listener {first} is drained, listener {second} is drained");
    assert_eq!(listener.unwrap().reason, Some(reason));
    port_is_closed(first).await;
    sim.gateway.open_listener(first).await.unwrap();
    assert!(check().ready);
    sim.gateway.stop().await;
    assert!(!check().ready);
}

#[tokio::test]
async fn draining_and_opening_what_cannot_be_is_refused_with_what_there_is() {
    let (sim, first, second) = two().await;
    let nowhere: SocketAddr = "127.0.0.1:1".parse().unwrap();
    let error = sim.gateway.drain_listener(nowhere).unwrap_err();
    let known = format!("no listener has the address {nowhere}; there are: {first}, {second}");
    assert_eq!(error.to_string(), known);
    assert_eq!(
        sim.gateway
            .open_listener(nowhere)
            .await
            .unwrap_err()
            .to_string(),
        known
    );
    assert!(matches!(
        sim.gateway.open_listener(first).await,
        Err(DrainError::Open(_))
    ));
    sim.gateway.drain_listener(first).unwrap();
    drained(&sim, &sim.gateway.context().doors[0]).await;
    assert!(matches!(
        sim.gateway.drain_listener(first),
        Err(DrainError::Closed(_, Phase::Drained))
    ));
    port_is_closed(first).await;
    let taken = std::net::TcpListener::bind(first).unwrap();
    assert!(matches!(
        sim.gateway.open_listener(first).await,
        Err(DrainError::Bind { .. })
    ));
    drop(taken);
    sim.gateway.open_listener(first).await.unwrap();
    sim.gateway.stop().await;
    assert!(matches!(
        sim.gateway.drain_listener(first),
        Err(DrainError::Stopping)
    ));
    assert!(matches!(
        sim.gateway.open_listener(first).await,
        Err(DrainError::Stopping)
    ));
}
