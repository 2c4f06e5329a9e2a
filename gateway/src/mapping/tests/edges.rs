//! What resolves to what: the example, whole-topic matching, and the edge cases that are decided.

use super::*;

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

#[test]
fn constant_targets_are_those_of_constant_rules_and_of_the_fallback() {
    let targets: Vec<String> = compile(EXAMPLE)
        .constant_targets()
        .map(|(id, target, plan)| {
            assert!(plan.auto_create);
            format!("{id}: {target}")
        })
        .collect();
    assert_eq!(
        targets,
        [
            "rule 2: sensors/sensor_data",
            "the fallback: sensors/messages_default"
        ]
    );
}

#[test]
fn a_pattern_matches_the_whole_topic_whatever_it_is_made_of() {
    for (pattern, whole, others) in [
        ("a", "a", &["ab", "ba", "a/b", "a\n", "\na", "a\nb"][..]),
        ("^a$", "a", &["ab", "a\n"]),
        ("a|b", "b", &["ab", "ac", "xb"]),
        ("a|ab", "ab", &["abc"]),
        ("(?m)^a$", "a", &["x\na", "a\nx", "a\n"]),
        ("(?m)a", "a", &["a\na"]),
        ("(?R)(?m)a$", "a", &["a\r\n"]),
        ("(?x) a # comment", "a", &["ab", "a\n", "a # comment"]),
        ("(?x) a # comment )", "a", &["ab"]),
        ("(?x) a # comment\n", "a", &["ab", "a\n"]),
        ("(?x: a # c\n)b", "ab", &["ab\n"]),
        ("(?x: a )# b", "a# b", &[]),
        ("(?x)a(?-x)# b", "a# b", &[]),
        (r"(?x) a\ b", "a b", &["ab"]),
        ("(?i)a", "A", &["AB"]),
        ("(?U)a+", "aaa", &["aaab"]),
        ("a*?", "aaa", &["aaab"]),
        (r"\Aa\z", "a", &["aa"]),
        (r"a\b", "a", &["a b"]),
        (r"\(\?:", "(?:", &["(?:a"]),
        ("a.b", "a\nb", &["ab"]),
        ("(?-s)a.b", "a/b", &["a\nb"]),
    ] {
        // A `#` in a topic is no topic: such patterns are refused, which is tested elsewhere.
        if whole.contains('#') {
            assert_eq!(
                problem(&rule(pattern, "s")).0,
                Problem::DemandsForbidden,
                "{pattern}"
            );
            continue;
        }
        assert!(takes(pattern, whole), "{pattern:?} {whole:?}");
        for other in others.iter().filter(|other| !other.contains('#')) {
            assert!(!takes(pattern, other), "{pattern:?} {other:?}");
        }
    }
}

#[test]
fn levels_may_be_empty_and_count() {
    for (pattern, name) in [
        ("a//b", "a//b"),
        ("/a", "/a"),
        ("a/", "a/"),
        ("a", "a"),
        ("/", "/"),
        ("//", "//"),
    ] {
        for other in ["a//b", "a/b", "/a", "a/", "a", "/", "//"] {
            assert_eq!(takes(pattern, other), name == other, "{pattern} {other}");
        }
    }
    assert!(!takes("a/[^/]+/b", "a//b"));
    assert!(takes("a/[^/]*/b", "a//b"));
}

#[test]
fn case_matters_and_nothing_is_normalised() {
    assert!(!takes("a/B", "a/b"));
    // One character or two that look the same.
    assert!(!takes("\u{fc}", "u\u{308}"));
    assert!(!takes("u\u{308}", "\u{fc}"));
    assert!(!takes("K", "\u{212a}"));
    assert!(takes("Living Room/Lamp 1", "Living Room/Lamp 1"));
    let map = compile(&rule("x/(.+)", "$1"));
    for name in [
        " ",
        "a b",
        "Ü/東京/🚀",
        "\u{feff}",
        "\u{10ffff}",
        "\u{1}",
        "%2F",
        "a\tb",
    ] {
        assert_eq!(
            resolved(&map, &format!("x/{name}")),
            format!("rule 1: {name}/t")
        );
    }
}

#[test]
fn a_dollar_topic_is_only_for_a_rule_that_begins_with_a_literal_dollar() {
    for pattern in [
        ".*",
        ".+",
        r".SYS/.*",
        r"[$a]SYS/.*",
        r"[^/]+/.*",
        r"\$?.*",
        r"(?:\$|a).*",
        r"(?:\$SYS|a).*",
        r"(?:\$SYS)?.*",
        r"\W.*",
    ] {
        assert_eq!(
            resolved(&compile(&rule(pattern, "x")), "$SYS/a"),
            "dollar_topic",
            "{pattern}"
        );
    }
    for pattern in [
        r"\$SYS/.*",
        r"^\$SYS/.*",
        r"(\$SYS)/.*",
        r"[$]SYS/.*",
        r"\x24SYS/.*",
        r"\$.*",
        r"\$SYS/b|\$SYS/a",
        r"(?x) \$ SYS/a",
        r"\b?\$SYS/a",
    ] {
        assert!(takes(pattern, "$SYS/a"), "{pattern}");
    }
    assert!(!takes(r"\$SYS/.*", "SYS/a"));
    assert!(takes(r"(?:\$SYS|a).*", "a/b"));
    assert_eq!(resolved(&compile(DEFAULTS), "$"), "dollar_topic");
    assert_eq!(
        resolved(&compile("on_unmatched = 'refuse'"), "$a"),
        "dollar_topic"
    );
    assert_eq!(resolved(&compile(DEFAULTS), "a/$SYS"), "the fallback: s/t");
    // The catch-all before it does not take it away.
    let map = compile(&format!(
        "{DEFAULTS}
        [[rule]]\nmqtt_topic = '.*'\nstream = 'all'\ntopic = 't'
        [[rule]]\nmqtt_topic = '\\$SYS/.*'\nstream = 'sys'\ntopic = 't'"
    ));
    assert_eq!(resolved(&map, "$SYS/a"), "rule 2: sys/t");
    assert_eq!(resolved(&map, "a"), "rule 1: all/t");
}

#[test]
fn a_name_that_a_topic_makes_too_long_is_refused_for_that_topic_alone() {
    let map = compile(
        &(rule("a/(.+)", "s_$1") + "[[rule]]\nmqtt_topic = 'b/(.+)'\nstream = 's'\ntopic = '$1'\n"),
    );
    let longest = "x".repeat(253);
    assert_eq!(
        resolved(&map, &format!("a/{longest}")),
        format!("rule 1: s_{longest}/t")
    );
    let refusal = map.resolve(&topic(&format!("a/{longest}x"))).unwrap_err();
    let expected = Refusal::InvalidName {
        rule: RuleId::Rule(1),
        part: NamePart::Stream,
        bytes: 256,
    };
    assert_eq!(refusal, expected);
    let refusal = map
        .resolve(&topic(&format!("b/{}", "ü".repeat(128))))
        .unwrap_err();
    let expected = Refusal::InvalidName {
        rule: RuleId::Rule(2),
        part: NamePart::Topic,
        bytes: 256,
    };
    assert_eq!(refusal, expected);
    assert_eq!(refusal.reason(), "invalid_name");
    assert!(
        refusal
            .to_string()
            .contains("rule 2 makes a topic name of 256 bytes"),
        "{refusal}"
    );
}

#[test]
fn a_key_may_be_long_or_empty() {
    let map = compile(&(rule("a/(.*)", "s") + "partition_key = '$1'\n"));
    let key = |name: &str| map.resolve(&topic(name)).unwrap().key.unwrap();
    let long = "x".repeat(65_533);
    assert_eq!(key(&format!("a/{long}")).as_str(), long);
    assert_eq!(key("a/").as_str(), "");
    assert!(key("a/").partition(7) < 7);
}

#[test]
fn resolving_shares_constant_names() {
    let map = compile(EXAMPLE);
    let resolution = |name: &str| map.resolve(&topic(name)).unwrap();
    let (one, two) = (resolution("sensors/a/data"), resolution("sensors/b/data"));
    assert!(std::ptr::eq(
        one.target.topic.as_str(),
        two.target.topic.as_str()
    ));
    assert!(std::ptr::eq(
        one.target.stream.as_str(),
        two.target.stream.as_str()
    ));
    let (one, two) = (resolution("x"), resolution("y"));
    assert!(std::ptr::eq(
        one.target.topic.as_str(),
        two.target.topic.as_str()
    ));
}

#[test]
fn m3_the_partition_is_that_of_an_iggy_messages_key() {
    // Published values of xxHash32 with seed 0.
    for (key, hash) in [
        ("", 0x02cc_5d05_u32),
        ("a", 0x550d_7456),
        ("abc", 0x32d1_53ff),
        ("Nobody inspects the spammish repetition", 0xe229_3b2f),
    ] {
        let key = PartitionKey::new(key);
        for partitions in [1, 2, 3, 10, 1000, u32::MAX] {
            assert_eq!(key.partition(partitions), hash % partitions, "{key}");
        }
        assert_eq!(key.partition(0), 0);
    }
}
