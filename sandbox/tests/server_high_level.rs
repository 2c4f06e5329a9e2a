//! The SDK's own producer and consumer, which do much by themselves: create, join, commit, rejoin.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "server_support/mod.rs"]
mod support;

use std::collections::BTreeSet;
use std::str::FromStr;

use futures_util::StreamExt;
use iggy::prelude::*;
use support::{DEADLINE, Running, named};

fn texts(range: std::ops::Range<u32>) -> Vec<IggyMessage> {
    range
        .map(|number| IggyMessage::from_str(&number.to_string()).unwrap())
        .collect()
}

async fn consumer(client: &IggyClient) -> IggyConsumer {
    let mut consumer = client
        .consumer_group("readers", "s", "t")
        .unwrap()
        .create_consumer_group_if_not_exists()
        .auto_join_consumer_group()
        .auto_commit(AutoCommit::When(AutoCommitWhen::ConsumingEachMessage))
        .polling_strategy(PollingStrategy::next())
        .poll_interval(IggyDuration::from_str("1ms").unwrap())
        .batch_length(10)
        .build();
    consumer.init().await.unwrap();
    consumer
}

async fn next(consumer: &mut IggyConsumer) -> (u32, u64, String) {
    let received = tokio::time::timeout(DEADLINE, consumer.next())
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    let text = String::from_utf8(received.message.payload.to_vec()).unwrap();
    (received.partition_id, received.message.header.offset, text)
}

#[tokio::test]
async fn a_producer_makes_its_topic_and_a_group_reads_everything_once() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path()).await;
    let writer = server.client().await;
    let producer = writer
        .producer("s", "t")
        .unwrap()
        .create_stream_if_not_exists()
        .create_topic_if_not_exists(4, IggyExpiry::NeverExpire, MaxTopicSize::ServerDefault)
        .partitioning(Partitioning::balanced())
        .build();
    producer.init().await.unwrap();
    for start in (0..100).step_by(5) {
        producer.send(texts(start..start + 5)).await.unwrap();
    }
    let created = writer
        .get_topic(&named("s"), &named("t"))
        .await
        .unwrap()
        .unwrap();
    assert_eq!((created.partitions_count, created.messages_count), (4, 100));
    assert!(
        created
            .partitions
            .iter()
            .all(|partition| partition.messages_count == 25)
    );

    let reader = server.client().await;
    let mut alone = consumer(&reader).await;
    let mut seen = BTreeSet::new();
    while seen.len() < 100 {
        let (partition, offset, text) = next(&mut alone).await;
        assert!(
            seen.insert((partition, offset)),
            "{partition}/{offset} ({text}) came twice"
        );
    }
    server.stop().await;
}

#[tokio::test]
async fn two_consumers_share_a_topic_and_one_takes_over_from_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path()).await;
    let writer = server.client().await;
    support::topic(&writer, 2, Durability::Persisted).await;
    let to = async |partition, range| {
        let partitioning = Partitioning::partition_id(partition);
        writer
            .send_messages(&named("s"), &named("t"), &partitioning, &mut texts(range))
            .await
            .unwrap();
    };
    let (one, two) = (server.client().await, server.client().await);
    let mut first = consumer(&one).await;
    let mut second = consumer(&two).await;
    to(0, 0..1).await;
    to(1, 1..2).await;
    // Each has one partition: neither could get the other's message.
    let (mine, its) = tokio::join!(next(&mut first), next(&mut second));
    assert_eq!(BTreeSet::from([mine.0, its.0]), BTreeSet::from([0, 1]));
    assert_eq!((mine.1, its.1), (0, 0));

    // What the second consumed it has committed, so the first goes on behind it.
    second.shutdown().await.unwrap();
    drop(second);
    two.shutdown().await.unwrap();
    to(its.0, 2..3).await;
    assert_eq!(next(&mut first).await, (its.0, 1, "2".to_owned()));
    first.shutdown().await.unwrap();
    server.stop().await;
}

#[tokio::test]
async fn a_key_always_goes_to_the_same_partition() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path()).await;
    let client = server.client().await;
    support::topic(&client, 5, Durability::Replicated).await;
    for key in ["room_42", "room_43", "x"] {
        let partitioning = Partitioning::messages_key_str(key).unwrap();
        for number in 0..3 {
            let sent = client
                .send_messages(
                    &named("s"),
                    &named("t"),
                    &partitioning,
                    &mut texts(number..number + 1),
                )
                .await
                .unwrap();
            let expected = iggy_common::calculate_32(key.as_bytes()) % 5;
            assert_eq!(sent.confirmations[0].partition_id, expected, "{key}");
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn a_consumer_survives_a_restart_of_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path()).await;
    let client = server.client().await;
    support::topic(&client, 1, Durability::Persisted).await;
    client
        .send_messages(
            &named("s"),
            &named("t"),
            &Partitioning::partition_id(0),
            &mut texts(0..2),
        )
        .await
        .unwrap();
    let mut reader = consumer(&server.client().await).await;
    assert_eq!(next(&mut reader).await.2, "0");
    assert_eq!(next(&mut reader).await.2, "1");
    let address = server.address;
    server.stop().await;

    let server = Running::start_at(address, folder.path()).await;
    let client = server.client().await;
    client
        .send_messages(
            &named("s"),
            &named("t"),
            &Partitioning::partition_id(0),
            &mut texts(2..3),
        )
        .await
        .unwrap();
    // The consumer may report that it was disconnected before it goes on.
    let received = tokio::time::timeout(DEADLINE, async {
        loop {
            if let Some(Ok(received)) = reader.next().await {
                break received;
            }
        }
    })
    .await
    .unwrap();
    assert_eq!(received.message.header.offset, 2);
    server.stop().await;
}
