//! WebSocket: any bytes after the upgrade, cut in any way, give the reader the same bytes and the same end, and the client
//! nothing but Pongs and at most one Close.
//!
//! Input: a byte of which the lowest bit says whether the client is admitted and the others how many bytes follow for the
//! lengths of portions, these, and the bytes.

#![no_main]

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use libfuzzer_sys::fuzz_target;
use mqtt_gateway::config::Limits;
use mqtt_gateway::listener::websocket::{self, Broken};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex, split};
use tokio::runtime::{Builder, Runtime};

const REQUEST: &[u8] = b"GET /mqtt HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n";

thread_local! {
    static RUNTIME: RefCell<Runtime> = RefCell::new(
        Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime"),
    );
}

#[derive(Debug, PartialEq)]
enum Ended {
    Whole,
    HalfAMessage,
    Broken(Broken),
}

/// What the reader gets, and how it ends.
async fn read(stream: &[u8], cuts: &[u8], is_admitted: bool) -> (Vec<u8>, Ended) {
    let limits = Limits {
        max_connect_size: 64,
        max_packet_size: 1_024,
        ..Limits::default()
    };
    let (server, client) = duplex(1 << 16);
    let (mut hear, mut say) = split(client);
    let admitted = Arc::new(AtomicBool::new(is_admitted));
    let serving = async {
        let accepted = websocket::accept(server, "/mqtt", admitted, &limits).await;
        let mut socket = accepted.expect("a good request");
        let mut got = Vec::new();
        let ended = match socket.read_to_end(&mut got).await {
            Ok(_) => Ended::Whole,
            Err(error) => match error.get_ref().and_then(|inner| inner.downcast_ref()) {
                Some(broken) => Ended::Broken(*broken),
                None => Ended::HalfAMessage,
            },
        };
        socket.shutdown().await.expect("there is room");
        let mut rest = Vec::new();
        let _ = socket.read_to_end(&mut rest).await;
        assert!(rest.is_empty(), "read after the end");
        (got, ended)
    };
    let talking = async {
        say.write_all(REQUEST).await.expect("there is room");
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            assert!(hear.read_buf(&mut answer).await.expect("an answer") > 0);
        }
        let mut left = stream;
        let mut lengths = cuts.iter().map(|cut| usize::from(*cut).max(1)).cycle();
        let sending = async {
            while !left.is_empty() {
                let length = lengths.next().unwrap_or(usize::MAX).min(left.len());
                let (portion, rest) = left.split_at(length);
                left = rest;
                say.write_all(portion).await.expect("it is read to the end");
                tokio::task::yield_now().await;
            }
            say.shutdown().await.expect("it is read to the end");
        };
        let mut frames = Vec::new();
        let (_, heard) = tokio::join!(sending, hear.read_to_end(&mut frames));
        heard.expect("an end");
        frames
    };
    let (read, frames) = tokio::join!(serving, talking);
    let mut frames = &frames[..];
    while let [first, length, rest @ ..] = frames {
        assert!(*length <= 125 && rest.len() >= usize::from(*length));
        frames = &rest[usize::from(*length)..];
        match *first {
            0x8a => {}
            0x88 => assert!(frames.is_empty(), "something after the Close"),
            other => panic!("{other:#x}"),
        }
    }
    assert!(frames.is_empty());
    read
}

fuzz_target!(|input: &[u8]| {
    let Some((&first, rest)) = input.split_first() else {
        return;
    };
    let is_admitted = first & 1 == 1;
    let count = usize::from(first >> 1) % 16;
    let (cuts, stream) = rest.split_at(count.min(rest.len()));
    RUNTIME.with_borrow(|runtime| {
        runtime.block_on(async {
            let whole = read(stream, &[], is_admitted).await;
            assert!(whole.0.len() <= stream.len());
            assert_eq!(whole, read(stream, cuts, is_admitted).await);
        });
    });
});
