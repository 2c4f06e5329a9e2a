//! What has to hold after a run, of what the log holds and held and what each publisher saw.

use std::collections::{HashMap, HashSet};

use super::World;
use super::message::{Kind, Label, header};
use super::publisher::Publisher;
use crate::log::{StoredRecord, Triple};
use crate::mapping::envelope;
use crate::mqtt::QoS;
use crate::sim::dead_letters;

/// Checks all of it; panics at the first that does not hold.
pub(super) fn check(world: &World, publishers: &[Publisher]) {
    let lives = world.log.lives();
    let mut stored: HashMap<Label, HashSet<u128>> = HashMap::new();
    let letters = lives.iter().filter(|(triple, _)| *triple == dead_letters());
    let letters: HashSet<Label> = letters
        .flat_map(|(_, lives)| lives.iter().flatten())
        .map(|letter| Label::of(&letter.payload))
        .collect();
    for (triple, lives) in &lives {
        for life in lives {
            for record in life {
                check_record(world, publishers, triple, record);
                let label = Label::of(&record.payload);
                stored.entry(label).or_default().insert(record.id);
            }
            check_order(triple, life, &letters);
        }
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

/// First occurrences of each publisher's messages on a topic are in the order of publishing (N2). QoS 0 counts too. A
/// message that went to the dead-letter topic, and was sent again later, has left the order.
fn check_order(triple: &Triple, life: &[StoredRecord], letters: &HashSet<Label>) {
    let mut seen: HashSet<Label> = HashSet::new();
    let mut newest: HashMap<(String, String), u16> = HashMap::new();
    for record in life {
        let label = Label::of(&record.payload);
        let is_letter = letters.contains(&label) && *triple != dead_letters();
        if is_letter || !seen.insert(label.clone()) {
            continue;
        }
        let topic = envelope::open(record).unwrap().topic.as_str().to_owned();
        let newest = newest.entry((label.publisher.clone(), topic)).or_default();
        assert!(
            label.number > *newest,
            "N2: {label} is stored in {triple} after {newest}"
        );
        *newest = label.number;
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
            let changed = kind
                .and_then(Kind::target)
                .is_some_and(|target| world.log.has_changed(&target));
            if kind != Some(Kind::Committed) && !changed {
                assert!(present.contains(label), "N1: {label} is lost");
            }
        }
    }
}
