//! What the topic map says of topics that the gateway makes is what the Iggy server has of them.

use std::time::Duration;

use e2e::binaries;
use e2e::deployment::Deployment;
use iggy::prelude::{
    HeaderKey, IggyByteSize, IggyDuration, IggyExpiry, MaxTopicSize, TopicDetails,
    topic_option_keys,
};

/// A table of the map, and what its topic is to be like. Nothing: what the server does by default.
struct Case {
    topic: &'static str,
    lines: &'static str,
    partitions: u32,
    expiry: Option<IggyExpiry>,
    size: Option<MaxTopicSize>,
    durability: &'static str,
}

fn after(duration: Duration) -> Option<IggyExpiry> {
    Some(IggyExpiry::ExpireDuration(IggyDuration::from(duration)))
}

fn bytes(bytes: u64) -> Option<MaxTopicSize> {
    Some(MaxTopicSize::Custom(IggyByteSize::from(bytes)))
}

/// Whether whoever made the topic asked for the setting `key`, rather than the server.
fn asked_for(details: &TopicDetails, key: &str) -> bool {
    details
        .options
        .iter()
        .any(|(name, option)| name.as_str() == Ok(key) && option.explicit)
}

fn text(details: &TopicDetails, key: &str) -> String {
    let option = HeaderKey::try_from(key)
        .ok()
        .and_then(|key| details.options.get(&key));
    option.map_or_else(String::new, |option| option.value.to_string_value())
}

#[test]
fn the_settings_of_a_rule_and_of_the_file_reach_the_server() {
    let builder = Deployment::builder();
    let stream = builder.stream().to_owned();
    let cases = [
        Case {
            topic: "boundless",
            lines: "message_expiry = 'never'\nmax_topic_size = 'unlimited'\ndurability = 'commit'\n",
            partitions: 2,
            expiry: Some(IggyExpiry::NeverExpire),
            size: Some(MaxTopicSize::Unlimited),
            durability: "replicated",
        },
        Case {
            topic: "bounded",
            lines: "message_expiry = '12h'\nmax_topic_size = '3GiB'\npartitions = 5\n",
            partitions: 5,
            expiry: after(Duration::from_secs(12 * 60 * 60)),
            size: bytes(3 << 30),
            durability: "persisted",
        },
        Case {
            topic: "as_the_server_likes",
            lines: "message_expiry = 'server_default'\nmax_topic_size = 'server_default'\npartitions = 1\n",
            partitions: 1,
            expiry: None,
            size: None,
            durability: "persisted",
        },
        Case {
            topic: "as_the_file_says",
            lines: "",
            partitions: 2,
            expiry: after(Duration::from_secs(30 * 24 * 60 * 60)),
            size: bytes(2_000_000_000),
            durability: "persisted",
        },
    ];
    let mut map = format!(
        "default_stream = '{stream}'\n\
         default_topic = 'rest'\n\
         partitions = 2\n\
         message_expiry = '30days'\n\
         max_topic_size = '2GB'\n"
    );
    for case in &cases {
        let Case { topic, lines, .. } = case;
        // One topic is made at the start, the other when a publish needs it.
        map += &format!(
            "[[rule]]\n\
             mqtt_topic = 'constant/{topic}'\n\
             stream = '{stream}'\n\
             topic = '{topic}'\n\
             {lines}\
             [[rule]]\n\
             mqtt_topic = '(dynamic)/{topic}'\n\
             stream = '{stream}'\n\
             topic = '$1_{topic}'\n\
             {lines}"
        );
    }
    let mut builder = builder.map(map);
    for case in &cases {
        builder = builder.target(&stream, &format!("dynamic_{}", case.topic), case.partitions);
    }
    let deployment = builder.start();
    if !deployment.iggy.creates_topics() {
        binaries::skipped(
            "the settings of topics",
            "this Iggy does not let the gateway create topics",
        );
        return;
    }
    let mut client = deployment.client("client");
    for (id, case) in (1..).zip(&cases) {
        client.publish(&format!("dynamic/{}", case.topic), id, "makes the topic");
        for topic in [case.topic.to_owned(), format!("dynamic_{}", case.topic)] {
            let Some(details) = deployment.reader().topic(&stream, &topic) else {
                panic!("{topic} was not made");
            };
            assert_eq!(details.partitions_count, case.partitions, "{topic}");
            assert_eq!(
                text(&details, topic_option_keys::DURABILITY),
                case.durability,
                "{topic}"
            );
            assert_eq!(
                asked_for(&details, topic_option_keys::MESSAGE_EXPIRY),
                case.expiry.is_some(),
                "{topic}"
            );
            assert_eq!(
                asked_for(&details, topic_option_keys::MAX_TOPIC_SIZE),
                case.size.is_some(),
                "{topic}"
            );
            if let Some(expiry) = case.expiry {
                assert_eq!(details.message_expiry, expiry, "{topic}");
            }
            if let Some(size) = case.size {
                assert_eq!(details.max_topic_size, size, "{topic}");
            }
        }
    }
}
