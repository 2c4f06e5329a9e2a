//! From an MQTT topic to the place where its messages are stored.

use std::hint::black_box;
use std::sync::Arc;

use gungraun::{library_benchmark, library_benchmark_group};
use mqtt_gateway::config::Limits;
use mqtt_gateway::mapping::{Resolver, TopicMap};
use mqtt_gateway::mqtt::TopicName;

use crate::prepare::{made, topic};

/// A map with that many rules for the sites of one operator, and that many topics, spread over them.
fn new_topics((rules, topics): (usize, usize)) -> (Resolver, Vec<TopicName>) {
    let rules_text: String = (0..rules)
        .map(|number| {
            format!(
                "[[rule]]\nmqtt_topic = 'plant/site-{number}/([^/]+)/([0-9]+)/.*'\nstream = 'site_{number}'\n\
                 topic = 'telemetry'\npartition_key = '$1_$2'\n"
            )
        })
        .collect();
    let text = format!("default_stream = 's'\ndefault_topic = 't'\n{rules_text}");
    let map = match TopicMap::compile("bench.toml", &text) {
        Ok(map) => map,
        Err(report) => panic!("{report}"),
    };
    let resolver = Resolver::new(Arc::new(map), Limits::default().resolution_cache_bytes);
    let topics = (0..topics)
        .map(|device| {
            let site = device % rules;
            topic(&format!("plant/site-{site}/press/{device}/temperature"))
        })
        .collect();
    (resolver, topics)
}

fn known_topics(size: (usize, usize)) -> (Resolver, Vec<TopicName>) {
    let (resolver, topics) = new_topics(size);
    for topic in &topics {
        made(resolver.resolve(topic));
    }
    (resolver, topics)
}

#[library_benchmark]
#[bench::rules_10_of_100(args = ((10, 100)), setup = new_topics)]
#[bench::rules_1000_of_100(args = ((1_000, 100)), setup = new_topics)]
#[bench::rules_10_of_10000(args = ((10, 10_000)), setup = new_topics)]
#[bench::rules_1000_of_10000(args = ((1_000, 10_000)), setup = new_topics)]
fn first_time((resolver, topics): (Resolver, Vec<TopicName>)) -> (Resolver, Vec<TopicName>) {
    for topic in &topics {
        let _ = black_box(resolver.resolve(black_box(topic)));
    }
    (resolver, topics)
}

#[library_benchmark]
#[bench::rules_10_of_100(args = ((10, 100)), setup = known_topics)]
#[bench::rules_1000_of_100(args = ((1_000, 100)), setup = known_topics)]
#[bench::rules_10_of_10000(args = ((10, 10_000)), setup = known_topics)]
#[bench::rules_1000_of_10000(args = ((1_000, 10_000)), setup = known_topics)]
fn remembered((resolver, topics): (Resolver, Vec<TopicName>)) -> (Resolver, Vec<TopicName>) {
    for topic in &topics {
        let _ = black_box(resolver.resolve(black_box(topic)));
    }
    (resolver, topics)
}

library_benchmark_group!(name = resolving, benchmarks = [first_time, remembered]);
