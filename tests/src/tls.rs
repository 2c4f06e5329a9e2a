//! Certificates of a test's own, and a TLS client that uses them.
//!
//! Always holds: each authority is new, so that nothing but the test's own certificates is accepted; nothing is written
//! but where the test says.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType, SerialNumber, date_time_ymd,
};
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion,
};

use crate::raw::Link;
use crate::wait::PATIENCE;

/// Who signs certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

/// A certificate with its key, both in PEM.
#[derive(Clone)]
pub struct Certificate {
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

/// What a certificate is to say.
#[derive(Debug, Clone, Default)]
pub struct Says {
    /// The common name.
    pub common_name: &'static str,
    /// The serial number.
    pub serial: u64,
    /// Whether its time is over.
    pub expired: bool,
    /// For a server on loopback; otherwise it is a client's.
    pub server: bool,
}

impl Authority {
    /// A new one.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate").pem();
        Self {
            issuer: Issuer::new(params, key),
            certificate,
        }
    }

    /// Its own certificate in PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Signs a certificate that says so.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn sign(&self, says: &Says) -> Certificate {
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, says.common_name);
        params.serial_number = Some(SerialNumber::from(says.serial.max(1)));
        if says.expired {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(2021, 1, 1);
        }
        params.extended_key_usages = vec![if says.server {
            ExtendedKeyUsagePurpose::ServerAuth
        } else {
            ExtendedKeyUsagePurpose::ClientAuth
        }];
        if says.server {
            let loopback = SanType::IpAddress(Ipv4Addr::LOCALHOST.into());
            let name = SanType::DnsName("localhost".try_into().expect("a name"));
            params.subject_alt_names = vec![loopback, name];
        }
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        Certificate {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }

    /// Signs a certificate for a server on loopback.
    pub fn sign_server(&self, serial: u64) -> Certificate {
        self.sign(&Says {
            common_name: "gateway",
            serial,
            server: true,
            ..Says::default()
        })
    }

    /// Signs a certificate for a client.
    pub fn sign_client(&self, common_name: &'static str) -> Certificate {
        self.sign(&Says {
            common_name,
            ..Says::default()
        })
    }
}

impl Certificate {
    /// Writes it as `NAME.pem` and `NAME.key` into the folder, each in one step. Only the owner may read the key.
    ///
    /// # Panics
    /// When they cannot be written.
    pub fn write(&self, folder: &Path, name: &str) -> (PathBuf, PathBuf) {
        let certificate = folder.join(format!("{name}.pem"));
        let key = folder.join(format!("{name}.key"));
        write_secret(&key, &self.key);
        write_secret(&certificate, &self.certificate);
        (certificate, key)
    }
}

/// Writes a file that only its owner may read, in one step.
///
/// # Panics
/// When it cannot be written.
pub fn write_secret(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    fs::write(&new, text).expect("a file");
    fs::set_permissions(&new, fs::Permissions::from_mode(0o600)).expect("permissions");
    fs::rename(&new, path).expect("a file in its place");
}

/// A TLS connection.
pub type TlsLink = StreamOwned<ClientConnection, TcpStream>;

impl Link for TlsLink {
    fn wait_at_most(&self, time: Duration) -> io::Result<()> {
        self.sock.set_read_timeout(Some(time))
    }
}

/// What a client brings to its handshakes: it trusts that authority alone, has the certificate if there is one, and
/// remembers sessions.
///
/// # Panics
/// When the certificates cannot be used.
pub fn client(
    trusted: &Authority,
    client: Option<&Certificate>,
    versions: &[&'static SupportedProtocolVersion],
) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let root = CertificateDer::from_pem_slice(trusted.certificate.as_bytes());
    roots.add(root.expect("PEM")).expect("an authority");
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(versions)
        .expect("versions")
        .with_root_certificates(roots);
    let config = match client {
        None => config.with_no_client_auth(),
        Some(client) => {
            let chain = CertificateDer::pem_slice_iter(client.certificate.as_bytes());
            let chain = chain.collect::<Result<_, _>>().expect("PEM");
            let key = PrivateKeyDer::from_pem_slice(client.key.as_bytes()).expect("PEM");
            config.with_client_auth_cert(chain, key).expect("a key")
        }
    };
    Arc::new(config)
}

/// Connects as a new client of that kind; see [`client`].
///
/// # Errors
/// As [`handshake`].
pub fn connect(
    address: SocketAddr,
    trusted: &Authority,
    certificate: Option<&Certificate>,
    versions: &[&'static SupportedProtocolVersion],
) -> io::Result<TlsLink> {
    handshake(address, client(trusted, certificate, versions))
}

/// Connects and makes the handshake.
///
/// # Errors
/// What either side has against it. With TLS 1.3 the server's verdict on the client's certificate comes after the
/// handshake, with the first read.
pub fn handshake(address: SocketAddr, client: Arc<ClientConfig>) -> io::Result<TlsLink> {
    let name = ServerName::from(address.ip());
    let connection = ClientConnection::new(client, name).map_err(io::Error::other)?;
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut link = StreamOwned::new(connection, stream);
    while link.conn.is_handshaking() {
        link.conn.complete_io(&mut link.sock)?;
    }
    Ok(link)
}

/// The certificate that the server has shown, in DER.
///
/// # Panics
/// When there is none.
pub fn shown(link: &TlsLink) -> Vec<u8> {
    let chain = link.conn.peer_certificates().expect("a certificate");
    chain.first().expect("a certificate").to_vec()
}

/// The certificate in DER, to compare with what a server has shown.
///
/// # Panics
/// When it is no PEM.
pub fn der(certificate: &Certificate) -> Vec<u8> {
    let der = CertificateDer::from_pem_slice(certificate.certificate.as_bytes());
    der.expect("PEM").to_vec()
}

/// What a server answers to a ClientHello that asks for this version at most and offers what was usual then: everything
/// until it closes.
///
/// # Panics
/// When the server does not listen.
pub fn answer_to_old_hello(address: SocketAddr, version: [u8; 2]) -> Vec<u8> {
    let mut hello = version.to_vec();
    hello.extend([7; 32]);
    hello.push(0);
    // AES and 3DES with SHA, by RSA and by elliptic curves.
    let suites = [
        0xc0, 0x09, 0xc0, 0x0a, 0xc0, 0x13, 0xc0, 0x14, 0x00, 0x2f, 0x00, 0x35, 0x00, 0x0a,
    ];
    hello.extend([0, suites.len() as u8]);
    hello.extend(suites);
    hello.extend([1, 0]);
    let mut handshake = vec![1, 0];
    handshake.extend((hello.len() as u16).to_be_bytes());
    handshake.extend(hello);
    let mut record = vec![0x16, 3, 1];
    record.extend((handshake.len() as u16).to_be_bytes());
    record.extend(handshake);
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).expect("the server listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.write_all(&record).expect("the server reads");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}
