//! A subscriber of a run: what it is like, and what each of its connections saw.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;
use tokio::time::{Instant, sleep, timeout};

use super::{TOPICS, World};
use crate::sim::client::packet;
use crate::sim::{Client, Got};

/// What a subscriber is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Reads and acknowledges at once.
    Fast,
    /// Takes its time for each message.
    Slow,
    /// Acknowledges out of order, twice, and what it never got.
    Careless,
    /// Reads and acknowledges nothing.
    Silent,
    /// Does not even read.
    Deaf,
}

impl Kind {
    pub(super) const ALL: [Self; 5] = [
        Self::Fast,
        Self::Slow,
        Self::Careless,
        Self::Silent,
        Self::Deaf,
    ];

    /// Whether it acknowledges what it gets.
    pub(super) fn acknowledges(self) -> bool {
        matches!(self, Self::Fast | Self::Slow | Self::Careless)
    }
}

/// A time for which a topic was subscribed to.
#[derive(Debug, Clone)]
pub(super) struct Interest {
    pub(super) topic: &'static str,
    /// The QoS it was asked for with, one after the other.
    pub(super) qos: Vec<u8>,
    /// When the SUBACK was there.
    pub(super) since: Instant,
    /// Whether it was still there at the end.
    pub(super) lasts: bool,
}

/// A message as it came.
#[derive(Debug, Clone)]
pub(super) struct Delivered {
    pub(super) topic: String,
    pub(super) payload: String,
    pub(super) qos: u8,
    pub(super) dup: bool,
}

impl Delivered {
    /// The message's number.
    pub(super) fn number(&self) -> u64 {
        let number = self.payload.split(' ').next();
        number.and_then(|number| number.parse().ok()).unwrap()
    }
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// It lasted until the run was over.
    Lasted,
    /// The client left, or was taken over by itself.
    Left,
    /// The gateway closed it.
    Closed,
    /// The gateway was killed.
    Killed,
}

/// What one connection of a subscriber saw.
#[derive(Debug, Clone)]
pub(super) struct Session {
    pub(super) client: String,
    pub(super) kind: Kind,
    /// Which gateway.
    pub(super) life: usize,
    pub(super) interests: Vec<Interest>,
    pub(super) delivered: Vec<Delivered>,
    /// The numbers of the messages whose PUBACK was sent.
    pub(super) acknowledged: HashSet<u64>,
    pub(super) end: End,
}

pub(super) struct Subscriber {
    world: Arc<World>,
    name: String,
    kind: Kind,
    random: StdRng,
    /// How often in a step it does something else than to read.
    restless: f64,
    pipe: usize,
}

enum Step {
    Go,
    Ended(End),
}

impl Subscriber {
    pub(super) fn new(world: Arc<World>, name: String, kind: Kind, mut random: StdRng) -> Self {
        Self {
            world,
            name,
            kind,
            restless: [0.0, 0.02, 0.1][random.random_range(0..3)],
            pipe: [128, 1_024, 1 << 16][random.random_range(0..3)],
            random,
        }
    }

    fn note(&self, what: impl std::fmt::Display) {
        self.world.trace.note(&self.name, what);
    }

    /// Connects again and again until the run is over.
    pub(super) async fn run(mut self) {
        sleep(Duration::from_millis(self.random.random_range(0..500))).await;
        let mut wanted = Vec::new();
        while !self.world.is_over() {
            let session = self.connection(&mut wanted).await;
            self.note(format_args!("{:?}", session.end));
            self.world.sessions.lock().push(session);
            if self.world.is_calm() {
                // Who is closed now has nothing more to prove.
                return;
            }
            sleep(Duration::from_millis(self.random.random_range(1..300))).await;
        }
    }

    async fn connection(&mut self, wanted: &mut Vec<(&'static str, u8)>) -> Session {
        let life = self.world.life();
        let mut session = Session {
            client: self.name.clone(),
            kind: self.kind,
            life: life.number,
            interests: Vec::new(),
            delivered: Vec::new(),
            acknowledged: HashSet::new(),
            end: End::Left,
        };
        let mut client = life.sim.dial(self.pipe);
        client.send_connect(&self.name, 0).await;
        session.end = match self.live(&mut client, &mut session, wanted).await {
            Some(end) => end,
            None if self.world.life().number != life.number => End::Killed,
            None => End::Closed,
        };
        session
    }

    /// `None` if the connection ended from the other side.
    async fn live(
        &mut self,
        client: &mut Client,
        session: &mut Session,
        wanted: &mut Vec<(&'static str, u8)>,
    ) -> Option<End> {
        let mut owed = Vec::new();
        let mut waiting = None;
        self.next(client, session, &mut owed, &mut waiting).await?;
        if wanted.is_empty() {
            let count = self.random.random_range(1..=TOPICS.len());
            for _ in 0..count {
                let topic = TOPICS[self.random.random_range(0..TOPICS.len())];
                wanted.push((topic, u8::from(self.random.random_bool(0.8))));
            }
        }
        for (topic, qos) in wanted.clone() {
            self.subscribe(client, session, &mut owed, topic, qos)
                .await?;
        }
        loop {
            match self.step(client, session, &mut owed, wanted).await? {
                Step::Go => {}
                Step::Ended(end) => return Some(end),
            }
        }
    }

    async fn step(
        &mut self,
        client: &mut Client,
        session: &mut Session,
        owed: &mut Vec<(u16, u64)>,
        wanted: &mut Vec<(&'static str, u8)>,
    ) -> Option<Step> {
        if self.world.is_over() {
            return Some(Step::Ended(End::Lasted));
        }
        if self.world.life().number != session.life {
            return Some(Step::Ended(End::Killed));
        }
        let is_restless = !self.world.is_calm() && self.random.random_bool(self.restless);
        if is_restless {
            match self.random.random_range(0..4) {
                0 => {
                    self.note("leaves");
                    return Some(Step::Ended(End::Left));
                }
                1 if wanted.len() > 1 => {
                    let at = self.random.random_range(0..wanted.len());
                    let (topic, _) = wanted[at];
                    wanted.retain(|(other, _)| *other != topic);
                    self.unsubscribe(client, session, owed, topic).await?;
                }
                2 => {
                    // Takes itself over: the older connection is closed by the gateway.
                    self.note("takes itself over");
                    let life = self.world.life();
                    let mut other = life.sim.dial(self.pipe);
                    other.send_connect(&self.name, 0).await;
                    sleep(Duration::from_millis(self.random.random_range(0..20))).await;
                    return Some(Step::Ended(End::Left));
                }
                _ => {
                    let topic = TOPICS[self.random.random_range(0..TOPICS.len())];
                    let qos = u8::from(self.random.random_bool(0.8));
                    wanted.retain(|(other, _)| *other != topic);
                    wanted.push((topic, qos));
                    self.subscribe(client, session, owed, topic, qos).await?;
                }
            }
        }
        if self.kind == Kind::Deaf {
            sleep(Duration::from_millis(200)).await;
            return Some(Step::Go);
        }
        let mut waiting = None;
        let next = self.next(client, session, owed, &mut waiting);
        if let Ok(next) = timeout(Duration::from_millis(500), next).await {
            next?;
        }
        self.acknowledge(client, session, owed).await;
        if self.kind == Kind::Slow {
            sleep(Duration::from_millis(self.random.random_range(0..100))).await;
        }
        Some(Step::Go)
    }

    async fn acknowledge(
        &mut self,
        client: &mut Client,
        session: &mut Session,
        owed: &mut Vec<(u16, u64)>,
    ) {
        let keeps = match self.kind {
            Kind::Fast | Kind::Slow => 0,
            // Its last ones too, when nothing more will come.
            Kind::Careless if self.world.is_calm() => 0,
            Kind::Careless => self.random.random_range(0..5),
            Kind::Silent | Kind::Deaf => return,
        };
        while owed.len() > keeps {
            let at = match self.kind {
                Kind::Careless => self.random.random_range(0..owed.len()),
                _ => 0,
            };
            let (id, number) = owed.remove(at);
            session.acknowledged.insert(number);
            let mut bytes = packet(0x40, &id.to_be_bytes());
            if self.kind == Kind::Careless && self.random.random_bool(0.1) {
                bytes.extend(packet(0x40, &[0xee, 0xee]));
                bytes.extend(packet(0x40, &id.to_be_bytes()));
            }
            client.try_send(&bytes).await;
        }
    }

    async fn subscribe(
        &mut self,
        client: &mut Client,
        session: &mut Session,
        owed: &mut Vec<(u16, u64)>,
        topic: &'static str,
        qos: u8,
    ) -> Option<()> {
        let mut body = vec![0, 1];
        body.extend(u16::try_from(topic.len()).unwrap().to_be_bytes());
        body.extend(topic.as_bytes());
        body.push(qos);
        client.try_send(&packet(0x82, &body)).await;
        self.answer(client, session, owed, &Got::SubAck(1, vec![qos]))
            .await?;
        self.note(format_args!("subscribes to {topic} with {qos}"));
        let lasting = session
            .interests
            .iter_mut()
            .find(|interest| interest.topic == topic && interest.lasts);
        match lasting {
            Some(interest) => interest.qos.push(qos),
            None => session.interests.push(Interest {
                topic,
                qos: vec![qos],
                since: Instant::now(),
                lasts: true,
            }),
        }
        Some(())
    }

    async fn unsubscribe(
        &mut self,
        client: &mut Client,
        session: &mut Session,
        owed: &mut Vec<(u16, u64)>,
        topic: &'static str,
    ) -> Option<()> {
        for interest in &mut session.interests {
            interest.lasts &= interest.topic != topic;
        }
        self.note(format_args!("unsubscribes from {topic}"));
        let mut body = vec![0, 2];
        body.extend(u16::try_from(topic.len()).unwrap().to_be_bytes());
        body.extend(topic.as_bytes());
        client.try_send(&packet(0xa2, &body)).await;
        self.answer(client, session, owed, &Got::UnsubAck(2)).await
    }

    /// Reads until `expected` comes.
    async fn answer(
        &mut self,
        client: &mut Client,
        session: &mut Session,
        owed: &mut Vec<(u16, u64)>,
        expected: &Got,
    ) -> Option<()> {
        loop {
            let mut waiting = None;
            let next = self.next(client, session, owed, &mut waiting);
            if let Ok(next) = timeout(Duration::from_secs(1), next).await {
                next?;
            } else if self.world.life().number != session.life {
                return None;
            }
            match waiting {
                Some(got) => {
                    assert_eq!(got, *expected);
                    return Some(());
                }
                None => self.acknowledge(client, session, owed).await,
            }
        }
    }

    /// Takes one packet: a PUBLISH goes to the session, another to `waiting`.
    async fn next(
        &mut self,
        client: &mut Client,
        session: &mut Session,
        owed: &mut Vec<(u16, u64)>,
        waiting: &mut Option<Got>,
    ) -> Option<()> {
        match client.try_next().await? {
            Got::Publish {
                topic,
                payload,
                qos,
                dup,
                id,
            } => {
                let delivered = Delivered {
                    topic,
                    payload: String::from_utf8(payload).unwrap(),
                    qos,
                    dup,
                };
                if let Some(id) = id {
                    let is_out = owed.iter().any(|(other, _)| *other == id);
                    assert!(!is_out || dup, "packet id {id} is out already");
                    if !is_out {
                        owed.push((id, delivered.number()));
                    }
                }
                session.delivered.push(delivered);
            }
            other => *waiting = Some(other),
        }
        Some(())
    }
}
