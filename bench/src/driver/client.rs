//! One publisher: its socket, what it has in flight, and what it still has to write.
//!
//! Always holds: all messages that the window allows go out in one write; a latency begins just before that write, so what
//! the operating system's buffers hold back counts too.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use super::packet::{self, Answer, Answers, PublishTemplate};
use super::{DriverError, PATIENCE, QoS, Run, Workload};

/// What one read takes at most.
const READ_BYTES: usize = 64 * 1024;

/// See the module.
#[derive(Debug)]
pub(super) struct Client {
    number: usize,
    socket: mio::net::TcpStream,
    /// One for each of its topics, which take turns.
    templates: Vec<PublishTemplate>,
    /// Whose turn it is.
    turn: usize,
    qos: QoS,
    window: usize,
    /// With QoS 1 each message's packet id and the time at which it was sent, oldest first. With QoS 0 nothing.
    in_flight: VecDeque<(u16, Instant)>,
    /// With QoS 0 how many messages the PINGREQ in flight follows, and when they were sent.
    burst: Option<(usize, Instant)>,
    last_id: u16,
    answers: Answers,
    buffer: Vec<u8>,
    out: Vec<u8>,
    written: usize,
}

impl Client {
    /// Connects and waits for the CONNACK.
    pub(super) fn connect(workload: &Workload, number: usize) -> Result<Self, DriverError> {
        let address = workload.address;
        let failed = |source| DriverError::Connect { address, source };
        let mut socket = TcpStream::connect_timeout(&address, PATIENCE).map_err(failed)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        // The process id tells runs apart that go on at the same time.
        let client_id = format!("bench-{}-{number}", std::process::id());
        socket.write_all(&packet::connect(&client_id))?;
        let mut connack = [0; 4];
        socket.read_exact(&mut connack).map_err(failed)?;
        let mut answers = Answers::default();
        answers.add(&connack);
        match answers.next()? {
            Some(Answer::ConnAck(0)) => {}
            Some(Answer::ConnAck(code)) => return Err(DriverError::Refused(code)),
            _ => return Err(DriverError::Unexpected(connack.to_vec())),
        }
        socket.set_nonblocking(true)?;
        let payload = vec![b'x'; workload.payload];
        let acknowledged = workload.qos == QoS::AtLeastOnce;
        let template = |topic: &str| PublishTemplate::new(topic, acknowledged, &payload);
        let topic = format!("{}/{number}", workload.topic);
        let templates = match workload.topics {
            0 | 1 => vec![template(&topic)],
            topics => (1..=topics)
                .map(|place| template(&format!("{topic}/{place}")))
                .collect(),
        };
        Ok(Self {
            number,
            socket: mio::net::TcpStream::from_std(socket),
            templates,
            turn: 0,
            qos: workload.qos,
            window: usize::from(workload.window.max(1)),
            in_flight: VecDeque::new(),
            burst: None,
            last_id: 0,
            answers,
            buffer: vec![0; READ_BYTES],
            out: Vec::new(),
            written: 0,
        })
    }

    /// For registering it.
    pub(super) fn socket(&mut self) -> &mut mio::net::TcpStream {
        &mut self.socket
    }

    /// How many messages wait for their confirmation.
    pub(super) fn unconfirmed(&self) -> usize {
        self.in_flight.len() + self.burst.map_or(0, |(messages, _)| messages)
    }

    /// Takes everything that the socket has.
    pub(super) fn read(&mut self, run: &mut Run) -> Result<(), DriverError> {
        loop {
            match self.socket.read(&mut self.buffer) {
                Ok(0) => return Err(DriverError::Closed(self.number)),
                Ok(length) => {
                    let now = Instant::now();
                    self.answers
                        .add(self.buffer.get(..length).unwrap_or_default());
                    while let Some(answer) = self.answers.next()? {
                        self.take(answer, now, run)?;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(error)),
            }
        }
    }

    fn take(&mut self, answer: Answer, now: Instant, run: &mut Run) -> Result<(), DriverError> {
        match answer {
            Answer::PubAck(id) => {
                let sent = self
                    .in_flight
                    .iter()
                    .position(|&(waiting, _)| waiting == id)
                    .and_then(|place| self.in_flight.remove(place));
                let (_, sent) = sent.ok_or(DriverError::NotInFlight(id))?;
                run.confirm(1, sent, now);
            }
            Answer::PingResp => {
                let burst = self.burst.take();
                let (messages, sent) =
                    burst.ok_or_else(|| DriverError::Unexpected(vec![0xD0, 0]))?;
                run.confirm(messages as u64, sent, now);
            }
            Answer::ConnAck(code) => {
                return Err(DriverError::Unexpected(vec![0x20, 2, 0, code]));
            }
        }
        Ok(())
    }

    /// Publishes what the window and the run allow, and writes what the socket takes.
    pub(super) fn go_on(&mut self, run: &mut Run) -> Result<(), DriverError> {
        let now = Instant::now();
        if !run.is_over(now) {
            self.publish(run, now);
        }
        while let Some(rest) = self.out.get(self.written..).filter(|rest| !rest.is_empty()) {
            match self.socket.write(rest) {
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

    fn publish(&mut self, run: &mut Run, now: Instant) {
        let room = match self.qos {
            QoS::AtLeastOnce => self.window - self.in_flight.len(),
            QoS::AtMostOnce if self.burst.is_some() => 0,
            QoS::AtMostOnce => self.window,
        };
        let count = room.min(usize::try_from(run.left).unwrap_or(usize::MAX));
        run.left -= count as u64;
        for _ in 0..count {
            // 0 is no packet id; the window is smaller than what is left, so an id is free again when its turn comes,
            // unless the server acknowledges out of order by a whole round.
            self.last_id = self.last_id.checked_add(1).unwrap_or(1);
            if let Some(template) = self.templates.get(self.turn) {
                template.write(self.last_id, &mut self.out);
            }
            self.turn = (self.turn + 1) % self.templates.len();
            if self.qos == QoS::AtLeastOnce {
                self.in_flight.push_back((self.last_id, now));
            }
        }
        if self.qos == QoS::AtMostOnce && count > 0 {
            self.out.extend(packet::PINGREQ);
            self.burst = Some((count, now));
        }
    }

    /// Sends DISCONNECT, if the socket takes it.
    pub(super) fn disconnect(&mut self) {
        let _ = self.socket.write(&packet::DISCONNECT);
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
