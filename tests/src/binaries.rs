//! Where the programs under test are, and which Iggy the environment asks for.
//!
//! Always holds: the plugin and the sandbox are those that `cargo build --workspace` put next to the running test; a
//! missing one stops the test with the command that builds it.

use std::env;
use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

/// What Iggy the tests run against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IggyChoice {
    /// A server that is running already: `IGGY_ADDRESS`. The tests can neither stop nor kill it.
    Running(SocketAddr),
    /// A real server's program, started anew for each test: `IGGY_SERVER_BIN`.
    Binary(PathBuf),
    /// The sandbox's server, started anew for each test.
    Sandbox,
}

/// Reads `IGGY_ADDRESS` and `IGGY_SERVER_BIN`; the first one set wins.
///
/// # Panics
/// When `IGGY_ADDRESS` is not `HOST:PORT`.
pub fn iggy_choice() -> IggyChoice {
    if let Some(address) = variable("IGGY_ADDRESS") {
        return IggyChoice::Running(socket_address("IGGY_ADDRESS", &address));
    }
    match variable("IGGY_SERVER_BIN") {
        Some(path) => IggyChoice::Binary(path.into()),
        None => IggyChoice::Sandbox,
    }
}

/// The official connectors runtime, when `IGGY_CONNECTORS_BIN` names it; otherwise the sandbox's host is used.
pub fn official_runtime() -> Option<PathBuf> {
    variable("IGGY_CONNECTORS_BIN").map(PathBuf::from)
}

/// The user for Iggy: `IGGY_USERNAME` or `iggy`.
pub fn username() -> String {
    variable("IGGY_USERNAME").unwrap_or_else(|| "iggy".to_owned())
}

/// The user's password: `IGGY_PASSWORD` or `iggy`.
pub fn password() -> String {
    variable("IGGY_PASSWORD").unwrap_or_else(|| "iggy".to_owned())
}

/// Whether the long versions of the tests are wanted: `E2E_LONG=1`.
pub fn long() -> bool {
    variable("E2E_LONG").is_some_and(|value| value != "0")
}

/// Says that a test, or a part of it, is left out, past the capture of `cargo test`.
pub fn skipped(what: &str, why: &str) {
    let _ = writeln!(io::stderr(), "skipped: {what}: {why}");
}

/// The sandbox's program.
pub fn sandbox() -> PathBuf {
    built("sandbox")
}

/// The plugin.
pub fn plugin() -> PathBuf {
    built("libiggy_connector_mqtt_gateway.so")
}

/// The command line of the gateway.
pub fn command_line() -> PathBuf {
    built("mqtt-gateway")
}

/// The folder of this repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .map(Path::to_path_buf)
        .unwrap_or_default()
}

/// The value of an environment variable, unless it is unset or empty.
pub(crate) fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// Reads the value of the variable `name` as an address.
pub(crate) fn socket_address(name: &str, value: &str) -> SocketAddr {
    value
        .to_socket_addrs()
        .ok()
        .and_then(|mut addresses| addresses.next())
        .unwrap_or_else(|| panic!("{name} must be HOST:PORT of a host that exists, not `{value}`"))
}

fn built(name: &str) -> PathBuf {
    // A test runs as target/PROFILE/deps/NAME-HASH.
    let folder = env::current_exe()
        .ok()
        .and_then(|test| Some(test.parent()?.parent()?.to_path_buf()))
        .unwrap_or_default();
    let path = folder.join(name);
    assert!(
        path.exists(),
        "{} is missing; build it with `cargo build --workspace` (and `--release` when the tests run with it)",
        path.display()
    );
    path
}
