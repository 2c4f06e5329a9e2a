//! The gateway's configuration: from the environment over the connector's `plugin_config` over the gateway file.
//!
//! What always holds: a [`Config`] that [`Config::load`] returned is whole and checked, each value and how they go
//! together; otherwise every problem is reported at once, in lines that say where, what, and what to do instead. No
//! password is shown by `Debug`, `Display` or an error. What the topic map says and whether Iggy can be reached is
//! for others to find out.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::log::{Name, Target};
use crate::mapping::envelope::HeaderSet;

mod choice;
mod keys;
mod limits;
mod listeners;
mod merge;
mod methods;
mod problem;
mod secret;
mod sources;
#[cfg(test)]
mod tests;
mod value;

pub use choice::{
    CertificateClientId, CertificateUser, Choice, ClientCertificate, JwtAlgorithm, MinimumTls,
    OnDenied, OnUnstorable, OnWeakDurability, Produce, Protocol,
};
pub use limits::{BrokenRelation, Limits};
pub use listeners::{ClientCertificates, ListenerConfig, TlsConfig};
pub use methods::{Method, Methods};
pub use problem::{ConfigError, Place, Problem};
pub use secret::{Secret, read_secret_file};

/// What one gateway is made from. The source and the sink that name the same gateway must agree on all of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The gateway's name in this process: a source and a sink that give the same one share a gateway.
    pub name: String,
    /// The node's name: the gateway is the Iggy consumer `mqtt-gateway.<node>`. 1 to 200 bytes of `[A-Za-z0-9._-]`, so
    /// that the consumer's name is one for Iggy (at most 255 bytes).
    pub node: String,
    /// Where MQTT clients connect without TLS; none twice (but port 0, a free one, as often as wanted).
    pub listen: Vec<SocketAddr>,
    /// The listeners that have a table of their own. With `listen` there is at least one in all.
    pub listener: Vec<ListenerConfig>,
    /// Who may come in, and what they may.
    pub access: AccessConfig,
    /// Where operators and their tools look.
    pub http: HttpConfig,
    /// The file with the topic map; absolute or relative to the working directory.
    pub topic_map: PathBuf,
    /// Which headers a stored message carries beside its topic.
    pub headers: HeaderSet,
    /// How publishes are stored, and what becomes of those that cannot be.
    pub ingest: IngestConfig,
    /// How Iggy is reached.
    pub iggy: IggyConfig,
    /// How long closing may wait for appends in flight and for queued messages to be sent; 0 does not wait.
    pub shutdown_grace: Duration,
    /// All bounds.
    pub limits: Limits,
}

/// How publishes are stored, and what becomes of those that cannot be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IngestConfig {
    /// Who appends.
    pub produce: Produce,
    /// What becomes of messages that can never be stored.
    pub on_unstorable: OnUnstorable,
    /// Where they go if they are kept. Created if it is missing.
    pub dead_letter: Target,
    /// What becomes of messages that their clients may not publish.
    pub on_denied: OnDenied,
    /// What becomes of topics that promise less than their rules ask for.
    pub on_weak_durability: OnWeakDurability,
}

/// Who may come in, and what they may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessConfig {
    /// How clients are told apart where a listener says nothing else.
    pub authentication: Methods,
    /// The file with user names and hashes of passwords.
    pub users_file: Option<PathBuf>,
    /// The file that says who may publish and subscribe to what; without it everyone who is in may everything.
    pub acl_file: Option<PathBuf>,
    /// How JSON web tokens are checked.
    pub jwt: JwtKeys,
}

/// The HTTP address for operators: metrics, health, status page. None of it is needed to serve devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpConfig {
    /// Where it listens; empty: nowhere.
    pub listen: Vec<SocketAddr>,
    /// The file with the token that opens it.
    pub token_file: Option<PathBuf>,
    /// Which users of `authentication` it is open to.
    pub users: Vec<String>,
}

impl HttpConfig {
    /// Whether whoever asks has to show something first.
    pub fn is_protected(&self) -> bool {
        self.token_file.is_some() || !self.users.is_empty()
    }
}

/// How JSON web tokens are checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JwtKeys {
    /// How they are signed.
    pub algorithm: JwtAlgorithm,
    /// The files with the keys of the issuer; a token needs one of them.
    pub key_files: Vec<PathBuf>,
    /// The claim with the user name; `sub` if there is none here.
    pub user_claim: Option<String>,
    /// The claim that the client id must equal.
    pub client_id_claim: Option<String>,
    /// The issuer that tokens must name.
    pub issuer: Option<String>,
    /// The audience that tokens must name.
    pub audience: Option<String>,
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

impl Config {
    /// Loads the configuration of a connector.
    ///
    /// `plugin_config` is the table as the runtime hands it over (null if the connector has none), without keys that
    /// belong to the connector alone: those are unknown here. `environment` is [`std::env::vars_os`], of which only
    /// `MQTT_GATEWAY_…` is looked at. Relative paths count from the gateway file's folder if they stand in that file
    /// or are defaults beside it, otherwise from the working directory.
    ///
    /// Reads the gateway file and the password's file; blocks on that.
    ///
    /// # Errors
    /// Everything that is wrong, in any of the sources, also where another source takes precedence.
    pub fn load<K, V>(
        plugin_config: &serde_json::Value,
        environment: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Self, ConfigError>
    where
        K: Into<OsString>,
        V: Into<OsString>,
    {
        merge::load(plugin_config, environment)
    }

    /// All listeners: those of `listen` first.
    pub fn listeners(&self) -> Vec<ListenerConfig> {
        let authentication = &self.access.authentication;
        let plain = self.listen.iter();
        let plain = plain.map(|address| ListenerConfig::plain(*address, authentication.clone()));
        plain.chain(self.listener.iter().cloned()).collect()
    }

    /// The keys in which two configurations differ, in the order of the documentation; never a value. For telling
    /// an operator why a source and a sink cannot share a gateway.
    pub fn differing_keys(&self, other: &Self) -> Vec<String> {
        let (mut mine, mut theirs) = (self.clone(), other.clone());
        let pairs = keys::slots(&mut mine)
            .into_iter()
            .zip(keys::slots(&mut theirs));
        let differing = pairs.filter(|((_, mine), (_, theirs))| mine.show() != theirs.show());
        let mut differing: Vec<String> = differing.map(|((key, _), _)| key.to_owned()).collect();
        if self.listener != other.listener {
            differing.push(keys::LISTENER.to_owned());
        }
        if self.iggy.password != other.iggy.password {
            differing.push(keys::PASSWORD.to_owned());
        }
        differing
    }

    /// What holds for keys that nobody sets. There is no default password: the one here is empty, and never returned.
    fn with_defaults() -> Self {
        Self {
            name: "mqtt".to_owned(),
            node: "node-1".to_owned(),
            listen: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 1883))],
            listener: Vec::new(),
            access: AccessConfig {
                authentication: Methods::default(),
                users_file: None,
                acl_file: None,
                jwt: JwtKeys {
                    algorithm: JwtAlgorithm::default(),
                    key_files: Vec::new(),
                    user_claim: None,
                    client_id_claim: None,
                    issuer: None,
                    audience: None,
                },
            },
            http: HttpConfig {
                listen: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 9883))],
                token_file: None,
                users: Vec::new(),
            },
            topic_map: PathBuf::from("topic-map.toml"),
            headers: HeaderSet::ALL,
            ingest: IngestConfig {
                produce: Produce::default(),
                on_unstorable: OnUnstorable::default(),
                dead_letter: Target {
                    stream: Name::constant("mqtt_gateway"),
                    topic: Name::constant("dead_letter"),
                },
                on_denied: OnDenied::default(),
                on_weak_durability: OnWeakDurability::default(),
            },
            iggy: IggyConfig {
                address: "127.0.0.1:8090".to_owned(),
                username: "iggy".to_owned(),
                password: Secret::new(""),
                connections: 4,
                start_timeout: Duration::from_secs(30),
                grace: Duration::from_secs(10),
            },
            shutdown_grace: Duration::from_secs(5),
            limits: Limits::default(),
        }
    }
}
