//! A connection's outgoing side: what an outbox holds, to a stream.
//!
//! What always holds: pieces go out whole and in the order in which the outbox gave them, also when a write is dropped in
//! its middle: what was taken stays with the [`Writer`], which goes on where it stopped; a QoS 0 copy is done only after
//! its write; a stream that takes nothing at all for the stall limit is given up.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Buf;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout};

use crate::delivery::{Outbox, Pieces};
use crate::observe::Counters;

/// About how many bytes are taken for one write. More would let control packets wait longer behind what is being written.
const WRITE_BYTES: usize = 65_536;
/// The most pieces in one call: the least that systems allow (IOV_MAX on some) is far above.
const MAX_PIECES: usize = 64;

/// See the module.
pub struct Writer<W> {
    stream: W,
    outbox: Arc<Outbox>,
    stall: Duration,
    counters: Arc<Counters>,
    taken: Pieces,
    /// How many of the taken pieces are written; the next one holds only what is left of it.
    written: usize,
}

impl<W: AsyncWrite + Unpin> Writer<W> {
    /// Writes what `outbox` gets to `stream`, which is given up when it has taken nothing for `stall`.
    pub fn new(stream: W, outbox: Arc<Outbox>, stall: Duration, counters: Arc<Counters>) -> Self {
        Self {
            stream,
            outbox,
            stall,
            counters,
            taken: Pieces::default(),
            written: 0,
        }
    }

    /// Writes until the stream fails or stalls. May be dropped at any time, and called again.
    pub async fn run(&mut self) -> io::Error {
        loop {
            if let Err(error) = self.finish().await {
                return error;
            }
            self.taken = self.outbox.take(WRITE_BYTES, Instant::now());
            if self.taken.pieces.is_empty() {
                self.outbox.ready().await;
            }
        }
    }

    /// Writes what is in the outbox now: the control packets, and the copies that the window allows if `copies`.
    ///
    /// # Errors
    /// The stream's, and that it has stalled.
    pub async fn flush(&mut self, copies: bool) -> io::Result<()> {
        loop {
            self.finish().await?;
            let most = if copies { WRITE_BYTES } else { 0 };
            self.taken = self.outbox.take(most, Instant::now());
            if self.taken.pieces.is_empty() {
                return Ok(());
            }
        }
    }

    /// The stream, without what is left to write.
    pub fn into_stream(self) -> W {
        self.stream
    }

    /// Writes what is left of what was taken.
    async fn finish(&mut self) -> io::Result<()> {
        if self.taken.pieces.is_empty() {
            return Ok(());
        }
        while let Some(rest) = self.taken.pieces.get(self.written..)
            && !rest.is_empty()
        {
            let stream = &mut self.stream;
            // A write that is dropped while it waits has written nothing. The slices are made anew whenever it is polled: in
            // the task they would take 1 KiB of each connection.
            let write = poll_fn(|context| {
                let mut slices = [IoSlice::new(&[]); MAX_PIECES];
                let count = rest.len().min(MAX_PIECES);
                for (slice, piece) in slices.iter_mut().zip(rest) {
                    *slice = IoSlice::new(piece);
                }
                Pin::new(&mut *stream).poll_write_vectored(context, &slices[..count])
            });
            let written = timeout(self.stall, write).await.map_err(|_| {
                io::Error::new(
                    io::ErrorKind::TimedOut,
                    "the client has not read for ack_timeout",
                )
            })??;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.counters.bytes_sent.add(written as u64);
            self.advance(written);
        }
        self.stream.flush().await?;
        let (taken, counters) = (&self.taken, &self.counters);
        if taken.copies > 0 {
            let [qos0, qos1] = taken.copies_by_qos();
            counters.copies_sent.add(taken.copies as u64);
            counters.copies_sent_qos0.add(qos0);
            counters.copies_sent_qos1.add(qos1);
            counters.payload_bytes_sent_qos0.add(taken.payload_bytes[0]);
            counters.payload_bytes_sent_qos1.add(taken.payload_bytes[1]);
        }
        self.taken = Pieces::default();
        self.written = 0;
        Ok(())
    }

    /// `count` bytes of the taken pieces are written.
    fn advance(&mut self, mut count: usize) {
        while let Some(piece) = self.taken.pieces.get_mut(self.written)
            && count >= piece.len()
        {
            count -= piece.len();
            self.written += 1;
        }
        if let Some(piece) = self.taken.pieces.get_mut(self.written) {
            piece.advance(count);
        }
    }
}

/// Closes a stream so that the client gets what was written last: a socket that is closed with unread bytes answers them
/// with a reset, which can overtake it. Takes at most `limit`.
pub async fn close<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    mut read: R,
    mut write: W,
    limit: Duration,
) {
    let closing = async {
        if write.shutdown().await.is_err() {
            return;
        }
        let mut rest = [0; 1_024];
        while read.read(&mut rest).await.is_ok_and(|n| n > 0) {}
    };
    // Not closed in time: dropping both halves closes them.
    let _ = timeout(limit, closing).await;
}
