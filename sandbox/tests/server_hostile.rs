//! Bytes that no SDK sends: every request gets an answer or the connection is closed, and the server goes on.

#[path = "server_support/raw.rs"]
mod raw;
#[path = "server_support/mod.rs"]
mod support;

use iggy::prelude::*;
use iggy_binary_protocol::codes::{
    CREATE_TOPIC_CODE, GET_STREAMS_CODE, LOGIN_REGISTER_CODE, LOGIN_USER_CODE, PING_CODE,
    POLL_MESSAGES_CODE, SEND_MESSAGES_CODE, STORE_CONSUMER_OFFSET_CODE,
};
use iggy_binary_protocol::requests::consumer_offsets::StoreConsumerOffsetRequest;
use iggy_binary_protocol::requests::messages::PollMessagesRequest;
use iggy_binary_protocol::requests::topics::CreateTopicRequest;
use iggy_binary_protocol::{
    AckLevel, COMMAND_TABLE, EvictionReason, HEADER_SIZE, WireConsumer, WireEncode, WireIdentifier,
    WireName, WireOptions, WirePartitioning, WirePollingStrategy,
};
use raw::{Back, Message, Raw, batch, login, send_body};
use support::{Running, named, offsets, poll, topic};

const SIZE_AT: usize = 48;

fn with_size(mut frame: Vec<u8>, size: u32) -> Vec<u8> {
    frame[SIZE_AT..SIZE_AT + 4].copy_from_slice(&size.to_le_bytes());
    frame
}

/// Fails unless a client is served as usual.
async fn still_serves(server: &Running) {
    let client = server.client().await;
    client.get_streams().await.unwrap();
    client.disconnect().await.unwrap();
}

#[tokio::test]
async fn a_frame_of_an_impossible_size_ends_the_connection() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path()).await;
    let too_large = 64 * 1024 * 1024 + 1;
    for (logged_in, size) in [
        (false, 0),
        (false, 255),
        (false, 16 * 1024 + 1),
        (false, u32::MAX),
        (true, 0),
        (true, 255),
        (true, too_large),
        (true, u32::MAX),
    ] {
        let mut raw = match logged_in {
            true => Raw::logged_in(server.address).await,
            false => Raw::connect(server.address).await,
        };
        let frame = with_size(raw.frame(PING_CODE, &[]), size);
        raw.write(&frame).await;
        assert_eq!(
            raw.read().await,
            Back::Evicted(EvictionReason::InvalidRequestBodySize),
            "{size}"
        );
        assert_eq!(raw.read().await, Back::Closed);
    }
    still_serves(&server).await;
    server.stop().await;
}

#[tokio::test]
async fn a_header_that_makes_no_sense_ends_the_connection() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path()).await;
    let operation_at = std::mem::offset_of!(iggy_binary_protocol::RequestHeader, operation);
    let client_at = std::mem::offset_of!(iggy_binary_protocol::RequestHeader, client);
    let command_at = std::mem::offset_of!(iggy_binary_protocol::RequestHeader, command);
    let mut template = Raw::connect(server.address).await;
    let valid = template.frame(PING_CODE, &[]);
    let mut broken: Vec<Vec<u8>> = Vec::new();
    // Reserved, internal and unknown operations; a replicated one without a session.
    for operation in [0, 64, 66, 68, 99, 127, 200, 255] {
        let mut frame = valid.clone();
        frame[operation_at] = operation;
        broken.push(frame);
    }
    for command in [0, 2, 3, 255] {
        let mut frame = valid.clone();
        frame[command_at] = command;
        broken.push(frame);
    }
    let mut nobody = valid.clone();
    nobody[client_at..client_at + 16].fill(0);
    broken.push(nobody);
    for frame in broken {
        let mut raw = Raw::logged_in(server.address).await;
        raw.write(&frame).await;
        assert_eq!(
            raw.read().await,
            Back::Evicted(EvictionReason::InvalidRequestOperation)
        );
        assert_eq!(raw.read().await, Back::Closed);
    }
    still_serves(&server).await;
    server.stop().await;
}

#[tokio::test]
async fn connections_that_break_off_anywhere_do_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path()).await;
    let mut template = Raw::connect(server.address).await;
    let frame = template.frame(LOGIN_REGISTER_CODE, &login("iggy", "iggy"));
    for length in [0, 1, 47, 48, 51, 52, 100, 255, 256, 257, frame.len() - 1] {
        let mut raw = Raw::connect(server.address).await;
        raw.write(&frame[..length]).await;
        drop(raw);
    }
    let mut noise = Raw::connect(server.address).await;
    noise
        .write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await;
    noise.write(&[0xaa; 4096]).await;
    while noise.read().await != Back::Closed {}
    still_serves(&server).await;
    server.stop().await;
}

#[tokio::test]
async fn the_same_bytes_split_or_joined_get_the_same_answers() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path()).await;
    let mut frames = Vec::new();
    let mut template = Raw::connect(server.address).await;
    frames.extend(template.frame(PING_CODE, &[]));
    frames.extend(template.frame(LOGIN_REGISTER_CODE, &login("iggy", "iggy")));
    frames.extend(template.frame(GET_STREAMS_CODE, &[]));
    frames.extend(template.frame(9999, &[1, 2, 3]));
    frames.extend(template.frame(PING_CODE, &[]));
    let mut answers = Vec::new();
    for chunk in [1, 7, 256, frames.len()] {
        let mut raw = Raw::connect(server.address).await;
        for part in frames.chunks(chunk) {
            raw.write(part).await;
        }
        let mut got = Vec::new();
        for _ in 0..5 {
            match raw.read().await {
                Back::Reply(request, code, body) => got.push((request, code, body.len())),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(
            got.iter().map(|answer| answer.1).collect::<Vec<_>>(),
            [0, 0, 0, 3, 0]
        );
        answers.push(got);
    }
    assert!(
        answers.windows(2).all(|pair| pair[0] == pair[1]),
        "{answers:?}"
    );
    server.stop().await;
}

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

#[tokio::test]
async fn a_wrong_checksum_over_a_request_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path()).await;
    let mut raw = Raw::logged_in(server.address).await;
    let mut frame = raw.frame(GET_STREAMS_CODE, &[1, 2, 3]);
    frame[HEADER_SIZE] ^= 1;
    raw.write(&frame).await;
    assert_eq!(raw.read().await.code(), 4);
    assert_eq!(raw.call(GET_STREAMS_CODE, &[]).await.code(), 0);
    server.stop().await;
}

#[tokio::test]
async fn logins_that_make_no_sense_are_refused_and_a_right_one_still_works() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path()).await;
    let mut raw = Raw::connect(server.address).await;
    let good = login("iggy", "iggy");
    for length in 0..good.len() {
        let back = raw.call(LOGIN_REGISTER_CODE, &good[..length]).await;
        assert_eq!(
            back,
            Back::Evicted(EvictionReason::MalformedLogin),
            "{length}"
        );
    }
    let mut old = good.clone();
    old[..4].copy_from_slice(&1_u32.to_le_bytes());
    let back = raw.call(LOGIN_REGISTER_CODE, &old).await;
    assert_eq!(back, Back::Evicted(EvictionReason::IncompatibleProtocol));
    // A change without a session: the client believes that it has one.
    let back = raw.call(SEND_MESSAGES_CODE, &[]).await;
    assert_eq!(back, Back::Evicted(EvictionReason::NoSession));
    assert_eq!(raw.call(LOGIN_REGISTER_CODE, &good).await.code(), 0);
    assert_eq!(raw.call(GET_STREAMS_CODE, &[]).await.code(), 0);
    server.stop().await;
}

#[tokio::test]
async fn bodies_that_are_claimed_but_never_sent_do_not_keep_others_from_working() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path()).await;
    let client = server.client().await;
    topic(&client, 1, Durability::Replicated).await;
    let mut claims = Vec::new();
    for _ in 0..20 {
        let mut raw = Raw::logged_in(server.address).await;
        let frame = with_size(raw.frame(SEND_MESSAGES_CODE, &[]), 64 * 1024 * 1024);
        raw.write(&frame).await;
        claims.push(raw);
    }
    support::send(&client, 0, &["a"]).await;
    assert_eq!(
        offsets(&poll(&client, 0, PollingStrategy::first(), 9).await),
        [0]
    );
    drop(claims);
    server.stop().await;
}
