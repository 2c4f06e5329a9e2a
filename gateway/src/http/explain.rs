//! Where the messages of a topic are stored and why, as the API says it.
//!
//! What always holds: it is what the running gateway does, by [`TopicMap::explain`](crate::mapping::TopicMap::explain), and
//! asks nobody.

use serde::Serialize;

use crate::config::Produce;
use crate::mapping::Resolution;
use crate::mqtt::{TopicError, TopicName};
use crate::session::Context;

/// See the module.
#[derive(Debug, Serialize)]
pub(super) struct Explained {
    topic: String,
    stored: Option<Stored>,
    refused: Option<Refused>,
    /// Rules that were tried before and do not match.
    missed: Vec<Missed>,
    /// Rules that match too, but come later.
    also: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Stored {
    stream: String,
    topic: String,
    /// `None` without a key, where all partitions are used in turn, and where the connectors runtime chooses.
    partition: Option<u32>,
    partitions: u32,
    /// Whether Iggy has said how many partitions there are; otherwise it is how many the topic is made with.
    exists: bool,
    partition_key: Option<String>,
    rule: String,
    captures: Vec<Capture>,
}

#[derive(Debug, Serialize)]
struct Capture {
    name: String,
    text: String,
}

#[derive(Debug, Serialize)]
struct Refused {
    reason: &'static str,
    text: String,
}

#[derive(Debug, Serialize)]
struct Missed {
    rule: String,
    why: String,
}

/// Explains `topic`.
///
/// # Errors
/// Why no message can be published to it.
pub(super) fn explain(context: &Context, topic: &str) -> Result<Explained, TopicError> {
    let name = TopicName::new(topic)?;
    let explanation = context.map.map().explain(&name);
    let captures: Vec<Capture> = explanation
        .captures
        .into_iter()
        .map(|capture| Capture {
            name: capture.name.unwrap_or_else(|| capture.index.to_string()),
            text: capture.text,
        })
        .collect();
    let (stored, refused) = match explanation.outcome {
        Ok(resolution) => (Some(stored(context, resolution, captures)), None),
        Err(refusal) => {
            let (reason, text) = (refusal.reason(), refusal.to_string());
            (None, Some(Refused { reason, text }))
        }
    };
    Ok(Explained {
        topic: topic.to_owned(),
        stored,
        refused,
        missed: explanation
            .missed
            .into_iter()
            .map(|miss| Missed {
                rule: miss.rule.to_string(),
                why: miss.why.to_string(),
            })
            .collect(),
        also: explanation.also.iter().map(ToString::to_string).collect(),
    })
}

fn stored(context: &Context, resolution: Resolution, captures: Vec<Capture>) -> Stored {
    let known = context.targets.known(&resolution.target);
    let partitions = known.map_or(resolution.plan.spec.partitions, |info| info.partitions);
    let is_ours = context.config.ingest.produce == Produce::Client;
    let key = resolution.key.as_ref().filter(|_| is_ours);
    Stored {
        stream: resolution.target.stream.to_string(),
        topic: resolution.target.topic.to_string(),
        partition: key.map(|key| key.partition(partitions.max(1))),
        partitions,
        exists: known.is_some(),
        partition_key: resolution.key.as_ref().map(ToString::to_string),
        rule: resolution.rule.to_string(),
        captures,
    }
}
