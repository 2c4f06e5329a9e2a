//! The explanation of one topic as people read it.

use std::fmt;
use std::io;

use anstyle::Style;
use mqtt_gateway::log::Durability;
use mqtt_gateway::mapping::envelope;
use serde_json::Value;

use super::access;
use super::place::{CountFrom, PartitionCount, PlanReport, RuleReport};
use super::report::{HeaderReport, Outcome, TopicReport, When};
use crate::output::{ERROR, GOOD, HEADING, LABEL, Output, WARNING};
use crate::text::{counted, cut, plain, table_lines};

/// The longest piece of a topic on one line, in characters.
pub(super) const LONG: usize = 200;
/// Where what stands after the labels begins.
const INDENT: usize = 14;

/// Prints the explanation.
pub(super) fn print(report: &TopicReport, output: &mut Output) -> io::Result<()> {
    heading(&report.topic, output)?;
    access::print(report.access.as_ref(), output)?;
    let message = report.message.as_deref().unwrap_or_default();
    match report.outcome {
        Outcome::Invalid => return row("invalid", output.paint(ERROR, plain(message)), output),
        Outcome::Refused => row("refused", output.paint(ERROR, plain(message)), output)?,
        Outcome::Stored => {}
    }
    if let Some(rule) = &report.rule {
        let style = match report.outcome {
            Outcome::Stored if rule.text.is_some() => GOOD,
            _ => WARNING,
        };
        decided(rule, style, output)?;
    }
    let captures = report.captures.iter().map(|capture| {
        let name = capture.name.as_ref().map(|name| format!(" ${{{name}}}"));
        let name = name.unwrap_or_default();
        format!("${}{name} = {}", capture.index, cut(&capture.text, LONG))
    });
    rows("captures", captures, output)?;
    if let Some(target) = &report.target {
        row("stream", plain(&target.stream), output)?;
        row("topic", plain(&target.topic), output)?;
        let of = of(target.count);
        let partition = match (target.partition, target.count.partitions) {
            (Some(partition), _) => format!("{partition} {of}"),
            (None, 1) => format!("0 {of}"),
            (None, partitions) => format!("0 to {} in turn, {of}", partitions.saturating_sub(1)),
        };
        let key = target.key.as_deref().unwrap_or("none");
        row("key", cut(key, LONG), output)?;
        row("partition", partition, output)?;
    }
    if let Some(plan) = &report.creation {
        creation(plan, output)?;
    }
    headers(&report.headers, output)?;
    let missed = report.missed.iter().flat_map(|miss| {
        let why = format!("  {}", plain(&miss.why));
        [headline(&miss.rule), why]
    });
    rows("no match", missed, output)?;
    rows("match too", report.also.iter().map(headline), output)
}

/// What the explanation is about.
pub(super) fn heading(topic: &str, output: &mut Output) -> io::Result<()> {
    let shown = match topic {
        "" => "(empty)".into(),
        topic => cut(topic, LONG),
    };
    let bytes = if shown.ends_with('…') {
        format!(" ({})", counted(topic.len() as u64, "byte"))
    } else {
        String::new()
    };
    let shown = output.paint(HEADING, shown);
    output.line(format_args!("{shown}{bytes}"))
}

/// The rule that decided.
pub(super) fn decided(rule: &RuleReport, style: Style, output: &mut Output) -> io::Result<()> {
    row("decided by", output.paint(style, headline(rule)), output)
}

/// How the Iggy topic is made.
pub(super) fn creation(plan: &PlanReport, output: &mut Output) -> io::Result<()> {
    if !plan.auto_create {
        let never =
            "the gateway does not make the Iggy topic (auto_create = false); create it yourself";
        return row("if missing", never, output);
    }
    let size = match &plan.max_topic_size {
        Value::String(word) => word.clone(),
        bytes => format!("{bytes} bytes"),
    };
    let durability = match plan.durability {
        Durability::Persisted => "persisted",
        Durability::Commit => "commit",
    };
    let text = format!(
        "the gateway makes the Iggy topic: partitions {}, message_expiry {}, max_topic_size {size}, durability {durability}",
        plan.partitions, plan.message_expiry,
    );
    row("if missing", text, output)
}

/// `of 7, as --partitions says`
pub(super) fn of(count: PartitionCount) -> String {
    let from = match count.partitions_from {
        CountFrom::Map => "as the map says; for a topic with another number use --partitions",
        CountFrom::Option => "as --partitions says",
    };
    format!("of {} ({from})", count.partitions)
}

fn headline(rule: &RuleReport) -> String {
    match &rule.text {
        Some(text) => format!("{}: {}", rule.name(), plain(&text.mqtt_topic)),
        None => format!("{}, because no rule matches", rule.name()),
    }
}

fn headers(headers: &[HeaderReport], output: &mut Output) -> io::Result<()> {
    let continued = format!("{}.", envelope::TOPIC);
    let is_continuation = |header: &&HeaderReport| header.key.starts_with(&continued);
    let parts: Vec<&HeaderReport> = headers.iter().filter(is_continuation).collect();
    let mut cells: Vec<[String; 3]> = Vec::new();
    for header in headers {
        if is_continuation(&header) {
            if parts.first().is_some_and(|first| first.key == header.key) {
                cells.push(rest_of_the_topic(&parts));
            }
            continue;
        }
        let value = match &header.value {
            Value::String(text) => cut(text, 60).into_owned(),
            other => other.to_string(),
        };
        let when = match header.when {
            When::Always if header.from_publisher => "the publisher's",
            When::Always => "",
            When::Qos1 => "the publisher's, with QoS 1",
            When::Retain => "only if the publisher set RETAIN",
            When::Dup => "only if the publisher set DUP",
            When::EmptyPayload => "only if the payload is empty",
        };
        cells.push([header.key.clone(), value, when.to_owned()]);
    }
    rows("headers", table_lines(cells, &mut Vec::new()), output)
}

fn rest_of_the_topic(parts: &[&HeaderReport]) -> [String; 3] {
    let key = match parts {
        [first, .., last] => format!("{} to {}", first.key, last.key),
        parts => parts.iter().map(|part| part.key.clone()).collect(),
    };
    [key, "…".to_owned(), "the rest of the topic".to_owned()]
}

/// A line with a label.
pub(super) fn row(label: &str, text: impl fmt::Display, output: &mut Output) -> io::Result<()> {
    let label = format!("{label:<width$}", width = INDENT - 2);
    let label = match label.trim() {
        "" => label,
        _ => output.paint(LABEL, label),
    };
    output.line(format_args!("  {label}{text}"))
}

/// Lines with one label; none if there are none.
pub(super) fn rows<T: fmt::Display>(
    label: &str,
    texts: impl IntoIterator<Item = T>,
    output: &mut Output,
) -> io::Result<()> {
    for (number, text) in texts.into_iter().enumerate() {
        row(if number == 0 { label } else { "" }, text, output)?;
    }
    Ok(())
}
