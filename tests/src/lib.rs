//! The harness of the end-to-end suite: starts Iggy, a connector host and the plugin, and speaks to them from outside.
//!
//! Always holds: nothing here uses the project's own crates. The parts under test are programs and a shared library that
//! are reached over sockets, files and environment variables only, so the same tests run against the sandbox, a real
//! Iggy server and the official connectors runtime.

pub mod binaries;
pub mod browser;
mod changes;
pub mod config;
pub mod deployment;
pub mod device;
pub mod host;
pub mod http;
pub mod iggy_server;
pub mod mangler;
pub mod metrics;
pub mod mosquitto;
pub mod mqttjs;
pub mod packet;
pub mod paho;
pub mod ports;
pub mod process;
pub mod promise;
pub mod proxy;
pub mod random;
pub mod raw;
pub mod real_iggy;
pub mod records;
pub mod refusal;
pub mod tls;
pub mod wait;
