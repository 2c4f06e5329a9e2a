//! Frames that no client may send: wrong types, flags and lengths (MQTT 3.1.1, 2.2, and 4.8).

use e2e::deployment::Deployment;
use e2e::packet;
use e2e::refusal::{Row, check_connected};

#[test]
fn b65_a_wrong_fixed_header_closes_the_connection() {
    let deployment = Deployment::start();
    check_connected(
        deployment.mqtt(),
        &[
            Row::close("a corrupt ping", [0x0A, 0xC0]),
            Row::close("type 0", [0x00, 0x00]),
            Row::close("type 15", [0xF0, 0x00]),
            Row::close("PINGREQ with flags", [0xC1, 0x00]),
            Row::close("PINGREQ with a body", [0xC0, 0x01, 0x00]),
            Row::close("DISCONNECT with flags", [0xE1, 0x00]),
            Row::close("DISCONNECT with a body", [0xE0, 0x01, 0x00]),
            Row::close("PUBACK with flags", [0x41, 0x02, 0x00, 0x01]),
            Row::close("PUBACK without a packet id", [0x40, 0x00]),
            Row::close(
                "PUBACK with a byte too many",
                [0x40, 0x03, 0x00, 0x01, 0x00],
            ),
            Row::close(
                "a length of five bytes",
                [0x30, 0x80, 0x80, 0x80, 0x80, 0x01],
            ),
            Row::close("a length that goes on", [0xC0, 0xFF, 0xFF, 0xFF, 0xFF]),
        ],
    );
}

#[test]
fn packets_that_only_a_server_sends_close_the_connection() {
    let deployment = Deployment::start();
    check_connected(
        deployment.mqtt(),
        &[
            Row::close("CONNACK", packet::CONNECTED),
            Row::close("SUBACK", packet::suback(1, &[0])),
            Row::close("UNSUBACK", packet::unsuback(1)),
            Row::close("PINGRESP", packet::PINGRESP),
        ],
    );
}

#[test]
fn the_packets_of_qos_2_close_the_connection() {
    let deployment = Deployment::start();
    check_connected(
        deployment.mqtt(),
        &[
            Row::close("PUBREC", [0x50, 0x02, 0x00, 0x01]),
            Row::close("PUBREL", [0x62, 0x02, 0x00, 0x01]),
            Row::close("PUBREL with flags 0", [0x60, 0x02, 0x00, 0x01]),
            Row::close("PUBCOMP", [0x70, 0x02, 0x00, 0x01]),
        ],
    );
}

#[test]
fn what_is_allowed_is_answered_and_the_connection_lives() {
    let deployment = Deployment::start();
    check_connected(
        deployment.mqtt(),
        &[
            Row::answers("PINGREQ", packet::PINGREQ, &[packet::PINGRESP.to_vec()]),
            Row::answers("a PUBACK for nothing", packet::puback(9), &[]),
            Row::answers(
                "UNSUBSCRIBE of nothing",
                packet::unsubscribe(5, &["device/1/x"]),
                &[packet::unsuback(5)],
            ),
        ],
    );
}

#[test]
fn a_disconnect_ends_the_connection_quietly() {
    let deployment = Deployment::start();
    check_connected(
        deployment.mqtt(),
        &[
            Row::close("DISCONNECT", packet::DISCONNECT),
            Row::close(
                "DISCONNECT and more",
                [&packet::DISCONNECT[..], &packet::PINGREQ].concat(),
            ),
        ],
    );
    assert_eq!(deployment.host.log_line(&["WARN", "isconnect"]), None);
}
