//! The tables of a comparison, as Markdown.
//!
//! Always holds: every figure is the median of the rounds with the smallest and the largest behind it; what is over the
//! gateway's is formed within a round, against the gateway whose PUBACK promises as much; what failed or was lost is marked in
//! its row and explained below the table.

use super::measure::Measured;
use super::results::Results;
use super::subject::Subject;
use super::workload::Workload;
use crate::report::whole;
use crate::rounds::Spread;

/// Characters of a reason below a table; the JSON has all of it.
const LONGEST_NOTE: usize = 400;

/// A column of figures.
type Column = (
    &'static str,
    fn(&Measured) -> Option<f64>,
    fn(f64) -> String,
);

fn micros(figure: f64) -> String {
    if figure < 10_000.0 {
        format!("{figure:.0} µs")
    } else {
        format!("{:.1} ms", figure / 1_000.0)
    }
}

fn seconds(figure: f64) -> String {
    format!("{figure:.2} s")
}

const RATE: Column = ("/s", |it| Some(it.rate), whole);
const P50: Column = ("p50", |it| Some(it.latency_us.p50), micros);
const P99: Column = ("p99", |it| Some(it.latency_us.p99), micros);
const UNSENT: Column = ("not sent", |it| Some(it.unsent as f64), whole);

/// What is said of a workload, the figure by which subjects are compared first.
fn columns(workload: &Workload) -> Vec<Column> {
    match workload {
        Workload::Publish { rate: Some(_), .. } | Workload::Deliver { rate: Some(_), .. } => {
            vec![P99, P50, RATE, UNSENT]
        }
        Workload::Publish {
            clients: 1,
            window: 1,
            ..
        } => vec![P50, P99, RATE],
        Workload::Publish { .. } | Workload::Deliver { .. } | Workload::Churn { .. } => {
            vec![RATE, P50, P99]
        }
        Workload::Idle { .. } => vec![
            (
                "memory per connection",
                |it| it.bytes_per_connection,
                |bytes| format!("{:.1} KiB", bytes / 1_024.0),
            ),
            ("accepted in", |it| Some(it.seconds), seconds),
            P99,
        ],
        Workload::Crash { .. } => vec![
            ("kept", |it| it.kept.map(|kept| kept as f64), whole),
            ("serves again after", |it| it.restart_seconds, seconds),
            RATE,
        ],
    }
}

/// All tables.
pub(crate) fn markdown(results: &Results) -> String {
    results
        .workloads
        .iter()
        .map(|workload| table(results, workload))
        .collect()
}

fn table(results: &Results, workload: &Workload) -> String {
    let key = workload.key();
    let subjects: Vec<&Subject> = results
        .subjects
        .iter()
        .filter(|subject| results.samples(&key, &subject.key).next().is_some())
        .collect();
    if subjects.is_empty() {
        return String::new();
    }
    let columns = columns(workload);
    let has_kept = matches!(workload, Workload::Publish { .. });
    let settings = &results.settings;
    let mut out = format!(
        "### {} (`{key}`)\n\n",
        workload.title(settings.payload, settings.time)
    );
    let mut head: Vec<&str> = vec!["subject", "flavour"];
    head.extend(columns.iter().map(|(name, ..)| *name));
    head.extend(["over the gateway's", "CPU each", "memory"]);
    head.extend(has_kept.then_some("kept"));
    head.push("noise");
    out += &row(&head);
    out += &row(&vec!["---"; head.len()]);
    let mut notes = Vec::new();
    for subject in subjects {
        let mut cells = vec![
            subject.version.clone(),
            format!("{} (`{}`)", subject.flavour, subject.key),
        ];
        for (_, figure, format) in &columns {
            cells.push(spread(results.spread(&key, &subject.key, figure), format));
        }
        let primary = |measured: &Measured| measured.primary(workload);
        let gateway = results.gateway(subject.class);
        let over = gateway
            .filter(|gateway| gateway.key != subject.key)
            .and_then(|gateway| results.ratio(&key, &subject.key, &gateway.key, primary));
        cells.push(spread(over, |ratio| format!("{ratio:.2}")));
        let median = |figure: fn(&Measured) -> Option<f64>| {
            Some(results.spread(&key, &subject.key, figure)?.median)
        };
        cells.push(both(
            median(|it| it.cpu_us),
            median(|it| it.iggy_cpu_us),
            |cpu| format!("{cpu:.2} µs"),
        ));
        cells.push(both(
            median(|it| it.peak_bytes.map(|bytes| bytes as f64)),
            median(|it| it.iggy_peak_bytes.map(|bytes| bytes as f64)),
            |bytes| format!("{:.0} MiB", bytes / (1_024.0 * 1_024.0)),
        ));
        let share = |it: &Measured| Some(it.kept? as f64 / it.messages.max(1) as f64 * 100.0);
        if has_kept {
            let kept = results.spread(&key, &subject.key, share);
            cells.push(kept.map_or("—".to_owned(), |kept| percent(kept.min)));
        }
        let noise = Spread::of_repeats(&results.series(&key, &subject.key, primary));
        cells.push(noise.map_or("—".to_owned(), |noise| {
            format!("{:.2}–{:.2}", noise.min, noise.max)
        }));
        let (failure, complaints) = problems(results, &key, subject);
        if let Some(failure) = failure {
            if let Some(cell) = cells.get_mut(2) {
                *cell = if cell == "—" {
                    "**failed**".to_owned()
                } else {
                    format!("{cell}, then **failed**")
                };
            }
            notes.push(format!("`{}` failed: {failure}", subject.key));
        }
        notes.extend(complaints.map(|complaint| format!("`{}`: {complaint}", subject.key)));
        let cells: Vec<&str> = cells.iter().map(String::as_str).collect();
        out += &row(&cells);
    }
    out.push('\n');
    for note in notes {
        out += &format!("- {note}\n");
    }
    if out.ends_with("\n\n") {
        out
    } else {
        out + "\n"
    }
}

/// Why a subject failed, and the first thing that it did not do in a round that it did not fail.
fn problems(results: &Results, key: &str, subject: &Subject) -> (Option<String>, Option<String>) {
    let one_line = |text: &str| {
        let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
        line.chars().take(LONGEST_NOTE).collect::<String>()
    };
    let samples = || results.samples(key, &subject.key);
    let failure = samples().find_map(|sample| sample.failure.as_deref().map(one_line));
    let complaint = samples()
        .filter(|sample| sample.round > 0)
        .find_map(|sample| {
            let complaint = sample.measured.as_ref()?.complaint()?;
            Some(format!("{complaint} (round {})", sample.round))
        });
    (failure, complaint)
}

fn row(cells: &[&str]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

fn spread(spread: Option<Spread>, format: impl Fn(f64) -> String) -> String {
    spread.map_or("—".to_owned(), |Spread { min, median, max }| {
        let (min, median, max) = (format(min), format(median), format(max));
        if min == max {
            return median;
        }
        // The unit once is enough.
        let unit = median.split_once(' ').map_or("", |(_, unit)| unit);
        let bare = |text: &str| {
            text.strip_suffix(unit)
                .map_or(text.to_owned(), |text| text.trim_end().to_owned())
        };
        format!("{median} ({}–{})", bare(&min), bare(&max))
    })
}

/// The subject's own, and its Iggy server's behind a plus.
fn both(own: Option<f64>, iggy: Option<f64>, format: impl Fn(f64) -> String) -> String {
    match (own, iggy) {
        (None, None) => "—".to_owned(),
        (Some(own), None) => format(own),
        (None, Some(iggy)) => format!("Iggy {}", format(iggy)),
        (Some(own), Some(iggy)) => format!("{} + Iggy {}", format(own), format(iggy)),
    }
}

/// Never rounded up to all.
fn percent(share: f64) -> String {
    if share >= 100.0 {
        "100 %".to_owned()
    } else {
        format!("**{:.2} %**", (share * 100.0).floor() / 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::results::tests::{measured, results};
    use super::super::subject::{Class, Kind};
    use super::*;
    use crate::stack::Programs;

    fn subject(kind: Kind, class: Class) -> Subject {
        let programs = Programs {
            sandbox: "s".into(),
            plugin: "p".into(),
            iggy_server: None,
            iggy_connectors: None,
        };
        Subject::iggy(kind, class, "flavour", "name 1.0".to_owned(), programs)
    }

    #[test]
    fn a_row_says_spread_ratio_and_noise_and_what_was_lost_or_failed_stands_below() {
        let subjects = vec![
            subject(Kind::Gateway, Class::Plain),
            subject(Kind::Mosquitto, Class::Plain),
            subject(Kind::Nats, Class::Plain),
        ];
        let mut results = results(2, subjects);
        results.workloads = vec![Workload::Publish {
            clients: 50,
            window: 20,
            rate: None,
        }];
        let mut rounds = |key: &str, figures: [f64; 3], kept| {
            let rounds = figures.map(|figure| {
                Ok(Measured {
                    kept: Some(kept),
                    ..measured(figure)
                })
            });
            results.add("publish-50x20", key, &rounds);
        };
        rounds("gateway-plain", [1.0, 500.0, 500.0], 1_000);
        rounds("mosquitto-plain", [1.0, 250.0, 750.0], 999);
        let failed = [Ok(measured(5.0)), Err("the end\nof it"), Err("not again")];
        results.add("publish-50x20", "nats-plain", &failed);
        let text = markdown(&results);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "### Publish, QoS 1: 50 clients × window 20, 100 bytes, 1s (`publish-50x20`)",
                "",
                "| subject | flavour | /s | p50 | p99 | over the gateway's | CPU each | memory | kept | noise |",
                "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
                "| name 1.0 | flavour (`gateway-plain`) | 500 | 500 µs | 500 µs | — | 500.00 µs | 2 MiB | 100 % | 1.00–1.00 |",
                "| name 1.0 | flavour (`mosquitto-plain`) | 500 (250–750) | 500 µs (250–750) | 500 µs (250–750) | 1.00 (0.50–1.50) | 500.00 µs | 2 MiB | **99.90 %** | 3.00–3.00 |",
                "| name 1.0 | flavour (`nats-plain`) | **failed** | — | — | — | — | — | — | — |",
                "",
                "- `mosquitto-plain`: 1 of 1000 acknowledged messages are not there (round 1)",
                "- `nats-plain` failed: the end of it",
                "",
            ]
        );
    }

    #[test]
    fn a_share_below_all_is_never_shown_as_all() {
        assert_eq!(percent(100.0), "100 %");
        assert_eq!(percent(99.9999), "**99.99 %**");
        assert_eq!(percent(0.0), "**0.00 %**");
    }

    #[test]
    fn what_iggy_uses_stands_apart() {
        let text = |own, iggy| both(own, iggy, |figure| format!("{figure} x"));
        assert_eq!(text(Some(1.0), Some(2.0)), "1 x + Iggy 2 x");
        assert_eq!(text(None, Some(2.0)), "Iggy 2 x");
        assert_eq!(text(Some(1.0), None), "1 x");
        assert_eq!(text(None, None), "—");
    }
}
