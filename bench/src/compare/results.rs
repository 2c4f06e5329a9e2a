//! Everything that a comparison found.
//!
//! Always holds: figures of different subjects are brought together round by round; a round in which a subject failed has no
//! figure, and none is made up for it.

use serde::Serialize;

use super::measure::{Measured, Settings};
use super::subject::{Class, Kind, Subject};
use super::workload::Workload;
use crate::machine::Machine;
use crate::rounds::Spread;

/// See the module.
#[derive(Debug, Serialize)]
pub(crate) struct Results {
    /// When it ended, in UTC.
    pub(crate) date: String,
    /// Where it ran.
    pub(crate) machine: Machine,
    /// What was asked for.
    pub(crate) settings: Settings,
    /// What was compared.
    pub(crate) subjects: Vec<Subject>,
    /// What was asked of them.
    #[serde(skip)]
    pub(crate) workloads: Vec<Workload>,
    /// Whether the user ended it before everything was measured.
    pub(crate) interrupted: bool,
    /// One for each workload, subject and round.
    pub(crate) samples: Vec<Sample>,
}

/// What one subject did in one round.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Sample {
    /// The key of the workload.
    pub(crate) workload: String,
    /// The key of the subject.
    pub(crate) subject: String,
    /// From 1; a round that was thrown away is 0.
    pub(crate) round: usize,
    /// What was measured.
    pub(crate) measured: Option<Measured>,
    /// Why nothing was.
    pub(crate) failure: Option<String>,
}

impl Results {
    /// The samples of a subject in a workload, also those that are thrown away.
    pub(crate) fn samples(&self, workload: &str, subject: &str) -> impl Iterator<Item = &Sample> {
        self.samples
            .iter()
            .filter(move |sample| sample.workload == workload && sample.subject == subject)
    }

    /// A figure of each round that counts, NaN where there is none.
    pub(crate) fn series(
        &self,
        workload: &str,
        subject: &str,
        figure: impl Fn(&Measured) -> Option<f64>,
    ) -> Vec<f64> {
        let mut series = vec![f64::NAN; self.settings.rounds];
        for sample in self.samples(workload, subject) {
            let place = sample
                .round
                .checked_sub(1)
                .and_then(|at| series.get_mut(at));
            if let (Some(place), Some(measured)) = (place, &sample.measured) {
                *place = figure(measured).unwrap_or(f64::NAN);
            }
        }
        series
    }

    /// The spread of a figure; nothing without a round that has it.
    pub(crate) fn spread(
        &self,
        workload: &str,
        subject: &str,
        figure: impl Fn(&Measured) -> Option<f64>,
    ) -> Option<Spread> {
        let series = self.series(workload, subject, figure);
        Spread::of(series.into_iter().filter(|figure| !figure.is_nan()))
    }

    /// The spread of the ratios of a figure of `subject` to that of `base`, round by round.
    pub(crate) fn ratio(
        &self,
        workload: &str,
        subject: &str,
        base: &str,
        figure: impl Fn(&Measured) -> Option<f64>,
    ) -> Option<Spread> {
        Spread::of_ratios(
            &self.series(workload, subject, &figure),
            &self.series(workload, base, &figure),
        )
    }

    /// The gateway with which subjects of a class are compared: the one before a real Iggy, if there is one.
    pub(crate) fn gateway(&self, class: Class) -> Option<&Subject> {
        [Kind::Gateway, Kind::Sandbox].into_iter().find_map(|kind| {
            self.subjects
                .iter()
                .find(|subject| subject.kind == kind && subject.class == class)
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::time::Duration;

    use crate::outcome::Latencies;

    /// What a subject did: `figure` is its rate, and in microseconds each of its latencies and its processor time.
    pub(in crate::compare) fn measured(figure: f64) -> Measured {
        let mut latencies = Latencies::new();
        latencies.record(Duration::from_secs_f64(figure / 1e6));
        Measured {
            messages: 1_000,
            seconds: 1.0,
            rate: figure,
            latency_us: latencies.summary(),
            unsent: 0,
            cpu_us: Some(figure),
            iggy_cpu_us: None,
            peak_bytes: Some(2 << 20),
            iggy_peak_bytes: None,
            bytes_per_connection: Some(figure),
            kept: None,
            restart_seconds: None,
        }
    }

    /// Results of these subjects, without a sample.
    pub(in crate::compare) fn results(rounds: usize, subjects: Vec<Subject>) -> Results {
        Results {
            date: "now".to_owned(),
            machine: Machine::here(std::path::Path::new("/")),
            settings: Settings {
                rounds,
                warm_up: 1,
                time: Duration::from_secs(1),
                rest: Duration::from_secs(1),
                messages: 1_000,
                payload: 100,
            },
            subjects,
            workloads: Vec::new(),
            interrupted: false,
            samples: Vec::new(),
        }
    }

    impl Results {
        /// Adds what a subject did in one round after the other, from the one that is thrown away on.
        pub(in crate::compare) fn add(
            &mut self,
            workload: &str,
            subject: &str,
            rounds: &[Result<Measured, &str>],
        ) {
            for (round, done) in rounds.iter().enumerate() {
                self.samples.push(Sample {
                    workload: workload.to_owned(),
                    subject: subject.to_owned(),
                    round,
                    measured: done.clone().ok(),
                    failure: done.clone().err().map(str::to_owned),
                });
            }
        }
    }

    #[test]
    fn ratios_are_of_the_same_round_and_leave_out_rounds_in_which_one_failed() {
        let mut results = results(3, Vec::new());
        let rounds = |figures: [f64; 4]| figures.map(|figure| Ok(measured(figure)));
        results.add("w", "base", &rounds([99.0, 1.0, 2.0, 4.0]));
        let mut failing = rounds([99.0, 2.0, 0.0, 4.0]);
        failing[2] = Err("broken");
        results.add("w", "other", &failing);
        let rate = |measured: &Measured| Some(measured.rate);
        let ratio = results.ratio("w", "other", "base", rate).unwrap();
        assert_eq!((ratio.min, ratio.max), (1.0, 2.0));
        let spread = results.spread("w", "other", rate).unwrap();
        assert_eq!((spread.min, spread.max), (2.0, 4.0));
        assert!(results.spread("w", "nobody", rate).is_none());
    }
}
