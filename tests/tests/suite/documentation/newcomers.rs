//! What docs/getting-started.md has a newcomer do in the sandbox is done, and prints what the page shows.
//!
//! The lines of blocks `sh sandbox` are run in their order: `./scripts/sandbox` starts the built sandbox (anew), with the variables
//! before it; `mosquitto_sub` goes on in the background; everything else has to succeed. Addresses are those of this test. What the
//! block `text prints` behind them shows has to have been printed, line by line, by any of them, with `…` for what differs.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

use e2e::binaries;
use e2e::config::Files;
use e2e::ports::{free_port, unique_name};
use e2e::process::Process;
use e2e::wait;

use super::commands::write_files;
use super::markdown::Page;

struct Walk {
    folder: tempfile::TempDir,
    iggy: SocketAddr,
    mqtt: SocketAddr,
    sandbox: Option<Process>,
    subscribers: Vec<Process>,
    printed: String,
}

impl Walk {
    fn new(page: &Page) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        Files::copy_shipped(folder.path());
        write_files(page, folder.path());
        let address = || SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        Self {
            folder,
            iggy: address(),
            mqtt: address(),
            sandbox: None,
            subscribers: Vec::new(),
            printed: String::new(),
        }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn log(&self, of: &str) -> PathBuf {
        self.path().join(format!("{of}-{}.log", unique_name()))
    }

    fn start_sandbox(&mut self, variables: &[(&str, &str)]) {
        self.subscribers.clear();
        if let Some(mut sandbox) = self.sandbox.take() {
            sandbox.terminate(wait::PATIENCE);
        }
        let mut command = Command::new(binaries::sandbox());
        command
            .current_dir(self.path())
            .envs(variables.iter().copied())
            .args(["--address", &self.iggy.to_string()])
            .args(["--mqtt-address", &self.mqtt.to_string()])
            .args(["--api-address", "127.0.0.1:0"]);
        let mut sandbox = Process::start("the sandbox", command, &self.log("sandbox"));
        wait::until("the sandbox is ready", wait::PATIENCE, || {
            assert!(
                sandbox.ended().is_none(),
                "the sandbox ended: {}",
                sandbox.output()
            );
            sandbox.output().contains("api listening on")
        });
        self.sandbox = Some(sandbox);
    }

    fn run(&mut self, line: &str) {
        if let Some(before) = line.strip_suffix("./scripts/sandbox") {
            let variables: Vec<_> = before
                .split_whitespace()
                .map(|one| one.split_once('=').expect("a variable"))
                .collect();
            return self.start_sandbox(&variables);
        }
        if self.sandbox.is_none() {
            self.start_sandbox(&[]);
        }
        let (program, arguments) = line.split_once(' ').expect("a command with arguments");
        let mqtt = format!("-h {} -p {} -V 311", self.mqtt.ip(), self.mqtt.port());
        let command = match program {
            // Says when it is subscribed, and each line at once.
            "mosquitto_sub" => format!("exec stdbuf -oL mosquitto_sub {mqtt} -d {arguments}"),
            "mosquitto_pub" => format!("mosquitto_pub {mqtt} {arguments}"),
            "./target/release/sandbox" => {
                let sandbox = binaries::sandbox();
                format!("{} {arguments} --address {}", sandbox.display(), self.iggy)
            }
            _ => panic!("this test does not know how to run {line}"),
        };
        let mut shell = Command::new("sh");
        shell.args(["-c", &command]).current_dir(self.path());
        if program == "mosquitto_sub" {
            let mut subscriber = Process::start(line, shell, &self.log("sub"));
            wait::until(&format!("{line} is subscribed"), wait::PATIENCE, || {
                assert!(subscriber.ended().is_none(), "{}", subscriber.output());
                subscriber.output().contains("Subscribed (")
            });
            self.subscribers.push(subscriber);
            return;
        }
        let output = shell.output().expect("a shell");
        assert!(output.status.success(), "{line}: {output:?}");
        self.printed
            .push_str(&String::from_utf8_lossy(&output.stdout));
    }

    fn printed(&self) -> String {
        let subscribers = self.subscribers.iter().map(Process::output);
        subscribers.chain([self.printed.clone()]).collect()
    }

    fn has_printed(&self, expected: &str) {
        for line in expected.lines() {
            wait::until(&format!("{line:?} is printed"), wait::PATIENCE, || {
                self.printed().lines().any(|printed| is_like(line, printed))
            });
        }
    }
}

/// Whether the line is the expected one, in which `…` stands for anything.
fn is_like(expected: &str, line: &str) -> bool {
    let parts: Vec<&str> = expected.split('…').collect();
    let Some(mut rest) = line.strip_prefix(parts[0]) else {
        return false;
    };
    for part in &parts[1..] {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.is_empty() || expected.ends_with('…')
}

#[test]
fn a_newcomer_sees_what_the_page_on_getting_started_shows() {
    let page = Page::read(Path::new("docs/getting-started.md"));
    let mut walk = Walk::new(&page);
    let (mut commands, mut shown) = (0, 0);
    for block in &page.blocks {
        match block.what.info.as_str() {
            "sh sandbox" => {
                for line in block.what.text.lines() {
                    walk.run(line.trim());
                    commands += 1;
                }
            }
            "text prints" => {
                walk.has_printed(&block.what.text);
                shown += 1;
            }
            _ => {}
        }
    }
    assert!(commands >= 8 && shown >= 3, "{commands} {shown}");
}
