//! What every subject is asked to do.
//!
//! Always holds: a workload is bounded in time and in messages, and the same for all subjects.

use std::time::Duration;

use crate::driver::QoS;

/// Messages on their way to subscribers, when they are published as fast as they are delivered.
const WINDOW: u16 = 64;
/// At a fixed rate, messages on their way before the publisher falls behind: a bound of the driver, not of the subject.
const RATE_WINDOW: u16 = 5_000;

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Workload {
    /// Publish with QoS 1, as fast as it is acknowledged, or at a rate.
    Publish {
        /// Publishers.
        clients: u16,
        /// Unacknowledged messages of each.
        window: u16,
        /// Messages of all together in a second.
        rate: Option<f64>,
    },
    /// One publisher, many subscribers, as fast as it is delivered, or at a rate.
    Deliver {
        /// Subscribers.
        subscribers: u16,
        /// Of publish and subscription.
        qos: QoS,
        /// Messages on their way.
        window: u16,
        /// Messages published in a second.
        rate: Option<f64>,
    },
    /// Connections that do nothing.
    Idle {
        /// How many.
        connections: usize,
    },
    /// Connect, publish one message with QoS 1, disconnect, again.
    Churn {
        /// How many do so at a time.
        at_once: u16,
    },
    /// Publish with QoS 1, kill, start again, count.
    Crash {
        /// How many are acknowledged before.
        messages: u64,
    },
}

/// The figure by which subjects are compared, and the first of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Primary {
    /// Messages, copies or cycles in a second.
    Rate,
    /// The median of the latencies.
    P50,
    /// Their 99th percentile.
    P99,
    /// Memory of each connection.
    BytesPerConnection,
    /// Messages that were kept.
    Kept,
}

impl Workload {
    /// All of them, in the order in which they are measured.
    pub(crate) fn all() -> Vec<Self> {
        let publish = |clients, window| Self::Publish {
            clients,
            window,
            rate: None,
        };
        let deliver = |subscribers, qos| Self::Deliver {
            subscribers,
            qos,
            window: WINDOW,
            rate: None,
        };
        let mut all = vec![
            publish(1, 1),
            publish(50, 20),
            Self::Publish {
                clients: 50,
                window: 20,
                rate: Some(10_000.0),
            },
        ];
        for qos in [QoS::AtMostOnce, QoS::AtLeastOnce] {
            all.extend([1, 50, 200].map(|subscribers| deliver(subscribers, qos)));
        }
        all.extend([
            Self::Deliver {
                subscribers: 200,
                qos: QoS::AtLeastOnce,
                window: RATE_WINDOW,
                rate: Some(200.0),
            },
            Self::Idle { connections: 5_000 },
            Self::Idle {
                connections: 10_000,
            },
            Self::Churn { at_once: 50 },
            Self::Crash { messages: 20_000 },
        ]);
        all
    }

    /// How it is chosen and found again.
    pub(crate) fn key(&self) -> String {
        match self {
            Self::Publish { rate: Some(_), .. } => "publish-rate".to_owned(),
            Self::Publish {
                clients, window, ..
            } => format!("publish-{clients}x{window}"),
            Self::Deliver { rate: Some(_), .. } => "deliver-rate".to_owned(),
            Self::Deliver {
                subscribers, qos, ..
            } => format!("deliver-{subscribers}-qos{}", number(*qos)),
            Self::Idle { connections } => format!("idle-{connections}"),
            Self::Churn { .. } => "churn".to_owned(),
            Self::Crash { .. } => "crash".to_owned(),
        }
    }

    /// What it is, for the head of its table.
    pub(crate) fn title(&self, payload: usize, time: Duration) -> String {
        match self {
            Self::Publish {
                clients,
                window,
                rate,
            } => match rate {
                None => format!(
                    "Publish, QoS 1: {clients} clients × window {window}, {payload} bytes, {time:?}"
                ),
                Some(rate) => format!(
                    "Publish at {rate} messages/s, QoS 1: {clients} clients, {payload} bytes, {time:?}"
                ),
            },
            Self::Deliver {
                subscribers,
                qos,
                window,
                rate,
            } => match rate {
                None => format!(
                    "Deliver to {subscribers}, QoS {}: {window} on the way, {payload} bytes, {time:?}",
                    number(*qos)
                ),
                Some(rate) => format!(
                    "Deliver {rate} messages/s to {subscribers}, QoS {}: {payload} bytes, {time:?}",
                    number(*qos)
                ),
            },
            Self::Idle { connections } => format!("Idle: {connections} connections"),
            Self::Churn { at_once } => format!(
                "Churn: connect, publish with QoS 1, disconnect; {at_once} at a time, {time:?}"
            ),
            Self::Crash { messages } => format!(
                "Crash: {messages} messages acknowledged with QoS 1, `kill -9`, started again"
            ),
        }
    }

    /// The figure by which subjects are compared.
    pub(crate) fn primary(&self) -> Primary {
        match self {
            Self::Publish { rate: Some(_), .. } | Self::Deliver { rate: Some(_), .. } => {
                Primary::P99
            }
            Self::Publish {
                clients: 1,
                window: 1,
                ..
            } => Primary::P50,
            Self::Publish { .. } | Self::Deliver { .. } | Self::Churn { .. } => Primary::Rate,
            Self::Idle { .. } => Primary::BytesPerConnection,
            Self::Crash { .. } => Primary::Kept,
        }
    }

    /// Whether Iggy's SDK has something like it.
    pub(crate) fn is_for_sdk(&self) -> bool {
        match self {
            Self::Publish { rate, .. } => rate.is_none(),
            Self::Deliver {
                subscribers, rate, ..
            } => *subscribers == 1 && rate.is_none(),
            Self::Crash { .. } => true,
            Self::Idle { .. } | Self::Churn { .. } => false,
        }
    }
}

/// 0 or 1.
pub(crate) fn number(qos: QoS) -> u8 {
    u8::from(qos == QoS::AtLeastOnce)
}

/// Whether one of `names` is `key` or stands before a `-` in it; without names everything is chosen.
pub(crate) fn is_chosen(key: &str, names: &[String]) -> bool {
    names.is_empty()
        || names.iter().any(|name| {
            key.strip_prefix(name.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_workload_has_a_key_of_its_own() {
        let all = Workload::all();
        let keys: HashSet<String> = all.iter().map(Workload::key).collect();
        assert_eq!(keys.len(), all.len());
        assert!(keys.contains("publish-50x20") && keys.contains("deliver-200-qos1"));
    }

    #[test]
    fn a_name_chooses_what_it_is_and_what_begins_with_it() {
        let chosen = |key, names: &[&str]| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            is_chosen(key, &names)
        };
        assert!(chosen("deliver-1-qos0", &[]));
        assert!(chosen("deliver-1-qos0", &["crash", "deliver"]));
        assert!(chosen("deliver-1-qos0", &["deliver-1"]));
        assert!(!chosen(
            "deliver-1-qos0",
            &["del", "deliver-1-qos", "deliver-1-qos00"]
        ));
        assert!(!chosen("idle-10000", &["idle-1000"]));
    }
}
