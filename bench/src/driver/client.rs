//! One publisher: its socket, what it has in flight, and what it still has to write.
//!
//! Always holds: all messages that the window allows go out in one write; a latency begins just before that write, so what
//! the operating system's buffers hold back counts too, or, at a fixed rate, when the message was to be sent. The payload
//! begins with the number of the message in the run, as eight bytes, if it is that long.

use std::collections::VecDeque;
use std::time::Instant;

use super::packet::{self, Answer, Answers, PublishTemplate, Session};
use super::socket::{self, READ_BYTES, Socket};
use super::{DriverError, QoS, Run, Workload};

/// See the module.
#[derive(Debug)]
pub(super) struct Client {
    socket: Socket,
    /// One for each of its topics, which take turns.
    templates: Vec<PublishTemplate>,
    /// Whose turn it is.
    topic: usize,
    qos: QoS,
    window: usize,
    /// With QoS 1 each message's packet id and the time at which it was sent, oldest first. With QoS 0 nothing.
    in_flight: VecDeque<(u16, Instant)>,
    /// With QoS 0 how many messages the PINGREQ in flight follows, and when they were sent.
    burst: Option<(usize, Instant)>,
    last_id: u16,
    answers: Answers,
    buffer: Vec<u8>,
    /// At a fixed rate the number of its next message in the schedule of all clients, and how many clients share that.
    turn: u64,
    clients: u64,
}

impl Client {
    /// Connects and waits for the CONNACK.
    pub(super) fn connect(workload: &Workload, number: usize) -> Result<Self, DriverError> {
        let stream = socket::connect(workload.address, &number.to_string(), Session::Clean)?;
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
            socket: Socket::new(stream, number)?,
            templates,
            topic: 0,
            qos: workload.qos,
            window: usize::from(workload.window.max(1)),
            in_flight: VecDeque::new(),
            burst: None,
            last_id: 0,
            answers: Answers::default(),
            buffer: vec![0; READ_BYTES],
            turn: number as u64,
            clients: workload.clients.into(),
        })
    }

    /// For registering it.
    pub(super) fn socket(&mut self) -> &mut Socket {
        &mut self.socket
    }

    /// How many messages wait for their confirmation.
    pub(super) fn unconfirmed(&self) -> usize {
        self.in_flight.len() + self.burst.map_or(0, |(messages, _)| messages)
    }

    /// Takes everything that the socket has.
    pub(super) fn read(&mut self, run: &mut Run) -> Result<(), DriverError> {
        loop {
            let length = self.socket.read(&mut self.buffer)?;
            if length == 0 {
                return Ok(());
            }
            let now = Instant::now();
            self.answers
                .add(self.buffer.get(..length).unwrap_or_default());
            while let Some(answer) = self.answers.next()? {
                self.take(answer, now, run)?;
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
        self.socket.flush()
    }

    fn publish(&mut self, run: &mut Run, now: Instant) {
        let room = match self.qos {
            QoS::AtLeastOnce => self.window - self.in_flight.len(),
            QoS::AtMostOnce if self.burst.is_some() => 0,
            QoS::AtMostOnce => self.window,
        };
        let mut count = 0;
        // When the first of them was sent, or was to be sent.
        let mut begin = now;
        while count < room && run.left > 0 {
            let Some(sent) = self.next(run, now) else {
                break;
            };
            if count == 0 {
                begin = sent;
            }
            count += 1;
            run.left -= 1;
            // 0 is no packet id; the window is smaller than what is left, so an id is free again when its turn comes,
            // unless the server acknowledges out of order by a whole round.
            self.last_id = self.last_id.checked_add(1).unwrap_or(1);
            let head = run.sent.to_be_bytes();
            run.sent += 1;
            if let Some(template) = self.templates.get(self.topic) {
                template.write(self.last_id, &head, &mut self.socket.out);
            }
            self.topic = (self.topic + 1) % self.templates.len();
            if self.qos == QoS::AtLeastOnce {
                self.in_flight.push_back((self.last_id, sent));
            }
        }
        if self.qos == QoS::AtMostOnce && count > 0 {
            self.socket.out.extend(packet::PINGREQ);
            self.burst = Some((count, begin));
        }
    }

    /// From when on the latency of its next message counts; nothing when the time for it has not come.
    fn next(&mut self, run: &Run, now: Instant) -> Option<Instant> {
        let Some(schedule) = run.schedule else {
            return Some(now);
        };
        let elapsed = now - run.start;
        if self.turn >= schedule.due(elapsed) {
            return None;
        }
        let late = elapsed.saturating_sub(schedule.intended(self.turn));
        self.turn += self.clients;
        Some(now.checked_sub(late).unwrap_or(now))
    }

    /// Sends DISCONNECT, if the socket takes it.
    pub(super) fn disconnect(&mut self) {
        self.socket.disconnect();
    }
}
