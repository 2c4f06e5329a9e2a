//! MQTT devices in front of Apache Iggy: what they publish is appended to Iggy before it is acknowledged, what they
//! subscribe to is read from Iggy once and fanned out, and Iggy is the only store.
//!
//! In the order in which a message meets them: [`listener`] → [`wire`] → [`session`] → [`mapping`] → [`ingest`] /
//! [`delivery`] → [`log`]; beside them [`config`], [`access`], [`report`], [`observe`], [`health`], [`alarms`], [`reload`] and
//! [`targets`], and for operators [`status`], [`metrics`] and [`http`], which look at all of it and which nothing knows. A module uses only what stands
//! to its right: `ingest` and `delivery` answer a session through a ticket and an outbox, and never call it. [`gateway`]
//! puts them together, [`attach`](mod@attach) is how connectors share one.

pub mod access;
pub mod alarms;
pub mod attach;
pub mod backoff;
pub mod config;
pub mod delivery;
pub mod gateway;
pub mod health;
pub mod host;
pub mod http;
pub mod ingest;
pub mod limited;
pub mod listener;
pub mod log;
pub mod mapping;
pub mod metrics;
pub mod mqtt;
pub mod observe;
pub mod pace;
pub mod rates;
pub mod recent;
pub mod reload;
pub mod report;
pub mod session;
#[cfg(test)]
mod sim;
pub mod status;
pub mod targets;
pub mod topology;
pub mod wire;

pub use attach::{AttachError, Attachment, attach};
pub use gateway::{Gateway, Role};
