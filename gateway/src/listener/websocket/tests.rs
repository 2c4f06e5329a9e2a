//! Over in-memory streams, with frames made by hand.

use std::future::poll_fn;

use proptest::prelude::*;
use tokio::io::{AsyncReadExt, DuplexStream, duplex};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::{Bytes, Message};

use super::*;

mod cutting;
mod reading;
mod upgrades;
mod writing;

/// More than any of these tests takes.
const SOON: Duration = Duration::from_secs(10);
const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

/// A frame as a client sends it; `first` is its first byte.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = announced(first, payload.len() as u64);
    let masked = payload.iter().zip(MASK.iter().cycle());
    bytes.extend(masked.map(|(byte, mask)| byte ^ mask));
    bytes
}

/// Only its header.
fn announced(first: u8, length: u64) -> Vec<u8> {
    let mut bytes = vec![first];
    match length {
        0..=125 => bytes.push(0x80 | length as u8),
        126..=65_535 => {
            bytes.push(0x80 | 126);
            bytes.extend((length as u16).to_be_bytes());
        }
        _ => {
            bytes.push(0x80 | 127);
            bytes.extend(length.to_be_bytes());
        }
    }
    bytes.extend(MASK);
    bytes
}

/// What a server has sent, cut into frames: the first byte and the payload of each.
fn frames_of(mut bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut frames = Vec::new();
    while let [first, second, rest @ ..] = bytes {
        let (length, rest) = match second {
            126 => {
                let (length, rest) = rest.split_first_chunk::<2>().unwrap();
                (usize::from(u16::from_be_bytes(*length)), rest)
            }
            ..126 => (usize::from(*second), rest),
            _ => panic!("masked, or too long"),
        };
        let (payload, rest) = rest.split_at(length);
        frames.push((*first, payload.to_vec()));
        bytes = rest;
    }
    assert!(bytes.is_empty(), "half a frame");
    frames
}

fn limits() -> Limits {
    Limits {
        max_connect_size: 1_000,
        max_packet_size: 100_000,
        ..Limits::default()
    }
}

/// A WebSocket after its upgrade, and the client's end of its stream, which takes `room` bytes at a time.
fn open(room: usize, is_admitted: bool) -> (WebSocket<DuplexStream>, DuplexStream) {
    let (stream, client) = duplex(room);
    let admitted = Arc::new(AtomicBool::new(is_admitted));
    (WebSocket::new(stream, admitted, &limits()), client)
}

/// What the reader of `socket` gets, to its end; and the failure, if that was its end.
async fn read_all<S>(socket: &mut WebSocket<S>) -> (Vec<u8>, Option<Broken>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut all = Vec::new();
    let result = timeout(SOON, socket.read_to_end(&mut all)).await.unwrap();
    let broken = result.err().and_then(|error| {
        let inner = error.get_ref()?.downcast_ref::<Broken>()?;
        Some(*inner)
    });
    (all, broken)
}

/// Closes `socket` as a connection does; gives what `client` was sent.
async fn sent_at_the_end(
    mut socket: WebSocket<DuplexStream>,
    mut client: DuplexStream,
) -> Vec<(u8, Vec<u8>)> {
    let mut sent = Vec::new();
    let closing = async {
        socket.shutdown().await.unwrap();
        drop(socket);
    };
    let (_, result) = tokio::join!(closing, client.read_to_end(&mut sent));
    result.unwrap();
    frames_of(&sent)
}

#[test]
fn an_idle_websocket_takes_little_more_than_its_stream() {
    let own = size_of::<WebSocket<tokio::net::TcpStream>>() - size_of::<tokio::net::TcpStream>();
    assert!(own <= 320, "{own}");
}
