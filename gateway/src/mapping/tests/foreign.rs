//! Topics of other producers: which MQTT topic their records get, and where a subscriber looks for them.

use bytes::Bytes;
use proptest::prelude::*;

use super::envelope::{self, EnvelopeError, HeaderSet, Published};
use super::*;
use crate::log::{HeaderValue, Headers, StoredRecord};
use crate::mqtt::{ClientId, QoS};

/// The defaults and a topic of other producers with this template, and `device` as the header of its key.
fn with_template(template: &str) -> String {
    format!(
        "{DEFAULTS}[[foreign]]\nstream = 'shop'\ntopic = 'orders'\nmqtt_topic = '{template}'\nkey_header = 'device'\n"
    )
}

fn record(headers: &[(&'static str, HeaderValue)]) -> StoredRecord {
    let mut all = Headers::default();
    for (key, value) in headers {
        all.insert((*key).into(), value.clone());
    }
    StoredRecord {
        offset: 0,
        id: 1,
        timestamp_micros: 0,
        headers: all,
        payload: Bytes::from_static(b"payload"),
    }
}

fn keyed(key: &str) -> StoredRecord {
    record(&[("device", HeaderValue::Text(key.into()))])
}

fn orders() -> Target {
    Target {
        stream: Name::new("shop").unwrap(),
        topic: Name::new("orders").unwrap(),
    }
}

/// What a record in `partition` is opened as under the map `text`.
fn opened(text: &str, partition: u32, record: &StoredRecord) -> Result<String, EnvelopeError> {
    let map = compile(text);
    let foreign = map.foreign(&orders()).unwrap();
    envelope::open_in(record, partition, Some(foreign))
        .map(|opened| opened.topic.as_str().to_owned())
}

#[test]
fn a_record_without_an_mqtt_topic_gets_the_one_of_its_iggy_topic() {
    for (template, partition, expected) in [
        ("iggy/$stream/$topic", 3, "iggy/shop/orders"),
        ("${stream}_x/$partition", 3, "shop_x/3"),
        ("d/$key/$$/$partition", 0, "d/ü 7/$/0"),
        ("$$intern/$key", 0, "$intern/ü 7"),
    ] {
        let found = opened(&with_template(template), partition, &keyed("ü 7"));
        assert_eq!(found.unwrap(), expected);
    }
}

#[test]
fn a_record_that_names_its_mqtt_topic_keeps_it_in_a_topic_of_other_producers_too() {
    let sealed = envelope::seal(
        &Published {
            topic: &topic("a/b"),
            qos: QoS::AtMostOnce,
            packet_id: None,
            retain: false,
            dup: false,
            client_id: &ClientId::new("c").unwrap(),
            payload: &Bytes::from_static(b"p"),
        },
        1,
        HeaderSet::ALL,
    );
    let stored = StoredRecord {
        headers: sealed.headers,
        ..record(&[])
    };
    let found = opened(&with_template("iggy/$stream"), 0, &stored);
    assert_eq!(found.unwrap(), "a/b");
}

#[test]
fn a_record_whose_topic_would_not_be_legal_is_skipped() {
    let text = with_template("d/$key");
    let too_long = "x".repeat(255);
    for key in ["a+b", "#", "nul\0"] {
        let found = opened(&text, 0, &keyed(key));
        assert!(
            matches!(
                found,
                Err(EnvelopeError::Foreign(ForeignError::IllegalTopic(_)))
            ),
            "{key}"
        );
    }
    assert!(opened(&text, 0, &keyed(&too_long)).is_ok());
    let not_text = record(&[("device", HeaderValue::U16(7))]);
    for without in [record(&[]), not_text] {
        let found = opened(&text, 0, &without);
        assert!(matches!(
            found,
            Err(EnvelopeError::Foreign(ForeignError::NoKey(_)))
        ));
    }
    // A header that names an illegal MQTT topic is not made good by the map.
    let illegal = record(&[(envelope::TOPIC, HeaderValue::Text("a/#".into()))]);
    assert!(matches!(
        opened(&text, 0, &illegal),
        Err(EnvelopeError::IllegalTopic(_))
    ));
}

#[test]
fn a_record_cannot_put_itself_among_the_topics_that_begin_with_a_dollar() {
    let text = with_template("$key/x");
    let found = opened(&text, 0, &keyed("$SYS"));
    assert_eq!(
        found,
        Err(EnvelopeError::Foreign(ForeignError::DollarTopic))
    );
    let reads = compile(&text).reads(&topic("$SYS/x"));
    assert_eq!(reads, Err(Refusal::DollarTopic));
}

#[test]
fn a_subscriber_reads_the_topics_of_other_producers_beside_its_own() {
    let in_short = |text: &str, name: &str| -> Vec<String> {
        let reads = compile(text).reads(&topic(name)).unwrap();
        reads
            .iter()
            .map(|read| format!("{} {} {:?}", read.rule, read.target, read.partitions.of(4)))
            .collect()
    };
    let own = "the fallback s/t 0..4";
    let text = with_template("iggy/$partition");
    assert_eq!(
        in_short(&text, "iggy/2"),
        [own, "foreign 1 shop/orders 2..3"]
    );
    assert_eq!(
        in_short(&text, "iggy/4"),
        [own, "foreign 1 shop/orders 0..0"]
    );
    for other in ["iggy/02", "iggy/", "iggy/x", "iggy/4294967296", "iggy/2/"] {
        assert_eq!(in_short(&text, other), [own], "{other}");
    }
    let text = with_template("d/$key");
    assert_eq!(
        in_short(&text, "d/a/b"),
        [own, "foreign 1 shop/orders 0..4"]
    );
    assert_eq!(in_short(&text, "d/"), [own]);
    let refusing = text.replace(DEFAULTS, "on_unmatched = 'refuse'\n");
    assert_eq!(
        in_short(&refusing, "d/a"),
        ["foreign 1 shop/orders 0..4"],
        "nothing can be published there, but there is something to read"
    );
    assert_eq!(compile(&refusing).reads(&topic("e")), Err(Refusal::NoRule));
}

#[test]
fn a_topic_of_other_producers_is_never_made_and_must_be_there() {
    let map = compile(&with_template("x/$key"));
    let (id, target, plan) = map.constant_targets().last().unwrap();
    assert_eq!((id, target), (RuleId::Foreign(1), orders()));
    assert!(!plan.auto_create);
}

#[test]
fn what_is_wrong_with_a_topic_of_other_producers_is_said_in_place() {
    for (entry, expected, part) in [
        (
            "topic = 't'\nmqtt_topic = 'm'",
            "MissingForeignKey { key: \"stream\" }",
            "[[foreign]]",
        ),
        (
            "stream = 's'\ntopic = ''\nmqtt_topic = 'm'",
            "EmptyName",
            "''",
        ),
        (
            "stream = 's'\ntopic = '$1'\nmqtt_topic = 'm'",
            "NoPattern { reference: \"$1\" }",
            "$1",
        ),
        (
            "stream = 's'\ntopic = 't'\nmqtt_topic = ''",
            "IllegalForeignTopic(Empty)",
            "''",
        ),
        (
            "stream = 's'\ntopic = 't'\nmqtt_topic = 'a/+'",
            "IllegalForeignTopic(WildcardInName)",
            "'a/+'",
        ),
        (
            "stream = 'a+'\ntopic = 't'\nmqtt_topic = '$stream'",
            "IllegalForeignTopic(WildcardInName)",
            "'$stream'",
        ),
        (
            "stream = 's'\ntopic = 't'\nmqtt_topic = 'a/$ b'",
            "MalformedVariable",
            "$",
        ),
        (
            "stream = 's'\ntopic = 't'\nmqtt_topic = '$strem/x'",
            "UnknownVariable { reference: \"$strem\", known: [\"stream\", \"topic\", \"partition\", \"key\"] }",
            "$strem",
        ),
        (
            "stream = 's'\ntopic = 't'\nmqtt_topic = '$1'",
            "UnknownVariable { reference: \"$1\", known: [\"stream\", \"topic\", \"partition\", \"key\"] }",
            "$1",
        ),
        (
            "stream = 's'\ntopic = 't'\nmqtt_topic = 'a/$key'",
            "NoKeyHeader",
            "'a/$key'",
        ),
        (
            "stream = 's'\ntopic = 't'\nmqtt_topic = 'a/$key'\nkey_header = ''",
            "BadHeaderName { bytes: 0 }",
            "''",
        ),
        (
            "stream = 's'\ntopic = 't'\nmqtt_topic = 'a'\n[[foreign]]\nstream = 's'\ntopic = 't'\nmqtt_topic = 'b'",
            "SameForeign { earlier: 1 }",
            "[[foreign]]",
        ),
        (
            "stream = 's'\ntopic = 't'\nmqtt_topic = 'a'\npartitions = 3",
            "UnknownKey",
            "partitions",
        ),
    ] {
        let text = format!("{DEFAULTS}[[foreign]]\n{entry}\n");
        let (problem, at) = problem(&text);
        assert!(format!("{problem:?}").starts_with(expected), "{problem:?}");
        assert_eq!(at, part, "{entry}");
    }
    let unused = compile(&with_template("no/variable"));
    assert_eq!(unused.warnings()[0].what(), &Warning::UnusedKeyHeader);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn m4_a_record_is_among_what_a_subscriber_to_its_topic_reads(
        parts in proptest::collection::vec(prop_oneof!["[a/$1]{0,3}".prop_map(|text| text.replace('$', "$$")),
            Just("$stream".to_owned()), Just("${topic}".to_owned()), Just("${partition}".to_owned()), Just("${key}".to_owned())], 1..6),
        partition in 0..20_u32,
        key in "[0-9a/$.*ü\n]{1,4}",
    ) {
        let text = with_template("@").replace("'@'", &format!("'''{}'''", parts.concat()));
        if let Ok(map) = TopicMap::compile("map.toml", &text) {
            let foreign = map.foreign(&orders()).unwrap();
            if let Ok(found) = foreign.topic_of(partition, &keyed(&key)) {
                let partitions = foreign.partitions_of(&found);
                prop_assert!(partitions.is_some_and(|all| all.of(20).contains(&partition)), "{text} {found:?}");
            }
        }
    }
}
