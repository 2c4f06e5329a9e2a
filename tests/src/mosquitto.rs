//! The mosquitto command line clients.
//!
//! Always holds: a client that is not installed fails the test with a word on how to install it.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output};

use crate::process::Process;
use crate::wait;

/// How a subscriber prints a message; see `mosquitto_sub(1)`, option `-F`. The topic comes last because it may hold
/// spaces.
const LINE: &str = "MESSAGE %q %r [%x] %t";

/// How long `mosquitto_pub` may take, in all.
const PATIENCE_SECONDS: &str = "60";

/// A message that `mosquitto_sub` received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// The topic.
    pub topic: String,
    /// The payload.
    pub payload: Vec<u8>,
    /// The QoS with which it came.
    pub qos: u8,
    /// Whether RETAIN was set.
    pub retain: bool,
}

/// A running `mosquitto_sub`.
#[derive(Debug)]
pub struct Subscriber {
    process: Process,
}

impl Subscriber {
    /// Starts `mosquitto_sub` for one topic and waits until it has its SUBACK. With no client id it sends an empty one.
    ///
    /// # Panics
    /// When it is not installed, or gets no SUBACK in time.
    pub fn start(
        gateway: SocketAddr,
        folder: &Path,
        client_id: &str,
        topic: &str,
        qos: u8,
    ) -> Self {
        Self::start_with(gateway, folder, client_id, topic, qos, &[])
    }

    /// The same with more arguments.
    ///
    /// # Panics
    /// As [`Subscriber::start`].
    pub fn start_with(
        gateway: SocketAddr,
        folder: &Path,
        client_id: &str,
        topic: &str,
        qos: u8,
        more: &[&str],
    ) -> Self {
        must_exist("mosquitto_sub");
        // Its debug lines are to be seen as soon as they are written, not only when a block is full.
        let mut command = Command::new("stdbuf");
        command.args(["-oL", "mosquitto_sub"]);
        address(&mut command, gateway);
        command.args(["-d", "-t", topic, "-F", LINE]);
        if !client_id.is_empty() {
            command.args(["-i", client_id]);
        }
        command.args(["-q", &qos.to_string()]);
        command.args(more);
        let name = format!("mosquitto_sub {client_id}");
        let log = folder.join(format!("sub-{}.log", crate::ports::unique_name()));
        let granted = format!("): {qos}");
        let mut process = Process::start(&name, command, &log);
        wait::until(&format!("{name} is subscribed"), wait::PATIENCE, || {
            if let Some(status) = process.ended() {
                panic!("{name} ended with {status}: {}", process.output());
            }
            process
                .output()
                .lines()
                .any(|line| line.starts_with("Subscribed") && line.ends_with(&granted))
        });
        Self { process }
    }

    /// What was received so far.
    pub fn received(&self) -> Vec<Received> {
        self.process
            .output()
            .lines()
            .filter_map(read_line)
            .collect()
    }

    /// Waits until `count` messages were received, and gives all of them.
    ///
    /// # Panics
    /// When they do not come in time.
    pub fn wait_for(&self, count: usize) -> Vec<Received> {
        wait::value(
            &format!("mosquitto_sub received {count} messages"),
            wait::PATIENCE,
            || {
                let received = self.received();
                (received.len() >= count).then_some(received)
            },
        )
    }

    /// The log lines of the client, those of messages left out.
    pub fn log(&self) -> String {
        self.process.output()
    }

    /// Whether it still runs.
    pub fn runs(&mut self) -> bool {
        self.process.ended().is_none()
    }
}

/// Publishes with `mosquitto_pub`; `arguments` say what.
///
/// # Panics
/// When it is not installed.
pub fn publish<A: AsRef<OsStr>>(gateway: SocketAddr, arguments: &[A]) -> Output {
    // `timeout` makes a client that waits for a PUBACK for ever a failure.
    let mut command = Command::new("timeout");
    command.arg(PATIENCE_SECONDS).arg("mosquitto_pub");
    address(&mut command, gateway);
    must_exist("mosquitto_pub");
    command
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("cannot start mosquitto_pub: {error}"))
}

/// Publishes with `mosquitto_pub` and requires that it says it succeeded.
///
/// # Panics
/// When it is not installed or fails.
pub fn publish_ok<A: AsRef<OsStr>>(gateway: SocketAddr, arguments: &[A]) {
    let output = publish(gateway, arguments);
    assert!(output.status.success(), "mosquitto_pub failed: {output:?}");
}

fn address(command: &mut Command, gateway: SocketAddr) {
    command.args(["-h", &gateway.ip().to_string()]);
    command.args(["-p", &gateway.port().to_string(), "-V", "311"]);
}

fn must_exist(program: &str) {
    // Without arguments the clients print their usage and end.
    assert!(
        Command::new(program).arg("--help").output().is_ok(),
        "{program} is not installed: run ./scripts/test, or install the package mosquitto-clients"
    );
}

fn read_line(line: &str) -> Option<Received> {
    let rest = line.strip_prefix("MESSAGE ")?;
    let (qos, rest) = rest.split_once(' ')?;
    let (retain, rest) = rest.split_once(" [")?;
    let (hex, topic) = rest.split_once("] ")?;
    let payload = hex
        .as_bytes()
        .chunks(2)
        .map(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok())
        .collect::<Option<Vec<u8>>>()?;
    Some(Received {
        topic: topic.to_owned(),
        payload,
        qos: qos.parse().ok()?,
        retain: retain == "1",
    })
}
