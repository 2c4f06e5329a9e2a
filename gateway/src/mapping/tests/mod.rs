//! Tests of the topic map through its public face: the checks at compile time, what resolves to what, and the invariants
//! over generated maps and topics. What is shared by them is here.

use super::*;

mod checks;
mod documents;
mod doubts;
mod edges;
mod envelopes;
mod explanations;
mod foreign;
mod invariants;
mod many;
mod model;
mod reading;
mod reports;

/// The map that the documentation explains.
const EXAMPLE: &str = r#"
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

/// A topic of other producers.
const FOREIGN: &str =
    "[[foreign]]\nstream = 'shop'\ntopic = 'orders'\nmqtt_topic = 'iggy/$stream/$topic'\n";

const DEFAULTS: &str = "default_stream = 's'\ndefault_topic = 't'\n";

fn topic(text: &str) -> TopicName {
    TopicName::new(text.to_owned()).unwrap()
}

fn compile(text: &str) -> TopicMap {
    TopicMap::compile("map.toml", text).unwrap_or_else(|report| panic!("{report}\n{text}"))
}

/// The defaults and one rule with these texts.
fn rule(pattern: &str, stream: &str) -> String {
    format!(
        "{DEFAULTS}[[rule]]\nmqtt_topic = '''\n{pattern}'''\nstream = '''\n{stream}'''\ntopic = 't'\n"
    )
}

/// Whether a rule with `pattern` takes the topic `name`.
fn takes(pattern: &str, name: &str) -> bool {
    let resolution = compile(&rule(pattern, "x")).resolve(&topic(name));
    resolution.is_ok_and(|resolution| resolution.rule == RuleId::Rule(1))
}

/// What `name` resolves to, in short.
fn resolved(map: &TopicMap, name: &str) -> String {
    match map.resolve(&topic(name)) {
        Err(refusal) => refusal.reason().to_owned(),
        Ok(Resolution {
            rule,
            target,
            key: Some(key),
            ..
        }) => format!("{rule}: {target}/{key}"),
        Ok(Resolution { rule, target, .. }) => format!("{rule}: {target}"),
    }
}

/// All problems of `text`.
fn problems(text: &str) -> Vec<Located<Problem>> {
    let report = TopicMap::compile("map.toml", text).expect_err(text);
    report.problems().to_vec()
}

/// The only problem of `text`, and the part of `text` that it is about.
fn problem(text: &str) -> (Problem, &str) {
    let problems = problems(text);
    let [problem] = problems.as_slice() else {
        panic!("not exactly one problem: {problems:?}");
    };
    (problem.what().clone(), &text[problem.span()])
}
