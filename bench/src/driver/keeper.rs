//! A client that wants everything and is not there: the server has to keep what is published.
//!
//! Always holds: a message counts once, however often it comes, by the number at the beginning of its payload; the wait for
//! messages is bounded by what is missing, by the time since the last one, and as a whole.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::packet::{self, Session};
use super::socket::{self, READ_BYTES};
use super::{DriverError, TICK};
use crate::interrupt;

/// How long it waits for the server to close after DISCONNECT.
const LEAVING: Duration = Duration::from_secs(1);
/// How long it waits for one more message.
const SILENCE: Duration = Duration::from_secs(8);
/// How long it takes messages.
const DEADLINE: Duration = Duration::from_secs(90);

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct Keeper {
    address: SocketAddr,
    name: String,
}

impl Keeper {
    /// Subscribes to `filter` with QoS 1, and leaves its session behind. `name` is its own among all keepers.
    ///
    /// # Errors
    /// See [`DriverError`].
    pub(crate) fn subscribe(
        address: SocketAddr,
        name: &str,
        filter: &str,
    ) -> Result<Self, DriverError> {
        let name = format!("keeper-{name}");
        let mut stream = socket::connect(address, &name, Session::Kept)?;
        socket::ask(&mut stream, &packet::subscribe(filter, 1), 5)?;
        stream.write_all(&packet::DISCONNECT)?;
        // The server closes when it has seen that, if it does.
        stream.set_read_timeout(Some(LEAVING))?;
        let _ = stream.read(&mut [0]);
        Ok(Self { address, name })
    }

    /// Comes back, to `address`, and counts the different messages among numbers 0 to `expected` - 1 that were kept.
    ///
    /// # Errors
    /// See [`DriverError`].
    pub(crate) fn collect(&self, expected: u64) -> Result<u64, DriverError> {
        let mut stream = socket::connect(self.address, &self.name, Session::Kept)?;
        stream.set_read_timeout(Some(TICK))?;
        let mut seen = Seen::new(expected);
        let begin = Instant::now();
        let mut last = begin;
        let mut buffer = vec![0; READ_BYTES];
        let mut received: Vec<u8> = Vec::new();
        let mut acknowledgements = Vec::new();
        while seen.count < expected && last.elapsed() < SILENCE && begin.elapsed() < DEADLINE {
            if interrupt::asked() {
                return Err(DriverError::Interrupted);
            }
            match stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => received.extend_from_slice(buffer.get(..length).unwrap_or_default()),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {
                        continue;
                    }
                    _ => return Err(error.into()),
                },
            }
            last = Instant::now();
            let mut used = 0;
            while let Some(((id, payload), length)) =
                packet::read_publish(received.get(used..).unwrap_or_default())?
            {
                used += length;
                seen.add(payload);
                if let Some(id) = id {
                    acknowledgements.extend([0x40, 2]);
                    acknowledgements.extend(id.to_be_bytes());
                }
            }
            received.drain(..used);
            stream.write_all(&acknowledgements)?;
            acknowledgements.clear();
        }
        self.forget(stream);
        Ok(seen.count)
    }

    /// Ends the session, if the server lets it.
    fn forget(&self, mut stream: TcpStream) {
        let _ = stream.write_all(&packet::DISCONNECT);
        if let Ok(mut stream) = socket::connect(self.address, &self.name, Session::Clean) {
            let _ = stream.write_all(&packet::DISCONNECT);
        }
    }
}

/// Which numbers have come.
#[derive(Debug)]
struct Seen {
    numbers: Vec<bool>,
    count: u64,
}

impl Seen {
    fn new(expected: u64) -> Self {
        Self {
            numbers: vec![false; usize::try_from(expected).unwrap_or(0)],
            count: 0,
        }
    }

    fn add(&mut self, payload: &[u8]) {
        let number = payload
            .get(..8)
            .and_then(|head| head.try_into().ok())
            .map(u64::from_be_bytes)
            .and_then(|number| usize::try_from(number).ok());
        if let Some(place) = number.and_then(|number| self.numbers.get_mut(number)) {
            self.count += u64::from(!*place);
            *place = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::super::packet::PublishTemplate;
    use super::*;

    #[test]
    fn a_message_counts_once_and_only_if_it_is_one_of_those_that_are_expected() {
        let mut seen = Seen::new(3);
        for number in [0_u64, 2, 2, 3, u64::MAX] {
            seen.add(&number.to_be_bytes());
        }
        seen.add(b"short");
        assert_eq!(seen.count, 2);
    }

    /// Takes a client's packets, which are shorter than 128 bytes, until it leaves or `enough` of them have come.
    fn packets(socket: &mut TcpStream, enough: usize) -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        while packets.len() < enough {
            let mut head = [0; 2];
            if socket.read_exact(&mut head).is_err() {
                break;
            }
            let mut rest = vec![0; usize::from(head[1])];
            socket.read_exact(&mut rest).unwrap();
            packets.push([&head[..], &rest].concat());
        }
        packets
    }

    #[test]
    fn what_was_kept_comes_back_in_the_same_session_and_is_acknowledged() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let accept = || listener.accept().unwrap().0;
            let is_clean = |connect: &[u8]| connect[9] & 2 != 0;
            let mut first = accept();
            let connect = packets(&mut first, 1).remove(0);
            first.write_all(&[0x20, 2, 0, 0]).unwrap();
            let subscribe = packets(&mut first, 1).remove(0);
            assert_eq!(subscribe, packet::subscribe("a/#", 1));
            first.write_all(&[0x90, 3, 0, 1, 1]).unwrap();
            assert_eq!(packets(&mut first, 1), [packet::DISCONNECT]);
            drop(first);
            let mut second = accept();
            assert_eq!(packets(&mut second, 1).remove(0), connect);
            assert!(!is_clean(&connect));
            // One of three does not come, one comes twice.
            let mut out = vec![0x20, 2, 1, 0];
            let template = PublishTemplate::new("a/b", true, &[0; 10]);
            for (id, number) in [(7, 0_u64), (8, 2), (9, 2)] {
                template.write(id, &number.to_be_bytes(), &mut out);
            }
            second.write_all(&out).unwrap();
            let acknowledged: Vec<u8> = packets(&mut second, 3).iter().map(|it| it[3]).collect();
            // It waits for the third one until the connection ends.
            drop(second);
            assert!(is_clean(&packets(&mut accept(), 1).remove(0)));
            acknowledged
        });
        let keeper = Keeper::subscribe(address, "k", "a/#").unwrap();
        assert_eq!(keeper.collect(3).unwrap(), 2);
        assert_eq!(server.join().unwrap(), [7, 8, 9]);
    }
}
