//! Measures the MQTT gateway.
//!
//! `bench ingest` starts a server and the gateway and compares the gateway with Iggy's own SDK; `bench fan-out` measures what
//! one message to many subscribers costs, here or with another server; `bench growth` measures how that grows with
//! connections, rules, topics, partitions and subscribers; `bench watching` measures what scraping and an open status page
//! cost; `bench compare` puts the gateway beside other brokers; `bench publish` is the load driver alone, for any MQTT 3.1.1
//! server. How and why: `docs/performance.md`.
//!
//! Always holds: a run is bounded in time and in messages, uses loopback only unless it is told an address, and ends what it
//! started. What a run found goes to standard output, what happens meanwhile to standard error.

use std::env;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, value_parser};
use serde_json::{Value, json};

mod append_counter;
mod compare;
mod driver;
mod fan_out;
mod growth;
mod ingest;
mod interrupt;
mod machine;
mod outcome;
mod place;
mod process_usage;
mod report;
mod rounds;
mod sdk;
mod stack;
mod watching;

use driver::{Limit, QoS, Workload};
use place::Place;
use stack::Programs;

#[derive(Debug, Parser)]
#[command(about = "Measures the MQTT gateway", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Compares the gateway's PUBACK with an append of Iggy's own SDK, and measures the gateway under load.
    ///
    /// In the sandbox, and with IGGY_SERVER_BIN (and IGGY_CONNECTORS_BIN) also with a real Iggy server (and the official
    /// connectors runtime).
    Ingest(IngestArgs),
    /// Measures one publisher and many subscribers, with a gateway that is started here or with another MQTT server.
    FanOut(FanOutArgs),
    /// Measures how the cost of a message grows with connections, rules, topics, partitions and subscribers.
    ///
    /// In the sandbox, or with IGGY_SERVER_BIN (and IGGY_CONNECTORS_BIN) on a real Iggy server (and in the official
    /// connectors runtime).
    Growth(growth::GrowthArgs),
    /// Measures what a scraper of the metrics and an open status page cost the gateway under load.
    ///
    /// In the sandbox, or with IGGY_SERVER_BIN (and IGGY_CONNECTORS_BIN) on a real Iggy server (and in the official
    /// connectors runtime).
    Watching(watching::WatchingArgs),
    /// Compares the gateway with other MQTT brokers, those that this machine has, and with Iggy's own SDK.
    Compare(compare::CompareArgs),
    /// Publishes to an MQTT server and prints what it measured as JSON.
    Publish(PublishArgs),
}

#[derive(Debug, Args)]
struct IngestArgs {
    /// Rounds that count; one more is made before and thrown away.
    #[arg(long, default_value_t = 15, value_parser = value_parser!(u16).range(1..=1_000))]
    rounds: u16,
    /// How long each subject is measured in each round.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    time: Duration,
    /// A measurement ends early after so many messages.
    #[arg(long, default_value_t = 200_000, value_parser = value_parser!(u64).range(1..))]
    messages: u64,
    /// Bytes of each message's payload.
    #[arg(long, default_value_t = 100, value_parser = value_parser!(u32).range(1..=1_000_000))]
    payload: u32,
    /// Clients under load.
    #[arg(long, default_value_t = 50, value_parser = value_parser!(u16).range(1..=5_000))]
    clients: u16,
    /// Unacknowledged messages of each client under load.
    #[arg(long, default_value_t = 20, value_parser = value_parser!(u16).range(1..=60_000))]
    window: u16,
    /// Partitions of the topic under load.
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u32).range(1..=64))]
    partitions: u32,
    /// Messages in each append of the SDK that the gateway under load is compared with.
    #[arg(long, default_value_t = 100, value_parser = value_parser!(u16).range(1..=10_000))]
    sdk_batch: u16,
    /// Which Iggy: both unless one is named.
    #[arg(long, value_enum)]
    only: Option<Only>,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Only {
    /// The sandbox's server and host.
    Sandbox,
    /// The server of IGGY_SERVER_BIN.
    Iggy,
}

#[derive(Debug, Args)]
struct FanOutArgs {
    /// How many subscribers, separated by commas; one measurement for each, QoS and window.
    #[arg(long, value_delimiter = ',', default_value = "1,50,200,1000", value_parser = value_parser!(u16).range(1..=10_000))]
    subscribers: Vec<u16>,
    /// Repeats each measurement with so many more subscribers, which never read.
    #[arg(long, default_value_t = 0, value_parser = value_parser!(u16).range(..=1_000))]
    stuck: u16,
    /// How long each measurement publishes.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration)]
    time: Duration,
    /// A measurement ends early after so many published messages.
    #[arg(long, default_value_t = 100_000, value_parser = value_parser!(u64).range(1..))]
    messages: u64,
    /// Bytes of each message's payload.
    #[arg(long, default_value_t = 100, value_parser = value_parser!(u32).range(16..=200_000))]
    payload: u32,
    /// Messages that are on their way at a time under load; without load it is one.
    #[arg(long, default_value_t = 64, value_parser = value_parser!(u16).range(1..=10_000))]
    window: u16,
    /// Messages of the comparison with append and poll of Iggy's SDK.
    #[arg(long, default_value_t = 500, value_parser = value_parser!(u32).range(1..))]
    compared: u32,
    /// Measures the MQTT server at this address instead of starting a gateway.
    #[arg(long, value_name = "HOST:PORT")]
    address: Option<SocketAddr>,
    /// The process of that server, for its processor time and memory.
    #[arg(long, requires = "address")]
    pid: Option<u32>,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, Args)]
struct PublishArgs {
    /// The MQTT server.
    #[arg(long, default_value = "127.0.0.1:1883")]
    address: SocketAddr,
    /// Client N publishes to TOPIC/N.
    #[arg(long, default_value = "bench", value_parser = topic)]
    topic: String,
    /// The quality of service. With 0 a PINGREQ follows each window, and its PINGRESP confirms it.
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u8).range(0..=1))]
    qos: u8,
    /// Clients.
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u16).range(1..=20_000))]
    clients: u16,
    /// Unconfirmed messages of each client.
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u16).range(1..=60_000))]
    window: u16,
    /// Bytes of each message's payload.
    #[arg(long, default_value_t = 100, value_parser = value_parser!(u32).range(..=1_000_000))]
    payload: u32,
    /// Messages that all clients together send in a second. Latencies then count from when a message was to be sent.
    #[arg(long, value_parser = rate)]
    rate: Option<f64>,
    /// Ends after so many messages of all clients together ...
    #[arg(long, default_value_t = 1_000_000)]
    messages: u64,
    /// ... or after so long, whichever comes first.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    time: Duration,
}

/// Why the program ends with an error.
#[derive(Debug, thiserror::Error)]
enum Failure {
    /// A program or the plugin is missing.
    #[error(
        "{} is missing; build it with `cargo build --release -p sandbox -p iggy_connector_mqtt_gateway`",
        .0.display()
    )]
    Missing(PathBuf),
    /// `--only iggy` without a server.
    #[error("set IGGY_SERVER_BIN to the program of an Iggy server")]
    NoServer,
    /// The comparison.
    #[error(transparent)]
    Ingest(#[from] ingest::IngestError),
    /// The measurement of fan-out.
    #[error(transparent)]
    FanOut(#[from] fan_out::FanOutError),
    /// The measurement of growth.
    #[error(transparent)]
    Growth(#[from] growth::GrowthError),
    /// The measurement of watching.
    #[error(transparent)]
    Watching(#[from] watching::WatchingError),
    /// The comparison with others.
    #[error(transparent)]
    Compare(#[from] compare::CompareError),
    /// The user ended it; what was measured is printed.
    #[error("interrupted")]
    Interrupted,
    /// The driver.
    #[error(transparent)]
    Driver(#[from] driver::DriverError),
    /// The handlers of signals.
    #[error("cannot handle signals: {0}")]
    Signals(std::io::Error),
    /// The file of `--json`.
    #[error("cannot write {}: {source}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: std::io::Error,
    },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    if cfg!(debug_assertions) {
        eprintln!(
            "this is a debug build: its figures mean nothing; use `cargo run --release -p bench`"
        );
    }
    let done = interrupt::install()
        .map_err(Failure::Signals)
        .and_then(|()| match &cli.command {
            Command::Ingest(args) => ingest(args),
            Command::FanOut(args) => fan_out(args),
            Command::Growth(args) => growth(args),
            Command::Watching(args) => watching(args),
            Command::Compare(args) => compare(args),
            Command::Publish(args) => publish(args),
        });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn ingest(args: &IngestArgs) -> Result<(), Failure> {
    let settings = ingest::Settings {
        rounds: usize::from(args.rounds),
        seconds: args.time.as_secs_f64(),
        messages: args.messages,
        payload: args.payload as usize,
        clients: args.clients,
        window: args.window,
        partitions: args.partitions,
        sdk_batch: usize::from(args.sdk_batch),
    };
    let deployments = deployments(args)?;
    let report = ingest::run(&settings, &deployments, &args.place.data)?;
    let path = keep(&args.place, "ingest", &json!(report))?;
    println!("{}", report::markdown(&report.figures));
    println!("{}", report.machine.line(&report.date));
    eprintln!("all samples: {}", path.display());
    Ok(())
}

fn fan_out(args: &FanOutArgs) -> Result<(), Failure> {
    let settings = fan_out::Settings {
        subscribers: args.subscribers.clone(),
        stuck: args.stuck,
        seconds: args.time.as_secs_f64(),
        messages: args.messages,
        payload: args.payload as usize,
        window: args.window,
        compared: args.compared,
    };
    let subject = match args.address {
        Some(address) => fan_out::Subject::Server {
            address,
            pid: args.pid,
        },
        None => fan_out::Subject::Gateway(all_programs(&args.place)?),
    };
    let found = fan_out::run(&settings, &subject, &args.place.data)?;
    let path = keep(&args.place, "fan-out", &json!(found))?;
    println!("{}", fan_out::markdown(&found));
    eprintln!("everything: {}", path.display());
    Ok(())
}

fn growth(args: &growth::GrowthArgs) -> Result<(), Failure> {
    let programs = all_programs(&args.place)?;
    Ok(growth::execute(args, &programs)?)
}

fn watching(args: &watching::WatchingArgs) -> Result<(), Failure> {
    let programs = all_programs(&args.place)?;
    let found = watching::run(args, &programs)?;
    let path = keep(&args.place, "watching", &json!(found))?;
    println!("{}", watching::markdown(&found));
    eprintln!("all samples: {}", path.display());
    Ok(())
}

fn compare(args: &compare::CompareArgs) -> Result<(), Failure> {
    let programs = all_programs(&args.place)?;
    let results = compare::run(args, &programs)?;
    let path = keep(&args.place, "compare", &compare::json(&results))?;
    println!("{}", compare::markdown(&results));
    eprintln!("all samples: {}", path.display());
    if results.interrupted {
        return Err(Failure::Interrupted);
    }
    Ok(())
}

/// Writes everything that `command` has measured, and says where.
fn keep(place: &Place, command: &str, measured: &Value) -> Result<PathBuf, Failure> {
    let path = place.json(command);
    match fs::write(&path, format!("{measured:#}\n")) {
        Ok(()) => Ok(path),
        Err(source) => Err(Failure::Json { path, source }),
    }
}

/// The sandbox and the plugin of this workspace.
fn own_programs(place: &Place) -> Result<Programs, Failure> {
    Ok(Programs {
        sandbox: existing(place.sandbox())?,
        plugin: existing(place.plugin())?,
        iggy_server: None,
        iggy_connectors: None,
    })
}

/// Those, and what the environment adds.
fn all_programs(place: &Place) -> Result<Programs, Failure> {
    Ok(Programs {
        iggy_server: program("IGGY_SERVER_BIN")?,
        iggy_connectors: program("IGGY_CONNECTORS_BIN")?,
        ..own_programs(place)?
    })
}

/// What is measured: the sandbox, and what the environment adds.
fn deployments(args: &IngestArgs) -> Result<Vec<Programs>, Failure> {
    let sandbox = own_programs(&args.place)?;
    let iggy = match program("IGGY_SERVER_BIN")? {
        Some(server) => Some(Programs {
            iggy_server: Some(server),
            iggy_connectors: program("IGGY_CONNECTORS_BIN")?,
            ..sandbox.clone()
        }),
        None if args.only == Some(Only::Iggy) => return Err(Failure::NoServer),
        None => {
            eprintln!("without a real Iggy: IGGY_SERVER_BIN is not set");
            None
        }
    };
    let mut deployments = Vec::new();
    if args.only != Some(Only::Iggy) {
        deployments.push(sandbox);
    }
    if args.only != Some(Only::Sandbox) {
        deployments.extend(iggy);
    }
    Ok(deployments)
}

fn publish(args: &PublishArgs) -> Result<(), Failure> {
    let outcome = driver::publish(&Workload {
        address: args.address,
        topic: args.topic.clone(),
        topics: 1,
        qos: match args.qos {
            0 => QoS::AtMostOnce,
            _ => QoS::AtLeastOnce,
        },
        clients: args.clients,
        window: args.window,
        payload: args.payload as usize,
        rate: args.rate,
        limit: Limit {
            messages: args.messages,
            duration: args.time,
        },
    })?;
    let found = json!({
        "qos": args.qos,
        "clients": args.clients,
        "window": args.window,
        "payload": args.payload,
        "messages": outcome.messages,
        "seconds": outcome.elapsed.as_secs_f64(),
        "rate": outcome.rate(),
        "unsent": outcome.unsent,
        "latency_us": outcome.latencies.summary(),
    });
    println!("{found:#}");
    Ok(())
}

fn program(variable: &str) -> Result<Option<PathBuf>, Failure> {
    env::var_os(variable)
        .filter(|value| !value.is_empty())
        .map(|value| existing(value.into()))
        .transpose()
}

/// The whole path of a file, which processes with another working directory need.
fn existing(path: PathBuf) -> Result<PathBuf, Failure> {
    fs::canonicalize(&path).map_err(|_| Failure::Missing(path))
}

fn duration(text: &str) -> Result<Duration, String> {
    let duration = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if (Duration::from_millis(10)..=Duration::from_secs(3_600)).contains(&duration) {
        Ok(duration)
    } else {
        Err("must be between 10ms and 1h".to_owned())
    }
}

fn rate(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|rate| (0.1..=10e6).contains(rate))
        .ok_or_else(|| "must be between 0.1 and 10,000,000".to_owned())
}

fn topic(text: &str) -> Result<String, String> {
    // The number of a client has to fit behind it.
    if text.is_empty() || text.len() > 65_000 || text.contains(['+', '#', '\0']) {
        return Err("must be 1 to 65,000 bytes without +, # and NUL".to_owned());
    }
    Ok(text.to_owned())
}
