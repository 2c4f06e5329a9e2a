//! What a client has published on the connections before its present one, and its share of the room.
//!
//! What always holds: it belongs to the client, not to a connection, so connections that end early take nothing of it
//! along; at most `dedup_window` stored messages are remembered, each until `dedup_time` after its connection ended; a
//! message on its way to the log is waited for by one connection at most, the last that has sent it again; what a client
//! holds of the room counts on, however often it reconnects (N4).

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::acks::{Content, Joined};
use super::lane::Committed;
use super::publisher::Publisher;
use super::room::{Room, Share};
use super::ticket::Ticket;
use crate::mqtt::{ClientId, PacketId};

/// A message that is stored, as its client knows it.
pub type Stored = (PacketId, Content, Committed);

/// See the module.
///
/// A publisher's lock may be held when this one's is taken, never the other way round.
#[derive(Debug)]
pub struct History {
    window: usize,
    keep: Duration,
    pub(super) share: Share,
    past: Mutex<Past>,
}

#[derive(Debug, Default)]
struct Past {
    /// Oldest first, with the time until which each counts.
    stored: VecDeque<(Stored, Instant)>,
    /// The client's newest connection.
    current: Weak<Publisher>,
    /// Ended connections that may have messages on their way to the log; these keep them alive. Oldest first.
    unfinished: Vec<Weak<Publisher>>,
}

impl History {
    /// Of a client that is not known: at most `window` messages, for `keep` after their connection.
    pub fn new(window: usize, keep: Duration) -> Arc<Self> {
        Arc::new(Self {
            window,
            keep,
            share: Room::share(),
            past: Mutex::default(),
        })
    }

    /// How many stored messages are remembered.
    pub fn window(&self) -> usize {
        self.window
    }

    /// `publisher` is the client's connection from now on; the one before has left.
    pub fn begin(&self, publisher: &Arc<Publisher>, now: Instant) {
        let current = Arc::downgrade(publisher);
        let before = std::mem::replace(&mut self.past.lock().current, current);
        if let Some(before) = before.upgrade() {
            before.leave(now);
        }
    }

    /// A connection has left, and what it stored counts from `now` on.
    pub(super) fn left(&self, publisher: &Arc<Publisher>, stored: VecDeque<Stored>, now: Instant) {
        self.remember(stored, now);
        let mut past = self.past.lock();
        past.unfinished.retain(|known| known.strong_count() > 0);
        past.unfinished.push(Arc::downgrade(publisher));
    }

    /// Adds what was stored on a connection that left at `left`.
    pub(super) fn remember(&self, stored: VecDeque<Stored>, left: Instant) {
        let until = left + self.keep;
        let mut past = self.past.lock();
        past.stored
            .extend(stored.into_iter().map(|stored| (stored, until)));
        let excess = past.stored.len().saturating_sub(self.window);
        past.stored.drain(..excess);
    }

    /// Lets `ticket` share the fate of the message with that id and content, if an earlier connection has sent it.
    pub(super) fn join(
        &self,
        id: PacketId,
        content: Content,
        mut ticket: Ticket,
        now: Instant,
    ) -> Joined {
        let unfinished: Vec<_> = {
            let past = self.past.lock();
            let alive = past.unfinished.iter().rev();
            alive.filter_map(Weak::upgrade).collect()
        };
        for publisher in unfinished {
            match publisher.join(id, content, ticket) {
                Joined::Unknown(unused) => ticket = unused,
                joined => return joined,
            }
        }
        // After the connections: what is settled meanwhile has come here.
        let past = self.past.lock();
        let known = past
            .stored
            .iter()
            .rev()
            .find(|((known, what, _), until)| (*known, *what) == (id, content) && now < *until);
        match known {
            Some(((_, _, evidence), _)) => Joined::Stored(*evidence, ticket),
            None => Joined::Unknown(ticket),
        }
    }

    /// Whether a client that is not connected need not be known any longer.
    fn is_over(&self, now: Instant) -> bool {
        let past = self.past.lock();
        self.share.is_empty() && past.stored.back().is_none_or(|(_, until)| *until <= now)
    }
}

/// The histories of all clients: of those that are connected, and for a while of those that have left.
///
/// What always holds: of clients that have left at most as many are known as connections are allowed.
pub struct Histories {
    window: usize,
    keep: Duration,
    most: usize,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    by_client: HashMap<ClientId, Entry>,
    /// Clients that have left, in the order in which they did, and when.
    left: BTreeMap<u64, (Instant, ClientId)>,
    /// How many have left so far.
    turns: u64,
}

struct Entry {
    history: Arc<History>,
    connections: usize,
    /// Its place among those that have left.
    left: Option<u64>,
}

impl Known {
    fn has_left(&mut self, client: ClientId, now: Instant) {
        self.turns += 1;
        if let Some(entry) = self.by_client.get_mut(&client) {
            entry.left = Some(self.turns);
            self.left.insert(self.turns, (now, client));
        }
    }
}

impl Histories {
    /// Nobody is known; of those that leave at most `most` will be.
    pub fn new(window: usize, keep: Duration, most: usize) -> Self {
        Self {
            window,
            keep,
            most,
            known: Mutex::default(),
        }
    }

    /// A connection of `client` begins; [`Histories::leave`] has to follow.
    pub fn enter(&self, client: &ClientId) -> Arc<History> {
        let mut known = self.known.lock();
        let known = &mut *known;
        let entry = known
            .by_client
            .entry(client.clone())
            .or_insert_with(|| Entry {
                history: History::new(self.window, self.keep),
                connections: 0,
                left: None,
            });
        entry.connections += 1;
        if let Some(left) = entry.left.take() {
            known.left.remove(&left);
        }
        entry.history.clone()
    }

    /// A connection of `client` has ended.
    pub fn leave(&self, client: &ClientId, now: Instant) {
        let mut known = self.known.lock();
        let known = &mut *known;
        let Some(entry) = known.by_client.get_mut(client) else {
            return;
        };
        entry.connections -= 1;
        if entry.connections > 0 {
            return;
        }
        if entry.history.is_over(now) {
            known.by_client.remove(client);
        } else {
            known.has_left(client.clone(), now);
        }
        self.forget(known, now);
    }

    /// Forgets those whose time is over, and the oldest of too many.
    fn forget(&self, known: &mut Known, now: Instant) {
        while let Some((_, (left, _))) = known.left.first_key_value() {
            let too_many = known.left.len() > self.most;
            if !too_many && now.duration_since(*left) < self.keep {
                return;
            }
            let Some((_, (_, client))) = known.left.pop_first() else {
                return;
            };
            let is_over = |entry: &Entry| entry.history.is_over(now);
            if too_many || known.by_client.get(&client).is_none_or(is_over) {
                known.by_client.remove(&client);
            } else {
                // It has messages on their way still; later.
                known.has_left(client, now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEEP: Duration = Duration::from_secs(60);

    fn client(n: usize) -> ClientId {
        ClientId::new(&format!("c{n}")).unwrap()
    }

    fn stored(n: u16) -> VecDeque<Stored> {
        let id = PacketId::new(n).unwrap();
        VecDeque::from([(id, Content(n.into()), Committed::for_tests())])
    }

    fn knows(history: &History, n: u16, now: Instant) -> bool {
        let ((id, content, _), ticket) = (stored(n)[0], Ticket::for_tests());
        matches!(history.join(id, content, ticket, now), Joined::Stored(..))
    }

    #[tokio::test(start_paused = true)]
    async fn each_message_is_remembered_for_its_time_after_its_own_connection() {
        let history = History::new(8, KEEP);
        let start = Instant::now();
        history.remember(stored(1), start);
        history.remember(stored(2), start + KEEP / 2);
        let almost = start + KEEP - Duration::from_millis(1);
        assert!(knows(&history, 1, almost) && knows(&history, 2, almost));
        assert!(!knows(&history, 1, start + KEEP));
        assert!(knows(&history, 2, start + KEEP));
    }

    #[tokio::test(start_paused = true)]
    async fn the_newest_are_remembered_when_there_are_too_many() {
        let history = History::new(2, KEEP);
        let now = Instant::now();
        for n in 1..=3 {
            history.remember(stored(n), now);
        }
        assert!(!knows(&history, 1, now));
        assert!(knows(&history, 2, now) && knows(&history, 3, now));
    }

    #[tokio::test(start_paused = true)]
    async fn n4_clients_that_have_left_are_known_for_a_while_and_are_not_too_many() {
        let histories = Histories::new(8, KEEP, 3);
        let start = Instant::now();
        histories.enter(&client(9));
        histories.leave(&client(9), start);
        assert!(
            histories.known.lock().by_client.is_empty(),
            "nothing to know"
        );
        for n in 0..5 {
            histories.enter(&client(n)).remember(stored(1), start);
            histories.leave(&client(n), start);
        }
        let known = |n: usize, now| {
            let known = knows(&histories.enter(&client(n)), 1, now);
            histories.leave(&client(n), now);
            known
        };
        assert!(!known(0, start) && !known(1, start), "the oldest go first");
        assert!(known(2, start) && known(2, start), "it may come back twice");
        assert!(known(3, start + KEEP - Duration::from_millis(1)));
        assert!(!known(4, start + KEEP));
        let known = histories.known.lock();
        assert!(known.by_client.len() <= 3 && known.left.len() <= 3);
    }

    #[tokio::test(start_paused = true)]
    async fn n4_a_client_with_messages_on_their_way_keeps_its_share_however_long_that_takes() {
        let histories = Histories::new(8, KEEP, 3);
        let room = Room::new(100);
        let now = Instant::now();
        let history = histories.enter(&client(1));
        let hold = history.share.try_take(&room, 40).unwrap();
        histories.leave(&client(1), now);
        for minute in 1..10 {
            let now = now + KEEP * minute;
            histories.enter(&client(2)).remember(stored(1), now);
            histories.leave(&client(2), now);
        }
        assert!(Arc::ptr_eq(&histories.enter(&client(1)), &history));
        histories.leave(&client(1), now + KEEP * 10);
        drop(hold);
        let now = now + KEEP * 12;
        histories.enter(&client(2)).remember(stored(1), now);
        histories.leave(&client(2), now);
        assert!(!Arc::ptr_eq(&histories.enter(&client(1)), &history));
    }
}
