//! TLS of a listener: from files to a configuration, and from a TCP stream to a TLS stream.
//!
//! What always holds: no version below TLS 1.2; a configuration is made of one reading of all its files or not at all, so a
//! certificate is never used with another's key; a connection keeps the configuration that it began with; a client's
//! certificate is checked at each connection, never taken from an earlier one's session.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwap;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::server::{
    NoServerSessionStorage, VerifierBuilderError, WebPkiClientVerifier,
};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{self, RootCertStore, ServerConfig, SupportedProtocolVersion};
use tokio_rustls::server::TlsStream;

use crate::access::certificate::{self, PeerCertificate};
use crate::access::files::{self, FileError};
use crate::config::{ClientCertificate, ClientCertificates, MinimumTls, TlsConfig};

/// A chain of certificates takes a few kilobytes, a bundle of authorities a few hundred.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// Why the files of a listener do not make TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// One of the files cannot be read.
    #[error("{0}")]
    File(#[from] FileError),
    /// A file has nothing of what is looked for.
    #[error(
        "{}: there is no {wanted} in it; it has to be PEM, with a line -----BEGIN {label}-----",
        file.display()
    )]
    Nothing {
        /// Which.
        file: PathBuf,
        /// What was looked for.
        wanted: &'static str,
        /// How it begins.
        label: &'static str,
    },
    /// A file is no PEM.
    #[error("{}: not valid PEM: {error}", file.display())]
    Pem {
        /// Which.
        file: PathBuf,
        /// What is wrong with it.
        error: pem::Error,
    },
    /// The certificate or the key cannot be used.
    #[error(
        "the certificate {} and the key {} do not go together or cannot be used: {error}; put the key that belongs to the \
         certificate there",
        certificate.display(), key.display()
    )]
    Unusable {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// What TLS says of them.
        error: rustls::Error,
    },
    /// The authorities of clients cannot be used.
    #[error("{}: no authority that clients' certificates can be checked with: {reason}", file.display())]
    Authorities {
        /// Their file.
        file: PathBuf,
        /// What is wrong with them.
        reason: String,
    },
}

/// TLS of one listener. What it is made of can be loaded anew while connections live.
pub struct Tls {
    files: TlsConfig,
    now: ArcSwap<Loaded>,
}

/// What one reading of the files gave.
struct Loaded {
    config: Arc<ServerConfig>,
    not_after: Option<SystemTime>,
}

impl Tls {
    /// Reads the files; blocks on that.
    ///
    /// # Errors
    /// Whatever keeps them from being used, with the file.
    pub fn load(files: &TlsConfig) -> Result<Self, TlsError> {
        Ok(Self {
            files: files.clone(),
            now: ArcSwap::from_pointee(load(files)?),
        })
    }

    /// Reads the files again; connections that come from now on use what they hold. Blocks.
    ///
    /// # Errors
    /// As [`Tls::load`]; what was loaded before stays in use.
    pub fn reload(&self) -> Result<(), TlsError> {
        self.now.store(Arc::new(load(&self.files)?));
        Ok(())
    }

    /// The files that it is made of.
    pub fn files(&self) -> Vec<PathBuf> {
        self.files.files()
    }

    /// When its certificate stops being valid; `None` if it does not say so legibly.
    pub fn not_after(&self) -> Option<SystemTime> {
        self.now.load().not_after
    }

    /// Makes the handshake. Whoever calls sets it a time limit.
    ///
    /// # Errors
    /// The client's: it speaks no TLS, too old a version, or has no certificate that is accepted.
    pub async fn accept(
        &self,
        stream: TcpStream,
    ) -> std::io::Result<(TlsStream<TcpStream>, Option<PeerCertificate>)> {
        let config = self.now.load().config.clone();
        let stream = TlsAcceptor::from(config).accept(stream).await?;
        let peer = match &self.files.clients {
            None => None,
            Some(clients) => {
                let (_, connection) = stream.get_ref();
                let chain = connection.peer_certificates();
                let own = chain.and_then(|chain| chain.first());
                own.map(|own| certificate::names(own, clients.user))
            }
        };
        Ok((stream, peer))
    }
}

fn load(files: &TlsConfig) -> Result<Loaded, TlsError> {
    let chain = certificates(&files.certificate, "certificate")?;
    let not_after = chain.first().and_then(|own| certificate::not_after(own));
    let key = private_key(&files.key)?;
    let versions: &[&SupportedProtocolVersion] = match files.minimum {
        MinimumTls::V12 => &[&TLS13, &TLS12],
        MinimumTls::V13 => &[&TLS13],
    };
    let provider = Arc::new(aws_lc_rs::default_provider());
    let unusable = |error| TlsError::Unusable {
        certificate: files.certificate.clone(),
        key: files.key.clone(),
        error,
    };
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(versions)
        .map_err(unusable)?;
    let builder = match &files.clients {
        None => builder.with_no_client_auth(),
        Some(clients) => builder.with_client_cert_verifier(verifier(clients, provider)?),
    };
    // Also checks that the key is the certificate's.
    let mut config = builder.with_single_cert(chain, key).map_err(unusable)?;
    match files.clients {
        // A client that could go on with an earlier session would not be asked for its certificate, which may have expired
        // meanwhile.
        Some(_) => config.session_storage = Arc::new(NoServerSessionStorage {}),
        // Devices that come back save the work of a handshake; what they need for that they keep themselves.
        None => config.ticketer = aws_lc_rs::Ticketer::new().map_err(unusable)?,
    }
    Ok(Loaded {
        config: Arc::new(config),
        not_after,
    })
}

fn verifier(
    clients: &ClientCertificates,
    provider: Arc<rustls::crypto::CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let wrong = |reason| TlsError::Authorities {
        file: clients.authorities.clone(),
        reason,
    };
    let mut roots = RootCertStore::empty();
    for authority in certificates(&clients.authorities, "certificate of an authority")? {
        roots
            .add(authority)
            .map_err(|error| wrong(error.to_string()))?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
    let builder = match clients.presence {
        ClientCertificate::Required => builder,
        ClientCertificate::Optional => builder.allow_unauthenticated(),
    };
    builder
        .build()
        .map_err(|error: VerifierBuilderError| wrong(error.to_string()))
}

/// At least one.
fn certificates(
    file: &Path,
    wanted: &'static str,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = files::read_public(file, MAX_FILE_BYTES)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let all = all.map_err(|error| TlsError::Pem {
        file: file.to_owned(),
        error,
    })?;
    match all.is_empty() {
        true => Err(TlsError::Nothing {
            file: file.to_owned(),
            wanted,
            label: "CERTIFICATE",
        }),
        false => Ok(all),
    }
}

fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let text = files::read_secret(file, MAX_FILE_BYTES)?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| match error {
        pem::Error::NoItemsFound => TlsError::Nothing {
            file: file.to_owned(),
            wanted: "private key",
            label: "PRIVATE KEY",
        },
        error => TlsError::Pem {
            file: file.to_owned(),
            error,
        },
    })
}
