//! Topics: what the server says of one, and how one is asked for.
//!
//! What always holds: a policy is only claimed if the server names it.

use ::iggy::prelude::{
    self as sdk, IggyByteSize, IggyDuration, IggyError, IggyExpiry, MaxTopicSize, ResourceOptions,
    TopicCreateOptions, TopicDetails, topic_option_keys,
};

use crate::log::{Durability, Expiry, LogError, Target, TopicInfo, TopicSize, TopicSpec};

/// The options of servers before the release 0.9.0, which had no `durability`: whether each write is flushed to stable
/// storage, and how many messages are gathered before a write.
const OLD_FSYNC: &str = "enforce_fsync";

/// What the server says of a topic.
pub(super) fn info(details: &TopicDetails) -> TopicInfo {
    TopicInfo {
        partitions: details.partitions_count,
        durability: durability(&details.options),
        created_micros: details.created_at.as_micros(),
    }
}

/// The options to create a topic with.
///
/// The offsets that consumers commit get the same policy as the messages: a subscriber that did not acknowledge is told
/// from them after a crash.
pub(super) fn create_options(spec: &TopicSpec) -> Result<TopicCreateOptions, LogError> {
    if spec.partitions == 0 {
        return Err(LogError::Refused(
            "a topic needs at least one partition".into(),
        ));
    }
    let durability = match spec.durability {
        Durability::Commit => sdk::Durability::Replicated,
        Durability::Persisted => sdk::Durability::Persisted,
    };
    Ok(TopicCreateOptions {
        partitions_count: Some(spec.partitions),
        message_expiry: expiry(spec.message_expiry),
        max_topic_size: topic_size(spec.max_topic_size),
        durability,
        consumer_offset_durability: durability,
        ..TopicCreateOptions::default()
    })
}

fn expiry(expiry: Expiry) -> Option<IggyExpiry> {
    match expiry {
        Expiry::ServerDefault => None,
        Expiry::Never => Some(IggyExpiry::NeverExpire),
        Expiry::After(duration) => Some(IggyExpiry::ExpireDuration(IggyDuration::from(duration))),
    }
}

fn topic_size(size: TopicSize) -> Option<MaxTopicSize> {
    match size {
        TopicSize::ServerDefault => None,
        TopicSize::Unlimited => Some(MaxTopicSize::Unlimited),
        TopicSize::Bytes(bytes) => Some(MaxTopicSize::Custom(IggyByteSize::from(bytes))),
    }
}

/// What to do about a server that cannot create the topic because it does not know one of its options.
pub(super) fn explain_creation(error: &IggyError, target: &Target) -> Option<LogError> {
    matches!(error, IggyError::UnsupportedOptionKey(_) | IggyError::InvalidOptionValue(_)).then(|| {
        LogError::Refused(format!(
            "{target} cannot be created: the server does not accept one of the topic's options (Iggy error {}), as servers \
             before 0.9.0 do with `durability`; create it beforehand with Iggy's command line (`iggy topic create`) or HTTP API \
             (POST /streams/{}/topics), or run Iggy 0.9.0",
            error.as_code(),
            target.stream,
        ))
    })
}

fn durability(options: &ResourceOptions) -> Option<Durability> {
    let option = |name: &str| {
        options
            .iter()
            .find(|(key, _)| key.as_str() == Ok(name))
            .map(|(_, option)| &option.value)
    };
    if let Some(policy) = option(topic_option_keys::DURABILITY) {
        return match policy.as_str().ok()?.parse().ok()? {
            sdk::Durability::Replicated => Some(Durability::Commit),
            sdk::Durability::Persisted => Some(Durability::Persisted),
        };
    }
    let fsync = option(OLD_FSYNC)?.as_bool().ok()?;
    let gathered = option(topic_option_keys::MESSAGES_REQUIRED_TO_SAVE)
        .and_then(|count| count.as_uint32().ok());
    Some(if fsync && gathered == Some(1) {
        Durability::Persisted
    } else {
        Durability::Commit
    })
}

#[cfg(test)]
mod tests {
    use std::str::FromStr;

    use ::iggy::prelude::{HeaderKey, HeaderValue, OptionValue};

    use std::time::Duration;

    use super::*;
    use crate::log::Name;

    fn options(entries: &[(&str, HeaderValue)]) -> ResourceOptions {
        let entry = |(name, value): &(&str, HeaderValue)| {
            (
                HeaderKey::from_str(name).unwrap(),
                OptionValue {
                    value: value.clone(),
                    explicit: true,
                },
            )
        };
        entries.iter().map(entry).collect()
    }

    fn text(value: &str) -> HeaderValue {
        HeaderValue::from_str(value).unwrap()
    }

    #[test]
    fn a_policy_is_read_from_the_options_and_claimed_only_if_it_is_named() {
        assert_eq!(durability(&options(&[])), None);
        assert_eq!(
            durability(&options(&[("durability", text("persisted"))])),
            Some(Durability::Persisted)
        );
        assert_eq!(
            durability(&options(&[("durability", text("replicated"))])),
            Some(Durability::Commit)
        );
        assert_eq!(
            durability(&options(&[("durability", text("something new"))])),
            None
        );
        assert_eq!(
            durability(&options(&[("durability", HeaderValue::from(1_u8))])),
            None
        );
    }

    #[test]
    fn an_older_servers_topic_is_persisted_only_if_every_message_is_written_and_flushed() {
        let of = |fsync, count: u32| {
            durability(&options(&[
                ("enforce_fsync", HeaderValue::from(fsync)),
                ("messages_required_to_save", HeaderValue::from(count)),
            ]))
        };
        assert_eq!(of(true, 1), Some(Durability::Persisted));
        assert_eq!(of(true, 1024), Some(Durability::Commit));
        assert_eq!(of(false, 1), Some(Durability::Commit));
        assert_eq!(
            durability(&options(&[("enforce_fsync", HeaderValue::from(true))])),
            Some(Durability::Commit)
        );
    }

    #[test]
    fn a_spec_becomes_the_options_it_asks_for() {
        let spec = TopicSpec {
            partitions: 3,
            durability: Durability::Persisted,
            message_expiry: Expiry::After(Duration::from_secs(60)),
            max_topic_size: TopicSize::Bytes(2_000_000_000),
        };
        let asked = create_options(&spec).unwrap();
        assert_eq!(asked.partitions_count, Some(3));
        assert_eq!(
            (asked.durability, asked.consumer_offset_durability),
            (sdk::Durability::Persisted, sdk::Durability::Persisted)
        );
        assert_eq!(asked.message_expiry.map(u64::from), Some(60_000_000));
        assert_eq!(asked.max_topic_size.map(u64::from), Some(2_000_000_000));
        let default = create_options(&TopicSpec {
            durability: Durability::Commit,
            ..TopicSpec::default()
        })
        .unwrap();
        assert_eq!(
            (default.message_expiry, default.max_topic_size),
            (None, None)
        );
        assert_eq!(default.durability, sdk::Durability::Replicated);
        let boundless = create_options(&TopicSpec {
            message_expiry: Expiry::Never,
            max_topic_size: TopicSize::Unlimited,
            ..TopicSpec::default()
        })
        .unwrap();
        assert_eq!(
            (boundless.message_expiry, boundless.max_topic_size),
            (Some(IggyExpiry::NeverExpire), Some(MaxTopicSize::Unlimited))
        );
        assert!(
            create_options(&TopicSpec {
                partitions: 0,
                ..TopicSpec::default()
            })
            .is_err()
        );
    }

    #[test]
    fn an_option_that_the_server_lacks_is_explained_with_what_to_do() {
        let target = Target {
            stream: Name::new("plant").unwrap(),
            topic: Name::new("telemetry").unwrap(),
        };
        let error = explain_creation(&IggyError::from_code(4041), &target).unwrap();
        assert!(!error.is_transient());
        assert!(
            error.to_string().contains("POST /streams/plant/topics"),
            "{error}"
        );
        assert_eq!(explain_creation(&IggyError::from_code(41), &target), None);
    }
}
