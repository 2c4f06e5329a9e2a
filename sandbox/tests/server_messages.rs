//! Sending and polling with the Rust SDK as the client.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "server_support/mod.rs"]
mod support;

use std::collections::BTreeMap;

use iggy::prelude::*;
use support::{Running, named, offsets, payloads, poll, send, topic};

#[tokio::test]
async fn messages_come_back_with_everything_that_was_sent() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path()).await;
    let client = server.client().await;
    topic(&client, 2, Durability::Persisted).await;
    let headers = BTreeMap::from([
        (
            HeaderKey::try_from("name").unwrap(),
            HeaderValue::try_from("value").unwrap(),
        ),
        (
            HeaderKey::try_from("number").unwrap(),
            HeaderValue::from(7_u64),
        ),
    ]);
    let sent = IggyMessage::builder()
        .id(42)
        .payload(bytes::Bytes::from_static(b"\x00\xff binary"))
        .user_headers(headers.clone())
        .build()
        .unwrap();
    let checked_before = IggyTimestamp::now();
    let mut batch = [sent];
    let confirmed = client
        .send_messages(
            &named("s"),
            &named("t"),
            &Partitioning::partition_id(1),
            &mut batch,
        )
        .await
        .unwrap();
    assert_eq!(confirmed.confirmations.len(), 1);
    let confirmed = &confirmed.confirmations[0];
    assert_eq!((confirmed.partition_id, confirmed.base_offset), (1, 0));

    let polled = poll(&client, 1, PollingStrategy::offset(0), 10).await;
    assert_eq!((polled.partition_id, polled.current_offset), (1, 0));
    let received = &polled.messages[0];
    assert_eq!(received.header.id, 42);
    assert_eq!(received.header.offset, 0);
    assert_eq!(received.payload, batch[0].payload);
    assert_eq!(
        received.header.origin_timestamp,
        batch[0].header.origin_timestamp
    );
    assert!(received.header.timestamp >= checked_before.as_micros());
    assert_eq!(received.user_headers_map().unwrap().unwrap(), headers);
    assert_eq!(polled.messages.len(), 1);
    assert!(
        poll(&client, 0, PollingStrategy::first(), 10)
            .await
            .messages
            .is_empty()
    );
    server.stop().await;
}

#[tokio::test]
async fn every_strategy_finds_its_messages() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path()).await;
    let client = server.client().await;
    topic(&client, 1, Durability::Replicated).await;
    assert!(
        poll(&client, 0, PollingStrategy::last(), 5)
            .await
            .messages
            .is_empty()
    );
    send(&client, 0, &["0", "1", "2"]).await;
    send(&client, 0, &["3", "4", "5", "6"]).await;
    send(&client, 0, &["7"]).await;

    let at = async |strategy, count| offsets(&poll(&client, 0, strategy, count).await);
    assert_eq!(at(PollingStrategy::first(), 2).await, [0, 1]);
    assert_eq!(
        at(PollingStrategy::first(), 100).await,
        [0, 1, 2, 3, 4, 5, 6, 7]
    );
    assert_eq!(at(PollingStrategy::last(), 3).await, [5, 6, 7]);
    assert_eq!(
        at(PollingStrategy::last(), 100).await,
        [0, 1, 2, 3, 4, 5, 6, 7]
    );
    for from in 0..8 {
        for count in 1..9 {
            let expected: Vec<u64> = (from..8).take(count as usize).collect();
            assert_eq!(
                at(PollingStrategy::offset(from), count).await,
                expected,
                "from {from}, {count}"
            );
        }
    }
    assert!(at(PollingStrategy::offset(8), 5).await.is_empty());
    assert!(at(PollingStrategy::offset(u64::MAX), 5).await.is_empty());
    let all = poll(&client, 0, PollingStrategy::first(), 100).await;
    assert_eq!(payloads(&all), ["0", "1", "2", "3", "4", "5", "6", "7"]);
    assert_eq!(all.current_offset, 7);
    server.stop().await;
}

#[tokio::test]
async fn a_timestamp_finds_the_first_batch_that_was_appended_then_or_later() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path()).await;
    let client = server.client().await;
    topic(&client, 1, Durability::Replicated).await;
    let batches: [&[&str]; 5] = [&["a"], &["b", "c", "d"], &["e"], &["f", "g"], &["h"]];
    let mut last = 0;
    for batch in batches {
        send(&client, 0, batch).await;
        // Two batches within a microsecond would have the same time.
        while IggyTimestamp::now().as_micros() <= last {}
        let newest = poll(&client, 0, PollingStrategy::last(), 1).await;
        last = newest.messages[0].header.timestamp;
    }
    let all = poll(&client, 0, PollingStrategy::first(), 100).await;
    let times: Vec<u64> = all
        .messages
        .iter()
        .map(|message| message.header.timestamp)
        .collect();
    assert!(times.is_sorted());
    let from = async |time: u64| {
        let strategy = PollingStrategy::timestamp(IggyTimestamp::from(time));
        offsets(&poll(&client, 0, strategy, 100).await)
            .first()
            .copied()
    };
    for (first, time) in [(0, 0), (1, 1), (4, 4), (5, 5), (7, 7)] {
        let time = times[time];
        assert_eq!(from(time).await, Some(first));
        if first > 0 {
            assert!(
                times[first as usize - 1] < time,
                "two batches have the same time"
            );
            assert_eq!(from(times[first as usize - 1] + 1).await, Some(first));
        }
    }
    assert_eq!(from(0).await, Some(0));
    assert_eq!(from(times[7] + 1).await, None);
    server.stop().await;
}

#[tokio::test]
async fn a_reply_stays_within_16_mib_but_a_larger_message_still_goes_out() {
    const MIB: usize = 1024 * 1024;
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path()).await;
    let client = server.client().await;
    topic(&client, 1, Durability::Replicated).await;
    let sizes: Vec<usize> = [vec![5 * MIB; 5], vec![18 * MIB], vec![100, 100]].concat();
    for batch in sizes.chunks(2) {
        let mut batch: Vec<_> = batch
            .iter()
            .map(|size| {
                IggyMessage::builder()
                    .payload(vec![7; *size].into())
                    .build()
                    .unwrap()
            })
            .collect();
        let to = Partitioning::partition_id(0);
        client
            .send_messages(&named("s"), &named("t"), &to, &mut batch)
            .await
            .unwrap();
    }
    let mut polls = Vec::new();
    let mut next = 0;
    while next < sizes.len() as u64 {
        let polled = poll(&client, 0, PollingStrategy::offset(next), 100).await;
        for (offset, message) in (next..).zip(&polled.messages) {
            assert_eq!(message.header.offset, offset);
            assert_eq!(message.payload.len(), sizes[offset as usize]);
        }
        polls.push(polled.messages.len());
        next += polled.messages.len() as u64;
    }
    assert_eq!(polls, [3, 2, 1, 2]);
    server.stop().await;
}

#[tokio::test]
async fn many_producers_get_offsets_of_their_own_without_gaps() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path()).await;
    let client = server.client().await;
    topic(&client, 1, Durability::Persisted).await;
    let mut producers = Vec::new();
    for producer in 0..8 {
        let client = server.client().await;
        producers.push(tokio::spawn(async move {
            let mut confirmed = Vec::new();
            for batch in 0..20 {
                let payload = format!("{producer}/{batch}");
                let sent = send(&client, 0, &[&payload, &payload, &payload]).await;
                confirmed.push((sent.confirmations[0].base_offset, payload));
            }
            confirmed
        }));
    }
    let mut confirmed = Vec::new();
    for producer in producers {
        confirmed.extend(producer.await.unwrap());
    }
    confirmed.sort();
    let all = payloads(&poll(&client, 0, PollingStrategy::first(), 1000).await);
    assert_eq!(all.len(), 8 * 20 * 3);
    for (number, (offset, payload)) in (0_u64..).zip(&confirmed) {
        assert_eq!(*offset, number * 3);
        assert_eq!(all[*offset as usize..][..3], [payload.as_str(); 3]);
    }
    server.stop().await;
}
