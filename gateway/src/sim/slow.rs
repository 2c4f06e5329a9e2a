//! Slow, silent and careless subscribers: what they cost the others, and when they are closed.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::mortal::Mortal;
use super::{Client, Got, MAP, Sim, device};
use crate::config::Limits;
use crate::delivery::routes::CursorPace;
use crate::log::memory::{Call, Fault, MemoryLog};

const CONSUMER: &str = "mqtt-gateway.node-1";
const TOPIC: &str = "d/1/x";

/// Small outboxes, so that little is needed to fill one.
fn small(limits: &mut Limits) {
    limits.max_packet_size = 2_048;
    limits.max_connect_size = 2_048;
    limits.outbox_bytes = 2_048;
    limits.ack_timeout = Duration::from_secs(600);
}

/// A subscriber whose socket takes 256 bytes, and that does not read yet.
async fn slow(sim: &Sim, name: &str) -> Client {
    let mut client = sim.dial(256);
    client.connect(name).await;
    client.subscribe(TOPIC, 1).await;
    client
}

async fn publish(publisher: &mut Client, range: std::ops::Range<u16>) {
    for n in range {
        publisher
            .publish(TOPIC, &format!("{n:0100}"), Some(n + 1))
            .await;
        assert_eq!(publisher.next().await, Got::PubAck(n + 1));
    }
}

#[tokio::test(start_paused = true)]
async fn d7_a_slow_catch_up_read_delays_no_live_subscriber() {
    let sim = Sim::on(MemoryLog::new(), small).await;
    let mut lagging = slow(&sim, "slow").await;
    let mut publisher = sim.connect("p").await;
    publish(&mut publisher, 0..100).await;
    sim.until("it lags", |sim| sim.count("cursors_lagged") == 1)
        .await;
    sim.log
        .script(Call::Reread, Fault::Delay(Duration::from_secs(50)));
    for n in 0..5 {
        assert_eq!(lagging.take().await.text(), format!("{n:0100}"));
    }
    let mut fast = sim.connect("fast").await;
    fast.subscribe(TOPIC, 1).await;
    while sim.count("catchup_reads") == 0 {
        let n = lagging.take().await;
        assert!(matches!(n, Got::Publish { .. }));
    }
    for n in 100..110 {
        let published = Instant::now();
        publish(&mut publisher, n..n + 1).await;
        assert_eq!(fast.take().await.text(), format!("{n:0100}"));
        assert!(published.elapsed() < Duration::from_millis(20));
    }
    let mut last = String::new();
    while last != format!("{:0100}", 109) {
        lagging.take().await.text().clone_into(&mut last);
    }
}

#[tokio::test(start_paused = true)]
async fn catch_up_reads_are_bounded_and_everybody_comes_forward_alike() {
    let memory = std::sync::Arc::new(MemoryLog::new());
    let log = Mortal::on(memory.clone());
    let sim = Sim::start(MAP, log.clone(), memory, |config| {
        small(&mut config.limits);
        config.limits.max_catchup_reads = 3;
        config.limits.max_poll_messages = 10;
    })
    .await;
    let mut clients = Vec::new();
    for n in 0..20 {
        clients.push(slow(&sim, &format!("s{n}")).await);
    }
    let mut publisher = sim.connect("p").await;
    publish(&mut publisher, 0..300).await;
    sim.until("all lag", |sim| sim.count("cursors_lagged") == 20)
        .await;
    for _ in 0..10_000 {
        sim.log
            .script(Call::Reread, Fault::Delay(Duration::from_millis(10)));
    }
    let mut reading = Vec::new();
    for mut client in clients {
        reading.push(tokio::spawn(async move {
            for n in 0..300 {
                assert_eq!(client.take().await.text(), format!("{n:0100}"), "D3");
            }
            client
        }));
    }
    // In the middle of it nobody is far ahead of the others.
    let next = |sim: &Sim| {
        let state = sim.delivery().look(Instant::now());
        let cursors = state.readers[0].cursors.iter();
        cursors.map(|cursor| cursor.next).collect::<Vec<_>>()
    };
    sim.until("half is done", |sim| {
        next(sim).iter().any(|next| *next >= 150)
    })
    .await;
    assert!(
        next(&sim).iter().all(|next| *next >= 100),
        "{:?}",
        next(&sim)
    );
    let mut living = Vec::new();
    for reading in reading {
        living.push(reading.await.unwrap());
    }
    assert_eq!(log.most_rereads(), 3);
    sim.until("all are live again", |sim| {
        sim.count("cursors_rejoined") == sim.count("cursors_lagged")
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn who_is_too_far_behind_is_closed_and_frees_the_offset() {
    let sim = Sim::on(MemoryLog::new(), |limits| {
        small(limits);
        limits.max_lag_messages = 50;
    })
    .await;
    let mut lagging = slow(&sim, "slow").await;
    let mut publisher = sim.connect("p").await;
    publish(&mut publisher, 0..60).await;
    sleep(Duration::from_secs(5)).await;
    assert_eq!(sim.count("evictions"), 0);
    publish(&mut publisher, 60..80).await;
    sim.until("it is closed", |sim| {
        sim.count("evictions_too_far_behind") == 1
    })
    .await;
    assert_eq!(sim.count("evictions"), 1);
    lagging.rest().await;
}

#[tokio::test(start_paused = true)]
async fn who_is_too_long_behind_is_closed() {
    let sim = Sim::on(MemoryLog::new(), |limits| {
        small(limits);
        limits.max_lag_time = Duration::from_secs(30);
    })
    .await;
    let _lagging = slow(&sim, "slow").await;
    let mut publisher = sim.connect("p").await;
    publish(&mut publisher, 0..60).await;
    for n in 60..62 {
        sleep(Duration::from_secs(14)).await;
        publish(&mut publisher, n..n + 1).await;
    }
    sleep(Duration::from_secs(2)).await;
    assert_eq!(sim.count("evictions"), 0);
    sleep(Duration::from_secs(14)).await;
    publish(&mut publisher, 62..63).await;
    sim.until("it is closed", |sim| {
        sim.count("evictions_too_far_behind") == 1
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn d6_when_all_outboxes_together_are_full_the_client_with_the_largest_is_closed() {
    let sim = Sim::on(MemoryLog::new(), |limits| {
        small(limits);
        limits.outbox_bytes = 20_000;
        limits.outbox_bytes_total = 25_000;
    })
    .await;
    let mut large = slow(&sim, "large").await;
    let mut publisher = sim.connect("p").await;
    publish(&mut publisher, 0..100).await;
    let mut small = slow(&sim, "small").await;
    publish(&mut publisher, 100..150).await;
    sim.until("one is closed", |sim| {
        sim.count("evictions_largest_outbox") == 1
    })
    .await;
    assert!(sim.gateway.context().outbox_total.bytes() <= 25_000);
    large.rest().await;
    for n in 100..150 {
        assert_eq!(small.take().await.text(), format!("{n:0100}"));
    }
    assert_eq!(sim.count("evictions"), 1);
}

#[tokio::test(start_paused = true)]
async fn d7_who_acknowledges_all_but_one_message_is_closed_too() {
    let sim = Sim::new().await;
    let mut careless = sim.connect("careless").await;
    careless.subscribe(TOPIC, 1).await;
    let mut publisher = sim.connect("p").await;
    publish(&mut publisher, 0..1).await;
    assert!(matches!(careless.next().await, Got::Publish { .. }));
    let begin = Instant::now();
    let mut n = 1;
    loop {
        assert!(begin.elapsed() < Duration::from_secs(40));
        publish(&mut publisher, n..n + 1).await;
        match careless.try_next().await {
            Some(Got::Publish { id: Some(id), .. }) => careless.ack(id).await,
            Some(other) => panic!("{other:?}"),
            None => break,
        }
        n += 1;
        sleep(Duration::from_secs(1)).await;
    }
    assert!(begin.elapsed() >= Duration::from_secs(30));
    assert_eq!(sim.count("evictions_silent"), 1);
    sim.until("committed", |sim| {
        sim.log.commits(&device("1"), CONSUMER).last() >= Some(&25)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn who_acknowledges_slowly_but_in_order_stays() {
    let sim = Sim::new().await;
    let mut patient = sim.connect("patient").await;
    patient.subscribe(TOPIC, 1).await;
    let mut publisher = sim.connect("p").await;
    publish(&mut publisher, 0..10).await;
    let mut ids = Vec::new();
    for _ in 0..10 {
        match patient.next().await {
            Got::Publish { id: Some(id), .. } => ids.push(id),
            other => panic!("{other:?}"),
        }
    }
    for id in ids {
        sleep(Duration::from_secs(25)).await;
        patient.ack(id).await;
    }
    patient.ping().await;
    assert_eq!(patient.next().await, Got::PingResp);
}

#[tokio::test(start_paused = true)]
async fn b17_one_unacknowledged_message_stops_nobody_and_its_late_puback_frees_all() {
    let sim = Sim::on(MemoryLog::new(), |limits| {
        limits.ack_timeout = Duration::from_secs(600);
    })
    .await;
    let mut careless = sim.connect("careless").await;
    let mut other = sim.connect("other").await;
    careless.subscribe(TOPIC, 1).await;
    other.subscribe(TOPIC, 1).await;
    let mut publisher = sim.connect("p").await;
    publish(&mut publisher, 0..1).await;
    let Got::Publish {
        id: Some(first), ..
    } = careless.next().await
    else {
        panic!("no PUBLISH")
    };
    assert_eq!(other.take().await.text(), format!("{:0100}", 0));
    for n in 1..1_001 {
        publish(&mut publisher, n..n + 1).await;
        assert_eq!(other.take().await.text(), format!("{n:0100}"));
        assert_eq!(careless.take().await.text(), format!("{n:0100}"));
    }
    let commits = |sim: &Sim| sim.log.commits(&device("1"), CONSUMER);
    sleep(Duration::from_secs(5)).await;
    assert!(commits(&sim).is_empty(), "before the first");
    let state = sim.delivery().look(Instant::now());
    let careless_state = &state.subscribers[0].outbox;
    assert_eq!(careless_state.unacknowledged, 1);
    assert!(careless_state.oldest_unacknowledged >= Some(Duration::from_secs(5)));
    careless.ack(first).await;
    sim.until("committed to the end", |sim| {
        commits(sim).last() == Some(&1_000)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn b23_nothing_is_sent_again_on_a_living_connection() {
    let sim = Sim::on(MemoryLog::new(), |limits| {
        limits.ack_timeout = Duration::from_secs(600);
    })
    .await;
    let mut silent = sim.connect("silent").await;
    silent.subscribe(TOPIC, 1).await;
    let mut publisher = sim.connect("p").await;
    publish(&mut publisher, 0..1).await;
    assert!(matches!(
        silent.next().await,
        Got::Publish { dup: false, .. }
    ));
    assert!(silent.is_quiet_for(Duration::from_secs(180)).await);
    silent.ping().await;
    assert_eq!(silent.next().await, Got::PingResp);
}

#[tokio::test(start_paused = true)]
async fn with_retransmit_interval_a_message_is_sent_again_with_dup_until_the_client_is_closed() {
    let sim = Sim::on(MemoryLog::new(), |limits| {
        limits.retransmit_interval = Duration::from_secs(5);
        limits.retransmit_max = 2;
        limits.ack_timeout = Duration::from_secs(600);
    })
    .await;
    let mut silent = sim.connect("silent").await;
    silent.subscribe(TOPIC, 1).await;
    let mut publisher = sim.connect("p").await;
    publish(&mut publisher, 0..1).await;
    let mut got = Vec::new();
    let begin = Instant::now();
    for packet in silent.rest().await {
        match packet {
            Got::Publish { id, dup, .. } => got.push((id, dup)),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(got, [(Some(1), false), (Some(1), true), (Some(1), true)]);
    let took = begin.elapsed();
    assert!(took >= Duration::from_secs(15) && took < Duration::from_secs(20));
    assert_eq!(sim.count("evictions_unanswered"), 1);
}

#[tokio::test(start_paused = true)]
async fn the_state_shows_who_is_live_who_lags_and_how_far() {
    let sim = Sim::on(MemoryLog::new(), small).await;
    let mut fast = sim.connect("fast").await;
    fast.subscribe(TOPIC, 1).await;
    fast.subscribe("d/1/y", 1).await;
    let mut lagging = slow(&sim, "slow").await;
    let mut careless = sim.dial(256);
    careless.connect("careless").await;
    careless.subscribe(TOPIC, 0).await;
    let mut publisher = sim.connect("p").await;
    for n in 0..100 {
        publish(&mut publisher, n..n + 1).await;
        fast.take().await;
    }
    sim.until("read", |sim| sim.count("records_read") == 100)
        .await;
    sleep(Duration::from_secs(2)).await;
    let state = sim.delivery().look(Instant::now());
    let [reader] = &state.readers[..] else {
        panic!("{state:?}")
    };
    assert_eq!(reader.position, 100);
    assert!(reader.safe < Some(99) && reader.committed <= reader.safe);
    let [live, behind, dropping] = &reader.cursors[..] else {
        panic!("{reader:?}")
    };
    assert_eq!(
        (live.pace, live.next, live.topics),
        (CursorPace::Live, 100, 2)
    );
    assert_eq!(behind.pace, CursorPace::Lagging);
    assert_eq!(behind.lag, 100 - behind.next);
    assert_eq!(dropping.pace, CursorPace::Live, "QoS 0 never lags");
    let [fast, slow, qos_0] = &state.subscribers[..] else {
        panic!("{state:?}")
    };
    assert_eq!(
        (fast.topics, fast.outbox.bytes, fast.outbox.dropped),
        (2, 0, 0)
    );
    assert!(slow.outbox.bytes > 0 && slow.outbox.is_full);
    assert_eq!(slow.outbox.dropped, 0);
    assert!(qos_0.outbox.dropped > 0);
    assert_eq!(qos_0.outbox.dropped, sim.count("copies_dropped"));
    for n in 0..100 {
        assert_eq!(lagging.take().await.text(), format!("{n:0100}"));
    }
}
