//! Consumer offsets with the Rust SDK as the client.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "server_support/mod.rs"]
mod support;

use iggy::prelude::*;
use support::{Running, named, offsets, send, topic};

async fn stored(client: &IggyClient, consumer: &Consumer, partition: u32) -> Option<(u64, u64)> {
    let found = client
        .get_consumer_offset(consumer, &named("s"), &named("t"), Some(partition))
        .await
        .unwrap();
    found.map(|offset| {
        assert_eq!(offset.partition_id, partition);
        (offset.stored_offset, offset.current_offset)
    })
}

async fn store(
    client: &IggyClient,
    consumer: &Consumer,
    partition: u32,
    offset: u64,
) -> Result<(), IggyError> {
    client
        .store_consumer_offset(consumer, &named("s"), &named("t"), Some(partition), offset)
        .await
}

#[tokio::test]
async fn offsets_are_kept_for_each_partition_and_consumer() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path()).await;
    let client = server.client().await;
    topic(&client, 2, Durability::Replicated).await;
    send(&client, 0, &["a", "b", "c"]).await;
    send(&client, 1, &["a", "b", "c"]).await;
    let number = Consumer::new(Identifier::numeric(7).unwrap());
    let name = Consumer::new(named("someone"));
    assert_eq!(stored(&client, &number, 0).await, None);
    store(&client, &number, 0, 1).await.unwrap();
    store(&client, &number, 1, 2).await.unwrap();
    store(&client, &name, 0, 0).await.unwrap();
    assert_eq!(stored(&client, &number, 0).await, Some((1, 2)));
    assert_eq!(stored(&client, &number, 1).await, Some((2, 2)));
    assert_eq!(stored(&client, &name, 0).await, Some((0, 2)));
    assert_eq!(stored(&client, &name, 1).await, None);
    // Going back is allowed.
    store(&client, &number, 0, 0).await.unwrap();
    assert_eq!(stored(&client, &number, 0).await, Some((0, 2)));

    let delete = async |consumer: &Consumer| {
        client
            .delete_consumer_offset(consumer, &named("s"), &named("t"), Some(0))
            .await
    };
    delete(&number).await.unwrap();
    assert_eq!(
        delete(&number).await.unwrap_err(),
        IggyError::ConsumerOffsetNotFound(0)
    );
    assert_eq!(stored(&client, &number, 0).await, None);
    assert_eq!(stored(&client, &name, 0).await, Some((0, 2)));
    server.stop().await;
}

#[tokio::test]
async fn an_offset_without_a_message_cannot_be_stored() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path()).await;
    let client = server.client().await;
    topic(&client, 1, Durability::Replicated).await;
    let consumer = Consumer::default();
    let invalid = IggyError::InvalidOffset(0);
    assert_eq!(store(&client, &consumer, 0, 0).await.unwrap_err(), invalid);
    send(&client, 0, &["a"]).await;
    store(&client, &consumer, 0, 0).await.unwrap();
    assert_eq!(store(&client, &consumer, 0, 1).await.unwrap_err(), invalid);
    assert_eq!(
        store(&client, &consumer, 0, u64::MAX).await.unwrap_err(),
        invalid
    );
    assert_eq!(stored(&client, &consumer, 0).await, Some((0, 0)));
    assert_eq!(
        store(&client, &consumer, 1, 0).await.unwrap_err().as_code(),
        20
    );
    let missing = client
        .get_consumer_offset(&consumer, &named("s"), &named("t"), Some(1))
        .await;
    assert_eq!(missing.unwrap_err().as_code(), 3007);
    server.stop().await;
}

#[tokio::test]
async fn next_goes_on_behind_the_stored_offset_and_auto_commit_stores_it() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path()).await;
    let client = server.client().await;
    topic(&client, 1, Durability::Replicated).await;
    send(&client, 0, &["a", "b", "c"]).await;
    send(&client, 0, &["d", "e"]).await;
    let consumer = Consumer::default();
    let next = async |commit: bool| {
        let strategy = PollingStrategy::next();
        let polled = client
            .poll_messages(
                &named("s"),
                &named("t"),
                Some(0),
                &consumer,
                &strategy,
                2,
                commit,
            )
            .await;
        offsets(&polled.unwrap())
    };
    assert_eq!(next(false).await, [0, 1]);
    assert_eq!(next(true).await, [0, 1]);
    assert_eq!(stored(&client, &consumer, 0).await, Some((1, 4)));
    assert_eq!(next(true).await, [2, 3]);
    assert_eq!(next(true).await, [4]);
    assert!(next(true).await.is_empty());
    assert_eq!(stored(&client, &consumer, 0).await, Some((4, 4)));
    send(&client, 0, &["f"]).await;
    assert_eq!(next(false).await, [5]);
    server.stop().await;
}

#[tokio::test]
async fn a_partition_keeps_at_most_4096_offsets_of_a_kind() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path()).await;
    let client = server.client().await;
    topic(&client, 1, Durability::Replicated).await;
    send(&client, 0, &["a"]).await;
    // Several clients, because each waits for an fsync after each offset.
    let mut fillers = Vec::new();
    for filler in 0..16_u32 {
        let client = server.client().await;
        fillers.push(tokio::spawn(async move {
            for id in (1..=4096).filter(|id| id % 16 == filler) {
                let consumer = Consumer::new(Identifier::numeric(id).unwrap());
                store(&client, &consumer, 0, 0).await.unwrap();
            }
        }));
    }
    for filler in fillers {
        filler.await.unwrap();
    }
    let one_more = Consumer::new(Identifier::numeric(5000).unwrap());
    assert_eq!(
        store(&client, &one_more, 0, 0).await.unwrap_err(),
        IggyError::TooManyConsumerOffsets
    );
    let known = Consumer::new(Identifier::numeric(5).unwrap());
    store(&client, &known, 0, 0).await.unwrap();
    client
        .delete_consumer_offset(&known, &named("s"), &named("t"), Some(0))
        .await
        .unwrap();
    store(&client, &one_more, 0, 0).await.unwrap();
    server.stop().await;
}
