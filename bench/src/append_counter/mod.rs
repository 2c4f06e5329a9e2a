//! A TCP proxy between the gateway and Iggy that counts appends.
//!
//! Always holds: bytes are forwarded unchanged, at once and in order; an append is counted before Iggy can confirm it, so a
//! count that is taken after the last PUBACK is whole. Two threads serve a connection and end with it. It costs time and
//! processor: what goes through it is counted, and its speed not compared with what does not go through it.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use serde::Serialize;

mod frames;

use frames::{FrameReader, NoFrame};

const CONNECT_DEADLINE: Duration = Duration::from_secs(5);
const READ_BYTES: usize = 256 * 1024;

/// The proxy; it takes no more connections once it is dropped.
#[derive(Debug)]
pub(crate) struct AppendCounter {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    requests: AtomicU64,
    messages: AtomicU64,
    confused: AtomicBool,
    stopped: AtomicBool,
}

/// What went through so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct AppendCount {
    /// Append requests.
    pub(crate) requests: u64,
    /// Messages in them.
    pub(crate) messages: u64,
}

impl AppendCount {
    /// What came after `earlier`.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            requests: self.requests - earlier.requests,
            messages: self.messages - earlier.messages,
        }
    }

    /// Messages in a request on average; nothing without a request.
    pub(crate) fn average(self) -> Option<f64> {
        (self.requests > 0).then(|| self.messages as f64 / self.requests as f64)
    }
}

/// Why there is no count.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CounterError {
    /// The operating system refused something.
    #[error("the counting proxy cannot listen on loopback: {0}")]
    Io(#[from] io::Error),
    /// What goes through is not Iggy's protocol.
    #[error("{NoFrame}; the appends cannot be counted")]
    Confused,
}

impl AppendCounter {
    /// Starts a proxy to `target` on a free loopback port.
    ///
    /// # Errors
    /// [`CounterError::Io`].
    pub(crate) fn start(target: SocketAddr) -> Result<Self, CounterError> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::default());
        let accepting = Arc::clone(&shared);
        thread::Builder::new()
            .name("append-counter".to_owned())
            .spawn(move || accepting.accept(&listener, target))?;
        Ok(Self { address, shared })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// What went through so far.
    ///
    /// # Errors
    /// [`CounterError::Confused`].
    pub(crate) fn count(&self) -> Result<AppendCount, CounterError> {
        if self.shared.confused.load(Ordering::Acquire) {
            return Err(CounterError::Confused);
        }
        Ok(AppendCount {
            requests: self.shared.requests.load(Ordering::Acquire),
            messages: self.shared.messages.load(Ordering::Acquire),
        })
    }
}

impl Drop for AppendCounter {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Release);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn accept(self: Arc<Self>, listener: &TcpListener, target: SocketAddr) {
        for client in listener.incoming() {
            if self.stopped.load(Ordering::Acquire) {
                return;
            }
            let Ok(client) = client else { continue };
            let Ok(server) = TcpStream::connect_timeout(&target, CONNECT_DEADLINE) else {
                continue;
            };
            let _ = client.set_nodelay(true);
            let _ = server.set_nodelay(true);
            let (Ok(from_client), Ok(from_server)) = (client.try_clone(), server.try_clone())
            else {
                continue;
            };
            let counting = Arc::clone(&self);
            thread::spawn(move || counting.pump_requests(from_client, server));
            thread::spawn(move || pump(from_server, client, |_| {}));
        }
    }

    fn pump_requests(&self, from: TcpStream, to: TcpStream) {
        let mut reader = Some(FrameReader::default());
        pump(from, to, |bytes| {
            let Some(frames) = &mut reader else { return };
            match frames.read(bytes) {
                Ok(appends) => {
                    self.requests.fetch_add(appends.requests, Ordering::AcqRel);
                    self.messages.fetch_add(appends.messages, Ordering::AcqRel);
                }
                Err(NoFrame) => {
                    self.confused.store(true, Ordering::Release);
                    reader = None;
                }
            }
        });
    }
}

fn pump(mut from: TcpStream, mut to: TcpStream, mut look: impl FnMut(&[u8])) {
    let mut buffer = vec![0; READ_BYTES];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        let bytes = buffer.get(..length).unwrap_or_default();
        look(bytes);
        if to.write_all(bytes).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
