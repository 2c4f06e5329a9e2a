//! Clients that others wrote, over TLS and over WebSocket: every payload at both QoS, with certificates of their own and
//! with user names.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use e2e::deployment::Deployment;
use e2e::ports::{free_port, unique_name};
use e2e::wait::PATIENCE;
use e2e::{mosquitto, mqttjs, paho, wait};
use serde_json::{Value, json};
use toml::Table;

use crate::tls::Tls;

const TOPIC: &str = "device/secure/x";

/// Text, binary with every byte value, and 200 KB, which no frame of WebSocket holds. In hex, a line each.
fn payloads(folder: &Path) -> (PathBuf, Vec<String>) {
    let payloads = [
        "21.5 °C".as_bytes().to_vec(),
        (0..=255).collect(),
        (0..=255).cycle().take(200_000).collect(),
    ];
    let hex = payloads.map(|payload: Vec<u8>| {
        payload
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    });
    let file = folder.join("payloads");
    fs::write(&file, hex.join("\n") + "\n").expect("a file");
    (file, hex.to_vec())
}

fn expected(hex: &[String]) -> Value {
    let both = |payload: &String| {
        [0, 1].map(|qos| json!({ "topic": TOPIC, "payload": payload, "qos": qos, "retain": false }))
    };
    hex.iter().flat_map(both).collect()
}

/// Checks that each payload came back at both QoS, and was stored once for each.
fn assert_exchanged(result: &Value, hex: &[String], deployment: &Deployment, client_id: &str) {
    assert!(
        result["received"] == expected(hex),
        "{:.2000}",
        result.to_string()
    );
    let records = deployment.device_records();
    let own = records
        .iter()
        .filter(|record| record.text("mqtt.client_id") == client_id);
    assert_eq!(own.count(), 2 * hex.len());
}

fn text(path: PathBuf) -> String {
    path.display().to_string()
}

/// A listener of another kind with the same certificate.
fn listener(tls: &Tls, more: &str) -> (SocketAddr, Table) {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let mut table = tls.listener(more);
    table.insert("address".to_owned(), address.to_string().into());
    (address, table)
}

const MUTUAL: &str = "client_ca = 'FOLDER/ca.pem'\nauthentication = ['certificate']\n";

#[test]
fn paho_and_mosquitto_exchange_every_payload_over_tls_with_certificates_of_their_own() {
    let tls = Tls::new();
    let deployment = tls.builder(MUTUAL).start();
    let (certificate, key) = tls
        .authority
        .sign_client("paho")
        .write(tls.folder.path(), "client");
    let (certificate, key, ca) = (text(certificate), text(key), text(tls.path("ca.pem")));
    let (file, hex) = payloads(tls.folder.path());
    let id = unique_name();
    let result = paho::run(
        "paho_roundtrip.py",
        tls.address,
        &[&id, TOPIC, &text(file), &ca, &certificate, &key],
    );
    assert_exchanged(&result, &hex, &deployment, &id);

    let with_tls = ["--cafile", &ca, "--cert", &certificate, "--key", &key];
    let subscriber =
        mosquitto::Subscriber::start_with(tls.address, tls.folder.path(), "m", TOPIC, 1, &with_tls);
    let publish = |more: &[&str]| {
        mosquitto::publish(
            tls.address,
            &[&["-t", TOPIC, "-q", "1", "-m", "over TLS"], more].concat(),
        )
    };
    assert!(publish(&with_tls).status.success());
    assert_eq!(subscriber.wait_for(1)[0].payload, b"over TLS");
    // Without the certificate, and with one of another authority.
    assert!(!publish(&["--cafile", &ca]).status.success());
    let (certificate, key) = Tls::new()
        .authority
        .sign_client("paho")
        .write(tls.folder.path(), "other");
    assert!(
        !publish(&[
            "--cafile",
            &ca,
            "--cert",
            &text(certificate),
            "--key",
            &text(key)
        ])
        .status
        .success()
    );
}

#[test]
fn mqttjs_exchanges_every_payload_over_tls_and_over_websocket_with_and_without_tls() {
    let tls = Tls::new();
    let (secure, wss) = listener(&tls, "protocol = 'websocket'\n");
    let plain = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let ws: Table = format!("address = '{plain}'\nprotocol = 'websocket'\npath = '/devices'\n")
        .parse()
        .unwrap();
    let listeners = [tls.listener(MUTUAL), wss, ws]
        .map(toml::Value::Table)
        .to_vec();
    let deployment = Deployment::builder()
        .gateway("listener", toml::Value::Array(listeners))
        .start();
    let (certificate, key) = tls
        .authority
        .sign_client("js")
        .write(tls.folder.path(), "client");
    let (file, hex) = payloads(tls.folder.path());
    let ca = json!({ "ca": tls.path("ca.pem") });
    let mutual = json!({ "ca": tls.path("ca.pem"), "cert": certificate, "key": key });
    for (url, options) in [
        (format!("mqtts://localhost:{}", tls.address.port()), &mutual),
        (format!("wss://localhost:{}/mqtt", secure.port()), &ca),
        (
            format!("ws://localhost:{}/devices", plain.port()),
            &json!({}),
        ),
    ] {
        let id = unique_name();
        let result = mqttjs::run(&url, &id, TOPIC, &file, options);
        assert_exchanged(&result, &hex, &deployment, &id);
    }
}

#[test]
fn b69_mqttjs_is_told_the_same_codes_over_websocket() {
    let tls = Tls::new();
    let (address, wss) = listener(&tls, "protocol = 'websocket'\nauthentication = ['iggy']\n");
    let _deployment = Deployment::builder()
        .gateway("listener", toml::Value::Array(vec![wss.into()]))
        .start();
    let (file, _) = payloads(tls.folder.path());
    let url = format!("wss://localhost:{}/mqtt", address.port());
    let code = |more: Value| {
        let mut options = json!({ "ca": tls.path("ca.pem") });
        options
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        mqttjs::run(&url, "x", TOPIC, &file, &options)["refused"].clone()
    };
    assert_eq!(
        code(json!({ "username": "nobody", "password": "wrong" })),
        json!(4)
    );
    let user = e2e::binaries::username();
    assert_eq!(
        code(json!({ "username": user, "password": "wrong" })),
        json!(4)
    );
    assert_eq!(code(json!({})), json!(5));
    assert_eq!(
        code(json!({ "username": user, "password": e2e::binaries::password() })),
        Value::Null
    );
}

#[test]
fn a_websocket_client_that_sends_text_is_closed_and_the_others_are_served() {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let ws: Table = format!("address = '{address}'\nprotocol = 'websocket'\n")
        .parse()
        .unwrap();
    let deployment = Deployment::builder()
        .gateway("listener", toml::Value::Array(vec![ws.into()]))
        .start();
    let upgrade = format!(
        "GET /mqtt HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
    );
    let answer = |frame: &[u8]| {
        use std::io::{Read, Write};
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(upgrade.as_bytes()).unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            answer.extend(byte);
        }
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with("HTTP/1.1 101"), "{answer}");
        assert!(
            answer
                .to_lowercase()
                .contains("sec-websocket-protocol: mqtt\r\n"),
            "{answer}"
        );
        stream.write_all(frame).unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        rest
    };
    // A text frame, an unmasked frame, and one that announces a gigabyte before any CONNECT.
    assert_eq!(
        answer(&[0x81, 0x81, 0, 0, 0, 0, b'x']),
        [0x88, 2, 0x03, 0xeb]
    );
    assert_eq!(answer(&[0x82, 0x01, 0x10]), [0x88, 2, 0x03, 0xea]);
    assert_eq!(
        answer(&[0x82, 0xff, 0, 0, 0, 0, 0x40, 0, 0, 0, 1, 2, 3, 4]),
        [0x88, 2, 0x03, 0xf1]
    );
    let mut good = deployment.client("good");
    good.publish(TOPIC, 1, "served");
    wait::until("it is stored", PATIENCE, || {
        deployment.device_records().len() == 1
    });
}
