//! What is wrong with keys and values is refused, by name and place, all at once.

use serde_json::{Value, json};

use super::{GatewayFile, PASSWORD, inline, line, lines, load};
use crate::config::{Place, Problem};

#[test]
fn everything_that_is_wrong_is_reported_at_once() {
    let file = GatewayFile::new(
        "lisen = '0.0.0.0:1883'\nnode = 'a b'\niggy_password = 'pw'\n\n[limits]\nmax_conections = 5\nsend_window = 'many'\n",
    );
    let plugin_config = json!({
        "config": file.path(), "listen": ["localhost:1883"], "iggy_grace": 10, "limits": { "node": "x" },
    });
    let environment = [
        ("MQTT_GATEWAY_IGGY_CONECTIONS", "4"),
        ("MQTT_GATEWAY_IGGY_CONNECTIONS", "65"),
    ];
    let lines = lines(&file, load(plugin_config, &environment));
    let starts = [
        "gateway.toml:1:1: lisen: unknown key; did you mean `listen`?",
        "gateway.toml:2:8: node: \"a b\" is no name; use 1 to 200",
        "gateway.toml:6:1: limits.max_conections: unknown key; did you mean `max_connections`?",
        "gateway.toml:7:15: limits.send_window: a whole number, without quotes, is needed, not a text",
        "plugin_config.iggy_grace: \"10\" has no unit; write for example \"30s\"",
        "plugin_config.limits.node: unknown key; did you mean `node` outside of the table limits?",
        "plugin_config.listen: \"localhost:1883\" is not IP:port; write for example \"127.0.0.1:1883\"",
        "MQTT_GATEWAY_IGGY_CONECTIONS: unknown key; did you mean MQTT_GATEWAY_IGGY_CONNECTIONS?",
        "MQTT_GATEWAY_IGGY_CONNECTIONS: 65 is out of range; use 1 to 64",
    ];
    assert_eq!(lines.len(), starts.len(), "{lines:#?}");
    for start in starts {
        assert!(
            lines.iter().any(|line| line.starts_with(start)),
            "{start}\nis not in\n{lines:#?}"
        );
    }
    let place = |line: &String| {
        ["gateway.toml", "plugin_config", "MQTT_"]
            .iter()
            .position(|p| line.starts_with(p))
    };
    assert!(lines.is_sorted_by_key(place), "{lines:#?}");
}

#[test]
fn a_key_in_the_wrong_table_is_told_where_it_belongs() {
    let report = line(json!({ "max_connections": 5 }));
    assert_eq!(
        report,
        "plugin_config.max_connections: unknown key; did you mean `max_connections` in the table limits?"
    );
    let report = line(json!({ "limits_max_connections": 5 }));
    assert!(
        report.ends_with("did you mean `max_connections` in the table limits?"),
        "{report}"
    );
    let report = line(json!({ "limits.max_connections": 5 }));
    assert!(
        report.ends_with("did you mean `max_connections` in the table limits?"),
        "{report}"
    );

    let file = GatewayFile::new(
        "iggy_password = 'pw'\n[limits]\nsend_window = 5\nlisten = '127.0.0.1:1883'\n",
    );
    let lines = lines(&file, file.load());
    let expected = "gateway.toml:4:1: limits.listen: unknown key; did you mean `listen` outside of the table limits? \
                    (it goes above the line [limits])";
    assert_eq!(lines, [expected]);
}

#[test]
fn a_key_like_no_other_gets_the_list_of_those_that_exist() {
    let report = line(json!({ "qqqq": 1 }));
    assert!(
        report.contains("known are: name, node, listen,") && report.contains("iggy_password_file"),
        "{report}"
    );
    let report = line(json!({ "limits": { "qqqq": 1 } }));
    assert!(report.contains("known are: max_packet_size,"), "{report}");
    let report = load(json!({}), &[PASSWORD, ("MQTT_GATEWAY_QQQQ", "1")])
        .unwrap_err()
        .to_string();
    assert!(report.contains("MQTT_GATEWAY_LISTEN"), "{report}");
}

#[test]
fn a_value_out_of_range_is_told_the_range() {
    for (key, value, start) in [
        (
            "max_packet_size",
            json!("65MB"),
            "65MB is out of range; use 14 to 64MB",
        ),
        (
            "max_packet_size",
            json!(13),
            "13 is out of range; use 14 to 64MB",
        ),
        (
            "max_topic_levels",
            json!(0),
            "0 is out of range; use 1 to 65536",
        ),
        (
            "max_topic_levels",
            json!(-1),
            "\"-1\" is not a whole number of 0 or more",
        ),
        (
            "max_topic_levels",
            json!(1.5),
            "\"1.5\" is not a whole number of 0 or more",
        ),
        (
            "max_poll_messages",
            json!(4_294_967_297_u64),
            "4294967297 is out of range; use 1 to 100000",
        ),
        (
            "ingest_bytes",
            json!("2TiB"),
            "2TiB is out of range; use 1 to 1TiB",
        ),
        (
            "ingest_bytes",
            json!("64 parsecs"),
            "\"64 parsecs\" is no size; write bytes",
        ),
        (
            "poll_interval_min",
            json!("0s"),
            "0s is out of range; use 1ms to 1day",
        ),
        (
            "max_keep_alive",
            json!("1day"),
            "1day is out of range; use 1s to 18h 12m 15s",
        ),
        (
            "ack_timeout",
            json!("30 sex"),
            "\"30 sex\" is no time; write for example \"30s\"",
        ),
        ("ack_timeout", json!("-1s"), "\"-1s\" is no time; write"),
        (
            "ack_timeout",
            json!(30),
            "\"30\" has no unit; write for example \"30s\"",
        ),
        (
            "ack_timeout",
            json!([30]),
            "a time with its unit, for example \"30s\", is needed, not a list",
        ),
        (
            "ack_timeout",
            Value::Null,
            "a time with its unit, for example \"30s\", is needed, not null",
        ),
        (
            "outbox_bytes",
            json!(true),
            "a size in bytes, 65536 or \"64KiB\", is needed, not true or false",
        ),
    ] {
        let report = line(json!({ "limits": { key: value } }));
        let start = format!("plugin_config.limits.{key}: {start}");
        assert!(
            report.starts_with(&start),
            "{report}\ndoes not begin with\n{start}"
        );
    }
}

#[test]
fn names_and_addresses_that_cannot_work_are_refused() {
    let too_long = "x".repeat(201);
    for (key, value) in [
        ("node", json!("")),
        ("node", json!("a/b")),
        ("node", json!("ä")),
        ("node", json!(too_long)),
        ("name", json!("a b")),
        ("listen", json!([])),
        ("listen", json!("")),
        ("listen", json!(1883)),
        ("listen", json!("127.0.0.1")),
        ("listen", json!("127.0.0.1:65536")),
        ("listen", json!(["127.0.0.1:1883", "127.0.0.1:1883"])),
        ("listen", json!([["127.0.0.1:1883"]])),
        ("iggy_address", json!("127.0.0.1")),
        ("iggy_address", json!(":8090")),
        ("iggy_address", json!("iggy:0")),
        ("iggy_address", json!("iggy:+80")),
        ("iggy_address", json!("iggy:8090?tls=true")),
        ("iggy_address", json!("::1:8090")),
        ("iggy_address", json!("[::g]:8090")),
        ("iggy_username", json!("")),
        ("iggy_username", json!("x".repeat(256))),
        ("topic_map", json!("")),
        ("topic_map", json!(".")),
        ("topic_map", json!("a\0b")),
        ("topic_map", json!(false)),
    ] {
        let report = line(json!({ key: value }));
        assert!(
            report.starts_with(&format!("plugin_config.{key}: ")),
            "{report}"
        );
    }
    assert_eq!(
        inline(json!({ "node": "x".repeat(200) }))
            .unwrap()
            .node
            .len(),
        200
    );
    assert_eq!(
        inline(json!({ "iggy_address": "[::1]:8090" }))
            .unwrap()
            .iggy
            .address,
        "[::1]:8090"
    );
}

#[test]
fn limits_that_do_not_go_together_are_refused_with_both_names() {
    let report = line(
        json!({ "limits": { "max_packet_size": "4MiB", "outbox_bytes": "4MiB", "ingest_bytes": "3MiB" } }),
    );
    assert_eq!(
        report,
        "plugin_config.limits.max_packet_size: limits.max_packet_size (4MiB) must not be greater than limits.ingest_bytes \
         (3MiB): a packet that is longer than the room for all of them could never be taken; lower the one or raise the other"
    );
    for limits in [
        json!({ "max_connect_size": "257KiB" }),
        json!({ "max_packet_size": "7KiB" }),
        json!({ "max_packet_size": "2MiB" }),
        json!({ "outbox_bytes_total": "512KiB" }),
        json!({ "poll_interval_min": "51ms" }),
    ] {
        let error = inline(json!({ "limits": limits.clone() })).unwrap_err();
        let [
            Problem::Relation {
                place: Place::Inline { key },
                ..
            },
        ] = error.problems.as_slice()
        else {
            panic!("{limits}: {error}");
        };
        assert!(
            limits.get(key.trim_start_matches("limits.")).is_some(),
            "{error} names what was given"
        );
    }
}

#[test]
fn a_value_that_is_overridden_has_to_be_right_too() {
    let file = GatewayFile::new("iggy_grace = '10'\n");
    let report = lines(
        &file,
        load(
            file.plugin_config(),
            &[PASSWORD, ("MQTT_GATEWAY_IGGY_GRACE", "10s")],
        ),
    );
    assert_eq!(report.len(), 1);
    assert!(
        report[0].starts_with("gateway.toml:1:14: iggy_grace: "),
        "{report:?}"
    );
}

#[test]
fn text_from_outside_stays_one_short_line() {
    let report = line(json!({ "node": "a\nb\u{1b}[31m" }));
    assert_eq!(report.lines().count(), 1);
    assert!(report.contains("\"a\\nb\\u{1b}[31m\""), "{report}");
    let report = line(json!({ "node": "x".repeat(10_000), }));
    assert!(report.len() < 300, "{report}");
    let report = line(json!({ "k\n".repeat(5_000): 1 }));
    assert!(
        report.lines().count() == 1 && report.len() < 1_000,
        "{report}"
    );
}
