//! What is compared: the gateway, Iggy's SDK without it, and other MQTT brokers.
//!
//! Always holds: a subject is started anew, and empty, for each measurement, in a folder of its own and on loopback ports that
//! were free, and ends with its handle; nothing else that is compared runs meanwhile. What it must keep can be counted after
//! the measurement: the gateway's and the SDK's messages in Iggy, a broker's by a client for which it had to keep them.

use std::env;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Serialize;
use tokio::runtime::Runtime;

use super::subjects::{iggy, mosquitto, nats, rabbitmq, rumqttd};
use crate::driver::{self, DriverError, Keeper};
use crate::process_usage::{self, Usage};
use crate::sdk::SdkError;
use crate::stack::process::Process;
use crate::stack::{Programs, StackError, make_folder, ports, wait};

/// The first level of all topics, and the Iggy topic.
pub(crate) const TOPIC: &str = "compare";

/// What a subject is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// The gateway before a real Iggy server.
    Gateway,
    /// The gateway in the sandbox.
    Sandbox,
    /// Iggy's SDK, without a gateway.
    Sdk,
    /// Eclipse Mosquitto.
    Mosquitto,
    /// nats-server with JetStream.
    Nats,
    /// RabbitMQ with its MQTT plugin.
    RabbitMq,
    /// rumqttd.
    Rumqttd,
}

/// What an acknowledgement promises, as far as a subject lets one choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Class {
    /// The message is with the server, in memory or in the operating system's cache.
    Plain,
    /// It is on stable storage, or on its way there by the strictest setting that the server has.
    Durable,
}

/// A subject that can be started.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Subject {
    /// How it is chosen and found again: `mosquitto-plain`.
    pub(crate) key: String,
    /// What it is.
    pub(crate) kind: Kind,
    /// What its acknowledgement promises.
    pub(crate) class: Class,
    /// That promise in its own words.
    pub(crate) flavour: &'static str,
    /// Its name and version.
    pub(crate) version: String,
    #[serde(skip)]
    recipe: Recipe,
}

#[derive(Debug, Clone)]
enum Recipe {
    Iggy(Programs),
    Broker(PathBuf, Start),
}

/// Writes a broker's files and starts it; when there are several processes, the last one serves.
pub(super) type Start = fn(&Launch<'_>) -> Result<Vec<Process>, StackError>;

/// How a broker is to be started.
#[derive(Debug)]
pub(super) struct Launch<'a> {
    /// Its program.
    pub(super) program: &'a Path,
    /// Its folder, for files and data.
    pub(super) folder: &'a Path,
    /// Where it is to serve MQTT.
    pub(super) address: SocketAddr,
    /// What its acknowledgements are to promise.
    pub(super) class: Class,
}

/// Why a subject could not be measured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SubjectError {
    /// It does not run.
    #[error(transparent)]
    Stack(#[from] StackError),
    /// The driver.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// The SDK.
    #[error(transparent)]
    Sdk(#[from] SdkError),
}

impl SubjectError {
    /// Whether it is the user who ended it.
    pub(crate) fn is_interrupted(&self) -> bool {
        matches!(
            self,
            Self::Stack(StackError::Interrupted)
                | Self::Driver(DriverError::Interrupted)
                | Self::Sdk(SdkError::Interrupted)
        )
    }
}

/// A broker that was found on this machine.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) kind: Kind,
    pub(super) program: PathBuf,
    pub(super) version: String,
    pub(super) flavours: Vec<(Class, &'static str)>,
    pub(super) start: Start,
}

/// Everything that this machine has, and a line for each that it does not have.
pub(crate) fn available(own: &Programs) -> (Vec<Subject>, Vec<String>) {
    let mut subjects = iggy::subjects(own);
    let mut missing = Vec::new();
    if own.iggy_server.is_none() {
        missing
            .push("without the gateway before a real Iggy: IGGY_SERVER_BIN is not set".to_owned());
    }
    for found in [
        mosquitto::find(),
        nats::find(),
        rabbitmq::find(),
        rumqttd::find(),
    ] {
        match found {
            Ok((found, note)) => {
                missing.extend(note);
                for &(class, flavour) in &found.flavours {
                    subjects.push(Subject {
                        key: key(found.kind, class),
                        kind: found.kind,
                        class,
                        flavour,
                        version: found.version.clone(),
                        recipe: Recipe::Broker(found.program.clone(), found.start),
                    });
                }
            }
            Err(reason) => missing.push(reason),
        }
    }
    (subjects, missing)
}

/// A broker and what is to be said about it, or why it is not there.
pub(super) type Search = Result<(Found, Option<String>), String>;

/// The program that `variable` names, or one of `names` in PATH or where servers are installed.
pub(super) fn find_program(variable: &str, names: &[&str]) -> Result<PathBuf, String> {
    if let Some(path) = env::var_os(variable).filter(|path| !path.is_empty()) {
        let path = PathBuf::from(path);
        return std::fs::canonicalize(&path)
            .map_err(|_| format!("{} of {variable} is missing", path.display()));
    }
    let path = env::var_os("PATH").unwrap_or_default();
    // Users' PATHs often lack these.
    let more = ["/usr/sbin", "/usr/local/sbin", "/usr/local/bin"].map(PathBuf::from);
    let folders: Vec<PathBuf> = env::split_paths(&path).chain(more).collect();
    names
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
        .find(|file| file.is_file())
        .ok_or_else(|| {
            let name = names.last().unwrap_or(&"");
            format!("without {name}: it is neither in PATH nor in {variable}")
        })
}

/// The first version number in what a program prints when it is called with `argument`.
pub(super) fn version(program: &Path, argument: &str) -> String {
    let output = Command::new(program).arg(argument).output();
    output
        .ok()
        .and_then(|output| {
            first_version(&String::from_utf8_lossy(&output.stdout))
                .or_else(|| first_version(&String::from_utf8_lossy(&output.stderr)))
        })
        .unwrap_or_else(|| "unknown".to_owned())
}

/// The first word that looks like a version.
pub(super) fn first_version(text: &str) -> Option<String> {
    text.split(|c: char| c.is_whitespace() || c == ',')
        .map(|word| word.trim_start_matches('v'))
        .find(|word| {
            word.starts_with(|c: char| c.is_ascii_digit()) && word.matches('.').count() >= 1
        })
        .map(str::to_owned)
}

/// How a subject is chosen.
pub(super) fn key(kind: Kind, class: Class) -> String {
    let kind = match kind {
        Kind::Gateway => "gateway",
        Kind::Sandbox => "sandbox",
        Kind::Sdk => "sdk",
        Kind::Mosquitto => "mosquitto",
        Kind::Nats => "nats",
        Kind::RabbitMq => "rabbitmq",
        Kind::Rumqttd => "rumqttd",
    };
    match class {
        Class::Plain => format!("{kind}-plain"),
        Class::Durable => format!("{kind}-durable"),
    }
}

impl Subject {
    pub(super) fn iggy(
        kind: Kind,
        class: Class,
        flavour: &'static str,
        version: String,
        programs: Programs,
    ) -> Self {
        Self {
            key: key(kind, class),
            kind,
            class,
            flavour,
            version,
            recipe: Recipe::Iggy(programs),
        }
    }

    /// Starts it, with everything in `folder`.
    ///
    /// # Errors
    /// See [`StackError`].
    pub(crate) fn start<'a>(
        &'a self,
        folder: &'a Path,
        runtime: &'a Runtime,
    ) -> Result<Running<'a>, StackError> {
        make_folder(folder)?;
        let state = match &self.recipe {
            Recipe::Iggy(programs) => State::Iggy(iggy::Iggy::start(
                programs,
                folder,
                self.class,
                self.kind != Kind::Sdk,
                runtime,
            )?),
            Recipe::Broker(program, start) => State::Broker(Broker::start(
                *start,
                &Launch {
                    program,
                    folder,
                    address: ports::free_address()?,
                    class: self.class,
                },
            )?),
        };
        Ok(Running {
            subject: self,
            folder,
            runtime,
            state,
            keeper: None,
        })
    }
}

#[derive(Debug)]
struct Broker {
    address: SocketAddr,
    processes: Vec<Process>,
}

impl Broker {
    fn start(start: Start, launch: &Launch<'_>) -> Result<Self, StackError> {
        let mut processes = start(launch)?;
        wait(|| {
            for process in &mut processes {
                process.alive()?;
            }
            Ok(driver::is_serving(launch.address).then_some(()))
        })?
        .ok_or_else(|| match processes.last() {
            Some(process) => process.late(),
            None => StackError::NoPort,
        })?;
        Ok(Self {
            address: launch.address,
            processes,
        })
    }
}

#[derive(Debug)]
enum State {
    Broker(Broker),
    Iggy(iggy::Iggy),
    /// Between the end and the next start.
    Ended,
}

/// A subject that runs.
#[derive(Debug)]
pub(crate) struct Running<'a> {
    subject: &'a Subject,
    folder: &'a Path,
    runtime: &'a Runtime,
    state: State,
    keeper: Option<Keeper>,
}

/// What a subject has used.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Used {
    /// The broker, or the host with the gateway; nothing for the SDK, which is in this process.
    pub(crate) own: Option<Usage>,
    /// The Iggy server, where there is one.
    pub(crate) iggy: Option<Usage>,
}

impl Running<'_> {
    /// Where it serves MQTT; nothing when it does not.
    pub(crate) fn mqtt(&self) -> Option<SocketAddr> {
        match &self.state {
            State::Broker(broker) => Some(broker.address),
            State::Iggy(iggy) => iggy.mqtt(),
            State::Ended => None,
        }
    }

    /// Where it serves: MQTT, or Iggy's protocol when it does not serve MQTT.
    pub(crate) fn address(&self) -> SocketAddr {
        match &self.state {
            State::Broker(broker) => broker.address,
            State::Iggy(iggy) => iggy.mqtt().unwrap_or_else(|| iggy.address()),
            State::Ended => SocketAddr::from(([127, 0, 0, 1], 0)),
        }
    }

    /// What it has used since it was started.
    pub(crate) fn used(&self) -> Used {
        let of = |roots: Vec<u32>| process_usage::of_trees(&roots);
        match &self.state {
            State::Broker(broker) => Used {
                own: of(broker.processes.iter().map(Process::id).collect()),
                iggy: None,
            },
            State::Iggy(iggy) => Used {
                own: iggy.host_pid().and_then(|pid| of(vec![pid])),
                iggy: of(vec![iggy.server_pid()]),
            },
            State::Ended => Used {
                own: None,
                iggy: None,
            },
        }
    }

    /// From now on it has to keep what is published below [`TOPIC`].
    ///
    /// # Errors
    /// [`SubjectError::Driver`].
    pub(crate) fn keep(&mut self) -> Result<(), SubjectError> {
        if let State::Broker(broker) = &self.state {
            let filter = format!("{TOPIC}/#");
            let keeper = Keeper::subscribe(broker.address, &self.subject.key, &filter)?;
            self.keeper = Some(keeper);
        }
        Ok(())
    }

    /// How many of `expected` messages it has kept.
    ///
    /// # Errors
    /// [`SubjectError::Driver`], [`SubjectError::Stack`].
    pub(crate) fn kept(&self, expected: u64) -> Result<Option<u64>, SubjectError> {
        Ok(match (&self.state, &self.keeper) {
            // An append that had to be tried again may be there twice.
            (State::Iggy(iggy), _) => Some(iggy.messages(self.runtime)?.min(expected)),
            (State::Broker(_), Some(keeper)) => Some(keeper.collect(expected)?),
            _ => None,
        })
    }

    /// Ends its processes as `kill -9` does, and starts it again with the data that it has left.
    ///
    /// # Errors
    /// [`SubjectError::Stack`].
    pub(crate) fn crash(&mut self) -> Result<(), SubjectError> {
        let state = std::mem::replace(&mut self.state, State::Ended);
        self.state = match (state, &self.subject.recipe) {
            (State::Broker(broker), Recipe::Broker(program, start)) => {
                let address = broker.address;
                drop(broker);
                State::Broker(Broker::start(
                    *start,
                    &Launch {
                        program,
                        folder: self.folder,
                        address,
                        class: self.subject.class,
                    },
                )?)
            }
            (State::Iggy(iggy), Recipe::Iggy(programs)) => {
                State::Iggy(iggy.crash(programs, self.folder, self.subject.class, self.runtime)?)
            }
            (state, _) => state,
        };
        Ok(())
    }

    /// The last lines that its processes printed.
    pub(crate) fn output_end(&self) -> String {
        match &self.state {
            State::Broker(broker) => broker
                .processes
                .last()
                .map_or(String::new(), Process::output_end),
            State::Iggy(iggy) => iggy.output_end(),
            State::Ended => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_the_first_word_that_begins_with_a_digit_and_has_a_dot() {
        for (text, version) in [
            ("nats-server: v2.9.10\n", Some("2.9.10")),
            ("mosquitto version 2.0.11\n\nUsage: 7", Some("2.0.11")),
            ("iggy-server 0.9.0-edge.5 (x)", Some("0.9.0-edge.5")),
            ("no version", None),
        ] {
            assert_eq!(first_version(text).as_deref(), version);
        }
    }

    #[test]
    fn keys_tell_all_subjects_apart() {
        assert_eq!(key(Kind::RabbitMq, Class::Durable), "rabbitmq-durable");
        assert_eq!(key(Kind::Sdk, Class::Plain), "sdk-plain");
    }
}
