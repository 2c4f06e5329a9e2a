//! The checks at compile time and the decided edge cases, one sentence each. Invariants over generated maps are in
//! `invariants`.

use std::time::Duration;

use super::*;
use crate::log::Durability;

/// The map that the documentation explains.
pub(super) const EXAMPLE: &str = r#"
default_stream = "sensors"
default_topic  = "messages_default"

[[rule]]
mqtt_topic    = 'building/(\w+)/room/(\d+)/.*'
stream        = 'building_$1'
topic         = 'telemetry'
partition_key = 'room_$2'

[[rule]]
mqtt_topic    = 'sensors/([^/]+)/data'
stream        = 'sensors'
topic         = 'sensor_data'
partition_key = 'sensor_$1'
"#;

const DEFAULTS: &str = "default_stream = 's'\ndefault_topic = 't'\n";

pub(super) fn topic(text: &str) -> TopicName {
    TopicName::new(text.to_owned()).unwrap()
}

fn compile(text: &str) -> TopicMap {
    TopicMap::compile("map.toml", text).unwrap_or_else(|report| panic!("{report}"))
}

/// A map of one rule with this pattern to the constant target `s/matched`.
fn one_rule(pattern: &str) -> String {
    format!("{DEFAULTS}[[rule]]\nmqtt_topic = '''{pattern}'''\nstream = 's'\ntopic = 'matched'\n")
}

/// Whether a rule with `pattern` takes `name`.
fn takes(pattern: &str, name: &str) -> bool {
    let resolution = compile(&one_rule(pattern)).resolve(&topic(name));
    resolution.is_ok_and(|resolution| resolution.rule == RuleId::Rule(1))
}

/// The report as lines.
fn report(text: &str) -> Vec<String> {
    let report = TopicMap::compile("map.toml", text).expect_err(text);
    report.to_string().lines().map(str::to_owned).collect()
}

/// The one problem that there is, and the part of the source that it is about.
fn problem(text: &str) -> (Problem, String) {
    let report = TopicMap::compile("map.toml", text).expect_err(text);
    let [problem] = report.problems() else {
        panic!("not exactly one problem: {report}");
    };
    (problem.what().clone(), text[problem.span()].to_owned())
}

/// A map of one rule with group patterns and this stream template.
fn stream_template(pattern: &str, template: &str) -> String {
    format!("{DEFAULTS}[[rule]]\nmqtt_topic = '{pattern}'\nstream = '{template}'\ntopic = 't'\n")
}

fn resolved(map: &TopicMap, name: &str) -> String {
    match map.resolve(&topic(name)) {
        Ok(Resolution {
            rule, target, key, ..
        }) => match key {
            Some(key) => format!("{rule}: {target}/{key}"),
            None => format!("{rule}: {target}"),
        },
        Err(refusal) => refusal.reason().to_owned(),
    }
}

#[test]
fn the_example_resolves_as_documented() {
    let map = compile(EXAMPLE);
    for (name, expected) in [
        (
            "building/north/room/42/temp",
            "rule 1: building_north/telemetry/room_42",
        ),
        (
            "sensors/dev-7/data",
            "rule 2: sensors/sensor_data/sensor_dev-7",
        ),
        ("foo/bar", "the fallback: sensors/messages_default"),
        (
            "building/north/room/x/temp",
            "the fallback: sensors/messages_default",
        ),
    ] {
        assert_eq!(resolved(&map, name), expected, "{name}");
    }
}

#[test]
fn the_first_matching_rule_in_file_order_wins() {
    let map = compile(&format!(
        "{DEFAULTS}
        [[rule]]\nmqtt_topic = 'a/.*'\nstream = 'first'\ntopic = 't'
        [[rule]]\nmqtt_topic = 'a/b'\nstream = 'second'\ntopic = 't'
        [[rule]]\nmqtt_topic = '.*/b'\nstream = 'third'\ntopic = 't'"
    ));
    assert_eq!(resolved(&map, "a/b"), "rule 1: first/t");
    assert_eq!(resolved(&map, "c/b"), "rule 3: third/t");
}
