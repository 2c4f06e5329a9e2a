//! The gateway's configuration.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

mod limits;
mod secret;

pub use limits::Limits;
pub use secret::Secret;

/// What one gateway is made from. The source and the sink that name the same gateway must agree on all of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The gateway's name in this process: a source and a sink that give the same one share a gateway.
    pub name: String,
    /// The node's name: the gateway is the Iggy consumer `mqtt-gateway.<node>`. 1 to 200 bytes of `[A-Za-z0-9._-]`, so
    /// that the consumer's name is one for Iggy (at most 255 bytes).
    pub node: String,
    /// Where MQTT clients connect; at least one, none twice (but port 0, a free one, as often as wanted).
    pub listen: Vec<SocketAddr>,
    /// The file with the topic map; absolute or relative to the working directory.
    pub topic_map: PathBuf,
    /// How Iggy is reached.
    pub iggy: IggyConfig,
    /// How long closing may wait for appends in flight and for queued messages to be sent; 0 does not wait.
    pub shutdown_grace: Duration,
    /// All bounds.
    pub limits: Limits,
}

/// How Iggy is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IggyConfig {
    /// `host:port` of the server's TCP listener.
    pub address: String,
    /// The Iggy user.
    pub username: String,
    /// The Iggy user's password.
    pub password: Secret,
    /// How many connections carry appends and polls; one carries one request at a time. 1 to 64.
    pub connections: usize,
    /// How long the start waits for Iggy before it fails.
    pub start_timeout: Duration,
    /// How long Iggy may be away before new MQTT connections are refused (CONNACK 0x03); 0 refuses at once.
    pub grace: Duration,
}
