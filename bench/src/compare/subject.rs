//! What is compared: the gateway, Iggy's SDK without it, and other MQTT brokers.
//!
//! Always holds: a subject is started anew, and empty, for each measurement, in a folder of its own and on loopback ports that
//! were free, and ends with its handle; nothing else that is compared runs meanwhile. What it must keep can be counted after
//! the measurement: the gateway's and the SDK's messages in Iggy, a broker's by a client for which it had to keep them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::subjects::{iggy, mosquitto, nats, rabbitmq, rumqttd};
use crate::driver::DriverError;
use crate::sdk::SdkError;
use crate::stack::process::Process;
use crate::stack::{Programs, StackError};

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
    /// How it is started.
    #[serde(skip)]
    pub(super) recipe: Recipe,
}

/// What a subject is made of.
#[derive(Debug, Clone)]
pub(super) enum Recipe {
    /// An Iggy server, and perhaps a gateway before it.
    Iggy(Programs),
    /// The program of a broker.
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_tell_all_subjects_apart() {
        assert_eq!(key(Kind::RabbitMq, Class::Durable), "rabbitmq-durable");
        assert_eq!(key(Kind::Sdk, Class::Plain), "sdk-plain");
    }
}
