//! What resolving a topic costs: with few and with many rules, matched and not, remembered and not, and how many
//! allocations it takes. Run with `cargo bench -p mqtt_gateway --bench topic_map`.

use std::sync::Arc;

use divan::{AllocProfiler, Bencher, black_box};
use mqtt_gateway::mapping::{Resolver, TopicMap};
use mqtt_gateway::mqtt::TopicName;

#[global_allocator]
static ALLOC: AllocProfiler = AllocProfiler::system();

/// Numbers of rules that are compared.
const RULES: [usize; 3] = [10, 100, 1000];
/// Room for a few hundred topics.
const MEMORY_BYTES: usize = 1 << 20;

fn main() {
    divan::main();
}

/// A map with that many rules for the sites of one operator, which differ late: the hard case for trying them in turn.
fn map(rules: usize) -> TopicMap {
    let rules: String = (0..rules)
        .map(|number| {
            format!(
                "[[rule]]\nmqtt_topic = 'plant/site-{number}/([^/]+)/([0-9]+)/.*'\nstream = 'site_{number}'\n\
                 topic = 'telemetry'\npartition_key = '$1_$2'\n"
            )
        })
        .collect();
    let text = format!("default_stream = 's'\ndefault_topic = 't'\n{rules}");
    match TopicMap::compile("bench.toml", &text) {
        Ok(map) => map,
        Err(report) => panic!("{report}"),
    }
}

fn topic(text: &str) -> TopicName {
    match TopicName::new(text.to_owned()) {
        Ok(topic) => topic,
        Err(error) => panic!("{error}"),
    }
}

#[divan::bench(args = RULES)]
fn hit_of_the_first_rule(bencher: Bencher, rules: usize) {
    let map = map(rules);
    let topic = topic("plant/site-0/press/42/temperature");
    bencher.bench(|| map.resolve(black_box(&topic)));
}

#[divan::bench(args = RULES)]
fn hit_of_the_last_rule(bencher: Bencher, rules: usize) {
    let map = map(rules);
    let topic = topic(&format!("plant/site-{}/press/42/temperature", rules - 1));
    bencher.bench(|| map.resolve(black_box(&topic)));
}

#[divan::bench(args = RULES)]
fn miss_at_the_beginning(bencher: Bencher, rules: usize) {
    let map = map(rules);
    let topic = topic("elsewhere/site-0/press/42/temperature");
    bencher.bench(|| map.resolve(black_box(&topic)));
}

#[divan::bench(args = RULES)]
fn miss_at_the_end(bencher: Bencher, rules: usize) {
    let map = map(rules);
    let topic = topic("plant/site-7/press/x42/temperature");
    bencher.bench(|| map.resolve(black_box(&topic)));
}

/// Each of many topics is new to the automaton too, as when a fleet reconnects.
#[divan::bench(args = RULES)]
fn a_thousand_topics_of_a_thousand_devices(bencher: Bencher, rules: usize) {
    let map = map(rules);
    let topics: Vec<TopicName> = (0..1000)
        .map(|device| {
            let site = device % rules;
            topic(&format!(
                "plant/site-{site}/press-{device}/{device}/temperature"
            ))
        })
        .collect();
    bencher.bench(|| {
        for topic in &topics {
            let _ = black_box(map.resolve(black_box(topic)));
        }
    });
}

#[divan::bench(args = RULES)]
fn a_remembered_topic(bencher: Bencher, rules: usize) {
    let resolver = Resolver::new(Arc::new(map(rules)), MEMORY_BYTES);
    let topic = topic("plant/site-7/press/42/temperature");
    bencher.bench(|| resolver.resolve(black_box(&topic)));
}

#[divan::bench(args = RULES, sample_count = 5)]
fn compiling_the_map(bencher: Bencher, rules: usize) {
    bencher.bench(|| map(black_box(rules)));
}
