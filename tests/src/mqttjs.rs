//! MQTT.js, the client of browsers and of Node.js, driven by a script.
//!
//! Always holds: the version is the one that `tests/clients/package-lock.json` names; one that is not installed fails the
//! test with a word on how to install it.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Runs the script `tests/clients/mqttjs_roundtrip.mjs` with these arguments and gives what it printed, read as JSON.
///
/// # Panics
/// When Node.js or MQTT.js is not installed, or the script fails.
pub fn run(url: &str, client_id: &str, topic: &str, file: &Path, options: &Value) -> Value {
    let clients = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients");
    assert!(
        clients.join("node_modules/mqtt").exists(),
        "MQTT.js is not installed: run ./scripts/test, or `npm ci --prefix tests/clients`"
    );
    let output = Command::new("node")
        .arg(clients.join("mqttjs_roundtrip.mjs"))
        .args([url, client_id, topic])
        .arg(file)
        .arg(options.to_string())
        .output()
        .unwrap_or_else(|error| panic!("cannot start node: {error}"));
    assert!(
        output.status.success(),
        "{url}: the script failed: {output:?}"
    );
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("the script printed no JSON ({error}): {output:?}"))
}
