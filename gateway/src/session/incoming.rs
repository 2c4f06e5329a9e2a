//! A connection's incoming side: bytes from a stream, packets to the loop.
//!
//! What always holds: at most one packet's bytes, and what came with them, are buffered; how the bytes were cut into
//! portions does not matter.

use std::io;
use std::sync::Arc;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::config::Limits;
use crate::observe::Counters;
use crate::wire::{Decoder, Packet, Violation};

/// The least room that a read gets. An idle connection holds about this much.
const MIN_READ: usize = 256;
/// The most: enough that a busy connection is read in few calls.
const MAX_READ: usize = 65_536;

/// Packets from `R`.
pub struct Incoming<R> {
    stream: R,
    buffer: BytesMut,
    decoder: Decoder,
    /// How much room the next read gets; follows how much comes at once.
    read: usize,
    counters: Arc<Counters>,
}

/// What a read brought.
#[derive(Debug)]
pub enum Read {
    /// Bytes.
    Bytes,
    /// The end: the client closed, or the connection broke.
    End,
    /// What came is against the rules of the stream itself, such as those of WebSocket or TLS.
    Unreadable(io::Error),
}

impl<R: AsyncRead + Unpin> Incoming<R> {
    /// Nothing read yet.
    pub fn new(stream: R, limits: &Limits, counters: Arc<Counters>) -> Self {
        let decoder = Decoder::new(limits.wire());
        Self {
            stream,
            buffer: BytesMut::new(),
            decoder,
            read: MIN_READ,
            counters,
        }
    }

    /// The next packet, if it is already here as a whole.
    pub fn packet(&mut self) -> Result<Option<Packet>, Violation> {
        self.decoder.decode(&mut self.buffer)
    }

    /// Whether the packet that broke the protocol is a PUBLISH.
    pub fn is_broken_by_publish(&self) -> bool {
        self.decoder.is_broken_by_publish()
    }

    /// Waits for more bytes. May be dropped while it waits; nothing is lost.
    pub async fn more(&mut self) -> Read {
        self.buffer.reserve(self.read);
        match self.stream.read_buf(&mut self.buffer).await {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Read::Unreadable(error),
            Ok(0) | Err(_) => Read::End,
            Ok(n) => {
                self.counters.bytes_received.add(n as u64);
                if n >= self.read {
                    self.read = (self.read * 4).min(MAX_READ);
                } else if n < self.read / 8 {
                    self.read = (self.read / 2).max(MIN_READ);
                }
                Read::Bytes
            }
        }
    }

    /// The stream, for closing it.
    pub fn into_stream(self) -> R {
        self.stream
    }
}
