//! What many sample topics have in common, as people read it.

use std::fmt;
use std::io;

use super::balance::{Summary, TargetSummary};
use super::rows::{CELL, NONE};
use crate::output::{HEADING, Output, WARNING};
use crate::text::{counted, cut, plain, table_lines};

/// The longest list in the sum.
const LIST: usize = 20;
/// The most partitions whose counts are listed one by one.
const LISTED_PARTITIONS: u32 = 16;

/// Prints the sum.
pub(super) fn print(summary: &Summary, output: &mut Output) -> io::Result<()> {
    let refused = summary.topics - summary.stored;
    let sum = format!(
        "{}: {} by rules, {} on the fallback, {refused} not stored",
        counted(summary.topics, "topic"),
        summary.stored - summary.fallback,
        summary.fallback,
    );
    let sum = output.paint(HEADING, sum);
    output.line(sum)?;
    if refused > 0 {
        let reasons = summary.not_stored.iter();
        let reasons: Vec<String> = reasons
            .map(|(reason, count)| format!("{reason} {count}"))
            .collect();
        let text = format!("Not stored: {}", reasons.join(", "));
        title(&text, output)?;
        let examples = summary.examples.iter().map(|example| {
            format!(
                "line {}: {}: {}",
                example.line,
                example.topic,
                plain(&example.message)
            )
        });
        list(examples, refused, output)?;
    }
    let unused = &summary.rules_never_hit;
    if unused.is_empty() {
        title("Every rule was hit.", output)?;
    } else {
        title("Rules never hit", output)?;
        let texts = unused.iter().map(|rule| match &rule.text {
            Some(text) => format!("{}: {}", rule.name(), plain(&text.mqtt_topic)),
            None => rule.name(),
        });
        list(texts, unused.len() as u64, output)?;
    }
    let names = &summary.names_from_topics;
    for (found, max, what, key) in [
        (names.streams, names.max_streams, "stream", "max_streams"),
        (names.topics, names.max_topics, "Iggy topic", "max_topics"),
    ] {
        if found as u64 > u64::from(max) {
            let found = counted(found as u64, what);
            let text = format!(
                "{found} with names from MQTT topics, but {key} = {max}: the gateway refuses what comes after the first {max}; raise it, or let the rules take less of the topic"
            );
            output.line("")?;
            let text = output.paint(WARNING, text);
            output.line(text)?;
        }
    }
    if !summary.targets.is_empty() {
        title("Partitions", output)?;
        let header = [
            "STREAM",
            "TOPIC",
            "MQTT TOPICS",
            "PARTITIONS",
            "SMALLEST",
            "LARGEST",
            "EACH",
        ];
        let header = header.map(str::to_owned);
        let shown = summary.targets.iter().take(LIST).map(balance_cells);
        let cells = std::iter::once(header).chain(shown);
        let mut lines = table_lines(cells, &mut Vec::new()).into_iter();
        list(lines.by_ref().take(1), 1, output)?;
        list(lines, summary.targets.len() as u64, output)?;
    }
    Ok(())
}

fn balance_cells(target: &TargetSummary) -> [String; 7] {
    let partitions = target.count.partitions;
    let placed = target.topics > target.in_turn;
    let each = match (placed, target.in_turn) {
        (true, 0) if partitions <= LISTED_PARTITIONS => {
            let counts =
                (0..partitions).map(|at| target.by_partition.get(&at).copied().unwrap_or(0));
            counts
                .map(|count| count.to_string())
                .collect::<Vec<_>>()
                .join(" ")
        }
        (true, 0) => String::new(),
        (true, in_turn) => format!("and {in_turn} in turn"),
        (false, _) => "in turn".to_owned(),
    };
    let number = |number: u64| match placed {
        true => number.to_string(),
        false => NONE.to_owned(),
    };
    [
        cut(&target.stream, CELL).into_owned(),
        cut(&target.topic, CELL).into_owned(),
        target.topics.to_string(),
        partitions.to_string(),
        number(target.smallest),
        number(target.largest),
        each,
    ]
}

fn title(text: &str, output: &mut Output) -> io::Result<()> {
    output.line("")?;
    let text = output.paint(HEADING, text);
    output.line(text)
}

/// The texts that there are of `total`, and how many more there would be.
fn list<T: fmt::Display>(
    texts: impl IntoIterator<Item = T>,
    total: u64,
    output: &mut Output,
) -> io::Result<()> {
    let mut shown = 0;
    for text in texts.into_iter().take(LIST) {
        output.line(format_args!("  {text}"))?;
        shown += 1;
    }
    if total > shown {
        output.line(format_args!(
            "  … and {} more; --format json lists all",
            total - shown
        ))?;
    }
    Ok(())
}
