//! What it costs the gateway to be watched: the same load with nobody watching, with a scraper of its metrics, and with an
//! open status page.
//!
//! Always holds: in each round everything is measured once, in the same order, and nobody watches twice, so that what the
//! machine does by itself is seen beside what watching does; the processor time is that of the process with the plugin,
//! without the connecting of clients; a watcher that got no answer ends the run, and so do messages that Iggy does not hold.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use clap::{Args, value_parser};
use serde::Serialize;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::driver::{DriverError, Limit, Publishers, QoS, Workload};
use crate::machine::{self, Machine};
use crate::outcome::LatencySummary;
use crate::place::Place;
use crate::process_usage::processor_time;
use crate::rounds::{self, Spread};
use crate::stack::host::Host;
use crate::stack::server::Server;
use crate::stack::topics::Topic;
use crate::stack::{Programs, StackError};

mod watcher;

use watcher::{Seen, Watch, Watcher};

/// The Iggy topic of the load.
const TOPIC: &str = "watched";
/// Whose figures all are compared with.
const NOBODY: &str = "nobody";

/// The arguments of `bench watching`.
#[derive(Debug, Args)]
pub(crate) struct WatchingArgs {
    /// Rounds that count; one more is made before and thrown away.
    #[arg(long, default_value_t = 9, value_parser = value_parser!(u16).range(1..=1_000))]
    rounds: u16,
    /// How long each is measured in each round.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = crate::duration)]
    time: Duration,
    /// Messages that all clients together send in a second.
    #[arg(long, default_value_t = 100_000.0, value_parser = crate::rate)]
    rate: f64,
    /// Clients.
    #[arg(long, default_value_t = 50, value_parser = value_parser!(u16).range(1..=5_000))]
    clients: u16,
    /// Unacknowledged messages of each client.
    #[arg(long, default_value_t = 200, value_parser = value_parser!(u16).range(1..=60_000))]
    window: u16,
    /// Bytes of each message's payload.
    #[arg(long, default_value_t = 100, value_parser = value_parser!(u32).range(1..=1_000_000))]
    payload: u32,
    /// How often the metrics are asked for; Prometheus does it every 15 seconds or less often.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = crate::duration)]
    scrape: Duration,
    #[command(flatten)]
    pub(crate) place: Place,
}

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WatchingError {
    /// A part does not run.
    #[error(transparent)]
    Stack(#[from] StackError),
    /// The driver.
    #[error(
        "the gateway could not be measured: {source}; the end of what its host printed:\n{output}"
    )]
    Driver {
        /// What went wrong.
        source: DriverError,
        /// The end of the host's output.
        output: String,
    },
    /// The watcher.
    #[error("the {who} did not get its answers: {source}")]
    Unseen {
        /// Which watcher.
        who: &'static str,
        /// What went wrong.
        source: io::Error,
    },
    /// The host's processor time.
    #[error(
        "/proc does not say how much processor time the connector host has used; the end of what it printed:\n{0}"
    )]
    NoProcessorTime(String),
    /// Messages are missing.
    #[error("{confirmed} messages were confirmed, and Iggy holds {stored}")]
    Lost {
        /// How many were confirmed.
        confirmed: u64,
        /// How many are there.
        stored: u64,
    },
    /// No temporary folder or no threads.
    #[error("cannot prepare the run: {0}")]
    Io(#[from] io::Error),
}

/// One measurement.
#[derive(Debug, Clone, Serialize)]
struct Sample {
    /// Who watched.
    watched_by: &'static str,
    /// Messages confirmed.
    messages: u64,
    /// Messages whose time came and that were not sent, because the windows were full.
    unsent: u64,
    /// Confirmed in a second.
    rate: f64,
    /// The gateway's processor time for each, in microseconds.
    cpu_us: f64,
    /// From when a PUBLISH was to be sent to its PUBACK.
    latency_us: LatencySummary,
    /// What the watcher got.
    seen: Seen,
}

/// Everything that a run found.
#[derive(Debug, Serialize)]
pub(crate) struct Found {
    /// When it ended, in UTC.
    date: String,
    /// Where it ran.
    machine: Machine,
    /// The server and the host.
    subject: String,
    /// One list for each round.
    rounds: Vec<Vec<Sample>>,
}

/// Measures, with Iggy's data in a temporary folder below that of `args`.
///
/// # Errors
/// See [`WatchingError`].
pub(crate) fn run(args: &WatchingArgs, programs: &Programs) -> Result<Found, WatchingError> {
    let folder = std::path::absolute(&args.place.data)?;
    let mut machine = Machine::here(&folder);
    let runtime = Runtime::new()?;
    let place = tempfile::Builder::new()
        .prefix("bench-")
        .tempdir_in(&folder)?;
    let station = Station::start(args, programs, place, &runtime)?;
    let subject = |name, watch| {
        let station = &station;
        move || station.measure(name, watch)
    };
    let rounds = rounds::alternate::<_, WatchingError>(
        usize::from(args.rounds),
        &mut [
            &mut subject(NOBODY, Watch::Nobody),
            &mut subject("nobody, again", Watch::Nobody),
            &mut subject("scraper", Watch::Scraper(args.scrape)),
            &mut subject("status page", Watch::Page),
        ],
    )?;
    machine.load_after = machine::load();
    Ok(Found {
        date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        machine,
        subject: programs.describe(),
        rounds,
    })
}

/// A server and a gateway. They end in the order of the fields.
#[derive(Debug)]
struct Station<'a> {
    args: &'a WatchingArgs,
    runtime: &'a Runtime,
    host: Host,
    server: Server,
    _folder: TempDir,
}

impl<'a> Station<'a> {
    fn start(
        args: &'a WatchingArgs,
        programs: &Programs,
        folder: TempDir,
        runtime: &'a Runtime,
    ) -> Result<Self, WatchingError> {
        let topics = [Topic {
            name: TOPIC.to_owned(),
            partitions: 1,
            persisted: false,
        }];
        let place = |name: &str| -> io::Result<_> {
            let place = Path::join(folder.path(), name);
            fs::create_dir(&place)?;
            Ok(place)
        };
        let server = Server::start(programs, &place("server")?, &topics, runtime)?;
        let iggy = server.address();
        let host = Host::start(programs, &place("host")?, iggy, iggy, &topics)?;
        Ok(Self {
            args,
            runtime,
            host,
            server,
            _folder: folder,
        })
    }

    fn measure(&self, who: &'static str, watch: Watch) -> Result<Sample, WatchingError> {
        let args = self.args;
        let workload = Workload {
            address: self.host.mqtt(),
            topic: TOPIC.to_owned(),
            topics: 1,
            qos: QoS::AtLeastOnce,
            clients: args.clients,
            window: args.window,
            payload: args.payload as usize,
            rate: Some(args.rate),
            limit: Limit {
                messages: u64::MAX,
                duration: args.time,
            },
        };
        let failed = |source| WatchingError::Driver {
            source,
            output: self.host.output_end(),
        };
        let unseen = |source| WatchingError::Unseen { who, source };
        let used = || {
            processor_time(self.host.pid())
                .ok_or_else(|| WatchingError::NoProcessorTime(self.host.output_end()))
        };
        let mut publishers = Publishers::connect(&workload).map_err(failed)?;
        let watcher = Watcher::start(watch, self.host.http()).map_err(unseen)?;
        let before = used()?;
        let outcome = publishers.run(workload.limit).map_err(failed)?;
        let processor = used()?.saturating_sub(before);
        let seen = watcher.end().map_err(unseen)?;
        if watch != Watch::Nobody && seen.answers == 0 {
            return Err(unseen(io::ErrorKind::UnexpectedEof.into()));
        }
        publishers.disconnect();
        let stored = self.server.empty(TOPIC, self.runtime)?;
        if stored < outcome.messages {
            return Err(WatchingError::Lost {
                confirmed: outcome.messages,
                stored,
            });
        }
        let sample = Sample {
            watched_by: who,
            messages: outcome.messages,
            unsent: outcome.unsent,
            rate: outcome.rate(),
            cpu_us: processor.as_secs_f64() * 1e6 / outcome.messages.max(1) as f64,
            latency_us: outcome.latencies.summary(),
            seen,
        };
        eprintln!(
            "{who}: {:.0}/s, {:.3} µs of processor each, p50 {:.0} µs, p99 {:.0} µs, {} answers",
            sample.rate, sample.cpu_us, sample.latency_us.p50, sample.latency_us.p99, seen.answers,
        );
        Ok(sample)
    }
}

/// A table: for each watcher the middle of its figures, and of their ratios to nobody's in the same round.
pub(crate) fn markdown(found: &Found) -> String {
    let mut table = "| watched by | messages/s | processor per message | ratio | p50 | ratio | p99 | ratio | answers of |\n\
         |---|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    let watchers = found.rounds.first().map_or(0, Vec::len);
    for at in 0..watchers {
        let of = |at: usize, figure: fn(&Sample) -> f64| -> Vec<f64> {
            let sample = |round: &Vec<Sample>| round.get(at).map(figure);
            found.rounds.iter().filter_map(sample).collect()
        };
        let middle = |figure| Spread::of(of(at, figure)).map_or(0.0, |spread| spread.median);
        let ratio = |figure| match Spread::of_ratios(&of(at, figure), &of(0, figure)) {
            Some(Spread { min, median, max }) if at > 0 => {
                format!("{median:.2} ({min:.2}–{max:.2})")
            }
            _ => "—".to_owned(),
        };
        let cpu = |sample: &Sample| sample.cpu_us;
        let p50 = |sample: &Sample| sample.latency_us.p50;
        let p99 = |sample: &Sample| sample.latency_us.p99;
        let answer = |sample: &Sample| match sample.seen.answers {
            0 => 0.0,
            answers => sample.seen.bytes as f64 / answers as f64 / 1_024.0,
        };
        let who = found.rounds.first().and_then(|round| round.get(at));
        let answers = match middle(answer) {
            size if size > 0.0 => format!("{size:.1} KiB"),
            _ => "—".to_owned(),
        };
        table += &format!(
            "| {} | {} | {:.2} µs | {} | {:.0} µs | {} | {:.0} µs | {} | {answers} |\n",
            who.map_or("", |sample| sample.watched_by),
            crate::report::whole(middle(|sample| sample.rate)),
            middle(cpu),
            ratio(cpu),
            middle(p50),
            ratio(p50),
            middle(p99),
            ratio(p99),
        );
    }
    format!(
        "{}\n\n{table}\n{}",
        found.subject,
        found.machine.line(&found.date)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Latencies;

    fn sample(watched_by: &'static str, cpu_us: f64, answers: u64) -> Sample {
        let mut latencies = Latencies::new();
        latencies.record(Duration::from_micros(500));
        Sample {
            watched_by,
            messages: 1_000,
            unsent: 0,
            rate: 100_000.0,
            cpu_us,
            latency_us: latencies.summary(),
            seen: Seen {
                answers,
                bytes: answers * 2_048,
            },
        }
    }

    #[test]
    fn ratios_are_to_nobody_in_the_same_round() {
        let found = Found {
            date: "2026-12-01T00:00:00Z".to_owned(),
            machine: Machine::here(Path::new("/")),
            subject: "sandbox".to_owned(),
            rounds: vec![
                vec![sample(NOBODY, 1.0, 0), sample("scraper", 1.5, 3)],
                vec![sample(NOBODY, 2.0, 0), sample("scraper", 2.0, 3)],
            ],
        };
        let table = markdown(&found);
        let rows: Vec<&str> = table
            .lines()
            .filter(|line| line.starts_with("| "))
            .collect();
        assert_eq!(
            rows.get(1..).unwrap(),
            [
                "| nobody | 100,000 | 1.50 µs | — | 500 µs | — | 500 µs | — | — |",
                "| scraper | 100,000 | 1.75 µs | 1.25 (1.00–1.50) | 500 µs | 1.00 (1.00–1.00) | 500 µs | 1.00 (1.00–1.00) | 2.0 KiB |",
            ]
        );
    }
}
