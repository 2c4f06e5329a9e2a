//! What was found: every sample, a row for each point, how much the cost has grown, and the curves made of it.
//!
//! Always holds: growth is the largest point over the smallest of the same round; nothing is rounded in JSON; whether what is
//! wanted is reached is said and decides nothing.

use std::time::Duration;

use serde::Serialize;

use super::Settings;
use super::point::{Dimension, Point};
use super::svg::{Panel, Picture, Series};
use crate::machine::Machine;
use crate::outcome::{LatencySummary, Outcome};
use crate::report::whole;
use crate::rounds::Spread;

/// What the processor time of a message may be at the largest point, as a multiple of the smallest.
const BOUND: f64 = 1.1;

/// Everything that a run found.
#[derive(Debug, Serialize)]
pub(super) struct Found {
    /// When it ended, in UTC.
    pub(super) date: String,
    /// Where it ran.
    pub(super) machine: Machine,
    /// The server and the host.
    pub(super) subject: String,
    /// What was asked for.
    pub(super) settings: Settings,
    /// One for each dimension.
    pub(super) dimensions: Vec<Growth>,
}

/// One measurement of one point.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Sample {
    /// Of which point.
    pub(super) point: Point,
    /// Messages confirmed, or copies delivered.
    pub(super) messages: u64,
    /// From the first message to the last of them.
    pub(super) seconds: f64,
    /// Of them in a second.
    pub(super) rate: f64,
    /// The gateway's processor time for each, in microseconds.
    pub(super) cpu_us: f64,
    /// From the write of a PUBLISH to its PUBACK, or to the read of a copy.
    pub(super) latency_us: LatencySummary,
}

impl Sample {
    /// What one measurement gave.
    pub(super) fn new(point: Point, outcome: &Outcome, processor: Duration) -> Self {
        Self {
            point,
            messages: outcome.messages,
            seconds: outcome.elapsed.as_secs_f64(),
            rate: outcome.rate(),
            cpu_us: processor.as_secs_f64() * 1e6 / (outcome.messages.max(1) as f64),
            latency_us: outcome.latencies.summary(),
        }
    }
}

/// What was found of one dimension.
#[derive(Debug, Serialize)]
pub(super) struct Growth {
    /// What grew.
    pub(super) dimension: Dimension,
    /// From the smallest to the largest.
    pub(super) rows: Vec<Row>,
    /// The processor time at the largest point over that at the smallest; nothing when there is one point.
    pub(super) cpu_growth: Option<Spread>,
    /// What its median may be at most, if something is wanted of it.
    pub(super) wanted: Option<f64>,
    /// Whether it is so.
    pub(super) reached: Option<bool>,
    /// Every measurement: a list for each round, in the order of the points.
    pub(super) rounds: Vec<Vec<Sample>>,
}

/// What was found of one point.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Row {
    value: u16,
    rate: Spread,
    cpu_us: Spread,
    p50_us: Spread,
    p99_us: Spread,
    /// The processor time over that in the round before.
    cpu_noise: Option<Spread>,
}

impl Growth {
    /// Of rounds that hold the same points in the same order, the smallest first. Nothing when there are none.
    pub(super) fn new(rounds: Vec<Vec<Sample>>) -> Option<Self> {
        let of = |at: usize, figure: fn(&Sample) -> f64| -> Vec<f64> {
            let samples = rounds.iter().filter_map(|round| round.get(at));
            samples.map(figure).collect()
        };
        let first = rounds.first()?;
        let dimension = first.first()?.point.dimension;
        let rows: Vec<Row> = first
            .iter()
            .enumerate()
            .filter_map(|(at, sample)| {
                let cpu = of(at, |sample| sample.cpu_us);
                Some(Row {
                    value: sample.point.value,
                    rate: Spread::of(of(at, |sample| sample.rate))?,
                    cpu_noise: Spread::of_repeats(&cpu),
                    cpu_us: Spread::of(cpu)?,
                    p50_us: Spread::of(of(at, |sample| sample.latency_us.p50))?,
                    p99_us: Spread::of(of(at, |sample| sample.latency_us.p99))?,
                })
            })
            .collect();
        let largest = of(rows.len() - 1, |sample| sample.cpu_us);
        let smallest = of(0, |sample| sample.cpu_us);
        let cpu_growth = Spread::of_ratios(&largest, &smallest).filter(|_| rows.len() > 1);
        let wanted = matches!(dimension, Dimension::Rules | Dimension::Topics).then_some(BOUND);
        let reached = wanted
            .zip(cpu_growth)
            .map(|(bound, growth)| growth.median < bound);
        Some(Self {
            dimension,
            rows,
            cpu_growth,
            wanted,
            reached,
            rounds,
        })
    }
}

/// A table for each dimension.
pub(super) fn markdown(found: &Found) -> String {
    let settings = &found.settings;
    let mut out = format!(
        "Growth, {}: {} rounds of {} s, payload {} bytes, median (smallest–largest)\n",
        found.subject, settings.rounds, settings.seconds, settings.payload
    );
    for growth in &found.dimensions {
        let dimension = growth.dimension;
        out += &format!(
            "\n| {} | {}/s | CPU per {} | noise | p50 | p99 |\n|---|---|---|---|---|---|\n",
            dimension.axis(),
            dimension.counted_many(),
            dimension.counted(),
        );
        for row in &growth.rows {
            let Spread { min, median, max } = row.rate;
            out += &format!(
                "| {} | {} ({}–{}) | {} µs | {} | {} µs | {} µs |\n",
                whole(row.value.into()),
                whole(median),
                whole(min),
                whole(max),
                spread(row.cpu_us, 2),
                row.cpu_noise.map_or("—".to_owned(), |noise| {
                    format!("{:.2}–{:.2}", noise.min, noise.max)
                }),
                spread(row.p50_us, 0),
                spread(row.p99_us, 0),
            );
        }
        if let (Some(factor), [first, .., last]) = (growth.cpu_growth, growth.rows.as_slice()) {
            out += &format!(
                "\nCPU per {} from {} to {} {}: × {}",
                dimension.counted(),
                whole(first.value.into()),
                whole(last.value.into()),
                dimension.axis(),
                spread(factor, 2),
            );
            if let (Some(bound), Some(reached)) = (growth.wanted, growth.reached) {
                let answer = if reached { "yes" } else { "**no**" };
                out += &format!(" (wanted: below {bound:.2}: {answer})");
            }
            out.push('\n');
        }
    }
    out += &format!("\n{}", found.machine.line(&found.date));
    out
}

fn spread(Spread { min, median, max }: Spread, digits: usize) -> String {
    format!("{median:.digits$} ({min:.digits$}–{max:.digits$})")
}

/// The curves of one dimension: processor time, rate, and latencies.
pub(super) fn picture(growth: &Growth) -> Picture {
    let dimension = growth.dimension;
    let series = |name, figure: fn(&Row) -> Spread| {
        let point = |row: &Row| (f64::from(row.value), figure(row));
        Series {
            name,
            points: growth.rows.iter().map(point).collect(),
        }
    };
    let smallest = growth.rows.first().map(|row| row.cpu_us.median);
    Picture {
        axis: dimension.axis().to_owned(),
        panels: vec![
            Panel {
                title: format!("CPU per {} (µs)", dimension.counted()),
                bound: growth
                    .wanted
                    .zip(smallest)
                    .map(|(bound, smallest)| bound * smallest),
                series: vec![series("", |row| row.cpu_us)],
            },
            Panel {
                title: format!("{} per second", dimension.counted_many()),
                bound: None,
                series: vec![series("", |row| row.rate)],
            },
            Panel {
                title: "latency (ms)".to_owned(),
                bound: None,
                series: vec![
                    series("p50", |row| millis(row.p50_us)),
                    series("p99", |row| millis(row.p99_us)),
                ],
            },
        ],
    }
}

fn millis(Spread { min, median, max }: Spread) -> Spread {
    Spread {
        min: min / 1_000.0,
        median: median / 1_000.0,
        max: max / 1_000.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Latencies;

    fn sample(dimension: Dimension, value: u16, cpu_micros: u64) -> Sample {
        let mut latencies = Latencies::new();
        latencies.record(Duration::from_millis(1));
        let outcome = Outcome {
            messages: 1_000,
            elapsed: Duration::from_millis(10),
            unsent: 0,
            latencies,
        };
        let point = Point { dimension, value };
        Sample::new(point, &outcome, Duration::from_micros(1_000 * cpu_micros))
    }

    fn growth(dimension: Dimension, rounds: &[[u64; 2]]) -> Growth {
        let round = |[small, large]: &[u64; 2]| {
            vec![
                sample(dimension, 10, *small),
                sample(dimension, 1_000, *large),
            ]
        };
        Growth::new(rounds.iter().map(round).collect()).unwrap()
    }

    #[test]
    fn growth_is_formed_within_a_round_and_compared_with_what_is_wanted() {
        // A machine that is twice as slow in the second round.
        let even = growth(Dimension::Rules, &[[100, 105], [200, 210], [100, 103]]);
        let factor = even.cpu_growth.unwrap();
        assert!((factor.median - 1.05).abs() < 1e-9, "{factor:?}");
        assert_eq!(even.reached, Some(true));
        let steep = growth(Dimension::Topics, &[[100, 110]]);
        assert_eq!(
            steep.reached,
            Some(false),
            "exactly the bound is not below it"
        );
        let free = growth(Dimension::Connections, &[[100, 300]]);
        assert_eq!((free.wanted, free.reached), (None, None));
        assert!((free.cpu_growth.unwrap().median - 3.0).abs() < 1e-9);
    }

    #[test]
    fn one_point_does_not_grow_and_no_round_is_nothing() {
        let alone = Growth::new(vec![vec![sample(Dimension::Rules, 10, 5)]]).unwrap();
        assert_eq!((alone.cpu_growth, alone.reached), (None, None));
        assert!(Growth::new(Vec::new()).is_none());
        assert!(Growth::new(vec![Vec::new()]).is_none());
    }

    #[test]
    fn the_table_says_for_each_point_what_it_cost_and_how_sure_that_is() {
        let found = Found {
            date: "2026-01-01T00:00:00Z".to_owned(),
            machine: Machine::here(std::path::Path::new("/")),
            subject: "sandbox".to_owned(),
            settings: Settings {
                rounds: 2,
                seconds: 2.0,
                messages: 1,
                payload: 100,
                on_the_way: super::super::OnTheWay {
                    published: 1,
                    delivered: 1,
                },
                points: Vec::new(),
            },
            dimensions: vec![
                growth(Dimension::Rules, &[[2, 3], [3, 3]]),
                growth(Dimension::Subscribers, &[[1, 1]]),
            ],
        };
        let text = markdown(&found);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[2..=7],
            [
                "| rules in the topic map | messages/s | CPU per message | noise | p50 | p99 |",
                "|---|---|---|---|---|---|",
                "| 10 | 100,000 (100,000–100,000) | 2.50 (2.00–3.00) µs | 1.50–1.50 | 1000 (1000–1000) µs | 1000 (1000–1000) µs |",
                "| 1,000 | 100,000 (100,000–100,000) | 3.00 (3.00–3.00) µs | 1.00–1.00 | 1000 (1000–1000) µs | 1000 (1000–1000) µs |",
                "",
                "CPU per message from 10 to 1,000 rules in the topic map: × 1.25 (1.00–1.50) (wanted: below 1.10: **no**)",
            ]
        );
        assert!(
            text.contains("| subscribers | copies/s | CPU per copy |"),
            "{text}"
        );
        assert!(text.contains("| 10 | 100,000 (100,000–100,000) | 1.00 (1.00–1.00) µs | — |"));
    }

    #[test]
    fn the_picture_has_what_is_wanted_where_something_is() {
        let rules = picture(&growth(Dimension::Rules, &[[2, 3]]));
        assert!((rules.panels[0].bound.unwrap() - 2.2).abs() < 1e-9);
        let latency = &rules.panels[2].series[1];
        assert_eq!((latency.name, latency.points.len()), ("p99", 2));
        assert!(
            (latency.points[0].1.median - 1.0).abs() < 0.001,
            "in milliseconds"
        );
        let subscribers = picture(&growth(Dimension::Subscribers, &[[2, 3]]));
        assert_eq!(subscribers.panels[0].bound, None);
        assert_eq!(subscribers.panels[1].title, "copies per second");
    }
}
