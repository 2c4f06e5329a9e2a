//! Listeners: where clients connect, in which way, and who is let in there. The keys of a table `[[listener]]`.
//!
//! What always holds: a [`ListenerConfig`] that [`Config::listeners`](super::Config::listeners) gives after loading has an
//! address of its own, a certificate and its key or neither, and at least one way to authenticate, each of which has what
//! it needs; the files themselves are for others to read.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::choice::{
    CertificateClientId, CertificateUser, ClientCertificate, MinimumTls, Protocol,
};
use super::methods::{Method, Methods};
use super::problem::Place;
use super::value::Slot;

/// Where a WebSocket client asks for, unless another path is configured.
const DEFAULT_PATH: &str = "/mqtt";

/// One listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenerConfig {
    /// Where it listens.
    pub address: SocketAddr,
    /// What is spoken there.
    pub protocol: Protocol,
    /// The path of WebSocket's request.
    pub path: String,
    /// TLS, if it is spoken there.
    pub tls: Option<TlsConfig>,
    /// How clients are told apart, in this order.
    pub authentication: Methods,
}

/// TLS of a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsConfig {
    /// The file with the certificate and those between it and its authority, in PEM.
    pub certificate: PathBuf,
    /// The file with its private key, in PEM.
    pub key: PathBuf,
    /// The oldest version that is spoken.
    pub minimum: MinimumTls,
    /// Certificates of clients, if they are asked for.
    pub clients: Option<ClientCertificates>,
}

impl TlsConfig {
    /// The files that it names.
    pub fn files(&self) -> Vec<PathBuf> {
        // Without `..`: a new file does not compile until it is watched, too.
        let Self {
            certificate,
            key,
            minimum: _,
            clients,
        } = self;
        let authorities = clients.iter().map(|clients| &clients.authorities);
        [certificate, key]
            .into_iter()
            .chain(authorities)
            .cloned()
            .collect()
    }
}

/// What is asked of the certificates of clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificates {
    /// The file with the authorities that sign them, in PEM.
    pub authorities: PathBuf,
    /// Whether a client must have one.
    pub presence: ClientCertificate,
    /// Which of its names is the user name.
    pub user: CertificateUser,
    /// What that says about the client id.
    pub client_id: CertificateClientId,
}

impl ListenerConfig {
    /// MQTT over TCP and nothing else.
    pub fn plain(address: SocketAddr, authentication: Methods) -> Self {
        Self {
            address,
            protocol: Protocol::default(),
            path: DEFAULT_PATH.to_owned(),
            tls: None,
            authentication,
        }
    }

    /// What it is, for log lines: `mqtt`, `mqtts`, `ws` or `wss`, as in addresses that clients take.
    pub fn scheme(&self) -> &'static str {
        match (self.protocol, self.tls.is_some()) {
            (Protocol::Mqtt, false) => "mqtt",
            (Protocol::Mqtt, true) => "mqtts",
            (Protocol::WebSocket, false) => "ws",
            (Protocol::WebSocket, true) => "wss",
        }
    }
}

/// A table `[[listener]]` while it is read: what was given, and defaults for the rest.
#[derive(Debug, Clone, Default)]
pub(super) struct Draft {
    pub(super) address: Option<SocketAddr>,
    pub(super) protocol: Protocol,
    pub(super) path: Option<String>,
    pub(super) certificate: Option<PathBuf>,
    pub(super) key: Option<PathBuf>,
    pub(super) minimum: MinimumTls,
    pub(super) authorities: Option<PathBuf>,
    pub(super) presence: ClientCertificate,
    pub(super) user: CertificateUser,
    pub(super) client_id: CertificateClientId,
    pub(super) authentication: Methods,
    /// Which keys were given, and where.
    pub(super) given: Vec<(&'static str, Place)>,
}

/// What is wrong with how the keys of a listener go together: the key to point at, and the reason.
pub(super) type Contradiction = (&'static str, String);

impl Draft {
    /// Every key with the place it fills, in the order of the documentation.
    pub(super) fn slots(&mut self) -> Vec<(&'static str, Slot<'_>)> {
        // Without `..`: a new field does not compile until someone decides which key fills it.
        let Self {
            address,
            protocol,
            path,
            certificate,
            key,
            minimum,
            authorities,
            presence,
            user,
            client_id,
            authentication,
            given: _,
        } = self;
        vec![
            ("address", Slot::OneAddress(address)),
            ("protocol", Slot::Choice(protocol)),
            ("path", Slot::UrlPath(path)),
            ("certificate", Slot::OptionalFile(certificate)),
            ("key", Slot::OptionalFile(key)),
            ("minimum_tls", Slot::Choice(minimum)),
            ("client_ca", Slot::OptionalFile(authorities)),
            ("client_certificate", Slot::Choice(presence)),
            ("certificate_user", Slot::Choice(user)),
            ("certificate_client_id", Slot::Choice(client_id)),
            ("authentication", Slot::Methods(authentication)),
        ]
    }

    /// The listener, with `authentication` if it has none of its own.
    pub(super) fn finish(self, authentication: &Methods) -> Result<ListenerConfig, Contradiction> {
        let is_given = |key| self.given.iter().any(|(given, _)| *given == key);
        let Some(address) = self.address else {
            return Err((
                "address",
                "a listener needs one, for example address = \"0.0.0.0:8883\"".to_owned(),
            ));
        };
        if is_given("path") && self.protocol != Protocol::WebSocket {
            return Err((
                "path",
                "only WebSocket has a path; remove it, or set protocol = \"websocket\"".to_owned(),
            ));
        }
        let clients = match self.authorities {
            Some(authorities) => Some(ClientCertificates {
                authorities,
                presence: self.presence,
                user: self.user,
                client_id: self.client_id,
            }),
            None => {
                let without = [
                    "client_certificate",
                    "certificate_user",
                    "certificate_client_id",
                ];
                if let Some(key) = without.into_iter().find(|key| is_given(key)) {
                    return Err((
                        key,
                        "clients are only asked for certificates where client_ca names the file of those who sign them; give it, or remove this".to_owned(),
                    ));
                }
                None
            }
        };
        let tls = match (self.certificate, self.key) {
            (Some(certificate), Some(key)) => Some(TlsConfig {
                certificate,
                key,
                minimum: self.minimum,
                clients,
            }),
            (None, None) => {
                if let Some(key) = ["minimum_tls", "client_ca"]
                    .into_iter()
                    .find(|key| is_given(key))
                {
                    return Err((
                        key,
                        "this is for TLS, which needs certificate and key; give both, or remove this".to_owned(),
                    ));
                }
                None
            }
            (Some(_), None) => {
                return Err((
                    "certificate",
                    "a certificate needs its private key; name the file with key".to_owned(),
                ));
            }
            (None, Some(_)) => {
                return Err((
                    "key",
                    "a private key needs its certificate; name the file with certificate"
                        .to_owned(),
                ));
            }
        };
        let authentication = match self.authentication.is_empty() {
            true => authentication.clone(),
            false => self.authentication,
        };
        let has_client_ca = tls.as_ref().is_some_and(|tls| tls.clients.is_some());
        if authentication.has(Method::Certificate) && !has_client_ca {
            return Err((
                "authentication",
                "\"certificate\" needs client_ca, the file with those who sign the certificates of clients; give it, or give this listener an authentication of its own".to_owned(),
            ));
        }
        Ok(ListenerConfig {
            address,
            protocol: self.protocol,
            path: self.path.unwrap_or_else(|| DEFAULT_PATH.to_owned()),
            tls,
            authentication,
        })
    }
}
