//! From the log to subscribers: who gets what, in which order, and what a slow or silent one costs the others.

use std::time::Duration;

use super::{Got, Sim, device, payloads, triple};
use crate::log::memory::{Call, Fault, MemoryLog};

const CONSUMER: &str = "mqtt-gateway.node-1";

#[tokio::test(start_paused = true)]
async fn d8_topic_payload_and_qos_survive_the_round_trip() {
    let sim = Sim::new().await;
    let mut subscriber = sim.connect("s").await;
    subscriber.subscribe("d/1/x", 1).await;
    subscriber.subscribe("Living Room/ü 🚀", 0).await;
    let mut publisher = sim.connect("p").await;
    for (topic, payload, id, qos) in [
        ("d/1/x", "", Some(1), 1),
        ("d/1/x", "a\0b", None, 0),
        ("Living Room/ü 🚀", "hot", Some(2), 0),
        ("d/1/x", &"x".repeat(20_000), Some(3), 1),
    ] {
        publisher.publish(topic, payload, id).await;
        match subscriber.take().await {
            Got::Publish {
                topic: got,
                payload: bytes,
                qos: at,
                dup,
                ..
            } => {
                assert_eq!(
                    (got.as_str(), bytes.as_slice(), at, dup),
                    (topic, payload.as_bytes(), qos, false)
                );
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn d2_only_the_subscribers_of_a_topic_get_it_also_where_topics_share_a_partition() {
    let sim = Sim::new().await;
    let mut one = sim.connect("one").await;
    one.subscribe("d/1/x", 1).await;
    let mut other = sim.connect("other").await;
    other.subscribe("d/1/y", 1).await;
    let mut publisher = sim.connect("p").await;
    publisher.publish("d/1/y", "y", Some(1)).await;
    publisher.publish("d/1/x", "x", Some(2)).await;
    assert_eq!(one.take().await.text(), "x");
    assert_eq!(other.take().await.text(), "y");
    assert!(one.is_quiet_for(Duration::from_secs(5)).await);
    assert!(other.is_quiet_for(Duration::from_secs(5)).await);
}

#[tokio::test(start_paused = true)]
async fn d1_two_hundred_subscribers_cost_the_polls_of_one() {
    let mut polls = Vec::new();
    for subscribers in [1, 200] {
        let sim = Sim::new().await;
        let mut clients = Vec::new();
        for n in 0..subscribers {
            let mut client = sim.connect(&format!("s{n}")).await;
            client.subscribe("d/1/x", 1).await;
            clients.push(client);
        }
        let mut publisher = sim.connect("p").await;
        let before = sim.log.counts(&device("1")).polls;
        for id in 1..=20 {
            publisher.publish("d/1/x", &id.to_string(), Some(id)).await;
            for client in &mut clients {
                assert_eq!(client.take().await.text(), id.to_string());
            }
        }
        polls.push(sim.log.counts(&device("1")).polls - before);
    }
    assert!(polls[1] <= polls[0] + 5, "{polls:?}");
}

#[tokio::test(start_paused = true)]
async fn a_subscription_without_a_key_gets_the_messages_of_all_partitions() {
    let log = MemoryLog::new();
    log.add_topic(&triple("rest", 0).target, 3, None);
    let sim = Sim::on(log, |_| ()).await;
    let mut subscriber = sim.connect("s").await;
    subscriber.subscribe("elsewhere", 1).await;
    let mut publisher = sim.connect("p").await;
    let mut got = Vec::new();
    for id in 1..=9 {
        publisher
            .publish("elsewhere", &id.to_string(), Some(id))
            .await;
        got.push(subscriber.take().await.text().to_owned());
    }
    got.sort();
    assert_eq!(got, ["1", "2", "3", "4", "5", "6", "7", "8", "9"]);
    assert!((0..3).all(|partition| sim.log.records(&triple("rest", partition)).len() == 3));
}

#[tokio::test(start_paused = true)]
async fn d4_only_what_is_acknowledged_with_everything_before_it_is_committed() {
    let sim = Sim::new().await;
    let mut subscriber = sim.connect("s").await;
    subscriber.subscribe("d/1/x", 1).await;
    let mut publisher = sim.connect("p").await;
    for id in 1..=5 {
        publisher.publish("d/1/x", "x", Some(id)).await;
    }
    let ids: Vec<u16> = {
        let mut ids = Vec::new();
        for _ in 0..5 {
            match subscriber.next().await {
                Got::Publish { id: Some(id), .. } => ids.push(id),
                other => panic!("{other:?}"),
            }
        }
        ids
    };
    let commits = |sim: &Sim| sim.log.commits(&device("1"), CONSUMER);
    // B20: the third and fifth first.
    subscriber.ack(ids[2]).await;
    subscriber.ack(ids[4]).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(commits(&sim).is_empty());
    subscriber.ack(ids[0]).await;
    sim.until("committed", |sim| commits(sim).last() == Some(&0))
        .await;
    subscriber.ack(ids[1]).await;
    sim.until("committed", |sim| commits(sim).last() == Some(&2))
        .await;
    subscriber.ack(ids[3]).await;
    sim.until("committed", |sim| commits(sim).last() == Some(&4))
        .await;
    assert!(commits(&sim).is_sorted());
}

#[tokio::test(start_paused = true)]
async fn d7_a_subscriber_that_never_reads_delays_nobody_and_gets_the_rest_when_it_reads() {
    let sim = Sim::on(MemoryLog::new(), |limits| {
        limits.max_packet_size = 4_096;
        limits.outbox_bytes = 4_096;
        limits.ack_timeout = Duration::from_secs(600);
    })
    .await;
    let mut slow = sim.dial(512);
    slow.connect("slow").await;
    slow.subscribe("d/1/x", 1).await;
    let mut fast = sim.connect("fast").await;
    fast.subscribe("d/1/x", 1).await;
    let mut publisher = sim.connect("p").await;
    for n in 0..500_u16 {
        publisher
            .publish("d/1/x", &format!("{n:0100}"), Some(n + 1))
            .await;
        assert_eq!(fast.take().await.text(), format!("{n:0100}"));
        publisher.next().await;
    }
    assert_eq!(sim.count("cursors_lagged"), 1);
    for n in 0..500 {
        assert_eq!(
            slow.take().await.text(),
            format!("{n:0100}"),
            "no gap, nothing twice (D3)"
        );
    }
    sim.until("rejoined", |sim| {
        sim.count("cursors_lagged") == sim.count("cursors_rejoined")
    })
    .await;
    publisher.publish("d/1/x", "live", Some(1)).await;
    assert_eq!(slow.take().await.text(), "live");
    assert_eq!(fast.take().await.text(), "live");
    sim.until("all committed", |sim| {
        sim.log.commits(&device("1"), CONSUMER).last() == Some(&500)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn qos_0_copies_that_find_no_room_are_dropped_and_counted() {
    let sim = Sim::on(MemoryLog::new(), |limits| {
        limits.max_packet_size = 4_096;
        limits.outbox_bytes = 4_096;
    })
    .await;
    let mut slow = sim.dial(512);
    slow.connect("slow").await;
    slow.subscribe("d/1/x", 0).await;
    let mut publisher = sim.connect("p").await;
    for n in 0..200_u16 {
        publisher
            .publish("d/1/x", &"x".repeat(100), Some(n + 1))
            .await;
        publisher.next().await;
    }
    sim.until("all routed", |sim| sim.count("records_read") == 200)
        .await;
    let dropped = sim.count("copies_dropped");
    assert!(
        dropped > 100 && sim.count("copies_queued") + dropped == 200,
        "{dropped}"
    );
    sim.until("nothing held back", |sim| {
        sim.log.commits(&device("1"), CONSUMER).last() < Some(&199)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn d7_a_client_that_never_acknowledges_is_closed_and_frees_the_offset() {
    let sim = Sim::new().await;
    let mut silent = sim.connect("silent").await;
    silent.subscribe("d/1/x", 1).await;
    let mut publisher = sim.connect("p").await;
    publisher.publish("d/1/x", "x", Some(1)).await;
    publisher.next().await;
    let got = silent.rest().await;
    assert_eq!(got.len(), 1, "one copy, never sent again: {got:?}");
    assert_eq!(sim.count("evictions"), 1);
    sim.until("committed", |sim| {
        sim.log.commits(&device("1"), CONSUMER).last() == Some(&0)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn subscribing_again_changes_the_qos_and_brings_no_second_copy() {
    let sim = Sim::new().await;
    let mut subscriber = sim.connect("s").await;
    let mut publisher = sim.connect("p").await;
    for (n, qos) in [0, 1, 0, 1, 1, 0].into_iter().enumerate() {
        subscriber.subscribe("d/1/x", qos).await;
        publisher.publish("d/1/x", &n.to_string(), Some(1)).await;
        publisher.next().await;
        match subscriber.take().await {
            Got::Publish {
                payload, qos: at, ..
            } => {
                assert_eq!((payload, at), (n.to_string().into_bytes(), qos));
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(subscriber.is_quiet_for(Duration::from_secs(2)).await);
}

#[tokio::test(start_paused = true)]
async fn b50_unsubscribing_is_always_answered_and_subscribing_again_works() {
    let sim = Sim::new().await;
    let mut client = sim.connect("s").await;
    let mut publisher = sim.connect("p").await;
    client.unsubscribe("never/subscribed").await;
    assert_eq!(client.next().await, Got::UnsubAck(2));
    client.subscribe("d/1/x", 1).await;
    client.subscribe("d/1/y", 1).await;
    client.unsubscribe("d/1/x").await;
    assert_eq!(client.next().await, Got::UnsubAck(2));
    publisher.publish("d/1/x", "x", Some(1)).await;
    publisher.publish("d/1/y", "y", Some(2)).await;
    assert_eq!(client.take().await.text(), "y");
    client.subscribe("d/1/x", 1).await;
    publisher.publish("d/1/x", "again", Some(3)).await;
    assert_eq!(client.take().await.text(), "again");
}

#[tokio::test(start_paused = true)]
async fn the_last_to_leave_ends_the_reader() {
    let sim = Sim::new().await;
    let mut one = sim.connect("1").await;
    let mut two = sim.connect("2").await;
    one.subscribe("d/1/x", 1).await;
    two.subscribe("d/1/x", 1).await;
    let delivery = sim.delivery();
    assert_eq!(delivery.readers(), 1);
    drop(one);
    two.unsubscribe("d/1/x").await;
    two.next().await;
    sim.until("no reader", |_| delivery.readers() == 0).await;
    let polls = sim.log.counts(&device("1")).polls;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(sim.log.counts(&device("1")).polls, polls);
}

#[tokio::test(start_paused = true)]
async fn a_log_that_became_shorter_is_read_on_at_its_new_end() {
    let sim = Sim::new().await;
    let mut subscriber = sim.connect("s").await;
    subscriber.subscribe("d/1/x", 1).await;
    let mut publisher = sim.connect("p").await;
    for id in 1..=5 {
        publisher.publish("d/1/x", "before", Some(id)).await;
        assert_eq!(subscriber.take().await.text(), "before");
    }
    sim.log.truncate(&device("1"), 2);
    sim.until("noticed", |sim| sim.count("log_regressions") == 1)
        .await;
    while publisher.next().await != Got::PubAck(5) {}
    publisher.publish("d/1/x", "after", Some(6)).await;
    assert_eq!(subscriber.take().await.text(), "after");
    assert_eq!(
        payloads(&sim.log.records(&device("1"))),
        ["before", "before", "after"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_log_that_lost_its_only_record_is_read_on_from_its_beginning() {
    let sim = Sim::new().await;
    let mut subscriber = sim.connect("s").await;
    subscriber.subscribe("d/1/x", 1).await;
    let mut publisher = sim.connect("p").await;
    publisher.publish("d/1/x", "before", Some(1)).await;
    assert_eq!(subscriber.take().await.text(), "before");
    // Iggy says the same of an empty partition as of one with a single record.
    sim.log.truncate(&device("1"), 0);
    sim.until("noticed", |sim| sim.count("log_regressions") == 1)
        .await;
    publisher.publish("d/1/x", "after", Some(2)).await;
    assert_eq!(subscriber.take().await.text(), "after");
}

#[tokio::test(start_paused = true)]
async fn d5_a_topic_that_was_deleted_and_made_anew_is_read_from_its_first_record() {
    let sim = Sim::new().await;
    let mut subscriber = sim.connect("s").await;
    subscriber.subscribe("d/1/x", 1).await;
    let mut publisher = sim.connect("p").await;
    publisher.publish("d/1/x", "old", Some(1)).await;
    assert_eq!(subscriber.take().await.text(), "old");
    let polls_failed = sim.count("polls_failed");
    sim.log.delete_topic(&device("1").target);
    sim.until("noticed", |sim| sim.count("polls_failed") > polls_failed)
        .await;
    sim.log.add_topic(&device("1").target, 4, None);
    // As many records as the old topic had, and more, before the reader looks again.
    for id in 2..=5 {
        publisher.publish("d/1/x", &id.to_string(), Some(id)).await;
    }
    for id in 2..=5 {
        assert_eq!(subscriber.take().await.text(), id.to_string());
    }
    sim.until("committed", |sim| {
        sim.log.commits(&device("1"), CONSUMER).last() == Some(&3)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn d5_a_subscriber_that_joins_a_reader_of_a_topic_made_anew_misses_nothing() {
    let sim = Sim::new().await;
    let mut first = sim.connect("first").await;
    first.subscribe("d/1/x", 1).await;
    let mut publisher = sim.connect("p").await;
    publisher.publish("d/1/x", "old", Some(1)).await;
    assert_eq!(first.take().await.text(), "old");
    // Nobody polls in between, and one record is too few to be noticed by polling.
    sim.log.delete_topic(&device("1").target);
    sim.log.add_topic(&device("1").target, 4, None);
    let mut second = sim.connect("second").await;
    second.subscribe("d/1/x", 1).await;
    publisher.publish("d/1/x", "new", Some(2)).await;
    assert_eq!(second.take().await.text(), "new");
    assert_eq!(first.take().await.text(), "new");
}

#[tokio::test(start_paused = true)]
async fn an_append_of_this_gateway_wakes_an_idle_reader_at_once() {
    let sim = Sim::new().await;
    let mut subscriber = sim.connect("s").await;
    subscriber.subscribe("d/1/x", 1).await;
    let mut publisher = sim.connect("p").await;
    for id in 1..=20 {
        // Long enough that the reader has come to its longest pause; odd, so that it is met in the middle of one.
        tokio::time::sleep(Duration::from_millis(1_013)).await;
        let published = tokio::time::Instant::now();
        publisher.publish("d/1/x", "x", Some(id)).await;
        subscriber.take().await;
        assert!(
            published.elapsed() < Duration::from_millis(5),
            "{:?}",
            published.elapsed()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_in_the_middle_of_a_subscribe_leaves_no_reader_behind() {
    let log = MemoryLog::new();
    log.add_topic(&triple("rest", 0).target, 3, None);
    let sim = Sim::on(log, |_| ()).await;
    let mut client = sim.connect("s").await;
    // The first partition's end is told at once, the second's much later.
    sim.log.script(Call::End, Fault::Delay(Duration::ZERO));
    sim.log
        .script(Call::End, Fault::Delay(Duration::from_secs(30)));
    client.send_subscribe("elsewhere", 1).await;
    let delivery = sim.gateway.context().delivery.load_full().unwrap();
    sim.until("the first reader", |_| delivery.readers() == 1)
        .await;
    let mut other = sim.connect("s").await;
    assert!(client.rest().await.is_empty(), "taken over");
    sim.until("no reader", |_| delivery.readers() == 0).await;
    other.ping().await;
    assert_eq!(other.next().await, Got::PingResp);
}
