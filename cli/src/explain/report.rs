//! What happens to the messages of one topic, as programs read it.
//!
//! What always holds: rule, captures, place and reasons are those of [`TopicMap::explain`](mqtt_gateway::mapping::TopicMap),
//! the headers those of [`envelope::seal`] for a sample message.

use bytes::Bytes;
use mqtt_gateway::log::HeaderValue;
use mqtt_gateway::mapping::envelope::{self, HeaderSet, Published};
use mqtt_gateway::mapping::{Refusal, RuleId};
use mqtt_gateway::mqtt::{ClientId, PacketId, QoS, TopicName};
use serde::Serialize;
use serde_json::Value;

use super::Loaded;
use super::access::AccessReport;
use super::place::{PartitionCount, PlanReport, RuleReport, Rules, TargetReport};

/// Who publishes the sample message.
pub(super) const SAMPLE_CLIENT: &str = "client-1";

/// The whole explanation.
#[derive(Debug, Serialize)]
pub(crate) struct TopicReport {
    /// The MQTT topic.
    pub(crate) topic: String,
    /// The file with the topic map.
    pub(crate) map: String,
    /// What happens.
    pub(crate) outcome: Outcome,
    /// Why it is refused or invalid: a short name that stays the same.
    pub(crate) reason: Option<&'static str>,
    /// The same for people, with what to do.
    pub(crate) message: Option<String>,
    /// What decided.
    pub(crate) rule: Option<RuleReport>,
    /// What the groups of its pattern matched.
    pub(crate) captures: Vec<CaptureReport>,
    /// Where messages are stored.
    pub(crate) target: Option<TargetReport>,
    /// How the Iggy topic is made if it is missing.
    pub(crate) creation: Option<PlanReport>,
    /// The headers of a stored message.
    pub(crate) headers: Vec<HeaderReport>,
    /// Rules that were tried before and do not match.
    pub(crate) missed: Vec<MissReport>,
    /// Rules that match too, but come later.
    pub(crate) also: Vec<RuleReport>,
    /// What a client may do, if permissions are given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) access: Option<AccessReport>,
}

/// What happens to messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Outcome {
    /// They are stored.
    Stored,
    /// The map has no place for them.
    Refused,
    /// There can be none.
    Invalid,
}

/// What a group matched.
#[derive(Debug, Serialize)]
pub(crate) struct CaptureReport {
    /// Its number, from 1.
    pub(crate) index: usize,
    /// Its name.
    pub(crate) name: Option<String>,
    /// The text.
    pub(crate) text: String,
}

/// A header.
#[derive(Debug, Serialize)]
pub(crate) struct HeaderReport {
    /// Its key.
    pub(crate) key: String,
    /// Its value; an example if it is the publisher's.
    pub(crate) value: Value,
    /// The kind of the value.
    pub(crate) kind: &'static str,
    /// Whether the value is the publisher's.
    pub(crate) from_publisher: bool,
    /// When a message has it.
    pub(crate) when: When,
}

/// When a message has a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum When {
    /// Always.
    Always,
    /// When it was published with QoS 1.
    Qos1,
    /// When it was published with RETAIN.
    Retain,
    /// When it was published with DUP.
    Dup,
    /// When its payload is empty.
    EmptyPayload,
}

/// A rule that does not match.
#[derive(Debug, Serialize)]
pub(crate) struct MissReport {
    /// The rule.
    pub(crate) rule: RuleReport,
    /// Why it does not match.
    pub(crate) why: String,
}

impl TopicReport {
    /// Whether messages are not stored.
    pub(crate) fn is_refused(&self) -> bool {
        self.outcome != Outcome::Stored
            || self
                .access
                .as_ref()
                .is_some_and(|access| access.is_refused(false))
    }
}

/// Explains `topic`; its Iggy topic has as many partitions as `partitions` says, or the map.
pub(crate) fn topic(loaded: &Loaded, topic: &str, partitions: Option<u32>) -> TopicReport {
    let mut report = TopicReport {
        topic: topic.to_owned(),
        map: loaded.file.clone(),
        outcome: Outcome::Stored,
        reason: None,
        message: None,
        rule: None,
        captures: Vec::new(),
        target: None,
        creation: None,
        headers: Vec::new(),
        missed: Vec::new(),
        also: Vec::new(),
        access: None,
    };
    let topic = match possible(loaded, topic) {
        Ok(topic) => topic,
        Err(Impossible { reason, message }) => {
            report.outcome = Outcome::Invalid;
            report.reason = Some(reason);
            report.message = Some(format!(
                "{message}; the gateway disconnects a client that publishes to it"
            ));
            return report;
        }
    };
    let rules = Rules::of(&loaded.map);
    let explanation = loaded.map.explain(&topic);
    let captures = explanation.captures.into_iter();
    report.captures = captures
        .map(|capture| CaptureReport {
            index: capture.index,
            name: capture.name,
            text: capture.text,
        })
        .collect();
    let missed = explanation.missed.iter();
    report.missed = missed
        .map(|miss| MissReport {
            rule: rules.report(miss.rule),
            why: miss.why.to_string(),
        })
        .collect();
    report.also = explanation
        .also
        .iter()
        .map(|rule| rules.report(*rule))
        .collect();
    match explanation.outcome {
        Ok(resolution) => {
            let count = PartitionCount::of(partitions, &resolution.plan);
            let key = resolution.key.as_ref();
            report.rule = Some(rules.report(resolution.rule));
            report.target = Some(TargetReport::new(&resolution.target, key, count));
            report.creation = Some(PlanReport::new(&resolution.plan));
            report.headers = headers(&topic, loaded.headers);
        }
        Err(refusal) => {
            report.outcome = Outcome::Refused;
            report.reason = Some(refusal.reason());
            report.message = Some(refusal.to_string());
            report.rule = refusing_rule(&refusal).map(|rule| rules.report(rule));
        }
    }
    report
}

/// The reason of invalid topics, beside those of refused ones.
pub(crate) const INVALID_TOPIC: &str = "invalid_topic";

/// Why no message can have a topic.
pub(crate) struct Impossible {
    /// A short name that stays the same.
    pub(crate) reason: &'static str,
    /// The same for people.
    pub(crate) message: String,
}

/// The topic, if the gateway lets clients publish to it.
pub(crate) fn possible(loaded: &Loaded, topic: &str) -> Result<TopicName, Impossible> {
    let topic = TopicName::new(topic).map_err(|error| Impossible {
        reason: INVALID_TOPIC,
        message: error.to_string(),
    })?;
    match loaded.over_a_limit(topic.as_str()) {
        None => Ok(topic),
        Some(violation) => Err(Impossible {
            reason: violation.reason(),
            message: violation.to_string(),
        }),
    }
}

/// The rule that matches but cannot be used.
pub(crate) fn refusing_rule(refusal: &Refusal) -> Option<RuleId> {
    match refusal {
        Refusal::InvalidName { rule, .. } => Some(*rule),
        Refusal::NoRule | Refusal::DollarTopic => None,
    }
}

/// The headers of a message with everything that can be in one.
fn headers(topic: &TopicName, set: HeaderSet) -> Vec<HeaderReport> {
    let Some(client_id) = ClientId::new(SAMPLE_CLIENT) else {
        return Vec::new();
    };
    let sample = Published {
        topic,
        qos: QoS::AtLeastOnce,
        packet_id: PacketId::new(1),
        retain: true,
        dup: true,
        client_id: &client_id,
        payload: &Bytes::new(),
    };
    let record = envelope::seal(&sample, 0, set);
    let mut headers: Vec<HeaderReport> = record
        .headers
        .iter()
        .map(|(key, value)| {
            let (value, kind) = match value {
                HeaderValue::Text(text) => (Value::from(&**text), "string"),
                HeaderValue::U8(number) => (Value::from(*number), "uint8"),
                HeaderValue::U16(number) => (Value::from(*number), "uint16"),
                HeaderValue::Bool(truth) => (Value::from(*truth), "bool"),
                HeaderValue::Other(bytes) => (Value::from(bytes.to_vec()), "raw"),
            };
            HeaderReport {
                key: key.to_owned(),
                value,
                kind,
                from_publisher: [envelope::QOS, envelope::CLIENT_ID, envelope::PACKET_ID]
                    .contains(&key),
                when: match key {
                    envelope::PACKET_ID => When::Qos1,
                    envelope::RETAIN => When::Retain,
                    envelope::DUP => When::Dup,
                    envelope::EMPTY => When::EmptyPayload,
                    _ => When::Always,
                },
            }
        })
        .collect();
    // The topic and its parts in the order of the parts; a key with a larger number is longer.
    headers.sort_by_cached_key(|header| {
        let is_topic = header.key.starts_with(envelope::TOPIC);
        let length = if is_topic { header.key.len() } else { 0 };
        (!is_topic, header.when != When::Always, length)
    });
    headers
}
