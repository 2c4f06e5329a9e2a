//! Text for people: what came from outside made fit for a terminal, numbers with their nouns, tables.
//!
//! What always holds: nothing that came from outside can move the cursor, change colours, or break a line.

use std::borrow::Cow;

use comfy_table::{ColumnConstraint, ContentArrangement, Table, Width, presets};

/// `text` with characters that do not print written as escapes. Backslashes and quotes stay: they are common in patterns.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match character {
            '"' | '\'' | '\\' => out.push(character),
            other => out.extend(other.escape_debug()),
        }
    }
    Cow::Owned(out)
}

/// As [`plain`], and cut to `max` characters.
pub(crate) fn cut(text: &str, max: usize) -> Cow<'_, str> {
    match text.char_indices().nth(max) {
        None => plain(text),
        Some((end, _)) => Cow::Owned(format!("{}…", plain(&text[..end]))),
    }
}

/// `2 errors`, `1 error`.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// The lines of a table without borders, one for each row; no column is narrower than `widths` says, which afterwards says
/// how wide the columns are. Cells must not contain line breaks.
pub(crate) fn table_lines<R>(rows: R, widths: &mut Vec<u16>) -> Vec<String>
where
    R: IntoIterator,
    R::Item: IntoIterator<Item: Into<comfy_table::Cell>>,
{
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled);
    for row in rows {
        table.add_row(row);
    }
    let columns = table.column_count();
    widths.resize(columns.max(widths.len()), 0);
    for (width, content) in widths.iter_mut().zip(table.column_max_content_widths()) {
        *width = content.max(*width);
    }
    for (column, width) in table.column_iter_mut().zip(widths.iter()) {
        // No space before the first column and two between columns.
        column.set_padding((0, 2));
        let width = width.saturating_add(2);
        column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(width)));
    }
    table
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_outside_cannot_control_a_terminal() {
        let hostile = "a\x1b[31m\r\n\u{202e}\u{7f}\u{9b}ü\\d\"";
        let shown = plain(hostile);
        assert_eq!(shown, r#"a\u{1b}[31m\r\n\u{202e}\u{7f}\u{9b}ü\d""#);
    }

    #[test]
    fn a_cut_counts_characters_and_says_that_there_is_more() {
        assert_eq!(cut("äöü", 3), "äöü");
        assert_eq!(cut("äöüß", 3), "äöü…");
    }

    #[test]
    fn a_table_keeps_columns_across_parts_and_measures_wide_characters() {
        let mut widths = Vec::new();
        let first = table_lines([["東京", "1"], ["abcdef", "2"]], &mut widths);
        assert_eq!(first, ["東京    1", "abcdef  2"]);
        let second = table_lines([["a", "3"]], &mut widths);
        assert_eq!(second, ["a       3"]);
    }
}
