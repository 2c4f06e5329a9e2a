//! A subject that runs: where it serves, what it uses, what it keeps, and how it crashes.
//!
//! Always holds: it was started for one measurement, empty, with everything in one folder, and ends with its handle.

use std::net::SocketAddr;
use std::path::Path;

use tokio::runtime::Runtime;

use super::subject::{Kind, Launch, Recipe, Start, Subject, SubjectError, TOPIC};
use super::subjects::iggy;
use crate::driver::{self, Keeper};
use crate::process_usage::{self, Usage};
use crate::stack::process::Process;
use crate::stack::{StackError, make_folder, ports, wait};

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
    Iggy(Box<iggy::Iggy>),
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

impl<'a> Running<'a> {
    /// Starts it, with everything in `folder`.
    ///
    /// # Errors
    /// See [`StackError`].
    pub(crate) fn start(
        subject: &'a Subject,
        folder: &'a Path,
        runtime: &'a Runtime,
    ) -> Result<Self, StackError> {
        make_folder(folder)?;
        let state = match &subject.recipe {
            Recipe::Iggy(programs) => State::Iggy(Box::new(iggy::Iggy::start(
                programs,
                folder,
                subject.class,
                subject.kind != Kind::Sdk,
                runtime,
            )?)),
            Recipe::Broker(program, start) => State::Broker(Broker::start(
                *start,
                &Launch {
                    program,
                    folder,
                    address: ports::free_address()?,
                    class: subject.class,
                },
            )?),
        };
        Ok(Self {
            subject,
            folder,
            runtime,
            state,
            keeper: None,
        })
    }

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
            (State::Iggy(iggy), Recipe::Iggy(programs)) => State::Iggy(Box::new(iggy.crash(
                programs,
                self.folder,
                self.subject.class,
                self.runtime,
            )?)),
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
