//! Iggy topics that a rule names and that are not there, at the start and while the gateway runs (B13).

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use e2e::binaries;
use e2e::config::{Files, GATEWAY, SINK, SOURCE, Target};
use e2e::deployment::{Builder, Deployment};
use e2e::host::Kind;
use e2e::packet;
use e2e::ports::{free_port, unique_name};
use e2e::raw::{Answer, RawClient};
use e2e::records::Record;
use e2e::wait::{self, PATIENCE};

use crate::refused_publish::expect_unstorable;

/// A topic whose rule makes it by itself.
const OTHER: &str = "device/1/x";
/// A topic whose rule has `auto_create = false`.
const GUARDED: &str = "guarded/1/x";
/// How long a message that comes may take, before another one is tried.
const INTERVAL: Duration = Duration::from_millis(200);

/// The stream of [`GUARDED`], beside the test's own one.
fn guarded_stream(stream: &str) -> String {
    format!("{stream}_guarded")
}

/// A map with a rule for [`OTHER`] and one for [`GUARDED`].
fn map(stream: &str, auto_create: bool) -> String {
    let guarded = guarded_stream(stream);
    format!(
        "default_stream = '{stream}'\n\
         default_topic = 'rest'\n\
         [[rule]]\n\
         mqtt_topic = 'device/([^/]+)/.*'\n\
         stream = '{stream}'\n\
         topic = 'devices'\n\
         partition_key = '$1'\n\
         [[rule]]\n\
         mqtt_topic = 'guarded/([^/]+)/.*'\n\
         stream = '{guarded}'\n\
         topic = 'machines'\n\
         partition_key = '$1'\n\
         auto_create = {auto_create}\n"
    )
}

/// Adds a source and a sink of a second gateway whose map `second-map.toml` is `map`; gives their keys.
fn add_second_gateway(files: &Files, listen: SocketAddr, map: &str) {
    files.write("second.toml", &files.read(GATEWAY));
    files.set("second.toml", &["name"], "second");
    files.set("second.toml", &["listen"], listen.to_string());
    let path = |file: &str| files.path(file).display().to_string();
    files.set("second.toml", &["topic_map"], path("second-map.toml"));
    files.write("second-map.toml", map);
    for (shipped, key) in [(SOURCE, SECOND_SOURCE), (SINK, SECOND_SINK)] {
        let file = format!("connectors/{key}.toml");
        files.write(&file, &files.read(shipped));
        files.set(&file, &["key"], key);
        files.set(&file, &["path"], binaries::plugin().display().to_string());
        files.set(&file, &["plugin_config", "config"], path("second.toml"));
    }
}

const SECOND_SOURCE: &str = "second_source";
const SECOND_SINK: &str = "second_sink";

/// Starts with a second gateway whose map is `map`, and checks that neither of its connectors runs and that both say why
/// in a line with all of `told`, that it does not listen, and that the first gateway serves.
fn start_with_missing(builder: Builder, map: &str, told: &[&str]) -> Deployment {
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let deployment = builder
        .settings_in_files()
        .start_with(|files| add_second_gateway(files, listen, map));
    for (kind, key, who) in [
        (Kind::Source, SECOND_SOURCE, "source connector"),
        (Kind::Sink, SECOND_SINK, "sink connector"),
    ] {
        deployment.host.wait_for_status(kind, key, "error");
        let parts = [&["ERROR", who], told].concat();
        deployment.host.wait_for_log(&parts);
    }
    deployment.wait_until_running();
    assert!(
        RawClient::try_open(listen).is_err(),
        "the second gateway listens"
    );
    let mut client = deployment.client("client");
    client.subscribe(OTHER, 0);
    client.send(&packet::publish_qos0(OTHER, "untouched"));
    assert_eq!(client.expect_publish().payload, b"untouched");
    deployment
}

#[test]
fn b13_a_start_names_the_rule_and_the_stream_that_is_missing_and_makes_nothing() {
    let missing = unique_name();
    let map = format!(
        "on_unmatched = 'refuse'\n\
         [[rule]]\n\
         mqtt_topic = 'a/([^/]+)'\n\
         stream = '{missing}_$1'\n\
         topic = 'not known before the first message'\n\
         auto_create = false\n\
         [[rule]]\n\
         mqtt_topic = 'b/.*'\n\
         stream = '{missing}'\n\
         topic = 'machines'\n\
         auto_create = false\n"
    );
    let told = ["rule 2", "auto_create", &format!("{missing}/machines")];
    let deployment = start_with_missing(Deployment::builder(), &map, &told);
    assert!(!deployment.reader().has_stream(&missing));
}

#[test]
fn b13_a_start_names_the_fallback_when_only_its_topic_is_missing() {
    let stream = unique_name();
    let map = format!(
        "default_stream = '{stream}'\n\
         default_topic = 'missing'\n\
         auto_create = false\n\
         [[rule]]\n\
         mqtt_topic = 'a/.*'\n\
         stream = '{stream}'\n\
         topic = 'there'\n"
    );
    let builder = Deployment::builder().existing(Target::new(&stream, "there", 1));
    let told = ["the fallback", "auto_create", &format!("{stream}/missing")];
    let deployment = start_with_missing(builder, &map, &told);
    assert!(deployment.reader().topic(&stream, "missing").is_none());
}

#[test]
fn b13_a_start_names_a_topic_of_other_producers_that_is_missing_and_does_not_make_it() {
    let stream = unique_name();
    let map = format!(
        "on_unmatched = 'refuse'\n\
         [[rule]]\n\
         mqtt_topic = 'a/.*'\n\
         stream = '{stream}'\n\
         topic = 'there'\n\
         [[foreign]]\n\
         stream = '{stream}'\n\
         topic = 'missing'\n\
         mqtt_topic = 'iggy/$stream/$topic'\n"
    );
    let builder = Deployment::builder().existing(Target::new(&stream, "there", 1));
    let told = ["foreign 1", &format!("{stream}/missing")];
    let deployment = start_with_missing(builder, &map, &told);
    assert!(deployment.reader().topic(&stream, "missing").is_none());
}

/// How a target is made to go away.
#[derive(Debug, Clone, Copy)]
enum Loss {
    Topic,
    Stream,
}

impl Loss {
    fn happens(self, deployment: &Deployment) {
        let stream = guarded_stream(deployment.stream());
        match self {
            Self::Topic => deployment.reader().delete_topic(&stream, "machines"),
            Self::Stream => deployment.reader().delete_stream(&stream),
        }
    }
}

#[test]
fn b13_publishes_to_a_topic_that_was_deleted_are_refused_until_it_is_there_again() {
    let builder = Deployment::builder();
    let stream = builder.stream().to_owned();
    let target = Target::new(&guarded_stream(&stream), "machines", 2);
    let deployment = builder
        .map(map(&stream, false))
        .existing(target.clone())
        .start();
    let reader = deployment.reader();
    let mut other = deployment.client("publisher of another topic");
    let mut subscriber = deployment.client("subscriber of another topic");
    subscriber.subscribe(OTHER, 0);
    let mut id = 0;
    let mut expect_others_served = || {
        id += 1;
        other.publish(OTHER, id, id.to_string());
        assert_eq!(
            subscriber.expect_publish().payload,
            id.to_string().as_bytes()
        );
    };

    let mut living = deployment.client("subscriber");
    living.subscribe(GUARDED, 0);
    for loss in [Loss::Topic, Loss::Stream] {
        deployment.client("before").publish(GUARDED, 1, "before");
        expect_others_served();

        loss.happens(&deployment);
        // Also when Iggy was asked before and said no.
        for _ in 0..2 {
            expect_unstorable(&deployment, GUARDED, "no_target", &[&target.stream]);
            expect_others_served();
        }
        assert!(
            reader.topic(&target.stream, &target.topic).is_none(),
            "{loss:?}: made again"
        );
        deployment
            .host
            .wait_for_log(&["WARN", "rule 2", &format!("{}/machines", target.stream)]);
        let mut latecomer = deployment.client("latecomer");
        latecomer.send(&packet::subscribe(1, &[(GUARDED, 1), (OTHER, 1)]));
        latecomer.expect(&packet::suback(1, &[0x80, 1]));

        deployment.iggy.make(&target);
        let mut client = deployment.client("after");
        client.publish(GUARDED, 1, format!("after {loss:?}"));
        expect_others_served();
        let stored = reader.records(&target.stream, &target.topic);
        let stored: Vec<String> = stored.iter().map(|record| record.payload_text()).collect();
        assert_eq!(stored, [format!("after {loss:?}")]);
        // Those who subscribed before are served again too, from a moment that comes by itself.
        let payload = format!("again {loss:?}");
        wait::until("a subscriber gets messages again", PATIENCE, || {
            client.send(&packet::publish_qos0(GUARDED, &payload));
            let answer = living.answer(INTERVAL);
            assert_ne!(answer, Answer::Closed);
            matches!(answer, Answer::Packet(bytes) if bytes.ends_with(payload.as_bytes()))
        });
    }
}

#[test]
fn b13_a_topic_that_was_deleted_is_made_again_where_its_rule_may_and_the_publish_is_stored() {
    let builder = Deployment::builder();
    let stream = builder.stream().to_owned();
    let target = Target::new(&guarded_stream(&stream), "machines", 1);
    let deployment = builder.map(map(&stream, true)).start();
    if !deployment.iggy.creates_topics() {
        binaries::skipped(
            "a deleted topic is made again",
            "this Iggy does not let the gateway create topics",
        );
        return;
    }
    let reader = deployment.reader();
    let mut publisher = deployment.client("publisher");
    let mut other = deployment.client("subscriber of another topic");
    other.subscribe(OTHER, 0);
    for (id, loss) in (1..).zip([Loss::Topic, Loss::Stream, Loss::Topic]) {
        loss.happens(&deployment);
        publisher.publish(GUARDED, id, format!("{id}"));
        let stored = reader.records(&target.stream, &target.topic);
        let stored: Vec<String> = stored.iter().map(|record| record.payload_text()).collect();
        assert_eq!(stored, [format!("{id}")]);
        publisher.publish(OTHER, 100 + id, "other");
        assert_eq!(other.expect_publish().payload, b"other");
    }
}

#[test]
fn m3_m4_a_topic_made_again_with_other_partitions_has_its_keys_where_subscribers_and_the_sdk_look()
{
    let builder = Deployment::builder();
    let stream = builder.stream().to_owned();
    let mut target = Target::new(&guarded_stream(&stream), "machines", 2);
    let deployment = builder
        .map(map(&stream, false))
        .existing(target.clone())
        .start();
    let reader = deployment.reader();
    deployment.client("before").publish(GUARDED, 1, "before");
    for partitions in [5, 1, 3] {
        Loss::Topic.happens(&deployment);
        expect_unstorable(&deployment, GUARDED, "no_target", &[&target.stream]);
        target.partitions = partitions;
        deployment.iggy.make(&target);

        let mut subscriber = deployment.client("subscriber");
        let mut publisher = deployment.client("publisher");
        for (id, key) in (1..).zip(["a", "b", "c", "d", "e", "f", "g", "h"]) {
            let topic = format!("guarded/{key}/x");
            subscriber.subscribe(&topic, 0);
            publisher.publish(&topic, id, format!("mqtt {key}"));
            let payload = format!("sdk {key}");
            reader.produce(&target.stream, &target.topic, key, &payload);
            let records = reader.records(&target.stream, &target.topic);
            let of = |payload: &str| {
                let stored = |record: &&Record| record.payload_text() == payload;
                records.iter().find(stored).map(|record| record.partition)
            };
            assert!(of(&payload).is_some());
            assert_eq!(
                of(&format!("mqtt {key}")),
                of(&payload),
                "{key} of {partitions}"
            );
            assert_eq!(subscriber.expect_publish().topic, topic);
        }
    }
}

#[test]
fn what_is_stored_after_a_suback_is_delivered_although_the_topic_was_made_again_before() {
    let builder = Deployment::builder();
    let stream = builder.stream().to_owned();
    let target = Target::new(&guarded_stream(&stream), "machines", 1);
    let deployment = builder
        .map(map(&stream, false))
        .existing(target.clone())
        .start();
    let mut publisher = deployment.client("publisher");
    // Its reader stands behind the first message.
    let mut living = deployment.client("living");
    living.subscribe(GUARDED, 0);
    publisher.publish(GUARDED, 1, "1");
    assert_eq!(living.expect_publish().payload, b"1");

    Loss::Topic.happens(&deployment);
    deployment.iggy.make(&target);
    let mut fresh = deployment.client("fresh");
    fresh.subscribe(GUARDED, 0);
    for id in 2..=5 {
        publisher.publish(GUARDED, id, id.to_string());
        assert_eq!(fresh.expect_publish().payload, id.to_string().as_bytes());
    }
}
