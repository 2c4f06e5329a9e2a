//! Where in a file of the operator's something is wrong or doubtful, and everything that is, together: of the topic map
//! and of the permissions.
//!
//! What always holds: a [`Located`] knows its byte span in the source and shares the source, so that how it is shown is
//! rendering alone.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

pub mod render;
mod text;

pub(crate) use text::Text;

/// The text of a file and the file's name.
#[derive(Debug, PartialEq, Eq)]
pub struct Source {
    /// The file's name as the operator knows it.
    pub file: String,
    /// The whole file.
    pub text: String,
}

/// Something to say about one place of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located<T> {
    source: Arc<Source>,
    span: Range<usize>,
    key: String,
    what: T,
}

impl Source {
    /// The line of the byte at `at`, counted from 1.
    pub(crate) fn line(&self, at: usize) -> usize {
        let before = self.text.as_bytes().get(..at).unwrap_or_default();
        before.iter().filter(|byte| **byte == b'\n').count() + 1
    }
}

impl<T> Located<T> {
    /// `span` is cut to the source and to whole characters.
    pub(crate) fn new(source: &Arc<Source>, span: Range<usize>, key: String, what: T) -> Self {
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

/// All that is wrong with a file, in the order of the file. Printed as one line a problem:
/// `file:line:column: key: what is wrong; what to do`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report<P>(Vec<Located<P>>);

impl<P> Report<P> {
    pub(crate) fn new(mut problems: Vec<Located<P>>) -> Self {
        problems.sort_by_key(|problem| problem.span.start);
        Self(problems)
    }

    /// The problems; there is at least one.
    pub fn problems(&self) -> &[Located<P>] {
        &self.0
    }

    /// How many there are, in words: `an error`, `2 errors`.
    pub fn counted(&self) -> String {
        match self.0.len() {
            1 => "an error".to_owned(),
            count => format!("{count} errors"),
        }
    }
}

impl<P: fmt::Display> fmt::Display for Report<P> {
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

impl<P: fmt::Debug + fmt::Display> std::error::Error for Report<P> {}

/// The words that an operator may have meant.
pub(crate) fn advice(nearest: Option<&str>, known: &[&str]) -> String {
    match nearest {
        Some(nearest) => format!("did you mean {nearest}?"),
        None => format!("use one of {}", known.join(", ")),
    }
}

/// The one of `known` that looks most like `found`, if any looks like it at all.
pub(crate) fn nearest<'k>(found: &str, known: &[&'k str]) -> Option<&'k str> {
    known
        .iter()
        .map(|word| (strsim::damerau_levenshtein(found, word), *word))
        .min()
        .filter(|(distance, word)| *distance <= found.len().max(word.len()) / 2)
        .map(|(_, word)| word)
}
