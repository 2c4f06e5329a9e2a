//! The room for messages that wait to be stored: `ingest_bytes` for all connections together, shared fairly.
//!
//! What always holds: what is held never exceeds the total (N4). A client that holds something may hold no more than
//! what is still free for others, so one that floods gets half of the room at most, two get a third each, and a newcomer
//! always finds some. One that holds nothing comes before all that hold something, first come first served, so that no
//! message waits for ever, however large; whoever stops waiting makes place at once. No order but that is promised.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// How many that hold something already are looked at when room becomes free; the others' turn comes with the next.
const LOOKED_AT: usize = 32;

/// See the module.
#[derive(Debug)]
pub struct Room {
    state: Mutex<State>,
    /// What is held; written under the lock, read without it by those who look from outside.
    held: AtomicUsize,
}

#[derive(Debug)]
struct State {
    total: usize,
    free: usize,
    closed: bool,
    /// Those that hold nothing; served strictly in order.
    empty_handed: VecDeque<Waiter>,
    /// Those that hold something.
    others: VecDeque<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    held: Arc<AtomicUsize>,
    bytes: usize,
    grant: oneshot::Sender<Hold>,
}

/// One client's share of the room.
#[derive(Debug)]
pub struct Share {
    /// What the client holds. Changes only under the room's lock.
    held: Arc<AtomicUsize>,
}

/// Some bytes of the room; free again when it is dropped.
#[derive(Debug)]
pub struct Hold {
    room: Arc<Room>,
    held: Arc<AtomicUsize>,
    bytes: usize,
}

impl State {
    fn may_take(&self, held: usize, bytes: usize) -> bool {
        bytes <= self.free && (held == 0 || held + bytes <= self.free)
    }
}

impl Room {
    /// Room for `total` bytes.
    pub fn new(total: usize) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                total,
                free: total,
                closed: false,
                empty_handed: VecDeque::new(),
                others: VecDeque::new(),
            }),
            held: AtomicUsize::new(0),
        })
    }

    /// The share of a new client, which holds nothing.
    pub fn share() -> Share {
        Share {
            held: Arc::default(),
        }
    }

    /// How many bytes are held.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Holds the lock under which room is given.
    #[cfg(test)]
    pub(super) fn lock(&self) -> impl Sized + '_ {
        self.state.lock()
    }

    /// Nothing is granted any more; whoever waits is told.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let waiting = (
            std::mem::take(&mut state.empty_handed),
            std::mem::take(&mut state.others),
        );
        drop(state);
        drop(waiting);
    }

    fn hold(self: &Arc<Self>, state: &mut State, held: &Arc<AtomicUsize>, bytes: usize) -> Hold {
        state.free -= bytes;
        self.held.store(state.total - state.free, Ordering::Relaxed);
        held.fetch_add(bytes, Ordering::Relaxed);
        Hold {
            room: self.clone(),
            held: held.clone(),
            bytes,
        }
    }

    /// Gives what is free to those that wait. What nobody took any more is returned, to be dropped without the lock.
    fn grant(self: &Arc<Self>, state: &mut State) -> Vec<Hold> {
        let mut refused = Vec::new();
        while let Some(first) = state.empty_handed.front() {
            if first.grant.is_closed() {
                state.empty_handed.pop_front();
                continue;
            }
            if first.bytes > state.free {
                return refused;
            }
            if let Some(waiter) = state.empty_handed.pop_front() {
                let hold = self.hold(state, &waiter.held, waiter.bytes);
                refused.extend(waiter.grant.send(hold).err());
            }
        }
        for _ in 0..state.others.len().min(LOOKED_AT) {
            let Some(waiter) = state.others.pop_front() else {
                break;
            };
            if waiter.grant.is_closed() {
                continue;
            }
            let held = waiter.held.load(Ordering::Relaxed);
            if state.may_take(held, waiter.bytes) {
                let hold = self.hold(state, &waiter.held, waiter.bytes);
                refused.extend(waiter.grant.send(hold).err());
            } else if held == 0 {
                // All it held has ended while it waited.
                state.empty_handed.push_back(waiter);
            } else {
                state.others.push_back(waiter);
            }
        }
        refused
    }
}

impl Share {
    /// Takes room if there is some now.
    pub fn try_take(&self, room: &Arc<Room>, bytes: usize) -> Option<Hold> {
        let mut state = room.state.lock();
        let bytes = bytes.min(state.total);
        let held = self.held.load(Ordering::Relaxed);
        let may = !state.closed && state.empty_handed.is_empty() && state.may_take(held, bytes);
        may.then(|| room.hold(&mut state, &self.held, bytes))
    }

    /// Waits for room; `None` if none will be given any more. More than the whole room counts as the whole room.
    pub async fn take(&self, room: &Arc<Room>, bytes: usize) -> Option<Hold> {
        let granted = {
            let mut state = room.state.lock();
            if state.closed {
                return None;
            }
            let bytes = bytes.min(state.total);
            let held = self.held.load(Ordering::Relaxed);
            if state.empty_handed.is_empty() && state.may_take(held, bytes) {
                return Some(room.hold(&mut state, &self.held, bytes));
            }
            let (grant, granted) = oneshot::channel();
            let waiter = Waiter {
                held: self.held.clone(),
                bytes,
                grant,
            };
            match held {
                0 => state.empty_handed.push_back(waiter),
                _ => state.others.push_back(waiter),
            }
            granted
        };
        Waiting { room, granted }.granted().await
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.held.load(Ordering::Relaxed) == 0
    }
}

/// Somebody waits. When it stops, others may be served.
struct Waiting<'a> {
    room: &'a Arc<Room>,
    granted: oneshot::Receiver<Hold>,
}

impl Waiting<'_> {
    async fn granted(mut self) -> Option<Hold> {
        (&mut self.granted).await.ok()
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.granted.close();
        // Granted, and not looked at: it is given back after the lock.
        let _unseen = self.granted.try_recv();
        let refused = self.room.grant(&mut self.room.state.lock());
        drop(refused);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let room = self.room.clone();
        let refused = {
            let mut state = room.state.lock();
            state.free += self.bytes;
            let held = state.total - state.free;
            room.held.store(held, Ordering::Relaxed);
            self.held.fetch_sub(self.bytes, Ordering::Relaxed);
            room.grant(&mut state)
        };
        // Each gives its bytes back in turn.
        drop(refused);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    /// Long past anything that happens by itself.
    const NEVER: Duration = Duration::from_secs(3600);

    #[test]
    fn one_that_floods_gets_half_and_a_newcomer_always_finds_some() {
        let room = Room::new(1000);
        let flood = Room::share();
        let holds: Vec<_> = std::iter::from_fn(|| flood.try_take(&room, 10)).collect();
        assert_eq!(holds.len(), 50);
        let other = Room::share();
        let others: Vec<_> = std::iter::from_fn(|| other.try_take(&room, 10)).collect();
        assert_eq!(others.len(), 25);
        drop(holds);
        assert!(other.try_take(&room, 10).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_holds_nothing_comes_first_and_gets_even_the_whole_room() {
        let room = Room::new(1000);
        let flood = Room::share();
        let mut holds: Vec<_> = std::iter::from_fn(|| flood.try_take(&room, 100)).collect();
        let large = Room::share();
        let mut whole = std::pin::pin!(large.take(&room, 5000));
        assert!(timeout(NEVER, &mut whole).await.is_err());
        // Nobody overtakes it.
        let late = Room::share();
        assert!(late.try_take(&room, 1).is_none());
        let mut more = std::pin::pin!(flood.take(&room, 100));
        while holds.pop().is_some() {
            assert!(timeout(NEVER, &mut more).await.is_err());
        }
        let whole = timeout(NEVER, whole).await.unwrap().unwrap();
        assert!(timeout(NEVER, &mut more).await.is_err());
        drop(whole);
        assert!(timeout(NEVER, more).await.unwrap().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_stops_waiting_leaves_nothing_behind() {
        let room = Room::new(100);
        let (one, two, three) = (Room::share(), Room::share(), Room::share());
        let all = one.try_take(&room, 100).unwrap();
        assert!(timeout(NEVER, two.take(&room, 60)).await.is_err());
        let mut given_up = Box::pin(two.take(&room, 60));
        assert!(timeout(NEVER, &mut given_up).await.is_err());
        drop(all);
        // It has been granted, and nobody looks.
        drop(given_up);
        let whole = timeout(NEVER, three.take(&room, 100)).await.unwrap();
        assert!(whole.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn closing_ends_the_waiting() {
        let room = Room::new(100);
        let (one, two) = (Room::share(), Room::share());
        let hold = one.try_take(&room, 100);
        let waiting = two.take(&room, 10);
        let closing = async { room.close() };
        let (waited, ()) = tokio::join!(waiting, closing);
        assert!(waited.is_none());
        drop(hold);
        assert!(one.try_take(&room, 1).is_none());
        assert!(one.take(&room, 1).await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn n4_what_is_held_stays_below_the_total_and_everybody_gets_through() {
        let room = Room::new(500);
        let mut tasks = Vec::new();
        for n in 0..100_usize {
            let room = room.clone();
            tasks.push(tokio::spawn(async move {
                let share = Room::share();
                let mut holds = VecDeque::new();
                for m in 0..50 {
                    let hold = share.take(&room, 1 + (n * 7 + m * 13) % 400).await.unwrap();
                    {
                        let state = room.state.lock();
                        assert!(state.free <= state.total);
                    }
                    holds.push_back(hold);
                    tokio::time::sleep(Duration::from_millis((n % 5) as u64)).await;
                    // A client that waits has had its messages stored before long.
                    let stored = holds.pop_front();
                    drop(stored);
                }
            }));
        }
        for task in tasks {
            timeout(NEVER, task).await.unwrap().unwrap();
        }
        assert_eq!(room.state.lock().free, 500);
    }
}
