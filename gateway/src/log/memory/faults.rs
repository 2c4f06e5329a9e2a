//! What can go wrong with a call to the memory log, and how a test asks for it: one by one, or by a seeded chance.
//!
//! What always holds: a scripted fault comes before a random one, and the same seed with the same calls in the same order
//! gives the same faults.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::log::LogError;

/// A method of the trait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Call {
    /// `ping`
    Ping,
    /// [`Log::login`](crate::log::Log::login)
    Login,
    /// `topic`
    Topic,
    /// `create`
    Create,
    /// `append`
    Append,
    /// `poll`
    Poll,
    /// `reread`
    Reread,
    /// `end`
    End,
    /// `stored_within`
    StoredWithin,
    /// `committed`
    Committed,
    /// `commit`
    Commit,
    /// `forget`
    Forget,
}

/// What happens to one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// It takes this long, and is done at the end of it.
    Delay(Duration),
    /// It is not done.
    Fail(LogError),
    /// It is done, and the caller is told otherwise.
    LoseReply(LogError),
    /// An append only: the caller is told at once that it failed, and it is done this much later, as a request is whose
    /// caller gave up while the server still works on it.
    DoneLater(Duration, LogError),
}

/// How often random faults come: each chance is between 0 and 1 and is drawn once a call, in the order of the fields.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Chances {
    /// The call fails and is not done.
    pub fail: f64,
    /// The call is done and its reply is lost.
    pub lose_reply: f64,
    /// An append is reported as failed and done up to `longest_delay` later.
    pub done_later: f64,
    /// The call takes up to `longest_delay`.
    pub delay: f64,
    /// The upper bound of a random delay.
    pub longest_delay: Duration,
}

/// Where the faults of a log come from.
#[derive(Debug)]
pub(super) struct Faults {
    scripted: HashMap<Call, VecDeque<Fault>>,
    chances: Chances,
    random: StdRng,
}

impl Faults {
    pub(super) fn new(seed: u64, chances: Chances) -> Self {
        Self {
            scripted: HashMap::new(),
            chances,
            random: StdRng::seed_from_u64(seed),
        }
    }

    pub(super) fn script(&mut self, call: Call, fault: Fault) {
        self.scripted.entry(call).or_default().push_back(fault);
    }

    pub(super) fn set_chances(&mut self, chances: Chances) {
        self.chances = chances;
    }

    pub(super) fn next(&mut self, call: Call) -> Option<Fault> {
        if let Some(fault) = self.scripted.get_mut(&call).and_then(VecDeque::pop_front) {
            return Some(fault);
        }
        let Chances {
            fail,
            lose_reply,
            done_later,
            delay,
            ..
        } = self.chances;
        if self.chance(fail) {
            return Some(Fault::Fail(self.random_error()));
        }
        if self.chance(lose_reply) {
            return Some(Fault::LoseReply(self.random_error()));
        }
        if call == Call::Append && self.chance(done_later) {
            return Some(Fault::DoneLater(self.random_delay(), self.random_error()));
        }
        self.chance(delay)
            .then(|| Fault::Delay(self.random_delay()))
    }

    fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.random.random_bool(probability.min(1.0))
    }

    fn random_delay(&mut self) -> Duration {
        self.chances.longest_delay.mul_f64(self.random.random())
    }

    fn random_error(&mut self) -> LogError {
        match self.random.random_range(0..3) {
            0 => unreachable_error("the connection broke"),
            1 => LogError::Timeout(Duration::from_secs(10)),
            _ => LogError::Busy("no leader".into()),
        }
    }
}

pub(super) fn unreachable_error(reason: &str) -> LogError {
    LogError::Unreachable {
        address: "memory".into(),
        reason: reason.into(),
    }
}
