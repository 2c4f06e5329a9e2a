//! What a gateway counts, as its metrics say.
//!
//! Always holds: a metric that is not there is an error of the test, not a 0.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use crate::http;
use crate::wait;

/// The metrics at one moment: a name with its labels, as the text has it, and its value.
#[derive(Debug, Clone)]
pub struct Metrics(BTreeMap<String, f64>);

impl Metrics {
    /// Those of the gateway whose HTTP address this is.
    ///
    /// # Panics
    /// When they cannot be had.
    pub fn of(address: SocketAddr) -> Self {
        let reply = http::get(address, "/metrics").expect("the gateway answers");
        assert_eq!(reply.status, 200, "{}", reply.body);
        let lines = reply.body.lines().filter(|line| !line.starts_with('#'));
        let values = lines.map(|line| {
            let (name, value) = line.rsplit_once(' ').expect("a name and a value");
            let value = value.parse().expect("a number");
            (name.to_owned(), value)
        });
        Self(values.collect())
    }

    /// The value of `name`, with its labels if it has any, without the prefix: `publishes_total{outcome="stored"}`.
    ///
    /// # Panics
    /// When there is none.
    pub fn get(&self, name: &str) -> f64 {
        let whole = format!("mqtt_gateway_{name}");
        *self
            .0
            .get(&whole)
            .unwrap_or_else(|| panic!("no metric {whole}"))
    }

    /// How often each value of the only label of a counter has come, without those that have not.
    pub fn by_label(&self, name: &str) -> BTreeMap<String, u64> {
        let samples = self.beginning(&format!("{name}{{")).into_iter();
        samples
            .filter(|(_, count)| *count > 0.0)
            .map(|(name, count)| {
                let label = name.split('"').nth(1).unwrap_or_default();
                (label.to_owned(), count as u64)
            })
            .collect()
    }

    /// All whose name begins so, without the prefix.
    pub fn beginning(&self, name: &str) -> Vec<(&str, f64)> {
        let whole = format!("mqtt_gateway_{name}");
        let all = self.0.iter();
        all.filter(|(name, _)| name.starts_with(&whole))
            .map(|(name, value)| (name.as_str(), *value))
            .collect()
    }
}

/// Waits until `name` is at least `least`.
///
/// # Panics
/// When that is not so in time.
pub fn wait_for(address: SocketAddr, name: &str, least: f64, deadline: Duration) {
    wait::until(&format!("{name} is {least}"), deadline, || {
        Metrics::of(address).get(name) >= least
    });
}
