//! Users, permissions and secrets from outside: the files as `mqtt-gateway` writes them, and what the log and the API show.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use e2e::binaries;
use e2e::config::Target;
use e2e::deployment::Deployment;
use e2e::http;
use e2e::packet::{self, CONNECTED};
use e2e::raw::{Answer, PROMPT, RawClient};
use e2e::tls;
use e2e::wait::{self, PATIENCE};

use crate::tls::Tls;

/// Adds the user to the file, or changes it, as an operator does.
fn passwd(file: &Path, user: &str, password: &str) {
    let mut command = Command::new(binaries::command_line());
    command.args(["passwd", "--stdin"]).arg(file).arg(user);
    let mut child = command
        .stdin(Stdio::piped())
        .spawn()
        .expect("mqtt-gateway starts");
    let mut stdin = child.stdin.take().expect("its input");
    stdin
        .write_all(format!("{password}\n").as_bytes())
        .expect("it reads");
    drop(stdin);
    assert!(child.wait().expect("it ends").success());
}

fn code(deployment: &Deployment, connect: &[u8]) -> u8 {
    let mut client = RawClient::open(deployment.mqtt());
    client.send(connect);
    match client.answer(PATIENCE) {
        Answer::Packet(packet) if packet[..3] == [0x20, 2, 0] => packet[3],
        other => panic!("{other:?}"),
    }
}

#[test]
fn users_that_were_added_at_the_command_line_come_in_and_may_what_the_file_of_permissions_says() {
    let folder = tempfile::tempdir().unwrap();
    let (users, acl) = (folder.path().join("users"), folder.path().join("acl.toml"));
    passwd(&users, "anna", "first");
    fs::write(
        &acl,
        "[[rule]]\nuser = 'anna'\npublish = ['device/%c/#']\nsubscribe = ['device/%c/#']\n",
    )
    .unwrap();
    let deployment = Deployment::builder()
        .gateway("authentication", vec!["users"])
        .gateway("users_file", users.display().to_string())
        .gateway("acl_file", acl.display().to_string())
        .gateway("on_denied", "acknowledge")
        .limit("reload_interval", "200ms")
        .start();
    for (user, password, expected) in [
        ("anna", "first", 0),
        ("anna", "wrong", 4),
        ("ben", "first", 4),
    ] {
        assert_eq!(
            code(&deployment, &packet::connect_as("1", user, password)),
            expected
        );
    }
    assert_eq!(code(&deployment, &packet::connect("1", 0)), 5);
    let mut anna = RawClient::open(deployment.mqtt());
    anna.send(&packet::connect_as("1", "anna", "first"));
    anna.expect(&CONNECTED);
    anna.send(&packet::subscribe(
        7,
        &[("device/1/x", 1), ("device/2/x", 1), ("device/1/y", 0)],
    ));
    anna.expect(&packet::suback(7, &[1, 0x80, 0]));
    anna.publish("device/2/x", 8, "not hers");
    anna.send(&packet::publish("device/1/y", 9, "hers"));
    let mut got = [anna.answer(PATIENCE), anna.answer(PATIENCE)].map(|answer| match answer {
        Answer::Packet(packet) => packet[0],
        other => panic!("{other:?}"),
    });
    got.sort_unstable();
    assert_eq!(got, [0x30, 0x40]);
    let stored: Vec<_> = deployment
        .stored()
        .iter()
        .map(|record| record.payload_text())
        .collect();
    assert_eq!(stored, ["hers"]);

    // A new password ends the connection that came in with the old one.
    passwd(&users, "anna", "second");
    anna.expect_closed(PATIENCE);
    wait::until("the new password counts", PATIENCE, || {
        code(&deployment, &packet::connect_as("1", "anna", "second")) == 0
    });
    assert_eq!(
        code(&deployment, &packet::connect_as("1", "anna", "first")),
        4
    );
    deployment
        .host
        .wait_for_log(&["closed", "another password"]);
}

#[test]
fn the_status_page_is_open_to_the_users_who_are_named_with_their_passwords() {
    let folder = tempfile::tempdir().unwrap();
    let users = folder.path().join("users");
    passwd(&users, "anna", "first");
    passwd(&users, "device", "its");
    let deployment = Deployment::builder()
        .gateway("authentication", vec!["users"])
        .gateway("users_file", users.display().to_string())
        .gateway("http_users", vec!["anna"])
        .start();
    let shown = |user: &str, password: &str| {
        let login = http::Login { user, password };
        let reply = http::get_as(deployment.http(), "/api/status", login);
        reply.expect("an answer").status
    };
    assert_eq!(shown("anna", "first"), 200);
    assert_eq!(shown("anna", "its"), 401);
    assert_eq!(shown("device", "its"), 401, "it may connect, and no more");
    let nobody = http::get(deployment.http(), "/api/status").expect("an answer");
    assert_eq!(nobody.status, 401);
    let connect = packet::connect_as("d", "device", b"its");
    assert_eq!(code(&deployment, &connect), 0);
}

#[test]
fn iggys_own_users_come_in_with_their_passwords() {
    let deployment = Deployment::builder()
        .gateway("authentication", vec!["iggy"])
        .start();
    let (user, password) = (binaries::username(), binaries::password());
    assert_eq!(
        code(&deployment, &packet::connect_as("a", &user, &password)),
        0
    );
    assert_eq!(
        code(&deployment, &packet::connect_as("a", &user, "wrong")),
        4
    );
    assert_eq!(
        code(
            &deployment,
            &packet::connect_as("a", "nobody-there", &password)
        ),
        4
    );
    assert_eq!(
        code(
            &deployment,
            &packet::connect_as("a", &user, "x".repeat(300))
        ),
        4
    );
    assert_eq!(code(&deployment, &packet::connect("a", 0)), 5);
}

#[test]
fn files_of_users_and_permissions_that_cannot_be_used_are_named_at_the_start_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let users = folder.path().join("users");
    let acl = folder.path().join("acl.toml");
    for (hash, rules, expected) in [
        ("", "", ["users", "passwd"]),
        ("anna:secret\n", "", ["users:1", "passwd"]),
        ("good", "", ["acl.toml", "[[rule]]"]),
        (
            "good",
            "[[rule]]\npublish = ['d/%x']\n",
            ["acl.toml:2", "%x"],
        ),
        (
            "good",
            "[[rule]]\ngroup = 'none'\npublish = ['d']\n",
            ["acl.toml:2", "none"],
        ),
    ] {
        if hash == "good" {
            let _ = fs::remove_file(&users);
            passwd(&users, "anna", "first");
        } else {
            tls::write_secret(&users, hash);
        }
        fs::write(&acl, rules).unwrap();
        let deployment = Deployment::builder()
            .gateway("authentication", vec!["users"])
            .gateway("users_file", users.display().to_string())
            .gateway("acl_file", acl.display().to_string())
            .start_with(|_| {});
        deployment
            .host
            .wait_for_log(&["ERROR", expected[0], expected[1]]);
        assert!(!deployment.host.log().contains("anna:secret"));
    }
}

#[test]
fn no_secret_is_in_anything_that_is_printed_or_served() {
    let tls = Tls::new();
    let folder = tls.folder.path();
    let (users, key) = (folder.join("users"), folder.join("jwt.key"));
    let shared = "shared-0123456789abcdef0123456789";
    passwd(&users, "anna", "right-password-anna");
    tls::write_secret(&key, shared);
    let hash = fs::read_to_string(&users).unwrap();
    let hash = hash.trim().rsplit('$').next().unwrap().to_owned();
    let private = fs::read_to_string(tls.path("server.key")).unwrap();
    let private = private.lines().nth(1).unwrap().to_owned();
    let deployment = tls
        .builder("")
        .gateway("authentication", vec!["users", "jwt", "iggy"])
        .gateway("users_file", users.display().to_string())
        .gateway("jwt_algorithm", "HS256")
        .gateway("jwt_key_files", vec![key.display().to_string()])
        .limit("reload_interval", "200ms")
        .variable("RUST_LOG", "debug")
        .start();
    let token = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJzZWNyZXQtY2xhaW0ifQ.c2lnbmF0dXJlLXNlY3JldA";
    for (password, expected) in [
        ("right-password-anna", 0),
        ("wrong-password-anna", 4),
        (token, 4),
    ] {
        assert_eq!(
            code(&deployment, &packet::connect_as("a", "anna", password)),
            expected
        );
    }
    // Over TLS, and in packets that break the protocol.
    let mut client = RawClient::over(
        tls::connect(
            tls.address,
            &tls.authority,
            None,
            &[&tokio_rustls::rustls::version::TLS13],
        )
        .unwrap(),
    );
    client.send(&packet::connect_as("b", "anna", "right-password-anna"));
    client.expect(&CONNECTED);
    client.send(&packet::connect_as("b", "anna", "second-connect-password"));
    client.expect_closed(PROMPT);
    let mut broken = packet::connect_as("c", "anna", "broken-connect-password");
    broken[9] |= 1;
    let mut client = RawClient::open(deployment.mqtt());
    client.send(&broken);
    client.expect_closed(PROMPT);
    // Files that are spoilt while they are in use.
    tls::write_secret(&users, "anna:spoilt-hash-of-anna\n");
    tls::write_secret(&key, "short-key");
    tls::write_secret(
        &tls.path("server.key"),
        "-----BEGIN PRIVATE KEY-----\nc3BvaWx0LXByaXZhdGUta2V5\n-----END PRIVATE KEY-----\n",
    );
    for file in ["users_file", "jwt_key_files", "listener"] {
        deployment
            .host
            .wait_for_log(&["ERROR", file, "stays in force"]);
    }
    let mut served = deployment.host.log();
    for path in [
        "/",
        "/health",
        "/sources",
        "/sinks",
        "/sources/mqtt_source",
        "/sinks/mqtt_sink",
        "/stats",
        "/metrics",
        "/sources/mqtt_source/configs",
        "/sources/mqtt_source/configs/plugin",
        "/sources/mqtt_source/plugin",
        "/sinks/mqtt_sink/configs",
    ] {
        let reply = http::get(deployment.host.api(), path).unwrap();
        served.push_str(&reply.body);
    }
    for path in [
        "/",
        "/metrics",
        "/ready",
        "/api/status",
        "/api/explain?topic=a",
        "/nowhere",
    ] {
        served.push_str(&http::get(deployment.http(), path).unwrap().body);
    }
    assert!(served.contains("mqtt_gateway_connects_refused_total"));
    assert!(served.contains("mqtt_source"), "{served}");
    for secret in [
        "right-password-anna",
        "wrong-password-anna",
        "second-connect-password",
        "broken-connect-password",
        "spoilt-hash-of-anna",
        "short-key",
        "c3BvaWx0LXByaXZhdGUta2V5",
        "secret-claim",
        "c2lnbmF0dXJlLXNlY3JldA",
        "eyJzdWIi",
        shared,
        &hash,
        &private,
    ] {
        let line = served.lines().find(|line| line.contains(secret));
        assert_eq!(line, None, "{secret}");
    }
}

#[test]
fn a_client_cannot_write_lines_of_its_own_into_the_log() {
    let deployment = Deployment::builder()
        .gateway("authentication", vec!["iggy"])
        .variable("RUST_LOG", "debug")
        .start();
    let forged = "x\n2026-01-01T00:00:00Z ERROR forged-line\r\u{1b}[31mforged-colour\u{1b}[0m";
    assert_eq!(
        code(&deployment, &packet::connect_as(forged, forged, "x")),
        4
    );
    let (user, password) = (binaries::username(), binaries::password());
    let mut client = RawClient::open(deployment.mqtt());
    client.send(&packet::connect_as(forged, &user, &password));
    client.expect(&CONNECTED);
    client.send(&packet::subscribe(1, &[(&format!("{forged}/#"), 0)]));
    client.expect(&packet::suback(1, &[0x80]));
    client.send(&packet::publish(format!("${forged}"), 2, "x"));
    client.expect(&packet::puback(2));
    client.send(&[0xf0, 0]);
    client.expect_closed(PROMPT);
    deployment
        .host
        .wait_for_log(&["protocol error", "forged-line"]);
    let raw = String::from_utf8_lossy(&deployment.host.raw_log()).into_owned();
    assert!(!raw.contains("\u{1b}[31mforged"), "colours of a client's");
    for line in raw.lines() {
        assert!(!line.starts_with("2026-01-01"), "{line}");
        assert!(!line.contains('\r'), "{line}");
    }
}

#[test]
fn what_iggy_does_not_permit_to_the_gateways_own_user_is_told_apart_from_what_a_client_may_not_do()
{
    let builder = Deployment::builder();
    let stream = builder.stream().to_owned();
    let user = format!("reader-{stream}");
    let folder = tempfile::tempdir().unwrap();
    let acl = folder.path().join("acl.toml");
    fs::write(
        &acl,
        "[[rule]]\npublish = ['device/1/#']\nsubscribe = ['#']\n",
    )
    .unwrap();
    let mut deployment = builder
        .existing(Target::new(&stream, "devices", 4))
        .existing(Target::new(&stream, "rest", 4))
        .gateway("acl_file", acl.display().to_string())
        .variable("MQTT_GATEWAY_IGGY_USERNAME", user.clone())
        .variable("MQTT_GATEWAY_IGGY_PASSWORD", "reads-only")
        .prepare(|_| {});
    if !deployment.reader().make_reading_user(&user, "reads-only") {
        return binaries::skipped(
            "what Iggy permits to the gateway's user",
            "the sandbox has one user",
        );
    }
    deployment.host.start();
    deployment.wait_until_running();
    let mut client = deployment.client("client");
    client.subscribe("device/1/x", 1);
    client.send(&packet::publish("device/1/x", 2, "not permitted by Iggy"));
    client.expect_closed(PATIENCE);
    let mut client = deployment.client("other");
    client.send(&packet::publish(
        "device/2/x",
        2,
        "not allowed to the client",
    ));
    client.expect_closed(PATIENCE);
    deployment
        .host
        .wait_for_log(&["not_permitted", "device/1/x"]);
    deployment.host.wait_for_log(&["not_allowed", "device/2/x"]);
    assert!(deployment.device_records().is_empty());
}
