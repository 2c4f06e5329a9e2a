//! Sends a row of bytes in every way in which they can arrive, and checks the answer.
//!
//! Always holds: a byte stream has no packet borders, so each row is sent whole, byte by byte, and together with the
//! packets before it in one segment, and has to get the same answer each time.

use std::net::SocketAddr;

use crate::packet;
use crate::ports::unique_name;
use crate::raw::{Answer, PROMPT, RawClient};

/// What the client has to see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The connection is closed and nothing is sent.
    Close,
    /// CONNACK with this code, then the connection is closed.
    Connack(u8),
    /// These packets, and the connection lives.
    Answers(Vec<Vec<u8>>),
}

/// Bytes and what has to follow.
#[derive(Debug, Clone)]
pub struct Row {
    /// What is wrong with the bytes, for the message of a failure.
    pub what: &'static str,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// What has to follow.
    pub outcome: Outcome,
}

impl Row {
    /// Bytes for which the connection is closed.
    pub fn close(what: &'static str, bytes: impl Into<Vec<u8>>) -> Self {
        Self {
            what,
            bytes: bytes.into(),
            outcome: Outcome::Close,
        }
    }

    /// Bytes that get a CONNACK with a code.
    pub fn connack(what: &'static str, code: u8, bytes: impl Into<Vec<u8>>) -> Self {
        Self {
            what,
            bytes: bytes.into(),
            outcome: Outcome::Connack(code),
        }
    }

    /// Bytes that get answers.
    pub fn answers(what: &'static str, bytes: impl Into<Vec<u8>>, answers: &[Vec<u8>]) -> Self {
        Self {
            what,
            bytes: bytes.into(),
            outcome: Outcome::Answers(answers.to_vec()),
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Delivery {
    Whole,
    Bytewise,
    OneSegment,
}

/// Checks rows that are the first bytes on a connection.
///
/// # Panics
/// With every row that got another answer.
pub fn check_first(gateway: SocketAddr, rows: &[Row]) {
    check(gateway, rows, false);
}

/// Checks rows that come after a successful CONNECT.
///
/// # Panics
/// With every row that got another answer.
pub fn check_connected(gateway: SocketAddr, rows: &[Row]) {
    check(gateway, rows, true);
}

fn check(gateway: SocketAddr, rows: &[Row], connected: bool) {
    let mut failures = Vec::new();
    for row in rows {
        for delivery in [Delivery::Whole, Delivery::Bytewise, Delivery::OneSegment] {
            if let Err(seen) = attempt(gateway, row, connected, delivery) {
                failures.push(format!(
                    "{} ({:02x?}), {delivery:?}: expected {:?}, but {seen}",
                    row.what,
                    &row.bytes[..row.bytes.len().min(64)],
                    row.outcome
                ));
            }
        }
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
    // Whatever was sent, the others are served as before.
    RawClient::connect(gateway, &unique_name()).ping();
}

fn attempt(
    gateway: SocketAddr,
    row: &Row,
    connected: bool,
    delivery: Delivery,
) -> Result<(), String> {
    let mut client = RawClient::open(gateway);
    let mut expected = Vec::new();
    let mut first = Vec::new();
    if connected {
        first = packet::connect(unique_name(), 0);
        expected.push(Answer::Packet(packet::CONNECTED.to_vec()));
    }
    match &row.outcome {
        Outcome::Close => expected.push(Answer::Closed),
        Outcome::Connack(code) => {
            expected.push(Answer::Packet(vec![0x20, 2, 0, *code]));
            expected.push(Answer::Closed);
        }
        Outcome::Answers(packets) => {
            expected.extend(packets.iter().cloned().map(Answer::Packet));
        }
    }
    // A refused client may be closed before it has sent everything: what counts is what it reads.
    let mut expected = expected.into_iter();
    match delivery {
        Delivery::OneSegment => {
            let _ = client.try_send(&[&first[..], &row.bytes].concat());
        }
        Delivery::Whole | Delivery::Bytewise => {
            if connected {
                let _ = client.try_send(&first);
                see(&mut client, expected.next())?;
            }
            let _ = match delivery {
                Delivery::Bytewise => client.try_send_bytewise(&row.bytes),
                _ => client.try_send(&row.bytes),
            };
        }
    }
    for answer in expected {
        see(&mut client, Some(answer))?;
    }
    if matches!(row.outcome, Outcome::Answers(_)) {
        client
            .try_send(&packet::PINGREQ)
            .map_err(|error| format!("the connection broke: {error}"))?;
        see(&mut client, Some(Answer::Packet(packet::PINGRESP.to_vec())))?;
    }
    Ok(())
}

fn see(client: &mut RawClient, expected: Option<Answer>) -> Result<(), String> {
    let Some(expected) = expected else {
        return Ok(());
    };
    match client.answer(PROMPT) {
        seen if seen == expected => Ok(()),
        seen => Err(format!("saw {seen:02x?} instead of {expected:02x?}")),
    }
}
