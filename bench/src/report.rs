//! What a run found: every sample, the figures made of them, as JSON and as one Markdown table.
//!
//! Always holds: a ratio is the gateway's figure over the SDK's of the same round; nothing is rounded in JSON; whether what
//! is wanted is reached is said and decides nothing.

use serde::Serialize;

use crate::append_counter::AppendCount;
use crate::machine::Machine;
use crate::outcome::LatencySummary;
use crate::rounds::Spread;

/// Everything that a run found.
#[derive(Debug, Serialize)]
pub(crate) struct Report<S: Serialize> {
    /// When it ended, in UTC.
    pub(crate) date: String,
    /// Where it ran.
    pub(crate) machine: Machine,
    /// What was asked for.
    pub(crate) settings: S,
    /// One for each subject, workload and round.
    pub(crate) samples: Vec<Sample>,
    /// The rows of the table.
    pub(crate) figures: Vec<Figure>,
}

/// What one subject did in one round.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Sample {
    /// The server and the host.
    pub(crate) iggy: String,
    /// The durability of the topic.
    pub(crate) durability: &'static str,
    /// The workload.
    pub(crate) workload: &'static str,
    /// Who did it.
    pub(crate) subject: &'static str,
    /// From 1.
    pub(crate) round: usize,
    /// Messages confirmed.
    pub(crate) messages: u64,
    /// From the first message to the last confirmation.
    pub(crate) seconds: f64,
    /// Messages in a second.
    pub(crate) rate: f64,
    /// Of each message, or of each append of a batch, in microseconds.
    pub(crate) latency_us: LatencySummary,
    /// What the counting proxy saw.
    pub(crate) appends: Option<AppendCount>,
}

/// What a figure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unit {
    /// Microseconds.
    Micros,
    /// Messages in a second.
    PerSecond,
    /// Messages.
    Messages,
}

/// What is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Wanted {
    /// The median of the ratios is at most this.
    RatioAtMost(f64),
    /// The median of the figures is above this.
    FigureAbove(f64),
    /// Nothing is asked of it.
    Nothing,
}

/// A row of the table.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Figure {
    /// The server and the host.
    pub(crate) iggy: String,
    /// The durability of the topic.
    pub(crate) durability: &'static str,
    /// What was measured.
    pub(crate) what: String,
    /// In what.
    pub(crate) unit: Unit,
    /// The gateway's figures.
    pub(crate) gateway: Spread,
    /// The SDK's.
    pub(crate) sdk: Option<Spread>,
    /// The gateway's over the SDK's.
    pub(crate) ratio: Option<Spread>,
    /// The noise: subjects over themselves in the round before.
    pub(crate) repeats: Option<Spread>,
    /// What is wanted.
    pub(crate) wanted: Wanted,
    /// Whether it is so; nothing when nothing is wanted.
    pub(crate) reached: Option<bool>,
}

/// The figures of the rounds of which a row is made.
#[derive(Debug)]
pub(crate) struct Series {
    /// Of the gateway.
    pub(crate) gateway: Vec<f64>,
    /// Of the SDK in the same rounds; empty when it does not have this figure.
    pub(crate) sdk: Vec<f64>,
}

impl Figure {
    /// A row; nothing when there was no round.
    pub(crate) fn new(
        iggy: &str,
        durability: &'static str,
        what: String,
        unit: Unit,
        series: &Series,
        wanted: Wanted,
    ) -> Option<Self> {
        let gateway = Spread::of(series.gateway.iter().copied())?;
        let ratio = Spread::of_ratios(&series.gateway, &series.sdk);
        let repeats = [&series.gateway, &series.sdk]
            .into_iter()
            .filter_map(|figures| Spread::of_repeats(figures))
            .flat_map(|spread| [spread.min, spread.max]);
        let reached = match wanted {
            Wanted::RatioAtMost(bound) => ratio.map(|ratio| ratio.median <= bound),
            Wanted::FigureAbove(bound) => Some(gateway.median > bound),
            Wanted::Nothing => None,
        };
        Some(Self {
            iggy: iggy.to_owned(),
            durability,
            what,
            unit,
            gateway,
            sdk: Spread::of(series.sdk.iter().copied()),
            ratio,
            repeats: Spread::of(repeats),
            wanted,
            reached,
        })
    }
}

/// The table.
pub(crate) fn markdown(figures: &[Figure]) -> String {
    let mut table =
        "| Iggy | durability | measured | gateway | SDK alone | ratio | wanted | noise |\n\
         |---|---|---|---|---|---|---|---|\n"
            .to_owned();
    for figure in figures {
        let spread =
            |spread: Option<Spread>, unit| spread.map_or("—".to_owned(), |s| in_unit(s, unit));
        let mark = match figure.reached {
            Some(true) => ": yes",
            Some(false) => ": **no**",
            None => "",
        };
        let wanted = match figure.wanted {
            Wanted::RatioAtMost(bound) => format!("ratio ≤ {bound}{mark}"),
            Wanted::FigureAbove(bound) => format!("> {bound}{mark}"),
            Wanted::Nothing => "—".to_owned(),
        };
        let noise = figure.repeats.map_or("—".to_owned(), |repeats| {
            format!("{:.2}–{:.2}", repeats.min, repeats.max)
        });
        table += &format!(
            "| {} | {} | {} | {} | {} | {} | {wanted} | {noise} |\n",
            figure.iggy,
            figure.durability,
            figure.what,
            in_unit(figure.gateway, figure.unit),
            spread(figure.sdk, figure.unit),
            figure.ratio.map_or("—".to_owned(), ratio),
        );
    }
    table
}

fn ratio(spread: Spread) -> String {
    format!("{:.2} ({:.2}–{:.2})", spread.median, spread.min, spread.max)
}

fn in_unit(spread: Spread, unit: Unit) -> String {
    let Spread { min, median, max } = spread;
    match unit {
        Unit::Micros => format!("{median:.0} µs ({min:.0}–{max:.0})"),
        Unit::PerSecond => format!("{} /s ({}–{})", whole(median), whole(min), whole(max)),
        Unit::Messages => format!("{median:.1} ({min:.1}–{max:.1})"),
    }
}

/// A whole number with its thousands set apart.
pub(crate) fn whole(figure: f64) -> String {
    let digits = format!("{figure:.0}");
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(gateway: &[f64], sdk: &[f64], unit: Unit, wanted: Wanted) -> Figure {
        let series = Series {
            gateway: gateway.to_vec(),
            sdk: sdk.to_vec(),
        };
        Figure::new("sandbox", "persisted", "p50".into(), unit, &series, wanted).unwrap()
    }

    #[test]
    fn a_row_says_spread_ratio_and_noise_and_whether_the_median_reaches_what_is_wanted() {
        let bound = Wanted::RatioAtMost(2.0);
        let just = figure(
            &[150.0, 220.0, 330.0],
            &[100.0, 110.0, 110.0],
            Unit::Micros,
            bound,
        );
        assert_eq!(just.reached, Some(true));
        let above = figure(&[150.0, 201.0, 202.0], &[100.0; 3], Unit::Micros, bound);
        assert_eq!(above.reached, Some(false));
        let batches = figure(
            &[20.0, 20.0],
            &[],
            Unit::Messages,
            Wanted::FigureAbove(20.0),
        );
        assert_eq!(batches.reached, Some(false));
        let rows = markdown(&[just, above, batches]);
        let rows: Vec<&str> = rows.lines().skip(2).collect();
        assert_eq!(
            rows,
            [
                "| sandbox | persisted | p50 | 220 µs (150–330) | 110 µs (100–110) | 2.00 (1.50–3.00) | ratio ≤ 2: yes | 1.00–1.50 |",
                "| sandbox | persisted | p50 | 201 µs (150–202) | 100 µs (100–100) | 2.01 (1.50–2.02) | ratio ≤ 2: **no** | 1.00–1.34 |",
                "| sandbox | persisted | p50 | 20.0 (20.0–20.0) | — | — | > 20: **no** | 1.00–1.00 |",
            ]
        );
    }

    #[test]
    fn without_a_round_there_is_no_row() {
        let series = Series {
            gateway: Vec::new(),
            sdk: Vec::new(),
        };
        let row = Figure::new(
            "sandbox",
            "commit",
            "p50".into(),
            Unit::Micros,
            &series,
            Wanted::Nothing,
        );
        assert!(row.is_none());
    }

    #[test]
    fn thousands_are_set_apart() {
        for (figure, text) in [
            (0.4, "0"),
            (999.0, "999"),
            (1_000.0, "1,000"),
            (123_456.7, "123,457"),
            (1_234_567.0, "1,234,567"),
        ] {
            assert_eq!(whole(figure), text);
        }
    }
}
