//! What a subscriber of a topic reads.
//!
//! What always holds: the partitions are those of [`TopicMap::reads`](mqtt_gateway::mapping::TopicMap).

use std::io;

use mqtt_gateway::mapping::{Partitions, Read, RuleId};
use mqtt_gateway::mqtt::TopicFilter;
use serde::Serialize;

use super::Loaded;
use super::access::{self, AccessReport};
use super::place::{PartitionCount, PlanReport, RuleReport, Rules};
use super::print::{creation, decided, heading, of, row};
use super::report::INVALID_TOPIC;
use crate::output::{ERROR, GOOD, Output, WARNING};
use crate::text::{cut, plain};

/// What a client gets that asks for the impossible.
const DISCONNECTED: &str = "the gateway disconnects a client that subscribes to it";

/// The whole explanation.
#[derive(Debug, Serialize)]
pub(crate) struct SubscriptionReport {
    /// The topic filter.
    pub(crate) filter: String,
    /// The file with the topic map.
    pub(crate) map: String,
    /// What happens.
    pub(crate) outcome: Outcome,
    /// Why it is refused or invalid: a short name that stays the same.
    pub(crate) reason: Option<&'static str>,
    /// The same for people, with what to do.
    pub(crate) message: Option<String>,
    /// What is read.
    pub(crate) reads: Vec<ReadReport>,
    /// What a client may do, if permissions are given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) access: Option<AccessReport>,
}

/// What happens to a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Outcome {
    /// Its messages are read from Iggy.
    Read,
    /// It is answered with 0x80.
    Refused,
    /// There can be none.
    Invalid,
}

/// Partitions of one Iggy topic.
#[derive(Debug, Serialize)]
pub(crate) struct ReadReport {
    /// What leads there.
    pub(crate) rule: RuleReport,
    /// The Iggy stream.
    pub(crate) stream: String,
    /// The Iggy topic.
    pub(crate) topic: String,
    /// The key that leads to the partition.
    pub(crate) key: Option<String>,
    /// The partitions that are read; `None` if it is all, however many there are.
    pub(crate) read: Option<Vec<u32>>,
    /// Of how many; `None` if nobody says so.
    #[serde(flatten)]
    pub(crate) count: Option<PartitionCount>,
    /// How the Iggy topic is made if it is missing; `None` if that is up to others.
    pub(crate) creation: Option<PlanReport>,
}

impl SubscriptionReport {
    /// Whether nothing is read.
    pub(crate) fn is_refused(&self) -> bool {
        self.outcome != Outcome::Read
            || self
                .access
                .as_ref()
                .is_some_and(|access| access.is_refused(true))
    }

    fn not(mut self, outcome: Outcome, reason: &'static str, message: String) -> Self {
        self.outcome = outcome;
        self.reason = Some(reason);
        self.message = Some(message);
        self
    }
}

/// Explains a subscription; each Iggy topic has as many partitions as `partitions` says, or the map.
pub(crate) fn subscription(
    loaded: &Loaded,
    filter: &str,
    partitions: Option<u32>,
) -> SubscriptionReport {
    let mut report = SubscriptionReport {
        filter: filter.to_owned(),
        map: loaded.file.clone(),
        outcome: Outcome::Read,
        reason: None,
        message: None,
        reads: Vec::new(),
        access: None,
    };
    let filter = match TopicFilter::new(filter) {
        Ok(filter) => filter,
        Err(error) => {
            let message = format!("{error}; {DISCONNECTED}");
            return report.not(Outcome::Invalid, INVALID_TOPIC, message);
        }
    };
    if let Some(violation) = loaded.over_a_limit(filter.as_str()) {
        let message = format!("{violation}; {DISCONNECTED}");
        return report.not(Outcome::Invalid, violation.reason(), message);
    }
    let Some(topic) = filter.concrete() else {
        let message = "a filter with a wildcard is not served yet, the gateway answers it with 0x80; subscribe to exact topics";
        return report.not(Outcome::Refused, "wildcard", message.to_owned());
    };
    let reads = match loaded.map.reads(&topic) {
        Ok(reads) => reads,
        Err(refusal) => {
            let message = refusal.to_string();
            return report.not(Outcome::Refused, refusal.reason(), message);
        }
    };
    let rules = Rules::of(&loaded.map);
    report.reads = reads
        .iter()
        .map(|read| read_report(read, &rules, partitions))
        .collect();
    report
}

fn read_report(read: &Read, rules: &Rules<'_>, partitions: Option<u32>) -> ReadReport {
    let is_foreign = matches!(read.rule, RuleId::Foreign(_));
    // The map says nothing of how the topics of other producers are made.
    let count =
        (partitions.is_some() || !is_foreign).then(|| PartitionCount::of(partitions, &read.plan));
    ReadReport {
        rule: rules.report(read.rule),
        stream: read.target.stream.to_string(),
        topic: read.target.topic.to_string(),
        key: match &read.partitions {
            Partitions::OfKey(key) => Some(key.as_str().to_owned()),
            Partitions::All | Partitions::One(_) => None,
        },
        read: match (count, &read.partitions) {
            (Some(count), of) => Some(of.of(count.partitions).collect()),
            (None, Partitions::One(partition)) => Some(vec![*partition]),
            (None, Partitions::All | Partitions::OfKey(_)) => None,
        },
        count,
        creation: (!is_foreign).then(|| PlanReport::new(&read.plan)),
    }
}

/// Prints the explanation.
pub(super) fn print(report: &SubscriptionReport, output: &mut Output) -> io::Result<()> {
    heading(&report.filter, output)?;
    access::print(report.access.as_ref(), output)?;
    let message = report.message.as_deref().unwrap_or_default();
    match report.outcome {
        Outcome::Invalid => return row("invalid", output.paint(ERROR, plain(message)), output),
        Outcome::Refused => return row("refused", output.paint(ERROR, plain(message)), output),
        Outcome::Read => {}
    }
    for (number, read) in report.reads.iter().enumerate() {
        if number > 0 {
            output.line("")?;
        }
        let style = if read.rule.text.is_some() {
            GOOD
        } else {
            WARNING
        };
        decided(&read.rule, style, output)?;
        row("stream", plain(&read.stream), output)?;
        row("topic", plain(&read.topic), output)?;
        if let Some(key) = &read.key {
            row("key", cut(key, super::print::LONG), output)?;
        }
        let of = read
            .count
            .map_or(String::new(), |count| format!(" {}", of(count)));
        let partitions = match read.read.as_deref() {
            None => "all, however many there are".to_owned(),
            Some([]) => format!("none{of}"),
            Some([one]) => format!("{one}{of}"),
            Some([first, .., last]) => format!("{first} to {last}{of}"),
        };
        row("partitions", partitions, output)?;
        match &read.creation {
            Some(plan) => creation(plan, output)?,
            None => row(
                "if missing",
                "the gateway does not start; other producers make it",
                output,
            )?,
        }
    }
    Ok(())
}
