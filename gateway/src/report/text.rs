//! A text of a file with its place, to the byte as far as escapes allow.

use std::ops::Range;

/// A text of a TOML file and where it stands.
#[derive(Debug)]
pub(crate) struct Text {
    /// The text without quotes and escapes.
    pub(crate) value: String,
    span: Range<usize>,
    /// Where the first byte of `value` stands, if the file has it byte for byte.
    begin: Option<usize>,
}

impl Text {
    /// `span` is where the text stands in `source`, quotes included; `value` is what it means.
    pub(crate) fn new(source: &str, span: Range<usize>, value: &str) -> Self {
        let raw = source.get(span.clone()).unwrap_or_default();
        // One or three quotes, and after three a line break that does not count.
        let begin = [1, 3, 4, 5].into_iter().find(|quotes| {
            let quoted = raw.get(*quotes..).unwrap_or_default();
            quoted.strip_prefix(value).is_some_and(|rest| {
                !rest.is_empty() && rest.bytes().all(|byte| byte == b'\'' || byte == b'"')
            })
        });
        Self {
            value: value.to_owned(),
            begin: begin.map(|quotes| span.start + quotes),
            span,
        }
    }

    /// Where it stands, quotes included.
    pub(crate) fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// Where `part` of the text stands; the whole of it if escapes make that unclear.
    pub(crate) fn at(&self, part: &Range<usize>) -> Range<usize> {
        match self.begin {
            Some(begin) => begin + part.start..begin + part.end,
            None => self.span(),
        }
    }
}
