//! Clients that come, publish one message, see it acknowledged, and go.
//!
//! Always holds: as many cycles go on at a time as were asked for until the limit; each has a connection and a client id of
//! its own; a cycle counts from the beginning of its connection to its PUBACK, after which DISCONNECT is sent and the
//! connection closed.

use std::net::SocketAddr;
use std::time::Instant;

use mio::Poll;

use super::idle::Turn;
use super::packet::{self, Answer, Answers, PublishTemplate, Session};
use super::socket::{Socket, client_id};
use super::{DriverError, Limit};
use crate::outcome::{Latencies, Outcome};

/// What is to be done.
#[derive(Debug, Clone)]
pub(crate) struct Churn {
    /// The server.
    pub(crate) address: SocketAddr,
    /// Slot N publishes to `TOPIC/N`.
    pub(crate) topic: String,
    /// How many cycles go on at a time; at least 1.
    pub(crate) at_once: u16,
    /// The payload of every message, in bytes.
    pub(crate) payload: usize,
    /// When no more cycles are begun.
    pub(crate) limit: Limit,
}

#[derive(Debug)]
struct Cycle {
    socket: Socket,
    stage: Stage,
    begin: Instant,
    answers: Answers,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Connecting,
    Greeted,
    Published,
}

/// Runs cycles until the limit and waits for the last of them. Its messages are cycles, its latencies theirs.
///
/// # Errors
/// See [`DriverError`].
pub(crate) fn churn(plan: &Churn) -> Result<Outcome, DriverError> {
    let mut poll = Poll::new()?;
    let payload = vec![b'x'; plan.payload];
    let templates: Vec<PublishTemplate> = (0..plan.at_once.max(1))
        .map(|slot| PublishTemplate::new(&format!("{}/{slot}", plan.topic), true, &payload))
        .collect();
    let mut slots: Vec<Option<Cycle>> = templates.iter().map(|_| None).collect();
    let mut turn = Turn::new();
    let mut latencies = Latencies::new();
    let (mut begun, mut done) = (0, 0);
    let start = Instant::now();
    let mut last = start;
    loop {
        let is_over = begun >= plan.limit.messages || start.elapsed() >= plan.limit.duration;
        for (slot, cycle) in slots.iter_mut().enumerate() {
            if cycle.is_none() && !is_over && begun < plan.limit.messages {
                *cycle = Some(begin(plan, &poll, slot, begun)?);
                begun += 1;
            }
        }
        let waiting = slots.iter().flatten().count();
        if waiting == 0 {
            break;
        }
        for slot in turn.events(&mut poll, waiting)? {
            let Some((place, template)) = slots.get_mut(slot).zip(templates.get(slot)) else {
                continue;
            };
            let Some(cycle) = place else { continue };
            if cycle.go_on(plan, template, slot, done, &mut turn.buffer)? {
                last = Instant::now();
                latencies.record(last - cycle.begin);
                done += 1;
                cycle.socket.disconnect();
                *place = None;
            }
        }
    }
    Ok(Outcome {
        messages: done,
        elapsed: last - start,
        unsent: 0,
        latencies,
    })
}

fn begin(plan: &Churn, poll: &Poll, slot: usize, number: u64) -> Result<Cycle, DriverError> {
    let begin = Instant::now();
    let number = usize::try_from(number).unwrap_or(usize::MAX);
    let mut socket = Socket::begin(plan.address, number)?;
    socket.register(poll.registry(), slot)?;
    Ok(Cycle {
        socket,
        stage: Stage::Connecting,
        begin,
        answers: Answers::default(),
    })
}

impl Cycle {
    /// Does what can be done; says whether the cycle is complete.
    fn go_on(
        &mut self,
        plan: &Churn,
        template: &PublishTemplate,
        slot: usize,
        done: u64,
        buffer: &mut [u8],
    ) -> Result<bool, DriverError> {
        if self.stage == Stage::Connecting {
            if !self.socket.is_connected(plan.address)? {
                return Ok(false);
            }
            let id = client_id(&format!("churn-{slot}-{done}"));
            self.socket.out = packet::connect(&id, Session::Clean);
            self.stage = Stage::Greeted;
        }
        self.socket.flush()?;
        loop {
            let length = self.socket.read(buffer)?;
            if length == 0 {
                return Ok(false);
            }
            self.answers.add(buffer.get(..length).unwrap_or_default());
            while let Some(answer) = self.answers.next()? {
                match (self.stage, answer) {
                    (Stage::Greeted, Answer::ConnAck(0)) => {
                        template.write(1, &[], &mut self.socket.out);
                        self.socket.flush()?;
                        self.stage = Stage::Published;
                    }
                    (Stage::Greeted, Answer::ConnAck(code)) => {
                        return Err(DriverError::Refused(code));
                    }
                    (Stage::Published, Answer::PubAck(1)) => return Ok(true),
                    (_, Answer::PubAck(id)) => return Err(DriverError::NotInFlight(id)),
                    _ => return Err(DriverError::Unexpected(Vec::new())),
                }
            }
        }
    }
}
