//! The comparison with what people would use instead.
//!
//! Always holds: one workload after the other; within it, every subject is measured once in each round, in the same order,
//! started anew and alone on the machine; a subject that fails a workload is left out of the rest of it, and nothing else
//! stops for it. What was measured until the user interrupts is reported.

use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use clap::{Args, value_parser};
use tokio::runtime::Runtime;

mod goals;
mod measure;
mod programs;
mod results;
mod running;
mod subject;
mod subjects;
mod table;
mod workload;

use crate::driver;
use crate::machine::{self, Machine};
use crate::place::Place;
use crate::stack::Programs;
use measure::{Settings, Unmeasured, measure};
use results::{Results, Sample};
use subject::{Kind, Subject};
use workload::{Workload, is_chosen};

/// Files that the driver and a subject need besides one for each connection.
const OTHER_FILES: u64 = 200;

/// The command line of the comparison.
#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// Rounds that count; one more is made before and thrown away.
    #[arg(long, default_value_t = 5, value_parser = value_parser!(u16).range(1..=1_000))]
    rounds: u16,
    /// Subjects, separated by commas: `gateway`, `sandbox`, `sdk`, `mosquitto`, `nats`, `rabbitmq`, `rumqttd`, or one of
    /// their flavours, such as `nats-durable`. All that there are unless some are named.
    #[arg(long, value_delimiter = ',', value_name = "SUBJECT")]
    only: Vec<String>,
    /// Workloads, separated by commas: `publish`, `deliver`, `idle`, `churn`, `crash`, or one of them, such as
    /// `publish-50x20`. All unless some are named.
    #[arg(long, value_delimiter = ',', value_name = "WORKLOAD")]
    workloads: Vec<String>,
    /// One round of half a second each, to see whether everything runs. Its figures mean little.
    #[arg(long)]
    quick: bool,
    /// How long each measurement lasts.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = crate::duration)]
    time: Duration,
    /// A measurement ends early after so many messages.
    #[arg(long, default_value_t = 400_000, value_parser = value_parser!(u64).range(1..))]
    messages: u64,
    /// Bytes of each message's payload.
    #[arg(long, default_value_t = 100, value_parser = value_parser!(u32).range(16..=200_000))]
    payload: u32,
    #[command(flatten)]
    pub(crate) place: Place,
}

/// Why a comparison failed as a whole.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CompareError {
    /// Nothing is left of `--only` or `--workloads`.
    #[error("no {what} is called {}; there are: {}", names.join(" or "), there.join(", "))]
    Nothing {
        /// Subject or workload.
        what: &'static str,
        /// What was asked for.
        names: Vec<String>,
        /// What there is.
        there: Vec<String>,
    },
    /// No temporary folder or no threads.
    #[error("cannot prepare the run: {0}")]
    Io(#[from] io::Error),
}

/// Compares what was asked for, with the programs of this workspace and those that the machine has.
///
/// # Errors
/// See [`CompareError`].
pub(crate) fn run(args: &CompareArgs, programs: &Programs) -> Result<Results, CompareError> {
    let settings = Settings {
        rounds: if args.quick { 1 } else { args.rounds.into() },
        warm_up: usize::from(!args.quick),
        time: match args.quick {
            true => Duration::from_millis(500).min(args.time),
            false => args.time,
        },
        rest: Duration::from_secs(if args.quick { 1 } else { 3 }),
        messages: args.messages,
        payload: args.payload as usize,
    };
    let (subjects, missing) = subject::available(programs);
    for line in missing {
        eprintln!("{line}");
    }
    let subjects = choose("subject", subjects, |it| it.key.clone(), &args.only)?;
    let workloads = choose("workload", Workload::all(), Workload::key, &args.workloads)?;
    let folder = std::path::absolute(&args.place.data)?;
    let runtime = Runtime::new()?;
    let place = tempfile::Builder::new()
        .prefix("bench-")
        .tempdir_in(&folder)?;
    let mut run = Run {
        place: place.path(),
        runtime: &runtime,
        files: driver::raise_limit(),
        results: Results {
            date: String::new(),
            machine: Machine::here(&folder),
            settings,
            subjects,
            workloads: workloads.clone(),
            interrupted: false,
            samples: Vec::new(),
        },
    };
    for workload in &workloads {
        if !run.workload(workload) {
            run.results.interrupted = true;
            break;
        }
    }
    let mut results = run.results;
    results.machine.load_after = machine::load();
    results.date = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    Ok(results)
}

/// What of `all` is named.
fn choose<T>(
    what: &'static str,
    all: Vec<T>,
    key: impl Fn(&T) -> String,
    names: &[String],
) -> Result<Vec<T>, CompareError> {
    let there: Vec<String> = all.iter().map(&key).collect();
    let unknown: Vec<String> = names
        .iter()
        .filter(|name| {
            let name = std::slice::from_ref(*name);
            !there.iter().any(|key| is_chosen(key, name))
        })
        .cloned()
        .collect();
    if !unknown.is_empty() {
        return Err(CompareError::Nothing {
            what,
            names: unknown,
            there,
        });
    }
    Ok(all
        .into_iter()
        .filter(|one| is_chosen(&key(one), names))
        .collect())
}

struct Run<'a> {
    place: &'a Path,
    runtime: &'a Runtime,
    /// How many files a process may have open.
    files: Option<u64>,
    results: Results,
}

impl Run<'_> {
    /// Measures all subjects in all rounds; says whether the user let it.
    fn workload(&mut self, workload: &Workload) -> bool {
        let subjects: Vec<Subject> = self
            .results
            .subjects
            .iter()
            .filter(|subject| subject.kind != Kind::Sdk || workload.is_for_sdk())
            .cloned()
            .collect();
        let mut failed = vec![false; subjects.len()];
        let (warm_up, rounds) = {
            let settings = &self.results.settings;
            (settings.warm_up, settings.rounds)
        };
        // Rounds that are thrown away have the number 0.
        for round in (0..warm_up).map(|_| 0).chain(1..=rounds) {
            for (subject, failed) in subjects.iter().zip(&mut failed) {
                if *failed {
                    continue;
                }
                match self.measure(workload, subject, round) {
                    Some(has_failed) => *failed = has_failed,
                    None => return false,
                }
            }
        }
        true
    }

    /// Measures once; says whether it failed, and nothing when the user interrupts.
    fn measure(&mut self, workload: &Workload, subject: &Subject, round: usize) -> Option<bool> {
        let key = workload.key();
        let folder = self.place.join(format!("{key}-{}", subject.key));
        let done = match self.too_few_files(workload) {
            Some(reason) => Err(reason),
            None => {
                let settings = &self.results.settings;
                match measure(workload, subject, settings, &folder, self.runtime) {
                    Ok(measured) => Ok(measured),
                    Err(Unmeasured::Interrupted) => return None,
                    Err(Unmeasured::Failed(reason)) => Err(reason),
                }
            }
        };
        // The data of one measurement is not to fill the disk for the next.
        let _ = std::fs::remove_dir_all(&folder);
        match &done {
            Ok(found) => eprintln!(
                "{key}, {}, round {round}: {:.0}/s, p50 {:.0} µs, p99 {:.0} µs{}",
                subject.key,
                found.rate,
                found.latency_us.p50,
                found.latency_us.p99,
                found
                    .complaint()
                    .map_or(String::new(), |text| format!("; {text}")),
            ),
            Err(reason) => eprintln!("{key}, {}, round {round}: failed: {reason}", subject.key),
        }
        let has_failed = done.is_err();
        self.results.samples.push(Sample {
            workload: key,
            subject: subject.key.clone(),
            round,
            failure: done.as_ref().err().cloned(),
            measured: done.ok(),
        });
        Some(has_failed)
    }

    /// Why the limit of open files does not allow a workload.
    fn too_few_files(&self, workload: &Workload) -> Option<String> {
        let Workload::Idle { connections } = workload else {
            return None;
        };
        let needed = *connections as u64 + OTHER_FILES;
        let limit = self.files.filter(|limit| *limit < needed)?;
        Some(format!(
            "a process may have {limit} files open here, and {needed} are needed; raise the hard limit (`ulimit -Hn`)"
        ))
    }
}

/// Everything as one Markdown document.
pub(crate) fn markdown(results: &Results) -> String {
    let mut out = String::new();
    if results.interrupted {
        out += "**Interrupted**: not everything was measured.\n\n";
    }
    out += &table::markdown(results);
    out += &goals::markdown(&goals::judge(results));
    let line = results.machine.line(&results.date);
    out += &format!("\n{line}; {} rounds\n", results.settings.rounds);
    out
}

/// Everything, for programs.
pub(crate) fn json(results: &Results) -> serde_json::Value {
    serde_json::json!({ "results": results, "goals": goals::judge(results) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_nothing_is_called_are_an_error_that_says_what_there_is() {
        let all = || vec!["a-plain", "a-durable", "b-plain"];
        let chosen = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            choose("subject", all(), |key| (*key).to_owned(), &names)
        };
        assert_eq!(chosen(&[]).unwrap(), all());
        assert_eq!(
            chosen(&["b", "a-durable"]).unwrap(),
            ["a-durable", "b-plain"]
        );
        let error = chosen(&["a", "c"]).unwrap_err().to_string();
        assert_eq!(
            error,
            "no subject is called c; there are: a-plain, a-durable, b-plain"
        );
    }
}
