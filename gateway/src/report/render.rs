//! Reports as people like to read them: each problem with its line of the file and the offending text underlined.
//!
//! What always holds: what is said is what the report says, and nothing from the file reaches the terminal unescaped.

use std::fmt;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

use super::{Located, Report};

/// How many are shown; whoever has more mends these first.
const MAX_SHOWN: usize = 100;

/// The problems of `report`, one after the other; `styled` for a terminal that knows ANSI escapes.
pub fn problems<P: fmt::Display>(report: &Report<P>, styled: bool) -> String {
    show(report.problems(), Level::ERROR, styled)
}

/// Warnings, one after the other; `styled` for a terminal that knows ANSI escapes.
pub fn warnings<W: fmt::Display>(warnings: &[Located<W>], styled: bool) -> String {
    show(warnings, Level::WARNING, styled)
}

fn show<T: fmt::Display>(all: &[Located<T>], level: Level<'static>, styled: bool) -> String {
    let renderer = match styled {
        true => Renderer::styled(),
        false => Renderer::plain(),
    };
    let mut shown: Vec<String> = all
        .iter()
        .take(MAX_SHOWN)
        .map(|located| {
            let key = located.key();
            let title = match key.is_empty() {
                true => located.what().to_string(),
                false => format!("{}: {}", key.escape_debug(), located.what()),
            };
            let (source, span) = (located.source(), located.span());
            // The line alone, which is all that is shown, and underlined to its end at most.
            let text = source.text.as_str();
            let begin = text[..span.start].rfind('\n').map_or(0, |end| end + 1);
            let end = text[span.start..].find('\n');
            let end = end.map_or(text.len(), |length| span.start + length);
            let mark = span.start - begin..span.end.min(end) - begin;
            let snippet = Snippet::source(&text[begin..end])
                .line_start(located.line())
                .path(&source.file)
                .annotation(AnnotationKind::Primary.span(mark));
            let group = Group::with_title(level.clone().primary_title(title)).element(snippet);
            renderer.render(&[group])
        })
        .collect();
    if let Some(more) = all.len().checked_sub(MAX_SHOWN).filter(|more| *more > 0) {
        shown.push(format!("… and {more} more"));
    }
    shown.join("\n\n")
}
