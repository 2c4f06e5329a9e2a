//! The metrics are those of the documentation, and the dashboard asks for no others.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use regex::Regex;
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::PREFIX;
use crate::log::memory::{HoldAt, MemoryLog};
use crate::sim::{Got, Sim};
use crate::status::Observer;

/// A metric: its kind and its labels.
type Kinds = BTreeMap<String, (String, BTreeSet<String>)>;

fn repository(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(path)
}

async fn text(sim: &Sim) -> String {
    sim.delivery().look(Instant::now());
    let observer = Observer::new(sim.gateway.context().clone());
    super::Metrics::new(observer).text().await.unwrap()
}

/// What the text has: counters with `_total`, as they are asked for.
fn kinds(text: &str) -> Kinds {
    let names = Regex::new(r#"([a-z_]+)="(?:[^"\\]|\\.)*""#).unwrap();
    let mut kinds = Kinds::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            let name = match kind {
                "counter" => format!("{name}_total"),
                _ => name.to_owned(),
            };
            let entry = (kind.to_owned(), BTreeSet::new());
            assert!(kinds.insert(name, entry).is_none(), "{line}");
        } else if !line.starts_with('#') {
            let (name, labels) = match line.split_once('{') {
                Some((name, rest)) => (name, rest.rsplit_once('}').unwrap().0),
                None => (line.split(' ').next().unwrap(), ""),
            };
            let of_histogram = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|suffix| kinds.get_key_value(name.strip_suffix(suffix)?))
                .filter(|(_, (kind, _))| kind == "histogram")
                .map(|(name, _)| name.clone());
            let name = of_histogram.unwrap_or_else(|| name.to_owned());
            let (_, known) = kinds.get_mut(&name).unwrap_or_else(|| panic!("{line}"));
            known.extend(names.captures_iter(labels).map(|one| one[1].to_owned()));
        }
    }
    for (_, labels) in kinds.values_mut() {
        labels.remove("le");
    }
    kinds
}

/// A gateway in which everything is there that can have metrics.
async fn busy() -> Sim {
    let sim = Sim::new().await;
    let mut client = sim.connect("device").await;
    client.subscribe("d/1/x", 1).await;
    client.publish("d/1/x", "committed", Some(1)).await;
    for _ in 0..2 {
        if let Got::Publish { id: Some(id), .. } = client.next().await {
            client.ack(id).await;
        }
    }
    sim.until("it is committed", |sim| sim.count("commits") > 0)
        .await;
    // In a lane and not stored, so that the lane is there.
    sim.log.hold(HoldAt::BeforeCommit);
    client.publish("d/1/x", "waits", Some(2)).await;
    sim.until("it waits", |sim| sim.count("publishes_received") == 2)
        .await;
    sim
}

#[tokio::test(start_paused = true)]
async fn whoever_asks_takes_no_lock_that_a_message_may_wait_for() {
    let sim = busy().await;
    sim.delivery().look(Instant::now());
    let context = sim.gateway.context().clone();
    let (ingest, delivery) = (context.ingest.load_full().unwrap(), sim.delivery());
    let (done, answers) = mpsc::channel();
    let runtime = Handle::current();
    let ask = || {
        thread::spawn(move || {
            let observer = Observer::new(context);
            let metrics = super::Metrics::new(observer.clone());
            let text = runtime.block_on(metrics.text()).unwrap();
            let picture = runtime.block_on(observer.picture()).unwrap();
            let _ = done.send((text, picture));
        });
        answers.recv_timeout(Duration::from_secs(30))
    };
    let answers = ingest.locked(|| delivery.locked(ask));
    let (text, picture) = answers.expect("they wait for a lock");
    assert!(text.contains("\nmqtt_gateway_lane_messages{"), "{text}");
    assert!(text.contains("\nmqtt_gateway_reader_position{"), "{text}");
    let status = &picture.status;
    assert_eq!(status.ingest.as_ref().unwrap().lanes.len(), 1);
    assert_eq!(status.delivery.as_ref().unwrap().subscribers.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_documented_metrics_are_those_of_the_code() {
    let sim = busy().await;
    let text = text(&sim).await;
    let mut shown = kinds(&text);
    // The gateway of the test listens nowhere.
    for (name, labels) in [
        ("connections", ["listener", "state"].as_slice()),
        ("listener_accepting", &["listener"]),
        ("listener_accepted_total", &["listener"]),
        ("certificate_expiry_timestamp_seconds", &["listener"]),
    ] {
        let known = &mut shown.get_mut(&format!("{PREFIX}_{name}")).unwrap().1;
        known.extend(labels.iter().map(|label| (*label).to_owned()));
    }
    // Only while something fails.
    for name in ["lane_failing_seconds", "reader_failing_seconds"] {
        let labels = &mut shown.get_mut(&format!("{PREFIX}_{name}")).unwrap().1;
        assert!(labels.is_empty());
        labels.extend(["stream", "topic", "partition"].map(str::to_owned));
    }
    let page = fs::read_to_string(repository("docs/metrics.md")).unwrap();
    let (_, page) = page.split_once("\n## The gateway\n").unwrap();
    let mut documented = Kinds::new();
    for row in page
        .lines()
        .filter(|line| line.starts_with("| `mqtt_gateway_"))
    {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [name, kind, labels, meaning] = cells.as_slice() else {
            panic!("a row needs four cells: {row}")
        };
        assert!(!meaning.is_empty(), "{row}");
        let labels = labels
            .split(' ')
            .map(|label| label.trim_matches(['`', ',']));
        let labels = labels.filter(|label| !label.is_empty()).map(str::to_owned);
        let name = name.trim_matches('`').to_owned();
        documented.insert(name, ((*kind).to_owned(), labels.collect()));
    }
    for (name, kind) in &shown {
        assert_eq!(documented.get(name), Some(kind), "{name}");
    }
    let unknown: Vec<_> = documented
        .keys()
        .filter(|name| !shown.contains_key(*name))
        .collect();
    assert!(unknown.is_empty(), "documented, and not there: {unknown:?}");
}

#[tokio::test(start_paused = true)]
async fn names_and_units_are_as_prometheus_has_them() {
    let sim = busy().await;
    for (name, (kind, labels)) in kinds(&text(&sim).await) {
        assert!(name.starts_with("mqtt_gateway_"), "{name}");
        assert!(
            name.bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'_'),
            "{name}"
        );
        assert_eq!(name.ends_with("_total"), kind == "counter", "{name}");
        for unit in ["_ms", "_millis", "_micros", "_kib", "_minutes"] {
            assert!(!name.contains(unit), "{name} is not in seconds or bytes");
        }
        for label in labels {
            assert!(
                !["client", "client_id", "peer", "mqtt_topic", "user"].contains(&&*label),
                "{name} has the label {label}, whose values clients choose"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_that_a_device_chose_does_not_break_the_format() {
    let sim = Sim::with_map(
        "on_unmatched = 'refuse'\n[[rule]]\nmqtt_topic = '(.*)'\nstream = 'all'\ntopic = 't_$1'\n",
        MemoryLog::new(),
        |_| (),
    )
    .await;
    let mut client = sim.connect("device").await;
    sim.log.hold(HoldAt::BeforeCommit);
    client.publish("a\"b\\c\nd}", "x", Some(1)).await;
    sim.until("it waits", |sim| sim.count("publishes_received") == 1)
        .await;
    let text = text(&sim).await;
    let lane = text
        .lines()
        .find(|line| line.starts_with("mqtt_gateway_lane_messages{"));
    assert_eq!(
        lane,
        Some(
            "mqtt_gateway_lane_messages{stream=\"all\",topic=\"t_a\\\"b\\\\c\\nd}\",partition=\"0\"} 1.0"
        )
    );
}

#[test]
fn the_dashboard_asks_for_metrics_that_there_are_and_needs_no_edit() {
    let text = fs::read_to_string(repository("docs/grafana-dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let page = fs::read_to_string(repository("docs/metrics.md")).unwrap();
    let mut expressions = Vec::new();
    collect(&dashboard, "expr", &mut expressions);
    collect(&dashboard, "query", &mut expressions);
    assert!(expressions.len() >= 20, "{}", expressions.len());
    let names = Regex::new("mqtt_gateway_[a-z_]+").unwrap();
    let mut asked = BTreeSet::new();
    for expression in &expressions {
        for name in names.find_iter(expression) {
            let name = name.as_str();
            let name = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|suffix| name.strip_suffix(suffix))
                .filter(|name| page.contains(&format!("| `{name}` | histogram")))
                .unwrap_or(name);
            assert!(
                page.contains(&format!("| `{name}` |")),
                "{name} in {expression}"
            );
            asked.insert(name.to_owned());
        }
    }
    assert!(asked.len() >= 20, "{asked:?}");
    // Grafana asks for the data source itself when it is a variable; a fixed one would need an edit.
    let mut sources = Vec::new();
    collect(&dashboard, "uid", &mut sources);
    for source in sources {
        assert!(
            source == "${datasource}" || source == "mqtt-gateway" || source == "-- Grafana --",
            "{source}"
        );
    }
    assert!(
        dashboard["templating"]["list"]
            .as_array()
            .unwrap()
            .iter()
            .any(|variable| {
                variable["type"] == "datasource" && variable["query"] == "prometheus"
            })
    );
    let ids: Vec<_> = dashboard["panels"]
        .as_array()
        .unwrap()
        .iter()
        .map(|panel| &panel["id"])
        .collect();
    let distinct: BTreeSet<_> = ids.iter().map(|id| id.as_u64().unwrap()).collect();
    assert_eq!(ids.len(), distinct.len(), "two panels have one id");
}

/// All texts under `key`, wherever they are.
fn collect(value: &Value, key: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                if name == key
                    && let Value::String(text) = value
                {
                    found.push(text.clone());
                }
                collect(value, key, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, key, found)),
        _ => {}
    }
}
