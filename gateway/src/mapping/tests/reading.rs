//! Reading the file (C1, C7): what is reported where, and which settings come out.

use std::time::Duration;

use super::*;
use crate::log::{Durability, Expiry, TopicSize};

/// The keys of the problems of `text`, in order.
fn keys(text: &str) -> Vec<String> {
    problems(text)
        .iter()
        .map(|problem| problem.key().to_owned())
        .collect()
}

#[test]
fn everything_wrong_is_reported_at_once_with_file_line_column_and_key() {
    let text = "default_straem = 's'\ndefault_topic = ''\n\n[[rule]]\nmqtt_topic = 'ü/(b'\nstream = 's'\n\
                [[rule]]\nmqtt_topic = 'ü/(b)?'\nstream = 'é_$1'\ntopic = 't$2'\npartitions = 0\n";
    let report = TopicMap::compile("etc/map.toml", text)
        .unwrap_err()
        .to_string();
    let places: Vec<&str> = report
        .lines()
        .map(|line| line.split_once(": ").map_or(line, |(place, _)| place))
        .collect();
    assert_eq!(
        places,
        [
            "etc/map.toml:1:1",
            "etc/map.toml:1:1",
            "etc/map.toml:2:17",
            "etc/map.toml:4:1",
            "etc/map.toml:5:17",
            "etc/map.toml:9:13",
            "etc/map.toml:10:11",
            "etc/map.toml:11:14",
        ],
        "{report}"
    );
    assert_eq!(
        keys(text),
        [
            "default_straem",
            "default_stream",
            "default_topic",
            "rule 1 topic",
            "rule 1 mqtt_topic",
            "rule 2 stream",
            "rule 2 topic",
            "rule 2 partitions",
        ]
    );
}

#[test]
fn every_error_of_the_toml_itself_is_reported_and_no_guess_at_the_rest() {
    let problems = problems(
        "default_stream = \ndefault_topic = 'a\ndefault_topic = 'b'\n[[rule]\nx = 1\n[y]\n",
    );
    assert!(
        problems
            .iter()
            .all(|problem| matches!(problem.what(), Problem::Syntax(_)))
    );
    let lines: Vec<usize> = problems.iter().map(Located::line).collect();
    assert_eq!(lines, [1, 2, 3, 4]);
}

#[test]
fn an_unknown_key_is_refused_with_the_nearest_known_key() {
    let near = |text: &str| match problem(text) {
        (Problem::UnknownKey { nearest, .. }, part) => (nearest, part.to_owned()),
        other => panic!("{other:?}"),
    };
    let in_file = format!("{DEFAULTS}partition = 3\n");
    assert_eq!(near(&in_file), (Some("partitions"), "partition".to_owned()));
    let in_rule = rule("a", "s") + "partition_keys = 'k'\n";
    assert_eq!(
        near(&in_rule),
        (Some("partition_key"), "partition_keys".to_owned())
    );
    // A key of the file is not one of a rule, and the other way round.
    let misplaced = rule("a", "s") + "max_streams = 3\n";
    assert_eq!(near(&misplaced).1, "max_streams");
    let misplaced = format!("{DEFAULTS}partition_key = 'k'\n");
    assert_eq!(near(&misplaced).1, "partition_key");
    let far = format!("{DEFAULTS}xyzzy = 3\n");
    assert_eq!(near(&far), (None, "xyzzy".to_owned()));
    assert_eq!(
        keys(&format!("{DEFAULTS}rules = []\n[foreign]\n")),
        ["rules", "foreign"]
    );
}

#[test]
fn a_problem_stays_on_one_line_whatever_its_key_holds() {
    let text = format!(
        "{DEFAULTS}\"a\\nb\" = 1\n[[rule]]\nmqtt_topic = 'a'\nstream = \"${{x\\ny}}\"\ntopic = 't'\n"
    );
    let report = TopicMap::compile("map.toml", &text).unwrap_err();
    assert_eq!(report.problems().len(), 2);
    assert_eq!(report.to_string().lines().count(), 2, "{report}");
}

#[test]
fn a_value_of_the_wrong_type_or_out_of_range_is_refused() {
    for line in [
        "default_stream = 3",
        "on_unmatched = true",
        "on_unmatched = 'drop'",
        "max_streams = 0",
        "max_topics = -1",
        "max_topics = 4294967296",
        "auto_create = 'yes'",
        "partitions = 0",
        "partitions = 1001",
        "partitions = 1.0",
        "partitions = 99999999999999999999999",
        "message_expiry = 3600",
        "message_expiry = 'soon'",
        "message_expiry = '0s'",
        "message_expiry = '1ns'",
        "message_expiry = '600000years'",
        "max_topic_size = 0",
        "max_topic_size = -1",
        "max_topic_size = 'much'",
        "max_topic_size = '18446744073709551615B'",
        "max_topic_size = [1]",
        "durability = 'replicated'",
        "rule = 1",
        "rule = [1]",
        "rule = {}",
        "[[rule]]\nmqtt_topic = 1\nstream = 's'\ntopic = 't'",
        "[[rule]]\nmqtt_topic = 'a'\nstream = ['s']\ntopic = 't'",
        "[[rule]]\nmqtt_topic = 'a'\nstream = 's'\ntopic = 't'\npartition_key = 1",
    ] {
        let before = DEFAULTS.to_owned();
        let before = if line.starts_with("default_stream") {
            before.replace("default_stream", "#")
        } else {
            before
        };
        let text = format!("{before}{line}\n");
        assert_eq!(problems(&text).len(), 1, "{line}: {:?}", problems(&text));
    }
}

#[test]
fn settings_come_from_the_rule_then_the_file_then_the_defaults() {
    let plans = |text: &str| -> Vec<TopicPlan> {
        compile(text)
            .constant_targets()
            .map(|(_, _, plan)| plan)
            .collect()
    };
    let built_in = TopicPlan {
        auto_create: true,
        spec: TopicSpec {
            partitions: 1,
            durability: Durability::Persisted,
            message_expiry: Expiry::ServerDefault,
            max_topic_size: TopicSize::ServerDefault,
        },
    };
    assert_eq!(
        plans(&rule("a", "s1")),
        [built_in.clone(), built_in.clone()]
    );
    let text = format!(
        "auto_create = false\npartitions = 0x10\nmessage_expiry = '1day 12h'\nmax_topic_size = 1_000\ndurability = 'commit'\n\
         {}auto_create = true\npartitions = 3\nmessage_expiry = 'server_default'\nmax_topic_size = '10 GiB'\ndurability = 'persisted'\n",
        rule("a", "s1")
    );
    let of_rule = TopicPlan {
        spec: TopicSpec {
            partitions: 3,
            max_topic_size: TopicSize::Bytes(10 << 30),
            ..built_in.spec.clone()
        },
        ..built_in
    };
    let of_file = TopicPlan {
        auto_create: false,
        spec: TopicSpec {
            partitions: 16,
            durability: Durability::Commit,
            message_expiry: Expiry::After(Duration::from_secs(36 * 3600)),
            max_topic_size: TopicSize::Bytes(1000),
        },
    };
    assert_eq!(plans(&text), [of_rule, of_file]);
    let boundless = plans(
        "default_stream = 's'\ndefault_topic = 't'\nmessage_expiry = 'never'\nmax_topic_size = 'unlimited'\n",
    );
    assert_eq!(
        (
            boundless[0].spec.message_expiry,
            boundless[0].spec.max_topic_size
        ),
        (Expiry::Never, TopicSize::Unlimited)
    );
}

#[test]
fn bounds_are_1000_unless_the_file_says_otherwise() {
    let bounds = compile(DEFAULTS).bounds();
    assert_eq!((bounds.max_streams, bounds.max_topics), (1000, 1000));
    let bounds = compile(&format!("max_streams = 7\nmax_topics = 8\n{DEFAULTS}")).bounds();
    assert_eq!((bounds.max_streams, bounds.max_topics), (7, 8));
}

#[test]
fn a_rule_needs_pattern_stream_and_topic() {
    let text = format!("{DEFAULTS}[[rule]]\n");
    assert_eq!(
        keys(&text),
        ["rule 1 mqtt_topic", "rule 1 stream", "rule 1 topic"]
    );
    assert!(
        problems(&text)
            .iter()
            .all(|problem| &text[problem.span()] == "[[rule]]")
    );
}

#[test]
fn every_message_says_what_to_do() {
    // After the semicolon, or as a question.
    for text in [
        "",
        "x = 1",
        "rule = 1",
        "default_stream = ''\ndefault_topic = '$'",
        "partitions = 0",
        "a =",
    ] {
        for problem in problems(text) {
            let message = problem.to_string();
            assert!(message.contains("; "), "{message}");
        }
    }
}
