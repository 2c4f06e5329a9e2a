//! Topics that begin with `$` (4.7.2): no rule that does not name them takes them, and no subscription brings them (B55).

use std::time::Duration;

use e2e::deployment::{Builder, Deployment};
use e2e::packet::{self, publish_qos0, suback, subscribe};

use crate::refused_publish::expect_unstorable;

/// Topics that the rules below do not name, whatever they match.
const NOT_NAMED: [&str; 9] = [
    "$",
    "$$",
    "$/",
    "$X/x",
    "$SYS/broker/uptime",
    "$share/group/device/1/x",
    "$app",
    "$apps/1",
    "$APP/1",
];
/// Topics with a `$` that is not the first character are like any other.
const ORDINARY: [&str; 4] = ["a/$SYS/x", " $SYS/x", "/$app/1", "\u{feff}$SYS/x"];
/// How long to see that nothing comes. What is published first would come first: this only guards against a late copy.
const QUIET: Duration = Duration::from_millis(300);

/// A map whose rules match as much as rules can, and which has no fallback.
fn greedy(builder: Builder) -> Builder {
    let stream = builder.stream().to_owned();
    let rule = |pattern: &str, topic: &str| {
        format!(
            "[[rule]]\n\
             mqtt_topic = '{pattern}'\n\
             stream = '{stream}'\n\
             topic = '{topic}'\n"
        )
    };
    builder.map(
        [
            "on_unmatched = 'refuse'\n".to_owned(),
            rule(r"\$app/.*", "app"),
            rule(r"[^/]+/x", "level"),
            rule(r"(\$|\w).*", "alternation"),
            rule(r".*", "everything"),
        ]
        .concat(),
    )
}

fn check_not_named(deployment: &Deployment) {
    let mut subscriber = deployment.client("subscriber");
    let mut publisher = deployment.client("publisher");
    for (id, topic) in (1..).zip(NOT_NAMED) {
        let filters = [("a/before", 1), (topic, 1), ("a/after", 0)];
        subscriber.send(&subscribe(id, &filters));
        subscriber.expect(&suback(id, &[1, 0x80, 0]));

        publisher.send(&publish_qos0(topic, "refused"));
        publisher.ping();
        expect_unstorable(deployment, topic, "dollar_topic", &[]);
    }
    assert_eq!(deployment.stored(), []);

    for (id, topic) in (1..).zip(ORDINARY) {
        subscriber.subscribe(topic, 0);
        publisher.publish(topic, id, "stored");
        assert_eq!(subscriber.expect_publish().topic, topic);
    }
    subscriber.expect_silence(QUIET);
    let mut stored: Vec<String> = deployment
        .stored()
        .iter()
        .map(|record| record.text("mqtt.topic").to_owned())
        .collect();
    stored.sort();
    let mut expected = ORDINARY.to_vec();
    expected.sort_unstable();
    assert_eq!(stored, expected);
}

#[test]
fn b55_the_fallback_takes_no_topic_that_begins_with_a_dollar() {
    check_not_named(&Deployment::start());
}

#[test]
fn b55_a_rule_that_matches_everything_takes_no_topic_that_begins_with_a_dollar() {
    check_not_named(&greedy(Deployment::builder()).start());
}

#[test]
fn b55_a_rule_that_begins_with_a_dollar_stores_and_delivers_its_topics_and_no_others() {
    let deployment = greedy(Deployment::builder()).start();
    let mut subscriber = deployment.client("subscriber");
    let mut publisher = deployment.client("publisher");
    // Neighbours that the same rule stores, and topics that are equal but for the dollar.
    subscriber.send(&subscribe(1, &[("$app/1", 1), ("#", 0), ("$app/#", 0)]));
    subscriber.expect(&suback(1, &[1, 0x80, 0x80]));
    for (id, topic) in (1..).zip(["$app/2", "app/1", "/app/1", "$app/1/", "$app/1"]) {
        publisher.publish(topic, id, topic);
    }
    let message = subscriber.expect_publish();
    assert_eq!((message.topic.as_str(), message.qos), ("$app/1", 1));
    assert_eq!(message.payload, b"$app/1");
    subscriber.send(&packet::puback(message.id));
    subscriber.expect_silence(QUIET);
    let stored: Vec<String> = deployment
        .reader()
        .records(deployment.stream(), "app")
        .iter()
        .map(|record| record.text("mqtt.topic").to_owned())
        .collect();
    assert_eq!(stored, ["$app/2", "$app/1/", "$app/1"]);
}
