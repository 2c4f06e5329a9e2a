//! Patterns, templates and names (C2 to C5), one sentence each.

use super::*;

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
    for pattern in [r"\w{500}{500}", r"\w{60}"] {
        let expected = Problem::PatternTooLarge { limit: 1 << 20 };
        assert_eq!(problem(&rule(pattern, "s")).0, expected, "{pattern}");
    }
    assert!(takes(r"\w{3,20}", "room_42"));
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
    for pattern in ["$SYS/.*", "^$a", "($a)", "$.*", "^$a?"] {
        assert_eq!(why(pattern), Problem::LeadingEndAnchor, "{pattern}");
    }
    for (pattern, name) in [
        ("a#?", "a"),
        ("(?:a#|b)c", "bc"),
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
        problem(&rule("a(b{255})", "x$1")).0,
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
