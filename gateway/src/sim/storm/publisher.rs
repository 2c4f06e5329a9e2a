//! A publisher of a run: several windows, QoS 0 and 1 mixed, slow and quick; it leaves in every way in which clients leave,
//! comes back under the same id, and sends again with DUP what was not acknowledged.
//!
//! What always holds, or the run fails: on each connection PUBACKs come in the order in which the messages were sent, each
//! once (N3); when one comes, an append of its message was confirmed before (N1); the gateway ends no connection, unless
//! its oldest message is one that must be refused, or there is no source (N5).

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;
use tokio::time::{sleep, timeout};

use super::World;
use super::message::{Kind, Label, Message};
use crate::sim::client::{self, Client, Got};

/// How a publisher behaves.
#[derive(Debug)]
pub(super) struct Habits {
    /// The most messages that wait for their PUBACK.
    pub(super) window: usize,
    pub(super) topics: Vec<(Kind, String)>,
    pub(super) qos_1: f64,
    pub(super) poison: f64,
    /// How likely each step is one that ends the connection.
    pub(super) leaves: f64,
    /// Bytes that the pipe to it holds.
    pub(super) pipe: usize,
    /// The longest pause between messages.
    pub(super) pause: Duration,
    /// The longest pause before it looks for answers.
    pub(super) sloth: Duration,
    pub(super) messages: u16,
}

pub(super) struct Publisher {
    world: Arc<World>,
    name: String,
    habits: Habits,
    random: StdRng,
    /// What was sent, by number.
    pub(super) messages: HashMap<u16, Message>,
    /// QoS 1, oldest first.
    waiting: VecDeque<Message>,
    /// In the order of their PUBACKs.
    pub(super) acknowledged: Vec<Label>,
    /// On how many connections each message may have come to the gateway.
    pub(super) sent: HashMap<u16, usize>,
}

/// A connection, and what of it is to be acknowledged.
struct Connection {
    client: Client,
    on_the_way: VecDeque<u16>,
    /// See [`World::has_lost_its_source`].
    source_changes: u64,
}

impl Publisher {
    pub(super) fn new(world: Arc<World>, name: String, habits: Habits, random: StdRng) -> Self {
        Self {
            world,
            name,
            habits,
            random,
            messages: HashMap::new(),
            waiting: VecDeque::new(),
            acknowledged: Vec::new(),
            sent: HashMap::new(),
        }
    }

    /// Publishes all its messages, and returns when all QoS 1 messages are acknowledged, or when the gateway stops.
    pub(super) async fn run(mut self) -> Self {
        while !self.is_done() && !self.world.is_stopping() {
            match self.connect().await {
                Some(connection) => self.serve(connection).await,
                None => sleep(self.up_to(Duration::from_secs(5))).await,
            }
        }
        self
    }

    fn is_done(&self) -> bool {
        self.has_published_all() && self.waiting.is_empty()
    }

    fn has_published_all(&self) -> bool {
        self.messages.len() == usize::from(self.habits.messages)
    }

    fn up_to(&mut self, most: Duration) -> Duration {
        most.mul_f64(self.random.random())
    }

    fn note(&self, what: impl std::fmt::Display) {
        self.world.trace.note(&self.name, what);
    }

    /// Connects and sends again what waits, perhaps without waiting for the CONNACK.
    async fn connect(&mut self) -> Option<Connection> {
        let mut connection = Connection {
            client: self.world.sim.dial(self.habits.pipe),
            on_the_way: VecDeque::new(),
            source_changes: self.world.source_changes(),
        };
        self.note("CONNECT");
        let connect = client::connect(&self.name, 0);
        let is_pipelined = self.random.random_bool(0.3);
        if is_pipelined {
            let again = self.again(&mut connection);
            let bytes = [connect, again].concat();
            let sending = connection.client.try_send(&bytes);
            if !timeout(PATIENCE, sending).await.unwrap_or(false) {
                return None;
            }
        } else if !connection.client.try_send(&connect).await {
            return None;
        }
        let answer = timeout(PATIENCE, connection.client.try_next()).await;
        match answer {
            Ok(Some(Got::ConnAck(0))) => {}
            other => {
                self.note(format_args!("is not let in: {other:?}"));
                return None;
            }
        }
        if !is_pipelined {
            let again = self.again(&mut connection);
            if !self.send(&mut connection, &again).await {
                return None;
            }
        }
        Some(connection)
    }

    /// What waits, to be sent again, in order.
    fn again(&mut self, connection: &mut Connection) -> Vec<u8> {
        let mut bytes = Vec::new();
        for message in &self.waiting {
            bytes.extend(client::publish_again(
                &message.topic,
                message.payload.as_bytes(),
                message.id(),
            ));
            connection.on_the_way.push_back(message.id());
            *self.sent.entry(message.label.number).or_default() += 1;
        }
        if !self.waiting.is_empty() {
            let first = self.waiting.front().map(Message::id);
            self.note(format_args!(
                "sends again {} from {first:?}",
                self.waiting.len()
            ));
        }
        bytes
    }

    /// Sends; false if the connection has to be given up.
    async fn send(&mut self, connection: &mut Connection, bytes: &[u8]) -> bool {
        match timeout(PATIENCE, connection.client.try_send(bytes)).await {
            Ok(true) => true,
            Ok(false) => {
                self.was_closed(connection).await;
                false
            }
            Err(_) => {
                self.note("is tired of sending, and leaves in the middle of it");
                false
            }
        }
    }

    async fn serve(&mut self, mut connection: Connection) {
        while !self.is_done() {
            if self.random.random_bool(self.habits.leaves) {
                return self.leave(connection).await;
            }
            let has_room = self.waiting.len() < self.habits.window;
            let publishes = !self.has_published_all() && has_room;
            if publishes && self.random.random_bool(0.7) {
                let message = self.next_message();
                let bytes = self.first_time(&mut connection, &message);
                if !self.send(&mut connection, &bytes).await {
                    return;
                }
                sleep(self.up_to(self.habits.pause)).await;
            } else {
                let patience = self.up_to(self.habits.sloth);
                match timeout(patience, connection.client.try_next()).await {
                    Ok(Some(got)) => self.take(&mut connection, &got),
                    Ok(None) => return self.was_closed(&mut connection).await,
                    Err(_) => {}
                }
            }
        }
        self.note("is done");
    }

    fn next_message(&mut self) -> Message {
        let label = Label {
            publisher: self.name.clone(),
            number: self.messages.len() as u16 + 1,
        };
        let at = self.random.random_range(0..self.habits.topics.len());
        let (kind, key) = &self.habits.topics[at];
        let qos_1 = self.random.random_bool(self.habits.qos_1);
        let poisoned = self.random.random_bool(self.habits.poison);
        let padding = self.random.random_range(0..200);
        let message = Message::new(label, *kind, key, qos_1, poisoned, padding);
        self.messages.insert(message.label.number, message.clone());
        message
    }

    /// The bytes of a message that is sent for the first time.
    fn first_time(&mut self, connection: &mut Connection, message: &Message) -> Vec<u8> {
        self.note(format_args!(
            "publishes {} to {} with QoS {}",
            message.label,
            message.topic,
            u8::from(message.qos_1)
        ));
        *self.sent.entry(message.label.number).or_default() += 1;
        let id = message.qos_1.then(|| message.id());
        if message.qos_1 {
            connection.on_the_way.push_back(message.id());
            self.waiting.push_back(message.clone());
        }
        client::publish(&message.topic, message.payload.as_bytes(), id)
    }

    fn take(&mut self, connection: &mut Connection, got: &Got) {
        let Got::PubAck(id) = *got else {
            panic!("{} got {got:?}", self.name);
        };
        let expected = connection.on_the_way.pop_front();
        assert_eq!(Some(id), expected, "N3: the PUBACK that {} got", self.name);
        let label = Label {
            publisher: self.name.clone(),
            number: id,
        };
        self.note(format_args!("gets PUBACK {id}"));
        assert!(
            self.world.log.is_confirmed(&label),
            "N1: {label} is acknowledged, and no append of it was confirmed"
        );
        if let Some(at) = self.waiting.iter().position(|message| message.id() == id) {
            self.waiting.remove(at);
            self.acknowledged.push(label);
        }
    }

    /// The gateway has ended the connection: what it sent before still counts, and there must be a reason.
    async fn was_closed(&mut self, connection: &mut Connection) {
        self.take_rest(connection).await;
        if self.world.is_stopping() || self.world.has_lost_its_source(connection.source_changes) {
            return;
        }
        let first = connection.on_the_way.front().copied();
        self.note(format_args!("was closed before {first:?} was acknowledged"));
        let at = self
            .waiting
            .iter()
            .position(|message| Some(message.id()) == first);
        let refused = at.and_then(|at| self.waiting.remove(at));
        let refused =
            refused.unwrap_or_else(|| panic!("N5: {} was closed without a reason", self.name));
        assert!(
            self.world.may_close_for(&refused),
            "N5: {} was closed for {}",
            self.name,
            refused.label
        );
    }

    async fn take_rest(&mut self, connection: &mut Connection) {
        loop {
            match timeout(PATIENCE, connection.client.try_next()).await {
                Ok(Some(got)) => self.take(connection, &got),
                Ok(None) => return,
                Err(_) => panic!("{}: the connection does not end", self.name),
            }
        }
    }

    /// Ends the connection in one of many ways.
    async fn leave(&mut self, mut connection: Connection) {
        match self.random.random_range(0..5) {
            0 => self.note("breaks its connection"),
            1 => {
                self.note("closes its half");
                connection.client.close_half().await;
                // It may wait for room, and its end is not seen then.
                let end = self.take_rest(&mut connection);
                let _ = timeout(Duration::from_secs(10), end).await;
            }
            2 => {
                self.note("breaks its connection in the middle of a packet");
                let bytes = client::publish("p/half/x", b"half", Some(u16::MAX));
                let half = &bytes[..self.random.random_range(1..bytes.len())];
                let _ = timeout(PATIENCE, connection.client.try_send(half)).await;
            }
            3 => {
                self.note("disconnects");
                let _ = timeout(PATIENCE, connection.client.try_send(&[0xe0, 0])).await;
            }
            _ => {
                self.note("takes its connection over");
                let Some(newer) = self.connect().await else {
                    return;
                };
                self.take_rest(&mut connection).await;
                return Box::pin(self.serve(newer)).await;
            }
        }
        // Sometimes the gateway sees the end of the old connection before the new one.
        if self.random.random_bool(0.5) {
            drop(connection);
            sleep(self.up_to(Duration::from_secs(2))).await;
        }
    }
}

/// How long a publisher waits for what has to come, or to go.
const PATIENCE: Duration = Duration::from_secs(120);
