//! A client's socket: how it is opened, and how it is read and written without waiting.
//!
//! Always holds: what is to be sent waits in `out` until the operating system takes it, in order; a connection that the
//! server ends is [`DriverError::Closed`] with the number of its client, however the operating system calls it.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};

use mio::event::Source;
use mio::{Interest, Registry, Token};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use super::packet::{self, Session};
use super::{DriverError, PATIENCE};

/// What one read takes at most.
pub(super) const READ_BYTES: usize = 64 * 1024;
/// Connections of one source address, well below the kernel's range of ports for them (32,768 to 60,999).
const PER_SOURCE: usize = 10_000;
/// Source addresses, 127.0.0.1 and those after it.
const SOURCES: usize = 64;

/// See the module.
#[derive(Debug)]
pub(super) struct Socket {
    number: usize,
    stream: mio::net::TcpStream,
    /// What is still to be written, from `written` on.
    pub(super) out: Vec<u8>,
    written: usize,
}

impl Socket {
    /// Takes a connection that waits, and makes it one that does not.
    pub(super) fn new(stream: TcpStream, number: usize) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            number,
            stream: mio::net::TcpStream::from_std(stream),
            out: Vec::new(),
            written: 0,
        })
    }

    /// Begins to connect. On loopback the source address depends on `number`, because one address does not have ports for
    /// very many connections.
    ///
    /// # Errors
    /// [`DriverError::TooManyFiles`], [`DriverError::Connect`].
    pub(super) fn begin(address: SocketAddr, number: usize) -> Result<Self, DriverError> {
        let begun = match address {
            SocketAddr::V4(v4) if v4.ip().is_loopback() => begin_from(source(number), v4),
            _ => mio::net::TcpStream::connect(address),
        };
        let stream = begun.map_err(|source| match source.raw_os_error() {
            Some(code) if code == Errno::MFILE.raw_os_error() => DriverError::TooManyFiles(number),
            _ => DriverError::Connect { address, source },
        })?;
        Ok(Self {
            number,
            stream,
            out: Vec::new(),
            written: 0,
        })
    }

    /// Whether a connection that was begun exists by now.
    ///
    /// # Errors
    /// [`DriverError::Connect`] when there will be none.
    pub(super) fn is_connected(&self, address: SocketAddr) -> Result<bool, DriverError> {
        if let Some(source) = self.stream.take_error()? {
            return Err(DriverError::Connect { address, source });
        }
        match self.stream.peer_addr() {
            Ok(_) => {
                self.stream.set_nodelay(true)?;
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::NotConnected => Ok(false),
            Err(source) => Err(DriverError::Connect { address, source }),
        }
    }

    /// From now on `registry` tells of everything that can be read or written, as `number`.
    pub(super) fn register(&mut self, registry: &Registry, number: usize) -> io::Result<()> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.stream.register(registry, Token(number), interest)
    }

    /// One read into `buffer`; 0 when there is nothing at the moment.
    ///
    /// # Errors
    /// [`DriverError::Closed`], [`DriverError::Io`].
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Result<usize, DriverError> {
        loop {
            match self.stream.read(buffer) {
                Ok(0) => return Err(DriverError::Closed(self.number)),
                Ok(length) => return Ok(length),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(0),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(error)),
            }
        }
    }

    /// Writes as much of `out` as the operating system takes.
    ///
    /// # Errors
    /// [`DriverError::Closed`], [`DriverError::Io`].
    pub(super) fn flush(&mut self) -> Result<(), DriverError> {
        while let Some(rest) = self.out.get(self.written..).filter(|rest| !rest.is_empty()) {
            match self.stream.write(rest) {
                Ok(0) => return Err(DriverError::Closed(self.number)),
                Ok(length) => self.written += length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(error)),
            }
        }
        self.out.clear();
        self.written = 0;
        Ok(())
    }

    /// Sends DISCONNECT, if the operating system takes it.
    pub(super) fn disconnect(&mut self) {
        let _ = self.stream.write(&packet::DISCONNECT);
    }

    fn failed(&self, error: io::Error) -> DriverError {
        match error.kind() {
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted => {
                DriverError::Closed(self.number)
            }
            _ => DriverError::Io(error),
        }
    }
}

/// Connects and waits for the CONNACK; the process id in front of `name` tells runs apart that go on at the same time.
///
/// # Errors
/// [`DriverError::Connect`], [`DriverError::Refused`], [`DriverError::Unexpected`].
pub(super) fn connect(
    address: SocketAddr,
    name: &str,
    session: Session,
) -> Result<TcpStream, DriverError> {
    let failed = |source| DriverError::Connect { address, source };
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(failed)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(&packet::connect(&client_id(name), session))?;
    let mut connack = [0; 4];
    stream.read_exact(&mut connack).map_err(failed)?;
    match connack {
        [0x20, 2, _, 0] => Ok(stream),
        [0x20, 2, _, code] => Err(DriverError::Refused(code)),
        _ => Err(DriverError::Unexpected(connack.to_vec())),
    }
}

/// Sends `packet` and waits for so many bytes of answer to it.
///
/// # Errors
/// [`DriverError::Io`]; [`DriverError::Unexpected`] when a subscription is refused.
pub(super) fn ask(stream: &mut TcpStream, packet: &[u8], answer: usize) -> Result<(), DriverError> {
    stream.write_all(packet)?;
    let mut answered = vec![0; answer];
    stream.read_exact(&mut answered)?;
    if answered.last().is_some_and(|code| *code == 0x80) {
        return Err(DriverError::Unexpected(answered));
    }
    Ok(())
}

/// The client id of `name` in this run.
pub(super) fn client_id(name: &str) -> String {
    format!("bench-{}-{name}", std::process::id())
}

fn source(number: usize) -> Ipv4Addr {
    let last = (number / PER_SOURCE) % SOURCES + 1;
    Ipv4Addr::new(127, 0, 0, u8::try_from(last).unwrap_or(1))
}

fn begin_from(source: Ipv4Addr, address: SocketAddrV4) -> io::Result<mio::net::TcpStream> {
    let socket = rustix::net::socket_with(
        AddressFamily::INET,
        SocketType::STREAM,
        SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
        None,
    )?;
    // The kernel chooses better ports at connect than at bind, so only the other addresses are bound.
    if source != Ipv4Addr::LOCALHOST {
        sockopt::set_socket_reuseaddr(&socket, true)?;
        rustix::net::bind(&socket, &SocketAddrV4::new(source, 0))?;
    }
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(mio::net::TcpStream::from_std(TcpStream::from(socket)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_connections_than_an_address_has_ports_come_from_several_addresses() {
        let ends = |number| source(number).octets()[3];
        assert_eq!((ends(0), ends(9_999)), (1, 1));
        assert_eq!((ends(10_000), ends(630_000)), (2, 64));
        assert_eq!(ends(640_000), 1);
    }
}
