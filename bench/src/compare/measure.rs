//! One measurement: one workload, one subject, started for it alone.
//!
//! Always holds: processor time is that between the first and the last message; memory is the most since the subject's start;
//! what was acknowledged and not kept is counted and said, and so is what a publisher at a fixed rate did not get rid of.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::runtime::Runtime;

use super::running::{Running, Used};
use super::subject::{Subject, SubjectError, TOPIC};
use super::workload::{Primary, Workload};
use crate::driver::{self, Churn, Crowd, FanOut, Herd, Idle, Limit, QoS};
use crate::outcome::{LatencySummary, Outcome};
use crate::process_usage::Usage;
use crate::sdk::{self, Delivery, Producers};

/// Clients that connect at a time, when many idle ones do.
const AT_ONCE: usize = 256;
/// Publishers of the messages that a crash must not take, and their window.
const CRASH_CLIENTS: u16 = 20;
const CRASH_WINDOW: u16 = 20;
/// Messages of one append of the SDK, where the others have many clients with a window.
const SDK_BATCH: usize = 100;
/// How long 20,000 messages may take.
const CRASH_DEADLINE: Duration = Duration::from_secs(120);

/// Lines of a subject's output that a failure shows.
const SHOWN_LINES: usize = 3;

/// How much is measured.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Settings {
    /// Rounds that count.
    pub(crate) rounds: usize,
    /// Rounds before them that are thrown away.
    pub(crate) warm_up: usize,
    /// How long each measurement lasts.
    pub(crate) time: Duration,
    /// How long idle clients rest.
    pub(crate) rest: Duration,
    /// After so many messages, or cycles, it ends early.
    pub(crate) messages: u64,
    /// The payload of every message, in bytes.
    pub(crate) payload: usize,
}

/// What a measurement found.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Measured {
    /// Messages acknowledged, copies delivered, connections accepted, or cycles.
    pub(crate) messages: u64,
    /// From the first to the last.
    pub(crate) seconds: f64,
    /// In a second.
    pub(crate) rate: f64,
    /// Until the PUBACK, the copy, the CONNACK, or the end of the cycle.
    pub(crate) latency_us: LatencySummary,
    /// At a fixed rate, what was not sent.
    pub(crate) unsent: u64,
    /// Processor time of the subject's own processes for each of them, in microseconds.
    pub(crate) cpu_us: Option<f64>,
    /// And of its Iggy server.
    pub(crate) iggy_cpu_us: Option<f64>,
    /// The most memory of the subject's own processes, in bytes.
    pub(crate) peak_bytes: Option<u64>,
    /// And of its Iggy server.
    pub(crate) iggy_peak_bytes: Option<u64>,
    /// What the subject's own processes grew by for each idle connection, in bytes.
    pub(crate) bytes_per_connection: Option<f64>,
    /// Of the messages that were acknowledged, those that are still there.
    pub(crate) kept: Option<u64>,
    /// How long it took to serve again after the crash.
    pub(crate) restart_seconds: Option<f64>,
}

impl Measured {
    /// The figure by which subjects are compared.
    pub(crate) fn primary(&self, workload: &Workload) -> Option<f64> {
        match workload.primary() {
            Primary::Rate => Some(self.rate),
            Primary::P50 => Some(self.latency_us.p50),
            Primary::P99 => Some(self.latency_us.p99),
            Primary::BytesPerConnection => self.bytes_per_connection,
            Primary::Kept => self.kept.map(|kept| kept as f64),
        }
    }

    /// What went wrong without ending the measurement.
    pub(crate) fn complaint(&self) -> Option<String> {
        let lost = self.messages - self.kept.unwrap_or(self.messages).min(self.messages);
        match (lost, self.unsent) {
            (0, 0) => None,
            (0, unsent) => Some(format!(
                "{unsent} messages were not sent when the time was over"
            )),
            (lost, _) => Some(format!(
                "{lost} of {} acknowledged messages are not there",
                self.messages
            )),
        }
    }
}

/// Why there is no measurement.
#[derive(Debug)]
pub(crate) enum Unmeasured {
    /// The user ended it.
    Interrupted,
    /// The reason, with the end of what the subject printed.
    Failed(String),
}

impl Unmeasured {
    fn new(error: &SubjectError, output: &str) -> Self {
        if error.is_interrupted() {
            return Self::Interrupted;
        }
        Self::Failed(explain(&error.to_string(), output))
    }
}

/// What went wrong, with the end of what the subject printed.
fn explain(error: &str, output: &str) -> String {
    let lines: Vec<&str> = output.lines().collect();
    let from = lines.len().saturating_sub(SHOWN_LINES);
    match lines.get(from..).unwrap_or_default() {
        [] => error.to_owned(),
        end => format!("{error}; it printed: {}", end.join("; ")),
    }
}

/// Starts the subject in `folder`, measures, and ends it.
///
/// # Errors
/// See [`Unmeasured`].
pub(crate) fn measure(
    workload: &Workload,
    subject: &Subject,
    settings: &Settings,
    folder: &Path,
    runtime: &Runtime,
) -> Result<Measured, Unmeasured> {
    let mut running = Running::start(subject, folder, runtime)
        .map_err(|error| Unmeasured::new(&error.into(), ""))?;
    let address = running.address();
    let topic = format!("{TOPIC}/x");
    let (payload, limit) = (settings.payload, limit(settings));
    let found = match *workload {
        Workload::Idle { connections } => idle(connections, settings, &running),
        Workload::Deliver {
            subscribers,
            qos,
            window,
            rate,
        } => {
            let plan = FanOut {
                address,
                topic,
                qos,
                subscribers,
                stuck: 0,
                window,
                rate,
                payload,
                limit,
            };
            deliver(plan, &running, runtime)
        }
        Workload::Churn { at_once } => {
            let plan = Churn {
                address,
                topic,
                at_once,
                payload,
                limit,
            };
            metered(&running, || Ok(driver::churn(&plan)?))
        }
        Workload::Publish { .. } => kept(workload, settings, &mut running, runtime, false),
        Workload::Crash { .. } => kept(workload, settings, &mut running, runtime, true),
    };
    found.map_err(|error| Unmeasured::new(&error, &running.output_end()))
}

/// Publishes what has to be kept, and counts it, after a crash or without.
fn kept(
    workload: &Workload,
    settings: &Settings,
    running: &mut Running<'_>,
    runtime: &Runtime,
    crashes: bool,
) -> Result<Measured, SubjectError> {
    running.keep()?;
    let mut found = metered(running, || publish(workload, settings, running, runtime))?;
    if crashes {
        let begin = Instant::now();
        running.crash()?;
        found.restart_seconds = Some(begin.elapsed().as_secs_f64());
    }
    found.kept = running.kept(found.messages)?;
    Ok(found)
}

fn publish(
    workload: &Workload,
    settings: &Settings,
    running: &Running<'_>,
    runtime: &Runtime,
) -> Result<Outcome, SubjectError> {
    let (clients, window, rate, limit) = match *workload {
        Workload::Publish {
            clients,
            window,
            rate,
        } => (clients, window, rate, limit(settings)),
        Workload::Crash { messages } => {
            let limit = Limit {
                messages,
                duration: CRASH_DEADLINE,
            };
            (CRASH_CLIENTS, CRASH_WINDOW, None, limit)
        }
        _ => (1, 1, None, limit(settings)),
    };
    if running.mqtt().is_none() {
        let producers = Producers {
            address: running.address(),
            topic: TOPIC.to_owned(),
            connections: 1,
            batch: if clients == 1 { 1 } else { SDK_BATCH },
            payload: settings.payload,
            limit,
        };
        return Ok(sdk::append(&producers, runtime)?);
    }
    Ok(driver::publish(&driver::Workload {
        address: running.address(),
        topic: format!("{TOPIC}/x"),
        topics: 1,
        qos: QoS::AtLeastOnce,
        clients,
        window,
        payload: settings.payload,
        rate,
        limit,
    })?)
}

/// One publisher and many subscribers; what they cost while they connect does not count.
fn deliver(
    plan: FanOut,
    running: &Running<'_>,
    runtime: &Runtime,
) -> Result<Measured, SubjectError> {
    if running.mqtt().is_none() {
        let plan = Delivery {
            address: plan.address,
            topic: TOPIC.to_owned(),
            window: plan.window,
            payload: plan.payload,
            limit: plan.limit,
        };
        return metered(running, || Ok(sdk::deliver(&plan, runtime)?));
    }
    let crowd = Crowd::gather(plan)?;
    metered(running, || Ok(crowd.run(|| ())?))
}

fn idle(
    connections: usize,
    settings: &Settings,
    running: &Running<'_>,
) -> Result<Measured, SubjectError> {
    let before = running.used();
    let mut herd = Herd::gather(Idle {
        address: running.address(),
        connections,
        at_once: AT_ONCE,
    })?;
    let accepted = herd.accepted().clone();
    let mut now = running.used();
    let mut found = measured(&accepted, before, now);
    herd.rest(settings.rest, || now = running.used())?;
    found.bytes_per_connection = before.own.zip(now.own).map(|(before, now)| {
        now.resident.saturating_sub(before.resident) as f64 / (connections.max(1) as f64)
    });
    // All of them are alive, or this is an error.
    herd.ping()?;
    Ok(found)
}

fn limit(settings: &Settings) -> Limit {
    Limit {
        messages: settings.messages,
        duration: settings.time,
    }
}

fn metered(
    running: &Running<'_>,
    run: impl FnOnce() -> Result<Outcome, SubjectError>,
) -> Result<Measured, SubjectError> {
    let before = running.used();
    let outcome = run()?;
    Ok(measured(&outcome, before, running.used()))
}

fn measured(outcome: &Outcome, before: Used, after: Used) -> Measured {
    let cpu = |before: Option<Usage>, after: Option<Usage>| {
        let used = after?.processor.saturating_sub(before?.processor);
        Some(used.as_secs_f64() * 1e6 / (outcome.messages.max(1) as f64))
    };
    Measured {
        messages: outcome.messages,
        seconds: outcome.elapsed.as_secs_f64(),
        rate: outcome.rate(),
        latency_us: outcome.latencies.summary(),
        unsent: outcome.unsent,
        cpu_us: cpu(before.own, after.own),
        iggy_cpu_us: cpu(before.iggy, after.iggy),
        peak_bytes: after.own.map(|usage| usage.peak),
        iggy_peak_bytes: after.iggy.map(|usage| usage.peak),
        bytes_per_connection: None,
        kept: None,
        restart_seconds: None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::results::tests::measured;
    use super::*;

    #[test]
    fn a_failure_shows_the_end_of_what_the_subject_printed() {
        assert_eq!(explain("gone", ""), "gone");
        assert_eq!(explain("gone", "1\n2\n3\n4"), "gone; it printed: 2; 3; 4");
    }

    #[test]
    fn what_was_lost_says_more_than_what_was_not_sent() {
        let found = |kept, unsent| Measured {
            kept,
            unsent,
            ..measured(1.0)
        };
        assert_eq!(found(None, 0).complaint(), None);
        assert_eq!(found(Some(1_000), 0).complaint(), None);
        assert_eq!(found(Some(1_001), 0).complaint(), None);
        let unsent = found(Some(1_000), 7).complaint().unwrap();
        assert_eq!(unsent, "7 messages were not sent when the time was over");
        let lost = found(Some(990), 7).complaint().unwrap();
        assert_eq!(lost, "10 of 1000 acknowledged messages are not there");
    }
}
