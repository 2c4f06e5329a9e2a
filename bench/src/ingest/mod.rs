//! The comparison of ingest: a PUBACK of the gateway against an append of Iggy's own SDK, and the size of the gateway's
//! appends under load.
//!
//! Always holds: gateway and SDK take turns on the same server and append to the same topic; after each measurement the
//! server is asked how many messages the topic holds, and fewer than were confirmed end the run, as they do when the
//! counting proxy saw fewer.

use std::io;
use std::path::Path;
use std::time::SystemTime;

use serde::Serialize;
use tokio::runtime::Runtime;

use crate::append_counter::{AppendCount, CounterError};
use crate::driver::DriverError;
use crate::machine::{self, Machine};
use crate::outcome::Outcome;
use crate::report::{Figure, Report, Sample, Series, Unit, Wanted};
use crate::rounds;
use crate::sdk::SdkError;
use crate::stack::{Programs, StackError};

mod deployment;

use deployment::{DURABILITIES, Deployment, LATENCY, LOAD, Plan};

/// What the ratio of PUBACK to append may be at p50.
const LATENCY_BOUND: f64 = 2.0;
/// What the average append under load must hold more than.
const BATCH_BOUND: f64 = 20.0;

const GATEWAY: &str = "gateway";
const COUNTED: &str = "gateway, counted";
const SDK: &str = "sdk";

/// What is measured, and for how long.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Settings {
    /// Rounds that count.
    pub(crate) rounds: usize,
    /// How long each subject is measured in each round, in seconds.
    pub(crate) seconds: f64,
    /// After so many messages a measurement ends early.
    pub(crate) messages: u64,
    /// The payload of every message, in bytes.
    pub(crate) payload: usize,
    /// The clients of the workload `load`.
    pub(crate) clients: u16,
    /// The window of each of them.
    pub(crate) window: u16,
    /// The partitions of the topic of the workload `load`.
    pub(crate) partitions: u32,
    /// The messages of one append with which the SDK is compared in the workload `load`.
    pub(crate) sdk_batch: usize,
}

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IngestError {
    /// A part does not run.
    #[error(transparent)]
    Stack(#[from] StackError),
    /// The load driver.
    #[error(
        "the gateway could not be measured: {source}; the end of what its host printed:\n{output}"
    )]
    Driver {
        /// What went wrong.
        source: DriverError,
        /// The end of the host's output.
        output: String,
    },
    /// The SDK.
    #[error(transparent)]
    Sdk(#[from] SdkError),
    /// The counting proxy.
    #[error(transparent)]
    Counter(#[from] CounterError),
    /// Messages are missing.
    #[error("{confirmed} messages of the topic {topic} were confirmed, and Iggy holds {stored}")]
    Lost {
        /// The topic.
        topic: String,
        /// How many were confirmed.
        confirmed: u64,
        /// How many are there.
        stored: u64,
    },
    /// The proxy saw fewer messages than were confirmed.
    #[error("{confirmed} messages were confirmed, and the counting proxy saw {counted} of them")]
    Uncounted {
        /// How many were confirmed.
        confirmed: u64,
        /// How many were counted.
        counted: u64,
    },
    /// No temporary folder or no threads.
    #[error("cannot prepare the run: {0}")]
    Io(#[from] io::Error),
}

/// Measures one deployment after the other, with their data in temporary folders below `folder`.
///
/// # Errors
/// See [`IngestError`].
pub(crate) fn run(
    settings: &Settings,
    deployments: &[Programs],
    folder: &Path,
) -> Result<Report<Settings>, IngestError> {
    let folder = std::path::absolute(folder)?;
    let mut machine = Machine::here(&folder);
    let runtime = Runtime::new()?;
    let mut samples = Vec::new();
    let mut figures = Vec::new();
    for programs in deployments {
        let place = tempfile::Builder::new()
            .prefix("bench-")
            .tempdir_in(&folder)?;
        eprintln!("{}: starting", programs.describe());
        let deployment = Deployment::start(settings, programs, place, &runtime)?;
        for durability in DURABILITIES {
            let rows = latency(settings, &deployment, durability)?;
            figures.extend(latency_figures(deployment.name(), durability, &rows));
            samples.extend(rows);
            let rows = load(settings, &deployment, durability)?;
            figures.extend(load_figures(settings, deployment.name(), durability, &rows));
            samples.extend(rows);
        }
    }
    machine.load_after = machine::load();
    Ok(Report {
        date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        machine,
        settings: settings.clone(),
        samples,
        figures,
    })
}

/// One client that waits for each PUBACK, and the SDK with one append at a time.
fn latency(
    settings: &Settings,
    deployment: &Deployment<'_>,
    durability: &'static str,
) -> Result<Vec<Sample>, IngestError> {
    let plan = Plan {
        workload: LATENCY,
        durability,
    };
    let take = |subject, outcome| sample(deployment.name(), plan, subject, &outcome, None);
    let rows = rounds::alternate::<_, IngestError>(
        settings.rounds,
        &mut [
            &mut || Ok(take(GATEWAY, deployment.publish_one(plan)?)),
            &mut || Ok(take(SDK, deployment.append(plan, 1)?)),
        ],
    )?;
    Ok(numbered(rows))
}

/// Many clients with a window, and the SDK with batches.
fn load(
    settings: &Settings,
    deployment: &Deployment<'_>,
    durability: &'static str,
) -> Result<Vec<Sample>, IngestError> {
    let plan = Plan {
        workload: LOAD,
        durability,
    };
    let take =
        |subject, outcome, appends| sample(deployment.name(), plan, subject, &outcome, appends);
    let rows = rounds::alternate::<_, IngestError>(
        settings.rounds,
        &mut [
            &mut || Ok(take(GATEWAY, deployment.publish_many(plan)?, None)),
            &mut || {
                let outcome = deployment.append(plan, settings.sdk_batch)?;
                Ok(take(SDK, outcome, None))
            },
            &mut || {
                let (outcome, appends) = deployment.publish_counted(plan)?;
                Ok(take(COUNTED, outcome, Some(appends)))
            },
        ],
    )?;
    Ok(numbered(rows))
}

fn sample(
    iggy: &str,
    plan: Plan,
    subject: &'static str,
    outcome: &Outcome,
    appends: Option<AppendCount>,
) -> Sample {
    let latency_us = outcome.latencies.summary();
    eprintln!(
        "{iggy}, {}, {}, {subject}: {:.0} messages/s, p50 {:.0} µs, p99 {:.0} µs",
        plan.workload,
        plan.durability,
        outcome.rate(),
        latency_us.p50,
        latency_us.p99,
    );
    Sample {
        iggy: iggy.to_owned(),
        durability: plan.durability,
        workload: plan.workload,
        subject,
        round: 0,
        messages: outcome.messages,
        seconds: outcome.elapsed.as_secs_f64(),
        rate: outcome.rate(),
        latency_us,
        appends,
    }
}

fn numbered(rows: Vec<Vec<Sample>>) -> Vec<Sample> {
    (1..)
        .zip(rows)
        .flat_map(|(round, row)| {
            row.into_iter()
                .map(move |sample| Sample { round, ..sample })
        })
        .collect()
}

/// The figures of one subject, round by round.
fn of(samples: &[Sample], subject: &str, figure: impl Fn(&Sample) -> Option<f64>) -> Vec<f64> {
    samples
        .iter()
        .filter(|sample| sample.subject == subject)
        .filter_map(figure)
        .collect()
}

fn latency_figures(iggy: &str, durability: &'static str, samples: &[Sample]) -> Vec<Figure> {
    type Percentile = fn(&Sample) -> Option<f64>;
    let percentiles: [(&str, Percentile, Wanted); 2] = [
        (
            "p50",
            |sample| Some(sample.latency_us.p50),
            Wanted::RatioAtMost(LATENCY_BOUND),
        ),
        ("p99", |sample| Some(sample.latency_us.p99), Wanted::Nothing),
    ];
    percentiles
        .into_iter()
        .filter_map(|(name, percentile, wanted)| {
            let series = Series {
                gateway: of(samples, GATEWAY, percentile),
                sdk: of(samples, SDK, percentile),
            };
            let what = format!("1 client, window 1: {name}");
            Figure::new(iggy, durability, what, Unit::Micros, &series, wanted)
        })
        .collect()
}

fn load_figures(
    settings: &Settings,
    iggy: &str,
    durability: &'static str,
    samples: &[Sample],
) -> Vec<Figure> {
    let workload = format!("{} clients × window {}", settings.clients, settings.window);
    let rate = Series {
        gateway: of(samples, GATEWAY, |sample| Some(sample.rate)),
        sdk: of(samples, SDK, |sample| Some(sample.rate)),
    };
    let batch = Series {
        gateway: of(samples, COUNTED, |sample| sample.appends?.average()),
        sdk: Vec::new(),
    };
    [
        Figure::new(
            iggy,
            durability,
            format!(
                "{workload}: messages/s (SDK: batches of {})",
                settings.sdk_batch
            ),
            Unit::PerSecond,
            &rate,
            Wanted::Nothing,
        ),
        Figure::new(
            iggy,
            durability,
            format!("{workload}: messages per append"),
            Unit::Messages,
            &batch,
            Wanted::FigureAbove(BATCH_BOUND),
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}
