//! The metrics of a gateway, for Prometheus.
//!
//! What always holds: names, units and meanings are those of `docs/metrics.md`; no label has a client's id, an MQTT topic or
//! anything else that clients choose; partitions are labels, and at most `MAX_PARTITIONS` of each kind are shown, the others
//! counted. Asking reads what the data path adds to and writes down, and takes no lock that a message may wait for.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use crate::observe::HistogramState;
use crate::status::Observer;

mod counters;
mod gauges;
#[cfg(test)]
mod tests;

use counters::COUNTERS;

/// What every name begins with.
pub const PREFIX: &str = "mqtt_gateway";
/// The most partitions that lanes, and that readers, are shown for.
const MAX_PARTITIONS: usize = 1_000;
/// For how long a text is given to everyone who asks.
const FRESH: Duration = Duration::from_millis(500);

/// See the module.
pub struct Metrics {
    registry: Arc<Registry>,
    /// Made for whoever asked last. Holding it while the next is made lets many who ask at once cost one.
    last: tokio::sync::Mutex<Option<(Instant, String)>>,
}

impl Metrics {
    /// Of the gateway that `observer` looks at.
    pub fn new(observer: Arc<Observer>) -> Self {
        let mut registry = Registry::with_prefix(PREFIX);
        registry.register_collector(Box::new(Everything(observer)));
        Self {
            registry: Arc::new(registry),
            last: tokio::sync::Mutex::default(),
        }
    }

    /// All metrics as text. `None` if the runtime is stopping.
    pub async fn text(&self) -> Option<String> {
        let mut last = self.last.lock().await;
        if let Some((made, text)) = &*last
            && made.elapsed() < FRESH
        {
            return Some(text.clone());
        }
        let registry = self.registry.clone();
        let encode = spawn_blocking(move || {
            let mut out = String::new();
            // A text takes everything.
            let _ = text::encode(&mut out, &registry);
            out
        });
        let text = encode.await.ok()?;
        *last = Some((Instant::now(), text.clone()));
        Some(text)
    }
}

struct Everything(Arc<Observer>);

impl fmt::Debug for Everything {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Everything").finish_non_exhaustive()
    }
}

/// Labels of an exemplar, of which there are none.
type NoLabels = [(&'static str, &'static str); 0];

/// A gauge and what it shows; or a counter of something of which there are several.
struct Gauge {
    is_counter: bool,
    name: &'static str,
    unit: Option<Unit>,
    help: &'static str,
    samples: Vec<(Vec<(&'static str, String)>, f64)>,
}

impl Gauge {
    fn new(name: &'static str, help: &'static str) -> Self {
        Self {
            is_counter: false,
            name,
            unit: None,
            help,
            samples: Vec::new(),
        }
    }

    fn counter(mut self) -> Self {
        self.is_counter = true;
        self
    }

    fn in_unit(mut self, unit: Unit) -> Self {
        self.unit = Some(unit);
        self
    }

    fn value(mut self, value: f64) -> Self {
        self.samples.push((Vec::new(), value));
        self
    }

    fn with(&mut self, labels: &[(&'static str, &str)], value: f64) {
        let labels = labels
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()));
        self.samples.push((labels.collect(), value));
    }
}

impl Collector for Everything {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let counters = self.0.context().counters.clone();
        for family in COUNTERS {
            let unit = family.is_bytes.then_some(Unit::Bytes);
            let mut metric = encoder.encode_descriptor(
                family.name,
                family.help,
                unit.as_ref(),
                MetricType::Counter,
            )?;
            for sample in family.samples {
                let count = (sample.get)(&counters);
                if sample.value.is_empty() {
                    metric.encode_counter::<NoLabels, _, u64>(&count, None)?;
                } else {
                    metric
                        .encode_family(&[(family.label, sample.value)])?
                        .encode_counter::<NoLabels, _, u64>(&count, None)?;
                }
            }
        }
        for gauge in gauges::all(&self.0) {
            let kind = match gauge.is_counter {
                true => MetricType::Counter,
                false => MetricType::Gauge,
            };
            let mut metric =
                encoder.encode_descriptor(gauge.name, gauge.help, gauge.unit.as_ref(), kind)?;
            for (labels, value) in &gauge.samples {
                match (labels.as_slice(), gauge.is_counter) {
                    (labels, true) => metric
                        .encode_family(&labels)?
                        .encode_counter::<NoLabels, _, f64>(value, None)?,
                    ([], false) => metric.encode_gauge(value)?,
                    (labels, false) => metric.encode_family(&labels)?.encode_gauge(value)?,
                }
            }
        }
        histogram(
            &mut encoder,
            "append_duration",
            "How long appends took that were confirmed, from when they were first tried",
            Some(&Unit::Seconds),
            &counters.append_micros.state(),
            1e6,
        )?;
        histogram(
            &mut encoder,
            "append_messages",
            "How many messages were in the batches that were appended",
            None,
            &counters.append_messages.state(),
            1.0,
        )
    }
}

fn histogram(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    unit: Option<&Unit>,
    state: &HistogramState,
    parts: f64,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, unit, MetricType::Histogram)?;
    let buckets: Vec<(f64, u64)> = state
        .buckets
        .iter()
        .map(|(bound, count)| {
            (
                bound.map_or(f64::INFINITY, |bound| bound as f64 / parts),
                *count,
            )
        })
        .collect();
    metric.encode_histogram::<NoLabels>(state.sum as f64 / parts, state.count(), &buckets, None)
}

/// Seconds since 1970.
fn unix_seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64()
}
