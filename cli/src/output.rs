//! Standard output: colours or none, text or JSON.
//!
//! What always holds: whether there are colours is decided once; every failure to write is passed on, so that a closed pipe
//! ends the program.

use std::fmt;
use std::io::{self, BufWriter, StdoutLock, Write};

use anstream::AutoStream;
use anstyle::{AnsiColor, Style};
use clap::ColorChoice;
use serde::Serialize;

/// What is wrong.
pub(crate) const ERROR: Style = AnsiColor::Red.on_default().bold();
/// What is doubtful.
pub(crate) const WARNING: Style = AnsiColor::Yellow.on_default().bold();
/// What is good to know.
pub(crate) const NOTE: Style = AnsiColor::Cyan.on_default().bold();
/// What is fine.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default().bold();
/// What the rest is about.
pub(crate) const HEADING: Style = Style::new().bold();
/// What explains the rest.
pub(crate) const LABEL: Style = Style::new().dimmed();

/// Standard output.
pub(crate) struct Output {
    out: BufWriter<StdoutLock<'static>>,
    styled: bool,
}

impl Output {
    /// Decides on colours.
    pub(crate) fn new(color: ColorChoice) -> Self {
        let stdout = io::stdout();
        let styled = match color {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => AutoStream::choice(&stdout) != anstream::ColorChoice::Never,
        };
        Self {
            out: BufWriter::new(stdout.lock()),
            styled,
        }
    }

    /// Whether there are colours.
    pub(crate) fn is_styled(&self) -> bool {
        self.styled
    }

    /// `text` in `style`, if there are colours.
    pub(crate) fn paint(&self, style: Style, text: impl fmt::Display) -> String {
        if self.styled {
            format!("{style}{text}{style:#}")
        } else {
            text.to_string()
        }
    }

    /// Writes a line.
    pub(crate) fn line(&mut self, text: impl fmt::Display) -> io::Result<()> {
        writeln!(self.out, "{text}")
    }

    /// Writes `text` as it is.
    pub(crate) fn text(&mut self, text: impl fmt::Display) -> io::Result<()> {
        write!(self.out, "{text}")
    }

    /// Writes `text` and an empty line after it.
    pub(crate) fn block(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.out, "{}\n", text.trim_end_matches('\n'))
    }

    /// Writes `bytes` as they are.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)
    }

    /// Writes `value` as JSON over several lines.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut self.out, value)?;
        self.line("")
    }

    /// Writes `value` as JSON on one line, without its end.
    pub(crate) fn json_inline(&mut self, value: &impl Serialize) -> io::Result<()> {
        Ok(serde_json::to_writer(&mut self.out, value)?)
    }

    /// Writes out what was held back.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
