//! A server with the gateway before it, ready to be measured.
//!
//! Always holds: there is one server and one topic for each workload and durability; one gateway reaches the server
//! directly, a second one through the counting proxy, and only one of them has work at a time. A topic is empty when a
//! measurement begins, so all begin alike and the data stays small.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::{IngestError, Settings};
use crate::append_counter::{AppendCount, AppendCounter};
use crate::driver::{self, Limit, QoS, Workload};
use crate::outcome::Outcome;
use crate::sdk::{self, Producers};
use crate::stack::Programs;
use crate::stack::host::Host;
use crate::stack::server::Server;
use crate::stack::topics::Topic;

/// A topic of the measurements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Plan {
    /// The workload that appends to it.
    pub(super) workload: &'static str,
    /// Its durability.
    pub(super) durability: &'static str,
}

/// The two durabilities, as the topic map names them.
pub(super) const DURABILITIES: [&str; 2] = ["persisted", "commit"];
/// One client that waits for each PUBACK.
pub(super) const LATENCY: &str = "latency";
/// Many clients with a window.
pub(super) const LOAD: &str = "load";

impl Plan {
    fn topic(self) -> String {
        format!("{}-{}", self.workload, self.durability)
    }
}

/// See the module. Its parts end in the order of the fields.
#[derive(Debug)]
pub(super) struct Deployment<'a> {
    settings: &'a Settings,
    runtime: &'a Runtime,
    name: String,
    direct: Host,
    counted: Host,
    counter: AppendCounter,
    server: Server,
    _folder: TempDir,
}

impl<'a> Deployment<'a> {
    /// Starts everything in `folder`.
    pub(super) fn start(
        settings: &'a Settings,
        programs: &Programs,
        folder: TempDir,
        runtime: &'a Runtime,
    ) -> Result<Self, IngestError> {
        let mut topics = Vec::new();
        for durability in DURABILITIES {
            for workload in [LATENCY, LOAD] {
                topics.push(Topic {
                    name: Plan {
                        workload,
                        durability,
                    }
                    .topic(),
                    partitions: partitions(settings, workload),
                    persisted: durability == "persisted",
                });
            }
        }
        let place = |name: &str| -> io::Result<PathBuf> {
            let place = folder.path().join(name);
            fs::create_dir(&place)?;
            Ok(place)
        };
        let server = Server::start(programs, &place("server")?, &topics, runtime)?;
        let iggy = server.address();
        let counter = AppendCounter::start(iggy)?;
        let direct = Host::start(programs, &place("direct")?, iggy, iggy, &topics)?;
        let counted = Host::start(
            programs,
            &place("counted")?,
            iggy,
            counter.address(),
            &topics,
        )?;
        Ok(Self {
            settings,
            runtime,
            name: programs.describe(),
            direct,
            counted,
            counter,
            server,
            _folder: folder,
        })
    }

    /// The server and the host.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// One client with a window of 1.
    pub(super) fn publish_one(&self, plan: Plan) -> Result<Outcome, IngestError> {
        self.publish(&self.direct, plan, 1, 1)
    }

    /// Many clients with a window.
    pub(super) fn publish_many(&self, plan: Plan) -> Result<Outcome, IngestError> {
        let Settings {
            clients, window, ..
        } = *self.settings;
        self.publish(&self.direct, plan, clients, window)
    }

    /// The same through the counting proxy.
    pub(super) fn publish_counted(
        &self,
        plan: Plan,
    ) -> Result<(Outcome, AppendCount), IngestError> {
        let Settings {
            clients, window, ..
        } = *self.settings;
        let before = self.counter.count()?;
        let outcome = self.publish(&self.counted, plan, clients, window)?;
        let appends = self.counter.count()?.since(before);
        // More is possible: an append that had to be tried again.
        if appends.messages < outcome.messages {
            return Err(IngestError::Uncounted {
                confirmed: outcome.messages,
                counted: appends.messages,
            });
        }
        Ok((outcome, appends))
    }

    /// The SDK, with `batch` messages in an append and a connection for each partition.
    pub(super) fn append(&self, plan: Plan, batch: usize) -> Result<Outcome, IngestError> {
        let producers = Producers {
            address: self.server.address(),
            topic: plan.topic(),
            connections: partitions(self.settings, plan.workload),
            batch,
            payload: self.settings.payload,
            limit: self.limit(),
        };
        let outcome = sdk::append(&producers, self.runtime)?;
        self.check_stored(&plan.topic(), outcome.messages)?;
        Ok(outcome)
    }

    /// Makes sure that all that was confirmed is stored, and empties the topic for the next measurement.
    fn check_stored(&self, topic: &str, confirmed: u64) -> Result<(), IngestError> {
        let stored = self.server.empty(topic, self.runtime)?;
        if stored >= confirmed {
            Ok(())
        } else {
            Err(IngestError::Lost {
                topic: topic.to_owned(),
                confirmed,
                stored,
            })
        }
    }

    fn publish(
        &self,
        host: &Host,
        plan: Plan,
        clients: u16,
        window: u16,
    ) -> Result<Outcome, IngestError> {
        let outcome = driver::publish(&Workload {
            address: host.mqtt(),
            topic: plan.topic(),
            topics: 1,
            qos: QoS::AtLeastOnce,
            clients,
            window,
            payload: self.settings.payload,
            rate: None,
            limit: self.limit(),
        })
        .map_err(|source| IngestError::Driver {
            source,
            output: host.output_end(),
        })?;
        self.check_stored(&plan.topic(), outcome.messages)?;
        Ok(outcome)
    }

    fn limit(&self) -> Limit {
        Limit {
            messages: self.settings.messages,
            duration: Duration::from_secs_f64(self.settings.seconds),
        }
    }
}

fn partitions(settings: &Settings, workload: &str) -> u32 {
    if workload == LOAD {
        settings.partitions
    } else {
        1
    }
}
