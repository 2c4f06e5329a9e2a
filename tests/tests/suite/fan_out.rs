//! Many subscribers of one topic: Iggy is read once for all of them.

use e2e::binaries;
use e2e::deployment::Deployment;
use e2e::packet;
use e2e::raw::RawClient;

const SUBSCRIBERS: usize = 200;
const MESSAGES: u16 = 25;
const TOPIC: &str = "device/1/x";

#[test]
fn d1_two_hundred_subscribers_cause_one_read_of_each_message() {
    let deployment = Deployment::start();
    let mut subscribers: Vec<RawClient> = (0..SUBSCRIBERS)
        .map(|number| {
            let mut client = deployment.client(&format!("subscriber-{number}"));
            client.subscribe(TOPIC, 1);
            client
        })
        .collect();
    let before = deployment.iggy.counters(deployment.stream(), "devices");

    let mut publisher = deployment.client("publisher");
    for id in 1..=MESSAGES {
        publisher.publish(TOPIC, id, id.to_string());
        for subscriber in &mut subscribers {
            let message = subscriber.expect_publish();
            assert_eq!(message.payload, id.to_string().as_bytes());
            assert_eq!((message.topic.as_str(), message.qos), (TOPIC, 1));
            subscriber.send(&packet::puback(message.id));
        }
    }

    let (Some(before), Some(after)) = (
        before,
        deployment.iggy.counters(deployment.stream(), "devices"),
    ) else {
        binaries::skipped(
            "one poll a batch",
            "only the sandbox counts polls, so only delivery was checked",
        );
        return;
    };
    assert_eq!(
        after.polls - before.polls,
        after.appends - before.appends,
        "there is one poll for each batch: {before:?}, {after:?}"
    );
    assert_eq!(
        after.appended_messages - before.appended_messages,
        u64::from(MESSAGES)
    );
    assert_eq!(
        after.polled_messages - before.polled_messages,
        u64::from(MESSAGES),
        "each message is read from Iggy once: {before:?}, {after:?}"
    );
}
