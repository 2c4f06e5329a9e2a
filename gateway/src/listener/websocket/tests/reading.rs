//! What a client sends.

use super::*;

const PING: u8 = 0x89;

/// What the reader gets and how it ends if a client sends `bytes` and closes; cut byte by byte, and not. And the frames
/// that the client is sent.
async fn send(bytes: &[u8]) -> (Vec<u8>, Option<Broken>, Vec<(u8, Vec<u8>)>) {
    let mut last = None;
    for room in [1, 7, 1 << 20] {
        let (mut socket, client) = open(room, true);
        let (mut hear, mut say) = tokio::io::split(client);
        let server = async {
            let (got, broken) = read_all(&mut socket).await;
            socket.shutdown().await.unwrap();
            // As a connection does: until the client has closed.
            let mut rest = Vec::new();
            socket.read_to_end(&mut rest).await.unwrap();
            assert_eq!(rest, b"");
            drop(socket);
            (got, broken)
        };
        let talk = async {
            say.write_all(bytes).await.unwrap();
            say.shutdown().await.unwrap();
        };
        let mut answers = Vec::new();
        let both = async { tokio::join!(server, talk, hear.read_to_end(&mut answers)) };
        let ((got, broken), ..) = timeout(SOON, both).await.unwrap();
        let this = (got, broken, frames_of(&answers));
        assert_eq!(
            last.get_or_insert_with(|| this.clone()),
            &this,
            "room {room}"
        );
    }
    last.unwrap()
}

fn close(code: u16) -> (u8, Vec<u8>) {
    (CLOSE, code.to_be_bytes().to_vec())
}

#[tokio::test]
async fn a_packet_may_span_frames_and_a_frame_may_hold_several() {
    let mut bytes = frame(BINARY, b"one two thr");
    bytes.extend(frame(BINARY, b""));
    bytes.extend(frame(0x02, b"ee"));
    bytes.extend(frame(0x00, b" fo"));
    bytes.extend(frame(0x80, b"ur"));
    let (got, broken, _) = send(&bytes).await;
    assert_eq!((&got[..], broken), (&b"one two three four"[..], None));
}

#[tokio::test]
async fn frames_of_every_form_of_length_are_read() {
    for length in [0, 1, 125, 126, 127, 65_535, 65_536, 100_000] {
        let payload: Vec<u8> = (0..length).map(|n| n as u8).collect();
        let (mut socket, mut client) = open(1 << 20, true);
        client.write_all(&frame(BINARY, &payload)).await.unwrap();
        client.shutdown().await.unwrap();
        let (got, broken) = read_all(&mut socket).await;
        assert_eq!((got == payload, broken), (true, None), "{length}");
    }
}

#[tokio::test]
async fn text_ends_the_connection_with_1003() {
    let bytes = [
        frame(BINARY, b"before"),
        frame(0x81, b"text"),
        frame(BINARY, b"after"),
    ];
    let (got, broken, sent) = send(&bytes.concat()).await;
    assert_eq!((&got[..], broken), (&b"before"[..], Some(Broken::Text)));
    assert_eq!(sent, [close(1003)]);
}

#[tokio::test]
async fn what_rfc_6455_forbids_ends_the_connection_with_1002() {
    let unmasked = vec![BINARY, 2, 1, 2];
    let mut half_code = frame(CLOSE, &[3]);
    half_code.extend(frame(BINARY, b"after"));
    for (name, bytes) in [
        ("not masked", unmasked),
        ("an unmasked ping", vec![PING, 0]),
        ("a reserved bit", frame(0xc2, b"x")),
        ("another reserved bit", frame(0x92, b"x")),
        ("a reserved opcode", frame(0x83, b"x")),
        ("a reserved control opcode", frame(0x8b, b"x")),
        ("a fragmented ping", frame(0x09, b"x")),
        ("a long ping", frame(PING, &[0; 126])),
        ("a continuation of nothing", frame(0x80, b"x")),
        (
            "a message in a message",
            [frame(0x02, b"x"), frame(BINARY, b"y")].concat(),
        ),
        (
            "a text in a message",
            [frame(0x02, b"x"), frame(0x81, b"y")].concat(),
        ),
        ("half a code", half_code),
        ("a code that is none", frame(CLOSE, &999_u16.to_be_bytes())),
        (
            "a code that is never sent",
            frame(CLOSE, &1_006_u16.to_be_bytes()),
        ),
        ("a reason that is no text", frame(CLOSE, &[3, 232, 0xff])),
    ] {
        let bytes = [frame(BINARY, b"before "), bytes].concat();
        let (got, broken, sent) = send(&bytes).await;
        assert!(got.starts_with(b"before "), "{name}");
        assert!(
            matches!(broken, Some(Broken::Frame(_))),
            "{name}: {broken:?}"
        );
        assert_eq!(sent, [close(1002)], "{name}");
    }
}

#[tokio::test]
async fn a_ping_is_answered_also_between_fragments_and_a_pong_is_not() {
    let bytes = [
        frame(0x02, b"fir"),
        frame(PING, b"here?"),
        frame(0x8a, b"unasked"),
        frame(0x80, b"st"),
        frame(PING, &[7; 125]),
    ];
    let (mut socket, mut client) = open(1 << 16, true);
    let mut got = [0; 5];
    client.write_all(&bytes[..2].concat()).await.unwrap();
    socket.read_exact(&mut got[..3]).await.unwrap();
    let mut pong = [0; 7];
    let (_, heard) = tokio::join!(timeout(SOON, socket.read_exact(&mut got[3..])), async {
        client.read_exact(&mut pong).await.unwrap();
        client.write_all(&bytes[2..].concat()).await.unwrap();
        pong
    });
    assert_eq!((&got, &heard), (b"first", b"\x8a\x05here?"));
    let mut rest = Vec::new();
    client.shutdown().await.unwrap();
    assert_eq!(read_all(&mut socket).await.0, b"");
    drop(socket);
    client.read_to_end(&mut rest).await.unwrap();
    assert_eq!(frames_of(&rest), [(PONG, vec![7; 125])]);
}

#[tokio::test]
async fn pings_that_the_client_does_not_hear_the_answers_of_are_not_kept() {
    let (read, mut client) = duplex(1 << 20);
    let (write, _deaf) = duplex(1);
    let stream = tokio::io::join(read, write);
    let admitted = Arc::new(AtomicBool::new(true));
    let mut socket = WebSocket::new(stream, admitted, &limits());
    for n in 0..1_000_u16 {
        client
            .write_all(&frame(PING, &n.to_be_bytes()))
            .await
            .unwrap();
    }
    client.write_all(&frame(BINARY, b"x")).await.unwrap();
    let mut got = [0];
    timeout(SOON, socket.read_exact(&mut got))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(&got, b"x");
    assert!(socket.head.rest().len() <= 4);
    assert_eq!(socket.pong.unwrap().bytes(), 999_u16.to_be_bytes());
}

#[tokio::test]
async fn a_close_is_answered_with_its_code_and_what_came_before_it_is_read() {
    for payload in [
        vec![],
        1_000_u16.to_be_bytes().to_vec(),
        b"\x0f\xa0bye".to_vec(),
    ] {
        let bytes = [
            frame(BINARY, b"last"),
            frame(CLOSE, &payload),
            frame(BINARY, b"after"),
        ];
        let (got, broken, sent) = send(&bytes.concat()).await;
        assert_eq!((&got[..], broken), (&b"last"[..], None));
        assert_eq!(sent, [(CLOSE, payload.into_iter().take(2).collect())]);
    }
}

#[tokio::test]
async fn a_frame_that_announces_too_much_ends_the_connection_at_its_header() {
    for (is_admitted, max) in [(false, 1_000), (true, 100_000)] {
        for size in [max + 1, 1 << 32, u64::MAX] {
            let (mut socket, mut client) = open(1 << 20, is_admitted);
            client.write_all(&announced(BINARY, size)).await.unwrap();
            let (got, broken) = read_all(&mut socket).await;
            let too_long = Broken::TooLong {
                size,
                max,
                admitted: is_admitted,
            };
            assert_eq!((got, broken), (vec![], Some(too_long)));
            assert_eq!(sent_at_the_end(socket, client).await, [close(1009)]);
        }
        let (mut socket, mut client) = open(1 << 20, is_admitted);
        let payload = vec![7; max as usize];
        client.write_all(&frame(BINARY, &payload)).await.unwrap();
        client.shutdown().await.unwrap();
        assert_eq!(read_all(&mut socket).await, (payload, None));
    }
}

#[tokio::test]
async fn a_frame_right_behind_the_one_with_connect_is_judged_when_connect_was_accepted() {
    for room in [3, 1 << 20] {
        let (mut socket, mut client) = open(room, false);
        let admitted = socket.admitted.clone();
        let bytes = [
            frame(BINARY, b"CONN"),
            frame(BINARY, b"ECT"),
            frame(BINARY, &[1; 5_000]),
        ];
        let sending = async {
            client.write_all(&bytes.concat()).await.unwrap();
            client.shutdown().await.unwrap();
        };
        let reading = async {
            let mut got = Vec::with_capacity(8_192);
            while got.len() < 7 {
                assert!(socket.read_buf(&mut got).await.unwrap() > 0);
            }
            assert_eq!(got, b"CONNECT");
            admitted.store(true, Ordering::Relaxed);
            read_all(&mut socket).await
        };
        let (_, read) = tokio::join!(sending, reading);
        assert_eq!(read, (vec![1; 5_000], None));
    }
}

#[tokio::test]
async fn half_a_message_before_the_end_is_an_error() {
    for bytes in [&frame(BINARY, b"abc")[..7], &frame(0x02, b"abc"), &[BINARY]] {
        let (mut socket, mut client) = open(64, true);
        client.write_all(bytes).await.unwrap();
        client.shutdown().await.unwrap();
        let error = socket.read_to_end(&mut Vec::new()).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
