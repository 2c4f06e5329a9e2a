//! Sending and polling with the Rust SDK as the client.

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
