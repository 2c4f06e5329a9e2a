//! Bodies that no SDK sends: every request gets an answer, and nothing wrong is stored.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "server_support/raw.rs"]
mod raw;
#[path = "server_support/mod.rs"]
mod support;

use iggy::prelude::*;
use iggy_binary_protocol::codes::{
    CREATE_TOPIC_CODE, LOGIN_REGISTER_CODE, LOGIN_USER_CODE, PING_CODE, POLL_MESSAGES_CODE,
    SEND_MESSAGES_CODE, STORE_CONSUMER_OFFSET_CODE,
};
use iggy_binary_protocol::requests::consumer_offsets::StoreConsumerOffsetRequest;
use iggy_binary_protocol::requests::messages::PollMessagesRequest;
use iggy_binary_protocol::requests::topics::CreateTopicRequest;
use iggy_binary_protocol::{
    AckLevel, COMMAND_TABLE, EvictionReason, WireConsumer, WireEncode, WireIdentifier, WireName,
    WireOptions, WirePartitioning, WirePollingStrategy,
};
use raw::{Back, Message, Raw, batch, send_body};
use support::{Running, named, offsets, poll, still_serves, topic};

#[tokio::test]
async fn every_command_answers_every_body() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path()).await;
    topic(&server.client().await, 2, Durability::Replicated).await;
    let mut bodies = vec![
        Vec::new(),
        vec![0],
        vec![1, 4, 0, 0, 0, 0],
        vec![0xff; 300],
        vec![0; 300],
    ];
    // A generator of its own, so that a failure can be repeated.
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for length in 1..40 {
        let mut body = Vec::new();
        for _ in 0..length {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            body.push((state & 0x7) as u8);
        }
        bodies.push(body);
    }
    let mut raw = Raw::logged_in(server.address).await;
    for command in COMMAND_TABLE {
        for body in &bodies {
            let back = raw.call(command.code, body).await;
            match (command.code, back) {
                (LOGIN_USER_CODE | 44, Back::Evicted(reason)) => {
                    assert_eq!(reason, EvictionReason::MalformedLogin);
                }
                // These two are reached by their operation alone.
                (LOGIN_REGISTER_CODE | 45, Back::Evicted(_) | Back::Reply(..)) => {
                    raw = Raw::logged_in(server.address).await;
                }
                (39, Back::Reply(_, 0, _)) => raw = Raw::logged_in(server.address).await,
                // There is no session of the number in the body to attach to.
                (14, Back::Reply(_, 40, _)) => {}
                (code, Back::Reply(_, 40, _)) => panic!("{code} lost the session"),
                (_, Back::Reply(..)) => {}
                (code, other) => panic!("{code} with {body:?}: {other:?}"),
            }
        }
    }
    assert_eq!(raw.call(PING_CODE, &[]).await.code(), 0);
    assert_eq!(raw.call(123_456, &[]).await.code(), 3);
    still_serves(&server).await;
    server.stop().await;
}

#[tokio::test]
async fn every_truncation_of_a_request_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path()).await;
    let client = server.client().await;
    topic(&client, 1, Durability::Replicated).await;
    let (s, t) = (
        WireIdentifier::named("s").unwrap(),
        WireIdentifier::named("t").unwrap(),
    );
    let consumer = WireConsumer::consumer(WireIdentifier::numeric(1));
    let store = StoreConsumerOffsetRequest {
        consumer: consumer.clone(),
        stream_id: s.clone(),
        topic_id: t.clone(),
        partition_id: Some(0),
        offset: 0,
        ack: AckLevel::Quorum,
    };
    let poll = PollMessagesRequest {
        consumer,
        stream_id: s.clone(),
        topic_id: t,
        partition_id: Some(0),
        strategy: WirePollingStrategy::first(),
        count: 1,
        auto_commit: false,
    };
    let create = CreateTopicRequest {
        stream_id: s,
        partitions_count: 1,
        name: WireName::new("u").unwrap(),
        options: WireOptions::empty(),
    };
    let send = send_body(
        WirePartitioning::PartitionId(0),
        1,
        &batch(&[Message::new(0, b"x")], 1),
    );
    let mut raw = Raw::logged_in(server.address).await;
    for (code, body) in [
        (STORE_CONSUMER_OFFSET_CODE, store.to_bytes().to_vec()),
        (POLL_MESSAGES_CODE, poll.to_bytes().to_vec()),
        (CREATE_TOPIC_CODE, create.to_bytes().to_vec()),
        (SEND_MESSAGES_CODE, send),
    ] {
        for length in 0..body.len() {
            assert_ne!(
                raw.call(code, &body[..length]).await.code(),
                0,
                "{code} cut to {length}"
            );
        }
    }
    let found = client.get_stream(&named("s")).await.unwrap().unwrap();
    assert_eq!((found.topics_count, found.messages_count), (1, 0));
    server.stop().await;
}

#[tokio::test]
async fn a_batch_with_any_changed_byte_is_not_stored() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path()).await;
    let client = server.client().await;
    topic(&client, 1, Durability::Replicated).await;
    let record = batch(&[Message::new(0, b"one"), Message::new(1, b"two")], 5);
    let mut raw = Raw::logged_in(server.address).await;
    for at in 0..record.len() {
        for change in [0x01, 0x80] {
            let mut broken = record.clone();
            broken[at] ^= change;
            let body = send_body(WirePartitioning::PartitionId(0), 2, &broken);
            assert_ne!(
                raw.call(SEND_MESSAGES_CODE, &body).await.code(),
                0,
                "byte {at}"
            );
        }
    }
    assert_eq!(
        client
            .get_stream(&named("s"))
            .await
            .unwrap()
            .unwrap()
            .messages_count,
        0
    );
    let body = send_body(WirePartitioning::PartitionId(0), 2, &record);
    assert_eq!(raw.call(SEND_MESSAGES_CODE, &body).await.code(), 0);
    assert_eq!(
        offsets(&poll(&client, 0, PollingStrategy::first(), 9).await),
        [0, 1]
    );
    server.stop().await;
}

#[tokio::test]
async fn messages_that_iggy_refuses_are_refused_with_its_errors() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path()).await;
    let client = server.client().await;
    topic(&client, 1, Durability::Replicated).await;
    let mut raw = Raw::logged_in(server.address).await;
    let mut send = async |count: u32, record: &[u8]| {
        let body = send_body(WirePartitioning::PartitionId(0), count, record);
        raw.call(SEND_MESSAGES_CODE, &body).await.code()
    };
    let good = Message::new(0, b"x");
    let empty = Message::new(1, b"");
    assert_eq!(send(2, &batch(&[good.clone(), empty], 1)).await, 4025);
    assert_eq!(send(2, &batch(std::slice::from_ref(&good), 1)).await, 4009);
    assert_eq!(send(0, &batch(&[], 1)).await, 4009);
    assert_eq!(
        send(2, &batch(&[good.clone(), Message::new(2, b"x")], 1)).await,
        4100
    );
    let large_headers = Message {
        headers: vec![1; 100_001],
        ..good.clone()
    };
    assert_eq!(send(1, &batch(&[large_headers], 1)).await, 4017);
    let late = Message {
        timestamp_delta: 1,
        ..good.clone()
    };
    assert_eq!(send(1, &batch(&[late], u64::MAX)).await, 4038);
    let large = Message::new(0, &vec![7; 64_000_001]);
    assert_eq!(send(1, &batch(&[large], 1)).await, 4022);
    let mut longer = batch(std::slice::from_ref(&good), 1);
    longer.push(0);
    assert_eq!(send(1, &longer).await, 3);
    assert_eq!(
        client
            .get_stream(&named("s"))
            .await
            .unwrap()
            .unwrap()
            .messages_count,
        0
    );
    assert_eq!(send(1, &batch(&[good], 1)).await, 0);
    server.stop().await;
}

#[tokio::test]
async fn the_server_chooses_a_partition_for_a_client_that_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path()).await;
    let client = server.client().await;
    topic(&client, 3, Durability::Replicated).await;
    let record = batch(&[Message::new(0, b"x")], 1);
    let mut raw = Raw::logged_in(server.address).await;
    let mut partition = async |partitioning: WirePartitioning| {
        let body = send_body(partitioning, 1, &record);
        let reply = raw.call(SEND_MESSAGES_CODE, &body).await.body();
        u32::from_le_bytes(reply[12..16].try_into().unwrap())
    };
    let mut balanced = Vec::new();
    for _ in 0..4 {
        balanced.push(partition(WirePartitioning::Balanced).await);
    }
    assert_eq!(balanced, [0, 1, 2, 0]);
    let key = b"room_42".to_vec();
    let expected = iggy_common::calculate_32(&key) % 3;
    assert_eq!(
        partition(WirePartitioning::MessagesKey(key)).await,
        expected
    );
    server.stop().await;
}

#[tokio::test]
async fn a_poll_for_no_messages_and_one_for_all_that_fit_a_number_are_answered() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path()).await;
    let client = server.client().await;
    topic(&client, 1, Durability::Replicated).await;
    support::send(&client, 0, &["a", "b"]).await;
    let mut raw = Raw::logged_in(server.address).await;
    let mut count = async |kind: WirePollingStrategy, count: u32| {
        let request = PollMessagesRequest {
            consumer: WireConsumer::consumer(WireIdentifier::numeric(1)),
            stream_id: WireIdentifier::named("s").unwrap(),
            topic_id: WireIdentifier::named("t").unwrap(),
            partition_id: None,
            strategy: kind,
            count,
            auto_commit: true,
        };
        let reply = raw
            .call(POLL_MESSAGES_CODE, &request.to_bytes())
            .await
            .body();
        u32::from_le_bytes(reply[12..16].try_into().unwrap())
    };
    for strategy in [
        WirePollingStrategy::first(),
        WirePollingStrategy::last(),
        WirePollingStrategy::next(),
    ] {
        assert_eq!(count(strategy, 0).await, 0);
    }
    assert_eq!(count(WirePollingStrategy::last(), u32::MAX).await, 2);
    assert_eq!(
        count(WirePollingStrategy::offset(u64::MAX), u32::MAX).await,
        0
    );
    assert_eq!(
        count(WirePollingStrategy::timestamp(u64::MAX), u32::MAX).await,
        0
    );
    assert_eq!(count(WirePollingStrategy::timestamp(0), u32::MAX).await, 2);
    assert_eq!(count(WirePollingStrategy::next(), u32::MAX).await, 0);
    server.stop().await;
}
