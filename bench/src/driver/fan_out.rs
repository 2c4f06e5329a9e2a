//! One publisher and many subscribers of its topic, on raw sockets.
//!
//! Always holds: one thread serves all clients; a message is sent only while fewer than the window wait to be delivered to
//! all subscribers, so what is measured is the server and not a queue before it; each subscriber gets each message once and
//! in order, or the run fails; a latency begins just before the write of the PUBLISH, or, at a fixed rate, when that was to
//! happen, and ends when the read has returned that brought the copy.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::{Events, Poll};

use super::packet::{self, PublishTemplate, Session};
use super::schedule::{Alarm, GRACE, Schedule};
use super::socket::{self, READ_BYTES, Socket};
use super::{ALARM, DriverError, EVENTS, Limit, PATIENCE, QoS, TICK};
use crate::interrupt;
use crate::outcome::{Latencies, Outcome};

/// The number of a message and the time at which it was sent.
const HEAD: usize = 16;

/// What is to be done.
#[derive(Debug, Clone)]
pub(crate) struct FanOut {
    /// The server.
    pub(crate) address: SocketAddr,
    /// The topic of all messages.
    pub(crate) topic: String,
    /// Of publishes and subscriptions.
    pub(crate) qos: QoS,
    /// How many subscribers there are.
    pub(crate) subscribers: u16,
    /// How many more there are that never read; what does not come to them does not count.
    pub(crate) stuck: u16,
    /// How many messages may be on their way; at least 1.
    pub(crate) window: u16,
    /// How many messages are published in a second; as many as the window allows when there is none.
    pub(crate) rate: Option<f64>,
    /// The payload of every message, in bytes; at least 16.
    pub(crate) payload: usize,
    /// When no more messages are published.
    pub(crate) limit: Limit,
}

/// The subscribers, connected and subscribed, and the publisher.
#[derive(Debug)]
pub(crate) struct Crowd {
    plan: FanOut,
    poll: Poll,
    subscribers: Vec<Subscriber>,
    /// Held open, and never read from.
    stuck: Vec<Connection>,
    publisher: Connection,
    template: PublishTemplate,
}

#[derive(Debug)]
struct Subscriber {
    connection: Connection,
    /// The number of the next message that has to come.
    next: u64,
}

#[derive(Debug)]
struct Connection {
    number: usize,
    socket: Socket,
    received: Vec<u8>,
}

impl Connection {
    /// Connects, sends `then` and waits for so many bytes of answer to it.
    fn open(
        address: SocketAddr,
        name: &str,
        number: usize,
        then: &[u8],
        answer: usize,
    ) -> Result<Self, DriverError> {
        let mut stream = socket::connect(address, &format!("{name}-{number}"), Session::Clean)?;
        socket::ask(&mut stream, then, answer)?;
        Ok(Self {
            number,
            socket: Socket::new(stream, number)?,
            received: Vec::new(),
        })
    }

    /// Takes what the socket has; says whether there was something.
    fn read(&mut self, buffer: &mut [u8]) -> Result<bool, DriverError> {
        let mut has_read = false;
        loop {
            let length = self.socket.read(buffer)?;
            if length == 0 {
                return Ok(has_read);
            }
            has_read = true;
            let read = buffer.get(..length).unwrap_or_default();
            self.received.extend_from_slice(read);
        }
    }
}

/// What is on its way.
struct Run {
    begin: Instant,
    schedule: Option<Schedule>,
    alarm: Option<Alarm>,
    published: u64,
    /// The number of the oldest message that not all subscribers have.
    oldest: u64,
    /// How many subscribers do not have it, from that one on.
    missing: VecDeque<usize>,
    delivered: u64,
    last: Instant,
    latencies: Latencies,
}

impl Run {
    fn planned(&self, plan: &FanOut) -> u64 {
        self.schedule
            .map_or(plan.limit.messages, |schedule| schedule.planned())
    }
}

impl Crowd {
    /// Connects everybody.
    ///
    /// # Errors
    /// See [`DriverError`].
    pub(crate) fn gather(plan: FanOut) -> Result<Self, DriverError> {
        let poll = Poll::new()?;
        let qos = u8::from(plan.qos == QoS::AtLeastOnce);
        let subscribe = packet::subscribe(&plan.topic, qos);
        let mut subscribers = Vec::with_capacity(usize::from(plan.subscribers));
        for number in 0..usize::from(plan.subscribers) {
            let mut connection = Connection::open(plan.address, "sub", number, &subscribe, 5)?;
            connection.socket.register(poll.registry(), number)?;
            subscribers.push(Subscriber {
                connection,
                next: 0,
            });
        }
        let stuck = (0..usize::from(plan.stuck))
            .map(|number| Connection::open(plan.address, "stuck", number, &subscribe, 5))
            .collect::<Result<_, _>>()?;
        let number = subscribers.len();
        let mut publisher = Connection::open(plan.address, "pub", number, &packet::PINGREQ, 2)?;
        publisher.socket.register(poll.registry(), number)?;
        let payload = vec![b'x'; plan.payload.max(HEAD)];
        let template = PublishTemplate::new(&plan.topic, plan.qos == QoS::AtLeastOnce, &payload);
        Ok(Self {
            plan,
            poll,
            subscribers,
            stuck,
            publisher,
            template,
        })
    }

    /// Publishes until the limit and waits until everybody has everything. `look` is called now and then.
    ///
    /// # Errors
    /// See [`DriverError`].
    pub(crate) fn run(mut self, mut look: impl FnMut()) -> Result<Outcome, DriverError> {
        let alarm = match self.plan.rate {
            Some(_) => Some(Alarm::new(self.poll.registry(), ALARM)?),
            None => None,
        };
        let begin = Instant::now();
        let mut run = Run {
            begin,
            schedule: self
                .plan
                .rate
                .map(|rate| Schedule::new(rate, self.plan.limit)),
            alarm,
            published: 0,
            oldest: 0,
            missing: VecDeque::new(),
            delivered: 0,
            last: begin,
            latencies: Latencies::new(),
        };
        let mut events = Events::with_capacity(EVENTS);
        let mut buffer = vec![0; READ_BYTES];
        let mut heard = Instant::now();
        let mut looked = Instant::now();
        loop {
            let is_over = !self.publish(&mut run)?;
            if is_over && run.missing.is_empty() {
                break;
            }
            if interrupt::asked() {
                return Err(DriverError::Interrupted);
            }
            match self.poll.poll(&mut events, Some(TICK)) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                polled => polled?,
            }
            if looked.elapsed() > TICK {
                look();
                looked = Instant::now();
            }
            if !events.is_empty() {
                heard = Instant::now();
            } else if heard.elapsed() > PATIENCE {
                return Err(DriverError::Stalled(run.missing.iter().sum()));
            }
            for event in &events {
                let number = event.token().0;
                match self.subscribers.get_mut(number) {
                    _ if event.token() == ALARM => {}
                    Some(subscriber) => subscriber.work(&mut run, &mut buffer)?,
                    None => {
                        self.publisher.read(&mut buffer)?;
                        // PUBACKs: that the message was delivered says more.
                        self.publisher.received.clear();
                        self.publisher.socket.flush()?;
                    }
                }
            }
        }
        let everybody = self
            .subscribers
            .iter_mut()
            .map(|subscriber| &mut subscriber.connection);
        for connection in everybody.chain([&mut self.publisher]) {
            connection.socket.disconnect();
        }
        drop(self.stuck);
        Ok(Outcome {
            messages: run.delivered,
            elapsed: run.last - begin,
            unsent: match run.schedule {
                Some(schedule) => schedule.planned() - run.published,
                None => 0,
            },
            latencies: run.latencies,
        })
    }

    /// Publishes what the window and the rate allow; says whether there is more to publish.
    fn publish(&mut self, run: &mut Run) -> Result<bool, DriverError> {
        let elapsed = run.begin.elapsed();
        let planned = run.planned(&self.plan);
        let end = match run.schedule {
            Some(_) => self.plan.limit.duration + GRACE,
            None => self.plan.limit.duration,
        };
        if run.published >= planned || elapsed >= end {
            return Ok(false);
        }
        let due = run.schedule.map_or(planned, |it| it.due(elapsed));
        let window = usize::from(self.plan.window.max(1));
        while run.missing.len() < window && run.published < due {
            let sent = match run.schedule {
                Some(schedule) => schedule.intended(run.published),
                None => run.begin.elapsed(),
            };
            let sent = u64::try_from(sent.as_nanos()).unwrap_or(u64::MAX);
            let mut head = [0; HEAD];
            let (number, time) = head.split_at_mut(HEAD / 2);
            number.copy_from_slice(&run.published.to_be_bytes());
            time.copy_from_slice(&sent.to_be_bytes());
            let id = u16::try_from(run.published % 65_535 + 1).unwrap_or(1);
            self.template
                .write(id, &head, &mut self.publisher.socket.out);
            run.published += 1;
            run.missing.push_back(self.subscribers.len());
        }
        self.publisher.socket.flush()?;
        if let Some((schedule, alarm)) = run.schedule.as_ref().zip(run.alarm.as_ref()) {
            // When the window is full, a copy that comes wakes it.
            if let Some(pause) = schedule.pause(elapsed) {
                alarm.set(pause)?;
            }
        }
        Ok(true)
    }
}

impl Subscriber {
    /// Takes what has come, and acknowledges it.
    fn work(&mut self, run: &mut Run, buffer: &mut [u8]) -> Result<(), DriverError> {
        if self.connection.read(buffer)? {
            let now = Instant::now();
            let received = std::mem::take(&mut self.connection.received);
            let mut rest = &received[..];
            while let Some((copy, length)) = packet::read_publish(rest)? {
                self.take(copy, now, run)?;
                rest = rest.get(length..).unwrap_or_default();
            }
            self.connection.received = rest.to_vec();
        }
        self.connection.socket.flush()
    }

    fn take(
        &mut self,
        (id, payload): (Option<u16>, &[u8]),
        now: Instant,
        run: &mut Run,
    ) -> Result<(), DriverError> {
        let number = |at: usize| {
            let bytes = payload.get(at..at + 8)?;
            Some(u64::from_be_bytes(bytes.try_into().ok()?))
        };
        let (Some(message), Some(sent)) = (number(0), number(8)) else {
            return Err(DriverError::Unexpected(payload.to_vec()));
        };
        if message != self.next {
            return Err(DriverError::OutOfOrder {
                client: self.connection.number,
                expected: self.next,
                came: message,
            });
        }
        self.next += 1;
        run.delivered += 1;
        run.last = now;
        let age = now - run.begin;
        run.latencies
            .record(age.saturating_sub(Duration::from_nanos(sent)));
        if let Some(missing) = usize::try_from(message - run.oldest)
            .ok()
            .and_then(|at| run.missing.get_mut(at))
        {
            *missing -= 1;
        }
        while run.missing.front() == Some(&0) {
            run.missing.pop_front();
            run.oldest += 1;
        }
        if let Some(id) = id {
            self.connection.socket.out.extend([0x40, 2]);
            self.connection.socket.out.extend(id.to_be_bytes());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
