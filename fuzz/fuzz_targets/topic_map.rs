//! The topic map's file: any text compiles, or is reported with places that are in it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mqtt_gateway::mapping::{TopicMap, render};
use mqtt_gateway::mqtt::TopicName;

fuzz_target!(|text: &str| {
    match TopicMap::compile("fuzz.toml", text) {
        Ok(map) => {
            render::warnings(map.warnings(), true);
            for name in ["a", "a/b/7/c", "/", "$SYS/x", "ü\n"] {
                if let Ok(topic) = TopicName::new(name) {
                    let explained = map.explain(&topic);
                    assert_eq!(explained.outcome, map.resolve(&topic), "M7");
                    let _ = map.reads(&topic);
                }
            }
        }
        Err(report) => {
            assert!(!report.problems().is_empty());
            for problem in report.problems() {
                assert!(text.get(problem.span()).is_some());
                assert!(!problem.to_string().contains('\n'));
            }
            render::problems(&report, true);
        }
    }
});
