//! Where in a topic map's file something is wrong or doubtful, and everything that is, together.
//!
//! What always holds: a [`Located`] knows its byte span in the source and shares the source, so that how it is shown is
//! rendering alone.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::problem::Problem;

/// The text of a topic map and the name of the file that it came from.
#[derive(Debug, PartialEq, Eq)]
pub struct Source {
    /// The file's name as the operator knows it.
    pub file: String,
    /// The whole file.
    pub text: String,
}

/// Something to say about one place of a topic map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located<T> {
    source: Arc<Source>,
    span: Range<usize>,
    key: String,
    what: T,
}

impl Source {
    /// The line of the byte at `at`, counted from 1.
    pub(super) fn line(&self, at: usize) -> usize {
        let before = self.text.as_bytes().get(..at).unwrap_or_default();
        before.iter().filter(|byte| **byte == b'\n').count() + 1
    }
}

impl<T> Located<T> {
    /// `span` is cut to the source and to whole characters.
    pub(super) fn new(source: &Arc<Source>, span: Range<usize>, key: String, what: T) -> Self {
        let start = source.text.floor_char_boundary(span.start);
        let end = source.text.ceil_char_boundary(span.end).max(start);
        Self {
            source: Arc::clone(source),
            span: start..end,
            key,
            what,
        }
    }

    /// The file and its text.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// The bytes of the source that this is about; they begin and end between characters.
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// The key that this is about: `partitions`, or `rule 2 stream` for a key of the second rule.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// What there is to say.
    pub fn what(&self) -> &T {
        &self.what
    }

    /// The line, counted from 1.
    pub fn line(&self) -> usize {
        self.source.line(self.span.start)
    }

    /// The column in characters, counted from 1.
    pub fn column(&self) -> usize {
        let before = self.before();
        let line = before.rfind('\n').map_or(before, |end| &before[end + 1..]);
        line.chars().count() + 1
    }

    fn before(&self) -> &str {
        &self.source.text[..self.span.start]
    }
}

impl<T: fmt::Display> fmt::Display for Located<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (line, column) = (self.line(), self.column());
        write!(f, "{}:{line}:{column}: ", self.source.file)?;
        if !self.key.is_empty() {
            // A key may hold anything in quotes; a problem stays on its line.
            write!(f, "{}: ", self.key.escape_debug())?;
        }
        write!(f, "{}", self.what)
    }
}

/// All that is wrong with a topic map, in the order of the file. Printed as one line a problem:
/// `file:line:column: key: what is wrong; what to do`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapReport(Vec<Located<Problem>>);

impl MapReport {
    pub(super) fn new(mut problems: Vec<Located<Problem>>) -> Self {
        problems.sort_by_key(|problem| problem.span.start);
        Self(problems)
    }

    /// The problems; there is at least one.
    pub fn problems(&self) -> &[Located<Problem>] {
        &self.0
    }
}

impl fmt::Display for MapReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, problem) in self.0.iter().enumerate() {
            if number > 0 {
                f.write_str("\n")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for MapReport {}
