//! Resolving: any topic under any rule has one outcome, the same when it is remembered, explained and subscribed to.

#![no_main]

use std::sync::Arc;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use mqtt_gateway::mapping::{Resolver, TopicMap};
use mqtt_gateway::mqtt::TopicName;

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    rules: Vec<(&'a str, &'a str, Option<&'a str>)>,
    refuse: bool,
    foreign: Option<&'a str>,
    topics: Vec<&'a str>,
}

impl Input<'_> {
    fn to_toml(&self) -> String {
        let mut text = match self.refuse {
            true => "on_unmatched = 'refuse'\n".to_owned(),
            false => "default_stream = 's'\ndefault_topic = 't'\n".to_owned(),
        };
        for (pattern, name, key) in self.rules.iter().take(8) {
            text += &format!(
                "[[rule]]\nmqtt_topic = '''{pattern}'''\nstream = 'x{name}'\ntopic = '''{name}'''\n"
            );
            if let Some(key) = key {
                text += &format!("partition_key = '''{key}'''\n");
            }
        }
        if let Some(template) = self.foreign {
            text += &format!(
                "[[foreign]]\nstream = 's'\ntopic = 't'\nmqtt_topic = '''{template}'''\nkey_header = 'k'\n"
            );
        }
        text
    }
}

fuzz_target!(|input: Input<'_>| {
    let Ok(map) = TopicMap::compile("fuzz.toml", &input.to_toml()) else {
        return;
    };
    let map = Arc::new(map);
    let resolver = Resolver::new(map.clone(), 4096);
    for name in input.topics.iter().take(16) {
        let Ok(topic) = TopicName::new((*name).to_owned()) else {
            continue;
        };
        let outcome = map.resolve(&topic);
        match (&outcome, resolver.resolve(&topic)) {
            (Ok(found), Ok(placed)) => {
                let place = &*placed.destination;
                assert_eq!(
                    (found.rule, &found.target),
                    (place.rule, &place.target),
                    "M1"
                );
                assert_eq!(found.plan, place.plan, "M1");
                assert_eq!(found.key.as_ref().map(|key| key.hash()), placed.key, "M1");
            }
            (Err(refusal), Err(again)) => assert_eq!(*refusal, again, "M1"),
            (outcome, resolved) => panic!("M1: {outcome:?}, {resolved:?}"),
        }
        assert_eq!(outcome, map.explain(&topic).outcome, "M7");
        if let Ok(found) = &outcome {
            for name in [&found.target.stream, &found.target.topic] {
                assert!((1..=255).contains(&name.as_str().len()), "M6");
            }
            let reads = map.reads(&topic);
            let partition = found.key.as_ref().map_or(0, |key| key.partition(7));
            assert!(
                reads.is_ok_and(|reads| reads.iter().any(|read| {
                    read.target == found.target && read.partitions.of(7).contains(&partition)
                })),
                "M4"
            );
        }
    }
});
