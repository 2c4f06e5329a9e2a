//! `mqtt-gateway status`: what a running gateway does, once.
//!
//! What always holds: what needs attention comes first and decides the exit code; texts from the gateway, which devices have
//! chosen, are made fit for a terminal.

pub(crate) mod fetch;
pub(crate) mod view;

use mqtt_gateway::status::Status;

use crate::Verdict;
use crate::args::{Format, StatusArgs};
use crate::output::{ERROR, GOOD, HEADING, Output, WARNING};
use crate::text::{plain, table_lines};

use fetch::{FetchError, Source};
use view::Table;

/// The most rows of a table; those that need attention come first.
const MOST_ROWS: usize = 20;

/// Why nothing can be said.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StatusError {
    /// The gateway was not asked, or did not answer.
    #[error(transparent)]
    Fetch(#[from] FetchError),
}

pub(crate) fn run(arguments: &StatusArgs, output: &mut Output) -> Result<Verdict, crate::Failure> {
    let source = Source::new(&arguments.gateway).map_err(StatusError::from)?;
    let status = source.fetch().map_err(StatusError::from)?;
    match arguments.format {
        Format::Json => output.json(&status)?,
        Format::Text => print(&status, output)?,
    }
    Ok(
        match status.readiness.ready && status.attention.is_empty() {
            true => Verdict::Fine,
            false => Verdict::Problems,
        },
    )
}

fn print(status: &Status, output: &mut Output) -> std::io::Result<()> {
    let ready = match status.readiness.ready {
        true => output.paint(GOOD, "ready"),
        false => output.paint(ERROR, "not ready"),
    };
    output.line(format_args!("{ready}: {}", plain(&view::headline(status))))?;
    for text in &status.attention {
        let mark = output.paint(WARNING, "attention");
        output.line(format_args!("{mark}: {}", plain(text)))?;
    }
    for Table { title, rows, .. } in view::tables(status) {
        if rows.len() < 2 {
            continue;
        }
        output.line("")?;
        output.line(output.paint(HEADING, title))?;
        let more = rows.len().saturating_sub(MOST_ROWS + 1);
        for line in table_lines(rows.into_iter().take(MOST_ROWS + 1), &mut Vec::new()) {
            output.line(format_args!("  {line}"))?;
        }
        if more > 0 {
            output.line(format_args!("  and {more} more; --format json has them"))?;
        }
    }
    Ok(())
}
