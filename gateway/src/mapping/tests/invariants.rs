//! The invariants M1 to M4 and M6 over generated maps and topics (M5 is in `envelopes`).

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::sample::select;
use regex::Regex;

use super::model::{self, outcome};
use super::*;
use crate::mqtt::TopicFilter;

/// A regular expression as a tree, with a matcher so simple that it is evidently right.
#[derive(Debug, Clone)]
enum Tree {
    Char(char),
    Dot,
    Group(Box<Tree>),
    Optional(Box<Tree>),
    Star(Box<Tree>),
    Plus(Box<Tree>),
    Concat(Vec<Tree>),
    Either(Vec<Tree>),
}

impl Tree {
    fn to_pattern(&self) -> String {
        let all = |trees: &[Self]| trees.iter().map(Self::to_pattern).collect::<Vec<_>>();
        match self {
            Self::Char(character) => regex::escape(&character.to_string()),
            Self::Dot => ".".to_owned(),
            Self::Group(tree) => format!("({})", tree.to_pattern()),
            Self::Optional(tree) => format!("(?:{})?", tree.to_pattern()),
            Self::Star(tree) => format!("(?:{})*", tree.to_pattern()),
            Self::Plus(tree) => format!("(?:{})+", tree.to_pattern()),
            Self::Concat(trees) => all(trees).concat(),
            Self::Either(trees) => format!("(?:{})", all(trees).join("|")),
        }
    }

    /// Where matches that begin at one of `begins` can end.
    fn ends(&self, text: &[char], begins: &BTreeSet<usize>) -> BTreeSet<usize> {
        match self {
            Self::Char(wanted) => step(text, begins, |character| character == *wanted),
            Self::Dot => step(text, begins, |_| true),
            Self::Group(tree) => tree.ends(text, begins),
            Self::Optional(tree) => begins | &tree.ends(text, begins),
            Self::Star(tree) => {
                let mut ends = begins.clone();
                loop {
                    let more = &ends | &tree.ends(text, &ends);
                    if more == ends {
                        return ends;
                    }
                    ends = more;
                }
            }
            Self::Plus(tree) => Self::Star(tree.clone()).ends(text, &tree.ends(text, begins)),
            Self::Concat(trees) => trees
                .iter()
                .fold(begins.clone(), |begins, tree| tree.ends(text, &begins)),
            Self::Either(trees) => trees
                .iter()
                .flat_map(|tree| tree.ends(text, begins))
                .collect(),
        }
    }

    fn matches(&self, text: &str) -> bool {
        let text: Vec<char> = text.chars().collect();
        self.ends(&text, &BTreeSet::from([0])).contains(&text.len())
    }
}

fn step(text: &[char], begins: &BTreeSet<usize>, fits: impl Fn(char) -> bool) -> BTreeSet<usize> {
    begins
        .iter()
        .filter(|at| text.get(**at).is_some_and(|character| fits(*character)))
        .map(|at| at + 1)
        .collect()
}

fn tree() -> impl Strategy<Value = Tree> {
    let leaf = prop_oneof![
        select(&['a', 'b', '/', '$', '\n', 'ü'][..]).prop_map(Tree::Char),
        Just(Tree::Dot),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let boxed = inner.clone().prop_map(Box::new);
        prop_oneof![
            3 => boxed.clone().prop_map(Tree::Group),
            1 => boxed.clone().prop_map(Tree::Optional),
            1 => boxed.clone().prop_map(Tree::Star),
            1 => boxed.prop_map(Tree::Plus),
            3 => proptest::collection::vec(inner.clone(), 0..4).prop_map(Tree::Concat),
            2 => proptest::collection::vec(inner, 1..4).prop_map(Tree::Either),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn m1_every_topic_has_the_one_outcome_that_the_model_gives_it(model in model::map(), names in proptest::collection::vec(model::name(), 1..8)) {
        let text = model.to_toml();
        let (map, again) = (compile(&text), compile(&text));
        for name in names {
            let name = topic(&name);
            let result = map.resolve(&name);
            prop_assert_eq!(&result, &map.resolve(&name));
            prop_assert_eq!(&result, &again.resolve(&name));
            prop_assert_eq!(outcome(result), model.resolve(name.as_str()), "{}\n{}", text, name);
        }
    }

    #[test]
    fn m2_swapping_two_neighbours_changes_only_topics_that_both_match(model in model::map_of(2), at in any::<prop::sample::Index>(), names in proptest::collection::vec(model::name(), 1..8)) {
        if model.rules.len() < 2 {
            return Ok(());
        }
        let first = at.index(model.rules.len() - 1);
        let mut swapped = model.clone();
        swapped.rules.swap(first, first + 1);
        let (map, other) = (compile(&model.to_toml()), compile(&swapped.to_toml()));
        for name in names {
            let both = [first, first + 1].iter().all(|at| model.rules[*at].groups(&name).is_some());
            // The same rule has another number after the swap.
            let renumber = |rule| match rule {
                RuleId::Rule(number) if number == first + 1 => RuleId::Rule(first + 2),
                RuleId::Rule(number) if number == first + 2 => RuleId::Rule(first + 1),
                rule => rule,
            };
            let before = outcome(map.resolve(&topic(&name)));
            let after = outcome(other.resolve(&topic(&name))).map(|(rule, stream, name, key)| (renumber(rule), stream, name, key));
            prop_assert!(both || before == after, "{before:?} {after:?}");
        }
    }

    #[test]
    fn m3_equal_stream_topic_and_key_give_an_equal_partition(model in model::map(), names in proptest::collection::vec(model::name(), 2..12), partitions in 1..2000_u32) {
        let map = compile(&model.to_toml());
        let found: Vec<Resolution> = names.iter().filter_map(|name| map.resolve(&topic(name)).ok()).collect();
        for one in &found {
            let Some(key) = &one.key else { continue };
            prop_assert!(key.partition(partitions) < partitions);
            prop_assert_eq!(key.partition(partitions), PartitionKey::new(key.as_str()).partition(partitions));
            for other in found.iter().filter(|other| other.key.as_ref().map(PartitionKey::as_str) == Some(key.as_str())) {
                prop_assert_eq!(other.key.as_ref().map(|key| key.partition(partitions)), Some(key.partition(partitions)));
            }
        }
    }

    #[test]
    fn m4_where_a_publish_is_stored_is_among_what_a_subscription_to_its_topic_reads(model in model::map(), name in model::name(), partitions in 1..50_u32, turn in any::<prop::sample::Index>()) {
        let map = compile(&model.to_toml());
        let subscribed = TopicFilter::new(name.clone()).unwrap().concrete().unwrap();
        let stored = map.resolve(&topic(&name));
        let reads = map.reads(&subscribed);
        match stored {
            Ok(stored) => {
                let partition = match &stored.key {
                    Some(key) => key.partition(partitions),
                    None => turn.index(partitions as usize) as u32,
                };
                let reads = reads.unwrap();
                prop_assert!(reads.iter().any(|read| read.target == stored.target && read.partitions.of(partitions).contains(&partition)));
            }
            Err(refusal) => prop_assert_eq!(reads, Err(refusal)),
        }
    }

    #[test]
    fn m6_a_map_that_compiles_refuses_a_name_only_because_the_topic_is_long(model in model::map(), name in model::name()) {
        match compile(&model.to_toml()).resolve(&topic(&name)) {
            Ok(found) => {
                for part in [found.target.stream, found.target.topic] {
                    prop_assert!((1..=255).contains(&part.as_str().len()));
                }
            }
            Err(Refusal::NoRule) => prop_assert!(model.fallback.is_none() && !name.starts_with('$')),
            Err(Refusal::DollarTopic) => prop_assert!(name.starts_with('$')),
            Err(Refusal::InvalidName { bytes, .. }) => prop_assert!(bytes > 255 && name.len() > 20),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_pattern_takes_exactly_the_topics_that_it_matches_wholly(tree in tree(), names in proptest::collection::vec("[ab/\nü]{1,6}", 1..8)) {
        let Ok(map) = TopicMap::compile("map.toml", &rule(&tree.to_pattern(), "x")) else {
            // Refused for matching nothing: then the model must agree.
            for name in names {
                prop_assert!(!tree.matches(&name), "{} {name:?}", tree.to_pattern());
            }
            return Ok(());
        };
        for name in names {
            let taken = map.resolve(&topic(&name)).unwrap().rule == RuleId::Rule(1);
            prop_assert_eq!(taken, tree.matches(&name), "{} {:?}", tree.to_pattern(), name);
        }
    }

    #[test]
    fn m6_an_accepted_reference_takes_part_in_every_match_and_makes_no_empty_name(tree in tree(), group in 1..4_usize, names in proptest::collection::vec("[ab/$\nü]{1,6}", 1..16)) {
        let pattern = tree.to_pattern();
        if let Ok(map) = TopicMap::compile("map.toml", &rule(&pattern, &format!("${group}"))) {
            let whole = Regex::new(&format!(r"\A(?s:{pattern})\z")).unwrap();
            for name in names {
                let expected = whole.captures(&name).map(|captures| captures.get(group).map(|text| text.as_str()));
                match map.resolve(&topic(&name)) {
                    Ok(Resolution { rule: RuleId::Rule(_), target, .. }) => {
                        prop_assert_eq!(expected, Some(Some(target.stream.as_str())), "{} {:?}", pattern, name);
                    }
                    Ok(_) => prop_assert_eq!(expected, None),
                    Err(refusal) => prop_assert_eq!(refusal, Refusal::DollarTopic),
                }
            }
        }
    }

    #[test]
    fn any_text_compiles_or_is_reported_in_place(
        pattern in r"[ab/$(){}?*+|.\\d^<>:nx# \[\]0-2ü\n-]{0,14}",
        template in r"[ab$(){}12nü]{0,8}",
        name in "[ab/$ü\n]{1,5}",
    ) {
        let text = rule(&pattern, &template);
        match TopicMap::compile("map.toml", &text) {
            Ok(map) => {
                if let Err(Refusal::InvalidName { .. }) = map.resolve(&topic(&name)) {
                    prop_assert!(false, "a short topic makes no long name: {text}");
                }
            }
            Err(report) => {
                prop_assert!(!report.problems().is_empty());
                for problem in report.problems() {
                    prop_assert!(text.get(problem.span()).is_some());
                    prop_assert!(problem.line() > 2 && !problem.to_string().contains('\n'), "{}", problem);
                }
            }
        }
    }
}
