//! An MQTT client that sends exact bytes and reports exactly what comes back.
//!
//! Always holds: nothing is answered by itself; a test sees every packet in the order in which it arrived.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::packet::{self, Publish};
use crate::wait::PATIENCE;

/// The pause between bytes that are sent one by one, so that the other side reads them apart.
const PACE: Duration = Duration::from_millis(1);

/// So many pieces at most, so that a long packet does not take longer than the gateway waits for it.
const PIECES: usize = 500;

/// How long an answer may take that depends on the gateway alone.
pub const PROMPT: Duration = Duration::from_secs(8);

/// What came back within a deadline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// A whole packet.
    Packet(Vec<u8>),
    /// The connection was closed.
    Closed,
    /// Nothing.
    Silence,
}

/// A stream of bytes that a read can wait on for a limited time.
pub trait Link: Read + Write + Send + std::fmt::Debug {
    /// How long a read waits.
    ///
    /// # Errors
    /// When the connection is gone.
    fn wait_at_most(&self, time: Duration) -> io::Result<()>;
}

impl Link for TcpStream {
    fn wait_at_most(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))
    }
}

/// One connection to the gateway.
#[derive(Debug)]
pub struct RawClient {
    stream: Box<dyn Link>,
    received: Vec<u8>,
}

impl RawClient {
    /// Opens a connection and sends nothing.
    ///
    /// # Panics
    /// When the gateway does not listen.
    pub fn open(address: SocketAddr) -> Self {
        Self::try_open(address)
            .unwrap_or_else(|error| panic!("cannot connect to the gateway at {address}: {error}"))
    }

    /// Opens a connection and sends nothing.
    ///
    /// # Errors
    /// When the gateway does not listen.
    pub fn try_open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_nodelay(true)?;
        Ok(Self::over(stream))
    }

    /// Over a stream that is open.
    pub fn over(stream: impl Link + 'static) -> Self {
        Self {
            stream: Box::new(stream),
            received: Vec::new(),
        }
    }

    /// Opens a connection from the address `from` of this machine and sends nothing.
    ///
    /// # Panics
    /// When the gateway does not listen, or the machine has no such address.
    pub fn open_from(from: IpAddr, address: SocketAddr) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .expect("a runtime");
        let stream = runtime.block_on(async {
            let socket = tokio::net::TcpSocket::new_v4()?;
            socket.bind(SocketAddr::new(from, 0))?;
            socket.connect(address).await?.into_std()
        });
        let stream = stream.unwrap_or_else(|error| panic!("no way from {from}: {error}"));
        (stream.set_nonblocking(false)).expect("a socket that waits");
        Self::over(stream)
    }

    /// Opens a connection and connects with a clean session and without keep-alive.
    ///
    /// # Panics
    /// When the gateway does not accept the client.
    pub fn connect(address: SocketAddr, client_id: &str) -> Self {
        let mut client = Self::open(address);
        client.send(&packet::connect(client_id, 0));
        client.expect(&packet::CONNECTED);
        client
    }

    /// Connects again and again until the gateway accepts the client.
    ///
    /// # Panics
    /// When it does not within `deadline`.
    pub fn connect_within(address: SocketAddr, client_id: &str, deadline: Duration) -> Self {
        crate::wait::value("the gateway accepts a client", deadline, || {
            let mut client = Self::try_open(address).ok()?;
            client.try_send(&packet::connect(client_id, 0)).ok()?;
            (client.answer(PROMPT) == Answer::Packet(packet::CONNECTED.to_vec())).then_some(client)
        })
    }

    /// Sends `bytes` in one write.
    ///
    /// # Panics
    /// When the connection is gone.
    pub fn send(&mut self, bytes: &[u8]) {
        self.try_send(bytes)
            .unwrap_or_else(|error| panic!("the gateway closed the connection: {error}"));
    }

    /// Sends `bytes` in one write.
    ///
    /// # Errors
    /// When the connection is gone.
    pub fn try_send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)?;
        self.stream.flush()
    }

    /// Sends `bytes` one by one with a short pause after each; of more than `PIECES` bytes several at a time.
    ///
    /// # Errors
    /// When the connection is gone.
    pub fn try_send_bytewise(&mut self, bytes: &[u8]) -> io::Result<()> {
        for piece in bytes.chunks(bytes.len().div_ceil(PIECES).max(1)) {
            self.try_send(piece)?;
            thread::sleep(PACE);
        }
        Ok(())
    }

    /// The next packet, or that the connection was closed, or that nothing came within `deadline`.
    pub fn answer(&mut self, deadline: Duration) -> Answer {
        let end = Instant::now() + deadline;
        let mut buffer = vec![0; 64 * 1024];
        loop {
            if let Some(packet) = self.take_packet() {
                return Answer::Packet(packet);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Answer::Silence;
            }
            if self.stream.wait_at_most(left).is_err() {
                return Answer::Closed;
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => return Answer::Closed,
                Ok(length) => self.received.extend(buffer.iter().take(length)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    return Answer::Silence;
                }
                Err(_) => return Answer::Closed,
            }
        }
    }

    /// Waits for exactly this packet.
    ///
    /// # Panics
    /// When anything else comes, or nothing.
    pub fn expect(&mut self, packet: &[u8]) {
        self.expect_within(packet, PATIENCE);
    }

    /// Waits for exactly this packet for at most `deadline`.
    ///
    /// # Panics
    /// When anything else comes, or nothing.
    pub fn expect_within(&mut self, packet: &[u8], deadline: Duration) {
        let answer = self.answer(deadline);
        assert_eq!(answer, Answer::Packet(packet.to_vec()));
    }

    /// Waits for a PUBLISH.
    ///
    /// # Panics
    /// When anything else comes, or nothing.
    pub fn expect_publish(&mut self) -> Publish {
        match self.answer(PATIENCE) {
            Answer::Packet(packet) => packet::read_publish(&packet)
                .unwrap_or_else(|| panic!("expected a PUBLISH, not {packet:02x?}")),
            other => panic!("expected a PUBLISH, not {other:?}"),
        }
    }

    /// Waits until the connection is closed; nothing may come before.
    ///
    /// # Panics
    /// When a packet comes, or the connection is still open after `deadline`.
    pub fn expect_closed(&mut self, deadline: Duration) {
        assert_eq!(self.answer(deadline), Answer::Closed);
    }

    /// Makes sure that nothing comes for as long as `duration`.
    ///
    /// # Panics
    /// When a packet comes or the connection is closed.
    pub fn expect_silence(&mut self, duration: Duration) {
        assert_eq!(self.answer(duration), Answer::Silence);
    }

    /// Sends PINGREQ and waits for PINGRESP, which proves that the connection lives and that everything sent before was
    /// read.
    ///
    /// # Panics
    /// When anything else comes, or nothing.
    pub fn ping(&mut self) {
        self.send(&packet::PINGREQ);
        self.expect(&packet::PINGRESP);
    }

    /// Subscribes to one topic and waits until that is granted.
    ///
    /// # Panics
    /// When it is not granted as asked.
    pub fn subscribe(&mut self, topic: &str, qos: u8) {
        self.send(&packet::subscribe(1, &[(topic, qos)]));
        self.expect(&packet::suback(1, &[qos]));
    }

    /// Publishes with QoS 1 and waits for the PUBACK.
    ///
    /// # Panics
    /// When anything else comes, or nothing.
    pub fn publish(&mut self, topic: &str, id: u16, payload: impl AsRef<[u8]>) {
        self.send(&packet::publish(topic, id, payload));
        self.expect(&packet::puback(id));
    }

    fn take_packet(&mut self) -> Option<Vec<u8>> {
        let mut length = 0_usize;
        let mut position = 1;
        loop {
            let byte = *self.received.get(position)?;
            length |= usize::from(byte & 0x7F) << (7 * (position - 1));
            position += 1;
            if byte & 0x80 == 0 {
                break;
            }
            assert!(
                position < 5,
                "the gateway sent a length of more than four bytes: {:02x?}",
                self.received
            );
        }
        let end = position + length;
        (self.received.len() >= end).then(|| self.received.drain(..end).collect())
    }
}
