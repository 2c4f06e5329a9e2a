//! Clients that connect, rest and are asked whether they are still served.
//!
//! Always holds: no more than the bound are connecting at a time, so what is measured is how fast the server accepts and not
//! how long its queue is; a connection counts once its CONNACK has come, and as alive once its PINGREQ was answered.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::{Events, Poll};

use super::packet::{self, Answer, Answers, Session};
use super::socket::{READ_BYTES, Socket, client_id};
use super::{DriverError, EVENTS, PATIENCE, TICK};
use crate::interrupt;
use crate::outcome::{Latencies, Outcome};

/// What is to be done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Idle {
    /// The server.
    pub(crate) address: SocketAddr,
    /// How many clients there are.
    pub(crate) connections: usize,
    /// How many of them connect at a time; at least 1.
    pub(crate) at_once: usize,
}

/// The clients, all connected.
#[derive(Debug)]
pub(crate) struct Herd {
    poll: Poll,
    clients: Vec<Resting>,
    accepted: Outcome,
}

#[derive(Debug)]
struct Resting {
    socket: Socket,
    /// Whether the CONNECT was sent.
    is_greeted: bool,
    /// When it began to connect, or when it was pinged.
    begin: Instant,
    answers: Answers,
}

impl Herd {
    /// Connects everybody.
    ///
    /// # Errors
    /// See [`DriverError`].
    pub(crate) fn gather(plan: Idle) -> Result<Self, DriverError> {
        let mut herd = Self {
            poll: Poll::new()?,
            clients: Vec::with_capacity(plan.connections),
            accepted: Outcome {
                messages: 0,
                elapsed: Duration::ZERO,
                unsent: 0,
                latencies: Latencies::new(),
            },
        };
        let begin = Instant::now();
        let mut latencies = Latencies::new();
        let mut up = 0;
        let at_once = plan.at_once.max(1);
        let mut turn = Turn::new();
        while up < plan.connections {
            while herd.clients.len() < plan.connections && herd.clients.len() < up + at_once {
                let number = herd.clients.len();
                let mut socket = Socket::begin(plan.address, number)?;
                socket.register(herd.poll.registry(), number)?;
                herd.clients.push(Resting {
                    socket,
                    is_greeted: false,
                    begin: Instant::now(),
                    answers: Answers::default(),
                });
            }
            let waiting = herd.clients.len() - up;
            for number in turn.events(&mut herd.poll, waiting)? {
                let Some(client) = herd.clients.get_mut(number) else {
                    continue;
                };
                client.greet(plan.address, number)?;
                match client.answer(&mut turn.buffer)? {
                    Some(Answer::ConnAck(0)) => {
                        up += 1;
                        latencies.record(client.begin.elapsed());
                    }
                    Some(Answer::ConnAck(code)) => return Err(DriverError::Refused(code)),
                    Some(_) => return Err(DriverError::Unexpected(Vec::new())),
                    None => {}
                }
            }
        }
        herd.accepted.messages = up as u64;
        herd.accepted.elapsed = begin.elapsed();
        herd.accepted.latencies = latencies;
        Ok(herd)
    }

    /// How many were accepted, how long that took, and how long each of them waited.
    pub(crate) fn accepted(&self) -> &Outcome {
        &self.accepted
    }

    /// Rests for `time` and calls `look` now and then. Nobody may leave.
    ///
    /// # Errors
    /// [`DriverError::Closed`], [`DriverError::Interrupted`].
    pub(crate) fn rest(
        &mut self,
        time: Duration,
        mut look: impl FnMut(),
    ) -> Result<(), DriverError> {
        let begin = Instant::now();
        let mut events = Events::with_capacity(EVENTS);
        let mut buffer = vec![0; READ_BYTES];
        while begin.elapsed() < time {
            if interrupt::asked() {
                return Err(DriverError::Interrupted);
            }
            match self.poll.poll(&mut events, Some(TICK)) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                polled => polled?,
            }
            for event in &events {
                if let Some(client) = self.clients.get_mut(event.token().0) {
                    client.answer(&mut buffer)?;
                }
            }
            look();
        }
        Ok(())
    }

    /// Pings everybody and waits for all answers; then everybody leaves.
    ///
    /// # Errors
    /// [`DriverError::Closed`], [`DriverError::Stalled`].
    pub(crate) fn ping(mut self) -> Result<Latencies, DriverError> {
        let mut latencies = Latencies::new();
        for client in &mut self.clients {
            client.begin = Instant::now();
            client.socket.out.extend(packet::PINGREQ);
            client.socket.flush()?;
        }
        let mut turn = Turn::new();
        let mut alive = 0;
        while alive < self.clients.len() {
            let waiting = self.clients.len() - alive;
            for number in turn.events(&mut self.poll, waiting)? {
                let Some(client) = self.clients.get_mut(number) else {
                    continue;
                };
                client.socket.flush()?;
                match client.answer(&mut turn.buffer)? {
                    Some(Answer::PingResp) => {
                        alive += 1;
                        latencies.record(client.begin.elapsed());
                    }
                    Some(_) => return Err(DriverError::Unexpected(Vec::new())),
                    None => {}
                }
            }
        }
        for client in &mut self.clients {
            client.socket.disconnect();
        }
        Ok(latencies)
    }
}

impl Resting {
    /// Sends CONNECT as soon as there is a connection.
    fn greet(&mut self, address: SocketAddr, number: usize) -> Result<(), DriverError> {
        if !self.is_greeted && self.socket.is_connected(address)? {
            self.is_greeted = true;
            let id = client_id(&format!("idle-{number}"));
            self.socket.out = packet::connect(&id, Session::Clean);
        }
        self.socket.flush()
    }

    /// What has come.
    fn answer(&mut self, buffer: &mut [u8]) -> Result<Option<Answer>, DriverError> {
        if !self.is_greeted {
            return Ok(None);
        }
        loop {
            let length = self.socket.read(buffer)?;
            if length == 0 {
                return Ok(None);
            }
            self.answers.add(buffer.get(..length).unwrap_or_default());
            // Each client waits for one answer at a time.
            if let Some(answer) = self.answers.next()? {
                return Ok(Some(answer));
            }
        }
    }
}

/// The wait for sockets, as every loop here needs it.
#[derive(Debug)]
pub(super) struct Turn {
    events: Events,
    heard: Instant,
    pub(super) buffer: Vec<u8>,
}

impl Turn {
    pub(super) fn new() -> Self {
        Self {
            events: Events::with_capacity(EVENTS),
            heard: Instant::now(),
            buffer: vec![0; READ_BYTES],
        }
    }

    /// The numbers of the sockets with which there is something to do; none after a while without.
    ///
    /// # Errors
    /// [`DriverError::Interrupted`], [`DriverError::Io`]; [`DriverError::Stalled`] when there was nothing for too long.
    pub(super) fn events(
        &mut self,
        poll: &mut Poll,
        waiting: usize,
    ) -> Result<Vec<usize>, DriverError> {
        if interrupt::asked() {
            return Err(DriverError::Interrupted);
        }
        match poll.poll(&mut self.events, Some(TICK)) {
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(Vec::new()),
            polled => polled?,
        }
        if !self.events.is_empty() {
            self.heard = Instant::now();
        } else if self.heard.elapsed() > PATIENCE {
            return Err(DriverError::Stalled(waiting));
        }
        Ok(self.events.iter().map(|event| event.token().0).collect())
    }
}
