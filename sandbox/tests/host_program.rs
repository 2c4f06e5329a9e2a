//! The program `sandbox` as a user or a script starts it: what it prints, what it reads, how it ends.
#![allow(clippy::unwrap_used)] // In tests a panic is the report.

mod host_support;

use std::net::SocketAddr;
use std::process::Stdio;

use host_support::{DEADLINE, World, http};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

/// A started program, ended when the test is over.
struct Program {
    child: Child,
    output: Lines<BufReader<ChildStdout>>,
}

impl Program {
    fn start(arguments: &[&str]) -> Self {
        let mut child = command(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, output }
    }

    /// The address in the line `<what> listening on <address>`.
    async fn address(&mut self, what: &str) -> SocketAddr {
        let prefix = format!("{what} listening on ");
        loop {
            let line = tokio::time::timeout(DEADLINE, self.output.next_line()).await;
            let line = line.unwrap().unwrap().expect("the program ended");
            if let Some(address) = line.strip_prefix(&prefix) {
                return address.parse().unwrap();
            }
        }
    }

    /// Sends SIGTERM and waits for the end.
    async fn terminate(&mut self) -> std::process::ExitStatus {
        let pid = i32::try_from(self.child.id().unwrap()).unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        tokio::time::timeout(DEADLINE, self.child.wait())
            .await
            .unwrap()
            .unwrap()
    }
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sandbox"));
    command.args(arguments);
    for (name, _) in std::env::vars() {
        if name.starts_with("IGGY_") || name.starts_with("MQTT_") {
            command.env_remove(name);
        }
    }
    command
}

async fn run(arguments: &[&str]) -> (bool, String, String) {
    let done = tokio::time::timeout(DEADLINE, command(arguments).output()).await;
    let done = done.unwrap().unwrap();
    (
        done.status.success(),
        String::from_utf8(done.stdout).unwrap(),
        String::from_utf8(done.stderr).unwrap(),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn host_ends_on_sigterm_with_its_connectors_closed_in_order() {
    let world = World::start().await;
    world.sink("a_sink", "");
    world.source("z_source", "s", "t", "");
    let config = world.path("config.toml").display().to_string();
    let mut host = Program::start(&["host", "--config", &config]);
    let api = host.address("api").await;
    assert_eq!(http(api, "GET", "/health", "").await.status, 200);
    assert!(host.terminate().await.success());
    assert_eq!(world.journal()[2..], ["z_source close", "a_sink close"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn host_takes_its_configuration_from_the_environment_too() {
    let world = World::start().await;
    world.sink("sink", "");
    let mut child = command(&["host"])
        .env("IGGY_CONNECTORS_CONFIG_PATH", world.path("config.toml"))
        .env(
            "IGGY_CONNECTORS_SINK_SINK_PLUGIN_CONFIG_MARKER",
            "from outside",
        )
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut host = Program { child, output };
    host.address("api").await;
    assert_eq!(world.journal()[1], "sink marker \"from outside\"");
    assert!(host.terminate().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn server_keeps_its_data_and_read_and_stats_show_them() {
    let world = World::start().await;
    let data = world.path("data").display().to_string();
    let arguments = [
        "server",
        "--address",
        "127.0.0.1:0",
        "--data-dir",
        &data,
        "--stats-address",
        "127.0.0.1:0",
    ];
    let mut server = Program::start(&arguments);
    let stats = server.address("stats").await;
    let iggy = server.address("iggy").await.to_string();
    world.source("source", "s", "t", r#"batches = [["one", "two\u0007"]]"#);
    let config = std::fs::read_to_string(world.path("config.toml")).unwrap();
    world.write(
        "config.toml",
        &config.replace(&world.iggy.to_string(), &iggy),
    );
    let host = world.host().await;
    world
        .journal_with(|lines| lines.contains(&"source ack".to_owned()))
        .await;
    host.shutdown().await;

    let shown = http(stats, "GET", "/stats", "").await.json();
    assert_eq!(shown[0]["stream"], "s", "{shown}");
    assert_eq!(
        (&shown[0]["appends"], &shown[0]["appended_messages"]),
        (&json!(1), &json!(2))
    );
    assert!(server.terminate().await.success());

    let mut server = Program::start(&arguments);
    let iggy = server.address("iggy").await.to_string();
    let (success, output, errors) = run(&["read", "s", "t", "--address", &iggy]).await;
    assert!(success, "{errors}");
    assert_eq!(
        output,
        "partition 0 offset 0 payload=\"one\"\npartition 0 offset 1 payload=\"two\\u{7}\"\n"
    );
    let (success, output, _) = run(&[
        "read",
        "s",
        "t",
        "--address",
        &iggy,
        "--partition",
        "0",
        "--from",
        "1",
        "--json",
    ])
    .await;
    assert!(success);
    let line: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(
        (&line["offset"], &line["payload"]),
        (&json!(1), &json!("two\u{7}"))
    );
    let (success, _, errors) = run(&["read", "s", "nothing", "--address", &iggy]).await;
    assert!(
        !success && errors.contains("there is no topic nothing"),
        "{errors}"
    );
    let (success, _, errors) =
        run(&["read", "s", "t", "--address", &iggy, "--partition", "1"]).await;
    assert!(!success && errors.contains("1 partitions"), "{errors}");
    assert!(server.terminate().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_in_use_is_reported_and_ends_the_program() {
    let world = World::start().await;
    let taken = world.iggy.to_string();
    let data = world.path("data").display().to_string();
    let (success, _, errors) = run(&["server", "--address", &taken, "--data-dir", &data]).await;
    assert!(!success && errors.contains(&taken), "{errors}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_reported_and_never_printed() {
    let world = World::start().await;
    world.write("password", "hunter2\n");
    let password = world.path("password").display().to_string();
    let address = world.iggy.to_string();
    let arguments = [
        "read",
        "s",
        "t",
        "--address",
        &address,
        "--password-file",
        &password,
    ];
    let (success, output, errors) = run(&arguments).await;
    assert!(!success);
    assert!(errors.contains("refuses the connection"), "{errors}");
    assert!(!output.contains("hunter2") && !errors.contains("hunter2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_that_is_missing_or_broken_ends_the_host_with_its_name() {
    let world = World::start().await;
    let config = world.path("config.toml").display().to_string();
    let missing = world.path("missing.toml").display().to_string();
    let (success, _, errors) = run(&["host", "--config", &missing]).await;
    assert!(!success && errors.contains("missing.toml"), "{errors}");
    world.write("connectors/broken.toml", "type = \"sink\"\nkey = ");
    let (success, _, errors) = run(&["host", "--config", &config]).await;
    assert!(
        !success && errors.contains("broken.toml") && errors.contains("line 2"),
        "{errors}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn run_starts_server_and_host_together_and_ends_both_on_sigterm() {
    let world = World::start().await;
    world.source("source", "s", "t", r#"batches = [["one"]]"#);
    let config = world.path("config.toml").display().to_string();
    let data = world.path("run").display().to_string();
    let mut program = Program::start(&[
        "--config",
        &config,
        "--data-dir",
        &data,
        "--address",
        "127.0.0.1:0",
        "--api-address",
        "127.0.0.1:0",
    ]);
    let iggy = program.address("iggy").await;
    assert_ne!(iggy, world.iggy);
    let api = program.address("api").await;
    world
        .journal_with(|lines| lines.contains(&"source ack".to_owned()))
        .await;
    assert_eq!(
        http(api, "GET", "/sources/source", "").await.json()["status"],
        "running"
    );
    let shown = http(api, "GET", "/sources/source/configs/plugin?format=json", "")
        .await
        .json();
    assert_eq!(shown["iggy_address"], iggy.to_string());
    let (success, output, _) = run(&["read", "s", "t", "--address", &iggy.to_string()]).await;
    assert!(success && output.contains("payload=\"one\""), "{output}");
    assert!(program.terminate().await.success());
    assert!(world.journal().contains(&"source close".to_owned()));
    assert!(world.path("run/state/source_source.state").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn run_ends_with_an_error_when_a_connector_fails() {
    let world = World::start().await;
    world.source("source", "s", "t", "fail_open = true");
    let config = world.path("config.toml").display().to_string();
    let data = world.path("run").display().to_string();
    let (success, output, errors) = run(&[
        "run",
        "--config",
        &config,
        "--data-dir",
        &data,
        "--address",
        "127.0.0.1:0",
    ])
    .await;
    assert!(!success);
    assert!(
        errors.contains("source: Plugin initialization failed"),
        "{errors}"
    );
    assert!(errors.contains("source was told to fail"), "{errors}");
    assert!(!output.contains("listening"), "{output}");
}
