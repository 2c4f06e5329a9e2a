//! The Iggy server that a test runs against: the sandbox's, a real one started here, or one that runs already.
//!
//! Always holds: a server that was started here has an address of its own that it keeps over restarts, and its data
//! survives them.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::binaries::{self, IggyChoice};
use crate::config::Target;
use crate::http;
use crate::ports::free_port;
use crate::process::Process;
use crate::real_iggy;
use crate::records::Reader;
use crate::wait;

const START_DEADLINE: Duration = Duration::from_secs(60);

/// A server, and the process if it was started here.
#[derive(Debug)]
pub struct IggyServer {
    choice: IggyChoice,
    folder: PathBuf,
    address: SocketAddr,
    /// The sandbox's counters.
    stats: Option<SocketAddr>,
    /// A real server's HTTP API.
    http: Option<SocketAddr>,
    process: Option<Process>,
}

/// What the sandbox's server counted for one topic since it started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TopicCounters {
    /// Poll requests that found something.
    pub polls: u64,
    /// Messages in all replies to polls.
    pub polled_messages: u64,
    /// Appends.
    pub appends: u64,
    /// Messages in all appends.
    pub appended_messages: u64,
}

impl IggyServer {
    /// Starts the server that the environment asks for, with its data below `folder`, and waits until it serves.
    ///
    /// # Panics
    /// When it does not serve in time.
    pub fn start(folder: &Path) -> Self {
        let loopback = || SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let choice = binaries::iggy_choice();
        let (address, stats, http) = match &choice {
            IggyChoice::Running(address) => (*address, None, real_iggy::http_from_environment()),
            IggyChoice::Binary(_) => (loopback(), None, Some(loopback())),
            IggyChoice::Sandbox => (loopback(), Some(loopback()), None),
        };
        let mut server = Self {
            choice,
            folder: folder.to_owned(),
            address,
            stats,
            http,
            process: None,
        };
        server.start_again();
        server
    }

    /// Where it serves the binary protocol.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether the test may stop and kill it. When not, says which test is left out.
    pub fn may_be_killed(&self, test: &str) -> bool {
        let owned = !matches!(self.choice, IggyChoice::Running(_));
        if !owned {
            binaries::skipped(
                test,
                "it needs an Iggy that it may kill, not one from IGGY_ADDRESS",
            );
        }
        owned
    }

    /// Ends the server with SIGKILL.
    ///
    /// # Panics
    /// When the server was not started here.
    pub fn kill(&mut self) {
        self.process
            .as_mut()
            .expect("only a server that was started here can be killed")
            .kill();
    }

    /// From now on the server takes connections, as its operating system does it, and answers nothing.
    ///
    /// # Panics
    /// When the server was not started here.
    pub fn freeze(&self) {
        self.own_process().freeze();
    }

    /// Lets a frozen server go on.
    ///
    /// # Panics
    /// When the server was not started here.
    pub fn thaw(&self) {
        self.own_process().thaw();
    }

    fn own_process(&self) -> &Process {
        let own = self.process.as_ref();
        own.expect("only a server that was started here can be frozen")
    }

    /// Starts the server with the address and data it had before, and waits until it serves. Does nothing for a server
    /// that was not started here, except to wait.
    ///
    /// # Panics
    /// When it does not serve in time.
    pub fn start_again(&mut self) {
        let log = self.folder.join("iggy.log");
        if let Some(command) = self.command() {
            self.process = Some(Process::start("the Iggy server", command, &log));
        }
        wait::until("the Iggy server listens", START_DEADLINE, || {
            if let Some(status) = self.process.as_mut().and_then(Process::ended) {
                panic!("the Iggy server ended at its start with {status}");
            }
            TcpStream::connect(self.address).is_ok()
        });
        Reader::new(self.address).wait_until_served(START_DEADLINE);
    }

    /// The user's view of what is stored.
    pub fn reader(&self) -> Reader {
        Reader::new(self.address)
    }

    /// Whether the server lets the SDK 0.11 create topics, which it may not when it is older.
    pub fn creates_topics(&self) -> bool {
        self.choice == IggyChoice::Sandbox || self.reader().can_create_topics()
    }

    /// Makes the topics that the gateway would make itself, where the server does not let it. Topics that other tests use
    /// too are also made on a server that runs already, where tests that start together would meet.
    ///
    /// # Panics
    /// When such a server refuses over its HTTP API too, or that API is not known.
    pub fn prepare(&self, targets: &[Target], used_by_others: bool) {
        if self.creates_topics() {
            if used_by_others && matches!(self.choice, IggyChoice::Running(_)) {
                for target in targets {
                    // Another test may have been first.
                    let _ = self.reader().create(target);
                }
            }
            return;
        }
        let http = self.http.expect(
            "this Iggy does not let its SDK create topics: set IGGY_HTTP_ADDRESS to its HTTP API",
        );
        real_iggy::create(http, targets);
    }

    /// Makes a topic, and its stream, unless they are there: with the SDK, or where the server does not let it, over its
    /// HTTP API.
    ///
    /// # Panics
    /// When the server refuses.
    pub fn make(&self, target: &Target) {
        if !self.creates_topics() {
            self.prepare(std::slice::from_ref(target), false);
        } else if self.reader().topic(&target.stream, &target.topic).is_none() {
            self.reader()
                .create(target)
                .unwrap_or_else(|error| panic!("cannot create {target:?}: {error}"));
        }
    }

    /// The counters of one topic, over all its partitions; nothing when the server does not count.
    ///
    /// # Panics
    /// When the sandbox's counters cannot be read.
    pub fn counters(&self, stream: &str, topic: &str) -> Option<TopicCounters> {
        let reply = http::get(self.stats?, "/stats").expect("the sandbox serves its counters");
        let rows = reply.json();
        let rows = rows
            .as_array()
            .or_else(|| {
                rows.as_object()?
                    .values()
                    .find_map(|value| value.as_array())
            })
            .unwrap_or_else(|| panic!("no list of counters in {reply:?}"))
            .clone();
        let mut sum = TopicCounters::default();
        for row in rows {
            if row.get("stream").and_then(|name| name.as_str()) != Some(stream)
                || row.get("topic").and_then(|name| name.as_str()) != Some(topic)
            {
                continue;
            }
            let count = |key: &str| {
                row.get(key)
                    .and_then(serde_json::Value::as_u64)
                    .unwrap_or_else(|| panic!("no counter {key} in {row}"))
            };
            sum.polls += count("polls") - count("empty_polls");
            sum.polled_messages += count("polled_messages");
            sum.appends += count("appends");
            sum.appended_messages += count("appended_messages");
        }
        Some(sum)
    }

    fn command(&self) -> Option<Command> {
        match &self.choice {
            IggyChoice::Running(_) => None,
            IggyChoice::Binary(program) => Some(real_iggy::command(
                program,
                &self.folder,
                self.address,
                self.http?,
            )),
            IggyChoice::Sandbox => {
                let data = self.folder.join("iggy_data");
                fs::create_dir_all(&data)
                    .unwrap_or_else(|error| panic!("cannot create {}: {error}", data.display()));
                let mut command = Command::new(binaries::sandbox());
                command
                    .arg("server")
                    .args(["--address", &self.address.to_string()])
                    .arg("--data-dir")
                    .arg(data)
                    .args(["--stats-address", &self.stats?.to_string()])
                    .env("NO_COLOR", "1");
                Some(command)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::unique_name;

    #[test]
    fn what_was_produced_is_read_back_also_after_a_kill() {
        let folder = tempfile::tempdir().unwrap();
        let mut server = IggyServer::start(folder.path());
        let target = Target::new(&unique_name(), "topic", 3);
        server.make(&target);
        server.make(&target);
        let reader = server.reader();
        let details = reader.topic(&target.stream, &target.topic).unwrap();
        assert_eq!(details.partitions_count, 3);
        for number in 0..10 {
            reader.produce(&target.stream, &target.topic, "key", &number.to_string());
        }
        let before = reader.records(&target.stream, &target.topic);
        let payloads: Vec<String> = before.iter().map(|record| record.payload_text()).collect();
        assert_eq!(payloads, ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]);
        assert_eq!(reader.stream_records(&target.stream), before);
        assert_eq!(reader.records(&target.stream, "no topic"), []);
        assert_eq!(reader.records("no stream", "no topic"), []);
        if server.may_be_killed("a kill in the harness's own test") {
            server.kill();
            server.start_again();
            assert_eq!(
                server.reader().records(&target.stream, &target.topic),
                before
            );
        }
    }
}
