//! M7: what the program explains is what the compiled map of the running gateway gives.

use std::fmt::Write;

use mqtt_gateway::log::{Expiry, TopicSize};
use mqtt_gateway::mapping::{Partitions, RuleId, TopicMap};
use mqtt_gateway::mqtt::TopicName;
use serde_json::{Value, json};

use crate::program::Folder;

/// Rules of every kind.
const MAP: &str = r"
default_stream = 'rest'
default_topic  = 'all'
partitions     = 5

[[rule]]
mqtt_topic    = 'building/(\w+)/room/(\d+)/.*'
stream        = 'building_$1'
topic         = 'telemetry'
partition_key = 'room_$2'

[[rule]]
mqtt_topic    = '(?<site>[^/]+)/sensors/([^/]*)(?:/(.*))'
stream        = '${site}'
topic         = 'x$0'
partition_key = '$2'
partitions    = 12
message_expiry = '3days'

[[rule]]
mqtt_topic    = '(?i)alarm/.+'
stream        = 'alarms'
topic         = 'all'
partition_key = 'one'
auto_create   = false
durability    = 'commit'
message_expiry = 'never'
max_topic_size = 'unlimited'

[[rule]]
mqtt_topic    = '\$SYS/(.+)'
stream        = 'sys'
topic         = '$1'
max_topic_size = '10 MB'

[[rule]]
mqtt_topic    = '.*/sensors/.*'
stream        = 'late'
topic         = 'late'
";

/// Topics made of pieces that the rules are about, and of hostile ones.
fn topics(count: usize) -> Vec<String> {
    const PIECES: &[&str] = &[
        "building", "north", "room", "42", "٤٢", "x", "sensors", "alarm", "ALARM", "$SYS", "", "",
        " ", "東京", "🚀", "a.b", "(x)", "\\d+", "[^/]", "*", "$1", "é", "e\u{301}", "temp",
    ];
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    let mut topics: Vec<String> = [
        "building/north/room/42/temp",
        "site/sensors/7/deep/er",
        "$SYS/broker",
        "$SYS/",
        "$other",
        "/",
        "Alarm/x",
    ]
    .map(str::to_owned)
    .into();
    topics.push("/".repeat(65_535));
    topics.push(format!("site/sensors/7/{}", "y".repeat(255)));
    topics.push(format!("$SYS/{}", "y".repeat(256)));
    while topics.len() < count {
        let start = [
            "building/north/room/",
            "s/sensors/",
            "alarm/",
            "$SYS/",
            "",
            "",
        ][random(6)];
        let levels: Vec<&str> = (0..=random(4))
            .map(|_| PIECES[random(PIECES.len())])
            .collect();
        let topic = format!("{start}{}", levels.join("/"));
        // What a list would leave out or refuse is for other tests.
        if !topic.trim().is_empty() && TopicName::new(&*topic).is_ok() {
            topics.push(topic);
        }
    }
    topics
}

/// What the map says, in the words of the program.
fn expected(map: &TopicMap, topic: &str, partitions: Option<u32>) -> Value {
    match map.resolve(&TopicName::new(topic).unwrap()) {
        Ok(found) => {
            let count = partitions.unwrap_or(found.plan.spec.partitions);
            let (kind, number) = match found.rule {
                RuleId::Rule(number) => ("rule", json!(number)),
                RuleId::Fallback | RuleId::DeadLetter => ("fallback", Value::Null),
                RuleId::Foreign(number) => ("foreign", json!(number)),
            };
            json!({
                "outcome": "stored",
                "rule": [kind, number],
                "stream": found.target.stream.as_str(),
                "topic": found.target.topic.as_str(),
                "key": found.key.as_ref().map(|key| key.as_str()),
                "partition": found.key.as_ref().map(|key| key.partition(count)),
                "partitions": count,
            })
        }
        Err(refusal) => json!({
            "outcome": "refused",
            "reason": refusal.reason(),
            "message": refusal.to_string(),
        }),
    }
}

/// The same from a report or a row.
fn told(report: &Value) -> Value {
    let target = &report["target"];
    if report["outcome"] == "stored" {
        json!({
            "outcome": "stored",
            "rule": [report["rule"]["kind"], report["rule"]["number"]],
            "stream": target["stream"],
            "topic": target["topic"],
            "key": target["key"],
            "partition": target["partition"],
            "partitions": target["partitions"],
        })
    } else {
        json!({
            "outcome": report["outcome"],
            "reason": report["reason"],
            "message": report["message"],
        })
    }
}

#[test]
fn m7_what_is_explained_is_what_the_gateway_does() {
    let map = TopicMap::compile("topic-map.toml", MAP).unwrap();
    let folder = Folder::with_map(MAP);
    let topics = topics(100);
    for (number, topic) in topics.iter().enumerate() {
        let partitions = [None, Some(1), Some(7), Some(1_000)][number % 4];
        let option = partitions.map(|count| format!("--partitions={count}"));
        let arguments = ["explain", "--format", "json", "--", topic];
        let mut arguments: Vec<&str> = arguments.into();
        arguments.splice(1..1, option.as_deref());
        let report = folder.run(&arguments).json();
        assert_eq!(
            told(&report),
            expected(&map, topic, partitions),
            "{topic:?}"
        );
        assert_eq!(report["topic"], **topic);

        // A plan, and the rules before and after.
        let parsed = TopicName::new(&**topic).unwrap();
        if let Ok(found) = map.resolve(&parsed) {
            let creation = &report["creation"];
            assert_eq!(creation["auto_create"], found.plan.auto_create);
            assert_eq!(creation["partitions"], found.plan.spec.partitions);
            assert_eq!(creation["durability"], json!(found.plan.spec.durability));
            let expiry = match found.plan.spec.message_expiry {
                Expiry::ServerDefault => "server_default".to_owned(),
                Expiry::Never => "never".to_owned(),
                Expiry::After(time) => humantime::format_duration(time).to_string(),
            };
            assert_eq!(creation["message_expiry"], expiry);
            let size = match found.plan.spec.max_topic_size {
                TopicSize::ServerDefault => json!("server_default"),
                TopicSize::Unlimited => json!("unlimited"),
                TopicSize::Bytes(bytes) => json!(bytes),
            };
            assert_eq!(creation["max_topic_size"], size);
            let numbers = |of: &Value, at: &str| -> Vec<u64> {
                let rules = of.as_array().unwrap().iter();
                rules
                    .map(|rule| rule.pointer(at).unwrap().as_u64().unwrap())
                    .collect()
            };
            let decider = match found.rule {
                RuleId::Rule(number) => number as u64,
                _ => 6,
            };
            assert_eq!(
                numbers(&report["missed"], "/rule/number"),
                (1..decider).collect::<Vec<_>>()
            );
            assert!(
                numbers(&report["also"], "/number")
                    .iter()
                    .all(|number| *number > decider)
            );
        }
    }
}

#[test]
fn m7_a_list_is_explained_as_its_topics_are() {
    let map = TopicMap::compile("topic-map.toml", MAP).unwrap();
    let folder = Folder::with_map(MAP);
    let topics = topics(4_000);
    let mut input = String::new();
    for topic in &topics {
        writeln!(input, "{topic}").unwrap();
    }
    for partitions in [None, Some(7)] {
        let option = partitions.map(|count: u32| format!("--partitions={count}"));
        let arguments = ["explain", "--file", "-", "--format", "json"];
        let arguments = arguments.into_iter().chain(option.as_deref());
        let report = folder.run_with(arguments, input.clone()).json();
        let rows = report["topics"].as_array().unwrap();
        assert_eq!(rows.len(), topics.len());
        for (row, topic) in rows.iter().zip(&topics) {
            assert_eq!(row["topic"], **topic);
            assert_eq!(told(row), expected(&map, topic, partitions), "{topic:?}");
        }
        let stored = rows.iter().filter(|row| row["outcome"] == "stored").count();
        assert_eq!(report["summary"]["stored"], stored);
        let kinds = ["rule", "fallback"].map(|kind| {
            rows.iter()
                .filter(|row| row["rule"]["kind"] == kind)
                .count()
        });
        assert!(
            stored < topics.len() && kinds.iter().all(|count| *count > 300),
            "{kinds:?}"
        );
    }
}

#[test]
fn m4_the_partition_of_a_publish_is_among_those_that_a_subscriber_reads() {
    let map = TopicMap::compile("topic-map.toml", MAP).unwrap();
    let folder = Folder::with_map(MAP);
    for topic in topics(60) {
        let parsed = TopicName::new(&*topic).unwrap();
        let arguments = [
            "explain",
            "--subscribe",
            "--partitions=9",
            "--format=json",
            "--",
            &topic,
        ];
        let report = folder.run(arguments).json();
        let Ok(reads) = map.reads(&parsed) else {
            assert_ne!(report["outcome"], "read", "{topic:?}");
            continue;
        };
        let told: Vec<Value> = reads
            .iter()
            .map(|read| {
                let key = match &read.partitions {
                    Partitions::OfKey(key) => Some(key.as_str()),
                    _ => None,
                };
                json!([
                    read.target.stream.as_str(),
                    read.target.topic.as_str(),
                    key,
                    read.partitions.of(9).collect::<Vec<_>>()
                ])
            })
            .collect();
        let said = report["reads"].as_array().unwrap().iter();
        let said: Vec<Value> = said
            .map(|read| json!([read["stream"], read["topic"], read["key"], read["read"]]))
            .collect();
        assert_eq!(said, told, "{topic:?}");
        if let Ok(found) = map.resolve(&parsed) {
            let partition = found.key.map_or(0, |key| key.partition(9));
            let holds = |read: &Value| {
                read["stream"] == found.target.stream.as_str()
                    && read["topic"] == found.target.topic.as_str()
                    && read["read"].as_array().unwrap().contains(&json!(partition))
            };
            assert!(
                report["reads"].as_array().unwrap().iter().any(holds),
                "{topic:?}"
            );
        }
    }
}
