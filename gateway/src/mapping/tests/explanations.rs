//! What is explained of a topic: the decision, the groups, and why the other rules do not match.

use proptest::prelude::*;

use super::*;

fn why(pattern: &str, name: &str) -> String {
    let explanation = compile(&rule(pattern, "x")).explain(&topic(name));
    match explanation.missed.as_slice() {
        [] => "it matches".to_owned(),
        [miss] => miss.why.to_string(),
        more => panic!("{more:?}"),
    }
}

#[test]
fn the_example_says_which_rule_decides_and_why_not_the_others() {
    let map = compile(EXAMPLE);
    let explained = map.explain(&topic("building/north/room/42/temp"));
    assert_eq!(explained.outcome.unwrap().rule, RuleId::Rule(1));
    let groups: Vec<_> = explained
        .captures
        .iter()
        .map(|capture| (capture.index, capture.text.as_str()))
        .collect();
    assert_eq!(groups, [(1, "north"), (2, "42")]);
    assert_eq!(explained.missed, []);

    let explained = map.explain(&topic("building/north/room/x/temp"));
    assert_eq!(explained.outcome.unwrap().rule, RuleId::Fallback);
    let missed: Vec<_> = explained
        .missed
        .iter()
        .map(|miss| format!("{}: {}", miss.rule, miss.why))
        .collect();
    assert_eq!(
        missed,
        [
            r#"rule 1: after "building/north/room/" it wants (\d+), but the topic goes on with "x/temp""#,
            r#"rule 2: at the beginning it wants sensors/, but the topic begins with "building/north/room/x/temp""#,
        ]
    );
}

#[test]
fn why_a_pattern_does_not_match_is_said_at_the_part_where_it_fails() {
    for (pattern, name, expected) in [
        ("a/b", "a/b", "it matches"),
        (
            "a/[0-9]+/c",
            "a/7/d",
            r#"after "a/7" it wants /c, but the topic goes on with "/d""#,
        ),
        (
            "a/[0-9]+",
            "a/",
            r#"after "a/" it wants [0-9]+, but the topic ends"#,
        ),
        (
            "a/[0-9]+",
            "a/7/8",
            r#"it ends after "a/7", but the topic goes on with "/8""#,
        ),
        (
            "a/.*/z",
            "a/b/c",
            r#"after "a/b/c" it wants /z, but the topic ends"#,
        ),
        (
            "(?i)A/(?<x>b|c)",
            "a/d",
            r#"after "a/" it wants (?<x>b|c), but the topic goes on with "d""#,
        ),
        (
            "a|b",
            "c",
            r#"at the beginning it wants a|b, but the topic begins with "c""#,
        ),
        (
            r"\$SYS/.*",
            "SYS/x",
            r#"at the beginning it wants \$SYS/, but the topic begins with "SYS/x""#,
        ),
        (
            "ü(é)",
            "üx",
            r#"after "ü" it wants (é), but the topic goes on with "x""#,
        ),
        (
            "a",
            "a\n",
            r#"it ends after "a", but the topic goes on with "\n""#,
        ),
        (
            "(?x) a / b # comment",
            "a/c",
            r#"at the beginning it wants a / b, but the topic begins with "a/c""#,
        ),
        (
            r"a\bb",
            "ab",
            r#"after "a" it wants \b, but the topic goes on with "b""#,
        ),
    ] {
        assert_eq!(why(pattern, name), expected, "{pattern}");
    }
    assert!(why(".*", "$SYS/x").contains(r"begins with \$"));
    let long = why("a/b", &"x".repeat(65_535));
    assert!(long.len() < 200 && long.contains('…'), "{long}");
}

#[test]
fn named_groups_and_later_rules_that_match_too_are_told() {
    let more = "[[rule]]\nmqtt_topic = 'a/.+'\nstream = 's'\ntopic = 't'\n[[rule]]\nmqtt_topic = 'b'\nstream = 's'\ntopic = 't'\n\
                [[rule]]\nmqtt_topic = '\\$a/.*'\nstream = 's'\ntopic = 't'\n";
    let map = compile(&(rule("a/(?<site>[^/]+)/(.*)", "x${site}") + more));
    let explained = map.explain(&topic("a/b/"));
    let capture = |index, name: Option<&str>, text: &str| Capture {
        index,
        name: name.map(str::to_owned),
        text: text.to_owned(),
    };
    assert_eq!(
        explained.captures,
        [capture(1, Some("site"), "b"), capture(2, None, "")]
    );
    assert_eq!(explained.also, [RuleId::Rule(2)]);
    let lines: Vec<usize> = map.rules().map(|rule| rule.line).collect();
    assert_eq!(lines.len(), 4);
    assert_eq!(map.rules().nth(2).unwrap().mqtt_topic, "b");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn m7_what_is_explained_is_what_happens(model in super::model::map(), name in super::model::name()) {
        let map = compile(&model.to_toml());
        let name = topic(&name);
        let explained = map.explain(&name);
        prop_assert_eq!(&explained.outcome, &map.resolve(&name));
        // Every rule before the deciding one is explained, and none matches.
        let decided = map.first(&name).map(|rule| rule.id);
        let before = map.rules.iter().take_while(|rule| Some(rule.id) != decided).map(|rule| rule.id);
        prop_assert!(before.eq(explained.missed.iter().map(|miss| miss.rule)));
        for rule in map.rules.iter().filter(|rule| explained.also.contains(&rule.id)) {
            prop_assert!(rule.pattern.matches(name.as_str()));
        }
    }
}
