//! Odd and hostile SUBSCRIBEs and records: what they are answered with, and that they disturb nobody.

use std::time::Duration;

use super::client::packet;
use super::{Client, Got, MAP, Sim, device, record, triple};
use crate::log::memory::{Call, Fault, MemoryLog};
use crate::log::{HeaderValue, Headers, Log, LogError, Record};

/// A SUBSCRIBE with several filters.
fn subscribe(filters: &[(String, u8)]) -> Vec<u8> {
    let mut body = vec![0, 1];
    for (filter, qos) in filters {
        body.extend(u16::try_from(filter.len()).unwrap().to_be_bytes());
        body.extend(filter.as_bytes());
        body.push(*qos);
    }
    packet(0x82, &body)
}

async fn codes(client: &mut Client, filters: &[(String, u8)]) -> Vec<u8> {
    client.send(&subscribe(filters)).await;
    match client.next().await {
        Got::SubAck(1, codes) => codes,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_subscribe_with_a_thousand_filters_is_answered_filter_by_filter() {
    let sim = Sim::new().await;
    let mut client = sim.connect("s").await;
    let filters: Vec<_> = (0..1_000).map(|n| (format!("d/{n}/x"), 1)).collect();
    let codes = codes(&mut client, &filters).await;
    assert_eq!(codes.len(), 1_000);
    assert!(codes[..256].iter().all(|code| *code == 1));
    assert!(codes[256..].iter().all(|code| *code == 0x80));
    assert_eq!(sim.delivery().readers(), 4, "D1");
    let mut publisher = sim.connect("p").await;
    for n in [0, 255, 256] {
        let topic = format!("d/{n}/x");
        publisher.publish(&topic, &n.to_string(), Some(n + 1)).await;
        publisher.next().await;
    }
    let mut got = [client.take().await, client.take().await].map(|got| got.text().to_owned());
    got.sort();
    assert_eq!(got, ["0", "255"]);
    assert!(client.is_quiet_for(Duration::from_secs(2)).await);
}

#[tokio::test(start_paused = true)]
async fn the_same_filter_twice_in_one_subscribe_counts_as_the_last_and_brings_one_copy() {
    let sim = Sim::new().await;
    let mut client = sim.connect("s").await;
    let topic = || "d/1/x".to_owned();
    let codes = codes(&mut client, &[(topic(), 0), (topic(), 1), (topic(), 2)]).await;
    assert_eq!(codes, [0, 1, 1]);
    let mut publisher = sim.connect("p").await;
    publisher.publish("d/1/x", "x", Some(1)).await;
    assert!(matches!(client.take().await, Got::Publish { qos: 1, .. }));
    assert!(client.is_quiet_for(Duration::from_secs(2)).await);
}

#[tokio::test(start_paused = true)]
async fn filters_of_255_levels_work_and_those_over_the_limit_close_the_connection() {
    let sim = Sim::new().await;
    let mut client = sim.connect("s").await;
    let deep = vec!["l"; 255].join("/");
    assert_eq!(codes(&mut client, &[(deep.clone(), 1)]).await, [1]);
    let mut publisher = sim.connect("p").await;
    publisher.publish(&deep, "deep", Some(1)).await;
    assert_eq!(client.take().await.text(), "deep");
    let wild = format!("{}/#", vec!["+"; 254].join("/"));
    assert_eq!(codes(&mut client, &[(wild, 1)]).await, [0x80]);
    let too_deep = vec!["l"; 257].join("/");
    client.send(&subscribe(&[(too_deep, 1)])).await;
    assert!(client.rest().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_topic_whose_place_is_missing_is_made_for_a_subscriber_if_its_rule_says_so() {
    const GUARDED: &str = r"
[[rule]]
mqtt_topic = 'guarded/.*'
stream = 'nowhere'
topic = 'guarded_$0'
auto_create = false
";
    let map = format!(
        "{MAP}{}",
        GUARDED
            .replace("'guarded/.*'", "'guarded/([a-z]+)'")
            .replace("$0", "$1")
    );
    let sim = Sim::with_map(&map, MemoryLog::new(), |_| ()).await;
    let mut client = sim.connect("s").await;
    let filters = [("guarded/x".to_owned(), 1), ("dynamic/new".to_owned(), 1)];
    assert_eq!(codes(&mut client, &filters).await, [0x80, 1]);
    let made = sim.log.topic(&triple("dynamic_new", 0).target).await;
    assert!(made.unwrap().is_some());
    let mut publisher = sim.connect("p").await;
    publisher.publish("dynamic/new", "x", Some(1)).await;
    assert_eq!(client.take().await.text(), "x");
}

#[tokio::test(start_paused = true)]
async fn an_unsubscribe_in_the_middle_of_a_batch_ends_it_at_once_and_frees_the_offset() {
    let sim = Sim::on(MemoryLog::new(), |limits| {
        limits.max_packet_size = 1_024;
        limits.max_connect_size = 1_024;
        limits.outbox_bytes = 1_024;
    })
    .await;
    let mut client = sim.dial(256);
    client.connect("s").await;
    client.subscribe("d/1/x", 1).await;
    client.subscribe("d/1/y", 1).await;
    let records: Vec<Record> = (0..100)
        .map(|n| {
            let topic = if n % 2 == 0 { "d/1/x" } else { "d/1/y" };
            record(topic, &format!("{n:0100}"), 1)
        })
        .collect();
    sim.log.append(&device("1"), &records).await.unwrap();
    sim.until("it lags", |sim| sim.count("cursors_lagged") == 1)
        .await;
    client.unsubscribe("d/1/x").await;
    let mut of_x = 0;
    let mut of_y = Vec::new();
    let mut is_answered = false;
    while of_y.len() < 50 {
        match client.take().await {
            Got::UnsubAck(2) => is_answered = true,
            Got::Publish { topic, payload, .. } => {
                let n: u32 = String::from_utf8(payload).unwrap().parse().unwrap();
                match topic.as_str() {
                    "d/1/y" => of_y.push(n),
                    _ => of_x += 1,
                }
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(is_answered);
    assert!(of_x < 15, "{of_x}: only what was queued already");
    assert!(of_y.is_sorted(), "D3");
    sim.until("all committed", |sim| {
        sim.log.commits(&device("1"), "mqtt-gateway.node-1").last() == Some(&99)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn hostile_records_are_skipped_and_counted_and_stop_nobody() {
    let sim = Sim::new().await;
    let mut client = sim.connect("s").await;
    client.subscribe("d/1/x", 1).await;
    let with_topic = |value: HeaderValue| {
        let mut headers = Headers::with_capacity(1);
        headers.insert("mqtt.topic".into(), value);
        Record {
            id: rand::random(),
            headers,
            payload: "hostile".into(),
        }
    };
    let text = |text: &str| HeaderValue::Text(text.into());
    let mut huge = record("d/1/x", "huge", 1);
    huge.payload = vec![b'x'; 8_000_000].into();
    let mut odd = record("d/1/x", "odd headers", 1);
    odd.headers.insert("mqtt.qos".into(), text("many"));
    odd.headers
        .insert("mqtt.unknown".into(), HeaderValue::U16(7));
    odd.headers.insert(
        "elsewhere".into(),
        HeaderValue::Other(vec![0xff; 255].into()),
    );
    let records = [
        Record {
            headers: Headers::default(),
            ..with_topic(text("no headers"))
        },
        with_topic(text("d/+/x")),
        with_topic(text("d/1/x\0")),
        with_topic(text("#")),
        with_topic(HeaderValue::U8(1)),
        with_topic(HeaderValue::Other(vec![0xff, 0xfe].into())),
        huge,
        odd,
        record("d/1/x", "fine", 1),
    ];
    for record in &records {
        let one = std::slice::from_ref(record);
        sim.log.append(&device("1"), one).await.unwrap();
    }
    let Got::Publish { payload, id, .. } = client.next().await else {
        panic!("no PUBLISH")
    };
    assert_eq!(payload.len(), 8_000_000);
    client.ack(id.unwrap()).await;
    let mut last = client.take().await.text().to_owned();
    if last == "odd headers" {
        client.take().await.text().clone_into(&mut last);
    }
    assert_eq!(last, "fine");
    assert!(sim.count("records_skipped") >= 6);
    sim.until("all committed", |sim| {
        sim.log.commits(&device("1"), "mqtt-gateway.node-1").last() == Some(&8)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_gap_that_retention_has_left_is_counted_with_its_size() {
    let sim = Sim::new().await;
    let mut client = sim.connect("s").await;
    client.subscribe("d/1/x", 1).await;
    // The next poll is late: meanwhile retention removes what it would have brought.
    sim.log
        .script(Call::Poll, Fault::Delay(Duration::from_secs(5)));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let records: Vec<_> = (0..10)
        .map(|n| record("d/1/x", &n.to_string(), 1))
        .collect();
    sim.log.append(&device("1"), &records).await.unwrap();
    sim.log.expire(&device("1"), 7);
    for n in 7..10 {
        assert_eq!(client.take().await.text(), n.to_string());
    }
    assert_eq!(sim.count("records_missed"), 7);
}

#[tokio::test(start_paused = true)]
async fn d5_subscribing_again_while_iggy_does_not_answer_interrupts_nothing() {
    const MESSAGES: u16 = 60;
    let sim = Sim::on(MemoryLog::new(), |limits| {
        limits.max_packet_size = 1_000;
        limits.max_connect_size = 1_000;
        limits.outbox_bytes = 4_000;
        limits.send_window = 1;
    })
    .await;
    let mut slow = sim.connect("slow").await;
    slow.subscribe("d/1/x", 1).await;
    let mut publisher = sim.connect("publisher").await;
    for n in 1..=MESSAGES {
        let payload = format!("{n:0500}");
        publisher.publish("d/1/x", &payload, Some(n)).await;
        assert_eq!(publisher.next().await, Got::PubAck(n));
    }
    sim.until("it is behind", |sim| sim.count("cursors_lagged") == 1)
        .await;
    let unreachable = LogError::Unreachable {
        address: "memory".to_owned(),
        reason: "cut".to_owned(),
    };
    sim.log.script(Call::End, Fault::Fail(unreachable));
    slow.send_subscribe("d/1/x", 1).await;
    let mut got = 0;
    while got < MESSAGES {
        match slow.take().await {
            Got::SubAck(1, codes) => assert_eq!(codes, [1]),
            message => {
                got += 1;
                assert_eq!(message.text(), format!("{got:0500}"));
            }
        }
    }
}
