//! Topics that other Iggy producers write: their records have no MQTT topic, and get the one that `[[foreign]]` says.

use std::time::Duration;

use e2e::config::Target;
use e2e::deployment::{Builder, Deployment};
use e2e::packet::{self, suback, subscribe};
use e2e::raw::{Answer, RawClient};
use e2e::records::Header;
use e2e::wait::{self, PATIENCE};

/// How long to see that nothing comes. What was produced before something that came would have come before it.
const QUIET: Duration = Duration::from_millis(300);
const DEVICE: &str = "device/1/x";

/// A deployment whose Iggy has the topics `lines`, `parts` and `machines` of other producers, with three partitions each.
struct Plant {
    deployment: Deployment,
    stream: String,
}

impl Plant {
    fn start(on_unmatched: &str) -> Self {
        let builder = Deployment::builder();
        let stream = format!("{}_plant", builder.stream());
        let deployment = with_topics(builder, &stream, on_unmatched).start();
        Self { deployment, stream }
    }

    fn produce(&self, topic: &str, partition: u32, messages: &[(&str, &[(&str, Header)])]) {
        self.deployment
            .reader()
            .produce_with_headers(&self.stream, topic, partition, messages);
    }
}

fn with_topics(builder: Builder, stream: &str, on_unmatched: &str) -> Builder {
    let own = builder.stream().to_owned();
    let defaults = match on_unmatched {
        "fallback" => format!("default_stream = '{own}'\ndefault_topic = 'rest'\n"),
        _ => String::new(),
    };
    let map = format!(
        "{defaults}\
         on_unmatched = '{on_unmatched}'\n\
         partitions = 2\n\
         [[rule]]\n\
         mqtt_topic = 'device/([^/]+)/.*'\n\
         stream = '{own}'\n\
         topic = 'devices'\n\
         partition_key = '$1'\n\
         [[foreign]]\n\
         stream = '{stream}'\n\
         topic = 'lines'\n\
         mqtt_topic = 'iggy/$stream/$topic'\n\
         [[foreign]]\n\
         stream = '{stream}'\n\
         topic = 'parts'\n\
         mqtt_topic = 'part $partition/of/$topic'\n\
         [[foreign]]\n\
         stream = '{stream}'\n\
         topic = 'machines'\n\
         mqtt_topic = '$key/state'\n\
         key_header = 'machine'\n"
    );
    ["lines", "parts", "machines"]
        .into_iter()
        .fold(builder.map(map), |builder, topic| {
            builder.existing(Target::new(stream, topic, 3))
        })
}

fn machine(key: &str) -> (&'static str, Header) {
    ("machine", Header::Text(key.to_owned()))
}

/// The next message is this one, with QoS 1, which is what a record without a QoS counts as.
fn expect(client: &mut RawClient, topic: &str, payload: &str) {
    let message = client.expect_publish();
    assert_eq!((message.topic.as_str(), message.qos), (topic, 1));
    assert_eq!(message.payload, payload.as_bytes());
    client.send(&packet::puback(message.id));
}

#[test]
fn a_record_of_another_producer_is_delivered_to_the_topic_of_its_iggy_topic_beside_what_clients_publish()
 {
    let plant = Plant::start("fallback");
    let topic = format!("iggy/{}/lines", plant.stream);
    let mut subscriber = plant.deployment.client("subscriber");
    let mut neighbour = plant.deployment.client("neighbour");
    let nearly = topic.to_uppercase();
    subscriber.subscribe(&topic, 1);
    neighbour.send(&subscribe(1, &[(&nearly, 1), (DEVICE, 1)]));
    neighbour.expect(&suback(1, &[1, 1]));
    let mut publisher = plant.deployment.client("publisher");
    for partition in 0..3 {
        plant.produce("lines", partition, &[("from Iggy", &[])]);
        expect(&mut subscriber, &topic, "from Iggy");
        // The map has a place of its own for what clients publish to the topic.
        publisher.publish(&topic, 1, "from MQTT");
        expect(&mut subscriber, &topic, "from MQTT");
        publisher.publish(DEVICE, 2, "to the neighbour");
        expect(&mut neighbour, DEVICE, "to the neighbour");
    }
    // Headers of the producer's own matter to nobody, and its own MQTT topic wins.
    let own = ("mqtt.topic", Header::Text(nearly.clone()));
    let colour = ("colour", Header::Bool(true));
    plant.produce("lines", 1, &[("named", &[own]), ("not named", &[colour])]);
    expect(&mut subscriber, &topic, "not named");
    subscriber.expect_silence(QUIET);
    neighbour.expect_silence(QUIET);
}

#[test]
fn a_subscription_to_a_topic_that_only_other_producers_have_finds_the_partition_or_the_key() {
    let plant = Plant::start("refuse");
    let mut part = plant.deployment.client("part");
    part.send(&subscribe(
        1,
        &[
            ("part 1/of/parts", 1),
            // Partitions that are not there, and spellings that no record gets.
            ("part 3/of/parts", 1),
            ("part 4294967296/of/parts", 1),
            ("part 01/of/parts", 1),
            ("part /of/parts", 1),
            ("part 1/of/lines", 1),
            ("part 1/of/parts/", 1),
        ],
    ));
    part.expect(&suback(1, &[1, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80]));
    for partition in [0, 2, 1] {
        plant.produce("parts", partition, &[(&partition.to_string(), &[])]);
    }
    expect(&mut part, "part 1/of/parts", "1");
    part.expect_silence(QUIET);

    let mut lathe = plant.deployment.client("lathe");
    lathe.subscribe("hall 2/lathe ü/state", 1);
    for partition in 0..3 {
        let (other, wanted) = ([machine("mill")], [machine("hall 2/lathe ü")]);
        plant.produce(
            "machines",
            partition,
            &[("mill", &other), ("lathe", &wanted)],
        );
        expect(&mut lathe, "hall 2/lathe ü/state", "lathe");
    }
    lathe.expect_silence(QUIET);
}

#[test]
fn records_of_other_producers_that_get_no_legal_topic_are_skipped_and_hinder_nobody() {
    let plant = Plant::start("fallback");
    let mut subscriber = plant.deployment.client("subscriber");
    let mut other = plant.deployment.client("subscriber of a device");
    subscriber.subscribe("mill/state", 1);
    other.subscribe(DEVICE, 1);
    let mut publisher = plant.deployment.client("publisher");

    let no_text = |value| [("machine", value)];
    let illegal: [&[(&str, Header)]; 10] = [
        &[],
        &[("Machine", Header::Text("mill".to_owned()))],
        &no_text(Header::U16(7)),
        &no_text(Header::Bool(true)),
        &[machine("mill+")],
        &[machine("#")],
        &[machine("+")],
        &[machine("mi\0ll")],
        // Nobody may be made to look as if the server spoke.
        &[machine("$SYS/mill")],
        &[
            machine("mill"),
            ("mqtt.topic", Header::Text("a/#".to_owned())),
        ],
    ];
    let good = [machine("mill")];
    let mut messages: Vec<(&str, &[(&str, Header)])> = vec![("first", &good)];
    messages.extend(illegal.iter().map(|headers| ("skipped", *headers)));
    messages.push(("last", &good));
    for round in 1..=3 {
        plant.produce("machines", 0, &messages);
        expect(&mut subscriber, "mill/state", "first");
        expect(&mut subscriber, "mill/state", "last");
        publisher.publish(DEVICE, round, round.to_string());
        expect(&mut other, DEVICE, &round.to_string());
    }
    other.send(&subscribe(2, &[("$SYS/mill/state", 1)]));
    other.expect(&suback(2, &[0x80]));
    // Who comes later is served from there on.
    let mut latecomer = plant.deployment.client("latecomer");
    latecomer.subscribe("mill/state", 1);
    plant.produce("machines", 0, &messages);
    for client in [&mut subscriber, &mut latecomer] {
        expect(client, "mill/state", "first");
        expect(client, "mill/state", "last");
        client.expect_silence(QUIET);
    }
    assert_eq!(plant.deployment.source_status(), "running");
    assert_eq!(plant.deployment.sink_status(), "running");
}

#[test]
fn a_topic_of_other_producers_that_is_deleted_hinders_nobody_and_is_read_again_when_it_is_there_again()
 {
    let plant = Plant::start("fallback");
    let mut subscriber = plant.deployment.client("subscriber");
    subscriber.send(&subscribe(1, &[("mill/state", 1), (DEVICE, 1)]));
    subscriber.expect(&suback(1, &[1, 1]));
    let good = [machine("mill")];
    plant.produce("machines", 0, &[("before", &good)]);
    expect(&mut subscriber, "mill/state", "before");

    let reader = plant.deployment.reader();
    reader.delete_topic(&plant.stream, "machines");
    let mut publisher = plant.deployment.client("publisher");
    for topic in ["mill/state", DEVICE] {
        publisher.publish(topic, 1, "from MQTT");
        expect(&mut subscriber, topic, "from MQTT");
    }
    let again = Target::new(&plant.stream, "machines", 3);
    plant.deployment.iggy.make(&again);
    wait::until("records are delivered again", PATIENCE, || {
        plant.produce("machines", 0, &[("again", &good)]);
        match subscriber.answer(QUIET) {
            Answer::Packet(bytes) => bytes.ends_with(b"again"),
            answer => {
                assert_eq!(answer, Answer::Silence);
                false
            }
        }
    });
}
