//! Topics as devices really use them, and worse, carried unchanged from the publisher over Iggy to the subscriber (B53).

use std::collections::BTreeSet;

use e2e::deployment::Deployment;
use e2e::packet;
use e2e::records::Record;

/// The longest topic that MQTT can say, in bytes.
const LONGEST: usize = 65_535;
/// The most levels that the limits allow by default.
const MOST_LEVELS: usize = 256;
/// The longest value of a header in Iggy, in bytes.
const LONGEST_VALUE: usize = 255;

/// Every one is legal in MQTT (4.7.3); most are no legal name in Iggy, or mean something in a pattern, in a template, in a
/// file or in a query.
const TOPICS: [&str; 58] = [
    // From the field.
    "Living Room/Lamp 1",
    "a.b/c",
    "ü/東京/🚀",
    "spBv1.0/Grp A/NDATA/n",
    "*",
    "a>b",
    "%2F",
    "\"q\"",
    "building/north/room/42/TEMP",
    // Blanks.
    " ",
    "  ",
    " leading",
    "trailing ",
    " / / ",
    "a/ b",
    "a /b",
    "\u{a0}no-break",
    "\u{3000}ideographic",
    "zero\u{200b}width",
    "a\tb",
    "a\nb",
    "a\r\n",
    "\u{b}\u{c}",
    // Empty levels.
    "/",
    "//",
    "///",
    "/a",
    "a/",
    "a//b",
    "/a//",
    // Control characters, which are legal except for U+0000.
    "\u{1}",
    "\u{1b}[31m",
    "\u{7f}\u{80}\u{85}",
    "\u{2028}\u{2029}",
    // The byte order mark.
    "\u{feff}bom",
    "b\u{feff}om",
    "bom\u{feff}",
    "\u{feff}",
    // Equal after normalisation, with case folded, or to the eye.
    "é",
    "e\u{301}",
    "É",
    "\u{fb00}/\u{17f}/\u{212a}",
    "\u{430}/a",
    "\u{202e}right to left",
    "עברית/عربى",
    "👩\u{200d}👩\u{200d}👧/🏴\u{e0067}\u{e0062}\u{e007f}",
    // What means something elsewhere.
    ".*",
    "^a$",
    "(a|b)[c]{1}?",
    r"\d\w\Q.\E\\",
    "(?i)A",
    "a$0",
    "a/$1/${0}/$$",
    "'/''/'''",
    "{\"a\": [1]}",
    "../../etc/passwd",
    "a&b=c;d,e|f<g",
    "~!@%^*()-_=[]{}:?",
];

/// [`TOPICS`], with topics of every plane of Unicode and of every length up to `longest` that could matter.
fn topics(longest: usize) -> Vec<String> {
    let mut topics: Vec<String> = TOPICS.map(str::to_owned).to_vec();
    // Assigned or not: each is a code point that MQTT allows.
    for plane in 0..=16 {
        for place in [0x0100, 0x1234, 0xFFFD] {
            topics.extend(char::from_u32(plane << 16 | place).map(String::from));
        }
    }
    topics.push("/".repeat(MOST_LEVELS - 1));
    for length in [254, 255, 256, 510, 511, longest - 1, longest] {
        topics.push("l".repeat(length));
        // Characters of two, three and four bytes, which end where a header's value ends or do not.
        for character in ['ü', '東', '🚀'] {
            let mut topic = "t".repeat(length % character.len_utf8());
            topic.extend(std::iter::repeat_n(
                character,
                length / character.len_utf8(),
            ));
            topics.push(topic);
        }
    }
    topics
}

/// The whole topic from the headers of a record, whose values are as short as Iggy wants them.
fn whole_topic(record: &Record) -> String {
    let mut topic = String::new();
    for number in 0.. {
        let part = match number {
            0 => record.text("mqtt.topic"),
            _ => record.text(&format!("mqtt.topic.{number}")),
        };
        assert!(part.len() <= LONGEST_VALUE);
        if part.is_empty() {
            return topic;
        }
        topic.push_str(part);
    }
    topic
}

#[test]
fn b53_every_legal_topic_is_stored_and_received_as_it_was_published() {
    let deployment = Deployment::builder()
        .limit("max_subscriptions", 1_000)
        .start();
    check_carried(&deployment, &topics(LONGEST));
}

#[test]
fn b53_every_legal_topic_that_a_rule_cuts_apart_is_stored_and_received_as_it_was_published() {
    let deployment = Deployment::builder()
        .limit("max_subscriptions", 1_000)
        .start();
    let longest = LONGEST - "device//x".len();
    let topics: Vec<String> = topics(longest)
        .iter()
        .map(|topic| format!("device/{topic}/x"))
        .filter(|topic| topic.split('/').count() <= MOST_LEVELS)
        .collect();
    check_carried(&deployment, &topics);
}

/// Subscribes to each topic, publishes to each, and checks that each comes back once and is stored once.
fn check_carried(deployment: &Deployment, topics: &[String]) {
    let mut subscriber = deployment.client("subscriber");
    for topic in topics {
        subscriber.subscribe(topic, 1);
    }
    let mut publisher = deployment.client("publisher");
    for (id, topic) in (1..).zip(topics) {
        publisher.publish(topic, id, id.to_string());
    }
    let mut left: BTreeSet<(String, Vec<u8>)> = (1_u16..)
        .zip(topics)
        .map(|(id, topic)| (topic.clone(), id.to_string().into_bytes()))
        .collect();
    assert_eq!(left.len(), topics.len());
    let mut to_store = left.clone();
    while !left.is_empty() {
        let message = subscriber.expect_publish();
        subscriber.send(&packet::puback(message.id));
        let message = (message.topic, message.payload);
        assert!(left.remove(&message), "unexpected: {message:?}");
    }
    subscriber.ping();
    for record in deployment.stored() {
        let stored = (whole_topic(&record), record.payload);
        assert!(to_store.remove(&stored), "unexpected: {stored:?}");
    }
    assert_eq!(to_store, BTreeSet::new());
}

#[test]
fn topics_that_only_look_alike_are_different_topics() {
    let deployment = Deployment::start();
    let mut publisher = deployment.client("publisher");
    let mut subscriber = deployment.client("subscriber");
    let alike: [(&str, &[&str]); 3] = [
        (
            "device/1/a/b",
            &[
                "device/1/a//b",
                "device/1/a/b/",
                "device/1//a/b",
                "device/1/A/b",
                "device/1/a/b ",
                "device/1/ a/b",
                "device/1/a/\u{feff}b",
                "device/1/\u{430}/b",
            ],
        ),
        (
            "device/1/é",
            &["device/1/e\u{301}", "device/1/É", "device/1/e"],
        ),
        ("device/1/.", &["device/1/a", "device/1/", "device/1/.."]),
    ];
    for (subscribed, others) in alike {
        subscriber.subscribe(subscribed, 0);
        for (id, topic) in (1..).zip(others.iter().chain([&subscribed])) {
            publisher.publish(topic, id, topic);
        }
        // Only the last one, and as all have one key it comes last.
        assert_eq!(subscriber.expect_publish().topic, subscribed);
    }
    subscriber.ping();
}
