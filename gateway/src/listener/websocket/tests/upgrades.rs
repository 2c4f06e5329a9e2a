//! The HTTP request, and its answer.

use super::*;

/// With the key of RFC 6455, 1.3.
const GOOD: &str = "GET /mqtt HTTP/1.1\r\nHost: gateway\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n";

/// Sends `request` in portions of `portion` bytes; gives what the server makes of it, and its answer.
async fn ask(request: &[u8], portion: usize) -> (Result<(), Refused>, String) {
    let (stream, client) = duplex(portion);
    let (mut read, mut write) = tokio::io::split(client);
    let admitted = Arc::new(AtomicBool::new(false));
    let limits = limits();
    let accepting = async { accept(stream, "/mqtt", admitted, &limits).await.map(drop) };
    let sending = async {
        // Who is refused early does not take the rest.
        let _ = write.write_all(request).await;
        let _ = write.shutdown().await;
        let mut answer = String::new();
        read.read_to_string(&mut answer).await.unwrap();
        answer
    };
    timeout(SOON, async { tokio::join!(accepting, sending) })
        .await
        .unwrap()
}

fn with(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from));
    GOOD.replace(from, to)
}

/// The refusal and the first line and the body of the answer.
async fn refused(request: &str) -> (Refused, String, String) {
    let mut last = None;
    for portion in [1, 7, 65_536] {
        let (result, answer) = ask(request.as_bytes(), portion).await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("Connection: close"), "{head}");
        assert!(
            head.contains(&format!("Content-Length: {}", body.len())),
            "{head}"
        );
        assert_eq!(body.lines().count(), 1, "{body}");
        let status = head.lines().next().unwrap().to_owned();
        last = Some((result.unwrap_err(), status, head.to_owned() + body));
    }
    last.unwrap()
}

#[tokio::test]
async fn an_upgrade_that_offers_mqtt_is_answered_with_it_however_it_is_cut() {
    for portion in [1, 7, 65_536] {
        let (result, answer) = ask(GOOD.as_bytes(), portion).await;
        result.unwrap();
        assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
        let lower = answer.to_lowercase();
        assert!(
            lower.contains("sec-websocket-protocol: mqtt\r\n"),
            "{answer}"
        );
        assert!(answer.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{answer}");
        assert!(!lower.contains("extensions"), "{answer}");
    }
}

#[tokio::test]
async fn mqtt_is_chosen_from_among_several() {
    for offers in [
        "Sec-WebSocket-Protocol: mqttv3.1, mqtt",
        "Sec-WebSocket-Protocol: chat,mqtt ,x",
        "Sec-WebSocket-Protocol: chat\r\nsec-websocket-protocol: mqtt",
    ] {
        let request = with("Sec-WebSocket-Protocol: mqtt", offers);
        let (result, answer) = ask(request.as_bytes(), 512).await;
        result.unwrap();
        assert!(
            answer
                .to_lowercase()
                .contains("sec-websocket-protocol: mqtt\r\n")
        );
    }
}

#[tokio::test]
async fn a_query_behind_the_path_is_not_part_of_it() {
    let (result, _) = ask(with("/mqtt", "/mqtt?x=1").as_bytes(), 512).await;
    result.unwrap();
}

#[tokio::test]
async fn who_does_not_offer_mqtt_exactly_is_refused() {
    for offers in [
        "",
        "Sec-WebSocket-Protocol: MQTT\r\n",
        "Sec-WebSocket-Protocol: mqttv3.1\r\n",
        "Sec-WebSocket-Protocol: mqtt5, mqttx\r\n",
    ] {
        let (why, status, _) = refused(&with("Sec-WebSocket-Protocol: mqtt\r\n", offers)).await;
        assert!(matches!(why, Refused::Subprotocol), "{why}");
        assert_eq!(status, "HTTP/1.1 400 Bad Request");
    }
}

#[tokio::test]
async fn another_path_is_not_found() {
    for path in ["/", "/MQTT", "/mqtt/", "/mqtt/x", "/mqttx"] {
        let (why, status, answer) = refused(&with("/mqtt ", &format!("{path} "))).await;
        assert!(matches!(why, Refused::Path { .. }), "{why}");
        assert_eq!(status, "HTTP/1.1 404 Not Found");
        assert!(answer.contains("/mqtt"));
    }
}

#[tokio::test]
async fn a_request_that_is_no_upgrade_is_told_to_upgrade() {
    for (from, to) in [
        ("Upgrade: websocket\r\n", ""),
        ("Upgrade: websocket", "Upgrade: h2c"),
        ("Connection: keep-alive, Upgrade\r\n", ""),
        ("Connection: keep-alive, Upgrade", "Connection: close"),
        ("Version: 13", "Version: 8"),
        ("Sec-WebSocket-Version: 13\r\n", ""),
    ] {
        let (why, status, answer) = refused(&with(from, to)).await;
        assert!(matches!(why, Refused::NoUpgrade(_)), "{why}");
        assert_eq!(status, "HTTP/1.1 426 Upgrade Required");
        assert!(answer.contains("Sec-WebSocket-Version: 13"));
    }
}

#[tokio::test]
async fn what_is_no_request_is_refused() {
    for request in [
        with("GET", "POST"),
        with("GET", "get"),
        with("HTTP/1.1", "HTTP/1.0"),
        with("Host: gateway", "Host"),
        with("Host: gateway\r\n", ""),
        with("Host: gateway", "Host: gateway\r\nHost: other"),
        with("Version: 13", "Version: 13\r\nSec-WebSocket-Version: 8"),
        with("Upgrade: websocket", "Upgrade: websocket\r\nUpgrade: h2c"),
        with("dGhlIHNhbXBsZSBub25jZQ==", "c2hvcnQ="),
        with("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", ""),
        with(
            "13\r\n",
            "13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
        ),
        GOOD.to_owned() + "\u{2}",
        "\u{10}\u{c}\0\u{4}MQTT".to_owned(),
    ] {
        // A frame in the same segment is against the rules, in one of its own it is read later.
        let (result, answer) = ask(request.as_bytes(), 65_536).await;
        let why = result.unwrap_err();
        assert!(matches!(why, Refused::Malformed(_)), "{request}: {why}");
        assert!(
            answer.starts_with("HTTP/1.1 400 Bad Request\r\n"),
            "{answer}"
        );
    }
}

#[tokio::test]
async fn who_speaks_plain_mqtt_is_refused_at_the_first_byte() {
    let (stream, mut client) = duplex(64);
    client.write_all(&[0x10]).await.unwrap();
    let admitted = Arc::new(AtomicBool::new(false));
    let limits = limits();
    let accepting = accept(stream, "/mqtt", admitted, &limits);
    let why = timeout(SOON, accepting).await.unwrap().unwrap_err();
    assert!(matches!(why, Refused::Malformed(_)), "{why}");
}

#[tokio::test]
async fn a_request_is_bounded() {
    let padding = |length: usize| format!("Host: gateway\r\nX: {}", "x".repeat(length));
    let spare = upgrade::MAX_REQUEST - with("Host: gateway", &padding(0)).len();
    let request = with("Host: gateway", &padding(spare));
    assert_eq!(request.len(), upgrade::MAX_REQUEST);
    ask(request.as_bytes(), 512).await.0.unwrap();

    let (why, status, _) = refused(&with("Host: gateway", &padding(spare + 1))).await;
    assert!(matches!(why, Refused::TooLong), "{why}");
    assert_eq!(status, "HTTP/1.1 431 Request Header Fields Too Large");

    let many = "X: x\r\n".repeat(200);
    let (why, ..) = refused(&with(
        "Host: gateway\r\n",
        &("Host: gateway\r\n".to_owned() + &many),
    ))
    .await;
    assert!(matches!(why, Refused::Malformed(_)), "{why}");
}

#[tokio::test]
async fn who_leaves_before_the_request_is_complete_is_not_answered() {
    let (stream, mut client) = duplex(4_096);
    client.write_all(&GOOD.as_bytes()[..40]).await.unwrap();
    client.shutdown().await.unwrap();
    let admitted = Arc::new(AtomicBool::new(false));
    let why = accept(stream, "/mqtt", admitted, &limits())
        .await
        .unwrap_err();
    assert!(matches!(why, Refused::Unfinished), "{why}");
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer, b"");
}

#[tokio::test]
async fn a_client_of_another_make_talks_with_us() {
    // Neither side reads while it writes.
    let (stream, client) = duplex(1 << 18);
    let serving = async {
        let admitted = Arc::new(AtomicBool::new(true));
        let mut socket = accept(stream, "/mqtt", admitted, &limits()).await.unwrap();
        // Whatever it sends it gets back.
        let mut room = vec![0; 3_000];
        loop {
            let count = socket.read(&mut room).await.unwrap();
            if count == 0 {
                return socket.shutdown().await.unwrap();
            }
            socket.write_all(&room[..count]).await.unwrap();
            socket.flush().await.unwrap();
        }
    };
    let talking = async {
        let mut request = "ws://gateway/mqtt".into_client_request().unwrap();
        let offer = HeaderValue::from_static("x, mqtt");
        request
            .headers_mut()
            .insert("Sec-WebSocket-Protocol", offer);
        let (mut client, response) = tokio_tungstenite::client_async(request, client)
            .await
            .unwrap();
        assert_eq!(response.headers()["sec-websocket-protocol"], "mqtt");
        for length in [1, 125, 126, 65_535, 65_536, 99_999] {
            let sent = vec![length as u8; length];
            let half = Bytes::from(sent.clone());
            tell(&mut client, Message::Binary(half)).await;
            tell(&mut client, Message::Ping(Bytes::from_static(b"here?"))).await;
            let mut got = Vec::new();
            let mut answered = false;
            while got.len() < sent.len() || !answered {
                match next(&mut client).await {
                    Message::Binary(part) => got.extend_from_slice(&part),
                    Message::Pong(payload) => answered = &payload[..] == b"here?",
                    other => panic!("{other}"),
                }
            }
            assert_eq!(got, sent);
        }
        client.close(None).await.unwrap();
        assert!(matches!(next(&mut client).await, Message::Close(None)));
    };
    timeout(SOON, async { tokio::join!(serving, talking) })
        .await
        .unwrap();
}

type Client = tokio_tungstenite::WebSocketStream<DuplexStream>;

async fn tell(client: &mut Client, message: Message) {
    futures_util::SinkExt::send(client, message).await.unwrap();
}

async fn next(client: &mut Client) -> Message {
    let next = futures_util::StreamExt::next(client).await;
    next.unwrap().unwrap()
}
