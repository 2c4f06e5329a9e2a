//! Many rules: one automaton for all of them answers as if each were asked in turn, within bounds.

use proptest::prelude::*;

use super::super::file::{MAX_FOREIGN, MAX_RULES};
use super::*;

fn rules(count: usize, rule: impl Fn(usize) -> String) -> String {
    let rules: String = (1..=count).map(rule).collect();
    DEFAULTS.to_owned() + &rules
}

/// The cheapest rule there is.
fn plain(number: usize) -> String {
    format!("[[rule]]\nmqtt_topic = 'r{number}/(.+)'\nstream = 's'\ntopic = 't{number}'\n")
}

#[test]
fn the_first_of_a_thousand_rules_that_matches_decides() {
    let map = compile(&rules(1000, plain));
    for number in [1, 2, 500, 1000] {
        let found = map.resolve(&topic(&format!("r{number}/x"))).unwrap();
        assert_eq!(found.rule, RuleId::Rule(number));
    }
    for miss in ["r1001/x", "r/x", "r1/", "x/r1/x"] {
        let found = map.resolve(&topic(miss)).unwrap();
        assert_eq!(found.rule, RuleId::Fallback, "{miss}");
    }
}

#[test]
fn a_map_of_a_hundred_thousand_rules_is_refused_with_one_clear_line() {
    let text = rules(100_000, plain);
    let (problem, _) = problem(&text);
    let expected = Problem::TooMany {
        name: "rule",
        count: 100_000,
        max: MAX_RULES,
    };
    assert_eq!(problem, expected);
    let foreign = |number| {
        format!("[[foreign]]\nstream = 's'\ntopic = 't{number}'\nmqtt_topic = 'm/{number}'\n")
    };
    let (problem, _) = super::problem(&rules(MAX_FOREIGN + 1, foreign));
    assert!(matches!(
        problem,
        Problem::TooMany {
            name: "foreign",
            ..
        }
    ));
}

#[test]
fn rules_that_are_large_together_are_refused_before_they_fill_the_memory() {
    // Each is just small enough.
    let large = |number| {
        format!("[[rule]]\nmqtt_topic = 'r{number}/(\\w{{2,10}})'\nstream = 's'\ntopic = 't'\n")
    };
    assert!(TopicMap::compile("map.toml", &rules(1, large)).is_ok());
    let report = TopicMap::compile("map.toml", &rules(600, large)).unwrap_err();
    let found = report.problems().iter().map(Located::what);
    let too_large = |problem: &Problem| matches!(problem, Problem::PatternsTooLarge { .. });
    assert_eq!(found.filter(|problem| too_large(problem)).count(), 1);
}

#[test]
fn a_pattern_that_ruins_backtracking_engines_costs_no_more_than_reading_the_topic() {
    // Each of these takes some 2^n steps where a pattern is matched by trying.
    let patterns = [
        "(a+)+$",
        "(a|aa)+$",
        "(a*)*b",
        "(.*a){10}",
        "([a-z]+)*x",
        "^(([a-z])+.)+[A-Z]([a-z])+$",
    ];
    let each = |at: usize| {
        let pattern = patterns[at - 1];
        format!("[[rule]]\nmqtt_topic = '{pattern}'\nstream = 's'\ntopic = 't$0'\n")
    };
    let map = compile(&rules(patterns.len(), each));
    let hostile = "a".repeat(65_534) + "!";
    assert_eq!(resolved(&map, &hostile), "the fallback: s/t");
    let all_a = "a".repeat(65_535);
    assert_eq!(resolved(&map, &all_a), "invalid_name");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn m1_one_automaton_decides_as_the_rules_one_by_one(model in super::model::map(), names in proptest::collection::vec(super::model::name(), 1..8)) {
        let map = compile(&model.to_toml());
        for name in &names {
            let name = topic(name);
            let first = map.rules.iter().find(|rule| {
                rule.pattern.begins_with_dollar() == name.is_dollar() && rule.pattern.matches(name.as_str())
            });
            prop_assert_eq!(map.first(&name).map(|rule| rule.id), first.map(|rule| rule.id));
        }
    }

    #[test]
    fn m1_what_is_remembered_is_what_the_map_says(model in super::model::map(), names in proptest::collection::vec(super::model::name(), 1..20), again in proptest::collection::vec(any::<prop::sample::Index>(), 1..60), bytes in 0..4000_usize) {
        let map = Arc::new(compile(&model.to_toml()));
        let resolver = Resolver::new(map.clone(), bytes);
        for index in again {
            let name = topic(&names[index.index(names.len())]);
            let remembered = resolver.resolve(&name).map(|placement| {
                let Destination { rule, target, plan } = &*placement.destination;
                (*rule, target.clone(), plan.clone(), placement.key)
            });
            let said = map.resolve(&name).map(|said| {
                let key = said.key.map(|key| key.hash());
                (said.rule, said.target, said.plan, key)
            });
            prop_assert_eq!(remembered, said);
            prop_assert!(resolver.bytes() <= bytes as u64);
        }
    }
}

#[test]
fn a_topic_that_comes_again_is_remembered_and_others_do_not_fill_the_memory() {
    let map = Arc::new(compile(EXAMPLE));
    let resolver = Resolver::new(map, 64 << 10);
    let often = topic("sensors/often/data");
    resolver.resolve(&often).unwrap();
    for number in 0..5000 {
        let once = topic(&format!("sensors/{number}/data"));
        resolver.resolve(&once).unwrap();
        assert!(resolver.remembers(&often), "forgotten after {number}");
        resolver.resolve(&often).unwrap();
    }
    assert!(resolver.bytes() <= 64 << 10);
    // A topic that is larger than the memory is answered all the same.
    let long = topic(&format!("sensors/{}/data", "x".repeat(60_000)));
    assert!(resolver.resolve(&long).is_ok());
}

#[test]
fn topics_that_go_to_the_same_place_by_different_rules_are_remembered_with_their_own_rule() {
    let map = compile(
        "default_stream = 's'\ndefault_topic = 't'\n\
         [[rule]]\nmqtt_topic = 'a/.*'\nstream = 's'\ntopic = 't'\n\
         [[rule]]\nmqtt_topic = 'b/.*'\nstream = 's'\ntopic = 't'\n",
    );
    let resolver = Resolver::new(Arc::new(map), 64 << 10);
    let rules = [
        ("a/x", RuleId::Rule(1)),
        ("b/x", RuleId::Rule(2)),
        ("c", RuleId::Fallback),
    ];
    for (name, rule) in rules.into_iter().chain(rules) {
        let placement = resolver.resolve(&topic(name)).unwrap();
        assert_eq!(placement.destination.rule, rule, "{name}");
    }
}
