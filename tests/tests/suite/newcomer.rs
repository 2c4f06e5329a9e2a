//! The README's first steps: everything in the sandbox, a message published, received, and read back from Iggy.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;

use e2e::binaries;
use e2e::mosquitto::{self, Subscriber};
use e2e::ports::free_port;
use e2e::process::Process;
use e2e::wait;

const TOPIC: &str = "building/north/room/42/temp";

#[test]
fn the_sandbox_alone_serves_the_first_steps_of_the_readme() {
    let folder = tempfile::tempdir().unwrap();
    let address = || SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let (iggy, mqtt, api) = (address(), address(), address());
    let mut command = Command::new(binaries::sandbox());
    command
        // As the script does; the configuration is looked for there.
        .current_dir(binaries::repository())
        .args(["--address", &iggy.to_string()])
        .args(["--mqtt-address", &mqtt.to_string()])
        .args(["--api-address", &api.to_string()])
        .arg("--data-dir")
        .arg(folder.path().join("data"));
    let mut sandbox = Process::start("the sandbox", command, &folder.path().join("log"));
    wait::until("the sandbox is ready", wait::PATIENCE, || {
        if let Some(status) = sandbox.ended() {
            panic!("the sandbox ended with {status}");
        }
        // Its HTTP API comes last, when both connectors are open.
        sandbox.output().contains("api listening on")
    });

    let subscriber = Subscriber::start(mqtt, folder.path(), "", TOPIC, 1);
    mosquitto::publish_ok(mqtt, &["-t", TOPIC, "-q", "1", "-m", "21.5"]);
    let received = subscriber.wait_for(1);
    assert_eq!(received[0].payload, b"21.5");

    let output = Command::new(binaries::sandbox())
        .args(["read", "--address", &iggy.to_string()])
        .args(["building_north", "telemetry"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 1, "{text}");
    assert!(
        lines[0].contains(TOPIC) && lines[0].contains("21.5"),
        "{text}"
    );

    let status = sandbox.terminate(wait::PATIENCE);
    assert!(status.success(), "the sandbox ended with {status}");
}
