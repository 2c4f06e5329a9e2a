//! A connection's outgoing side: what an outbox holds, to a stream.
//!
//! What always holds: pieces go out in the order in which the outbox gave them; a QoS 0 copy is done only after its write;
//! a stream that takes nothing at all for the stall limit is given up.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout};

use crate::delivery::{Outbox, Pieces};
use crate::observe::Counters;

/// About how many bytes are taken for one write. More would let control packets wait longer behind what is being written.
const WRITE_BYTES: usize = 65_536;
/// The most pieces in one call: the least that systems allow (IOV_MAX on some) is far above.
const MAX_PIECES: usize = 64;

/// Writes what `outbox` gets, until the stream fails or stalls for `stall`.
pub async fn write_all<W: AsyncWrite + Unpin>(
    outbox: &Outbox,
    stream: &mut W,
    stall: Duration,
    counters: &Arc<Counters>,
) -> io::Error {
    loop {
        let taken = outbox.take(WRITE_BYTES, Instant::now());
        if taken.pieces.is_empty() {
            outbox.ready().await;
        } else if let Err(error) = write(taken, stream, stall, counters).await {
            return error;
        }
    }
}

/// Writes what is in `outbox` now: the control packets, and the copies that the window allows if `copies`.
pub async fn flush<W: AsyncWrite + Unpin>(
    outbox: &Outbox,
    stream: &mut W,
    copies: bool,
    stall: Duration,
    counters: &Arc<Counters>,
) -> io::Result<()> {
    loop {
        let taken = outbox.take(if copies { WRITE_BYTES } else { 0 }, Instant::now());
        if taken.pieces.is_empty() {
            return Ok(());
        }
        write(taken, stream, stall, counters).await?;
    }
}

async fn write<W: AsyncWrite + Unpin>(
    taken: Pieces,
    stream: &mut W,
    stall: Duration,
    counters: &Arc<Counters>,
) -> io::Result<()> {
    write_pieces(&taken.pieces, stream, stall).await?;
    counters.copies_sent.add(taken.copies as u64);
    Ok(())
}

async fn write_pieces<W: AsyncWrite + Unpin>(
    pieces: &[Bytes],
    stream: &mut W,
    stall: Duration,
) -> io::Result<()> {
    for pieces in pieces.chunks(MAX_PIECES) {
        let mut slices = [IoSlice::new(&[]); MAX_PIECES];
        for (slice, piece) in slices.iter_mut().zip(pieces) {
            *slice = IoSlice::new(piece);
        }
        let mut rest = &mut slices[..pieces.len()];
        while !rest.is_empty() {
            let written = timeout(stall, stream.write_vectored(rest))
                .await
                .map_err(|_| {
                    io::Error::new(
                        io::ErrorKind::TimedOut,
                        "the client has not read for ack_timeout",
                    )
                })??;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            IoSlice::advance_slices(&mut rest, written);
        }
    }
    stream.flush().await
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
