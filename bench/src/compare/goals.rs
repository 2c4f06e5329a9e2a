//! What is wanted of the gateway beside the others, judged within the run.
//!
//! Always holds: a goal is judged by medians, of figures or of ratios formed within rounds; one for which a subject is missing,
//! or has failed, is *not measured* and neither reached nor missed. Whether goals are reached decides nothing.

use serde::Serialize;

use super::measure::Measured;
use super::results::Results;
use super::subject::{Class, Kind, key};
use crate::rounds::Spread;

/// One of them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Goal {
    /// Of what, in words.
    pub(crate) what: String,
    /// The bound.
    pub(crate) wanted: String,
    /// What was found, and how far it went.
    pub(crate) found: Option<Spread>,
    /// Whether it is reached; nothing when it was not measured.
    pub(crate) reached: Option<bool>,
}

#[derive(Debug, Clone, Copy)]
enum Bound {
    AtMost(f64),
    Below(f64),
    AtLeast(f64),
}

type Figure = fn(&Measured) -> Option<f64>;

const RATE: Figure = |it| Some(it.rate);
const P50: Figure = |it| Some(it.latency_us.p50);
const P99: Figure = |it| Some(it.latency_us.p99);
const OWN_CPU: Figure = |it| it.cpu_us;
/// Of everything that a subject consists of.
const ALL_CPU: Figure = |it| Some(it.cpu_us? + it.iggy_cpu_us.unwrap_or(0.0));

/// Judges all of them.
pub(crate) fn judge(results: &Results) -> Vec<Goal> {
    let gateway = |class| {
        let kind = results
            .gateway(class)
            .map_or(Kind::Gateway, |subject| subject.kind);
        key(kind, class)
    };
    let (commit, persisted) = (gateway(Class::Plain), gateway(Class::Durable));
    let mosquitto = key(Kind::Mosquitto, Class::Plain);
    let ratio = |workload, subject: &str, base: &str, figure: Figure| {
        results.ratio(workload, subject, base, figure)
    };
    let goal = |what: &str, bound: Bound, unit: &str, found: Option<Spread>| {
        Goal::new(what, bound, unit, found)
    };
    let mut goals = Vec::new();
    for (class, gateway, name) in [
        (Class::Plain, &commit, "commit"),
        (Class::Durable, &persisted, "persisted"),
    ] {
        goals.push(goal(
            &format!("QoS 1, window 1, {name}: PUBACK p50 over an append of the SDK"),
            Bound::AtMost(1.5),
            "",
            ratio("publish-1x1", gateway, &key(Kind::Sdk, class), P50),
        ));
    }
    let load = "publish-50x20";
    goals.push(goal(
        "50 × 20, commit: messages/s over nats without fsync",
        Bound::AtLeast(2.0),
        "",
        ratio(load, &commit, &key(Kind::Nats, Class::Plain), RATE),
    ));
    // Mosquitto's PUBACK does not wait for what it writes now and then, so it is no equal here; without it, and with it.
    for (what, left_out) in [
        (
            "broker whose PUBACK waits for storage",
            Some(Kind::Mosquitto),
        ),
        ("durable flavour of any broker", None),
    ] {
        goals.push(goal(
            &format!("50 × 20, persisted: messages/s over the best {what}"),
            Bound::AtLeast(8.0),
            "",
            best_durable(results, load, left_out)
                .and_then(|best| ratio(load, &persisted, &best, RATE)),
        ));
    }
    for (gateway, name) in [(&commit, "commit"), (&persisted, "persisted")] {
        goals.push(goal(
            &format!("50 × 20, {name}: processor time of the plugin's process for each message"),
            Bound::AtMost(7.0),
            " µs",
            results.spread(load, gateway, OWN_CPU),
        ));
    }
    goals.push(goal(
        "1 to 1, QoS 0, commit: delivered/s over mosquitto",
        Bound::AtLeast(1.0),
        "",
        ratio("deliver-1-qos0", &commit, &mosquitto, RATE),
    ));
    for (what, figure) in [
        ("p99", P99),
        ("processor time of gateway and Iggy for each copy", ALL_CPU),
        (
            "processor time of the plugin's process for each copy",
            OWN_CPU,
        ),
    ] {
        goals.push(goal(
            &format!("200 messages/s to 200, QoS 1, commit: {what} over mosquitto"),
            Bound::AtMost(2.0),
            "",
            ratio("deliver-rate", &commit, &mosquitto, figure),
        ));
    }
    goals.push(goal(
        "1 to 50, QoS 0, commit: copies/s over mosquitto",
        Bound::AtLeast(3.0),
        "",
        ratio("deliver-50-qos0", &commit, &mosquitto, RATE),
    ));
    goals.push(goal(
        "5,000 idle connections: memory of each",
        Bound::AtMost(6.0),
        " KiB",
        results.spread("idle-5000", &commit, |it| {
            Some(it.bytes_per_connection? / 1_024.0)
        }),
    ));
    goals.push(goal(
        "10,000 connections: accepted within",
        Bound::Below(10.0),
        " s",
        results.spread("idle-10000", &commit, |it| Some(it.seconds)),
    ));
    for (gateway, name) in [(&commit, "commit"), (&persisted, "persisted")] {
        // All rounds have to keep everything, so it is the worst that is judged.
        let kept = results
            .spread("crash", gateway, |it| {
                Some(it.kept? as f64 / it.messages.max(1) as f64 * 100.0)
            })
            .map(|kept| Spread {
                median: kept.min,
                ..kept
            });
        goals.push(goal(
            &format!("Crash, {name}: acknowledged messages kept, in the worst round"),
            Bound::AtLeast(100.0),
            " %",
            kept,
        ));
    }
    goals
}

/// The broker with a durable flavour that has the highest rate.
fn best_durable(results: &Results, workload: &str, left_out: Option<Kind>) -> Option<String> {
    results
        .subjects
        .iter()
        .filter(|subject| Some(subject.kind) != left_out)
        .filter(|subject| subject.class == Class::Durable)
        .filter(|subject| !matches!(subject.kind, Kind::Gateway | Kind::Sandbox | Kind::Sdk))
        .filter_map(|subject| {
            let rate = results.spread(workload, &subject.key, RATE)?;
            Some((rate.median, subject.key.clone()))
        })
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map(|(_, key)| key)
}

impl Goal {
    fn new(what: &str, bound: Bound, unit: &str, found: Option<Spread>) -> Self {
        let (wanted, reached) = match bound {
            Bound::AtMost(bound) => (
                format!("≤ {bound}{unit}"),
                found.map(|it| it.median <= bound),
            ),
            Bound::Below(bound) => (
                format!("< {bound}{unit}"),
                found.map(|it| it.median < bound),
            ),
            Bound::AtLeast(bound) => (
                format!("≥ {bound}{unit}"),
                found.map(|it| it.median >= bound),
            ),
        };
        Self {
            what: what.to_owned(),
            wanted,
            found,
            reached,
        }
    }
}

/// The table.
pub(crate) fn markdown(goals: &[Goal]) -> String {
    let mut out = "### Goals\n\n| of | wanted | found | reached |\n|---|---|---|---|\n".to_owned();
    for goal in goals {
        let found = goal.found.map_or("—".to_owned(), |it| {
            format!("{:.2} ({:.2}–{:.2})", it.median, it.min, it.max)
        });
        let reached = match goal.reached {
            Some(true) => "yes",
            Some(false) => "**no**",
            None => "not measured",
        };
        out += &format!(
            "| {} | {} | {found} | {reached} |\n",
            goal.what, goal.wanted
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::results::tests::{measured, results};
    use super::super::subject::Subject;
    use super::*;
    use crate::stack::Programs;

    fn subjects(list: &[(Kind, Class)]) -> Vec<Subject> {
        let programs = Programs {
            sandbox: "s".into(),
            plugin: "p".into(),
            iggy_server: None,
            iggy_connectors: None,
        };
        list.iter()
            .map(|&(kind, class)| {
                Subject::iggy(kind, class, "flavour", "1.0".to_owned(), programs.clone())
            })
            .collect()
    }

    fn find<'a>(goals: &'a [Goal], what: &str) -> &'a Goal {
        goals.iter().find(|goal| goal.what.contains(what)).unwrap()
    }

    #[test]
    fn without_anything_measured_every_goal_is_not_measured() {
        let goals = judge(&results(1, Vec::new()));
        assert!(goals.len() > 10);
        assert!(goals.iter().all(|goal| goal.reached.is_none()));
        let rows = markdown(&goals);
        assert_eq!(rows.matches("| — | not measured |").count(), goals.len());
    }

    #[test]
    fn the_best_durable_broker_is_the_one_that_the_gateway_has_to_beat() {
        let mut results = results(
            1,
            subjects(&[
                (Kind::Sandbox, Class::Durable),
                (Kind::Sdk, Class::Durable),
                (Kind::Mosquitto, Class::Durable),
                (Kind::Nats, Class::Durable),
            ]),
        );
        let mut add = |key: &str, rate| {
            results.add(
                "publish-50x20",
                key,
                &[Ok(measured(1.0)), Ok(measured(rate))],
            );
        };
        add("sandbox-durable", 799.0);
        add("sdk-durable", 10_000.0);
        add("mosquitto-durable", 100.0);
        add("nats-durable", 10.0);
        let goals = judge(&results);
        let goal = find(&goals, "best durable flavour");
        assert_eq!(goal.reached, Some(false));
        assert!((goal.found.unwrap().median - 7.99).abs() < 1e-9);
        let goal = find(&goals, "waits for storage");
        assert!((goal.found.unwrap().median - 79.9).abs() < 1e-9);
        assert_eq!(find(&goals, "nats without fsync").reached, None);
        assert_eq!(
            find(&goals, "persisted: processor time").reached,
            Some(false)
        );
    }

    #[test]
    fn one_round_with_a_loss_is_enough_to_miss_the_crash() {
        let mut results = results(3, subjects(&[(Kind::Gateway, Class::Plain)]));
        let kept = |kept| {
            Ok(Measured {
                kept: Some(kept),
                ..measured(1.0)
            })
        };
        let all = [kept(1_000), kept(1_000), kept(1_000), kept(1_000)];
        results.add("crash", "gateway-plain", &all);
        assert_eq!(find(&judge(&results), "Crash, commit").reached, Some(true));
        results.samples.clear();
        let some = [kept(1_000), kept(1_000), kept(999), kept(1_000)];
        results.add("crash", "gateway-plain", &some);
        assert_eq!(find(&judge(&results), "Crash, commit").reached, Some(false));
    }
}
