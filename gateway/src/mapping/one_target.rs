//! Whether a topic map stores everything in one place, as the connectors runtime does: it sends a source's messages to
//! one stream and topic, and chooses their partitions itself.

use std::fmt;

use super::{NameTemplate, RuleId, TopicMap};
use crate::log::Target;

/// Why a topic map does not store everything in one topic without keys: everything that speaks against it, in file order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotOneTarget(pub Vec<Unfit>);

impl fmt::Display for NotOneTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, unfit) in self.0.iter().enumerate() {
            let separator = if at > 0 { "; " } else { "" };
            write!(f, "{separator}{unfit}")?;
        }
        Ok(())
    }
}

impl std::error::Error for NotOneTarget {}

/// One thing that speaks against it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// A rule's stream or topic is made from the MQTT topic.
    #[error(
        "{rule} (line {line}) makes the name of its stream or topic from the MQTT topic, and the runtime stores in one \
         place only"
    )]
    Dynamic {
        /// The rule.
        rule: RuleId,
        /// Where it begins in the file, counted from 1.
        line: usize,
    },
    /// A rule has a key.
    #[error(
        "{rule} (line {line}) has a partition_key, and the runtime chooses the partition itself"
    )]
    Keyed {
        /// The rule.
        rule: RuleId,
        /// Where it begins in the file, counted from 1.
        line: usize,
    },
    /// The fallback or a rule leads to another topic than the first rule.
    #[error(
        "{what} leads to {other}, others lead to {first}, and the runtime stores in one place only"
    )]
    Elsewhere {
        /// The rule with its line, or the fallback.
        what: String,
        /// Where it leads.
        other: Target,
        /// Where the first rule leads.
        first: Target,
    },
    /// There is neither a rule nor a fallback.
    #[error("it stores nothing: it has no rule, and on_unmatched = \"refuse\"")]
    Nothing,
}

impl TopicMap {
    /// The one topic where every message is stored, without a key.
    ///
    /// # Errors
    /// Why there is none.
    pub fn only_target(&self) -> Result<Target, NotOneTarget> {
        let mut unfit = Vec::new();
        let mut first: Option<Target> = None;
        let mut lead = |unfit: &mut Vec<Unfit>, what: String, target: Target| match &first {
            None => first = Some(target),
            Some(first) if *first == target => {}
            Some(first) => unfit.push(Unfit::Elsewhere {
                what,
                other: target,
                first: first.clone(),
            }),
        };
        for rule in &self.rules {
            let (id, line) = (rule.id, rule.written.line);
            match (&rule.stream, &rule.topic) {
                (NameTemplate::Constant(stream), NameTemplate::Constant(topic)) => {
                    let (stream, topic) = (stream.clone(), topic.clone());
                    let what = format!("{id} (line {line})");
                    lead(&mut unfit, what, Target { stream, topic });
                }
                _ => unfit.push(Unfit::Dynamic { rule: id, line }),
            }
            if rule.key.is_some() {
                unfit.push(Unfit::Keyed { rule: id, line });
            }
        }
        if let Some(fallback) = &self.fallback {
            let what = format!("{} (default_stream, default_topic)", RuleId::Fallback);
            lead(&mut unfit, what, fallback.target.clone());
        }
        match first {
            Some(target) if unfit.is_empty() => Ok(target),
            None if unfit.is_empty() => Err(NotOneTarget(vec![Unfit::Nothing])),
            _ => Err(NotOneTarget(unfit)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FALLBACK: &str = "default_stream = 's'\ndefault_topic = 't'\n";

    fn rule(stream: &str, topic: &str, more: &str) -> String {
        // A map whose rules take the same topics is refused.
        let first = format!("{stream}{topic}{more}").len();
        format!(
            "[[rule]]\nmqtt_topic = '{first}/([^/]+)'\nstream = '{stream}'\ntopic = '{topic}'\n{more}\n"
        )
    }

    fn only_target(map: &str) -> Result<String, String> {
        let map = TopicMap::compile("map.toml", map).unwrap_or_else(|report| panic!("{report}"));
        map.only_target()
            .map(|target| target.to_string())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_map_with_one_topic_and_no_key_is_fit_whatever_its_rules_and_foreign_topics() {
        assert_eq!(only_target(FALLBACK).unwrap(), "s/t");
        let same = rule("s", "t", "durability = 'commit'");
        assert_eq!(only_target(&format!("{FALLBACK}{same}")).unwrap(), "s/t");
        let refuse = format!("on_unmatched = 'refuse'\n{}", rule("x", "y", ""));
        assert_eq!(only_target(&refuse).unwrap(), "x/y");
        let foreign =
            "[[foreign]]\nstream = 'shop'\ntopic = 'orders'\nmqtt_topic = 'iggy/$stream'\n";
        assert_eq!(only_target(&format!("{FALLBACK}{foreign}")).unwrap(), "s/t");
    }

    #[test]
    fn everything_that_is_unfit_is_named_with_its_line() {
        let map = format!(
            "{FALLBACK}{}{}{}",
            rule("s", "t", "partition_key = '$1'"),
            rule("s", "t_$1", ""),
            rule("s", "u", "partition_key = 'one'"),
        );
        let error = only_target(&map).unwrap_err();
        for part in [
            "rule 1 (line 3) has a partition_key",
            "rule 2 (line 8) makes the name",
            "rule 3 (line 13) leads to s/u, others lead to s/t",
            "rule 3 (line 13) has a partition_key",
        ] {
            assert!(error.contains(part), "{part}: {error}");
        }
        assert!(!error.contains("fallback"), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }

    #[test]
    fn a_fallback_that_leads_elsewhere_is_named() {
        let error = only_target(&format!("{FALLBACK}{}", rule("x", "y", ""))).unwrap_err();
        assert!(
            error.contains("the fallback (default_stream, default_topic) leads to s/t"),
            "{error}"
        );
    }

    #[test]
    fn a_map_that_stores_nothing_is_unfit() {
        let error = only_target("on_unmatched = 'refuse'\n").unwrap_err();
        assert!(error.contains("it stores nothing"), "{error}");
    }
}
