//! Frames and logins that no SDK sends: the connection is closed or the request refused, and the server goes on.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "server_support/raw.rs"]
mod raw;
#[path = "server_support/mod.rs"]
mod support;

use iggy::prelude::*;
use iggy_binary_protocol::codes::{
    GET_STREAMS_CODE, LOGIN_REGISTER_CODE, PING_CODE, SEND_MESSAGES_CODE,
};
use iggy_binary_protocol::{EvictionReason, HEADER_SIZE};
use raw::{Back, Raw, login};
use support::{Running, offsets, poll, still_serves, topic};

const SIZE_AT: usize = 48;

fn with_size(mut frame: Vec<u8>, size: u32) -> Vec<u8> {
    frame[SIZE_AT..SIZE_AT + 4].copy_from_slice(&size.to_le_bytes());
    frame
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
