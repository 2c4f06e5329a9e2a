//! What goes wrong with the log of a run, one thing after the other, until the publishers have seen enough.
//!
//! What always holds: when it returns the log is well again, so that everything that waits can be stored; a topic loses
//! records only if it is one of [`Kind::Committed`] in a restart, or is deleted.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;
use tokio::time::sleep;

use super::World;
use super::message::Kind;
use super::watched::MOST_PARTITIONS;
use crate::log::memory::{Call, Chances, Fault, HoldAt};
use crate::log::{Log, LogError, Triple};
use crate::sim::dead_letters;

/// What may happen in a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Troubles {
    pub(super) count: usize,
    /// Topics are deleted, and made again with other partitions. Late appends are left out then: they would bring back
    /// what was deleted.
    pub(super) deletions: bool,
    /// Topics get more partitions while the log is away.
    pub(super) growth: bool,
    /// Topics are refused for a while.
    pub(super) refusals: bool,
    /// The dead-letter topic too.
    pub(super) dead_letters: bool,
    /// Outages, some of them with a restart that loses what was not on stable storage.
    pub(super) outages: bool,
}

pub(super) struct Trouble {
    world: Arc<World>,
    random: StdRng,
    troubles: Troubles,
}

impl Trouble {
    pub(super) fn new(world: Arc<World>, random: StdRng, troubles: Troubles) -> Self {
        Self {
            world,
            random,
            troubles,
        }
    }

    pub(super) async fn run(mut self) {
        for n in 0..self.troubles.count {
            if n > 0 {
                self.pause(Duration::from_millis(300)).await;
            }
            match self.random.random_range(0..10) {
                0 | 1 => self.is_flaky().await,
                2 => self.fails_once(),
                3 => self.hangs().await,
                4 if self.troubles.outages => self.is_away().await,
                5 if self.troubles.refusals => self.refuses().await,
                6 | 7 if self.troubles.deletions => self.deletes().await,
                8 | 9 if self.troubles.growth => self.grows().await,
                _ => {}
            }
        }
        self.note("is over");
    }

    fn note(&self, what: impl std::fmt::Display) {
        self.world.trace.note("trouble", what);
    }

    async fn pause(&mut self, most: Duration) {
        sleep(most.mul_f64(self.random.random())).await;
    }

    fn one_of<T: Copy>(&mut self, things: &[T]) -> T {
        things[self.random.random_range(0..things.len())]
    }

    fn error(&mut self) -> LogError {
        let unreachable = LogError::Unreachable {
            address: "memory".into(),
            reason: "cut".into(),
        };
        match self.random.random_range(0..3) {
            0 => unreachable,
            1 => LogError::Timeout(Duration::from_secs(30)),
            _ => LogError::Busy("no leader".into()),
        }
    }

    async fn is_flaky(&mut self) {
        let mut up_to = |most: f64| self.random.random_range(0.0..most);
        let chances = Chances {
            fail: up_to(0.4),
            lose_reply: up_to(0.3),
            done_later: if self.troubles.deletions {
                0.0
            } else {
                up_to(0.2)
            },
            delay: up_to(0.6),
            longest_delay: Duration::from_millis(400),
        };
        self.note(format_args!("{chances:?}"));
        self.world.log.memory.set_chances(chances);
        self.pause(Duration::from_secs(3)).await;
        self.world.log.memory.set_chances(Chances::default());
    }

    fn fails_once(&mut self) {
        let error = self.error();
        let fault = match self.random.random_range(0..3) {
            0 => Fault::Fail(error),
            1 => Fault::LoseReply(error),
            _ => Fault::Delay(Duration::from_millis(self.random.random_range(1..2_000))),
        };
        let call = self.one_of(&[Call::Append, Call::Append, Call::Topic, Call::Create]);
        self.note(format_args!("the next {call:?}: {fault:?}"));
        self.world.log.memory.script(call, fault);
    }

    async fn hangs(&mut self) {
        let at = self.one_of(&[HoldAt::BeforeCommit, HoldAt::AfterCommit]);
        self.note(format_args!("appends hang: {at:?}"));
        self.world.log.memory.hold(at);
        self.pause(Duration::from_secs(5)).await;
        self.world.log.memory.release();
    }

    async fn is_away(&mut self) {
        self.note("the log is away");
        self.world.log.memory.set_outage(true);
        // Sometimes longer than `iggy_grace`.
        self.pause(Duration::from_secs(15)).await;
        if self.random.random_bool(0.5) {
            self.loses_what_is_new();
        }
        self.note("the log is back");
        self.world.log.memory.set_outage(false);
    }

    fn loses_what_is_new(&mut self) {
        let Some(target) = Kind::Committed.target() else {
            return;
        };
        for partition in 0..2 {
            let triple = Triple {
                target: target.clone(),
                partition,
            };
            let end = self.world.log.memory.records(&triple).len() as u64;
            let left = self.random.random_range(0..=end);
            self.note(format_args!("{triple} loses {} of {end}", end - left));
            self.world.log.truncate(&triple, left);
        }
    }

    async fn refuses(&mut self) {
        if self.troubles.dead_letters && self.random.random_bool(0.3) {
            self.note("the dead-letter topic is refused");
            self.world
                .dead_letters_refused
                .store(true, Ordering::SeqCst);
            let refused = LogError::NotPermitted("test".into());
            let target = dead_letters().target;
            self.world.log.memory.refuse(&target, Some(refused));
            self.pause(Duration::from_secs(2)).await;
            self.world.log.memory.refuse(&target, None);
            return;
        }
        let kind = self.one_of(&[Kind::Persisted, Kind::Committed, Kind::New]);
        let Some(target) = kind.target() else { return };
        let is_transient = self.random.random_bool(0.5);
        let error = match is_transient {
            true => self.error(),
            false => {
                self.world.refused.lock().insert(kind);
                self.one_of(&[
                    LogError::NotPermitted as fn(String) -> LogError,
                    LogError::Refused,
                ])("test".into())
            }
        };
        self.note(format_args!("{target}: {error}"));
        self.world.log.memory.refuse(&target, Some(error));
        self.pause(Duration::from_secs(2)).await;
        self.note(format_args!("{target} is well"));
        self.world.log.memory.refuse(&target, None);
    }

    async fn deletes(&mut self) {
        let kind = self.one_of(&[
            Kind::Persisted,
            Kind::Persisted,
            Kind::Committed,
            Kind::New,
            Kind::Guarded,
        ]);
        let Some(target) = kind.target() else { return };
        let partitions = self.random.random_range(1..=4);
        if kind == Kind::Guarded {
            self.note(format_args!("{target} is deleted"));
            self.world.refused.lock().insert(kind);
            self.world.log.delete(&target, None);
            self.pause(Duration::from_secs(1)).await;
            self.note(format_args!("{target} has {partitions} partitions"));
            self.world.log.memory.add_topic(&target, partitions, None);
        } else {
            let made = self.random.random_bool(0.7).then_some(partitions);
            self.note(format_args!(
                "{target} is deleted, now with partitions: {made:?}"
            ));
            self.world.log.delete(&target, made);
        }
    }

    async fn grows(&mut self) {
        let kind = self.one_of(&[Kind::Persisted, Kind::Committed, Kind::Guarded]);
        let Some(target) = kind.target() else { return };
        let Ok(Some(info)) = self.world.log.memory.topic(&target).await else {
            return;
        };
        self.note("the log is away");
        self.world.log.memory.set_outage(true);
        self.pause(Duration::from_secs(2)).await;
        let partitions = (info.partitions + self.random.random_range(1..3)).min(MOST_PARTITIONS);
        self.note(format_args!("{target} has {partitions} partitions"));
        self.world.log.grow(&target, partitions);
        self.pause(Duration::from_secs(2)).await;
        self.note("the log is back");
        self.world.log.memory.set_outage(false);
    }
}
