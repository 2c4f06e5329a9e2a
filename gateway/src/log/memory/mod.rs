//! A log in memory, for tests: it keeps the promises of Iggy that the gateway rests on, and breaks on request all that
//! Iggy may break.
//!
//! What always holds: an append is all or none; offsets of a partition are contiguous from its oldest record to its end;
//! every method is cancel-safe (a dropped call is either done or not done); with a paused Tokio clock nothing depends on
//! real time.

mod faults;
mod state;
#[cfg(test)]
mod tests;

use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

pub use faults::{Call, Chances, Fault};
use faults::{Faults, unreachable_error};
pub use state::Counts;
use state::{Late, State};

use super::{
    Durability, Log, LogError, Polled, Record, StoredRecord, Target, TopicInfo, TopicSpec, Triple,
};

/// Where an append is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldAt {
    /// Nothing is stored yet.
    BeforeCommit,
    /// It is stored, and the caller does not know yet.
    AfterCommit,
}

/// How long [`MemoryLog::wait_until`] waits.
const DEADLINE: Duration = Duration::from_secs(60);

/// A log in memory. See the module.
#[derive(Debug)]
pub struct MemoryLog {
    inner: Mutex<Inner>,
    /// Counts changes, so that waiting tasks look again.
    changes: watch::Sender<u64>,
}

#[derive(Debug)]
struct Inner {
    state: State,
    faults: Faults,
    down: bool,
    closed: bool,
    hold: Option<HoldAt>,
    held: usize,
}

impl Default for MemoryLog {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryLog {
    /// An empty log without faults.
    pub fn new() -> Self {
        Self::seeded(0, Chances::default())
    }

    /// An empty log whose faults come by chance, the same for the same seed.
    pub fn seeded(seed: u64, chances: Chances) -> Self {
        let faults = Faults::new(seed, chances);
        let inner = Inner {
            state: State::new(),
            faults,
            down: false,
            closed: false,
            hold: None,
            held: 0,
        };
        Self {
            inner: Mutex::new(inner),
            changes: watch::Sender::new(0),
        }
    }

    /// Adds a user, or gives it another password.
    pub fn add_user(&self, username: &str, password: &str) {
        self.change(|inner| inner.state.add_user(username, password));
    }

    /// Makes a topic whose policy is `durability`. Replaces one of that name.
    pub fn add_topic(&self, target: &Target, partitions: u32, durability: Option<Durability>) {
        self.change(|inner| {
            inner.state.add_topic(target, partitions, durability);
        });
    }

    /// Gives a topic so many partitions; those that it has keep their records.
    pub fn add_partitions(&self, target: &Target, count: u32) {
        self.change(|inner| inner.state.add_partitions(target, count));
    }

    /// Deletes a topic with its records and committed offsets.
    pub fn delete_topic(&self, target: &Target) {
        self.change(|inner| inner.state.delete_topic(target));
    }

    /// Makes the partition end at `end`: what comes after is lost, as after the crash of a server that had it only in memory.
    pub fn truncate(&self, triple: &Triple, end: u64) {
        self.change(|inner| inner.state.truncate(triple, end));
    }

    /// Makes `oldest` the oldest offset that is left, as retention does.
    pub fn expire(&self, triple: &Triple, oldest: u64) {
        self.change(|inner| inner.state.expire(triple, oldest));
    }

    /// Makes the whole log unreachable, or reachable again. Appends that are held or delayed fail without being stored.
    pub fn set_outage(&self, outage: bool) {
        self.change(|inner| inner.down = outage);
    }

    /// Holds appends from now on, until [`Self::release`].
    pub fn hold(&self, at: HoldAt) {
        self.change(|inner| inner.hold = Some(at));
    }

    /// Lets all held appends go on, and stops holding.
    pub fn release(&self) {
        self.change(|inner| inner.hold = None);
    }

    /// How many appends are held now.
    pub fn held(&self) -> usize {
        self.inner.lock().held
    }

    /// Refuses all that concerns `target` with `error`; `None` ends that.
    pub fn refuse(&self, target: &Target, error: Option<LogError>) {
        self.change(|inner| inner.state.refuse(target, error));
    }

    /// Gives the next call of this kind, that no earlier script takes, this fault.
    pub fn script(&self, call: Call, fault: Fault) {
        self.change(|inner| inner.faults.script(call, fault));
    }

    /// Changes how often random faults come.
    pub fn set_chances(&self, chances: Chances) {
        self.change(|inner| inner.faults.set_chances(chances));
    }

    /// Everything that the partition has now; nothing if it does not exist.
    pub fn records(&self, triple: &Triple) -> Vec<StoredRecord> {
        self.look(|state| state.records(triple))
    }

    /// How often the partition was called, whatever came of it.
    pub fn counts(&self, triple: &Triple) -> Counts {
        self.look(|state| state.counts(triple))
    }

    /// Every offset that `consumer` has committed, in the order of the commits.
    pub fn commits(&self, triple: &Triple, consumer: &str) -> Vec<u64> {
        self.look(|state| state.commits(triple, consumer))
    }

    /// Waits until `condition` holds; looks at every change of the log.
    ///
    /// # Panics
    /// If it does not hold within a minute of Tokio time; says `what` was waited for.
    pub async fn wait_until(&self, what: &str, mut condition: impl FnMut(&Self) -> bool) {
        let mut changes = self.changes.subscribe();
        let wait = async {
            while !condition(self) {
                // The sender lives in `self`.
                let _ = changes.changed().await;
            }
        };
        if tokio::time::timeout(DEADLINE, wait).await.is_err() {
            panic!("waited in vain for: {what}");
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        let result = {
            let mut inner = self.inner.lock();
            inner.state.settle(Instant::now());
            change(&mut inner)
        };
        self.changes
            .send_modify(|count| *count = count.wrapping_add(1));
        result
    }

    fn look<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        let mut inner = self.inner.lock();
        inner.state.settle(Instant::now());
        look(&inner.state)
    }

    /// Counts a call and says which fault it gets.
    fn start(&self, call: Call, triple: Option<&Triple>) -> Result<Option<Fault>, LogError> {
        self.change(|inner| {
            if let Some(triple) = triple {
                inner.state.count(call, triple);
            }
            inner.up().map(|()| inner.faults.next(call))
        })
    }

    /// Does the `work` of a call that was started, as far as its fault lets it.
    async fn finish<T>(
        &self,
        call: Call,
        fault: Option<Fault>,
        work: impl FnOnce(&mut State) -> Result<T, LogError>,
    ) -> Result<T, LogError> {
        if let Some(Fault::Delay(delay)) = &fault {
            tokio::time::sleep(*delay).await;
        }
        if call == Call::Append {
            self.wait_while_held(HoldAt::BeforeCommit).await?;
        }
        if let Some(Fault::Fail(error)) = fault {
            return Err(error);
        }
        let result = self.change(|inner| inner.up().and_then(|()| work(&mut inner.state)))?;
        if call == Call::Append {
            self.wait_while_held(HoldAt::AfterCommit).await?;
        }
        match fault {
            Some(Fault::LoseReply(error)) => Err(error),
            _ => Ok(result),
        }
    }

    async fn call<T>(
        &self,
        call: Call,
        triple: Option<&Triple>,
        work: impl FnOnce(&mut State) -> Result<T, LogError>,
    ) -> Result<T, LogError> {
        let fault = self.start(call, triple)?;
        self.finish(call, fault, work).await
    }

    async fn wait_while_held(&self, at: HoldAt) -> Result<(), LogError> {
        let mut changes = self.changes.subscribe();
        if self.inner.lock().hold != Some(at) {
            return Ok(());
        }
        let _held = Held::new(self);
        loop {
            {
                let inner = self.inner.lock();
                inner.up()?;
                if inner.hold != Some(at) {
                    return Ok(());
                }
            }
            // The sender lives in `self`.
            let _ = changes.changed().await;
        }
    }
}

impl Inner {
    fn up(&self) -> Result<(), LogError> {
        if self.closed {
            return Err(unreachable_error("it is closed"));
        }
        if self.down {
            return Err(unreachable_error("it is down"));
        }
        Ok(())
    }
}

/// Counts one append as held while it lives, also if its caller drops the call.
struct Held<'a>(&'a MemoryLog);

impl<'a> Held<'a> {
    fn new(log: &'a MemoryLog) -> Self {
        log.change(|inner| inner.held += 1);
        Self(log)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.change(|inner| inner.held -= 1);
    }
}

#[async_trait]
impl Log for MemoryLog {
    async fn ping(&self) -> Result<(), LogError> {
        self.call(Call::Ping, None, |_| Ok(())).await
    }

    async fn login(&self, username: &str, password: &str) -> Result<(), LogError> {
        self.call(Call::Login, None, |state| state.login(username, password))
            .await
    }

    async fn topic(&self, target: &Target) -> Result<Option<TopicInfo>, LogError> {
        self.call(Call::Topic, None, |state| state.topic(target))
            .await
    }

    async fn create(&self, target: &Target, spec: &TopicSpec) -> Result<TopicInfo, LogError> {
        self.call(Call::Create, None, |state| state.create(target, spec))
            .await
    }

    async fn append(&self, triple: &Triple, records: &[Record]) -> Result<(), LogError> {
        match self.start(Call::Append, Some(triple))? {
            Some(Fault::DoneLater(delay, error)) => {
                let late = Late {
                    due: Instant::now() + delay,
                    triple: triple.clone(),
                    records: records.to_vec(),
                };
                self.change(|inner| inner.state.later(late));
                Err(error)
            }
            fault => {
                self.finish(Call::Append, fault, |state| state.append(triple, records))
                    .await
            }
        }
    }

    async fn poll(&self, triple: &Triple, from: u64, max: u32) -> Result<Polled, LogError> {
        self.call(Call::Poll, Some(triple), |state| {
            state.poll(triple, from, max)
        })
        .await
    }

    async fn reread(&self, triple: &Triple, from: u64, max: u32) -> Result<Polled, LogError> {
        self.call(Call::Reread, Some(triple), |state| {
            state.poll(triple, from, max)
        })
        .await
    }

    async fn stored_within(&self, triple: &Triple, age: Duration) -> Result<u64, LogError> {
        self.call(Call::StoredWithin, Some(triple), |state| {
            state.stored_within(triple, age)
        })
        .await
    }

    async fn end(&self, triple: &Triple) -> Result<u64, LogError> {
        self.call(Call::End, Some(triple), |state| state.end(triple))
            .await
    }

    async fn committed(&self, triple: &Triple, consumer: &str) -> Result<Option<u64>, LogError> {
        self.call(Call::Committed, Some(triple), |state| {
            state.committed(triple, consumer)
        })
        .await
    }

    async fn commit(&self, triple: &Triple, consumer: &str, offset: u64) -> Result<(), LogError> {
        self.call(Call::Commit, Some(triple), |state| {
            state.commit(triple, consumer, offset)
        })
        .await
    }

    async fn forget(&self, triple: &Triple, consumer: &str) -> Result<(), LogError> {
        self.call(Call::Forget, Some(triple), |state| {
            state.forget(triple, consumer)
        })
        .await
    }

    async fn close(&self) {
        self.change(|inner| inner.closed = true);
    }
}
