//! MQTT over WebSocket (MQTT 3.1.1, section 6): a socket that begins with an HTTP upgrade becomes a stream of bytes again.
//!
//! What always holds: frames are not packets; one may hold several, and a packet may span frames. A [`WebSocket`] buffers
//! no frame, in neither direction: what a client sends is unmasked where the reader wants it, what it is sent goes out from
//! where the writer has it, behind a header of four bytes. Between two calls it holds a frame header, one Pong and one
//! control frame at most. Its two directions must be polled by one task, as [`connection`](crate::session::connection) does.
//!
//! Upgrade and frame headers are tungstenite's; its reader of messages is not used: that gives whole messages only, so it
//! reserves what a frame header announces, keeps a buffer for each connection, and copies what is written.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::timeout;

use crate::config::Limits;
use crate::session::writer;

use frames::{Frames, MAX_CONTROL, Payload, Told};

pub use frames::Broken;
pub use upgrade::Refused;

mod frames;
#[cfg(test)]
mod tests;
mod upgrade;

/// The most bytes in a frame to a client: the longest that the short form of the length can say.
const MAX_FRAME: usize = 65_535;
/// The most pieces in one call, as in the connection's writer.
const MAX_PIECES: usize = 64;
/// The first byte of a frame that is a whole message.
const BINARY: u8 = 0x82;
const CLOSE: u8 = 0x88;
const PONG: u8 = 0x8a;
/// RFC 6455, 7.4.1: what the connection was for is done.
const NORMAL: u16 = 1_000;
/// Of a connection that waits for its CONNECT, so many bytes are read at once.
const CAUTIOUS_READ: usize = 1_024;
/// How long a refused client may take to hear why.
const CLOSE_LIMIT: Duration = Duration::from_millis(500);

/// Answers the upgrade on `stream`, which must ask for `path`. `admitted` is set when the client's CONNECT was accepted:
/// until then a frame may announce `max_connect_size` bytes, afterwards `max_packet_size`. How long it may take is the
/// caller's to say.
///
/// # Errors
/// Why it does not become a WebSocket; the client was told, and `stream` is closed.
pub async fn accept<S>(
    mut stream: S,
    path: &str,
    admitted: Arc<AtomicBool>,
    limits: &Limits,
) -> Result<WebSocket<S>, Refused>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    match upgrade::read(&mut stream, path).await {
        Ok(response) => {
            let written = async {
                stream.write_all(&response).await?;
                stream.flush().await
            };
            written.await.map_err(|_| Refused::Unfinished)?;
            Ok(WebSocket::new(stream, admitted, limits))
        }
        Err(refused) => {
            if let Some(response) = refused.response() {
                let answering = stream.write_all(response.as_bytes());
                if matches!(timeout(CLOSE_LIMIT, answering).await, Ok(Ok(()))) {
                    let (read, write) = tokio::io::split(stream);
                    writer::close(read, write, CLOSE_LIMIT).await;
                }
            }
            Err(refused)
        }
    }
}

/// A stream of bytes over a WebSocket, the server's side. A read that ends with a [`Broken`] in its error, and one that
/// finds the client's Close, leave a Close frame to be sent, which `poll_shutdown` does.
///
/// A write announces its length before its bytes: one that was not ready must be repeated with at least the same bytes, or
/// the connection be closed.
#[derive(Debug)]
pub struct WebSocket<S> {
    stream: S,
    frames: Frames,
    admitted: Arc<AtomicBool>,
    input: Input,
    /// Goes out before anything else: a control frame, or the header of a data frame.
    head: Head,
    /// What is left of the data frame whose header was put into `head`.
    data_left: usize,
    /// The answer to the last Ping, until its turn comes.
    pong: Option<Box<Payload>>,
    closing: Closing,
    /// Whether something was written by a read, so that nobody will flush it.
    must_flush: bool,
}

/// What is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Input {
    Open,
    /// A Close has come, or the client's end of the stream.
    Ended,
    Broken(Broken),
    /// We have closed: what still comes is thrown away, so that the socket is not reset.
    Drained,
}

/// Our Close frame, after which nothing is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Closing {
    No,
    /// To be sent when the data frame is finished; the code, if there is one to give.
    Wanted(Option<u16>),
    /// In `head`, or sent.
    Queued,
}

/// The bytes of at most one control frame.
#[derive(Debug)]
struct Head {
    bytes: [u8; MAX_CONTROL + 2],
    written: u8,
    length: u8,
}

impl Head {
    fn rest(&self) -> &[u8] {
        let range = usize::from(self.written)..usize::from(self.length);
        self.bytes.get(range).unwrap_or_default()
    }

    fn is_empty(&self) -> bool {
        self.written == self.length
    }

    /// Puts a control frame in, when the last one is out.
    fn control(&mut self, first: u8, payload: &[u8]) {
        self.set(&[first, payload.len() as u8], payload);
    }

    /// Puts the header of a data frame in, when the last one is out.
    fn data(&mut self, length: usize) {
        match u8::try_from(length) {
            Ok(short) if short < 126 => self.set(&[BINARY, short], &[]),
            _ => self.set(&[BINARY, 126], &(length as u16).to_be_bytes()),
        }
    }

    fn set(&mut self, header: &[u8; 2], rest: &[u8]) {
        let length = header.len() + rest.len();
        if let Some(room) = self.bytes.get_mut(..length) {
            let (front, back) = room.split_at_mut(header.len());
            front.copy_from_slice(header);
            back.copy_from_slice(rest);
            self.written = 0;
            self.length = length as u8;
        }
    }

    /// Counts `count` bytes as written; gives how many of them were not its own.
    fn advance(&mut self, count: usize) -> usize {
        let own = count.min(self.rest().len());
        self.written += own as u8;
        count - own
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> WebSocket<S> {
    fn new(stream: S, admitted: Arc<AtomicBool>, limits: &Limits) -> Self {
        Self {
            stream,
            frames: Frames::new(limits.max_connect_size, limits.max_packet_size),
            admitted,
            input: Input::Open,
            head: Head {
                bytes: [0; MAX_CONTROL + 2],
                written: 0,
                length: 0,
            },
            data_left: 0,
            pong: None,
            closing: Closing::No,
            must_flush: false,
        }
    }

    /// Takes what was read from the client: `raw`, of which the bytes for the reader are left at the front.
    fn take(&mut self, raw: &mut [u8], admitted: bool) -> usize {
        let (kept, told) = self.frames.take(raw, admitted);
        match told {
            None => {}
            Some(Ok(Told::Ping(payload))) => self.pong = Some(payload),
            Some(Ok(Told::Close(code))) => {
                self.input = Input::Ended;
                self.want_close(code);
            }
            Some(Err(broken)) => {
                self.input = Input::Broken(broken);
                self.want_close(Some(broken.close_code()));
            }
        }
        kept
    }

    fn want_close(&mut self, code: Option<u16>) {
        // RFC 6455, 5.5.3: who has closed need not be answered any more.
        self.pong = None;
        if self.closing == Closing::No {
            self.closing = Closing::Wanted(code);
        }
    }

    /// Writes the control frames that wait, unless a data frame is not finished: then it is its writer's turn.
    fn poll_control(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.data_left == 0 {
            if self.head.is_empty() {
                if let Some(payload) = self.pong.take() {
                    self.head.control(PONG, payload.bytes());
                } else if let Closing::Wanted(code) = self.closing {
                    let code = code.map(u16::to_be_bytes);
                    self.head
                        .control(CLOSE, code.as_ref().map_or(&[], |code| code));
                    self.closing = Closing::Queued;
                } else {
                    break;
                }
            }
            let written = ready!(Pin::new(&mut self.stream).poll_write(context, self.head.rest()))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.head.advance(written);
            self.must_flush = true;
        }
        Poll::Ready(Ok(()))
    }

    /// Answers Pings while reading. That the socket takes nothing now does not stop the reading.
    fn answer(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        let has_control = self.pong.is_some() || (self.data_left == 0 && !self.head.is_empty());
        if has_control && let Poll::Ready(result) = self.poll_control(context) {
            result?;
        }
        if self.must_flush
            && let Poll::Ready(result) = Pin::new(&mut self.stream).poll_flush(context)
        {
            self.must_flush = false;
            result?;
        }
        Ok(())
    }

    /// Reads once. Gives how many bytes came, and how many of them are the reader's.
    fn poll_frames(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<(usize, usize)>> {
        if self.admitted.load(Ordering::Relaxed) {
            // What a frame carries is shorter than the frame, so that everything has room where it will stay.
            let start = buffer.filled().len();
            ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
            let raw = buffer.filled_mut().get_mut(start..).unwrap_or_default();
            let read = raw.len();
            let kept = self.take(raw, true);
            buffer.set_filled(start + kept);
            return Poll::Ready(Ok((read, kept)));
        }
        // Only to the end of the frame: it may hold the CONNECT, after which the next one may be longer.
        let mut raw = [0; CAUTIOUS_READ];
        let most = self
            .frames
            .needed()
            .min(buffer.remaining())
            .min(CAUTIOUS_READ);
        let (raw, _) = raw.split_at_mut(most);
        let mut part = ReadBuf::new(raw);
        ready!(Pin::new(&mut self.stream).poll_read(context, &mut part))?;
        let raw = part.filled_mut();
        let read = raw.len();
        let kept = self.take(raw, false);
        buffer.put_slice(raw.get(..kept).unwrap_or_default());
        Poll::Ready(Ok((read, kept)))
    }

    /// Throws away what comes.
    fn poll_drain(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut raw = [0; CAUTIOUS_READ];
        loop {
            let mut part = ReadBuf::new(&mut raw);
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut part))?;
            if part.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for WebSocket<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        loop {
            match this.input {
                Input::Open => {}
                Input::Ended => return Poll::Ready(Ok(())),
                Input::Broken(broken) => {
                    let error = io::Error::new(io::ErrorKind::InvalidData, broken);
                    return Poll::Ready(Err(error));
                }
                Input::Drained => return this.poll_drain(context),
            }
            this.answer(context)?;
            let (read, kept) = ready!(this.poll_frames(context, buffer))?;
            if read == 0 {
                // The client's end without a Close: nobody is there to answer.
                this.input = Input::Ended;
                if !this.frames.is_between_messages() {
                    return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                }
            } else if kept > 0 {
                this.answer(context)?;
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for WebSocket<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let (pieces, _) = pieces.split_at(pieces.len().min(MAX_PIECES));
        let all = pieces.iter().map(|piece| piece.len()).sum::<usize>();
        if all == 0 {
            return Poll::Ready(Ok(0));
        }
        if this.data_left == 0 {
            ready!(this.poll_control(context))?;
            if this.closing != Closing::No {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            }
            this.data_left = all.min(MAX_FRAME);
            this.head.data(this.data_left);
        }
        loop {
            let mut slices = [IoSlice::new(&[]); MAX_PIECES + 1];
            let count = gather(&mut slices, this.head.rest(), pieces, this.data_left);
            let (slices, _) = slices.split_at(count);
            let written = ready!(Pin::new(&mut this.stream).poll_write_vectored(context, slices))?;
            if written == 0 {
                return Poll::Ready(Ok(0));
            }
            let data = this.head.advance(written);
            if data > 0 {
                this.data_left = this.data_left.saturating_sub(data);
                return Poll::Ready(Ok(data));
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_control(context))?;
        ready!(Pin::new(&mut this.stream).poll_flush(context))?;
        this.must_flush = false;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.want_close(Some(NORMAL));
        // In the middle of a data frame there is no place for a Close.
        ready!(this.poll_control(context))?;
        this.input = Input::Drained;
        Pin::new(&mut this.stream).poll_shutdown(context)
    }
}

/// Puts `head` and at most `most` bytes of `pieces` into `slices`; gives how many slices that takes.
fn gather<'a>(
    slices: &mut [IoSlice<'a>],
    head: &'a [u8],
    pieces: &'a [IoSlice<'_>],
    mut most: usize,
) -> usize {
    let mut count = 0;
    let bytes =
        std::iter::once(head).chain(pieces.iter().map(|piece| &**piece).map_while(move |piece| {
            let part = piece.get(..piece.len().min(most))?;
            most -= part.len();
            (!part.is_empty() || piece.is_empty()).then_some(part)
        }));
    for (slice, bytes) in slices
        .iter_mut()
        .zip(bytes.filter(|bytes| !bytes.is_empty()))
    {
        *slice = IoSlice::new(bytes);
        count += 1;
    }
    count
}
