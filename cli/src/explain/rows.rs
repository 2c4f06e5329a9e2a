//! The rows of many sample topics: a table for people, or JSON.
//!
//! What always holds: rows are written in parts as they come, so that any number of them takes bounded memory.

use std::io;

use anstyle::Style;

use super::balance::Summary;
use super::batch::{Row, RuleName};
use super::place::RuleKind;
use super::summary;
use crate::output::{ERROR, HEADING, Output, WARNING};
use crate::text::{cut, table_lines};

/// Rows that are laid out together.
const PART: usize = 1_000;
/// The longest text in a cell, in characters.
pub(super) const CELL: usize = 60;
/// What stands in a cell when there is nothing to say.
pub(super) const NONE: &str = "-";

/// A form of the rows and the sum.
pub(super) trait Rows {
    fn begin(&mut self, output: &mut Output) -> io::Result<()>;
    fn add(&mut self, row: Row, output: &mut Output) -> io::Result<()>;
    fn end(&mut self, summary: &Summary, output: &mut Output) -> io::Result<()>;
}

/// One JSON object, with a line for each row.
#[derive(Default)]
pub(super) struct JsonRows {
    has_rows: bool,
}

impl Rows for JsonRows {
    fn begin(&mut self, output: &mut Output) -> io::Result<()> {
        output.text("{\"topics\":[")
    }

    fn add(&mut self, row: Row, output: &mut Output) -> io::Result<()> {
        output.text(if self.has_rows { ",\n" } else { "\n" })?;
        self.has_rows = true;
        output.json_inline(&row)
    }

    fn end(&mut self, summary: &Summary, output: &mut Output) -> io::Result<()> {
        output.text("\n],\"summary\":")?;
        output.json_inline(summary)?;
        output.line("}")
    }
}

/// A table, laid out in parts; a column never becomes narrower.
#[derive(Default)]
pub(super) struct TableRows {
    cells: Vec<[String; 6]>,
    /// One for each row that waits.
    styles: Vec<Style>,
    widths: Vec<u16>,
}

impl TableRows {
    fn push(&mut self, cells: [String; 6], style: Style) {
        self.cells.push(cells);
        self.styles.push(style);
    }

    fn write(&mut self, output: &mut Output) -> io::Result<()> {
        let lines = table_lines(self.cells.drain(..), &mut self.widths);
        for (line, style) in lines.iter().zip(self.styles.drain(..)) {
            let line = output.paint(style, line);
            output.line(line)?;
        }
        Ok(())
    }
}

impl Rows for TableRows {
    fn begin(&mut self, _: &mut Output) -> io::Result<()> {
        let titles = ["MQTT TOPIC", "RULE", "STREAM", "TOPIC", "KEY", "PARTITION"];
        self.push(titles.map(str::to_owned), HEADING);
        Ok(())
    }

    fn add(&mut self, row: Row, output: &mut Output) -> io::Result<()> {
        let topic = cut(&row.topic, CELL).into_owned();
        let rule = match &row.rule {
            Some(RuleName {
                number: Some(number),
                ..
            }) => number.to_string(),
            Some(_) => "fallback".to_owned(),
            None => NONE.to_owned(),
        };
        match row.target {
            Some(target) => {
                let style = match row.rule {
                    Some(RuleName {
                        kind: RuleKind::Rule,
                        ..
                    }) => Style::new(),
                    _ => WARNING,
                };
                let partition = match (target.partition, target.count.partitions) {
                    (Some(partition), _) => partition.to_string(),
                    (None, 1) => "0".to_owned(),
                    (None, _) => "in turn".to_owned(),
                };
                let cells = [
                    topic,
                    rule,
                    cut(&target.stream, CELL).into_owned(),
                    cut(&target.topic, CELL).into_owned(),
                    target
                        .key
                        .map_or(NONE.to_owned(), |key| cut(&key, CELL).into_owned()),
                    partition,
                ];
                self.push(cells, style);
            }
            None => {
                let reason = format!("not stored: {}", row.reason.unwrap_or_default());
                let none = String::new;
                self.push([topic, rule, reason, none(), none(), none()], ERROR);
            }
        }
        if self.cells.len() >= PART {
            self.write(output)?;
        }
        Ok(())
    }

    fn end(&mut self, summary: &Summary, output: &mut Output) -> io::Result<()> {
        self.write(output)?;
        output.line("")?;
        summary::print(summary, output)
    }
}
