//! CONNECT: what is refused, and how the client sees it (MQTT 3.1.1, 3.1 and 3.2).

use std::time::{Duration, Instant};

use e2e::deployment::Deployment;
use e2e::packet::{self, ConnectFlags, connect_body, connect_with, string};
use e2e::raw::{Answer, PROMPT, RawClient};
use e2e::refusal::{Row, check_connected, check_first};
use e2e::wait::{self, PATIENCE};

const CLEAN: ConnectFlags = ConnectFlags::CLEAN;

/// A CONNECT with a protocol name and level of its own.
fn protocol(name: &str, level: u8) -> Vec<u8> {
    packet::packet(
        0x10,
        &connect_body(name, level, CLEAN, 0, &string("client")),
    )
}

#[test]
fn anything_before_connect_closes_the_connection() {
    let deployment = Deployment::start();
    check_first(
        deployment.mqtt(),
        &[
            Row::close("PINGREQ", packet::PINGREQ),
            Row::close("DISCONNECT", packet::DISCONNECT),
            Row::close("PUBLISH", packet::publish_qos0("device/1/x", "x")),
            Row::close("PUBLISH QoS 1", packet::publish("device/1/x", 1, "x")),
            Row::close("PUBACK", packet::puback(1)),
            Row::close("SUBSCRIBE", packet::subscribe(1, &[("device/1/x", 0)])),
            Row::close("UNSUBSCRIBE", packet::unsubscribe(1, &["device/1/x"])),
            Row::close("CONNACK", packet::CONNECTED),
            Row::close("type 0", [0x00, 0x00]),
            Row::close("type 15", [0xF0, 0x00]),
            Row::close("not MQTT", *b"GET / HTTP/1.1\r\n\r\n"),
        ],
    );
    assert_eq!(deployment.stored(), []);
}

#[test]
fn a_second_connect_closes_the_connection() {
    let deployment = Deployment::start();
    check_connected(
        deployment.mqtt(),
        &[Row::close("a second CONNECT", packet::connect("again", 0))],
    );
}

#[test]
fn no_connect_within_the_timeout_closes_the_connection() {
    let deployment = Deployment::builder().limit("connect_timeout", "1s").start();
    let connect = packet::connect("slow", 0);
    for sent in [&[][..], &connect[..1], &connect[..connect.len() - 1]] {
        let start = Instant::now();
        let mut client = RawClient::open(deployment.mqtt());
        client.send(sent);
        client.expect_closed(PROMPT);
        assert!(start.elapsed() >= Duration::from_millis(900));
    }
    deployment.client("quick").ping();
}

#[test]
fn an_unknown_protocol_level_gets_connack_1() {
    let deployment = Deployment::start();
    // MQTT 5 has a property length, here 0, before the client id.
    let mqtt5 = packet::packet(
        0x10,
        &connect_body("MQTT", 5, CLEAN, 0, &[&[0][..], &string("client")].concat()),
    );
    check_first(
        deployment.mqtt(),
        &[
            Row::connack("MQTT 3.1", 1, protocol("MQIsdp", 3)),
            Row::connack("MQTT 5", 1, mqtt5),
            Row::connack("MQTT level 3", 1, protocol("MQTT", 3)),
            Row::connack("MQTT level 6", 1, protocol("MQTT", 6)),
            Row::connack("MQTT level 0", 1, protocol("MQTT", 0)),
        ],
    );
}

#[test]
fn a_wrong_protocol_name_closes_the_connection() {
    let deployment = Deployment::start();
    check_first(
        deployment.mqtt(),
        &[
            Row::close("another name", protocol("MQTX", 4)),
            Row::close("lower case", protocol("mqtt", 4)),
            Row::close("a longer name", protocol("MQTTT", 4)),
            Row::close("no name", protocol("", 4)),
            Row::close("MQTT 3.1's name", protocol("MQIsdp", 4)),
        ],
    );
}

#[test]
fn a_connect_that_breaks_its_own_rules_closes_the_connection_without_connack() {
    let deployment = Deployment::start();
    let id = string("client");
    let with_will = [&id[..], &string("device/1/will"), &string("gone")].concat();
    check_first(
        deployment.mqtt(),
        &[
            Row::close(
                "the reserved flag",
                connect_with(CLEAN | ConnectFlags::RESERVED, 0, &id),
            ),
            Row::close(
                "a password without a user name",
                connect_with(
                    CLEAN | ConnectFlags::PASSWORD,
                    0,
                    &[&id[..], &string("secret")].concat(),
                ),
            ),
            Row::close(
                "will QoS 3",
                connect_with(
                    CLEAN | ConnectFlags::WILL | ConnectFlags::WILL_QOS_3,
                    0,
                    &with_will,
                ),
            ),
            Row::close(
                "a will QoS without a will",
                connect_with(CLEAN | ConnectFlags::WILL_QOS_1, 0, &id),
            ),
            Row::close(
                "will retain without a will",
                connect_with(CLEAN | ConnectFlags::WILL_RETAIN, 0, &id),
            ),
            Row::close(
                "bytes left over",
                connect_with(CLEAN, 0, &[&id[..], b"x"].concat()),
            ),
            Row::close("no client id at all", connect_with(CLEAN, 0, &[])),
            Row::close(
                "a client id cut short",
                connect_with(CLEAN, 0, &[0, 9, b'x']),
            ),
            Row::close(
                "a user name announced and missing",
                connect_with(CLEAN | ConnectFlags::USER_NAME, 0, &id),
            ),
            Row::close(
                "wrong fixed-header flags",
                packet::packet(0x11, &connect_body("MQTT", 4, CLEAN, 0, &id)),
            ),
            Row::close("an empty CONNECT", [0x10, 0x00]),
        ],
    );
}

#[test]
fn b57_text_that_is_not_utf8_or_holds_u_0000_closes_the_connection() {
    let deployment = Deployment::start();
    let user_name = |bytes: &[u8]| {
        connect_with(
            CLEAN | ConnectFlags::USER_NAME,
            0,
            &[&string("client")[..], &string(bytes)].concat(),
        )
    };
    let will_topic = |bytes: &[u8]| {
        connect_with(
            CLEAN | ConnectFlags::WILL,
            0,
            &[&string("client")[..], &string(bytes), &string("gone")].concat(),
        )
    };
    let mut rows = Vec::new();
    for (what, bytes) in bad_text() {
        let text = [b"a".as_slice(), bytes, b"b"].concat();
        rows.push(Row::close(what, connect_with(CLEAN, 0, &string(&text))));
        rows.push(Row::close(what, user_name(&text)));
        rows.push(Row::close(what, will_topic(&text)));
    }
    check_first(deployment.mqtt(), &rows);
}

/// Sequences that MQTT forbids in any text (1.5.3).
pub(crate) fn bad_text() -> [(&'static str, &'static [u8]); 4] {
    [
        ("U+0000", &[0x00]),
        ("the byte FF", &[0xFF]),
        ("a surrogate", &[0xED, 0xA0, 0x80]),
        ("an overlong U+0000", &[0xC0, 0x80]),
    ]
}

#[test]
fn b42_an_empty_client_id_needs_a_clean_session_and_a_long_one_is_refused() {
    let deployment = Deployment::start();
    let long = "c".repeat(256);
    check_first(
        deployment.mqtt(),
        &[
            Row::connack(
                "an empty client id without clean session",
                2,
                connect_with(ConnectFlags::NONE, 0, &string("")),
            ),
            Row::connack("256 bytes of client id", 2, packet::connect(&long, 0)),
            Row::answers(
                "255 bytes of client id",
                packet::connect(&long[..255], 0),
                &[packet::CONNECTED.to_vec()],
            ),
            Row::answers(
                "an empty client id",
                packet::connect("", 0),
                &[packet::CONNECTED.to_vec()],
            ),
            Row::answers(
                "U+FEFF in a client id",
                packet::connect("\u{feff}client", 0),
                &[packet::CONNECTED.to_vec()],
            ),
            Row::answers(
                "a user name and a password, which nobody checks yet",
                connect_with(
                    CLEAN | ConnectFlags::USER_NAME | ConnectFlags::PASSWORD,
                    0,
                    &[&string("client")[..], &string("user"), &string("secret")].concat(),
                ),
                &[packet::CONNECTED.to_vec()],
            ),
        ],
    );
}

#[test]
fn what_is_not_served_yet_gets_connack_5_and_a_line_in_the_log() {
    let deployment = Deployment::start();
    check_first(
        deployment.mqtt(),
        &[
            Row::connack(
                "a persistent session",
                5,
                connect_with(ConnectFlags::NONE, 0, &string("persistent")),
            ),
            Row::connack(
                "a will",
                5,
                connect_with(
                    CLEAN | ConnectFlags::WILL,
                    0,
                    &[&string("dying")[..], &string("device/1/x"), &string("gone")].concat(),
                ),
            ),
        ],
    );
    deployment.host.wait_for_log(&["no persistent sessions"]);
    deployment.host.wait_for_log(&["Wills are not served"]);
}

#[test]
fn a_connect_over_its_size_limit_closes_the_connection_at_the_header() {
    let deployment = Deployment::start();
    let big = connect_with(
        CLEAN | ConnectFlags::USER_NAME,
        0,
        &[&string("client")[..], &string("u".repeat(9_000))].concat(),
    );
    let mut client = RawClient::open(deployment.mqtt());
    client.send(&big[..3]);
    client.expect_closed(PROMPT);
    let fits = connect_with(
        CLEAN | ConnectFlags::USER_NAME,
        0,
        &[&string("client")[..], &string("u".repeat(8_000))].concat(),
    );
    check_first(
        deployment.mqtt(),
        &[
            Row::close("9,000 bytes", big),
            Row::answers("8,000 bytes", fits, &[packet::CONNECTED.to_vec()]),
        ],
    );
}

#[test]
fn connections_over_the_limit_get_connack_3_until_one_leaves() {
    let deployment = Deployment::builder().limit("max_connections", 2).start();
    let first = deployment.client("first");
    let mut second = deployment.client("second");
    let mut third = RawClient::open(deployment.mqtt());
    third.send(&packet::connect("third", 0));
    third.expect(&[0x20, 2, 0, 3]);
    third.expect_closed(PROMPT);
    second.ping();
    drop(first);
    wait::until("a place becomes free", PATIENCE, || {
        let mut third = RawClient::open(deployment.mqtt());
        third.send(&packet::connect("third", 0));
        third.answer(PROMPT) == Answer::Packet(packet::CONNECTED.to_vec())
    });
}
