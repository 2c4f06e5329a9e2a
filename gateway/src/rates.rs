//! How often clients, and hosts, may connect and publish: a [`Pace`] for each.
//!
//! What always holds: a rate of 0 costs nothing. Who is remembered is one that is connected, or whose pace is not full
//! again; who is forgotten loses nothing by it, save that at most 10,000 of a kind who are gone are remembered. A message that
//! waits has a place in a row, so that it waits once, and gives it back if its connection ends first.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use crate::config::Limits;
use crate::host::Host;
use crate::mqtt::ClientId;
use crate::pace::Pace;

/// The most of a kind that are remembered though they are not connected.
const MOST: usize = 10_000;
/// Those who need not be remembered are looked for when there are twice as many as after the last time, not below this,
const FIRST_SWEEP: usize = 1_024;
/// or after this time.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);

/// The rates of a gateway.
#[derive(Debug)]
pub struct Rates {
    connects: Option<Paces<ClientId>>,
    connects_from: Option<Paces<Host>>,
    publishes: Option<Paces<ClientId>>,
    publishes_from: Option<Paces<Host>>,
}

impl Rates {
    /// As the limits say.
    pub fn new(limits: &Limits) -> Self {
        Self {
            connects: Paces::new(limits.connect_rate),
            connects_from: Paces::new(limits.connect_rate_per_address),
            publishes: Paces::new(limits.publish_rate),
            publishes_from: Paces::new(limits.publish_rate_per_address),
        }
    }

    /// Whether `client` may connect now; counts it, if so.
    pub fn may_connect(&self, client: &ClientId, now: Instant) -> bool {
        let paces = self.connects.as_ref();
        paces.is_none_or(|paces| paces.take(client, now))
    }

    /// Whether someone from `host` may connect now; counts it, if so.
    pub fn may_connect_from(&self, host: Host, now: Instant) -> bool {
        let paces = self.connects_from.as_ref();
        paces.is_none_or(|paces| paces.take(&host, now))
    }

    /// What a connection of `client` from `host` keeps to publish by; `None` if there is no limit.
    pub fn publishing(&self, client: &ClientId, host: Host, now: Instant) -> Option<Publishing> {
        let publishes = self.publishes.as_ref();
        let publishes_from = self.publishes_from.as_ref();
        if publishes.is_none() && publishes_from.is_none() {
            return None;
        }
        let paces = [
            publishes.map(|paces| paces.of(client, now)),
            publishes_from.map(|paces| paces.of(&host, now)),
        ];
        Some(Publishing(paces))
    }
}

/// How fast a connection may publish: as its client, and as one of its host.
#[derive(Debug)]
pub struct Publishing([Option<Arc<Mutex<Pace>>>; 2]);

impl Publishing {
    /// A place for one message; what it has to wait for, if it has.
    pub fn enter(&self, now: Instant) -> Option<Place<'_>> {
        let turns = self.paces().map(|pace| pace.lock().reserve(now));
        let until = turns.max().filter(|until| *until > now)?;
        Some(Place {
            publishing: self,
            until,
            is_used: false,
        })
    }

    fn paces(&self) -> impl Iterator<Item = &Mutex<Pace>> {
        self.0.iter().flatten().map(|pace| &**pace)
    }
}

/// A place in the row of those who publish.
#[derive(Debug)]
pub struct Place<'a> {
    publishing: &'a Publishing,
    until: Instant,
    is_used: bool,
}

impl Place<'_> {
    /// Waits until the message may go.
    pub async fn turn(mut self) {
        sleep_until(self.until).await;
        self.is_used = true;
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if !self.is_used {
            self.publishing
                .paces()
                .for_each(|pace| pace.lock().give_back());
        }
    }
}

/// A pace for each of many.
#[derive(Debug)]
struct Paces<K> {
    rate: u32,
    known: Mutex<Known<K>>,
}

#[derive(Debug)]
struct Known<K> {
    paces: HashMap<K, Arc<Mutex<Pace>>>,
    /// At so many, or at this time, those who need not be remembered are looked for.
    sweep: (usize, Option<Instant>),
}

impl<K: Clone + Eq + Hash> Paces<K> {
    /// `None` if there is no limit.
    fn new(rate: u32) -> Option<Self> {
        (rate > 0).then(|| Self {
            rate,
            known: Mutex::new(Known {
                paces: HashMap::new(),
                sweep: (FIRST_SWEEP, None),
            }),
        })
    }

    /// The pace of `key`. It is remembered for as long as someone has it.
    fn of(&self, key: &K, now: Instant) -> Arc<Mutex<Pace>> {
        let mut known = self.known.lock();
        if let Some(pace) = known.paces.get(key) {
            return pace.clone();
        }
        known.sweep(now);
        let pace = Arc::new(Mutex::new(Pace::new(self.rate, now)));
        known.paces.insert(key.clone(), pace.clone());
        pace
    }

    /// Whether `key` may go once now.
    fn take(&self, key: &K, now: Instant) -> bool {
        let pace = self.of(key, now);
        let mut pace = pace.lock();
        let may = pace.allowed(now).is_ok();
        if may {
            pace.spend(1);
        }
        may
    }
}

impl<K: Eq + Hash> Known<K> {
    fn sweep(&mut self, now: Instant) {
        let (at, time) = self.sweep;
        let time = time.unwrap_or(now + SWEEP_INTERVAL);
        if self.paces.len() < at && now < time {
            self.sweep = (at, Some(time));
            return;
        }
        let mut idle = 0;
        self.paces.retain(|_, pace| {
            let is_used = Arc::strong_count(pace) > 1;
            let is_needed = is_used || !pace.lock().is_full(now);
            idle += usize::from(is_needed && !is_used);
            is_needed
        });
        if idle >= MOST {
            // So many at once are made up, and a limit for each of them limits nothing.
            self.paces.retain(|_, pace| Arc::strong_count(pace) > 1);
        }
        let at = (self.paces.len() * 2).max(FIRST_SWEEP);
        self.sweep = (at, Some(now + SWEEP_INTERVAL));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(n: usize) -> ClientId {
        ClientId::new(&format!("c{n}")).unwrap()
    }

    fn known<K>(paces: &Option<Paces<K>>) -> usize {
        paces.as_ref().unwrap().known.lock().paces.len()
    }

    fn host(n: u8) -> Host {
        std::net::IpAddr::from([192, 0, 2, n]).into()
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_is_limited_or_remembered_by_default() {
        let rates = Rates::new(&Limits::default());
        let now = Instant::now();
        for _ in 0..10_000 {
            assert!(rates.may_connect(&client(1), now) && rates.may_connect_from(host(1), now));
        }
        assert!(rates.publishing(&client(1), host(1), now).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn each_client_and_each_host_connects_at_its_own_rate() {
        let limits = Limits {
            connect_rate: 2,
            connect_rate_per_address: 3,
            ..Limits::default()
        };
        let rates = Rates::new(&limits);
        let now = Instant::now();
        let allowed = |n| {
            (0..10)
                .filter(|_| rates.may_connect(&client(n), now))
                .count()
        };
        assert_eq!((allowed(1), allowed(2)), (2, 2));
        let allowed = |n| {
            (0..10)
                .filter(|_| rates.may_connect_from(host(n), now))
                .count()
        };
        assert_eq!((allowed(1), allowed(2)), (3, 3));
        let later = now + Duration::from_millis(501);
        assert!(rates.may_connect(&client(1), later));
        assert!(
            !rates.may_connect(&client(1), later),
            "what was refused does not count"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_waits_for_the_slower_of_both_paces_and_gives_its_place_back_if_it_does_not_go()
     {
        let limits = Limits {
            publish_rate: 4,
            publish_rate_per_address: 6,
            ..Limits::default()
        };
        let rates = Rates::new(&limits);
        let start = Instant::now();
        let one = rates.publishing(&client(1), host(1), start).unwrap();
        let two = rates.publishing(&client(2), host(1), start).unwrap();
        for _ in 0..4 {
            assert!(one.enter(start).is_none());
        }
        let millis = |place: &Place<'_>| (place.until - start).as_millis();
        let fifth = one.enter(start).unwrap();
        assert_eq!(millis(&fifth), 250, "its client's");
        assert!(two.enter(start).is_none(), "the sixth of the host");
        let seventh = two.enter(start).unwrap();
        assert_eq!(millis(&seventh), 166, "its host's");
        drop(seventh);
        drop(fifth);
        assert!(one.enter(start).is_some_and(|place| millis(&place) == 250));
        fifth_goes(&one).await;
        assert_eq!((Instant::now() - start).as_millis(), 250);
        assert!(one.enter(Instant::now()).is_some(), "it has used its place");
    }

    async fn fifth_goes(publishing: &Publishing) {
        publishing.enter(Instant::now()).unwrap().turn().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_comes_back_has_the_pace_that_it_left() {
        let limits = Limits {
            publish_rate: 4,
            ..Limits::default()
        };
        let rates = Rates::new(&limits);
        let now = Instant::now();
        for _ in 0..4 {
            let connection = rates.publishing(&client(1), host(1), now).unwrap();
            assert!(connection.enter(now).is_none());
        }
        let connection = rates.publishing(&client(1), host(1), now).unwrap();
        assert!(connection.enter(now).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_full_again_is_forgotten_and_who_is_connected_is_not() {
        let limits = Limits {
            publish_rate: 1,
            ..Limits::default()
        };
        let rates = Rates::new(&limits);
        let start = Instant::now();
        let stays = rates.publishing(&client(0), host(1), start).unwrap();
        assert!(stays.enter(start).is_none());
        for n in 1..500 {
            let _ = rates
                .publishing(&client(n), host(1), start)
                .unwrap()
                .enter(start);
        }
        let later = start + SWEEP_INTERVAL;
        let _ = rates.publishing(&client(500), host(1), later);
        assert_eq!(known(&rates.publishes), 2);
        let again = rates.publishing(&client(0), host(1), later).unwrap();
        assert!(again.enter(later).is_none());
        assert!(stays.enter(later).is_some(), "it is the same pace");
    }

    #[tokio::test(start_paused = true)]
    async fn the_memory_is_bounded() {
        let limits = Limits {
            connect_rate: 1,
            ..Limits::default()
        };
        let rates = Rates::new(&limits);
        let now = Instant::now();
        for n in 0..5 * MOST {
            assert!(rates.may_connect(&client(n), now));
            assert!(known(&rates.connects) <= 2 * MOST);
        }
    }
}
