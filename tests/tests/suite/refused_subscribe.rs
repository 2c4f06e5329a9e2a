//! SUBSCRIBE and UNSUBSCRIBE: what closes the connection, and what is refused filter by filter (MQTT 3.1.1, 3.8 to 3.11).

use e2e::deployment::Deployment;
use e2e::packet::{self, suback, subscribe, subscribe_bytes, unsubscribe};
use e2e::refusal::{Row, check_connected};

use crate::refused_connect::bad_text;

const TOPIC: &str = "device/1/x";

#[test]
fn a_subscribe_that_breaks_a_rule_closes_the_connection() {
    let deployment = Deployment::start();
    let with_flags = |first: u8| {
        let mut bytes = subscribe(1, &[(TOPIC, 0)]);
        bytes[0] = first;
        bytes
    };
    check_connected(
        deployment.mqtt(),
        &[
            Row::close("QoS 3", subscribe(1, &[(TOPIC, 3)])),
            Row::close(
                "a reserved bit beside QoS 1",
                subscribe(1, &[(TOPIC, 0x05)]),
            ),
            Row::close("the highest reserved bit", subscribe(1, &[(TOPIC, 0x80)])),
            Row::close(
                "a good filter before a bad one",
                subscribe(1, &[(TOPIC, 0), ("device/2/x", 3)]),
            ),
            Row::close("flags 0", with_flags(0x80)),
            Row::close("flags 0011", with_flags(0x83)),
            Row::close("flags 1111", with_flags(0x8F)),
            Row::close("no filters", packet::packet(0x82, &[0, 1])),
            Row::close("nothing", packet::packet(0x82, &[])),
            Row::close("packet id 0", subscribe(0, &[(TOPIC, 0)])),
            Row::close("an empty filter", subscribe(1, &[("", 0)])),
            Row::close("# before the end", subscribe(1, &[("a/#/b", 0)])),
            Row::close("# beside text", subscribe(1, &[("a#", 0)])),
            Row::close("+ after text", subscribe(1, &[("a+", 0)])),
            Row::close("+ before text", subscribe(1, &[("+a/b", 0)])),
            Row::close("two ##", subscribe(1, &[("a/##", 0)])),
            Row::close(
                "a filter without a QoS",
                packet::packet(0x82, &[&[0, 1][..], &packet::string(TOPIC)].concat()),
            ),
            Row::close("a filter cut short", [0x82, 0x05, 0, 1, 0, 9, b'a']),
        ],
    );
}

#[test]
fn b57_a_filter_that_is_not_utf8_or_holds_u_0000_closes_the_connection() {
    let deployment = Deployment::start();
    let rows: Vec<Row> = bad_text()
        .into_iter()
        .map(|(what, bytes)| {
            let filter = [b"device/1/".as_slice(), bytes].concat();
            Row::close(what, subscribe_bytes(1, &[(&filter, 1)]))
        })
        .collect();
    check_connected(deployment.mqtt(), &rows);
}

#[test]
fn b78_each_filter_gets_its_own_code_and_qos_2_is_granted_as_qos_1() {
    let deployment = Deployment::builder().refuse_unmatched().start();
    check_connected(
        deployment.mqtt(),
        &[
            Row::answers("QoS 0", subscribe(1, &[(TOPIC, 0)]), &[suback(1, &[0])]),
            Row::answers("QoS 1", subscribe(2, &[(TOPIC, 1)]), &[suback(2, &[1])]),
            Row::answers("QoS 2", subscribe(3, &[(TOPIC, 2)]), &[suback(3, &[1])]),
            Row::answers(
                "a mixture",
                subscribe(
                    65_535,
                    &[
                        (TOPIC, 1),
                        ("unmapped/topic", 1),
                        ("device/2/x", 2),
                        ("device/+/x", 0),
                        ("#", 0),
                        ("device/3/x", 0),
                    ],
                ),
                &[suback(65_535, &[1, 0x80, 1, 0x80, 0x80, 0])],
            ),
        ],
    );
    let mut client = deployment.client("subscriber");
    client.send(&subscribe(
        1,
        &[(TOPIC, 1), ("unmapped/topic", 1), ("device/2/x", 2)],
    ));
    client.expect(&suback(1, &[1, 0x80, 1]));
    let mut publisher = deployment.client("publisher");
    publisher.send(&packet::publish_qos0("unmapped/topic", "refused"));
    publisher.publish("device/2/x", 1, "second");
    let message = client.expect_publish();
    assert_eq!(
        (message.payload.as_slice(), message.qos),
        (&b"second"[..], 1)
    );
    publisher.publish(TOPIC, 2, "first");
    assert_eq!(client.expect_publish().payload, b"first");
}

#[test]
fn a_subscription_over_the_limit_is_refused_and_the_others_stay() {
    let deployment = Deployment::builder().limit("max_subscriptions", 2).start();
    let mut client = deployment.client("client");
    client.send(&subscribe(
        1,
        &[("device/1/x", 0), ("device/2/x", 0), ("device/3/x", 0)],
    ));
    client.expect(&suback(1, &[0, 0, 0x80]));
    // The same filter again is no further subscription.
    client.send(&subscribe(2, &[("device/1/x", 1)]));
    client.expect(&suback(2, &[1]));
    client.send(&unsubscribe(3, &["device/2/x"]));
    client.expect(&packet::unsuback(3));
    client.send(&subscribe(4, &[("device/3/x", 0)]));
    client.expect(&suback(4, &[0]));
}

#[test]
fn an_unsubscribe_that_breaks_a_rule_closes_the_connection() {
    let deployment = Deployment::start();
    let with_flags = |first: u8| {
        let mut bytes = unsubscribe(1, &[TOPIC]);
        bytes[0] = first;
        bytes
    };
    check_connected(
        deployment.mqtt(),
        &[
            Row::close("flags 0", with_flags(0xA0)),
            Row::close("flags 1111", with_flags(0xAF)),
            Row::close("no filters", packet::packet(0xA2, &[0, 1])),
            Row::close("nothing", packet::packet(0xA2, &[])),
            Row::close("packet id 0", unsubscribe(0, &[TOPIC])),
            Row::close("an empty filter", unsubscribe(1, &[""])),
            Row::close("a filter cut short", [0xA2, 0x05, 0, 1, 0, 9, b'a']),
        ],
    );
}
