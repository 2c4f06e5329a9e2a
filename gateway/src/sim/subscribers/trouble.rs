//! What goes wrong in a run, one thing after the other.
//!
//! What always holds: when it returns the log is well, and a gateway runs on it.

use std::sync::Arc;
use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;
use tokio::time::sleep;

use super::{CONSUMER, World};
use crate::log::memory::{Call, Chances, Fault};
use crate::log::{Log, Target, Triple};
use crate::sim::triple;

pub(super) struct Trouble {
    world: Arc<World>,
    random: StdRng,
}

impl Trouble {
    pub(super) fn new(world: Arc<World>, random: StdRng) -> Self {
        Self { world, random }
    }

    pub(super) async fn run(mut self) {
        // Not all of it in each run, so that what some of it forbids to check is checked in the others.
        let [shortens, remakes, kills, grows] =
            [0.3, 0.3, 0.4, 0.4].map(|chance| self.random.random_bool(chance));
        for _ in 0..self.random.random_range(1..8) {
            self.pause(Duration::from_secs(2)).await;
            match self.random.random_range(0..9) {
                0 | 1 => self.is_flaky().await,
                2 => self.is_away().await,
                3 => self.is_slow(),
                4 => self.expires(),
                5 if shortens => self.becomes_shorter(),
                6 if remakes => self.is_made_anew(),
                7 if kills => self.kills().await,
                8 if grows => self.grows().await,
                _ => {}
            }
        }
    }

    fn note(&self, what: impl std::fmt::Display) {
        self.world.trace.note("trouble", what);
    }

    async fn pause(&mut self, most: Duration) {
        sleep(most.mul_f64(self.random.random())).await;
    }

    fn target(&mut self) -> Target {
        let topic = ["t", "rest"][self.random.random_range(0..2)];
        triple(topic, 0).target
    }

    fn place(&mut self) -> Triple {
        Triple {
            target: self.target(),
            partition: self.random.random_range(0..4),
        }
    }

    async fn is_flaky(&mut self) {
        let mut up_to = |most: f64| self.random.random_range(0.0..most);
        let chances = Chances {
            fail: up_to(0.5),
            lose_reply: up_to(0.3),
            done_later: 0.0,
            delay: up_to(0.8),
            longest_delay: Duration::from_millis(400),
        };
        self.note(format_args!("{chances:?}"));
        self.world.memory.set_chances(chances);
        self.pause(Duration::from_secs(4)).await;
        self.world.memory.set_chances(Chances::default());
    }

    async fn is_away(&mut self) {
        self.note("the log is away");
        self.world.memory.set_outage(true);
        self.pause(Duration::from_secs(8)).await;
        self.note("the log is back");
        self.world.memory.set_outage(false);
    }

    fn is_slow(&mut self) {
        for _ in 0..self.random.random_range(1..20) {
            let call = [Call::Poll, Call::Reread, Call::End, Call::Commit];
            let call = call[self.random.random_range(0..call.len())];
            let delay = Duration::from_millis(self.random.random_range(1..3_000));
            self.world.memory.script(call, Fault::Delay(delay));
        }
    }

    fn expires(&mut self) {
        let place = self.place();
        let records = self.world.memory.records(&place);
        if let (Some(first), Some(last)) = (records.first(), records.last()) {
            let oldest = self.random.random_range(first.offset..=last.offset + 1);
            self.note(format_args!("{place} begins at {oldest}"));
            self.world.memory.expire(&place, oldest);
        }
    }

    fn becomes_shorter(&mut self) {
        let place = self.place();
        let records = self.world.memory.records(&place);
        if let (Some(first), Some(last)) = (records.first(), records.last()) {
            let end = self.random.random_range(first.offset..=last.offset + 1);
            self.note(format_args!("{place} ends at {end}"));
            self.world.shortened.lock().insert(place.clone());
            self.world.truncated.lock().insert(place.clone());
            self.world.memory.truncate(&place, end);
        }
    }

    fn is_made_anew(&mut self) {
        let target = self.target();
        let partitions = self.random.random_range(1..=4);
        self.note(format_args!("{target} is made anew with {partitions}"));
        for partition in 0..4 {
            self.world.shortened.lock().insert(Triple {
                target: target.clone(),
                partition,
            });
        }
        self.world.memory.delete_topic(&target);
        self.world.memory.add_topic(&target, partitions, None);
        *self.world.remade.lock().entry(target).or_default() += 1;
    }

    async fn grows(&mut self) {
        let target = self.target();
        if let Ok(Some(info)) = self.world.memory.topic(&target).await
            && info.partitions < 4
        {
            let partitions = self.random.random_range(info.partitions + 1..=4);
            self.note(format_args!("{target} has {partitions} partitions"));
            self.world.grown.lock().insert(target.clone());
            self.world.memory.add_partitions(&target, partitions);
        }
    }

    async fn kills(&mut self) {
        let life = self.world.life();
        self.note(format_args!("gateway {} is killed", life.number));
        life.log.kill();
        for topic in ["t", "rest"] {
            for partition in 0..4 {
                let place = triple(topic, partition);
                let committed = loop {
                    match self.world.memory.committed(&place, CONSUMER).await {
                        Ok(committed) => break committed,
                        Err(_) => sleep(Duration::from_millis(10)).await,
                    }
                };
                let mut all = self.world.committed.lock();
                all.insert((life.number, place), committed);
            }
        }
        let next = self.world.start(life.number + 1, &mut self.random).await;
        *self.world.life.lock() = next;
        self.note("another gateway runs");
    }
}
