//! How the cost of a message grows: with connections, rules, topics, partitions and subscribers.
//!
//! Always holds: in each round every point of a dimension is measured once, in the same order, so that a machine which
//! becomes slower or faster meets all of them, and growth is formed within a round; the processor time is that of the
//! process with the plugin, without the connecting of clients; after each measurement Iggy is asked how many messages it
//! holds, and fewer than were confirmed end the run.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::{Args, value_parser};
use serde::Serialize;
use serde_json::json;
use tokio::runtime::Runtime;

use crate::driver::DriverError;
use crate::machine::{self, Machine};
use crate::place::Place;
use crate::rounds;
use crate::stack::{Programs, StackError};

mod deployment;
mod point;
mod report;
mod svg;

use deployment::Deployment;
use point::{Dimension, OnTheWay, Point};
use report::Found;

/// The arguments of `bench growth`.
#[derive(Debug, Args)]
pub(crate) struct GrowthArgs {
    /// What grows, separated by commas; everything unless something is named.
    #[arg(long, value_delimiter = ',', value_enum)]
    only: Vec<Dimension>,
    /// Rounds that count; one more is made before and thrown away.
    #[arg(long, default_value_t = 7, value_parser = value_parser!(u16).range(1..=1_000))]
    rounds: u16,
    /// How long each point is measured in each round.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = crate::duration)]
    time: Duration,
    /// A measurement ends early after so many published messages.
    #[arg(long, default_value_t = 2_000_000, value_parser = value_parser!(u64).range(1..))]
    messages: u64,
    /// Bytes of each message's payload.
    #[arg(long, default_value_t = 100, value_parser = value_parser!(u32).range(16..=200_000))]
    payload: u32,
    /// Messages of all publishers together that are on their way at a time.
    #[arg(long, default_value_t = 1_000, value_parser = value_parser!(u16).range(1..=60_000))]
    on_the_way: u16,
    /// Messages to subscribers that are on their way at a time.
    #[arg(long, default_value_t = 64, value_parser = value_parser!(u16).range(1..=10_000))]
    window: u16,
    /// Numbers of publishers.
    #[arg(long, value_delimiter = ',', default_value = "1,10,50,200,1000", value_parser = value_parser!(u16).range(1..=10_000))]
    connections: Vec<u16>,
    /// Numbers of rules.
    #[arg(long, value_delimiter = ',', default_value = "10,100,1000", value_parser = value_parser!(u16).range(i64::from(point::MATCHING_RULES)..=10_000))]
    rules: Vec<u16>,
    /// Numbers of MQTT topics, each of which is published to.
    #[arg(long, value_delimiter = ',', default_value = "100,1000,10000", value_parser = value_parser!(u16).range(50..=50_000))]
    topics: Vec<u16>,
    /// Numbers of partitions.
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8,16", value_parser = value_parser!(u16).range(1..=64))]
    partitions: Vec<u16>,
    /// Numbers of subscribers.
    #[arg(long, value_delimiter = ',', default_value = "1,10,50,200,1000", value_parser = value_parser!(u16).range(1..=10_000))]
    subscribers: Vec<u16>,
    #[command(flatten)]
    pub(crate) place: Place,
    /// Where a curve for each dimension is drawn, as growth-DIMENSION.svg.
    #[arg(long, value_name = "FOLDER")]
    svg: Option<PathBuf>,
}

/// What is measured, and for how long.
#[derive(Debug, Clone, Serialize)]
struct Settings {
    /// Rounds that count.
    rounds: usize,
    /// How long each point is measured in each round, in seconds.
    seconds: f64,
    /// After so many published messages a measurement ends early.
    messages: u64,
    /// The payload of every message, in bytes.
    payload: usize,
    /// How much is on the way at a time.
    on_the_way: OnTheWay,
    /// All points, those of one dimension together.
    points: Vec<Vec<Point>>,
}

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GrowthError {
    /// A part does not run.
    #[error(transparent)]
    Stack(#[from] StackError),
    /// The driver.
    #[error("{point} could not be measured: {source}; the end of what its host printed:\n{output}")]
    Driver {
        /// Of which point.
        point: String,
        /// What went wrong.
        source: DriverError,
        /// The end of the host's output.
        output: String,
    },
    /// The host's processor time.
    #[error(
        "/proc does not say how much processor time the connector host of {point} has used; does it still run? The end of what it printed:\n{output}"
    )]
    NoProcessorTime {
        /// Of which point.
        point: String,
        /// The end of the host's output.
        output: String,
    },
    /// Messages are missing.
    #[error("{confirmed} messages of {point} were confirmed, and Iggy holds {stored}")]
    Lost {
        /// Of which point.
        point: String,
        /// How many were confirmed.
        confirmed: u64,
        /// How many are there.
        stored: u64,
    },
    /// No temporary folder or no threads.
    #[error("cannot prepare the run: {0}")]
    Io(#[from] io::Error),
    /// A file of what was found.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// A curve.
    #[error("cannot draw the curve of {dimension}: {reason}")]
    Draw {
        /// Of what.
        dimension: &'static str,
        /// The library's reason.
        reason: String,
    },
}

/// Measures, prints the tables, and writes what was found to `--json` or else to `json`, and the curves to `--svg`.
///
/// # Errors
/// See [`GrowthError`].
pub(crate) fn execute(args: &GrowthArgs, programs: &Programs) -> Result<(), GrowthError> {
    let settings = settings(args);
    if let Some(folder) = &args.svg {
        // Before minutes are spent.
        fs::create_dir_all(folder).map_err(|source| GrowthError::Write {
            path: folder.clone(),
            source,
        })?;
    }
    let found = run(&settings, programs, &args.place.data)?;
    let json = args.place.json("growth");
    write(&json, &format!("{:#}\n", json!(found)))?;
    for growth in &found.dimensions {
        let Some(folder) = &args.svg else { break };
        let dimension = growth.dimension.name();
        let picture = svg::draw(&report::picture(growth));
        let picture = picture.map_err(|reason| GrowthError::Draw { dimension, reason })?;
        let path = folder.join(format!("growth-{dimension}.svg"));
        write(&path, &picture)?;
        eprintln!("curve: {}", path.display());
    }
    println!("{}", report::markdown(&found));
    eprintln!("all samples: {}", json.display());
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), GrowthError> {
    fs::write(path, text).map_err(|source| GrowthError::Write {
        path: path.to_owned(),
        source,
    })
}

fn settings(args: &GrowthArgs) -> Settings {
    let points = [
        (Dimension::Connections, &args.connections),
        (Dimension::Rules, &args.rules),
        (Dimension::Topics, &args.topics),
        (Dimension::Partitions, &args.partitions),
        (Dimension::Subscribers, &args.subscribers),
    ]
    .into_iter()
    .filter(|(dimension, _)| args.only.is_empty() || args.only.contains(dimension))
    .map(|(dimension, values)| {
        let mut values = values.clone();
        values.sort_unstable();
        // Each point has a topic of its own.
        values.dedup();
        let point = |value| Point { dimension, value };
        values.into_iter().map(point).collect()
    })
    .collect();
    Settings {
        rounds: usize::from(args.rounds),
        seconds: args.time.as_secs_f64(),
        messages: args.messages,
        payload: args.payload as usize,
        on_the_way: OnTheWay {
            published: args.on_the_way,
            delivered: args.window,
        },
        points,
    }
}

/// Measures one dimension after the other, with Iggy's data in a temporary folder below `folder`.
fn run(settings: &Settings, programs: &Programs, folder: &Path) -> Result<Found, GrowthError> {
    let folder = std::path::absolute(folder)?;
    let mut machine = Machine::here(&folder);
    let runtime = Runtime::new()?;
    let mut dimensions = Vec::new();
    for points in &settings.points {
        let Some(first) = points.first() else {
            continue;
        };
        eprintln!("{}: {}", programs.describe(), first.dimension.name());
        let place = tempfile::Builder::new()
            .prefix("bench-")
            .tempdir_in(&folder)?;
        let deployment = Deployment::start(settings, programs, points, place, &runtime)?;
        let mut subjects: Vec<_> = (0..points.len())
            .map(|at| {
                let deployment = &deployment;
                move || deployment.measure(at)
            })
            .collect();
        let mut turns: Vec<&mut dyn FnMut() -> _> = Vec::new();
        for subject in &mut subjects {
            turns.push(subject);
        }
        let rows = rounds::alternate::<_, GrowthError>(settings.rounds, &mut turns)?;
        dimensions.extend(report::Growth::new(rows));
    }
    machine.load_after = machine::load();
    Ok(Found {
        date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        machine,
        subject: programs.describe(),
        settings: settings.clone(),
        dimensions,
    })
}
