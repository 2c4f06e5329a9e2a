//! How a connection to Iggy is made: dialed, logged in, and named when it fails.
//!
//! What always holds: the SDK's own reconnection is off, so a connection that broke stays broken and is replaced by the pool;
//! Nagle's algorithm is off; each attempt tries one address, the configured one first and then, in a cluster, the other nodes
//! that the server named.
//!
//! Iggy 0.11 (SDK): one connection carries one request at a time; an exchange runs in a task of its own for up to 30 s, also
//! when nobody waits for it any more.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use ::iggy::prelude::{
    AutoLogin, Client, ClusterClient, ClusterMetadata, Credentials, IggyDuration, IggyError,
    SystemClient, TcpClient, TcpClientConfig, TcpClientReconnectionConfig,
};
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tracing::instrument::WithSubscriber;
use tracing::subscriber::NoSubscriber;

use super::errors::{Class, Context, class};
use super::pool::Dial;
use crate::log::LogError;

/// How long the first packet of a connection may take.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest user name and the longest password of Iggy 0.9.
const MAX_CREDENTIAL_BYTES: usize = 255;
/// The most nodes of a cluster that are remembered.
const MAX_NODES: usize = 32;

/// Makes connections to one server, or to the cluster that it belongs to.
pub(super) struct Dialer {
    address: String,
    username: String,
    template: TcpClientConfig,
    /// The other nodes, as the server named them last.
    nodes: Mutex<Vec<String>>,
}

impl Dialer {
    pub(super) fn new(address: String, username: String, password: String) -> Self {
        let credentials = Credentials::UsernamePassword(username.clone(), password.into());
        let template = TcpClientConfig {
            server_address: address.clone(),
            auto_login: AutoLogin::Enabled(credentials),
            reconnection: TcpClientReconnectionConfig {
                enabled: false,
                max_retries: Some(0),
                reestablish_after: IggyDuration::from(0),
                ..TcpClientReconnectionConfig::default()
            },
            nodelay: true,
            ..TcpClientConfig::default()
        };
        Self {
            address,
            username,
            template,
            nodes: Mutex::default(),
        }
    }

    /// Logs in as somebody else, to see whether that can be done, and out again.
    pub(super) async fn login(&self, username: &str, password: &str) -> Result<(), LogError> {
        let other = Self::new(
            self.address.clone(),
            username.to_owned(),
            password.to_owned(),
        );
        // Iggy's limit; one that is longer is nobody's, and the SDK would say so as an error of its own.
        let bounds = 1..=MAX_CREDENTIAL_BYTES;
        if !bounds.contains(&username.len()) || !bounds.contains(&password.len()) {
            return Err(LogError::BadCredentials {
                username: username.to_owned(),
            });
        }
        // The SDK logs each login that fails as an error, and strangers cause these at will.
        let client = other
            .dial(0)
            .with_subscriber(NoSubscriber::default())
            .await?;
        let _ = client.shutdown().await;
        Ok(())
    }

    /// What an error of a request about `about` means.
    pub(super) fn explain(&self, error: &IggyError, about: &str) -> LogError {
        Context {
            address: &self.address,
            username: &self.username,
            about,
        }
        .explain(error)
    }

    fn candidate(&self, attempt: u32) -> String {
        nth_candidate(&self.address, &self.nodes.lock(), attempt).to_owned()
    }

    fn unreachable_at(&self, address: &str, reason: &str) -> LogError {
        LogError::Unreachable {
            address: address.to_owned(),
            reason: reason.to_owned(),
        }
    }

    /// Why a connection or a login failed.
    fn explain_login(&self, error: &IggyError, address: &str) -> LogError {
        match error {
            // A session that the server ends at once, as it does for a user that is not active.
            IggyError::Unauthenticated => LogError::BadCredentials {
                username: self.username.clone(),
            },
            IggyError::IncompatibleProtocolVersion(..) => {
                LogError::Refused(format!("{error}; this gateway speaks to Iggy 0.9 servers"))
            }
            _ if class(error) == Class::Broken || *error == IggyError::InvalidCommand => {
                let reason =
                    format!("it does not complete the login ({error}); is it an Iggy 0.9 server?");
                self.unreachable_at(address, &reason)
            }
            _ => Context {
                address,
                username: &self.username,
                about: "login",
            }
            .explain(error),
        }
    }

    async fn remember_nodes(&self, client: &TcpClient) {
        if let Ok(metadata) = client.get_cluster_metadata().await {
            *self.nodes.lock() = node_addresses(&metadata);
        }
    }
}

impl Dial for Dialer {
    type Connection = TcpClient;

    async fn dial(&self, attempt: u32) -> Result<TcpClient, LogError> {
        let address = self.candidate(attempt);
        // The SDK logs each failed attempt as an error and does not say why it failed. So while the server is away it is not
        // asked.
        if attempt > 0 {
            probe(&address)
                .await
                .map_err(|reason| self.unreachable_at(&address, &reason.to_string()))?;
        }
        let config = TcpClientConfig {
            server_address: address.clone(),
            ..self.template.clone()
        };
        let client = TcpClient::create(Arc::new(config))
            .map_err(|error| self.explain_login(&error, &address))?;
        match client.connect().await {
            Ok(()) => {}
            Err(IggyError::CannotEstablishConnection) => {
                let reason = probe(&address)
                    .await
                    .err()
                    .map_or("it closed the connection".to_owned(), |reason| {
                        reason.to_string()
                    });
                return Err(self.unreachable_at(&address, &reason));
            }
            Err(error) => return Err(self.explain_login(&error, &address)),
        }
        self.remember_nodes(&client).await;
        Ok(client)
    }

    async fn check(&self, client: &TcpClient) -> bool {
        client.ping().await.is_ok()
    }

    fn unreachable(&self, reason: &str) -> LogError {
        self.unreachable_at(&self.address, reason)
    }
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialer")
            .field("address", &self.address)
            .field("username", &self.username)
            .finish_non_exhaustive()
    }
}

/// Says why no connection can be made.
async fn probe(address: &str) -> io::Result<()> {
    match timeout(PROBE_TIMEOUT, TcpStream::connect(address)).await {
        Ok(connected) => connected.map(drop),
        Err(_) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "it does not answer",
        )),
    }
}

/// The configured address at every other attempt, and the other nodes in turn in between.
fn nth_candidate<'a>(configured: &'a str, nodes: &'a [String], attempt: u32) -> &'a str {
    let attempt = attempt as usize;
    if nodes.is_empty() || attempt.is_multiple_of(2) {
        configured
    } else {
        &nodes[attempt / 2 % nodes.len()]
    }
}

/// Where the nodes of a cluster can be dialed. A server on its own is only dialed where it was configured: what it calls
/// itself may not be reachable from here, or be something else.
fn node_addresses(metadata: &ClusterMetadata) -> Vec<String> {
    if metadata.nodes.len() < 2 {
        return Vec::new();
    }
    let nodes = metadata
        .nodes
        .iter()
        .filter(|node| node.endpoints.tcp != 0)
        .take(MAX_NODES);
    nodes
        .map(|node| {
            let port = node.endpoints.tcp;
            if node.ip.contains(':') && !node.ip.starts_with('[') {
                format!("[{}]:{port}", node.ip)
            } else {
                format!("{}:{port}", node.ip)
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use ::iggy::prelude::{ClusterNode, ClusterNodeRole, ClusterNodeStatus, TransportEndpoints};

    use super::*;

    fn node(ip: &str, tcp: u16) -> ClusterNode {
        ClusterNode {
            name: ip.to_owned(),
            ip: ip.to_owned(),
            endpoints: TransportEndpoints::new(tcp, 0, 0, 0),
            role: ClusterNodeRole::Follower,
            status: ClusterNodeStatus::Healthy,
        }
    }

    fn cluster(nodes: Vec<ClusterNode>) -> ClusterMetadata {
        ClusterMetadata {
            name: "cluster".to_owned(),
            nodes,
        }
    }

    #[test]
    fn a_server_on_its_own_is_only_dialed_where_it_was_configured() {
        assert!(node_addresses(&cluster(vec![node("10.0.0.1", 8090)])).is_empty());
        for attempt in 0..5 {
            assert_eq!(nth_candidate("iggy:8090", &[], attempt), "iggy:8090");
        }
    }

    #[test]
    fn the_nodes_of_a_cluster_are_dialed_in_turn_between_attempts_at_the_configured_one() {
        let nodes = vec![
            node("10.0.0.1", 8090),
            node("fd00::2", 8091),
            node("10.0.0.3", 0),
        ];
        let addresses = node_addresses(&cluster(nodes));
        assert_eq!(addresses, ["10.0.0.1:8090", "[fd00::2]:8091"]);
        let dialed: Vec<_> = (0..6)
            .map(|attempt| nth_candidate("iggy:8090", &addresses, attempt))
            .collect();
        let expected = [
            "iggy:8090",
            "10.0.0.1:8090",
            "iggy:8090",
            "[fd00::2]:8091",
            "iggy:8090",
            "10.0.0.1:8090",
        ];
        assert_eq!(dialed, expected);
        assert_eq!(
            nth_candidate("iggy:8090", &addresses, u32::MAX),
            "[fd00::2]:8091"
        );
    }

    #[test]
    fn a_failed_login_says_what_to_mend() {
        let dialer = Dialer::new("iggy:8090".into(), "gateway".into(), "secret".into());
        let explain = |error: &IggyError| dialer.explain_login(error, "iggy:8091");
        let bad = LogError::BadCredentials {
            username: "gateway".into(),
        };
        assert_eq!(explain(&IggyError::InvalidCredentials), bad);
        assert_eq!(explain(&IggyError::Unauthenticated), bad);
        let other_version = explain(&IggyError::IncompatibleProtocolVersion(11, 12, 13));
        assert!(matches!(&other_version, LogError::Refused(text) if text.contains("0.9")));
        for error in [IggyError::Disconnected, IggyError::InvalidCommand] {
            let error = explain(&error);
            assert!(error.is_transient());
            assert!(error.to_string().contains("iggy:8091"), "{error}");
        }
        assert!(explain(&IggyError::TransientNotAccepted).is_transient());
    }
}
