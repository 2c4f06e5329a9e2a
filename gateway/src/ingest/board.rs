//! The lanes as those see them who look from outside: figures that each lane writes, and nobody waits for.
//!
//! What always holds: looking takes no lock that a message on its way may wait for, so neither how many look nor how often can
//! hold up a message. Figures of one lane are written one after the other, so one look may find them some nanoseconds apart.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::log::Triple;

/// So many lanes have a place on the board; others are counted.
const PLACES: usize = 8_192;

/// What a lane looks like from outside.
#[derive(Debug, Clone)]
pub struct LaneState {
    /// Where it appends.
    pub triple: Triple,
    /// Messages that wait for the next append.
    pub queued: usize,
    /// Messages in the append that is under way.
    pub in_flight: usize,
    /// How long the oldest of all these has been here at most.
    pub oldest: Duration,
    /// For how long its append has failed and been tried again, and why the last try has.
    pub failing: Option<(Duration, String)>,
}

/// See the module.
#[derive(Debug)]
pub struct Board {
    places: Box<[ArcSwapOption<Figures>]>,
    /// Which places are free again. Taken when a lane is made and when it ends, and never by those who look.
    free: Mutex<Vec<usize>>,
    /// All places from here on have never been taken. Moves under the lock of `free`.
    reached: AtomicUsize,
    /// Lanes without a place.
    without: AtomicUsize,
}

/// A lane's figures.
#[derive(Debug)]
struct Figures {
    triple: Triple,
    /// What `since` counts from.
    made: Instant,
    queued: AtomicUsize,
    in_flight: AtomicUsize,
    /// Microseconds from `made` to when the oldest message came at the earliest, and one more; 0 when there is none.
    since: AtomicU64,
    failing: ArcSwapOption<Failing>,
}

/// Appends fail.
#[derive(Debug)]
struct Failing {
    since: Instant,
    error: String,
}

impl Board {
    /// Without lanes.
    pub fn new() -> Arc<Self> {
        Self::with_places(PLACES)
    }

    fn with_places(places: usize) -> Arc<Self> {
        Arc::new(Self {
            places: std::iter::repeat_with(ArcSwapOption::empty)
                .take(places)
                .collect(),
            free: Mutex::default(),
            reached: AtomicUsize::new(0),
            without: AtomicUsize::new(0),
        })
    }

    /// A place for a lane that appends there.
    pub fn enter(self: &Arc<Self>, triple: Triple) -> Place {
        let figures = Arc::new(Figures {
            triple,
            made: Instant::now(),
            queued: AtomicUsize::new(0),
            in_flight: AtomicUsize::new(0),
            since: AtomicU64::new(0),
            failing: ArcSwapOption::empty(),
        });
        let at = {
            let mut free = self.free.lock();
            free.pop().or_else(|| {
                let reached = self.reached.load(Ordering::Relaxed);
                let is_there = reached < self.places.len();
                is_there.then(|| self.reached.fetch_add(1, Ordering::Relaxed))
            })
        };
        match at.and_then(|at| self.places.get(at)) {
            Some(place) => place.store(Some(figures.clone())),
            None => {
                self.without.fetch_add(1, Ordering::Relaxed);
            }
        }
        Place {
            board: self.clone(),
            figures,
            at,
        }
    }

    /// The lanes that have something to do, in no order, one for each partition: a lane that gives back what it has and the one
    /// that follows it count as one.
    pub fn lanes(&self, now: Instant) -> Vec<LaneState> {
        let reached = self.reached.load(Ordering::Relaxed);
        let mut lanes: HashMap<Triple, LaneState> = HashMap::new();
        for place in self.places.iter().take(reached) {
            let figures = place.load();
            let Some(lane) = figures.as_ref().and_then(|figures| figures.state(now)) else {
                continue;
            };
            match lanes.get_mut(&lane.triple) {
                Some(known) => known.add(lane),
                None => {
                    lanes.insert(lane.triple.clone(), lane);
                }
            }
        }
        lanes.into_values().collect()
    }

    /// How many lanes there are besides.
    pub fn without_place(&self) -> usize {
        self.without.load(Ordering::Relaxed)
    }
}

impl LaneState {
    fn add(&mut self, other: Self) {
        self.queued += other.queued;
        self.in_flight += other.in_flight;
        self.oldest = self.oldest.max(other.oldest);
        if self.failing.is_none() {
            self.failing = other.failing;
        }
    }
}

impl Figures {
    /// `None` if nothing is queued or in flight.
    fn state(&self, now: Instant) -> Option<LaneState> {
        let since = self.since.load(Ordering::Relaxed).checked_sub(1)?;
        let failing = self.failing.load();
        Some(LaneState {
            triple: self.triple.clone(),
            queued: self.queued.load(Ordering::Relaxed),
            in_flight: self.in_flight.load(Ordering::Relaxed),
            oldest: now.saturating_duration_since(self.made + Duration::from_micros(since)),
            failing: failing.as_ref().map(|failing| {
                let failing_for = now.saturating_duration_since(failing.since);
                (failing_for, failing.error.clone())
            }),
        })
    }
}

/// A lane's place on the board, which it leaves when this is dropped.
#[derive(Debug)]
pub struct Place {
    board: Arc<Board>,
    figures: Arc<Figures>,
    at: Option<usize>,
}

impl Place {
    /// What the lane holds: messages that are queued, messages that are being appended, and since when the oldest of them is
    /// here at most.
    pub fn holds(&self, queued: usize, in_flight: usize, since: Option<Instant>) {
        let figures = &*self.figures;
        let since = since.map_or(0, |since| {
            let micros = since.saturating_duration_since(figures.made).as_micros();
            u64::try_from(micros).unwrap_or(u64::MAX - 1) + 1
        });
        figures.queued.store(queued, Ordering::Relaxed);
        figures.in_flight.store(in_flight, Ordering::Relaxed);
        figures.since.store(since, Ordering::Relaxed);
    }

    /// One more message is queued, and there were some before: all that a push into a lane under load writes.
    pub fn queues(&self, queued: usize) {
        self.figures.queued.store(queued, Ordering::Relaxed);
    }

    /// An append has failed and is tried again.
    pub fn fails(&self, error: String) {
        let known = self.figures.failing.load();
        let since = known.as_ref().map(|failing| failing.since);
        let since = since.unwrap_or_else(Instant::now);
        let failing = Failing { since, error };
        self.figures.failing.store(Some(Arc::new(failing)));
    }

    /// The outcome of the append is known.
    pub fn fails_no_more(&self) {
        if self.figures.failing.load().is_some() {
            self.figures.failing.store(None);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(at) = self.at else {
            self.board.without.fetch_sub(1, Ordering::Relaxed);
            return;
        };
        if let Some(place) = self.board.places.get(at) {
            place.store(None);
        }
        self.board.free.lock().push(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::triple;

    #[tokio::test(start_paused = true)]
    async fn a_lane_is_seen_while_it_holds_something() {
        let board = Board::new();
        let place = board.enter(triple("t", 3));
        assert!(board.lanes(Instant::now()).is_empty());
        let came = Instant::now();
        place.holds(1, 0, Some(came));
        place.queues(5);
        place.fails("first".to_owned());
        tokio::time::advance(Duration::from_secs(2)).await;
        place.fails("second".to_owned());
        let lanes = board.lanes(came + Duration::from_secs(7));
        let [lane] = &lanes[..] else {
            panic!("{lanes:?}")
        };
        assert_eq!((lane.queued, lane.in_flight), (5, 0));
        assert_eq!(lane.oldest, Duration::from_secs(7));
        let failing = (Duration::from_secs(7), "second".to_owned());
        assert_eq!(lane.failing, Some(failing));
        place.fails_no_more();
        place.holds(0, 4, Some(came));
        let lanes = board.lanes(came);
        assert_eq!((lanes[0].queued, lanes[0].in_flight), (0, 4));
        assert_eq!(lanes[0].failing, None);
        place.holds(0, 0, None);
        assert!(board.lanes(Instant::now()).is_empty());
        place.holds(0, 4, Some(came));
        drop(place);
        assert!(board.lanes(Instant::now()).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn two_lanes_of_one_partition_are_one() {
        let board = Board::new();
        let now = Instant::now();
        let (old, new) = (board.enter(triple("t", 0)), board.enter(triple("t", 0)));
        old.holds(3, 0, Some(now));
        new.holds(2, 1, Some(now));
        let lanes = board.lanes(now);
        let [lane] = &lanes[..] else {
            panic!("{lanes:?}")
        };
        assert_eq!((lane.queued, lane.in_flight), (5, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn places_are_used_again_and_lanes_without_one_are_counted() {
        let board = Board::with_places(2);
        let now = Instant::now();
        let enter = |partition| {
            let place = board.enter(triple("t", partition));
            place.holds(1, 0, Some(now));
            place
        };
        let mut places: Vec<_> = (0..3).map(enter).collect();
        assert_eq!((board.lanes(now).len(), board.without_place()), (2, 1));
        drop(places.remove(0));
        places.push(enter(7));
        assert_eq!((board.lanes(now).len(), board.without_place()), (2, 1));
        assert!(
            board
                .lanes(now)
                .iter()
                .any(|lane| lane.triple.partition == 7)
        );
        places.clear();
        assert_eq!((board.lanes(now).len(), board.without_place()), (0, 0));
    }
}
