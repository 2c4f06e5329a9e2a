//! `explain TOPIC`: where messages are stored, and why.

use serde_json::{Value, json};

use crate::program::{Folder, SEED_MAP};

#[test]
fn the_seed_example_is_explained() {
    let folder = Folder::with_map(SEED_MAP);
    for (topic, decided, stream, name, key) in [
        (
            "building/north/room/42/temp",
            "rule 1 (line 4)",
            "building_north",
            "telemetry",
            "room_42",
        ),
        (
            "sensors/dev-7/data",
            "rule 2 (line 10)",
            "sensors",
            "sensor_data",
            "sensor_dev-7",
        ),
        (
            "foo/bar",
            "the fallback",
            "sensors",
            "messages_default",
            "none",
        ),
        (
            "building/north/room/x/temp",
            "the fallback",
            "sensors",
            "messages_default",
            "none",
        ),
    ] {
        let ran = folder.run(["explain", topic]).exits(0);
        assert!(ran.stdout.starts_with(&format!("{topic}\n")), "{ran:#?}");
        assert!(ran.labelled("decided by").starts_with(decided), "{ran:#?}");
        assert_eq!(ran.labelled("stream"), stream);
        assert_eq!(ran.labelled("topic"), name);
        assert_eq!(ran.labelled("key"), key);
        assert_eq!(ran.stderr, "");
    }
}

#[test]
fn a_rule_that_does_not_match_is_told_with_the_place_where_the_topic_goes_another_way() {
    let folder = Folder::with_map(SEED_MAP);
    let ran = folder
        .run(["explain", "building/north/room/x/temp"])
        .exits(0);
    let missed = ran.labelled("no match");
    let lines: Vec<&str> = missed.lines().collect();
    assert_eq!(lines[0], r"rule 1 (line 4): building/(\w+)/room/(\d+)/.*");
    assert!(
        lines[1].contains(r"(\d+)") && lines[1].contains("x/temp"),
        "{}",
        lines[1]
    );
    assert_eq!(lines[2], "rule 2 (line 10): sensors/([^/]+)/data");
    assert_eq!(lines.len(), 4);
}

#[test]
fn groups_are_shown_with_their_numbers_and_names() {
    let map = "on_unmatched = 'refuse'\n[[rule]]\nmqtt_topic = 'a/(?<site>[^/]+)/([^/]*)/(.*)'\nstream = '${site}'\ntopic = 't$1'\n";
    let folder = Folder::with_map(map);
    let ran = folder.run(["explain", "a/x//y z"]).exits(0);
    assert_eq!(ran.labelled("captures"), "$1 ${site} = x\n$2 = \n$3 = y z");
    let json = folder
        .run(["explain", "a/x//y z", "--format", "json"])
        .json();
    let captures = json!([
        {"index": 1, "name": "site", "text": "x"},
        {"index": 2, "name": null, "text": ""},
        {"index": 3, "name": null, "text": "y z"},
    ]);
    assert_eq!(json["captures"], captures);
}

#[test]
fn rules_that_match_too_but_come_later_are_named() {
    let map = SEED_MAP.to_owned()
        + "[[rule]]\nmqtt_topic = 'sensors/.*'\nstream = 's'\ntopic = 't'\n\n[[rule]]\nmqtt_topic = '.*/data'\nstream = 's'\ntopic = 't2'\n";
    let folder = Folder::with_map(&map);
    let ran = folder.run(["explain", "sensors/1/data"]).exits(0);
    assert_eq!(
        ran.labelled("match too"),
        "rule 3 (line 15): sensors/.*\nrule 4 (line 20): .*/data"
    );
    let ran = folder.run(["explain", "sensors/1/datum"]).exits(0);
    assert!(ran.labelled("decided by").starts_with("rule 3"));
    assert!(!ran.stdout.contains("match too"));
}

#[test]
fn the_partition_counts_within_the_maps_number_or_the_one_that_is_given() {
    let map = SEED_MAP.replace(
        "topic         = 'telemetry'",
        "topic = 'telemetry'\npartitions = 8",
    );
    let folder = Folder::with_map(&map);
    let topic = "building/north/room/42/temp";
    // xxh32("room_42", seed 0), by another implementation.
    let hash = 0x4a8d8f8f_u32;
    let of = |arguments: &[&str]| {
        let all = [&["explain", topic], arguments].concat();
        folder.run(all).exits(0).labelled("partition")
    };
    assert!(
        of(&[]).starts_with(&format!("{} of 8 (as the map says", hash % 8)),
        "{}",
        of(&[])
    );
    assert_eq!(
        of(&["--partitions", "7"]),
        format!("{} of 7 (as --partitions says)", hash % 7)
    );
    assert_eq!(
        of(&["--partitions", "1000"]),
        format!("{} of 1000 (as --partitions says)", hash % 1000)
    );
    for wrong in ["0", "1001", "-1", "x", "4294967296"] {
        let wrong = format!("--partitions={wrong}");
        folder
            .run(["explain", topic, &wrong])
            .exits(2)
            .complains(["--partitions"]);
    }
    let keyless = folder.run(["explain", "foo", "--partitions", "7"]).exits(0);
    assert_eq!(
        keyless.labelled("partition"),
        "0 to 6 in turn, of 7 (as --partitions says)"
    );
}

#[test]
fn it_is_told_how_the_iggy_topic_is_made() {
    let map = "default_stream = 's'\ndefault_topic = 't'\n[[rule]]\nmqtt_topic = 'a'\nstream = 's'\ntopic = 'a'\npartitions = 3\nmessage_expiry = '12h'\nmax_topic_size = '1 GiB'\ndurability = 'commit'\npartition_key = '$0'\n[[rule]]\nmqtt_topic = 'b'\nstream = 's'\ntopic = 'b'\nauto_create = false\n";
    let folder = Folder::with_map(map);
    let ran = folder.run(["explain", "a"]).exits(0);
    assert_eq!(
        ran.labelled("if missing"),
        "the gateway makes the Iggy topic: partitions 3, message_expiry 12h, max_topic_size 1073741824 bytes, durability commit"
    );
    let ran = folder.run(["explain", "b"]).exits(0);
    assert!(
        ran.labelled("if missing").contains("auto_create = false"),
        "{ran:#?}"
    );
    let json = folder
        .run(["explain", "a", "--format", "json"])
        .exits(0)
        .json();
    assert_eq!(
        json["creation"],
        json!({"auto_create": true, "partitions": 3, "message_expiry": "12h", "max_topic_size": 1_073_741_824, "durability": "commit"})
    );
}

#[test]
fn the_headers_are_shown_with_what_depends_on_the_publisher() {
    let folder = Folder::with_map(SEED_MAP);
    let json = folder
        .run(["explain", "foo/bar", "--format", "json"])
        .exits(0)
        .json();
    let header = |key: &str| {
        let headers = json["headers"].as_array().unwrap().iter();
        headers
            .clone()
            .find(|header| header["key"] == key)
            .cloned()
            .unwrap()
    };
    let expected = |key, value: Value, kind, from_publisher, when| json!({"key": key, "value": value, "kind": kind, "from_publisher": from_publisher, "when": when});
    assert_eq!(
        header("mqtt.topic"),
        expected("mqtt.topic", "foo/bar".into(), "string", false, "always")
    );
    assert_eq!(
        header("mqtt.qos"),
        expected("mqtt.qos", 1.into(), "uint8", true, "always")
    );
    assert_eq!(header("mqtt.packet_id")["when"], "qos1");
    assert_eq!(header("mqtt.client_id")["from_publisher"], true);
    assert_eq!(
        header("mqtt.retain"),
        expected("mqtt.retain", true.into(), "bool", false, "retain")
    );
    assert_eq!(header("mqtt.dup")["when"], "dup");
    assert_eq!(header("mqtt.empty")["when"], "empty_payload");
    assert_eq!(json["headers"].as_array().unwrap().len(), 7);
    folder.run(["explain", "foo/bar"]).prints([
        "mqtt.topic      foo/bar\n",
        "the publisher's, with QoS 1",
        "only if the payload is empty",
    ]);
}

#[test]
fn headers_that_the_gateway_file_leaves_out_are_not_shown() {
    let folder = Folder::with_map(SEED_MAP).file("gateway.toml", "headers = []\n");
    let ran = folder
        .run(["explain", "foo", "--config", "gateway.toml"])
        .exits(0);
    let headers = ran.labelled("headers");
    assert!(
        headers.contains("mqtt.topic") && headers.contains("mqtt.empty"),
        "{headers}"
    );
    assert!(!headers.contains("mqtt.client_id"), "{headers}");
}

#[test]
fn a_refused_topic_is_told_with_the_reason_and_what_to_do_and_exits_1() {
    let map = SEED_MAP.replace(
        "default_stream = 'sensors'\ndefault_topic  = 'messages_default'",
        "on_unmatched = 'refuse'",
    );
    let folder = Folder::with_map(&map);
    for (topic, reason, what_to_do) in [
        ("foo/bar", "no_rule", "add a rule"),
        ("$SYS/uptime", "dollar_topic", "add one"),
        (
            &format!("building/{}/room/1/x", "n".repeat(300)),
            "invalid_name",
            "shorter part",
        ),
    ] {
        let ran = folder.run(["explain", topic]).exits(1);
        assert!(ran.labelled("refused").contains(what_to_do), "{ran:#?}");
        assert!(!ran.stdout.contains("\n  stream"), "{ran:#?}");
        let json = folder
            .run(["explain", topic, "--format", "json"])
            .exits(1)
            .json();
        assert_eq!(json["outcome"], "refused");
        assert_eq!(json["reason"], reason);
        assert_eq!(json["target"], Value::Null);
        assert_eq!(
            json["rule"]["number"],
            if reason == "invalid_name" {
                json!(1)
            } else {
                Value::Null
            }
        );
    }
}

#[test]
fn an_invalid_topic_is_explained_as_well() {
    let folder = Folder::with_map(SEED_MAP);
    for (topic, why) in [
        ("", "at least one character"),
        ("a/+/b", "wildcards"),
        ("#", "wildcards"),
        (&"x".repeat(65_536), "longer than 65,535 bytes"),
    ] {
        let ran = folder.run(["explain", topic]).exits(1);
        assert!(ran.labelled("invalid").contains(why), "{ran:#?}");
        let json = folder
            .run(["explain", topic, "--format", "json"])
            .exits(1)
            .json();
        assert_eq!(json["outcome"], "invalid");
        assert_eq!(json["reason"], "invalid_topic");
        assert_eq!(json["topic"], *topic);
    }
}

#[test]
fn limits_of_the_gateway_count_when_its_file_is_given() {
    let folder = Folder::with_map(SEED_MAP).file(
        "gateway.toml",
        "limits.max_topic_levels = 3\nlimits.max_topic_length = 9\n",
    );
    let config = ["--config", "gateway.toml"];
    for (topic, reason) in [
        ("a/b/c/d", "too_many_levels"),
        ("abcdefghij", "topic_too_long"),
    ] {
        for subscribe in [&[][..], &["--subscribe"]] {
            let arguments = [&["explain", topic, "--format", "json"], subscribe].concat();
            folder.run(&arguments).exits(0);
            let json = folder.run(arguments.iter().chain(&config)).exits(1).json();
            assert_eq!(json["reason"], reason);
        }
    }
    folder
        .run(["explain", "a/b/c"].iter().chain(&config))
        .exits(0);
}

#[test]
fn the_map_comes_from_the_option_the_gateway_file_or_the_working_directory() {
    let map = |stream: &str| format!("default_stream = '{stream}'\ndefault_topic = 't'\n");
    let connector = "[plugin_config]\nconfig = 'etc/gateway.toml'\n";
    let folder = Folder::with_map(&map("here"))
        .file("maps/other.toml", map("other"))
        .file("etc/gateway.toml", "topic_map = 'named.toml'\n")
        .file("etc/named.toml", map("named"))
        .file("connector.toml", connector);
    for (arguments, stream) in [
        (&[][..], "here"),
        (&["--map", "maps/other.toml"], "other"),
        (&["--config", "etc/gateway.toml"], "named"),
        (&["--config", "connector.toml"], "named"),
    ] {
        let ran = folder
            .run(["explain", "a"].iter().chain(arguments))
            .exits(0);
        assert_eq!(ran.labelled("stream"), stream);
    }
    let both = ["explain", "a", "--map", "x", "--config", "y"];
    folder.run(both).exits(2).complains(["cannot be used with"]);
}

#[test]
fn without_a_usable_map_nothing_is_explained_and_the_reason_told() {
    let folder = Folder::new()
        .file("broken.toml", SEED_MAP.replace("$2", "$7"))
        .file("gateway.toml", "listen = 'x'\n")
        .file("orphan.toml", "node = 'n'\n");
    folder
        .run(["explain", "a"])
        .exits(2)
        .complains(["no topic-map.toml", "--map", "--config"]);
    let broken = ["explain", "a", "--map", "broken.toml"];
    folder.run(broken).exits(2).complains([
        "would not start with broken.toml",
        "room_$7",
        "$7 names no group",
    ]);
    let absent = ["explain", "a", "--map", "absent.toml"];
    folder
        .run(absent)
        .exits(2)
        .complains(["absent.toml cannot be read"]);
    let gateway = ["explain", "a", "--config", "gateway.toml"];
    folder
        .run(gateway)
        .exits(2)
        .complains(["gateway.toml:1:10: listen"]);
    let orphan = ["explain", "a", "--config", "orphan.toml"];
    folder
        .run(orphan)
        .exits(2)
        .complains(["topic-map.toml cannot be read"]);
    let swapped = ["explain", "a", "--map", "gateway.toml"];
    folder
        .run(swapped)
        .exits(2)
        .complains(["is a gateway file; name it with --config"]);
    let swapped = ["explain", "a", "--config", "broken.toml"];
    folder
        .run(swapped)
        .exits(2)
        .complains(["is a topic map; name it with --map"]);
    folder.run(["explain"]).exits(2).complains(["required"]);
}
