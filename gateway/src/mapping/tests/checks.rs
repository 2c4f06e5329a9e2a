//! The checks at compile time (C1 to C8), one sentence each.

use std::time::Duration;

use super::*;
use crate::log::Durability;

/// The keys of the problems of `text`, in order.
fn keys(text: &str) -> Vec<String> {
    problems(text)
        .iter()
        .map(|problem| problem.key().to_owned())
        .collect()
}

fn warnings(map: &TopicMap) -> Vec<(&str, &Warning)> {
    map.warnings()
        .iter()
        .map(|warning| (warning.key(), warning.what()))
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
fn every_error_of_the_toml_itself_is_reported() {
    let problems =
        problems("default_stream = \ndefault_topic = 'a\ndefault_topic = 'b'\n[[rule]\n");
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
            message_expiry: None,
            max_topic_size: None,
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
            max_topic_size: Some(10 << 30),
            ..built_in.spec.clone()
        },
        ..built_in
    };
    let of_file = TopicPlan {
        auto_create: false,
        spec: TopicSpec {
            partitions: 16,
            durability: Durability::Commit,
            message_expiry: Some(Duration::from_secs(36 * 3600)),
            max_topic_size: Some(1000),
        },
    };
    assert_eq!(plans(&text), [of_rule, of_file]);
}

#[test]
fn bounds_are_1000_unless_the_file_says_otherwise() {
    let bounds = compile(DEFAULTS).bounds();
    assert_eq!((bounds.max_streams, bounds.max_topics), (1000, 1000));
    let bounds = compile(&format!("max_streams = 7\nmax_topics = 8\n{DEFAULTS}")).bounds();
    assert_eq!((bounds.max_streams, bounds.max_topics), (7, 8));
}

#[test]
fn c2_a_pattern_that_is_no_regular_expression_is_refused_where_it_goes_wrong() {
    for (pattern, part) in [
        ("a/(b", "("),
        ("a)b", ")"),
        ("a/[b", "["),
        (r"a\", r"\"),
        ("a/(?<n>b)/(?<n>c)", "n"),
        (r"a/(?=b)", "(?="),
        (r"(a)\1", r"\1"),
        ("a{2,1}", "{2,1}"),
        ("x|)(y", ")"),
        // Would be well formed, and wrong, between added parentheses.
        ("a)|(?:b", ")"),
        (r"\xFF(?-u:\xFF)", r"\xFF"),
    ] {
        let text = rule(pattern, "s");
        let (problem, place) = problem(&text);
        assert!(
            matches!(problem, Problem::BadPattern(_)),
            "{pattern}: {problem:?}"
        );
        assert_eq!(place, part, "{pattern}");
    }
}

#[test]
fn c2_a_pattern_that_would_take_too_much_memory_is_refused() {
    let text = rule(r"\w{500}{500}", "s");
    assert!(matches!(problem(&text).0, Problem::PatternTooLarge { .. }));
    let deep = format!("{}a{}", "(".repeat(200), ")".repeat(200));
    let text = rule(&deep, "s");
    assert!(matches!(problem(&text).0, Problem::BadPattern(_)));
}

#[test]
fn c2_a_pattern_that_no_topic_can_match_is_refused() {
    let why = |pattern: &str| problem(&rule(pattern, "s")).0;
    for pattern in ["", "^$", r"[a&&b]", "a[a&&b]"] {
        assert_eq!(why(pattern), Problem::MatchesNothing, "{pattern}");
    }
    for pattern in ["sensors/#", "#", r"a/\+/b", r"\x00", "(a#|b#)c"] {
        assert_eq!(why(pattern), Problem::DemandsForbidden, "{pattern}");
    }
    for pattern in ["$SYS/.*", "^$a", "($a)"] {
        assert_eq!(why(pattern), Problem::LeadingEndAnchor, "{pattern}");
    }
    for (pattern, name) in [
        ("a#?", "a"),
        ("(?:$)?a", "a"),
        ("(?:$|^)a", "a"),
        ("a|$b", "a"),
        ("[#a]", "a"),
    ] {
        assert!(takes(pattern, name), "{pattern}");
    }
}

#[test]
fn c3_a_reference_must_name_a_group_of_its_own_pattern() {
    for (pattern, template, part) in [
        ("a", "s$1", "$1"),
        ("(a)", "s$2", "$2"),
        ("(a)(?:b)", "s$2", "$2"),
        ("(a)", "s${n}", "${n}"),
        ("(?<n>a)", "s${m}", "${m}"),
        ("(a)", "s$99999999999999999999", "$99999999999999999999"),
        ("(a){0}b", "s$1", "$1"),
        // Not group 1 followed by a zero.
        ("(a)", "s$10", "$10"),
        ("(a)", "s${ 1}", "${ 1}"),
        ("(a)", "s${+1}", "${+1}"),
    ] {
        let text = rule(pattern, template);
        let (problem, place) = problem(&text);
        assert!(
            matches!(problem, Problem::UnknownGroup { .. }),
            "{template}: {problem:?}"
        );
        assert_eq!(place, part);
    }
}

#[test]
fn c3_a_group_that_a_match_can_do_without_is_refused() {
    for pattern in [
        "a(b)?",
        "a(b)*",
        "a(b){0,3}",
        "a(?:x(b))?",
        "(b)|a",
        "a|(b)",
        "(?:(b)|c)a",
        "(?:(b)|c)+",
        "a(?:(b)?c)+",
        "a(b)??",
    ] {
        let text = rule(pattern, "s$1");
        let (problem, place) = problem(&text);
        assert!(
            matches!(problem, Problem::OptionalGroup { .. }),
            "{pattern}: {problem:?}"
        );
        assert_eq!(place, "$1");
    }
    // The group around an alternation takes part, its branches' groups do not.
    assert_eq!(
        resolved(&compile(&rule("((a)|b)", "s_$1")), "b"),
        "rule 1: s_b/t"
    );
    assert!(matches!(
        problem(&rule("((a)|b)", "s_$2")).0,
        Problem::OptionalGroup { .. }
    ));
}

#[test]
fn c3_a_group_of_every_match_is_accepted_also_repeated_named_and_nested() {
    for (pattern, template, name, stream) in [
        ("(a)(b)", "$2$1", "ab", "ba"),
        ("(a|b)+", "$1", "ab", "b"),
        ("(?:(a)/){1,3}b", "$1", "a/a/b", "a"),
        ("((x)(y))z", "$1$3$2", "xyz", "xyyx"),
        (
            "(?P<site>\\d+)/(?<n_1>.+)",
            "${site}_${n_1}_${1}_$2",
            "7/x",
            "7_x_7_x",
        ),
        ("(a)0", "${1}0", "a0", "a0"),
        ("(a)x", "$1x", "ax", "ax"),
        (".+", "$0", "a/b", "a/b"),
        (".*", "${0}", "a", "a"),
        ("(ü)", "$$1=$1$$", "ü", "$1=ü$"),
        ("((((((((((j))))))))))", "$10", "j", "j"),
    ] {
        let map = compile(&rule(pattern, template));
        assert_eq!(
            resolved(&map, name),
            format!("rule 1: {stream}/t"),
            "{pattern} {template}"
        );
    }
}

#[test]
fn c3_a_dollar_that_begins_no_reference_is_refused() {
    for (template, places) in [
        ("s$", 1),
        ("s$a", 1),
        ("s$name", 1),
        ("s${", 1),
        ("s${}", 1),
        ("s${1", 1),
        ("s$ 1", 1),
        ("s$$$", 1),
        ("${1${1}", 1),
        ("$a$b", 2),
        ("s$é", 1),
    ] {
        let text = rule("(a)", template);
        let problems = problems(&text);
        assert_eq!(problems.len(), places, "{template}: {problems:?}");
        for problem in problems {
            assert_eq!(problem.what(), &Problem::MalformedReference, "{template}");
            assert_eq!(&text[problem.span()], "$", "{template}");
        }
    }
    let text = format!(
        "{DEFAULTS}[[rule]]\nmqtt_topic = 'a'\nstream = 's'\ntopic = 't'\npartition_key = 'k$'\n"
    );
    assert_eq!(problem(&text), (Problem::MalformedReference, "$"));
}

#[test]
fn a_problem_in_an_escaped_text_points_at_the_whole_value() {
    let text = format!("{DEFAULTS}[[rule]]\nmqtt_topic = 'a'\nstream = \"a\\t$1\"\ntopic = 't'\n");
    assert_eq!(problem(&text).1, "\"a\\t$1\"");
    let text =
        format!("{DEFAULTS}[[rule]]\nmqtt_topic = 'a'\nstream = '''\n$1'''\ntopic = \"t\"\n");
    assert_eq!(problem(&text).1, "$1");
}

#[test]
fn c4_without_both_defaults_unmatched_topics_must_be_refused() {
    assert_eq!(problems("").len(), 2);
    let text = "default_stream = 's'\n";
    assert_eq!(
        problem(text).0,
        Problem::MissingDefault {
            key: "default_topic"
        }
    );
    let text = "default_topic = 't'\non_unmatched = 'fallback'\n";
    assert_eq!(
        problem(text).0,
        Problem::MissingDefault {
            key: "default_stream"
        }
    );
    let map = compile("on_unmatched = 'refuse'\n");
    assert_eq!(resolved(&map, "a"), "no_rule");
    assert_eq!(map.constant_targets().count(), 0);
}

#[test]
fn c4_a_default_must_be_a_valid_constant_name() {
    let default = |name: &str| format!("default_topic = 't'\ndefault_stream = '{name}'\n");
    assert_eq!(problem(&default("")).0, Problem::EmptyName);
    assert!(matches!(
        problem(&default("s$1")).0,
        Problem::NoPattern { .. }
    ));
    assert!(matches!(
        problem(&default("$0")).0,
        Problem::NoPattern { .. }
    ));
    assert_eq!(problem(&default("s$")).0, Problem::MalformedReference);
    assert_eq!(
        problem(&default(&"x".repeat(256))).0,
        Problem::NameTooLong { at_least: 256 }
    );
    assert_eq!(
        resolved(&compile(&default("$$s")), "a"),
        "the fallback: $s/t"
    );
    assert_eq!(
        compile(&default(&"x".repeat(255)))
            .constant_targets()
            .count(),
        1
    );
    // Wrong also if it is not used.
    let text = default("") + "on_unmatched = 'refuse'\n";
    assert_eq!(problem(&text).0, Problem::EmptyName);
}

#[test]
fn c5_a_name_that_can_be_empty_or_is_always_too_long_is_refused() {
    for (pattern, template) in [
        ("a(b*)", "$1"),
        ("a/(.*)", "$1"),
        ("(b?)(c?)d", "$1$2"),
        ("a()", "$1"),
    ] {
        assert_eq!(
            problem(&rule(pattern, template)).0,
            Problem::MayBeEmpty,
            "{pattern}"
        );
    }
    assert_eq!(problem(&rule("a", "")).0, Problem::EmptyName);
    assert_eq!(
        problem(&rule("a", &"x".repeat(256))).0,
        Problem::NameTooLong { at_least: 256 }
    );
    // Bytes count, not characters.
    assert_eq!(
        problem(&rule("a", &"ü".repeat(128))).0,
        Problem::NameTooLong { at_least: 256 }
    );
    assert_eq!(
        problem(&rule("a(b{200})", "$1$1")).0,
        Problem::NameTooLong { at_least: 400 }
    );
    assert_eq!(
        resolved(&compile(&rule("a/(.*)", "x$1")), "a/"),
        "rule 1: x/t"
    );
    let longest = "ü".repeat(127) + "x";
    assert_eq!(
        resolved(&compile(&rule("a", &longest)), "a"),
        format!("rule 1: {longest}/t")
    );
}

#[test]
fn a_constant_empty_key_is_refused() {
    let text = rule("a", "s") + "partition_key = ''\n";
    assert_eq!(problem(&text), (Problem::EmptyKey, "''"));
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

/// A map of rules with these patterns.
fn rules(patterns: &[&str]) -> String {
    let rule =
        |pattern: &&str| format!("[[rule]]\nmqtt_topic = '{pattern}'\nstream = 's'\ntopic = 't'\n");
    DEFAULTS.to_owned() + &patterns.iter().map(rule).collect::<String>()
}

#[test]
fn c6_a_rule_that_no_topic_can_reach_is_refused() {
    for again in ["a/(b+)", "^a/b+", "a/b+$", "(?:a)/(b+)", r"[a]/bb*|c"] {
        let text = rules(&["x", r"a/b+", again]);
        let result = TopicMap::compile("map.toml", &text);
        if again.contains('|') {
            assert!(result.is_ok(), "{again}");
        } else {
            assert_eq!(
                problem(&text).0,
                Problem::SameAsEarlier { earlier: 2 },
                "{again}"
            );
        }
    }
    for all in [".*", "^.*$", "(.+)", "(?x) .* # all"] {
        let text = rules(&[all, "a"]);
        assert_eq!(
            problem(&text).0,
            Problem::AfterCatchAll { earlier: 1 },
            "{all}"
        );
    }
    compile(&rules(&[".*", r"\$SYS/.*"]));
    compile(&rules(&[r"\$.*", ".*"]));
    compile(&rules(&["(?-s).*", "a", ".{2,}", "b"]));
}

#[test]
fn c8_a_balanced_rule_with_several_partitions_is_warned_of() {
    let map = compile(&(rule("a", "s1") + "partitions = 2\n"));
    assert_eq!(
        warnings(&map),
        [("rule 1", &Warning::Balanced { partitions: 2 })]
    );
    let map = compile(&(rule("a", "s1") + "partitions = 2\npartition_key = 'k'\n"));
    assert_eq!(warnings(&map), []);
    let map = compile(&format!("partitions = 2\n{DEFAULTS}"));
    assert_eq!(
        warnings(&map),
        [("default_topic", &Warning::Balanced { partitions: 2 })]
    );
}

#[test]
fn c8_classes_that_match_more_than_ascii_are_warned_of() {
    let classes = |pattern: &str| -> Vec<&'static str> {
        let map = compile(&rule(pattern, "s1"));
        let of = |warning: &Located<Warning>| match warning.what() {
            Warning::UnicodeClass { class, .. } => *class,
            other => panic!("{other:?}"),
        };
        map.warnings().iter().map(of).collect()
    };
    assert_eq!(classes(r"\d/(\w+)/[\d.]"), [r"\d", r"\w", r"\d"]);
    assert!(classes(r"(?-u)\d\w").is_empty());
    assert!(classes(r"(?-u:\d)[0-9]\D\W[^/]").is_empty());
}

#[test]
fn what_looks_like_a_wildcard_is_unused_or_is_disputed_is_warned_of() {
    let map = compile(&rule("a/+/b", "s1"));
    assert_eq!(
        warnings(&map),
        [("rule 1 mqtt_topic", &Warning::LooksLikeWildcard)]
    );
    let map = compile(&format!("on_unmatched = 'refuse'\n{DEFAULTS}"));
    let unused = &Warning::UnusedDefault;
    assert_eq!(
        warnings(&map),
        [("default_stream", unused), ("default_topic", unused)]
    );
    let map = compile(&(rule("a", "s") + "durability = 'commit'\n"));
    let [(key, Warning::DisputedTarget { earlier, target })] = warnings(&map)[..] else {
        panic!("{:?}", map.warnings());
    };
    assert_eq!(
        (key, *earlier, target.to_string()),
        ("default_topic", RuleId::Rule(1), "s/t".to_owned())
    );
}

#[test]
fn the_example_warns_of_nothing_but_its_classes() {
    let map = compile(EXAMPLE);
    assert!(
        map.warnings()
            .iter()
            .all(|warning| matches!(warning.what(), Warning::UnicodeClass { .. }))
    );
    assert_eq!(map.warnings().len(), 2);
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
