//! Many sample topics: what happens to each, one after the other, and then the sum.
//!
//! What always holds: where a sample is stored comes from [`TopicMap::resolve`](mqtt_gateway::mapping::TopicMap::resolve);
//! no more than one sample is held at a time.

use std::path::Path;

use mqtt_gateway::mapping::RuleId;
use serde::Serialize;

use super::balance::{Balance, Example};
use super::lines::{Line, Lines, NotUtf8};
use super::place::{PartitionCount, RuleKind, TargetReport};
use super::report::{INVALID_TOPIC, Impossible, Outcome, possible, refusing_rule};
use super::rows::{CELL, JsonRows, Rows, TableRows};
use super::{ExplainError, Loaded};
use crate::Failure;
use crate::output::Output;
use crate::text::cut;

/// What happens to one sample.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) line: u64,
    pub(super) topic: String,
    pub(super) outcome: Outcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rule: Option<RuleName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) target: Option<TargetReport>,
}

/// A rule by its number alone; what it says stands in the sum.
#[derive(Debug, Serialize)]
pub(super) struct RuleName {
    pub(super) kind: RuleKind,
    pub(super) number: Option<usize>,
}

impl From<RuleId> for RuleName {
    fn from(rule: RuleId) -> Self {
        let (kind, number) = match rule {
            RuleId::Rule(number) => (RuleKind::Rule, Some(number)),
            // The map itself never says that it is the dead-letter topic.
            RuleId::Fallback | RuleId::DeadLetter => (RuleKind::Fallback, None),
            RuleId::Foreign(number) => (RuleKind::Foreign, Some(number)),
        };
        Self { kind, number }
    }
}

/// Explains all lines; whether any of them is not stored.
pub(super) fn run(
    loaded: &Loaded,
    path: &Path,
    mut lines: Lines,
    partitions: Option<u32>,
    json: bool,
    output: &mut Output,
) -> Result<bool, Failure> {
    let mut balance = Balance::new(&loaded.map);
    let mut rows: Box<dyn Rows> = match json {
        true => Box::new(JsonRows::default()),
        false => Box::new(TableRows::default()),
    };
    rows.begin(output)?;
    loop {
        let next = lines.next_line().map_err(|error| ExplainError::Topics {
            file: path.to_owned(),
            error,
        })?;
        let Some(line) = next else { break };
        rows.add(explain(loaded, line, partitions, &mut balance), output)?;
    }
    let summary = balance.summary();
    rows.end(&summary, output)?;
    Ok(!summary.not_stored.is_empty())
}

fn explain(loaded: &Loaded, line: Line, partitions: Option<u32>, balance: &mut Balance<'_>) -> Row {
    let mut row = Row {
        line: line.number,
        topic: String::new(),
        outcome: Outcome::Stored,
        reason: None,
        message: None,
        rule: None,
        target: None,
    };
    let topic = match line.text {
        Ok(text) => {
            row.topic = text;
            possible(loaded, &row.topic)
        }
        Err(NotUtf8(shown)) => {
            row.topic = shown;
            Err(Impossible {
                reason: INVALID_TOPIC,
                message: "a topic must be UTF-8 [MQTT-1.5.3-1]".to_owned(),
            })
        }
    };
    let topic = match topic {
        Ok(topic) => topic,
        Err(Impossible { reason, message }) => {
            row.outcome = Outcome::Invalid;
            row.reason = Some(reason);
            balance.not_stored(reason, || row.example(&message));
            row.message = Some(message);
            return row;
        }
    };
    match loaded.map.resolve(&topic) {
        Ok(resolution) => {
            let count = PartitionCount::of(partitions, &resolution.plan);
            balance.stored(&resolution, count);
            row.rule = Some(resolution.rule.into());
            row.target = Some(TargetReport::new(
                &resolution.target,
                resolution.key.as_ref(),
                count,
            ));
        }
        Err(refusal) => {
            let message = refusal.to_string();
            balance.refused(&refusal, || row.example(&message));
            row.outcome = Outcome::Refused;
            row.reason = Some(refusal.reason());
            row.rule = refusing_rule(&refusal).map(RuleName::from);
            row.message = Some(message);
        }
    }
    row
}

impl Row {
    fn example(&self, message: &str) -> Example {
        Example {
            line: self.line,
            topic: cut(&self.topic, CELL).into_owned(),
            message: message.to_owned(),
        }
    }
}
