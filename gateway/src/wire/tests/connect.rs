//! CONNECT (3.1).

use super::*;
use crate::mqtt::{ClientId, TopicError};
use crate::wire::ConnectReturnCode::{IdentifierRejected, UnacceptableProtocolVersion};
use crate::wire::Password;

const NAME: &[u8] = b"\x00\x04MQTT";
const LEVEL: &[u8] = &[4];
const KEEP_ALIVE: &[u8] = &[0, 60];
const NO_ID: &[u8] = &[0, 0];
const ID: &[u8] = b"\x00\x02id";

const CLEAN: u8 = 0x02;
const WILL: u8 = 0x04;
const WILL_QOS_1: u8 = 0x08;
const WILL_QOS_2: u8 = 0x10;
const WILL_QOS_3: u8 = 0x18;
const WILL_RETAIN: u8 = 0x20;
const PASSWORD: u8 = 0x40;
const USER_NAME: u8 = 0x80;

fn connect(flags: u8, payload: &[&[u8]]) -> Vec<u8> {
    packet(
        0x10,
        &[NAME, LEVEL, &[flags], KEEP_ALIVE, &payload.concat()],
    )
}

fn accepted_connect(stream: &[u8]) -> Connect {
    let outcome = decode(stream);
    assert_eq!((outcome.violation, outcome.waiting), (None, Some(0)));
    match <[Packet; 1]>::try_from(outcome.packets) {
        Ok([Packet::Connect(connect)]) => *connect,
        other => panic!("{other:?}"),
    }
}

#[test]
fn all_fields_of_a_connect_are_handed_out() {
    let stream = packet(
        0x10,
        &[
            NAME,
            LEVEL,
            &[USER_NAME | PASSWORD | WILL_RETAIN | WILL_QOS_2 | WILL | CLEAN],
            &[0x12, 0x34], // keep-alive
            &field("dévice-1"),
            &field("will/topic"),
            &field([0x00, 0xff]), // will message: any bytes
            &field("user"),
            &field([0x00, 0xff, b'p']), // password: any bytes
        ],
    );
    assert_eq!(
        accepted_connect(&stream),
        Connect {
            client_id: ClientId::new("dévice-1"),
            clean_session: true,
            keep_alive: 0x1234,
            will: true,
            username: Some("user".into()),
            password: Some(Password::new(vec![0x00, 0xff, b'p'])),
        }
    );
}

#[test]
fn a_persistent_session_with_an_id_and_a_user_name_alone_are_well_formed() {
    let connect = accepted_connect(&connect(USER_NAME, &[ID, &field("")]));
    assert_eq!(connect.client_id, ClientId::new("id"));
    assert_eq!((connect.clean_session, connect.will), (false, false));
    assert_eq!(
        (connect.username.as_deref(), connect.password),
        (Some(""), None)
    );
}

#[test]
fn a_debug_output_shows_no_password() {
    let text = format!(
        "{:?}",
        accepted_connect(&connect(
            CLEAN | USER_NAME | PASSWORD,
            &[ID, &field("u"), &field("hunter2")]
        ))
    );
    assert!(
        text.contains("redacted") && !text.contains("hunter2") && !text.contains("104"),
        "{text}"
    );
}

#[test]
fn a_user_name_and_a_client_id_do_not_keep_the_packet_that_they_came_in() {
    let stream = connect(CLEAN | USER_NAME, &[ID, &field("user")]);
    let mut buf = BytesMut::from(&stream[..]);
    let memory = buf.as_ptr_range();
    let Ok(Some(Packet::Connect(connect))) = Decoder::new(LIMITS).decode(&mut buf) else {
        panic!()
    };
    assert!(!memory.contains(&connect.username.unwrap().as_ptr()));
    assert!(!memory.contains(&connect.client_id.unwrap().as_str().as_ptr()));
}

#[test]
fn a_protocol_level_other_than_4_is_answered_with_code_1() {
    // Version 3.1, version 5 (whose body has another form), unknown ones, and the level of a bridge with its high bit set.
    for (name, level) in [
        ("MQIsdp", 3),
        ("MQTT", 5),
        ("MQTT", 6),
        ("MQTT", 3),
        ("MQTT", 0),
        ("MQTT", 0x84),
        ("HTTP", 1),
    ] {
        let stream = packet(
            0x10,
            &[&field(name), &[level], &[CLEAN], KEEP_ALIVE, &[0], NO_ID],
        );
        refused_with(
            &stream,
            UnacceptableProtocolVersion,
            Violation::ProtocolLevel { level },
            "[MQTT-3.1.2-2]",
        );
        // Even if nothing follows the level.
        let stream = packet(0x10, &[&field(name), &[level]]);
        refused_with(
            &stream,
            UnacceptableProtocolVersion,
            Violation::ProtocolLevel { level },
            "[MQTT-3.1.2-2]",
        );
    }
}

#[test]
fn a_wrong_protocol_name_with_level_4_is_closed_without_a_word() {
    for name in ["MQIsdp", "mqtt", "MQT", "MQTTx", "HTTP", ""] {
        let stream = packet(0x10, &[&field(name), LEVEL, &[CLEAN], KEEP_ALIVE, NO_ID]);
        refused(&stream, Violation::ProtocolName, "[MQTT-3.1.2-1]");
        assert_eq!(Violation::ProtocolName.answer(), None);
    }
}

#[test]
fn malformed_connect_flags_are_closed_without_a_word() {
    for (flags, violation, clause) in [
        (
            CLEAN | 0x01,
            Violation::ReservedConnectFlag,
            "[MQTT-3.1.2-3]",
        ),
        (CLEAN | WILL_QOS_1, Violation::WillFlags, "[MQTT-3.1.2-13]"),
        (CLEAN | WILL_QOS_2, Violation::WillFlags, "[MQTT-3.1.2-13]"),
        (CLEAN | WILL_RETAIN, Violation::WillFlags, "[MQTT-3.1.2-15]"),
        (
            CLEAN | WILL | WILL_QOS_3,
            Violation::WillQos3,
            "[MQTT-3.1.2-14]",
        ),
        (
            CLEAN | PASSWORD,
            Violation::PasswordWithoutUserName,
            "[MQTT-3.1.2-22]",
        ),
    ] {
        // Each with all fields that its flags may ask for.
        let will: &[&[u8]] = if flags & WILL == 0 {
            &[]
        } else {
            &[b"\x00\x01t", b"\x00\x01m"]
        };
        let secret: &[u8] = if flags & PASSWORD == 0 {
            b""
        } else {
            b"\x00\x01p"
        };
        refused(
            &connect(flags, &[ID, &will.concat(), secret]),
            violation,
            clause,
        );
        assert_eq!(violation.answer(), None);
    }
}

#[test]
fn every_value_of_the_connect_flags_is_judged_as_the_standard_says() {
    for flags in 0..=255_u8 {
        let has = |bit: u8| flags & bit != 0;
        let mut payload = vec![ID];
        if has(WILL) {
            payload.extend([&b"\x00\x01t"[..], b"\x00\x01m"]);
        }
        if has(USER_NAME) {
            payload.push(b"\x00\x01u");
        }
        if has(PASSWORD) {
            payload.push(b"\x00\x01p");
        }
        let legal = !has(0x01)
            && (has(WILL) || !has(WILL_QOS_3 | WILL_RETAIN))
            && flags & WILL_QOS_3 != WILL_QOS_3
            && (has(USER_NAME) || !has(PASSWORD));
        let outcome = decode(&connect(flags, &payload));
        assert_eq!(
            outcome.violation.is_none(),
            legal,
            "{flags:#010b}: {outcome:?}"
        );
        assert_eq!(outcome.packets.len(), usize::from(legal), "{flags:#010b}");
    }
}

#[test]
fn bytes_after_the_last_field_are_closed_without_a_word() {
    let violation = Violation::TrailingBytes { count: 3 };
    refused(&connect(CLEAN, &[ID, b"xyz"]), violation, "[MQTT-4.8.0-1]");
    assert_eq!(violation.answer(), None);
    // A field whose flag is not set is as much too much, and comes before the answer to an empty id.
    refused(
        &connect(0, &[NO_ID, b"\x00\x01u"]),
        violation,
        "[MQTT-4.8.0-1]",
    );
}

#[test]
fn a_connect_that_ends_within_a_field_is_closed_without_a_word() {
    let body = [
        NAME,
        LEVEL,
        &[CLEAN | WILL | USER_NAME | PASSWORD],
        KEEP_ALIVE,
        ID,
        b"\x00\x01t",
        b"\x00\x01m",
        b"\x00\x01u",
        b"\x00\x01p",
    ]
    .concat();
    for length in 0..body.len() {
        refused(
            &packet(0x10, &[&body[..length]]),
            Violation::Truncated,
            "[MQTT-4.8.0-1]",
        );
    }
    accepted_connect(&packet(0x10, &[&body]));
}

#[test]
fn an_empty_client_id_needs_clean_session() {
    refused_with(
        &connect(0, &[NO_ID]),
        IdentifierRejected,
        Violation::EmptyClientId,
        "[MQTT-3.1.3-8]",
    );
    assert_eq!(accepted_connect(&connect(CLEAN, &[NO_ID])).client_id, None);
}

#[test]
fn a_client_id_has_at_most_255_bytes() {
    let legal = "ü".repeat(127) + "x";
    let connected = accepted_connect(&connect(CLEAN, &[&field(&legal)]));
    assert_eq!(connected.client_id.unwrap().as_str(), legal);
    refused_with(
        &connect(CLEAN, &[&field("x".repeat(256))]),
        IdentifierRejected,
        Violation::ClientIdTooLong { length: 256 },
        "3.1.3.1",
    );
}

#[test]
fn ill_formed_text_in_any_field_is_closed_without_a_word() {
    // A byte that UTF-8 never has, a surrogate, an overlong form, a code point above U+10FFFF, a sequence cut short.
    let ill_formed: [&[u8]; 5] = [
        b"a\xff",
        b"\xed\xa0\x80",
        b"\xc0\x80",
        b"\xf4\x90\x80\x80",
        b"a\xe6\x9d",
    ];
    for text in ill_formed {
        for payload in payloads_with(text) {
            refused(
                &connect(CLEAN | WILL | USER_NAME, &[&payload]),
                Violation::InvalidUtf8,
                "[MQTT-1.5.3-1]",
            );
        }
    }
}

#[test]
fn u_0000_in_any_text_is_closed_without_a_word() {
    let [client_id, will_topic, user_name] = payloads_with(b"a\0b");
    let flags = CLEAN | WILL | USER_NAME;
    refused(
        &connect(flags, &[&client_id]),
        Violation::Nul,
        "[MQTT-1.5.3-2]",
    );
    refused(
        &connect(flags, &[&user_name]),
        Violation::Nul,
        "[MQTT-1.5.3-2]",
    );
    refused(
        &connect(flags, &[&will_topic]),
        Violation::WillTopic(TopicError::Nul),
        "[MQTT-4.7.3-2]",
    );
}

#[test]
fn u_feff_is_kept_in_text() {
    let stream = connect(
        CLEAN | USER_NAME,
        &[&field(b"\xef\xbb\xbfid"), &field(b"\xef\xbb\xbf")],
    );
    let connect = accepted_connect(&stream);
    assert_eq!(connect.client_id.unwrap().as_str(), "\u{feff}id");
    assert_eq!(connect.username.as_deref(), Some("\u{feff}"));
}

/// The same text as client id, as will topic and as user name.
fn payloads_with(text: &[u8]) -> [Vec<u8>; 3] {
    let payload = |id: &[u8], topic: &[u8], user: &[u8]| {
        [field(id), field(topic), field("m"), field(user)].concat()
    };
    [
        payload(text, b"t", b"u"),
        payload(b"id", text, b"u"),
        payload(b"id", b"t", text),
    ]
}

#[test]
fn a_will_goes_to_a_topic_name() {
    for (topic, error, clause) in [
        ("", TopicError::Empty, "[MQTT-4.7.3-1]"),
        ("a/+", TopicError::WildcardInName, "[MQTT-3.3.2-2]"),
        ("#", TopicError::WildcardInName, "[MQTT-3.3.2-2]"),
    ] {
        let stream = connect(CLEAN | WILL, &[ID, &field(topic), &field("")]);
        refused(&stream, Violation::WillTopic(error), clause);
        assert_eq!(Violation::WillTopic(error).answer(), None);
    }
}
