//! What must hold after a run, and during it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::subscriber::{End, Session};
use super::{CONSUMER, OUTBOX_BYTES, OUTBOX_BYTES_TOTAL, RESUME_WINDOW, TOPICS, World};
use crate::log::{StoredRecord, Triple};
use crate::mapping::envelope;
use crate::mqtt::QoS;
use crate::sim::triple;

/// About as large as a message of a run can be, with what a copy counts.
const LARGEST: usize = 400;
const CLIENTS: usize = 8;

fn places() -> impl Iterator<Item = Triple> {
    ["t", "rest"]
        .into_iter()
        .flat_map(|topic| (0..4).map(move |partition| triple(topic, partition)))
}

/// D6, all the time.
pub(super) async fn watch_memory(world: Arc<World>) {
    loop {
        let life = world.life();
        let bytes = life.sim.gateway.context().outbox_total.bytes();
        assert!(
            bytes <= OUTBOX_BYTES_TOTAL + CLIENTS * LARGEST,
            "D6: {bytes} bytes in all outboxes"
        );
        let mut largest = 0;
        life.sim
            .gateway
            .context()
            .sessions
            .for_each(|_, live| largest = largest.max(live.outbox.bytes()));
        assert!(
            largest <= OUTBOX_BYTES + LARGEST,
            "D6: {largest} bytes in an outbox"
        );
        sleep(Duration::from_millis(100)).await;
    }
}

/// D4 and D7: what can be done is done, and committed; nobody holds back an offset for ever.
pub(super) async fn all_is_committed(world: &World) {
    let is_committed = |world: &World| {
        let delivery = world.life().sim.delivery();
        delivery
            .look(tokio::time::Instant::now())
            .readers
            .iter()
            .all(|reader| {
                let records = world.memory.records(&reader.triple);
                let end = records
                    .last()
                    .map_or(reader.position, |last| last.offset + 1);
                reader.position == end
                    && reader.open_records == 0
                    && reader.safe == end.checked_sub(1)
                    && reader.committed == reader.safe
            })
    };
    world
        .until("everything is done and committed", is_committed)
        .await;
    let shortened = world.shortened.lock().clone();
    for place in places().filter(|place| !shortened.contains(place)) {
        let records = world.memory.records(&place);
        let commits = world.memory.commits(&place, CONSUMER);
        if let Some(last) = records.last() {
            assert!(
                commits.iter().all(|commit| *commit <= last.offset),
                "D4: {place}"
            );
        }
    }
}

/// Of each number: where it is stored now, and how. A message may be stored more than once.
struct Stored {
    by_number: HashMap<u64, Vec<(Triple, StoredRecord, QoS)>>,
}

impl Stored {
    fn of(world: &World) -> Self {
        let mut by_number: HashMap<u64, Vec<_>> = HashMap::new();
        for place in places() {
            for record in world.memory.records(&place) {
                let opened = envelope::open(&record).unwrap();
                let text = std::str::from_utf8(&opened.payload).unwrap();
                let number = text.split(' ').next().unwrap().parse().unwrap();
                by_number
                    .entry(number)
                    .or_default()
                    .push((place.clone(), record, opened.qos));
            }
        }
        Self { by_number }
    }

    /// The messages to a topic with QoS 1 that are still stored.
    fn promised<'a>(
        &'a self,
        topic: &'a str,
    ) -> impl Iterator<Item = (u64, &'a Triple, &'a StoredRecord)> {
        self.by_number.iter().flat_map(move |(number, copies)| {
            copies.iter().filter_map(move |(place, record, qos)| {
                let opened = envelope::open(record).unwrap();
                let is_one = *qos == QoS::AtLeastOnce && opened.topic.as_str() == topic;
                is_one.then_some((*number, place, record))
            })
        })
    }
}

/// Everything that subscribers can tell.
pub(super) fn sessions(world: &World) {
    let stored = Stored::of(world);
    let all = world.sessions.lock();
    for session in &*all {
        check_one(world, session, &stored);
        if session.end == End::Lasted && session.kind.acknowledges() {
            check_complete(world, session, &stored);
        }
    }
    for (before, after) in all
        .iter()
        .flat_map(|before| all.iter().map(move |after| (before, after)))
    {
        let is_next = before.client == after.client && before.life + 1 == after.life;
        let last = all
            .iter()
            .rfind(|other| other.client == before.client && other.life == before.life);
        let first = all
            .iter()
            .find(|other| other.client == after.client && other.life == after.life);
        if is_next
            && before.end == End::Killed
            && after.end == End::Lasted
            && after.kind.acknowledges()
            && last.is_some_and(|last| std::ptr::eq(last, before))
            && first.is_some_and(|first| std::ptr::eq(first, after))
        {
            check_resumed(world, before, after, &stored);
        }
    }
}

/// D2, D3, D8, for any connection.
fn check_one(world: &World, session: &Session, stored: &Stored) {
    let context = || format!("{} on gateway {}", session.client, session.life);
    let mut firsts: HashMap<(&str, &Triple), Vec<u64>> = HashMap::new();
    let mut seen = HashSet::new();
    for delivered in &session.delivered {
        let mut words = delivered.payload.split(' ');
        let (number, topic, qos) = (words.next(), words.next(), words.next());
        assert_eq!(topic, Some(delivered.topic.as_str()), "D8: {}", context());
        let published: u8 = qos.unwrap().parse().unwrap();
        let granted: Vec<u8> = session
            .interests
            .iter()
            .filter(|interest| interest.topic == delivered.topic)
            .flat_map(|interest| interest.qos.clone())
            .collect();
        // A SUBSCRIBE whose SUBACK has not come may have brought something already.
        assert!(TOPICS.contains(&delivered.topic.as_str()), "D2");
        assert!(
            granted.is_empty()
                || granted
                    .iter()
                    .any(|qos| delivered.qos == published.min(*qos)),
            "D8: {delivered:?} of {granted:?}: {}",
            context()
        );
        assert!(delivered.qos <= published, "D8");
        let number: u64 = number.unwrap().parse().unwrap();
        if delivered.dup || !seen.insert(number) {
            continue;
        }
        if let Some([(place, _, _)]) = stored.by_number.get(&number).map(Vec::as_slice) {
            firsts
                .entry((&delivered.topic, place))
                .or_default()
                .push(number);
        }
    }
    for ((topic, place), numbers) in firsts {
        // Who subscribes again soon after a restart gets again what is resumed.
        let of_topic = |interest: &&super::subscriber::Interest| interest.topic == topic;
        if session.life > 0 && session.interests.iter().filter(of_topic).count() > 1 {
            continue;
        }
        // A topic that was made anew, and has grown past the reader before that is noticed, is begun again.
        let begun_again = numbers.windows(2).filter(|pair| pair[1] < pair[0]).count();
        let remade = world.remade.lock().get(&place.target).copied();
        assert!(
            begun_again <= remade.unwrap_or(0),
            "D3: {topic} of {place} for {}: {numbers:?}",
            context()
        );
    }
}

/// D5, for a connection that lasted.
fn check_complete(world: &World, session: &Session, stored: &Stored) {
    let got: HashSet<u64> = session.delivered.iter().map(|one| one.number()).collect();
    let truncated = world.truncated.lock();
    for interest in session.interests.iter().filter(|interest| interest.lasts) {
        // With QoS 0 at any time, something may have been dropped then.
        if interest.qos.contains(&0) {
            continue;
        }
        let since = world.micros(interest.since);
        for (number, place, record) in stored.promised(interest.topic) {
            let is_due = micros(record) > since && !truncated.contains(place);
            assert!(
                !is_due || got.contains(&number),
                "D5: {number} at {} of {place}, stored at {}, did not come to {} (gateway {}), subscribed to {} since {since}",
                record.offset,
                micros(record),
                session.client,
                session.life,
                interest.topic
            );
        }
    }
}

/// What is resumed after the gateway was killed.
fn check_resumed(world: &World, before: &Session, after: &Session, stored: &Stored) {
    let got: HashSet<u64> = after.delivered.iter().map(|one| one.number()).collect();
    let committed = world.committed.lock();
    let shortened = world.shortened.lock();
    let grown = world.grown.lock();
    // Only those who subscribe within the window after the start get it; who lasted did so on the last gateway.
    let resumed_until = world.life().began + RESUME_WINDOW;
    for interest in before.interests.iter().filter(|interest| interest.lasts) {
        let again = after
            .interests
            .iter()
            .find(|again| again.topic == interest.topic && again.lasts);
        let Some(again) = again.filter(|again| !again.qos.contains(&0)) else {
            continue;
        };
        if interest.qos.contains(&0) {
            continue;
        }
        for (number, place, record) in stored.promised(interest.topic) {
            let had_commit = committed
                .get(&(before.life, place.clone()))
                .is_some_and(Option::is_some);
            let slack = Duration::from_secs(2);
            let is_fresh = Duration::from_micros(micros(record)) + RESUME_WINDOW - slack
                > Duration::from_micros(world.micros(again.since));
            let is_due = had_commit
                && is_fresh
                && again.since < resumed_until
                && !shortened.contains(place)
                && !grown.contains(&place.target)
                && micros(record) > world.micros(interest.since)
                && !before.acknowledged.contains(&number);
            assert!(
                !is_due || got.contains(&number),
                "{number} at {} of {place}, stored at {}, was not acknowledged before gateway {} was killed, when {:?} was committed, and did not come again to {}, which had subscribed at {} and did again at {}; it did come before: {}",
                record.offset,
                micros(record),
                before.life,
                committed.get(&(before.life, place.clone())),
                before.client,
                world.micros(interest.since),
                world.micros(again.since),
                before.delivered.iter().any(|one| one.number() == number),
            );
        }
    }
}

/// When a record was stored, in microseconds after the run began.
fn micros(record: &StoredRecord) -> u64 {
    record.timestamp_micros - 1_700_000_000_000_000
}

/// Who has left leaves nothing behind.
pub(super) async fn nothing_is_left(world: &World) {
    let is_empty = |world: &World| {
        let life = world.life();
        let context = life.sim.gateway.context();
        context.sessions.is_empty()
            && life.sim.delivery().readers() == 0
            && context.outbox_total.bytes() == 0
    };
    world
        .until("no reader, no client, no byte is left", is_empty)
        .await;
}
