//! Routing alone: what lags, what is safe meanwhile, what a new subscription begins with; and all of it together, with the
//! outboxes and the ledger, against a simple model under random actions.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::config::Limits;
use crate::mapping::envelope::{HeaderSet, Published, seal};
use crate::mqtt::{ClientId, PacketId};

fn record(offset: u64, topic: &TopicName, qos: QoS) -> StoredRecord {
    let published = Published {
        topic,
        qos,
        packet_id: PacketId::new(1),
        retain: false,
        dup: false,
        client_id: &ClientId::new("p").unwrap(),
        payload: &Bytes::from(format!("{offset:050}")),
    };
    let record = seal(&published, offset.into(), HeaderSet::ALL);
    StoredRecord {
        offset,
        id: record.id,
        timestamp_micros: offset * 1_000_000,
        headers: record.headers,
        payload: record.payload,
    }
}

fn records(range: std::ops::Range<u64>) -> Vec<StoredRecord> {
    range
        .map(|offset| record(offset, &topic(), QoS::AtLeastOnce))
        .collect()
}

fn topic() -> TopicName {
    TopicName::new("t").unwrap()
}

fn context() -> Context {
    Context {
        ledger: SharedLedger::starting_at(0),
        counters: Arc::default(),
        partition: 0,
        foreign: None,
    }
}

fn outbox(id: u64, bytes: usize) -> Arc<Outbox> {
    let limits = Limits {
        outbox_bytes: bytes,
        send_window: 1_000,
        ..Limits::default()
    };
    let now = Instant::now();
    Arc::new(Outbox::new(
        ConnectionId(id),
        &limits,
        Arc::default(),
        Arc::default(),
        now,
    ))
}

fn routes() -> Routes {
    Routes::starting_at(0, None, Instant::now())
}

/// Writes and acknowledges all that is queued; says how many copies that were.
fn take_all(outbox: &Outbox, acknowledged: &mut u16) -> usize {
    let copies = outbox.take(usize::MAX, Instant::now()).copies;
    for _ in 0..copies {
        *acknowledged += 1;
        outbox.acknowledge(PacketId::new(*acknowledged).unwrap(), Instant::now());
    }
    copies
}

#[test]
fn d4_what_a_lagging_subscriber_still_needs_is_not_safe_though_all_its_copies_are_done() {
    let (context, outbox, now) = (context(), outbox(1, 1_000), Instant::now());
    let mut routes = routes();
    routes.subscribe(&outbox, &topic(), QoS::AtLeastOnce, None, now);
    let turns = routes.route(0, &records(0..50), &context);
    let [turn] = &turns[..] else {
        panic!("it does not lag")
    };
    let mut acknowledged = 0;
    let first = take_all(&outbox, &mut acknowledged) as u64;
    assert!(first > 0 && first < 50);
    assert_eq!(context.ledger.open_records(), 0);
    assert_eq!(routes.safe(&context, now), Some(first - 1));
    // It catches up in steps, and only then all is safe.
    while let Some(reading) = routes.to_read(turn) {
        assert_eq!(reading.0, u64::from(acknowledged), "no gap, nothing twice");
        routes.catch_up(turn, reading, &records(reading.0..50), &context);
        assert_eq!(
            routes.safe(&context, now),
            u64::from(acknowledged).checked_sub(1)
        );
        take_all(&outbox, &mut acknowledged);
    }
    assert_eq!(acknowledged, 50);
    assert_eq!(routes.safe(&context, now), Some(49));
}

#[test]
fn a_topic_subscribed_to_while_lagging_brings_nothing_from_before() {
    let (context, outbox, now) = (context(), outbox(1, 1_000), Instant::now());
    let other = TopicName::new("other").unwrap();
    let mut routes = routes();
    routes.subscribe(&outbox, &other, QoS::AtLeastOnce, None, now);
    let of_other: Vec<_> = (0..20)
        .map(|n| record(n, &other, QoS::AtLeastOnce))
        .collect();
    let turns = routes.route(0, &of_other, &context);
    assert_eq!(turns.len(), 1);
    routes.subscribe(&outbox, &topic(), QoS::AtLeastOnce, None, now);
    routes.unsubscribe(outbox.id(), &other, now);
    let mut acknowledged = 0;
    take_all(&outbox, &mut acknowledged);
    let reading = routes.to_read(&turns[0]).unwrap();
    let outcome = routes.catch_up(&turns[0], reading, &records(reading.0..20), &context);
    assert_eq!(outcome, CaughtUp::Over);
    assert_eq!(outbox.take(usize::MAX, Instant::now()).copies, 0);
    routes.route(0, &records(20..21), &context);
    assert_eq!(outbox.take(usize::MAX, Instant::now()).copies, 1);
}

#[test]
fn a_subscription_that_begins_earlier_brings_its_own_records_only() {
    let (context, outbox, now) = (context(), outbox(1, 100_000), Instant::now());
    let other = TopicName::new("other").unwrap();
    let mut routes = routes();
    routes.subscribe(&outbox, &other, QoS::AtLeastOnce, None, now);
    let log: Vec<_> = (0..10)
        .map(|n| {
            let name = if n % 2 == 0 { other.clone() } else { topic() };
            record(n, &name, QoS::AtLeastOnce)
        })
        .collect();
    routes.route(0, &log, &context);
    assert_eq!(outbox.take(usize::MAX, now).copies, 5);
    let turn = routes
        .subscribe(&outbox, &topic(), QoS::AtLeastOnce, Some(4), now)
        .unwrap();
    let reading = routes.to_read(&turn).unwrap();
    assert_eq!(reading.0, 4);
    routes.catch_up(&turn, reading, &log[4..], &context);
    assert_eq!(outbox.take(usize::MAX, now).copies, 3, "5, 7 and 9");
}

#[test]
fn what_was_read_before_the_log_changed_is_not_delivered_after() {
    let (context, outbox, now) = (context(), outbox(1, 300), Instant::now());
    let mut routes = routes();
    routes.subscribe(&outbox, &topic(), QoS::AtLeastOnce, None, now);
    let turns = routes.route(0, &records(0..10), &context);
    let reading = routes.to_read(&turns[0]).unwrap();
    routes.regress(9, &context);
    let outcome = routes.catch_up(&turns[0], reading, &records(reading.0..10), &context);
    assert_eq!(outcome, CaughtUp::Behind, "it reads again");
    assert!(routes.route(0, &records(10..20), &context).is_empty());
    assert_eq!(routes.position(), (9, 1));
}

#[test]
fn who_is_too_far_behind_is_told_by_records_and_by_time() {
    let (context, outbox, now) = (context(), outbox(1, 300), Instant::now());
    let mut routes = routes();
    routes.subscribe(&outbox, &topic(), QoS::AtLeastOnce, None, now);
    routes.route(0, &records(0..100), &context);
    let [cursor] = &routes.cursors()[..] else {
        panic!("no cursor")
    };
    assert_eq!(cursor.pace, CursorPace::Lagging);
    assert_eq!(cursor.lag, 100 - cursor.next);
    assert_eq!(cursor.lag_time, Duration::from_secs(99 - cursor.next));
    let (lag, time) = (cursor.lag, cursor.lag_time);
    let second = Duration::from_secs(1);
    assert!(routes.too_far_behind(lag, time).is_empty());
    assert_eq!(routes.too_far_behind(lag - 1, time), [outbox.id()]);
    assert_eq!(routes.too_far_behind(lag, time - second), [outbox.id()]);
}

#[test]
fn what_is_resumed_is_not_committed_until_nobody_can_come_for_it_any_more() {
    let (context, outbox, now) = (context(), outbox(1, 100_000), Instant::now());
    context.ledger.advance(10);
    let until = now + Duration::from_secs(60);
    let mut routes = Routes::starting_at(10, Some(Resume { from: 4, until }), now);
    let turn = routes
        .subscribe(&outbox, &topic(), QoS::AtLeastOnce, None, now)
        .unwrap();
    let reading = routes.to_read(&turn).unwrap();
    assert_eq!(reading.0, 4);
    routes.catch_up(&turn, reading, &records(4..10), &context);
    take_all(&outbox, &mut 0);
    assert_eq!(routes.safe(&context, now), Some(3));
    assert_eq!(routes.safe(&context, until), Some(9));
    let other = self::outbox(2, 100_000);
    assert!(
        routes
            .subscribe(&other, &topic(), QoS::AtLeastOnce, None, now)
            .is_some()
    );
    let late = self::outbox(3, 100_000);
    assert!(
        routes
            .subscribe(&late, &topic(), QoS::AtLeastOnce, None, until)
            .is_none()
    );
}

#[derive(Debug, Clone)]
enum Action {
    Store(Vec<(u8, bool)>),
    Read(u8),
    Write(u8, u16),
    Acknowledge(u8, usize),
    CatchUp(usize, u8),
    Subscribe(u8, u8, bool),
    Unsubscribe(u8, u8),
    Leave(u8),
}

const CLIENTS: u8 = 3;
const TOPICS: u8 = 3;

fn action() -> impl Strategy<Value = Action> {
    let client = 0..CLIENTS;
    let name = 0..TOPICS;
    prop_oneof![
        3 => prop::collection::vec((0..TOPICS, prop::bool::weighted(0.8)), 1..6).prop_map(Action::Store),
        3 => (1u8..5).prop_map(Action::Read),
        3 => (client.clone(), 1u16..400).prop_map(|(c, n)| Action::Write(c, n)),
        4 => (client.clone(), any::<usize>()).prop_map(|(c, i)| Action::Acknowledge(c, i)),
        4 => (any::<usize>(), 1u8..5).prop_map(|(i, n)| Action::CatchUp(i, n)),
        2 => (client.clone(), name.clone(), any::<bool>()).prop_map(|(c, t, q)| Action::Subscribe(c, t, q)),
        1 => (client.clone(), name).prop_map(|(c, t)| Action::Unsubscribe(c, t)),
        1 => client.prop_map(Action::Leave),
    ]
}

/// What the model knows of one client: what it must still get, and what it has.
struct Client {
    outbox: Arc<Outbox>,
    /// Since which offset it has wanted a topic, and with which QoS it wants it now.
    wants: BTreeMap<u8, (u64, bool)>,
    /// Everything it was sent, in order.
    got: Vec<u64>,
    /// What it was sent and has not acknowledged.
    owes: Vec<(PacketId, u64)>,
}

struct World {
    context: Context,
    routes: Routes,
    log: Vec<(u8, StoredRecord)>,
    clients: Vec<Client>,
    turns: Vec<Turn>,
    connections: u64,
    now: Instant,
    safe: Option<u64>,
}

fn name(topic: u8) -> TopicName {
    TopicName::new(topic.to_string()).unwrap()
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            context: context(),
            routes: routes(),
            log: Vec::new(),
            clients: Vec::new(),
            turns: Vec::new(),
            connections: 0,
            now: Instant::now(),
            safe: None,
        };
        for _ in 0..CLIENTS {
            let client = world.client();
            world.clients.push(client);
        }
        world
    }

    fn client(&mut self) -> Client {
        self.connections += 1;
        let limits = Limits {
            // About three messages.
            outbox_bytes: 400,
            send_window: 4,
            ..Limits::default()
        };
        let outbox = Outbox::new(
            ConnectionId(self.connections),
            &limits,
            Arc::default(),
            Arc::default(),
            self.now,
        );
        Client {
            outbox: Arc::new(outbox),
            wants: BTreeMap::new(),
            got: Vec::new(),
            owes: Vec::new(),
        }
    }

    fn from(&self, offset: u64, most: u8) -> Vec<StoredRecord> {
        let records = self.log.iter().skip(offset as usize);
        records
            .take(most.into())
            .map(|(_, record)| record.clone())
            .collect()
    }

    fn act(&mut self, action: Action) {
        let (context, now) = (&self.context, self.now);
        match action {
            Action::Store(topics) => {
                for (topic, qos_1) in topics {
                    let qos = if qos_1 {
                        QoS::AtLeastOnce
                    } else {
                        QoS::AtMostOnce
                    };
                    let offset = self.log.len() as u64;
                    self.log.push((topic, record(offset, &name(topic), qos)));
                }
            }
            Action::Read(most) => {
                let (position, epoch) = self.routes.position();
                let records = self.from(position, most);
                let turns = self.routes.route(epoch, &records, context);
                self.turns.extend(turns);
            }
            Action::Write(client, bytes) => {
                let client = &mut self.clients[usize::from(client)];
                let taken = client.outbox.take(bytes.into(), now);
                let mut bytes = &taken.pieces.concat()[..];
                while let [first, length, rest @ ..] = bytes {
                    let (body, rest) = rest.split_at(usize::from(*length));
                    bytes = rest;
                    let qos_1 = first & 2 != 0;
                    let payload = &body[if qos_1 { 5 } else { 3 }..];
                    let offset = std::str::from_utf8(payload).unwrap().parse().unwrap();
                    client.got.push(offset);
                    if qos_1 {
                        let id = PacketId::new(u16::from_be_bytes([body[3], body[4]])).unwrap();
                        client.owes.push((id, offset));
                    }
                }
            }
            Action::Acknowledge(client, index) => {
                let client = &mut self.clients[usize::from(client)];
                if !client.owes.is_empty() {
                    let (id, _) = client.owes.swap_remove(index % client.owes.len());
                    client.outbox.acknowledge(id, now);
                    client.outbox.acknowledge(id, now);
                }
            }
            Action::CatchUp(index, most) => {
                if self.turns.is_empty() {
                    return;
                }
                let at = index % self.turns.len();
                let turn = self.turns[at].clone();
                let Some(outbox) = self.routes.outbox_of(&turn) else {
                    self.turns.swap_remove(at);
                    return;
                };
                if outbox.is_full() {
                    return;
                }
                let reading = self.routes.to_read(&turn).unwrap();
                let records = self.from(reading.0, most);
                let outcome = self.routes.catch_up(&turn, reading, &records, context);
                if outcome == CaughtUp::Over {
                    self.turns.swap_remove(at);
                }
            }
            Action::Subscribe(client, topic, qos_1) => {
                let client = &mut self.clients[usize::from(client)];
                let qos = if qos_1 {
                    QoS::AtLeastOnce
                } else {
                    QoS::AtMostOnce
                };
                let position = self.routes.position().0;
                let turn = self
                    .routes
                    .subscribe(&client.outbox, &name(topic), qos, None, now);
                assert_eq!(turn, None);
                let want = client.wants.entry(topic).or_insert((position, qos_1));
                want.1 = qos_1;
            }
            Action::Unsubscribe(client, topic) => {
                let client = &mut self.clients[usize::from(client)];
                client.wants.remove(&topic);
                self.routes
                    .unsubscribe(client.outbox.id(), &name(topic), now);
            }
            Action::Leave(client) => {
                let new = self.client();
                let left = std::mem::replace(&mut self.clients[usize::from(client)], new);
                self.routes
                    .leave(left.outbox.id(), false, &self.context, now);
                left.outbox.close();
            }
        }
    }

    /// What a client has to get with QoS 1 of what was routed, as far as its subscriptions are as they are now.
    fn due<'a>(&'a self, client: &'a Client) -> impl Iterator<Item = u64> + 'a {
        let position = self.routes.position().0 as usize;
        let records = self.log[..position].iter();
        records.filter_map(|(topic, record)| {
            let (since, qos_1) = client.wants.get(topic)?;
            let published = envelope::open(record).unwrap().qos;
            let is_due = *qos_1 && published == QoS::AtLeastOnce && record.offset >= *since;
            is_due.then_some(record.offset)
        })
    }

    /// What must hold at any moment. Connections of `changed_qos` had a subscription with QoS 0 that has QoS 1 now, so
    /// what they are due by it may have been dropped before.
    fn check(&mut self, changed_qos: &BTreeSet<u64>) {
        let safe = self.routes.safe(&self.context, self.now);
        assert!(safe >= self.safe, "D4: safe has gone back");
        self.safe = safe;
        let safe_below = safe.map_or(0, |safe| safe + 1);
        assert!(safe_below <= self.routes.position().0);
        for client in &self.clients {
            assert!(
                client.got.is_sorted_by(|a, b| a < b),
                "D3: {:?}",
                client.got
            );
            for (_, offset) in &client.owes {
                assert!(
                    *offset >= safe_below,
                    "D4: {offset} is out, {safe:?} is safe"
                );
            }
            if changed_qos.contains(&client.outbox.id().0) {
                continue;
            }
            for due in self.due(client) {
                let is_got = client.got.binary_search(&due).is_ok();
                assert!(is_got || due >= safe_below, "D5: {due} is lost");
            }
        }
    }

    /// Everybody takes and acknowledges everything, until nothing moves any more.
    fn settle(&mut self) {
        for _ in 0..self.log.len() * 4 + 20 {
            self.act(Action::Read(4));
            for client in 0..CLIENTS {
                self.act(Action::Write(client, 400));
                while !self.clients[usize::from(client)].owes.is_empty() {
                    self.act(Action::Acknowledge(client, 0));
                }
            }
            for at in (0..self.turns.len()).rev() {
                let turn = self.turns[at].clone();
                match self.routes.to_read(&turn) {
                    Some(reading) if !self.routes.outbox_of(&turn).unwrap().is_full() => {
                        let records = self.from(reading.0, 4);
                        self.routes
                            .catch_up(&turn, reading, &records, &self.context);
                    }
                    Some(_) => {}
                    None => {
                        self.turns.swap_remove(at);
                    }
                }
            }
        }
    }
}

proptest! {
    /// D2 to D6 and L1 to L4 under random actions: readers, slow and fast clients, subscriptions that come and go.
    #[test]
    fn d2_d3_d4_d5_hold_against_a_model_under_random_actions(
        actions in prop::collection::vec(action(), 1..120)
    ) {
        let mut world = World::new();
        let mut changed_qos = BTreeSet::new();
        for action in actions {
            if let Action::Subscribe(client, topic, qos_1) = &action {
                let client = &world.clients[usize::from(*client)];
                if client.wants.get(topic).is_some_and(|want| want.1 != *qos_1) {
                    changed_qos.insert(client.outbox.id().0);
                }
            }
            world.act(action);
            world.check(&changed_qos);
        }
        world.settle();
        world.check(&changed_qos);
        let end = world.log.len() as u64;
        prop_assert_eq!(world.routes.position().0, end);
        prop_assert_eq!(world.safe, end.checked_sub(1), "all is done");
        prop_assert_eq!(world.context.ledger.open_records(), 0, "L2, L4");
        for client in &world.clients {
            let cursors = world.routes.cursors();
            let cursor = cursors.iter().find(|cursor| cursor.connection == client.outbox.id());
            prop_assert_eq!(cursor.is_some(), !client.wants.is_empty());
            prop_assert!(cursor.is_none_or(|cursor| cursor.pace == CursorPace::Live), "it has met the reader");
            if !changed_qos.contains(&client.outbox.id().0) {
                for due in world.due(client) {
                    prop_assert!(client.got.contains(&due), "D5: {due} is lost");
                }
            }
        }
    }
}
