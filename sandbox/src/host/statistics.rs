//! What the host counts, as `/stats` and as the Prometheus page show it.
//!
//! Always holds: names are those of the connectors runtime 0.5.0. The machine's processor and memory figures, and the
//! histograms of stage durations, are left out.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Map, Value, json};

use super::Shared;
use super::connector::{Connector, Status};

/// The page `/stats`.
pub(super) fn stats(shared: &Shared) -> Value {
    let mut connectors = Vec::new();
    for source in shared.sources.values() {
        connectors.push(connector("source", &source.connector, source.version()));
    }
    for sink in shared.sinks.values() {
        connectors.push(connector("sink", &sink.connector, sink.version()));
    }
    let run_time = shared.started.elapsed().unwrap_or_default();
    let started = shared
        .started
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let (sources_running, sinks_running) = running(shared);
    json!({
        "connectors_runtime_version": env!("CARGO_PKG_VERSION"),
        "process_id": std::process::id(),
        "run_time": micros(run_time),
        "start_time": micros(started),
        "sources_total": shared.configured.0,
        "sources_running": sources_running,
        "sinks_total": shared.configured.1,
        "sinks_running": sinks_running,
        "connectors": connectors,
    })
}

/// The page for Prometheus.
pub(super) fn metrics(shared: &Shared) -> String {
    let (sources_running, sinks_running) = running(shared);
    let mut page = String::new();
    for (name, value) in [
        ("iggy_connectors_sources_total", shared.configured.0),
        ("iggy_connectors_sources_running", sources_running),
        ("iggy_connectors_sinks_total", shared.configured.1),
        ("iggy_connectors_sinks_running", sinks_running),
    ] {
        // Writing to a string cannot fail.
        let _ = writeln!(page, "# TYPE {name} gauge\n{name} {value}");
    }
    let sources = shared.sources.values().map(|it| ("source", &it.connector));
    let sinks = shared.sinks.values().map(|it| ("sink", &it.connector));
    let connectors: Vec<_> = sources.chain(sinks).collect();
    for (name, kind, value) in [
        (
            "iggy_connector_messages_produced",
            "source",
            received as Read,
        ),
        ("iggy_connector_messages_sent", "source", passed_on),
        ("iggy_connector_messages_consumed", "sink", received),
        ("iggy_connector_messages_processed", "sink", passed_on),
        ("iggy_connector_errors", "", errors),
    ] {
        let _ = writeln!(page, "# TYPE {name} counter");
        for (of, connector) in &connectors {
            if kind.is_empty() || kind == *of {
                let key = connector
                    .info()
                    .key
                    .replace('\\', "\\\\")
                    .replace('"', "\\\"");
                let value = value(connector).load(Ordering::Relaxed);
                let _ = writeln!(
                    page,
                    "{name}_total{{connector_key=\"{key}\",connector_type=\"{of}\"}} {value}"
                );
            }
        }
    }
    page.push_str("# EOF\n");
    page
}

type Read = fn(&Connector) -> &AtomicU64;

fn received(connector: &Connector) -> &AtomicU64 {
    &connector.counters.received
}

fn passed_on(connector: &Connector) -> &AtomicU64 {
    &connector.counters.passed_on
}

fn errors(connector: &Connector) -> &AtomicU64 {
    &connector.counters.errors
}

fn connector(kind: &str, connector: &Connector, version: String) -> Value {
    let info = connector.info();
    let (received_name, passed_on_name) = match kind {
        "source" => ("messages_produced", "messages_sent"),
        _ => ("messages_consumed", "messages_processed"),
    };
    let mut fields = Map::new();
    fields.insert("key".to_owned(), info.key.into());
    fields.insert("name".to_owned(), info.name.into());
    fields.insert("connector_type".to_owned(), kind.into());
    fields.insert("version".to_owned(), version.into());
    fields.insert("status".to_owned(), json!(info.status));
    fields.insert("enabled".to_owned(), info.enabled.into());
    for (name, read) in [
        (received_name, received as Read),
        (passed_on_name, passed_on),
        ("errors", errors),
    ] {
        fields.insert(
            name.to_owned(),
            read(connector).load(Ordering::Relaxed).into(),
        );
    }
    Value::Object(fields)
}

fn running(shared: &Shared) -> (usize, usize) {
    let is_running = |connector: &Connector| connector.info().status == Status::Running;
    (
        shared
            .sources
            .values()
            .filter(|it| is_running(&it.connector))
            .count(),
        shared
            .sinks
            .values()
            .filter(|it| is_running(&it.connector))
            .count(),
    )
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
