//! One connection: reads frames, has them served one after another, writes the answers.
//!
//! What always holds: at most one request of a connection is in memory; its body grows with the bytes that arrive,
//! not with the length that was claimed, and what is large counts against the memory that all connections share; before
//! the login a frame is small. A part of a frame that has begun must be complete within [`FRAME_WITHIN`], an answer must
//! be taken within [`ANSWER_WITHIN`].

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use iggy_binary_protocol::{EvictionReason, HEADER_SIZE};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::Shared;
use super::dispatch::dispatch;
use super::frame::{self, Head, HeadError, RequestHead};
use super::session::Session;

/// Iggy's own limit for a frame, the header included. Bytes.
const FRAME_MAX: usize = 64 * 1024 * 1024;
/// A login fits easily.
const FRAME_MAX_BEFORE_LOGIN: usize = 16 * 1024;
/// What is read of a body before it counts against the shared memory: small enough for all connections together.
const FIRST_CHUNK: usize = 64 * 1024;
/// For the header, for the first chunk of the body, and for its rest.
const FRAME_WITHIN: Duration = Duration::from_secs(30);
/// From the first byte of an answer to its last.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// Serves a connection until it ends or `shutdown` is cancelled; a request that is being served is answered first.
pub(crate) async fn serve(shared: Arc<Shared>, mut stream: TcpStream, shutdown: CancellationToken) {
    let (Ok(client), Ok(server)) = (stream.peer_addr(), stream.local_addr()) else {
        return;
    };
    // Without it an answer waits for the client's delayed acknowledgement.
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let mut open = Open {
        session: shared.sessions.open(client, server),
        shared,
    };
    match open.serve(&mut stream, &shutdown).await {
        Ok(()) => debug!("connection {} from {client} ended", open.session.id),
        Err(error) => debug!(
            "connection {} from {client} ended: {error}",
            open.session.id
        ),
    }
}

/// A connection's place in what all connections share. Dropping it cleans up, also when its task panicked.
struct Open {
    shared: Arc<Shared>,
    session: Session,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.shared.membership.lock().drop_member(self.session.id);
        self.shared.sessions.close(&self.session);
    }
}

impl Open {
    async fn serve(
        &mut self,
        stream: &mut TcpStream,
        shutdown: &CancellationToken,
    ) -> io::Result<()> {
        loop {
            let mut first = [0; 1];
            let read = tokio::select! {
                read = stream.read(&mut first) => read?,
                () = shutdown.cancelled() => 0,
            };
            if read == 0 {
                return Ok(());
            }
            let mut head: Head = [0; HEADER_SIZE];
            let (byte, rest) = head.split_at_mut(1);
            byte.copy_from_slice(&first);
            timeout(FRAME_WITHIN, stream.read_exact(rest)).await??;
            if !self.request(stream, &head).await? {
                return Ok(());
            }
        }
    }

    /// Reads the rest of a request and answers it. Says whether the connection can go on.
    async fn request(&mut self, stream: &mut TcpStream, head: &Head) -> io::Result<bool> {
        let limit = match self.session.login() {
            Some(_) => FRAME_MAX,
            None => FRAME_MAX_BEFORE_LOGIN,
        };
        let head = match RequestHead::parse(head, limit) {
            Ok(head) => head,
            Err(error) => {
                debug!("connection {}: {error}", self.session.id);
                let reason = match error {
                    HeadError::Size(_) => EvictionReason::InvalidRequestBodySize,
                    HeadError::Malformed => EvictionReason::InvalidRequestOperation,
                };
                write(stream, frame::eviction(0, reason), Bytes::new()).await?;
                return Ok(false);
            }
        };
        let mut body = BytesMut::with_capacity(head.body_len.min(FIRST_CHUNK));
        let first = head.body_len.min(FIRST_CHUNK);
        timeout(FRAME_WITHIN, fill(stream, &mut body, first)).await??;
        // Only who really sends a large body takes part of the memory for it.
        let shared = Arc::clone(&self.shared);
        let rest = head.body_len - first;
        let _room = match rest {
            0 => None,
            rest => Some(shared.bodies.take(rest).await.map_err(io::Error::other)?),
        };
        timeout(FRAME_WITHIN, fill(stream, &mut body, head.body_len)).await??;

        let answer = dispatch(&shared, &mut self.session, &head, body.freeze()).await;
        let session = self.session.login().map_or(0, |login| login.number);
        let (head, body) = head.answer(answer, session, shared.commits());
        write(stream, head, body).await?;
        self.session.release();
        Ok(true)
    }
}

/// Reads until `body` is `length` bytes long.
async fn fill(stream: &mut TcpStream, body: &mut BytesMut, length: usize) -> io::Result<()> {
    let missing = length.saturating_sub(body.len());
    let mut rest = stream.take(missing as u64);
    while body.len() < length {
        // Grows by doubling, up to the length, as it fills.
        if body.len() == body.capacity() {
            body.reserve(body.len().min(length - body.len()).max(1));
        }
        if rest.read_buf(body).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}

async fn write(stream: &mut TcpStream, head: Bytes, body: Bytes) -> io::Result<()> {
    let mut frame = head.chain(body);
    timeout(ANSWER_WITHIN, stream.write_all_buf(&mut frame)).await?
}
