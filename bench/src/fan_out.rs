//! Fan-out: what one message to many subscribers costs, and how long it takes.
//!
//! Always holds: the same driver measures the gateway, which is started here, and any other MQTT 3.1.1 server at an address;
//! the figures of processor and memory are those of the server's process, and missing when it is not known; the comparison
//! with Iggy alternates its two subjects in the same run.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use iggy::prelude::{
    Consumer, Identifier, IggyError, IggyMessage, MessageClient, Partitioning, PollingStrategy,
};
use serde::Serialize;
use tokio::runtime::Runtime;

use crate::driver::{Crowd, DriverError, FanOut, Limit, QoS};
use crate::machine::{self, Machine};
use crate::outcome::{Latencies, LatencySummary};
use crate::process_usage::{processor_time, resident_bytes};
use crate::report;
use crate::stack::host::Host;
use crate::stack::server::{self, Server};
use crate::stack::topics::Topic;
use crate::stack::{Programs, STREAM, StackError};

/// The Iggy topic, and the first level of the MQTT topic.
const TOPIC: &str = "fanout";
/// One level more, as the map wants it.
const MQTT_TOPIC: &str = "fanout/x";
/// What publish to delivery may take, as a multiple of append and poll with the SDK, at the median.
const LATENCY_BOUND: f64 = 2.0;

/// What is measured, and for how long.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Settings {
    /// How many subscribers, one measurement each.
    pub(crate) subscribers: Vec<u16>,
    /// If there are any, each measurement is repeated with so many more subscribers, which never read.
    pub(crate) stuck: u16,
    /// How long each measurement publishes, in seconds.
    pub(crate) seconds: f64,
    /// After so many published messages it ends early.
    pub(crate) messages: u64,
    /// The payload of every message, in bytes.
    pub(crate) payload: usize,
    /// How many messages are on their way at a time, under load.
    pub(crate) window: u16,
    /// How many messages are compared with Iggy.
    pub(crate) compared: u32,
}

/// What serves.
#[derive(Debug, Clone)]
pub(crate) enum Subject {
    /// A gateway that is started here.
    Gateway(Programs),
    /// A server that runs already.
    Server {
        /// Where.
        address: SocketAddr,
        /// Its process on this machine, if that is known.
        pid: Option<u32>,
    },
}

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FanOutError {
    /// A part does not run.
    #[error(transparent)]
    Stack(#[from] StackError),
    /// The driver.
    #[error("the server could not be measured: {source}{output}")]
    Driver {
        /// What went wrong.
        source: DriverError,
        /// The end of the host's output.
        output: String,
    },
    /// The SDK.
    #[error("append and poll with the SDK failed: {0}")]
    Iggy(#[from] IggyError),
    /// No temporary folder or no threads.
    #[error("cannot prepare the run: {0}")]
    Io(#[from] io::Error),
}

/// Everything that a run found.
#[derive(Debug, Serialize)]
pub(crate) struct Found {
    date: String,
    machine: Machine,
    subject: String,
    settings: Settings,
    samples: Vec<Sample>,
    compared: Option<Compared>,
}

/// One measurement.
#[derive(Debug, Serialize)]
pub(crate) struct Sample {
    subscribers: u16,
    /// How many more there were that never read.
    stuck: u16,
    qos: u8,
    /// How many messages were on their way at a time.
    window: u16,
    /// Copies delivered.
    delivered: u64,
    seconds: f64,
    /// Copies in a second.
    rate: f64,
    /// From the write of the PUBLISH to the read of a copy.
    latency_us: LatencySummary,
    /// Processor time of the server for each copy.
    cpu_us_per_copy: Option<f64>,
    /// What the server's memory grew by for each subscriber that is connected and subscribed.
    bytes_per_idle_subscriber: Option<f64>,
    /// And at most while messages came, for each.
    bytes_per_busy_subscriber: Option<f64>,
}

/// Publish to delivery on an idle gateway, beside append and poll with the SDK.
#[derive(Debug, Serialize)]
pub(crate) struct Compared {
    gateway_us: LatencySummary,
    append_and_poll_us: LatencySummary,
    ratio_p50: f64,
    wanted: f64,
    reached: bool,
}

/// Measures.
///
/// # Errors
/// See [`FanOutError`].
pub(crate) fn run(
    settings: &Settings,
    subject: &Subject,
    folder: &Path,
) -> Result<Found, FanOutError> {
    let folder = std::path::absolute(folder)?;
    let mut machine = Machine::here(&folder);
    let runtime = Runtime::new()?;
    let place = tempfile::Builder::new()
        .prefix("bench-")
        .tempdir_in(&folder)?;
    let stack = match subject {
        Subject::Server { .. } => None,
        Subject::Gateway(programs) => Some(Stack::start(programs, place.path(), &runtime)?),
    };
    let mut samples = Vec::new();
    for &subscribers in &settings.subscribers {
        for qos in [QoS::AtMostOnce, QoS::AtLeastOnce] {
            let windows = [1, settings.window];
            let with_stuck = Some(settings.stuck).filter(|stuck| *stuck > 0);
            let crowds = [Some(0), with_stuck];
            for (window, stuck) in windows.into_iter().flat_map(|window| {
                crowds
                    .into_iter()
                    .flatten()
                    .map(move |stuck| (window, stuck))
            }) {
                eprintln!(
                    "{subscribers} subscribers and {stuck} that never read, {qos:?}, {window} on the way"
                );
                // What an allocator keeps from one measurement would hide what the next one takes.
                let host = match &stack {
                    Some(stack) => Some(stack.host(&format!("host-{}", samples.len()))?),
                    None => None,
                };
                let (address, pid) = match (subject, &host) {
                    (_, Some(host)) => (host.mqtt(), Some(host.pid())),
                    (Subject::Server { address, pid }, None) => (*address, *pid),
                    (Subject::Gateway(_), None) => continue,
                };
                let plan = FanOut {
                    address,
                    topic: MQTT_TOPIC.to_owned(),
                    qos,
                    subscribers,
                    stuck,
                    window,
                    rate: None,
                    payload: settings.payload,
                    limit: Limit {
                        messages: settings.messages,
                        duration: Duration::from_secs_f64(settings.seconds),
                    },
                };
                samples.push(measure(plan, pid).map_err(|source| failed(source, host.as_ref()))?);
            }
        }
    }
    let compared = match &stack {
        Some(stack) => Some(compare(settings, stack)?),
        None => None,
    };
    machine.load_after = machine::load();
    Ok(Found {
        date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        machine,
        subject: match subject {
            Subject::Gateway(programs) => format!("gateway on {}", programs.describe()),
            Subject::Server { address, .. } => address.to_string(),
        },
        settings: settings.clone(),
        samples,
        compared,
    })
}

fn failed(source: DriverError, host: Option<&Host>) -> FanOutError {
    let output = host.map_or(String::new(), |host| {
        format!("; the end of what its host printed:\n{}", host.output_end())
    });
    FanOutError::Driver { source, output }
}

/// An Iggy server, and gateways before it when they are needed.
struct Stack<'a> {
    programs: &'a Programs,
    place: &'a Path,
    runtime: &'a Runtime,
    topics: [Topic; 1],
    server: Server,
}

impl<'a> Stack<'a> {
    fn start(
        programs: &'a Programs,
        place: &'a Path,
        runtime: &'a Runtime,
    ) -> Result<Self, FanOutError> {
        let topics = [Topic {
            name: TOPIC.to_owned(),
            partitions: 1,
            persisted: false,
        }];
        let server = Server::start(programs, &folder(place, "server")?, &topics, runtime)?;
        Ok(Self {
            programs,
            place,
            runtime,
            topics,
            server,
        })
    }

    fn host(&self, name: &str) -> Result<Host, FanOutError> {
        let iggy = self.server.address();
        let folder = folder(self.place, name)?;
        Ok(Host::start(
            self.programs,
            &folder,
            iggy,
            iggy,
            &self.topics,
        )?)
    }
}

fn folder(place: &Path, name: &str) -> io::Result<PathBuf> {
    let folder = place.join(name);
    fs::create_dir(&folder)?;
    Ok(folder)
}

fn measure(plan: FanOut, pid: Option<u32>) -> Result<Sample, DriverError> {
    let (subscribers, stuck) = (plan.subscribers, plan.stuck);
    let (qos, window) = (plan.qos, plan.window);
    let memory = || pid.and_then(resident_bytes);
    let empty = memory();
    let crowd = Crowd::gather(plan)?;
    let idle = memory();
    let before = pid.and_then(processor_time);
    let mut most = idle;
    let outcome = crowd.run(|| most = most.max(memory()))?;
    let after = pid.and_then(processor_time);
    let each = |bytes: Option<u64>| {
        let grown = bytes?.saturating_sub(empty?);
        Some(grown as f64 / f64::from(subscribers.max(1)))
    };
    let cpu = before.zip(after).map(|(before, after)| after - before);
    Ok(Sample {
        subscribers,
        stuck,
        qos: u8::from(qos == QoS::AtLeastOnce),
        window,
        delivered: outcome.messages,
        seconds: outcome.elapsed.as_secs_f64(),
        rate: outcome.rate(),
        latency_us: outcome.latencies.summary(),
        cpu_us_per_copy: cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / (outcome.messages.max(1) as f64)),
        bytes_per_idle_subscriber: each(idle),
        bytes_per_busy_subscriber: each(most),
    })
}

/// One subscriber and one message at a time, in turn with an append and a poll of the SDK.
fn compare(settings: &Settings, stack: &Stack<'_>) -> Result<Compared, FanOutError> {
    /// So many messages of each before it is the other's turn.
    const TURN: u32 = 20;
    eprintln!("publish to delivery, and append and poll with the SDK");
    let mut gateway = Latencies::new();
    let mut sdk = Latencies::new();
    let mut left = settings.compared.max(1);
    let host = stack.host("compared")?;
    while left > 0 {
        let turn = left.min(TURN);
        left -= turn;
        let crowd = Crowd::gather(FanOut {
            address: host.mqtt(),
            topic: MQTT_TOPIC.to_owned(),
            qos: QoS::AtLeastOnce,
            subscribers: 1,
            stuck: 0,
            window: 1,
            rate: None,
            payload: settings.payload,
            limit: Limit {
                messages: u64::from(turn),
                duration: Duration::from_secs(60),
            },
        });
        let outcome = crowd.and_then(|crowd| crowd.run(|| ()));
        let outcome = outcome.map_err(|source| failed(source, Some(&host)))?;
        gateway.merge(&outcome.latencies);
        let latencies = append_and_poll(&stack.server, settings.payload, turn, stack.runtime)?;
        sdk.merge(&latencies);
    }
    let (gateway_us, append_and_poll_us) = (gateway.summary(), sdk.summary());
    let ratio_p50 = gateway_us.p50 / append_and_poll_us.p50;
    Ok(Compared {
        gateway_us,
        append_and_poll_us,
        ratio_p50,
        wanted: LATENCY_BOUND,
        reached: ratio_p50 <= LATENCY_BOUND,
    })
}

fn append_and_poll(
    server: &Server,
    payload: usize,
    messages: u32,
    runtime: &Runtime,
) -> Result<Latencies, FanOutError> {
    runtime.block_on(async {
        let client = server::connect(server.address()).await?;
        let (stream, topic) = (Identifier::named(STREAM)?, Identifier::named(TOPIC)?);
        let partitioning = Partitioning::partition_id(0);
        let consumer = Consumer::default();
        let poll = async |strategy: PollingStrategy| {
            client
                .poll_messages(&stream, &topic, Some(0), &consumer, &strategy, 1, false)
                .await
        };
        let last = poll(PollingStrategy::last()).await?;
        let mut next = last
            .messages
            .last()
            .map_or(0, |last| last.header.offset + 1);
        let mut latencies = Latencies::new();
        for _ in 0..messages {
            let message = IggyMessage::builder()
                .payload("x".repeat(payload).into())
                .build()?;
            let begin = Instant::now();
            client
                .send_messages(&stream, &topic, &partitioning, &mut [message])
                .await?;
            let polled = poll(PollingStrategy::offset(next)).await?;
            latencies.record(begin.elapsed());
            next += polled.messages.len() as u64;
        }
        Ok(latencies)
    })
}

/// The tables.
pub(crate) fn markdown(found: &Found) -> String {
    let mut out = format!(
        "Fan-out of {}, payload {} bytes\n\n\
         | subscribers | never reading | QoS | on the way | copies/s | p50 | p99 | p99.9 | CPU per copy | memory per idle subscriber | per busy one |\n\
         |---|---|---|---|---|---|---|---|---|---|---|\n",
        found.subject, found.settings.payload
    );
    let or_dash = |figure: Option<String>| figure.unwrap_or_else(|| "—".to_owned());
    for sample in &found.samples {
        let latency = &sample.latency_us;
        out += &format!(
            "| {} | {} | {} | {} | {} | {:.0} µs | {:.0} µs | {:.0} µs | {} | {} | {} |\n",
            sample.subscribers,
            sample.stuck,
            sample.qos,
            sample.window,
            report::whole(sample.rate),
            latency.p50,
            latency.p99,
            latency.p999,
            or_dash(sample.cpu_us_per_copy.map(|cpu| format!("{cpu:.2} µs"))),
            or_dash(sample.bytes_per_idle_subscriber.map(kib)),
            or_dash(sample.bytes_per_busy_subscriber.map(kib)),
        );
    }
    if let Some(compared) = &found.compared {
        out += &format!(
            "\nOn the idle gateway, QoS 1: publish to delivery p50 {:.0} µs, append and poll with the SDK p50 {:.0} µs, ratio {:.2} (wanted ≤ {}: {})\n",
            compared.gateway_us.p50,
            compared.append_and_poll_us.p50,
            compared.ratio_p50,
            compared.wanted,
            if compared.reached { "yes" } else { "**no**" },
        );
    }
    out
}

fn kib(bytes: f64) -> String {
    format!("{:.1} KiB", bytes / 1_024.0)
}
