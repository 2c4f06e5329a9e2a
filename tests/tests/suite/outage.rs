//! Iggy away: those who are connected stay and lose nothing, newcomers are told, and everything goes on by itself.

use std::time::{Duration, Instant};

use e2e::binaries;
use e2e::deployment::Deployment;
use e2e::packet;
use e2e::raw::{Answer, RawClient};
use e2e::wait::{self, PATIENCE};

const TOPIC: &str = "device/7/x";
/// Time for everything to be as before, on a loaded machine.
const RECOVERY: Duration = Duration::from_secs(90);
/// The gateway's longest backoff is 5 s; it and 2 s more, and as much again for a loaded machine.
const FIRST_APPEND: Duration = Duration::from_secs(14);

struct Outage {
    lasts: Duration,
    publish_every: Duration,
}

/// Five minutes with one message a second with `E2E_LONG=1`, else a short outage with fewer messages.
fn outage() -> Outage {
    if binaries::long() {
        Outage {
            lasts: Duration::from_secs(300),
            publish_every: Duration::from_secs(1),
        }
    } else {
        Outage {
            lasts: Duration::from_secs(8),
            publish_every: Duration::from_millis(200),
        }
    }
}

/// Reads PUBACKs until the one for `last` has come; they have to come in order.
fn expect_pubacks(client: &mut RawClient, acknowledged: &mut u16, last: u16) {
    while *acknowledged < last {
        client.expect_within(&packet::puback(*acknowledged + 1), RECOVERY);
        *acknowledged += 1;
    }
}

/// Takes what has come within `duration`: PUBACKs in order, and PINGRESPs, which are counted.
fn drain(client: &mut RawClient, duration: Duration, acknowledged: &mut u16) -> usize {
    let end = Instant::now() + duration;
    let mut pings = 0;
    loop {
        match client.answer(end.saturating_duration_since(Instant::now())) {
            Answer::Silence => return pings,
            Answer::Closed => panic!("the client was disconnected during the outage"),
            Answer::Packet(bytes) if bytes == packet::PINGRESP => pings += 1,
            Answer::Packet(bytes) => {
                *acknowledged += 1;
                assert_eq!(bytes, packet::puback(*acknowledged));
            }
        }
    }
}

#[test]
fn b02_b11_an_outage_of_iggy_loses_nothing_and_needs_nobody_to_reconnect() {
    let mut deployment = Deployment::start();
    if !deployment.iggy.may_be_killed("an outage of Iggy") {
        return;
    }
    let outage = outage();
    let mut client = deployment.client("publisher");
    let mut published: u16 = 0;
    let mut acknowledged: u16 = 0;
    client.publish("device/8/x", u16::MAX, "warm");
    let host = deployment.host.process();
    let (descriptors, threads) = (host.descriptors(), host.threads());

    // Again and again: what recovers once may leave something behind that hinders the next time.
    let rounds = if binaries::long() { 3 } else { 2 };
    for round in 0..rounds {
        for _ in 0..10 {
            published += 1;
            client.send(&packet::publish(TOPIC, published, published.to_string()));
        }
        expect_pubacks(&mut client, &mut acknowledged, published);

        deployment.iggy.kill();
        let end = Instant::now() + outage.lasts;
        let mut pings = 0;
        while Instant::now() < end {
            published += 1;
            client.send(&packet::publish(TOPIC, published, published.to_string()));
            client.send(&packet::PINGREQ);
            let before = acknowledged;
            pings += drain(&mut client, outage.publish_every, &mut acknowledged);
            assert_eq!(acknowledged, before, "a PUBACK came while Iggy was away");
        }
        assert!(pings > 0, "no PINGREQ was answered during the outage");
        assert_eq!(deployment.source_status(), "running");
        assert_eq!(deployment.sink_status(), "running");

        deployment.iggy.start_again();
        let back = Instant::now();
        let before = acknowledged;
        while acknowledged == before {
            assert!(back.elapsed() < FIRST_APPEND, "nothing is appended");
            drain(&mut client, Duration::from_millis(50), &mut acknowledged);
        }
        expect_pubacks_among_pings(&mut client, &mut acknowledged, published);
        assert_eq!(deployment.source_status(), "running");
        let mut other =
            RawClient::connect_within(deployment.mqtt(), &format!("new-{round}"), RECOVERY);
        other.publish("device/8/x", 1, "new");
        drop(other);
        // The runtime's own client may be back later than the gateway's.
        let host = deployment.host.process();
        wait::until("no outage leaves anything open", RECOVERY, || {
            host.descriptors() <= descriptors && host.threads() <= threads
        });
    }

    let mut stored: Vec<u16> = Vec::new();
    for record in deployment.device_records() {
        if record.text("mqtt.client_id") == "publisher" && record.text("mqtt.topic") == TOPIC {
            let number = record.payload_text().parse().unwrap();
            // A retry after a lost reply may store a message again; the first ones count.
            if !stored.contains(&number) {
                stored.push(number);
            }
        }
    }
    let expected: Vec<u16> = (1..=published).collect();
    assert_eq!(
        stored, expected,
        "all are stored, in the order of publishing"
    );
    client.ping();
}

fn expect_pubacks_among_pings(client: &mut RawClient, acknowledged: &mut u16, last: u16) {
    let end = Instant::now() + RECOVERY;
    while *acknowledged < last {
        assert!(
            Instant::now() < end,
            "{acknowledged} of {last} messages were acknowledged after the outage"
        );
        drain(client, Duration::from_millis(50), acknowledged);
    }
}

/// What keeps the gateway from Iggy.
#[derive(Debug, Clone, Copy)]
enum Trouble {
    /// Its connections are closed, and it gets no others.
    Refused,
    /// Nothing comes through, in either direction.
    Silent,
    /// Its connections are closed again and again.
    Flapping,
}

#[test]
fn b02_whatever_keeps_iggy_away_the_connectors_run_on_and_everything_that_waits_is_stored() {
    let lasts = Duration::from_secs(if binaries::long() { 60 } else { 5 });
    // Fewer than `receive_window`, beyond which not even PINGREQs are read.
    let every = lasts / 25;
    let deployment = Deployment::builder().proxied().start();
    let proxy = deployment.proxy();
    let mut client = deployment.client("publisher");
    let mut published: u16 = 0;
    let mut acknowledged: u16 = 0;
    for trouble in [Trouble::Refused, Trouble::Silent, Trouble::Flapping] {
        match trouble {
            Trouble::Refused => {
                proxy.refuse(true);
                proxy.cut();
            }
            Trouble::Silent => {
                proxy.hold_requests();
                proxy.hold_replies();
            }
            Trouble::Flapping => {}
        }
        let end = Instant::now() + lasts;
        while Instant::now() < end {
            if matches!(trouble, Trouble::Flapping) {
                proxy.cut();
            }
            published += 1;
            client.send(&packet::publish(TOPIC, published, published.to_string()));
            client.send(&packet::PINGREQ);
            let pings = drain(&mut client, every, &mut acknowledged);
            assert!(pings > 0, "{trouble:?}: no PINGREQ is answered");
            assert_eq!(deployment.source_status(), "running", "{trouble:?}");
            assert_eq!(deployment.sink_status(), "running", "{trouble:?}");
        }
        proxy.refuse(false);
        proxy.release();
        expect_pubacks_among_pings(&mut client, &mut acknowledged, published);
        let mut newcomer = RawClient::connect_within(deployment.mqtt(), "newcomer", RECOVERY);
        newcomer.publish("device/8/x", 1, "new");
    }
    let mut stored: Vec<u16> = Vec::new();
    for record in deployment.device_records() {
        if record.text("mqtt.client_id") == "publisher" && record.text("mqtt.topic") == TOPIC {
            let number = record.payload_text().parse().unwrap();
            if !stored.contains(&number) {
                stored.push(number);
            }
        }
    }
    assert_eq!(stored, (1..=published).collect::<Vec<u16>>());
}

#[test]
fn a_newcomer_is_told_that_the_server_is_unavailable_after_the_grace() {
    let deployment = Deployment::builder()
        .proxied()
        .gateway("iggy_grace", "1s")
        .start();
    let mut client = deployment.client("stays");
    client.publish(TOPIC, 1, "before");
    deployment.proxy().refuse(true);
    deployment.proxy().cut();
    // The gateway notices the outage at its next request.
    client.send(&packet::publish(TOPIC, 2, "during"));

    wait::until("a newcomer gets CONNACK 3", PATIENCE, || {
        let mut newcomer = RawClient::open(deployment.mqtt());
        newcomer.send(&packet::connect("newcomer", 0));
        let answer = newcomer.answer(PATIENCE);
        let refused = answer == Answer::Packet(vec![0x20, 2, 0, 3]);
        if refused {
            newcomer.expect_closed(PATIENCE);
        }
        refused
    });
    client.ping();

    deployment.proxy().refuse(false);
    client.expect_within(&packet::puback(2), RECOVERY);
    RawClient::connect_within(deployment.mqtt(), "newcomer", RECOVERY).publish(TOPIC, 1, "after");
}

#[test]
fn a_subscriber_gets_what_is_stored_after_an_outage() {
    let mut deployment = Deployment::start();
    if !deployment
        .iggy
        .may_be_killed("a subscriber after an outage")
    {
        return;
    }
    let mut subscriber = deployment.client("subscriber");
    subscriber.subscribe(TOPIC, 1);
    let mut publisher = deployment.client("publisher");
    publisher.publish(TOPIC, 1, "before");
    let first = subscriber.expect_publish();
    assert_eq!(first.payload, b"before");
    subscriber.send(&packet::puback(first.id));

    deployment.iggy.kill();
    publisher.send(&packet::publish(TOPIC, 2, "during"));
    publisher.expect_silence(Duration::from_secs(2));
    deployment.iggy.start_again();
    publisher.expect_within(&packet::puback(2), RECOVERY);
    let second = wait::value(
        "the subscriber gets the message",
        RECOVERY,
        || match subscriber.answer(RECOVERY) {
            Answer::Packet(bytes) => packet::read_publish(&bytes),
            other => panic!("the subscriber saw {other:?}"),
        },
    );
    assert_eq!(second.payload, b"during");
}
