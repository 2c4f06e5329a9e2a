//! Rules that are never reached (C6) and warnings (C8).

use super::*;

fn warnings(map: &TopicMap) -> Vec<(&str, &Warning)> {
    map.warnings()
        .iter()
        .map(|warning| (warning.key(), warning.what()))
        .collect()
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
