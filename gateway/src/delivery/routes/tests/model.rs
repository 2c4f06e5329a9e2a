//! Routing with the outboxes and the ledger, against a simple model under random actions: D2 to D5.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

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
