//! What has to hold after a run, of what the log holds and held and what each publisher saw.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::World;
use super::message::{Kind, Label, header};
use super::publisher::Publisher;
use crate::log::{StoredRecord, Target, Triple};
use crate::mapping::envelope;
use crate::mqtt::QoS;
use crate::sim::dead_letters;

/// Checks all of it; panics at the first that does not hold.
pub(super) fn check(world: &World, publishers: &[Publisher]) {
    let lives = world.log.lives();
    let mut stored: HashMap<Label, HashSet<u128>> = HashMap::new();
    let labels_of = |is_letters: bool| -> HashSet<Label> {
        let lives = lives.iter();
        let lives = lives.filter(|(triple, _)| (*triple == dead_letters()) == is_letters);
        let records = lives.flat_map(|(_, lives)| lives.iter().flatten());
        records.map(|record| Label::of(&record.payload)).collect()
    };
    let (letters, placed) = (labels_of(true), labels_of(false));
    for (triple, lives) in &lives {
        for record in lives.iter().flatten() {
            check_record(world, publishers, triple, record);
            let label = Label::of(&record.payload);
            stored.entry(label).or_default().insert(record.id);
        }
    }
    // By topic, and by how often it was made before.
    let mut by_life: BTreeMap<(&Target, usize), Vec<&[StoredRecord]>> = BTreeMap::new();
    for (triple, lives) in &lives {
        for (n, life) in lives.iter().enumerate() {
            by_life.entry((&triple.target, n)).or_default().push(life);
        }
    }
    let mut earlier: HashMap<&Target, HashSet<Label>> = HashMap::new();
    for ((target, _), partitions) in by_life {
        let earlier = earlier.entry(target).or_default();
        let elsewhere = match *target == dead_letters().target {
            true => &placed,
            false => &letters,
        };
        check_order(target, &partitions, |label| {
            !elsewhere.contains(label) && !earlier.contains(label)
        });
        let records = partitions.iter().copied().flatten();
        earlier.extend(records.map(|record| Label::of(&record.payload)));
    }
    for publisher in publishers {
        for label in &publisher.acknowledged {
            assert!(stored.contains_key(label), "N1, N2: {label} is nowhere");
        }
    }
    check_ids(publishers, &stored);
    check_present(world, publishers);
    world.sim.assert_outcomes_add_up();
}

/// The record is a message as it was published, where it belongs, or in the dead-letter topic for a reason.
fn check_record(world: &World, publishers: &[Publisher], triple: &Triple, record: &StoredRecord) {
    let label = Label::of(&record.payload);
    let opened = envelope::open(record).unwrap();
    let message = publishers
        .iter()
        .find_map(|publisher| publisher.message(&label))
        .unwrap_or_else(|| panic!("nobody has published {label}"));
    assert_eq!(opened.topic.as_str(), message.topic, "{label}");
    assert_eq!(opened.qos == QoS::AtLeastOnce, message.qos_1, "{label}");
    assert_eq!(opened.payload, message.payload.as_bytes(), "{label}");
    let Some(reason) = header(record, envelope::REFUSED) else {
        assert_ne!(triple.target, dead_letters().target, "{label}");
        assert!(!message.poisoned && message.kind != Kind::Dollar, "{label}");
        return;
    };
    assert_eq!(*triple, dead_letters(), "{label}");
    assert_eq!(header(record, envelope::CLIENT_ID), Some(&*label.publisher));
    let rule = header(record, envelope::REFUSED_RULE);
    assert_eq!(
        rule.is_none(),
        message.kind == Kind::Dollar,
        "{label}: {rule:?}"
    );
    let is_fair = match reason {
        "dollar_topic" => message.kind == Kind::Dollar,
        "too_large" => message.poisoned,
        "not_permitted" | "rejected" | "no_target" => world.refused.lock().contains(&message.kind),
        _ => false,
    };
    assert!(is_fair, "{label} is refused: {reason}");
}

/// First occurrences of each publisher's messages on a topic are in the order of publishing (N2), in their partition and, when
/// keys have moved, over all of them in time. QoS 0 counts too. A message that was sent again after it had gone to the
/// dead-letter topic, or was stored and its topic deleted, has left the order.
fn check_order(target: &Target, partitions: &[&[StoredRecord]], in_order: impl Fn(&Label) -> bool) {
    let mut firsts: HashMap<Label, (u64, usize)> = HashMap::new();
    for (partition, records) in partitions.iter().enumerate() {
        for record in *records {
            let label = Label::of(&record.payload);
            let here = (record.timestamp_micros, partition);
            let first = firsts.entry(label).or_insert(here);
            *first = here.min(*first);
        }
    }
    let mut times: BTreeMap<(String, String), BTreeMap<u16, u64>> = BTreeMap::new();
    for (partition, records) in partitions.iter().enumerate() {
        let mut seen: HashSet<Label> = HashSet::new();
        let mut newest: HashMap<(String, String), u16> = HashMap::new();
        for record in *records {
            let label = Label::of(&record.payload);
            let is_first = firsts.get(&label) == Some(&(record.timestamp_micros, partition));
            if !is_first || !in_order(&label) || !seen.insert(label.clone()) {
                continue;
            }
            let topic = envelope::open(record).unwrap().topic.as_str().to_owned();
            let key = (label.publisher.clone(), topic);
            let newest = newest.entry(key.clone()).or_default();
            assert!(
                label.number > *newest,
                "N2: {label} is stored in {target} after {newest}"
            );
            *newest = label.number;
            let times = times.entry(key).or_default();
            times.insert(label.number, record.timestamp_micros);
        }
    }
    for ((publisher, topic), times) in times {
        assert!(
            times.values().is_sorted(),
            "N2: the messages of {publisher} on {topic} are stored at {times:?}"
        );
    }
}

/// A message has at most one id for each time that it was sent (N6).
fn check_ids(publishers: &[Publisher], stored: &HashMap<Label, HashSet<u128>>) {
    for publisher in publishers {
        for (label, ids) in stored {
            let sent = publisher.times_sent(label);
            if publisher.message(label).is_some() {
                assert!(
                    ids.len() <= sent,
                    "N6: {label}, sent {sent} times, has {ids:?}"
                );
            }
        }
    }
}

/// What was acknowledged is still there, unless its topic may lose records.
fn check_present(world: &World, publishers: &[Publisher]) {
    let mut present: HashSet<Label> = HashSet::new();
    for (triple, _) in world.log.lives() {
        for record in world.log.memory.records(&triple) {
            present.insert(Label::of(&record.payload));
        }
    }
    for publisher in publishers {
        for label in &publisher.acknowledged {
            let kind = publisher.message(label).map(|message| message.kind);
            let deleted = kind
                .and_then(Kind::target)
                .is_some_and(|target| world.log.was_deleted(&target));
            if kind != Some(Kind::Committed) && !deleted {
                assert!(present.contains(label), "N1: {label} is lost");
            }
        }
    }
}
