//! Payloads up to the limit pass, one byte more is refused before it is buffered (B63).

use e2e::deployment::Deployment;
use e2e::packet;
use e2e::raw::{Answer, PROMPT, RawClient};
use e2e::wait::PATIENCE;

const TOPIC: &str = "device/1/x";
const DEFAULT_LIMIT: usize = 256 * 1024;
/// Fixed header with three length bytes, topic with its length, packet id.
const AROUND: usize = 4 + 2 + TOPIC.len() + 2;

/// Publishes `length` bytes with QoS 1 and receives them again.
fn round_trip(deployment: &Deployment, client: &mut RawClient, id: u16, length: usize) {
    let payload: Vec<u8> = (0..=255).cycle().take(length).collect();
    client.send(&packet::publish(TOPIC, id, &payload));
    let mut acknowledged = false;
    let mut delivered = false;
    while !(acknowledged && delivered) {
        match client.answer(PATIENCE) {
            Answer::Packet(bytes) if bytes == packet::puback(id) => acknowledged = true,
            Answer::Packet(bytes) => {
                let message = packet::read_publish(&bytes).expect("a PUBLISH");
                assert!(
                    message.payload == payload,
                    "{length} bytes come back changed"
                );
                client.send(&packet::puback(message.id));
                delivered = true;
            }
            other => panic!("{other:?} for {length} bytes"),
        }
    }
    let stored = deployment.device_records();
    assert!(stored.iter().any(|record| record.payload == payload));
}

#[test]
fn b63_payloads_up_to_the_default_limit_pass_and_one_byte_more_closes_with_a_line_in_the_log() {
    let deployment = Deployment::start();
    let mut client = deployment.client("big-client");
    client.subscribe(TOPIC, 1);
    for (id, length) in (1..).zip([8_092, 8_193, 65_536, DEFAULT_LIMIT - AROUND]) {
        round_trip(&deployment, &mut client, id, length);
    }
    let before = deployment.device_records().len();

    let too_long = packet::publish(TOPIC, 9, vec![b'x'; DEFAULT_LIMIT - AROUND + 1]);
    assert_eq!(too_long.len(), DEFAULT_LIMIT + 1);
    // Only the fixed header: the body must not be waited for.
    client.send(&too_long[..4]);
    client.expect_closed(PROMPT);
    let line = deployment
        .host
        .wait_for_log(&["big-client", &too_long.len().to_string()]);
    assert!(line.contains("max_packet_size"), "{line}");

    let mut whole = deployment.client("big-client-2");
    let _ = whole.try_send(&too_long);
    whole.expect_closed(PROMPT);
    assert_eq!(deployment.device_records().len(), before);
}

#[test]
fn b63_a_raised_limit_lets_a_mebibyte_and_more_pass() {
    let deployment = Deployment::builder()
        .limit("max_packet_size", "5 MiB")
        .limit("outbox_bytes", "8 MiB")
        .start();
    let mut client = deployment.client("client");
    client.subscribe(TOPIC, 1);
    round_trip(&deployment, &mut client, 1, 1024 * 1024);
    round_trip(&deployment, &mut client, 2, 4 * 1024 * 1024);
}

#[test]
fn a_length_of_a_quarter_gigabyte_closes_the_connection_at_once() {
    let deployment = Deployment::start();
    let mut client = deployment.client("client");
    client.send(&[0x30, 0xFF, 0xFF, 0xFF, 0x7F]);
    client.expect_closed(PROMPT);
    let mut before_connect = RawClient::open(deployment.mqtt());
    before_connect.send(&[0x10, 0xFF, 0xFF, 0xFF, 0x7F]);
    before_connect.expect_closed(PROMPT);
}
