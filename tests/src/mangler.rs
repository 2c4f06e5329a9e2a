//! A TCP proxy between the gateway and Iggy that understands Iggy's frames and mangles replies at random.
//!
//! Always holds: requests get through unchanged, also those of a connection whose replies have ended, so Iggy does what it
//! was asked and the truth stays what Iggy has stored. Three things are not mangled, because the SDK could not tell them from
//! the truth, whoever uses it:
//!
//! - The reply to a login, which is the first one of a connection.
//! - The header of a reply that says no: a mangled "no" may be a "yes". A "yes" may become anything.
//! - Which request a reply belongs to. The SDK 0.11 does not compare the request's number, so a reply that comes once more is
//!   taken for the answer to the next request, which may not have been done yet. Hence an old reply comes only in the place of
//!   a new one that says the same: that an append succeeded.
//!
//! A frame (Iggy 0.9) is a header of 256 bytes and a body; byte 48 begins the size of both together (`u32`, little-endian), and
//! byte 60 is the kind of frame. In the header of a reply byte 208 is the operation and byte 216 begins the status, 0 for
//! success.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::random::Random;

const CONNECT_DEADLINE: Duration = Duration::from_secs(5);
const HEADER: usize = 256;
const SIZE: usize = 48;
const OPERATION: usize = 208;
const STATUS: usize = 216;
/// The operation of an append.
const SEND_MESSAGES: u8 = 160;
/// One of so many replies is mangled.
const ONE_OF: u64 = 6;
/// The prefix of the reply to a poll.
const BEGINNING: usize = 16;
/// More than any frame of a test has.
const LONGEST: usize = 64 * 1024 * 1024;

/// What is done to a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mangling {
    /// Bits of the body are flipped.
    Body,
    /// The last number of a poll's prefix, which says how many messages follow, is huge.
    Count,
    /// Bits of the header are flipped; then the connection ends, as the length may be wrong.
    Header,
    /// The status becomes a random one.
    Status,
    /// The reply ends too early, and the connection with it.
    Truncated,
    /// Random bytes come in its place, and then the connection ends.
    Noise,
    /// The length is huge, and after the reply the connection ends.
    Huge,
    /// The length is too small, and what is left of the reply looks like the beginning of the next.
    Short,
    /// The reply to the append before comes in the place of this one.
    Old,
}

impl Mangling {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Body,
        Self::Count,
        Self::Header,
        Self::Status,
        Self::Truncated,
        Self::Noise,
        Self::Huge,
        Self::Short,
        Self::Old,
    ];
}

/// The proxy; it stops when it is dropped.
#[derive(Debug)]
pub struct Mangler {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    target: SocketAddr,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    random: Random,
    mangles: bool,
    append_status: Option<u32>,
    stopped: bool,
    done: BTreeMap<Mangling, usize>,
    sockets: Vec<TcpStream>,
}

/// A reply as it goes on.
struct Sent {
    bytes: Vec<u8>,
    /// Whether nothing comes after it.
    is_last: bool,
}

impl Mangler {
    /// Starts a proxy to `target` on a free port that changes nothing yet.
    ///
    /// # Panics
    /// When no port can be bound.
    pub fn start(target: SocketAddr) -> Self {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("the proxy needs a loopback port");
        let address = listener
            .local_addr()
            .expect("a bound listener has an address");
        let shared = Arc::new(Shared {
            target,
            state: Mutex::new(State {
                random: Random::new(),
                mangles: false,
                append_status: None,
                stopped: false,
                done: BTreeMap::new(),
                sockets: Vec::new(),
            }),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || accepting.accept(&listener));
        Self { address, shared }
    }

    /// Where the proxy listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on replies are mangled, or not any more.
    pub fn mangle(&self, mangles: bool) {
        self.shared.lock().mangles = mangles;
    }

    /// From now on the replies to appends that succeeded have this status, or their own again.
    pub fn answer_appends(&self, status: Option<u32>) {
        self.shared.lock().append_status = status;
    }

    /// How often each kind was done.
    pub fn done(&self) -> BTreeMap<Mangling, usize> {
        self.shared.lock().done.clone()
    }
}

impl Drop for Mangler {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.stopped = true;
        for socket in state.sockets.drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
        drop(state);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept(self: Arc<Self>, listener: &TcpListener) {
        for client in listener.incoming() {
            if self.lock().stopped {
                return;
            }
            let Ok(client) = client else { continue };
            let Ok(server) = TcpStream::connect_timeout(&self.target, CONNECT_DEADLINE) else {
                continue;
            };
            let _ = self.join(client, server);
        }
    }

    fn join(self: &Arc<Self>, client: TcpStream, server: TcpStream) -> io::Result<()> {
        for socket in [&client, &server] {
            socket.set_nodelay(true)?;
            self.lock().sockets.push(socket.try_clone()?);
        }
        let (mut requests, mut to_server) = (client.try_clone()?, server.try_clone()?);
        thread::spawn(move || {
            let _ = io::copy(&mut requests, &mut to_server);
            // The server does what it was asked before it sees the end.
            let _ = to_server.shutdown(Shutdown::Write);
        });
        let shared = Arc::clone(self);
        thread::spawn(move || {
            let _ = shared.replies(&server, &client);
            let _ = client.shutdown(Shutdown::Both);
        });
        Ok(())
    }

    fn replies(&self, mut server: &TcpStream, mut client: &TcpStream) -> io::Result<()> {
        // The login is not mangled.
        client.write_all(&read_frame(server)?)?;
        let mut old_append = None;
        loop {
            let reply = read_frame(server)?;
            let sent = self.lock().pass(reply, &mut old_append);
            client.write_all(&sent.bytes)?;
            if sent.is_last {
                client.shutdown(Shutdown::Write)?;
                io::copy(&mut server, &mut io::sink())?;
            }
        }
    }
}

impl State {
    fn pass(&mut self, mut reply: Vec<u8>, old_append: &mut Option<Vec<u8>>) -> Sent {
        let is_append = reply.get(OPERATION) == Some(&SEND_MESSAGES);
        let is_success = reply.get(STATUS..STATUS + 4) == Some(&[0; 4]);
        if is_append
            && is_success
            && let Some(status) = self.append_status
        {
            reply[STATUS..STATUS + 4].copy_from_slice(&status.to_le_bytes());
        }
        let old = match is_append && is_success {
            true => old_append.replace(reply.clone()),
            false => None,
        };
        if !self.mangles || self.random.below(ONE_OF) > 0 {
            return Sent {
                bytes: reply,
                is_last: false,
            };
        }
        let kinds: Vec<Mangling> = Mangling::ALL
            .into_iter()
            .filter(|kind| match kind {
                Mangling::Header | Mangling::Status => is_success,
                Mangling::Body | Mangling::Short => reply.len() > HEADER,
                Mangling::Count => !is_append && reply.len() > HEADER + BEGINNING,
                Mangling::Old => old.is_some(),
                Mangling::Truncated | Mangling::Noise | Mangling::Huge => true,
            })
            .collect();
        let mut kind = kinds[self.random.below(kinds.len() as u64) as usize];
        // Seldom possible, because most connections do not live long.
        if old.is_some() && self.random.below(2) == 0 {
            kind = Mangling::Old;
        }
        *self.done.entry(kind).or_default() += 1;
        self.mangled(kind, reply, old)
    }

    fn mangled(&mut self, kind: Mangling, mut bytes: Vec<u8>, old: Option<Vec<u8>>) -> Sent {
        let length = bytes.len();
        match kind {
            // The beginning holds the numbers that everything behind it depends on.
            Mangling::Body if self.random.below(2) == 0 => {
                self.flip(&mut bytes[HEADER..length.min(HEADER + BEGINNING)]);
            }
            Mangling::Body => self.flip(&mut bytes[HEADER..]),
            Mangling::Count => {
                let count = u32::MAX - self.random.below(1 << 31) as u32;
                bytes[HEADER + BEGINNING - 4..HEADER + BEGINNING]
                    .copy_from_slice(&count.to_le_bytes());
            }
            Mangling::Header => self.flip(&mut bytes[..HEADER]),
            Mangling::Status => {
                let status = 1 + self.random.below(15_000) as u32;
                bytes[STATUS..STATUS + 4].copy_from_slice(&status.to_le_bytes());
            }
            Mangling::Truncated => bytes.truncate(self.random.below(length as u64) as usize),
            Mangling::Noise => {
                bytes = (0..self.random.below(2_000))
                    .map(|_| self.random.below(256) as u8)
                    .collect();
            }
            Mangling::Huge => {
                let size = u32::MAX - self.random.below(1 << 31) as u32;
                bytes[SIZE..SIZE + 4].copy_from_slice(&size.to_le_bytes());
            }
            Mangling::Short => {
                let size = HEADER as u64 + self.random.below((length - HEADER) as u64);
                bytes[SIZE..SIZE + 4].copy_from_slice(&(size as u32).to_le_bytes());
            }
            Mangling::Old => bytes = old.unwrap_or(bytes),
        }
        let is_last = matches!(
            kind,
            Mangling::Header | Mangling::Truncated | Mangling::Noise | Mangling::Huge
        );
        Sent { bytes, is_last }
    }

    fn flip(&mut self, bytes: &mut [u8]) {
        for _ in 0..=self.random.below(4) {
            let bit = self.random.below(8 * bytes.len() as u64) as usize;
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

fn read_frame(mut from: &TcpStream) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; HEADER];
    from.read_exact(&mut frame)?;
    let mut size = [0; 4];
    size.copy_from_slice(&frame[SIZE..SIZE + 4]);
    let size = u32::from_le_bytes(size) as usize;
    assert!(
        (HEADER..=LONGEST).contains(&size),
        "a server sent a frame of {size} bytes"
    );
    frame.resize(size, 0);
    from.read_exact(&mut frame[HEADER..])?;
    Ok(frame)
}
