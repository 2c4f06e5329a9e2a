//! The screen of `top`.
//!
//! What always holds: drawing changes nothing; what does not fit is cut, and no size of the terminal is an error.

use std::time::Instant;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Paragraph, Row, Sparkline, Table, Tabs, Wrap};

use super::Screen;
use crate::status::view::{self, Curve};
use crate::text::plain;

/// Older than this it is not what the gateway does now, seconds.
const STALE: f32 = 3.0;
/// The most lines for what needs attention.
const MOST_ATTENTION: usize = 6;
const HELP: &str = "q quit   Tab/arrows tables   up/down rows   p pause";

pub(super) fn draw(screen: &Screen, now: Instant, frame: &mut Frame<'_>) {
    let attention = attention(screen, now);
    let areas = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(attention.len() as u16 + 2),
        Constraint::Length(4),
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(1),
    ]);
    let [head, alert, curves, tabs, table, help] = areas.areas(frame.area());
    frame.render_widget(headline(screen), head);
    let paragraph = Paragraph::new(attention).wrap(Wrap { trim: true });
    frame.render_widget(
        paragraph.block(Block::bordered().title("needs attention")),
        alert,
    );
    if let Some((status, _)) = &screen.status {
        draw_curves(&view::curves(&status.history), curves, frame);
    }
    draw_table(screen, tabs, table, frame);
    frame.render_widget(Paragraph::new(HELP).style(dim()), help);
}

fn dim() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn headline(screen: &Screen) -> Line<'static> {
    let Some((status, _)) = &screen.status else {
        return Line::from(format!("asking {} …", plain(&screen.url)));
    };
    let ready = match status.readiness.ready {
        true => Span::styled("ready", bold().green()),
        false => Span::styled("NOT READY", bold().red()),
    };
    let text = plain(&view::headline(status)).into_owned();
    let paused = if screen.is_paused { "  [paused]" } else { "" };
    Line::from(vec![ready, Span::raw(format!("  {text}{paused}"))])
}

fn attention(screen: &Screen, now: Instant) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    if let Some(error) = &screen.error {
        lines.push(Line::styled(plain(error).into_owned(), bold().red()));
    }
    if let Some((status, at)) = &screen.status {
        let age = now.saturating_duration_since(*at).as_secs_f32();
        if age > STALE && !screen.is_paused {
            lines.push(Line::styled(
                format!("what is shown is {age:.0} s old"),
                bold().red(),
            ));
        }
        let texts = status.attention.iter();
        lines.extend(
            texts.map(|text| Line::styled(plain(text).into_owned(), Style::new().yellow())),
        );
    }
    let more = lines.len().saturating_sub(MOST_ATTENTION);
    lines.truncate(MOST_ATTENTION);
    if more > 0 {
        lines.push(Line::from(format!(
            "and {more} more: mqtt-gateway status shows all"
        )));
    }
    if lines.is_empty() {
        lines.push(Line::styled("nothing", dim()));
    }
    lines
}

fn draw_curves(curves: &[Curve], area: Rect, frame: &mut Frame<'_>) {
    let width = Constraint::Ratio(1, curves.len().max(1) as u32);
    let areas = Layout::horizontal(curves.iter().map(|_| width)).split(area);
    for (curve, area) in curves.iter().zip(areas.iter()) {
        let room = usize::from(area.width.saturating_sub(2));
        let from = curve.values.len().saturating_sub(room);
        // Rates below 1 are to be seen, too.
        let values: Vec<u64> = curve.values[from..]
            .iter()
            .map(|value| (value * 10.0) as u64)
            .collect();
        let block = Block::bordered().title(curve.title.clone());
        frame.render_widget(Sparkline::default().data(&values).block(block), *area);
    }
}

fn draw_table(screen: &Screen, tabs: Rect, area: Rect, frame: &mut Frame<'_>) {
    let tables = screen.tables();
    let titles: Vec<_> = tables.iter().map(|table| table.title.clone()).collect();
    frame.render_widget(Tabs::new(titles).select(screen.tab), tabs);
    let Some(table) = tables.get(screen.tab) else {
        return;
    };
    let Some((head, rows)) = table.rows.split_first() else {
        return;
    };
    let width = |column: usize| {
        let cells = table.rows.iter().filter_map(|row| row.get(column));
        cells
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or_default()
    };
    let widths: Vec<_> = (0..head.len())
        .map(|column| Constraint::Max(width(column).min(80) as u16))
        .collect();
    let row =
        |cells: &Vec<String>| Row::new(cells.iter().cloned().map(Cell::from).collect::<Vec<_>>());
    let shown = rows.iter().skip(screen.row).map(row);
    let table = Table::new(shown, widths)
        .header(row(head).style(bold()))
        .column_spacing(2);
    frame.render_widget(table, area);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use std::time::Duration;

    use super::*;
    use crate::status::view::tests::sample;

    fn drawn(screen: &Screen, now: Instant, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(screen, now, frame)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn the_stuck_subscriber_is_on_the_first_screen() {
        let (mut screen, now) = (Screen::new("http://127.0.0.1:9883"), Instant::now());
        assert!(drawn(&screen, now, 80, 24).contains("asking http://127.0.0.1:9883"));
        screen.heard(Ok(sample()), now);
        let text = drawn(&screen, now, 160, 40);
        assert!(text.contains("has not acknowledged offset"), "{text}");
        assert!(text.contains("press"), "{text}");
        assert!(text.contains("received"), "{text}");
    }

    #[test]
    fn what_is_old_says_so_and_no_size_is_too_small() {
        let (mut screen, now) = (Screen::new("x"), Instant::now());
        screen.heard(Ok(sample()), now);
        screen.heard(Err("no gateway answers".to_owned()), now);
        let text = drawn(&screen, now + Duration::from_secs(60), 120, 40);
        assert!(
            text.contains("no gateway answers") && text.contains("60 s old"),
            "{text}"
        );
        for (width, height) in [(1, 1), (10, 2), (20, 5), (300, 3)] {
            for tab in 0..8 {
                screen.tab = tab;
                drawn(&screen, now, width, height);
            }
        }
    }
}
