//! What the suite has to know about a real Iggy server and nothing else in the harness knows.
//!
//! Always holds: a server started here listens on loopback only, keeps its data in the test's folder, and takes the user
//! and password that the suite uses everywhere.
//!
//! Servers of the 0.9.0 development line refuse `create_topic` from the SDK 0.11, which sends durability options that they
//! do not know. For those the topics are made beforehand over the server's HTTP API, with their own names for the same
//! promise: every message is on disk before it is confirmed.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::binaries;
use crate::config::Target;
use crate::http;

/// The command that starts the server `program` on the given ports with its data below `folder`.
pub fn command(program: &Path, folder: &Path, tcp: SocketAddr, http: SocketAddr) -> Command {
    let mut command = Command::new(program);
    command
        .current_dir(folder)
        .args(["--replica-id", "0"])
        .env("IGGY_SYSTEM_PATH", folder.join("iggy_data"))
        .env("IGGY_ROOT_USERNAME", binaries::username())
        .env("IGGY_ROOT_PASSWORD", binaries::password())
        .env("IGGY_TCP_ADDRESS", tcp.to_string())
        .env("IGGY_HTTP_ENABLED", "true")
        .env("IGGY_HTTP_ADDRESS", http.to_string())
        .env("IGGY_QUIC_ENABLED", "false")
        .env("IGGY_WEBSOCKET_ENABLED", "false")
        // One shard and no pool: several servers share a small machine.
        .env("IGGY_SYSTEM_SHARDING_CPU_ALLOCATION", "1")
        .env("IGGY_SYSTEM_SHARDING_PIN_CORES", "false")
        .env("IGGY_SYSTEM_MEMORY_POOL_ENABLED", "false")
        .env("NO_COLOR", "1");
    command
}

/// The HTTP API of a server that the suite did not start: `IGGY_HTTP_ADDRESS`.
pub fn http_from_environment() -> Option<SocketAddr> {
    let value = binaries::variable("IGGY_HTTP_ADDRESS")?;
    Some(binaries::socket_address("IGGY_HTTP_ADDRESS", &value))
}

/// Makes the streams and topics that are not there yet.
///
/// # Panics
/// When the server refuses.
pub fn create(http: SocketAddr, targets: &[Target]) {
    let token = login(http);
    let post = |path: &str, body: &Value| {
        http::request(http, "POST", path, Some(&token), Some(body))
            .unwrap_or_else(|error| panic!("POST {path} to Iggy's HTTP API: {error}"))
    };
    for target in targets {
        let topics = format!("/streams/{}/topics", target.stream);
        let stream = format!("/streams/{}", target.stream);
        if !exists(http, &token, &stream) {
            let reply = post("/streams", &json!({"name": target.stream}));
            // Another test may have been first.
            assert!(
                reply.status < 300 || exists(http, &token, &stream),
                "cannot create stream {}: {reply:?}",
                target.stream
            );
        }
        let topic = format!("{topics}/{}", target.topic);
        if !exists(http, &token, &topic) {
            let reply = post(
                &topics,
                &json!({
                    "name": target.topic,
                    "partitions_count": target.partitions,
                    "compression_algorithm": "none",
                    "message_expiry": 0,
                    "max_topic_size": 0,
                    "options": match target.persisted {
                        true => json!({"enforce_fsync": "true", "messages_required_to_save": "1"}),
                        false => json!({}),
                    },
                }),
            );
            assert!(
                reply.status < 300 || exists(http, &token, &topic),
                "cannot create topic {}/{}: {reply:?}",
                target.stream,
                target.topic
            );
        }
    }
}

fn exists(http: SocketAddr, token: &str, path: &str) -> bool {
    http::request(http, "GET", path, Some(token), None).is_ok_and(|reply| reply.status == 200)
}

fn login(http: SocketAddr) -> String {
    let body = json!({"username": binaries::username(), "password": binaries::password()});
    let reply = http::request(http, "POST", "/users/login", None, Some(&body))
        .unwrap_or_else(|error| panic!("cannot log in to Iggy's HTTP API at {http}: {error}"));
    reply
        .json()
        .pointer("/access_token/token")
        .and_then(Value::as_str)
        .unwrap_or_else(|| panic!("no token in the reply to a login: {reply:?}"))
        .to_owned()
}
