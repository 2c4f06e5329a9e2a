//! The Python client of the Eclipse Paho project, driven by a script.
//!
//! Always holds: Debian's Python is used, because that is the one for which `python3-paho-mqtt` is installed.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

const PYTHON: &str = "/usr/bin/python3";

/// Runs the script `tests/clients/NAME` with host, port and `arguments`, and gives what it printed, read as JSON.
///
/// # Panics
/// When Python or Paho is not installed, or the script fails.
pub fn run(script: &str, gateway: SocketAddr, arguments: &[&str]) -> Value {
    let installed = Command::new(PYTHON)
        .args(["-c", "import paho.mqtt.client"])
        .output();
    assert!(
        installed.is_ok_and(|output| output.status.success()),
        "Paho is not installed for {PYTHON}: run ./scripts/test, or install the package python3-paho-mqtt"
    );
    let script = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("clients")
        .join(script);
    let output = Command::new(PYTHON)
        .arg(script)
        .args([gateway.ip().to_string(), gateway.port().to_string()])
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("cannot start {PYTHON}: {error}"));
    assert!(output.status.success(), "the script failed: {output:?}");
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("the script printed no JSON ({error}): {output:?}"))
}
