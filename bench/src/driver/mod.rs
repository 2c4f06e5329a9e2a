//! The load driver: MQTT 3.1.1 publishers on raw sockets, and subscribers ([`Crowd`]).
//!
//! Always holds: one thread serves all clients, and a client never has more than its window unconfirmed, so what is
//! measured is the server and not a queue in front of it; a run ends by its duration, its number of messages, an error or
//! the user's wish, whichever comes first, and then waits for what is still unconfirmed.
//!
//! With QoS 1 each PUBACK confirms one message. With QoS 0 nothing confirms a message, so a PINGREQ follows each window, and
//! its PINGRESP says that the server has taken the window; the latency is then that of the window.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::{Events, Poll, Token};

use crate::interrupt;
use crate::outcome::{Latencies, Outcome};

mod churn;
mod client;
mod fan_out;
mod idle;
mod keeper;
mod open_files;
mod packet;
mod schedule;
mod socket;
#[cfg(test)]
mod tests;

pub(crate) use churn::{Churn, churn};
use client::Client;
pub(crate) use fan_out::{Crowd, FanOut};
pub(crate) use idle::{Herd, Idle};
pub(crate) use keeper::Keeper;
pub(crate) use open_files::raise_limit;
use schedule::{Alarm, GRACE, Schedule};

/// How long nothing at all may come from the server.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often the wait for sockets looks at the clock.
const TICK: Duration = Duration::from_millis(100);
/// Events of one wait.
const EVENTS: usize = 1_024;
/// Says that messages of a schedule are due.
const ALARM: Token = Token(usize::MAX - 1);

/// The quality of service of the messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QoS {
    /// Not acknowledged.
    AtMostOnce,
    /// Acknowledged.
    AtLeastOnce,
}

/// What the publishers do.
#[derive(Debug, Clone)]
pub(crate) struct Workload {
    /// The server.
    pub(crate) address: SocketAddr,
    /// Client N publishes to `TOPIC/N`, or in turn to `TOPIC/N/1`, `TOPIC/N/2` and so on if it has several topics.
    pub(crate) topic: String,
    /// How many topics each client has; at least 1.
    pub(crate) topics: u32,
    /// The quality of service of all messages.
    pub(crate) qos: QoS,
    /// How many clients there are.
    pub(crate) clients: u16,
    /// How many messages of one client may be unconfirmed; at least 1.
    pub(crate) window: u16,
    /// The payload of every message, in bytes.
    pub(crate) payload: usize,
    /// How many messages all clients together send in a second; as many as the windows allow when there is none.
    pub(crate) rate: Option<f64>,
    /// When no more messages are sent.
    pub(crate) limit: Limit,
}

/// When a measurement ends: at whichever comes first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit {
    /// Messages of all clients together.
    pub(crate) messages: u64,
    /// The time from the first message.
    pub(crate) duration: Duration,
}

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DriverError {
    /// No TCP connection to the server.
    #[error("cannot connect to the MQTT server at {address}: {source}; is it running?")]
    Connect {
        /// The server.
        address: SocketAddr,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The limit of open files.
    #[error(
        "no more than {0} connections: the limit of open files is reached; raise it (`ulimit -n`, the hard one too)"
    )]
    TooManyFiles(usize),
    /// CONNACK with a return code other than 0.
    #[error("the server refused a client with CONNACK return code {0}; its log says why")]
    Refused(u8),
    /// The server closed a connection.
    #[error("the server closed the connection of client {0}; its log says why")]
    Closed(usize),
    /// A packet that a publisher does not expect.
    #[error("the server sent something that is no answer to a publisher: {0:02x?} …")]
    Unexpected(Vec<u8>),
    /// A PUBACK for a message that is not waiting for one.
    #[error("the server acknowledged packet id {0}, which is not in flight")]
    NotInFlight(u16),
    /// A subscriber missed a message, or got it twice.
    #[error(
        "subscriber {client} got message {came} where {expected} is next; the server dropped or repeated something"
    )]
    OutOfOrder {
        /// Whose.
        client: usize,
        /// The number that is next.
        expected: u64,
        /// The number that came.
        came: u64,
    },
    /// Nothing came for too long.
    #[error("the server answered nothing for {PATIENCE:?} while {0} messages waited for it")]
    Stalled(usize),
    /// The user wants this to stop.
    #[error("interrupted")]
    Interrupted,
    /// The operating system refused something.
    #[error("a socket failed: {0}")]
    Io(#[from] io::Error),
}

/// Whether the server at `address` takes clients.
pub(crate) fn is_serving(address: SocketAddr) -> bool {
    socket::connect(address, "probe", packet::Session::Clean)
        .is_ok_and(|mut stream| stream.write_all(&packet::DISCONNECT).is_ok())
}

/// Connects the clients, lets them publish, and waits for what is unconfirmed.
///
/// # Errors
/// See [`DriverError`].
pub(crate) fn publish(workload: &Workload) -> Result<Outcome, DriverError> {
    let mut publishers = Publishers::connect(workload)?;
    let outcome = publishers.run(workload.limit)?;
    publishers.disconnect();
    Ok(outcome)
}

/// Connected clients that have published nothing yet: for whoever measures the publishing without the connecting.
#[derive(Debug)]
pub(crate) struct Publishers {
    poll: Poll,
    clients: Vec<Client>,
    /// See [`Workload::rate`].
    rate: Option<f64>,
}

impl Publishers {
    /// Connects the clients.
    ///
    /// # Errors
    /// See [`DriverError`].
    pub(crate) fn connect(workload: &Workload) -> Result<Self, DriverError> {
        let poll = Poll::new()?;
        let mut clients = Vec::with_capacity(usize::from(workload.clients));
        for number in 0..usize::from(workload.clients) {
            let mut client = Client::connect(workload, number)?;
            client.socket().register(poll.registry(), number)?;
            clients.push(client);
        }
        let rate = workload.rate;
        Ok(Self {
            poll,
            clients,
            rate,
        })
    }

    /// Lets them publish until the limit, and waits for what is unconfirmed.
    ///
    /// # Errors
    /// See [`DriverError`].
    pub(crate) fn run(&mut self, limit: Limit) -> Result<Outcome, DriverError> {
        let Self {
            poll,
            clients,
            rate,
        } = self;
        let schedule = rate.map(|rate| Schedule::new(rate, limit));
        let start = Instant::now();
        let mut run = Run {
            start,
            schedule,
            sent: 0,
            left: schedule.map_or(limit.messages, |schedule| schedule.planned()),
            end: start.checked_add(match schedule {
                Some(_) => limit.duration + GRACE,
                None => limit.duration,
            }),
            confirmed: 0,
            last: None,
            latencies: Latencies::new(),
        };
        publish_all(poll, clients, &mut run)?;
        Ok(Outcome {
            messages: run.confirmed,
            elapsed: run.last.map_or(Duration::ZERO, |last| last - start),
            unsent: schedule.map_or(0, |schedule| schedule.planned() - run.sent),
            latencies: run.latencies,
        })
    }

    /// Sends DISCONNECTs.
    pub(crate) fn disconnect(mut self) {
        for client in &mut self.clients {
            client.disconnect();
        }
    }
}

fn publish_all(poll: &mut Poll, clients: &mut [Client], run: &mut Run) -> Result<(), DriverError> {
    let schedule = run.schedule;
    let alarm = match schedule {
        Some(_) => Some(Alarm::new(poll.registry(), ALARM)?),
        None => None,
    };
    if schedule.is_none() {
        for client in &mut *clients {
            client.go_on(run)?;
        }
    }
    let mut events = Events::with_capacity(EVENTS);
    let mut heard = Instant::now();
    let mut served = 0;
    loop {
        if let Some((schedule, alarm)) = schedule.as_ref().zip(alarm.as_ref()) {
            let elapsed = run.start.elapsed();
            // Everybody's message in turn, so a message that is due may be that of a client without an event.
            if schedule.due(elapsed) > served {
                served = schedule.due(elapsed);
                for client in &mut *clients {
                    client.go_on(run)?;
                }
            }
            if let Some(pause) = schedule.pause(elapsed) {
                alarm.set(pause)?;
            }
        }
        let unconfirmed: usize = clients.iter().map(Client::unconfirmed).sum();
        if unconfirmed == 0 && run.is_over(Instant::now()) {
            return Ok(());
        }
        // Without an event there is nothing to do but to look at the clock.
        loop {
            if interrupt::asked() {
                return Err(DriverError::Interrupted);
            }
            match poll.poll(&mut events, Some(TICK)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                polled => polled?,
            }
            if !events.is_empty() {
                break;
            }
            if heard.elapsed() > PATIENCE {
                return Err(DriverError::Stalled(unconfirmed));
            }
            if unconfirmed == 0 {
                break;
            }
        }
        heard = Instant::now();
        for event in &events {
            if let Some(client) = clients.get_mut(event.token().0) {
                if event.is_readable() {
                    client.read(run)?;
                }
                client.go_on(run)?;
            }
        }
    }
}

/// What all clients of a run share.
#[derive(Debug)]
struct Run {
    start: Instant,
    schedule: Option<Schedule>,
    sent: u64,
    /// How many messages may still be sent.
    left: u64,
    /// When none is sent any more.
    end: Option<Instant>,
    confirmed: u64,
    /// When the last confirmation came.
    last: Option<Instant>,
    latencies: Latencies,
}

impl Run {
    /// Whether no more messages are sent.
    fn is_over(&self, now: Instant) -> bool {
        self.left == 0 || self.end.is_none_or(|end| now >= end)
    }

    /// A confirmation of `messages` that were sent at `sent` has come.
    fn confirm(&mut self, messages: u64, sent: Instant, now: Instant) {
        self.confirmed += messages;
        self.last = Some(now);
        self.latencies.record(now - sent);
    }
}
