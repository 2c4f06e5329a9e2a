//! What operators see: health, readiness, metrics, status.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use e2e::binaries;
use e2e::config::{GATEWAY, TOPIC_MAP};
use e2e::deployment::Deployment;
use e2e::http;
use e2e::metrics::{Metrics, wait_for};
use e2e::packet::{self, publish};
use e2e::ports::free_port;
use e2e::random::Random;
use e2e::raw::RawClient;
use e2e::wait;
use serde_json::Value;

const TOPIC: &str = "device/1/x";
const TOKEN: &str = "a-token-for-operators";

const PATIENCE: Duration = Duration::from_secs(30);
/// By then a change has to be seen.
const SOON: Duration = Duration::from_secs(5);

fn ready(deployment: &Deployment) -> (u16, Value) {
    let reply = http::get(deployment.http(), "/ready").expect("an answer of /ready");
    (reply.status, reply.json())
}

#[test]
fn ready_turns_503_with_the_reason_within_5_s_of_the_death_of_iggy_and_back_within_5_s_of_its_return()
 {
    let mut deployment = Deployment::start();
    if !deployment.iggy.may_be_killed("ready_turns_503") {
        return;
    }
    wait::until("it is ready", PATIENCE, || ready(&deployment).0 == 200);
    deployment.iggy.kill();
    not_ready_soon(&deployment);
    deployment.iggy.start_again();
    ready_soon(&deployment);
}

#[test]
fn ready_turns_503_within_5_s_when_iggy_answers_no_more_and_back_within_5_s_when_it_does() {
    let deployment = Deployment::start();
    if !deployment.iggy.may_be_killed("ready_turns_503") {
        return;
    }
    wait::until("it is ready", PATIENCE, || ready(&deployment).0 == 200);
    deployment.iggy.freeze();
    not_ready_soon(&deployment);
    deployment.iggy.thaw();
    ready_soon(&deployment);
}

fn not_ready_soon(deployment: &Deployment) {
    let begin = Instant::now();
    wait::until("it is not ready", SOON, || ready(deployment).0 == 503);
    let (_, body) = ready(deployment);
    println!("503 after {:?}: {body}", begin.elapsed());
    let checks = body["checks"].as_array().expect("checks");
    let iggy = checks.iter().find(|check| check["name"] == "iggy");
    let iggy = iggy.expect("a check of Iggy");
    assert_eq!(iggy["ok"], false);
    assert!(
        iggy["reason"]
            .as_str()
            .is_some_and(|reason| reason.contains("Iggy")),
        "{body}"
    );
    let health = http::get(deployment.http(), "/health").expect("an answer of /health");
    assert_eq!(health.status, 200);
}

fn ready_soon(deployment: &Deployment) {
    let begin = Instant::now();
    wait::until("it is ready again", SOON, || ready(deployment).0 == 200);
    println!("200 after {:?}", begin.elapsed());
}

fn status(deployment: &Deployment) -> Value {
    let reply = http::get(deployment.http(), "/api/status").expect("an answer of /api/status");
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.json()
}

#[test]
fn one_stuck_subscriber_is_named_on_the_status_page_and_seen_in_the_metrics_within_ten_seconds() {
    let deployment = Deployment::start();
    let mut stuck = deployment.client("press-42");
    stuck.subscribe(TOPIC, 1);
    let mut others: Vec<_> = (0..5)
        .map(|n| deployment.client(&format!("reader-{n}")))
        .collect();
    for other in &mut others {
        other.subscribe(TOPIC, 1);
    }
    let mut publisher = deployment.client("publisher");
    for id in 1..=20 {
        publisher.publish(TOPIC, id, "x");
        for other in &mut others {
            let copy = other.expect_publish();
            other.send(&packet::puback(copy.id));
        }
    }
    let begun = Instant::now();
    let ten = Duration::from_secs(10);
    let holder = wait::value("who holds the offset is named", ten, || {
        let status = status(&deployment);
        let readers = status["delivery"]["readers"].as_array()?.clone();
        let held = readers.iter().find(|reader| !reader["held_by"].is_null())?;
        Some(held["held_by"].clone())
    });
    println!("after {:?}: {holder}", begun.elapsed());
    assert_eq!(holder["client"], "press-42");
    assert!(
        holder["peer"]
            .as_str()
            .is_some_and(|peer| peer.starts_with("127.0.0.1:"))
    );
    assert!(holder["offset"].is_u64());
    let first = &status(&deployment)["delivery"]["subscribers"][0];
    assert_eq!(
        first["client"], "press-42",
        "who owes for the longest time comes first"
    );
    wait::until("the metrics tell it", ten, || {
        let metrics = Metrics::of(deployment.http());
        let ages = metrics.beginning("ledger_oldest_unacknowledged_age_seconds{");
        ages.iter().any(|(_, age)| *age >= 2.0)
    });
    assert!(begun.elapsed() < ten, "{:?}", begun.elapsed());
    drop(stuck);
    wait::until("nobody holds it any more", PATIENCE, || {
        let status = status(&deployment);
        let readers = status["delivery"]["readers"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        readers.iter().all(|reader| reader["held_by"].is_null())
    });
}

#[test]
fn a_port_that_is_in_use_raises_an_alarm_and_devices_are_served_all_the_same() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = taken.local_addr().expect("an address");
    let deployment = Deployment::builder().start_with(|files| {
        files.set(GATEWAY, &["http_listen"], address.to_string());
    });
    let line = deployment
        .host
        .wait_for_log(&["ERROR", "http_listen", &address.to_string()]);
    assert!(line.contains("devices are served all the same"), "{line}");
    let mut client = deployment.client("device-1");
    client.publish(TOPIC, 1, "x");
    assert_eq!(deployment.device_records().len(), 1);
    drop(taken);
    wait::until("it is bound when the port is free", PATIENCE, || {
        http::get(address, "/health").is_ok_and(|reply| reply.status == 200)
    });
    deployment
        .host
        .wait_for_log(&["the alarm is over", "http_listen"]);
}

#[test]
fn with_a_token_nothing_but_health_is_shown_without_it() {
    let deployment = Deployment::builder()
        .gateway("http_token_file", "http-token")
        .start_with(|files| files.write("http-token", &format!("{TOKEN}\n")));
    let ask = |method, path, token| {
        let reply = http::request(deployment.http(), method, path, token, None);
        reply.expect("an answer").status
    };
    for path in [
        "/",
        "/metrics",
        "/api/status",
        "/api/events",
        "/api/explain?topic=a",
        "/nowhere",
    ] {
        assert_eq!(ask("GET", path, None), 401, "{path}");
        assert_eq!(
            ask("GET", path, Some("another-token-for-all")),
            401,
            "{path}"
        );
    }
    for path in ["/api/reload", "/api/listeners/127.0.0.1:1/drain"] {
        assert_eq!(ask("POST", path, None), 401, "{path}");
    }
    for path in ["/", "/metrics", "/api/status", "/api/explain?topic=a"] {
        assert_eq!(ask("GET", path, Some(TOKEN)), 200, "{path}");
    }
    for path in ["/health", "/ready"] {
        assert_eq!(ask("GET", path, None), 200, "{path}");
    }
    for log in [
        deployment.host.log(),
        status_with(&deployment, TOKEN).to_string(),
    ] {
        assert!(!log.contains(TOKEN), "the token is shown");
    }
}

fn status_with(deployment: &Deployment, token: &str) -> Value {
    let reply = http::request(deployment.http(), "GET", "/api/status", Some(token), None);
    reply.expect("an answer").json()
}

#[test]
fn an_address_for_everyone_without_a_token_and_a_token_that_cannot_be_used_do_not_start() {
    for (key, value, told) in [
        (
            "http_listen",
            "0.0.0.0:0",
            ["http_listen", "http_token_file or http_users"],
        ),
        (
            "http_token_file",
            "not-there",
            ["http_token_file", "No such file"],
        ),
        ("http_token_file", "short", ["http_token_file", "16 to 255"]),
    ] {
        let mut deployment = Deployment::builder().gateway(key, value).prepare(|files| {
            files.write("short", "hunter2\n");
            if key == "http_listen" {
                files.set(GATEWAY, &["http_listen"], value);
            }
        });
        deployment.host.launch();
        let line = deployment.host.wait_for_log(&told);
        assert!(!line.contains("hunter2"), "{line}");
    }
}

/// Sends `bytes` and reads what comes until the end, for a while.
fn exchange(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).expect("the HTTP address accepts");
    let _ = stream.set_read_timeout(Some(Duration::from_millis(200)));
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

#[test]
fn hostile_requests_cost_nothing_and_devices_are_served_meanwhile() {
    let mut deployment = Deployment::start();
    let http = deployment.http();
    let mut client = deployment.client("device-1");
    client.publish(TOPIC, 1, "before");
    let before = deployment.host.process().resident_bytes();

    let long = "x".repeat(100_000);
    let hostile: Vec<Vec<u8>> = vec![
        b"\r\n\r\n".to_vec(),
        b"GET / HTTP/9.9\r\n\r\n".to_vec(),
        b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00".to_vec(),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
        format!("GET /{long} HTTP/1.1\r\nHost: localhost\r\n\r\n").into_bytes(),
        format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {long}\r\n\r\n").into_bytes(),
        format!("GET / HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "A: b\r\n".repeat(10_000)).into_bytes(),
        b"POST /api/reload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\nabc".to_vec(),
        b"POST /api/reload HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffff\r\n".to_vec(),
        b"GET /api/listeners/..%2f..%2fetc/drain HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
        b"GET /api/explain?topic=%ff%00%0a HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
        b"GET /api/explain?topic=<script>alert(1)</script> HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
    ];
    for bytes in &hostile {
        let answer = exchange(http, bytes);
        assert!(
            !answer.starts_with(b"HTTP/1.1 5"),
            "{}",
            String::from_utf8_lossy(&answer)
        );
    }
    let mut random = Random::new();
    for _ in 0..300 {
        // A legal request with a few bytes changed.
        let mut bytes =
            b"GET /api/explain?topic=device/1/x HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n"
                .to_vec();
        for _ in 0..=random.below(5) {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] = random.below(256) as u8;
        }
        let mut stream = TcpStream::connect(http).expect("the HTTP address accepts");
        let _ = stream.write_all(&bytes);
    }
    // More silent connections than are taken, and viewers that never read.
    let silent: Vec<_> = (0..80).map(|_| TcpStream::connect(http)).collect();
    client.publish(TOPIC, 2, "meanwhile");
    drop(silent);
    wait::until("it answers again", PATIENCE, || {
        http::get(http, "/health").is_ok_and(|reply| reply.status == 200)
    });
    let mut viewers = Vec::new();
    for _ in 0..20 {
        let mut stream = TcpStream::connect(http).expect("the HTTP address accepts");
        let request = b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n";
        stream.write_all(request).expect("a request");
        viewers.push(stream);
    }
    wait::until("health is answered beside viewers", PATIENCE, || {
        http::get(http, "/health").is_ok_and(|reply| reply.status == 200)
    });
    client.publish(TOPIC, 3, "after");
    assert_eq!(deployment.device_records().len(), 3);
    let growth = deployment
        .host
        .process()
        .resident_bytes()
        .saturating_sub(before);
    assert!(
        growth < 32 * 1024 * 1024,
        "the memory has grown by {growth} bytes"
    );
    let log = deployment.host.log();
    assert!(!log.contains("panicked"), "something has panicked");
    assert!(log.lines().count() < 500, "{} lines", log.lines().count());
}

#[test]
fn a_web_page_of_another_site_can_neither_read_nor_act() {
    let deployment = Deployment::start();
    let http = deployment.http();
    let ask = |head: &str| {
        let answer = exchange(
            http,
            format!("{head}\r\nConnection: close\r\n\r\n").as_bytes(),
        );
        let answer = String::from_utf8_lossy(&answer).into_owned();
        answer.split(' ').nth(1).map(str::to_owned)
    };
    let refused = Some("403".to_owned());
    assert_eq!(
        ask("GET /api/status HTTP/1.1\r\nHost: rebound.example:9883"),
        refused
    );
    let own = format!("Host: {http}");
    for header in [
        "Origin: https://example.org",
        "Sec-Fetch-Site: cross-site",
        "Origin: null",
    ] {
        assert_eq!(
            ask(&format!("POST /api/reload HTTP/1.1\r\n{own}\r\n{header}")),
            refused
        );
    }
    let answer = exchange(
        http,
        format!(
            "GET / HTTP/1.1\r\n{own}\r\nOrigin: https://example.org\r\nConnection: close\r\n\r\n"
        )
        .as_bytes(),
    );
    let answer = String::from_utf8_lossy(&answer).to_lowercase();
    assert!(
        !answer.contains("access-control-allow"),
        "another site may read"
    );
    assert!(
        answer.contains("content-security-policy: default-src 'none'"),
        "{answer}"
    );
}

#[test]
fn a_listener_is_drained_and_opened_over_http_while_the_other_goes_on() {
    let second = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let deployment = Deployment::builder().start_with(|files| {
        let mut text = files.read(GATEWAY);
        text.push_str(&format!("\n[[listener]]\naddress = \"{second}\"\n"));
        files.write(GATEWAY, &text);
    });
    let http = deployment.http();
    let mut stays = deployment.client("stays");
    let mut leaves = RawClient::connect(second, "leaves");
    leaves.publish(TOPIC, 1, "x");
    let post = |what: &str| {
        let path = format!("/api/listeners/{second}/{what}");
        let reply = http::request(http, "POST", &path, None, None).expect("an answer");
        (reply.status, reply.body)
    };
    assert_eq!(post("drain").0, 200);
    leaves.expect_closed(PATIENCE);
    wait::until("the port is closed", PATIENCE, || {
        TcpStream::connect(second).is_err()
    });
    assert_eq!(post("drain").0, 409, "it is drained already");
    stays.publish(TOPIC, 1, "y");
    assert_eq!(ready(&deployment).0, 200, "the other serves");
    let drained = |status: Value| {
        let listeners = status["listeners"].as_array().cloned().unwrap_or_default();
        listeners
            .iter()
            .any(|one| one["state"] == "drained" && one["address"] == second.to_string())
    };
    wait::until("the status says so", PATIENCE, || {
        drained(status(&deployment))
    });
    deployment
        .host
        .wait_for_log(&["listener drained", &second.to_string()]);
    let (code, text) = post("open");
    assert_eq!(code, 200, "{text}");
    RawClient::connect(second, "back").publish(TOPIC, 1, "z");
    assert_eq!(deployment.device_records().len(), 3);
    let name = format!("listener_accepted_total{{listener=\"{second}\"}}");
    wait_for(http, &name, 2.0, PATIENCE);
}

#[test]
fn the_log_on_a_full_disk_does_not_touch_the_data_path() {
    // /dev/full takes no byte, as a full disk.
    if fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .is_err()
    {
        binaries::skipped("log on a full disk", "there is no /dev/full here");
        return;
    }
    if binaries::official_runtime().is_some() {
        let why = "the official runtime does not start where it cannot print its name";
        binaries::skipped("log on a full disk", why);
        return;
    }
    let mut deployment = Deployment::builder().prepare(|files| {
        let log = files.working_directory().join("host.log");
        symlink("/dev/full", log).expect("a link in the place of the log");
    });
    deployment.host.start();
    let mut client = deployment.client("device-1");
    for id in 1..=50 {
        client.publish(TOPIC, id, "x");
    }
    client.send(&publish("device/1/x", 51, "y"));
    client.expect(&packet::puback(51));
    assert_eq!(deployment.device_records().len(), 51);
}

#[test]
fn a_changed_topic_map_takes_effect_without_a_restart_and_a_broken_one_is_refused_whole() {
    let builder = Deployment::builder();
    let stream = builder.stream().to_owned();
    let deployment = builder.target(&stream, "presses", 1).start();
    let (http, files) = (deployment.http(), &deployment.files);
    let mut subscriber = deployment.client("subscriber");
    subscriber.subscribe(TOPIC, 1);
    let mut publisher = deployment.client("publisher");
    publisher.publish(TOPIC, 1, "by the old map");
    assert_eq!(subscriber.expect_publish().payload, b"by the old map");

    let reload = || {
        let reply = http::request(http, "POST", "/api/reload", None, None).expect("an answer");
        let all = reply.json().as_array().cloned().unwrap_or_default();
        all.into_iter()
            .find(|one| one["name"] == "topic_map")
            .expect("the topic map")
    };
    let old = files.read(TOPIC_MAP);
    files.write(TOPIC_MAP, "[[rule]]\nmqtt_topic = '('\n");
    let refused = reload();
    assert_eq!(refused["ok"], false, "{refused}");
    assert!(
        refused["error"]
            .as_str()
            .is_some_and(|why| why.contains("mqtt_topic")),
        "{refused}"
    );
    publisher.publish(TOPIC, 2, "still by the old map");
    assert_eq!(deployment.device_records().len(), 2);
    wait::until("the alarm is on the status page", PATIENCE, || {
        let attention = status(&deployment)["attention"].to_string();
        attention.contains("alarm topic_map")
    });

    files.write(
        TOPIC_MAP,
        &old.replace("topic = 'devices'", "topic = 'presses'"),
    );
    assert_eq!(reload()["ok"], true);
    publisher.publish(TOPIC, 3, "by the new map");
    let presses = deployment.reader().records(&stream, "presses");
    assert_eq!(presses.len(), 1);
    let got: Vec<_> = (0..2)
        .map(|_| subscriber.expect_publish().payload)
        .collect();
    assert_eq!(
        got,
        [b"still by the old map".to_vec(), b"by the new map".to_vec()]
    );
    assert!(Metrics::of(http).get("topic_map_generation") >= 2.0);
    wait::until("the alarm is over", PATIENCE, || {
        status(&deployment)["alarms"] == serde_json::json!([])
    });
}
