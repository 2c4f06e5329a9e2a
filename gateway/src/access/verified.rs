//! A bounded memory of credentials that were verified a moment ago, so that a fleet that reconnects does not cost tens of
//! milliseconds of computing for each client.
//!
//! What always holds: only what was verified is recognised, for the time to live and no longer; a wrong password is never
//! remembered and changes nothing; after [`Verified::forget_all`] nothing from before is recognised, not even what was
//! being verified meanwhile. No password is kept: only its keyed hash, under a random key that never leaves the process,
//! compared in constant time.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::config::Method;

/// The time at which verifying began, as far as [`Verified::forget_all`] is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Era(u64);

/// The memory.
pub struct Verified {
    key: [u8; blake3::KEY_LEN],
    time_to_live: Duration,
    capacity: usize,
    entries: HashMap<Arc<Identity>, Entry>,
    /// By when they were remembered, the oldest first. All live equally long, so that they also end in this order.
    order: BTreeMap<u64, Arc<Identity>>,
    next: u64,
    era: u64,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Identity {
    method: Method,
    user: Box<str>,
}

struct Entry {
    digest: blake3::Hash,
    expires: Instant,
    number: u64,
}

impl fmt::Debug for Verified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verified")
            .field("len", &self.entries.len())
            .finish_non_exhaustive()
    }
}

impl Verified {
    /// Remembers at most `capacity` credentials, each for `time_to_live`; of more, those that were verified last. With a
    /// capacity or a time of nothing it remembers nothing.
    pub fn new(capacity: usize, time_to_live: Duration) -> Self {
        Self {
            key: rand::random(),
            time_to_live,
            capacity,
            entries: HashMap::new(),
            order: BTreeMap::new(),
            next: 0,
            era: 0,
        }
    }

    /// To be asked for before verifying, and given to [`Verified::remember`].
    pub fn era(&self) -> Era {
        Era(self.era)
    }

    /// Whether exactly this was verified by that method a moment ago.
    pub fn recognises(&self, method: Method, user: &str, password: &[u8], now: Instant) -> bool {
        let identity = Identity {
            method,
            user: user.into(),
        };
        // Hashed whether there is an entry or not, so that time does not tell who was here lately.
        let digest = self.digest(user, password);
        self.entries
            .get(&identity)
            .is_some_and(|entry| now < entry.expires && entry.digest == digest)
    }

    /// Remembers what was verified just now; what was verified for the user before by that method is forgotten. Does
    /// nothing if everything was forgotten since `begun`.
    pub fn remember(
        &mut self,
        method: Method,
        user: &str,
        password: &[u8],
        begun: Era,
        now: Instant,
    ) {
        if begun.0 != self.era || self.capacity == 0 || self.time_to_live.is_zero() {
            return;
        }
        let identity = Arc::new(Identity {
            method,
            user: user.into(),
        });
        self.remove(&identity);
        self.make_room(now);
        let entry = Entry {
            digest: self.digest(user, password),
            expires: now + self.time_to_live,
            number: self.next,
        };
        self.order.insert(self.next, Arc::clone(&identity));
        self.entries.insert(identity, entry);
        self.next += 1;
    }

    /// Forgets everything, for example because the users changed.
    pub fn forget_all(&mut self) {
        self.entries.clear();
        self.order.clear();
        self.era += 1;
    }

    /// How many are remembered, those included whose time is over.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn remove(&mut self, identity: &Identity) {
        if let Some(old) = self.entries.remove(identity) {
            self.order.remove(&old.number);
        }
    }

    /// Drops those whose time is over, and as many more as it takes for one to find room.
    fn make_room(&mut self, now: Instant) {
        while let Some((_, oldest)) = self.order.first_key_value() {
            let is_over = self
                .entries
                .get(oldest)
                .is_none_or(|entry| entry.expires <= now);
            if !is_over && self.entries.len() < self.capacity {
                break;
            }
            let oldest = Arc::clone(oldest);
            self.remove(&oldest);
        }
    }

    fn digest(&self, user: &str, password: &[u8]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        // With its length, so that no other user and password have the same bytes.
        hasher.update(&(user.len() as u64).to_le_bytes());
        hasher.update(user.as_bytes());
        hasher.update(password);
        hasher.finalize()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn remember(verified: &mut Verified, user: &str, password: &str, now: Instant) {
        let begun = verified.era();
        verified.remember(Method::Users, user, password.as_bytes(), begun, now);
    }

    fn recognises(verified: &Verified, user: &str, password: &str, now: Instant) -> bool {
        verified.recognises(Method::Users, user, password.as_bytes(), now)
    }

    #[test]
    fn what_was_verified_is_recognised_until_its_time_is_over() {
        let mut verified = Verified::new(10, MINUTE);
        let now = Instant::now();
        remember(&mut verified, "anna", "a", now);
        assert!(recognises(&verified, "anna", "a", now));
        let last = now + MINUTE - Duration::from_nanos(1);
        assert!(recognises(&verified, "anna", "a", last));
        assert!(!recognises(&verified, "anna", "a", now + MINUTE));
    }

    #[test]
    fn another_password_user_or_method_is_not_recognised() {
        let mut verified = Verified::new(10, MINUTE);
        let now = Instant::now();
        remember(&mut verified, "anna", "bc", now);
        for (user, password) in [("anna", "b"), ("anna", ""), ("annab", "c"), ("ann", "abc")] {
            assert!(
                !recognises(&verified, user, password, now),
                "{user} {password}"
            );
        }
        assert!(!verified.recognises(Method::Iggy, "anna", b"bc", now));
    }

    #[test]
    fn a_user_has_one_password_at_a_time() {
        let mut verified = Verified::new(10, MINUTE);
        let now = Instant::now();
        remember(&mut verified, "anna", "old", now);
        remember(&mut verified, "anna", "new", now);
        assert!(!recognises(&verified, "anna", "old", now));
        assert!(recognises(&verified, "anna", "new", now));
        assert_eq!(verified.len(), 1);
    }

    #[test]
    fn what_was_being_verified_when_all_was_forgotten_is_not_remembered() {
        let mut verified = Verified::new(10, MINUTE);
        let now = Instant::now();
        remember(&mut verified, "anna", "a", now);
        let begun = verified.era();
        verified.forget_all();
        verified.remember(Method::Users, "ben", b"b", begun, now);
        assert!(verified.is_empty());
        assert!(!recognises(&verified, "anna", "a", now));
        assert!(!recognises(&verified, "ben", "b", now));
        remember(&mut verified, "ben", "b", now);
        assert!(recognises(&verified, "ben", "b", now));
    }

    #[test]
    fn without_room_or_time_nothing_is_remembered() {
        for mut verified in [Verified::new(0, MINUTE), Verified::new(10, Duration::ZERO)] {
            let now = Instant::now();
            remember(&mut verified, "anna", "a", now);
            assert!(verified.is_empty());
            assert!(!recognises(&verified, "anna", "a", now));
        }
    }

    #[test]
    fn two_processes_keep_different_hashes_and_debug_shows_none() {
        let (one, two) = (Verified::new(1, MINUTE), Verified::new(1, MINUTE));
        assert_ne!(one.digest("anna", b"a"), two.digest("anna", b"a"));
        assert_eq!(format!("{one:?}"), "Verified { len: 0, .. }");
        // Nor do two users of the same password, or whose names and passwords run together to the same.
        assert_ne!(one.digest("anna", b"a"), one.digest("ben", b"a"));
        assert_ne!(one.digest("anna", b"bc"), one.digest("annab", b"c"));
    }

    proptest! {
        #[test]
        fn the_memory_is_bounded_and_agrees_with_a_list_of_what_was_remembered(
            capacity in 1_usize..5,
            steps in prop::collection::vec((0_u8..6, 0_u8..3, 0_u64..40), 1..60),
        ) {
            let mut verified = Verified::new(capacity, MINUTE);
            let mut now = Instant::now();
            // The latest last.
            let mut model: Vec<(u8, u8, Instant)> = Vec::new();
            for (user, password, seconds) in steps {
                now += Duration::from_secs(seconds);
                remember(&mut verified, &user.to_string(), &password.to_string(), now);
                model.retain(|(known, _, at)| *known != user && now < *at + MINUTE);
                model.push((user, password, now));
                let excess = model.len().saturating_sub(capacity);
                model.drain(..excess);
                prop_assert!(verified.len() <= capacity);
                prop_assert_eq!(verified.order.len(), verified.entries.len());
                for user in 0..6 {
                    for password in 0..3 {
                        let expected = model.iter().any(|(u, p, _)| (*u, *p) == (user, password));
                        let (user, password) = (user.to_string(), password.to_string());
                        prop_assert_eq!(recognises(&verified, &user, &password, now), expected);
                    }
                }
            }
        }
    }
}
