//! Streams, partitions and purging with the Rust SDK as the client.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "server_support/mod.rs"]
mod support;

use std::str::FromStr;

use iggy::prelude::*;
use support::{Running, named, offsets, poll, send, topic};

#[tokio::test]
async fn streams_are_created_listed_renamed_and_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path()).await;
    let client = server.client().await;
    assert!(client.get_streams().await.unwrap().is_empty());
    assert!(client.get_stream(&named("a")).await.unwrap().is_none());

    let created = client.create_stream("a").await.unwrap();
    assert_eq!((created.id, created.name.as_str()), (0, "a"));
    let second = client.create_stream("b").await.unwrap();
    assert_eq!(second.id, 1);
    assert_eq!(
        client.create_stream("a").await.unwrap_err(),
        IggyError::StreamNameAlreadyExists(String::new())
    );
    let found = client
        .get_stream(&Identifier::numeric(1).unwrap())
        .await
        .unwrap();
    assert_eq!(found.unwrap().name, "b");

    let options = StreamUpdateOptions::default();
    client
        .update_stream(&named("b"), "c", &options)
        .await
        .unwrap();
    assert_eq!(
        client
            .update_stream(&named("c"), "a", &options)
            .await
            .unwrap_err(),
        IggyError::StreamNameAlreadyExists(String::new())
    );
    client
        .update_stream(&named("c"), "c", &options)
        .await
        .unwrap();
    let names: Vec<_> = client
        .get_streams()
        .await
        .unwrap()
        .into_iter()
        .map(|stream| stream.name)
        .collect();
    assert_eq!(names, ["a", "c"]);

    client.delete_stream(&named("a")).await.unwrap();
    assert_eq!(
        client.delete_stream(&named("a")).await.unwrap_err(),
        IggyError::StreamIdNotFound(Identifier::default())
    );
    // An id is never given out twice.
    assert_eq!(client.create_stream("a").await.unwrap().id, 2);
    server.stop().await;
}

#[tokio::test]
async fn partitions_are_added_and_removed_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path()).await;
    let client = server.client().await;
    topic(&client, 1, Durability::Replicated).await;
    send(&client, 0, &["kept"]).await;
    client
        .create_partitions(&named("s"), &named("t"), 2)
        .await
        .unwrap();
    send(&client, 2, &["gone"]).await;
    client
        .delete_partitions(&named("s"), &named("t"), 1)
        .await
        .unwrap();
    let read = client
        .get_topic(&named("s"), &named("t"))
        .await
        .unwrap()
        .unwrap();
    assert_eq!((read.partitions_count, read.messages_count), (2, 1));
    client
        .create_partitions(&named("s"), &named("t"), 1)
        .await
        .unwrap();
    assert!(
        poll(&client, 2, PollingStrategy::first(), 1)
            .await
            .messages
            .is_empty()
    );
    assert_eq!(
        poll(&client, 0, PollingStrategy::first(), 1)
            .await
            .messages
            .len(),
        1
    );
    assert_eq!(
        client
            .delete_partitions(&named("s"), &named("t"), 4)
            .await
            .unwrap_err(),
        IggyError::InvalidPartitionsCount
    );
    server.stop().await;
}

#[tokio::test]
async fn a_purged_topic_is_empty_and_starts_at_offset_0_again() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path()).await;
    let client = server.client().await;
    topic(&client, 2, Durability::Persisted).await;
    for purge_stream in [false, true] {
        send(&client, 1, &["a", "b"]).await;
        let consumer = Consumer::default();
        client
            .store_consumer_offset(&consumer, &named("s"), &named("t"), Some(1), 1)
            .await
            .unwrap();
        match purge_stream {
            true => client.purge_stream(&named("s")).await.unwrap(),
            false => client.purge_topic(&named("s"), &named("t")).await.unwrap(),
        }
        let read = client
            .get_topic(&named("s"), &named("t"))
            .await
            .unwrap()
            .unwrap();
        assert_eq!((read.messages_count, read.size.as_bytes_u64()), (0, 0));
        assert!(
            poll(&client, 1, PollingStrategy::first(), 9)
                .await
                .messages
                .is_empty()
        );
        let offset = client
            .get_consumer_offset(&consumer, &named("s"), &named("t"), Some(1))
            .await;
        assert!(offset.unwrap().is_none());
    }
    let confirmed = send(&client, 1, &["c"]).await;
    assert_eq!(confirmed.confirmations[0].base_offset, 0);
    assert_eq!(
        offsets(&poll(&client, 1, PollingStrategy::last(), 9).await),
        [0]
    );
    server.stop().await;
}

#[tokio::test]
async fn requests_for_what_does_not_exist_get_the_errors_of_iggy() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path()).await;
    let client = server.client().await;
    topic(&client, 1, Durability::Replicated).await;
    let consumer = Consumer::default();
    let poll = async |stream: &str, topic: &str, partition: u32| {
        let strategy = PollingStrategy::first();
        client
            .poll_messages(
                &named(stream),
                &named(topic),
                Some(partition),
                &consumer,
                &strategy,
                1,
                false,
            )
            .await
            .unwrap_err()
            .as_code()
    };
    assert_eq!(poll("x", "t", 0).await, 1009);
    assert_eq!(poll("s", "x", 0).await, 2010);
    assert_eq!(poll("s", "t", 1).await, 3007);
    let send = async |stream: &str, topic: &str, partition: u32| {
        let mut batch = [IggyMessage::from_str("x").unwrap()];
        client
            .send_messages(
                &named(stream),
                &named(topic),
                &Partitioning::partition_id(partition),
                &mut batch,
            )
            .await
            .unwrap_err()
            .as_code()
    };
    assert_eq!(send("x", "t", 0).await, 20);
    assert_eq!(send("s", "x", 0).await, 20);
    assert_eq!(send("s", "t", 1).await, 20);
    server.stop().await;
}
