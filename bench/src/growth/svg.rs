//! Curves as SVG: panels side by side, a logarithmic axis of what grows, medians as a line and spreads as whiskers.
//!
//! Always holds: the same figures give the same text; the picture has a white ground of its own, so it is legible on pages
//! of any colour; each value that was measured is a tick of the horizontal axis, and the vertical one begins at 0.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::report::whole;
use crate::rounds::Spread;

/// What is drawn.
#[derive(Debug)]
pub(super) struct Picture {
    /// What the horizontal axis counts.
    pub(super) axis: String,
    /// From left to right.
    pub(super) panels: Vec<Panel>,
}

/// A pair of axes.
#[derive(Debug)]
pub(super) struct Panel {
    /// What the vertical axis says, with its unit.
    pub(super) title: String,
    /// What is to stay below.
    pub(super) bound: Option<f64>,
    /// The curves.
    pub(super) series: Vec<Series>,
}

/// A curve.
#[derive(Debug)]
pub(super) struct Series {
    /// Its name; empty if it is the only one.
    pub(super) name: &'static str,
    /// From left to right.
    pub(super) points: Vec<(f64, Spread)>,
}

/// Of each panel, in pixels.
const WIDTH: u32 = 340;
/// See [`WIDTH`].
const HEIGHT: u32 = 300;
/// Room beside the panels.
const MARGIN: i32 = 8;
const FONT: &str = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif";
const INK: RGBColor = RGBColor(0x33, 0x33, 0x33);
const GRID: RGBColor = RGBColor(0xE6, 0xE6, 0xE6);
const BOUND: RGBColor = RGBColor(0xB0, 0x30, 0x30);
/// Blue and orange, which everybody can tell apart.
const COLOURS: [RGBColor; 2] = [RGBColor(0x1F, 0x6F, 0xB4), RGBColor(0xD5, 0x6A, 0x10)];

/// The picture's text.
///
/// # Errors
/// The library's reason.
pub(super) fn draw(picture: &Picture) -> Result<String, String> {
    let mut text = String::new();
    let panels = u32::try_from(picture.panels.len().max(1)).unwrap_or(1);
    {
        let area = SVGBackend::with_string(&mut text, (WIDTH * panels, HEIGHT)).into_drawing_area();
        area.fill(&WHITE).map_err(reason)?;
        let areas = area.split_evenly((1, panels as usize));
        for (panel, area) in picture.panels.iter().zip(&areas) {
            draw_panel(panel, &picture.axis, area).map_err(reason)?;
        }
        area.present().map_err(reason)?;
    }
    Ok(text)
}

fn reason(error: impl std::error::Error) -> String {
    error.to_string()
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Drawn<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

fn draw_panel<'a>(panel: &Panel, axis: &str, area: &Area<'a>) -> Drawn<'a> {
    let values = values(panel);
    let (Some(first), Some(last)) = (values.first(), values.last()) else {
        return Ok(());
    };
    // Room beside the outermost whiskers.
    let horizontal = (first / 1.5..last * 1.5)
        .log_scale()
        .with_key_points(values.clone());
    let top = top(panel);
    let (text, small) = (font(16), font(14));
    let mut chart = ChartBuilder::on(area)
        .margin(MARGIN)
        .margin_top(34)
        .x_label_area_size(44)
        .y_label_area_size(56)
        .build_cartesian_2d(horizontal, 0.0..top)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(INK)
        .y_labels(6)
        .x_desc(axis)
        .axis_desc_style(text.clone())
        .label_style(small.clone())
        .x_label_formatter(&|value| whole(*value))
        .y_label_formatter(&|value| tick(*value, top))
        .draw()?;
    if let Some(bound) = panel.bound {
        chart.draw_series(DashedLineSeries::new(
            [(first / 1.5, bound), (last * 1.5, bound)],
            4,
            3,
            BOUND.stroke_width(1),
        ))?;
    }
    for (series, colour) in panel.series.iter().zip(COLOURS.iter().cycle()) {
        let medians = series
            .points
            .iter()
            .map(|(value, spread)| (*value, spread.median));
        chart.draw_series(LineSeries::new(medians, colour.stroke_width(2)))?;
        chart.draw_series(series.points.iter().map(|(value, spread)| {
            ErrorBar::new_vertical(
                *value,
                spread.min,
                spread.median,
                spread.max,
                colour.filled(),
                8,
            )
        }))?;
    }
    area.draw(&Text::new(panel.title.clone(), (MARGIN + 8, 10), text))?;
    // From the right, so that the lengths of titles do not matter.
    let mut right = WIDTH as i32 - MARGIN;
    let mut key = |name: &str, colour: RGBColor| -> Drawn<'a> {
        let end = small.color(&colour).pos(Pos::new(HPos::Right, VPos::Top));
        area.draw(&Text::new(name.to_owned(), (right, 12), end))?;
        // About the width of what was written, and a gap.
        right -= 8 * i32::try_from(name.chars().count()).unwrap_or(0) + 8;
        Ok(())
    };
    if panel.bound.is_some() {
        key("- - wanted: below", BOUND)?;
    }
    let named = panel.series.iter().zip(COLOURS).rev();
    for (series, colour) in named.filter(|(series, _)| !series.name.is_empty()) {
        key(&format!("● {}", series.name), colour)?;
    }
    Ok(())
}

fn font(size: u32) -> TextStyle<'static> {
    TextStyle::from((FONT, size).into_font()).color(&INK)
}

/// The values of the horizontal axis, each once.
fn values(panel: &Panel) -> Vec<f64> {
    let points = panel.series.iter().flat_map(|series| &series.points);
    let mut values: Vec<f64> = points.map(|(value, _)| *value).collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    values
}

/// Where the vertical axis ends: above everything that is drawn.
fn top(panel: &Panel) -> f64 {
    let points = panel.series.iter().flat_map(|series| &series.points);
    let highest = points.map(|(_, spread)| spread.max).chain(panel.bound);
    let highest = highest.fold(0.0, f64::max);
    if highest > 0.0 { highest * 1.12 } else { 1.0 }
}

/// A number beside an axis that ends at `top`, with as many digits as tell its neighbours apart.
fn tick(value: f64, top: f64) -> String {
    match top {
        _ if value == 0.0 => "0".to_owned(),
        1e7.. => format!("{} M", value / 1e6),
        1e4.. => format!("{} k", value / 1e3),
        10.0.. => whole(value),
        1.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(median: f64) -> Spread {
        Spread {
            min: median * 0.9,
            median,
            max: median * 1.2,
        }
    }

    fn picture(points: &[(f64, f64)]) -> Picture {
        let curve = |name| Series {
            name,
            points: points
                .iter()
                .map(|&(value, median)| (value, spread(median)))
                .collect(),
        };
        Picture {
            axis: "rules <in> the map".to_owned(),
            panels: vec![
                Panel {
                    title: "CPU per message (µs)".to_owned(),
                    bound: Some(3.3),
                    series: vec![curve("")],
                },
                Panel {
                    title: "latency (ms)".to_owned(),
                    bound: None,
                    series: vec![curve("p50"), curve("p99")],
                },
            ],
        }
    }

    #[test]
    fn a_picture_names_its_axes_and_has_a_tick_for_each_value_that_was_measured() {
        let drawn = draw(&picture(&[(10.0, 3.0), (100.0, 3.1), (1_000.0, 3.2)])).unwrap();
        assert!(drawn.starts_with("<svg ") && drawn.trim_end().ends_with("</svg>"));
        for text in [
            "rules &lt;in&gt; the map",
            "CPU per message (µs)",
            "latency (ms)",
            "● p50",
            "● p99",
            "- - wanted: below",
            "10",
            "100",
            "1,000",
        ] {
            assert!(drawn.lines().any(|line| line == text), "{text}: {drawn}");
        }
    }

    #[test]
    fn each_point_has_a_dot_and_a_whisker_on_a_white_ground() {
        let count = |drawn: &str, what: &str| drawn.matches(what).count();
        let one_colour = |drawn: &str| count(drawn, "<line opacity=\"1\" stroke=\"#D56A10\"");
        let two = draw(&picture(&[(1.0, 3.0), (10.0, 3.1)])).unwrap();
        let three = draw(&picture(&[(1.0, 3.0), (10.0, 3.1), (100.0, 3.0)])).unwrap();
        // Three curves in two panels, of which one is orange; a whisker is a stem with two ends.
        assert_eq!((count(&two, "<circle"), count(&three, "<circle")), (6, 9));
        assert_eq!((one_colour(&two), one_colour(&three)), (6, 9), "{two}");
        let ground = r##"width="680" height="300" opacity="1" fill="#FFFFFF""##;
        assert!(two.contains(ground), "{two}");
    }

    #[test]
    fn the_same_figures_give_the_same_text() {
        let points = [(1.0, 3.0), (1_000.0, 9_000_000.0)];
        assert_eq!(draw(&picture(&points)), draw(&picture(&points)));
        assert_ne!(draw(&picture(&points)), draw(&picture(&points[..1])));
    }

    #[test]
    fn one_point_and_none_and_nothing_but_zeros_can_be_drawn() {
        for points in [&[][..], &[(1.0, 3.0)], &[(1.0, 0.0), (10.0, 0.0)]] {
            let drawn = draw(&picture(points)).unwrap();
            assert!(!drawn.contains("NaN") && !drawn.contains("inf"), "{drawn}");
        }
    }

    #[test]
    fn numbers_beside_an_axis_are_short_and_tell_neighbours_apart() {
        for (value, top, text) in [
            (0.0, 1e8, "0"),
            (5_000_000.0, 2e7, "5 M"),
            (2_500_000.0, 1e7, "2.5 M"),
            (50_000.0, 2e5, "50 k"),
            (2_000.0, 9_999.0, "2,000"),
            (12.0, 20.0, "12"),
            (2.5, 3.0, "2.5"),
            (0.25, 0.9, "0.25"),
        ] {
            assert_eq!(tick(value, top), text);
        }
    }
}
