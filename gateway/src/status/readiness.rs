//! Whether a gateway can do its work: what `/ready` says.
//!
//! What always holds: it is ready when its listeners accept, its topic map is loaded and Iggy answered when it was asked last,
//! which is a few seconds ago at most; what does not pass says why.

use std::sync::Arc;

use super::{Check, Readiness};
use crate::listener::door::{Door, Phase};
use crate::session::Context;

/// The most notes.
const MOST_NOTES: usize = 20;

/// Makes all checks, without asking anyone else.
pub fn check(context: &Context) -> Readiness {
    let checks = vec![listener(context), topic_map(context), iggy(context)];
    let weak = context.targets.weak();
    let mut notes: Vec<String> = weak
        .iter()
        .take(MOST_NOTES)
        .map(|target| {
            format!("the durability of {target} in Iggy is weaker than its rule asks for: a PUBACK does not mean stable storage there")
        })
        .collect();
    if weak.len() > MOST_NOTES {
        notes.push(format!("and {} topics more", weak.len() - MOST_NOTES));
    }
    notes.extend(closed(context));
    Readiness {
        ready: checks.iter().all(|check| check.ok),
        checks,
        notes,
    }
}

fn passed(name: &str) -> Check {
    Check {
        name: name.to_owned(),
        ok: true,
        age_seconds: 0.0,
        reason: None,
        failing_for_seconds: None,
    }
}

fn listener(context: &Context) -> Check {
    let check = passed("listener");
    if context.stopping.is_cancelled() {
        return Check {
            ok: false,
            reason: Some("the gateway stops".to_owned()),
            ..check
        };
    }
    // One that was drained alone is meant to be closed: a note, as long as clients find another.
    let is_open = |door: &Arc<Door>| door.phase() == Phase::Accepting;
    if context.doors.is_empty() || context.doors.iter().any(is_open) {
        return check;
    }
    Check {
        ok: false,
        reason: Some(format!(
            "no listener accepts: {}",
            closed(context).join(", ")
        )),
        ..check
    }
}

/// Listeners that do not accept.
fn closed(context: &Context) -> Vec<String> {
    let closed = context.doors.iter();
    closed
        .filter(|door| door.phase() != Phase::Accepting)
        .map(|door| format!("listener {} is {}", door.address, door.phase().name()))
        .collect()
}

/// A gateway does not start without one, and one that cannot be used does not take its place.
fn topic_map(_context: &Context) -> Check {
    passed("topic_map")
}

fn iggy(context: &Context) -> Check {
    let away = context.health.away_for();
    Check {
        ok: away.is_none(),
        age_seconds: context.health.age().as_secs_f64(),
        reason: away.map(|_| context.health.error().unwrap_or_default()),
        failing_for_seconds: away.map(|away| away.as_secs_f64()),
        ..passed("iggy")
    }
}
