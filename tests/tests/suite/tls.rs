//! TLS: which versions and which certificates come in, and certificates that are renewed while clients are connected.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use e2e::config::{Files, GATEWAY};
use e2e::deployment::{Builder, Deployment};
use e2e::host::Kind;
use e2e::packet;
use e2e::ports::free_port;
use e2e::raw::{Answer, PROMPT, RawClient};
use e2e::tls::{self, Authority, Certificate, Says};
use e2e::wait::{self, PATIENCE};
use tempfile::TempDir;
use tokio_rustls::rustls::HandshakeKind;
use tokio_rustls::rustls::version::{TLS12, TLS13};
use toml::{Table, Value};

const TOPIC: &str = "device/1/x";

/// A folder with certificates, and an address for a listener that uses them.
pub(crate) struct Tls {
    pub(crate) folder: TempDir,
    pub(crate) authority: Authority,
    pub(crate) address: SocketAddr,
}

impl Tls {
    pub(crate) fn new() -> Self {
        let tls = Self {
            folder: tempfile::tempdir().expect("a folder"),
            authority: Authority::new("the test's"),
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, free_port())),
        };
        tls.authority
            .sign_server(1)
            .write(tls.folder.path(), "server");
        tls::write_secret(&tls.path("ca.pem"), tls.authority.certificate());
        tls
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The keys of a listener, with `more` in TOML.
    pub(crate) fn listener(&self, more: &str) -> Table {
        let folder = self.folder.path().display();
        let text = format!(
            "address = '{}'\ncertificate = '{folder}/server.pem'\nkey = '{folder}/server.key'\n{}",
            self.address,
            more.replace("FOLDER", &folder.to_string())
        );
        text.parse().expect("TOML")
    }

    /// A deployment with the listener beside the usual one.
    pub(crate) fn builder(&self, more: &str) -> Builder {
        Deployment::builder().gateway("listener", Value::Array(vec![self.listener(more).into()]))
    }

    fn connect(&self, client: Option<&Certificate>) -> RawClient {
        RawClient::over(
            tls::connect(self.address, &self.authority, client, &[&TLS13, &TLS12])
                .expect("a handshake"),
        )
    }

    /// Whether a client with that certificate gets as far as a CONNACK, and which.
    fn knock(&self, client: Option<&Certificate>, id: &str) -> Option<Vec<u8>> {
        let link = tls::connect(self.address, &self.authority, client, &[&TLS13]).ok()?;
        let mut client = RawClient::over(link);
        client.try_send(&packet::connect(id, 0)).ok()?;
        match client.answer(PROMPT) {
            Answer::Packet(packet) => Some(packet),
            Answer::Closed => None,
            Answer::Silence => panic!("no answer"),
        }
    }
}

fn connected(mut client: RawClient, id: &str) -> RawClient {
    client.send(&packet::connect(id, 0));
    client.expect(&packet::CONNECTED);
    client
}

#[test]
fn both_versions_of_tls_carry_messages_in_any_portions() {
    let tls = Tls::new();
    let deployment = tls.builder("").start();
    for version in [&TLS12, &TLS13] {
        let link = tls::connect(tls.address, &tls.authority, None, &[version]).unwrap();
        let mut client = connected(RawClient::over(link), "client");
        client.subscribe(TOPIC, 1);
        let mut burst = Vec::new();
        for id in 1..=20 {
            burst.extend(packet::publish(TOPIC, id, vec![b'x'; 10_000]));
        }
        client.send(&burst);
        let (mut acknowledged, mut received) = (0, 0);
        while acknowledged < 20 || received < 20 {
            match client.answer(PATIENCE) {
                Answer::Packet(packet) if packet[0] == 0x40 => acknowledged += 1,
                Answer::Packet(packet) => {
                    let publish = packet::read_publish(&packet).unwrap();
                    assert_eq!(publish.payload, vec![b'x'; 10_000]);
                    client.send(&packet::puback(publish.id));
                    received += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        client.send(&packet::DISCONNECT);
        client.expect_closed(PROMPT);
    }
    let mut bytewise = tls.connect(None);
    bytewise
        .try_send_bytewise(&packet::connect("bytewise", 0))
        .unwrap();
    bytewise.expect(&packet::CONNECTED);
    assert_eq!(deployment.device_records().len(), 40);
}

#[test]
fn nothing_older_than_the_oldest_version_that_is_allowed_is_spoken() {
    let tls = Tls::new();
    let other = Tls::new();
    let listeners = vec![
        tls.listener("").into(),
        other.listener("minimum_tls = '1.3'").into(),
    ];
    let _deployment = Deployment::builder()
        .gateway("listener", Value::Array(listeners))
        .start();
    for version in [[3, 0], [3, 1], [3, 2]] {
        let answer = tls::answer_to_old_hello(tls.address, version);
        // A fatal alert, and nothing after it; never a ServerHello.
        assert_eq!(answer.first(), Some(&0x15), "{version:?}: {answer:02x?}");
        assert_eq!(answer.get(5), Some(&2), "{version:?}: {answer:02x?}");
        assert_eq!(answer.len(), 7, "{version:?}: {answer:02x?}");
    }
    assert!(tls::connect(other.address, &other.authority, None, &[&TLS12]).is_err());
    connected(
        RawClient::over(tls::connect(other.address, &other.authority, None, &[&TLS13]).unwrap()),
        "new",
    );
    // Who trusts another authority does not believe the gateway.
    assert!(tls::connect(tls.address, &other.authority, None, &[&TLS13]).is_err());
}

#[test]
fn mqtt_without_tls_is_not_answered_where_tls_is_spoken() {
    let tls = Tls::new();
    let deployment = tls.builder("").start();
    let mut stream = TcpStream::connect(tls.address).unwrap();
    stream.write_all(&packet::connect("plain", 0)).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert_ne!(answer.first(), Some(&0x20), "{answer:02x?}");
    deployment.host.wait_for_log(&["no handshake", "TLS"]);
    connected(tls.connect(None), "with");
}

#[test]
fn under_mutual_tls_only_a_certificate_of_the_right_authority_comes_in_while_it_is_valid() {
    let tls = Tls::new();
    let deployment = tls
        .builder("client_ca = 'FOLDER/ca.pem'\nauthentication = ['certificate']\n")
        .start();
    let good = tls.authority.sign_client("sensor-1");
    let expired = tls.authority.sign(&Says {
        common_name: "sensor-1",
        expired: true,
        ..Says::default()
    });
    let of_another = Authority::new("the test's").sign_client("sensor-1");
    let of_a_server = tls.authority.sign_server(7);
    for (what, client) in [
        ("none", None),
        ("expired", Some(&expired)),
        ("of another authority", Some(&of_another)),
        ("not for clients", Some(&of_a_server)),
    ] {
        assert_eq!(tls.knock(client, "x"), None, "{what}");
        let link = tls::connect(tls.address, &tls.authority, client, &[&TLS12]);
        assert!(link.is_err(), "{what}");
    }
    assert_eq!(
        tls.knock(Some(&good), "x"),
        Some(packet::CONNECTED.to_vec())
    );
    deployment.host.wait_for_log(&["no handshake", "TLS"]);
}

#[test]
fn sessions_are_gone_on_with_only_where_no_certificate_of_a_client_would_go_unchecked() {
    let (open, mutual) = (Tls::new(), Tls::new());
    let listeners = vec![
        open.listener("").into(),
        mutual
            .listener("client_ca = 'FOLDER/ca.pem'\nauthentication = ['certificate']\n")
            .into(),
    ];
    let _deployment = Deployment::builder()
        .gateway("listener", Value::Array(listeners))
        .start();
    let certificate = mutual.authority.sign_client("sensor-1");
    for version in [&TLS12, &TLS13] {
        for (tls, certificate, second) in [
            (&open, None, HandshakeKind::Resumed),
            (&mutual, Some(&certificate), HandshakeKind::Full),
        ] {
            let client = tls::client(&tls.authority, certificate, &[version]);
            let kind = || {
                let link = tls::handshake(tls.address, client.clone()).unwrap();
                let kind = link.conn.handshake_kind();
                // Tickets of TLS 1.3 come with the first answer.
                connected(RawClient::over(link), "client");
                kind
            };
            assert_eq!(kind(), Some(HandshakeKind::Full), "{version:?}");
            assert_eq!(kind(), Some(second), "{version:?}");
        }
    }
}

#[test]
fn a_certificates_name_is_the_user_and_binds_the_client_id_if_it_shall() {
    let equal = Tls::new();
    let mut prefix = Tls::new();
    prefix.address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let keys = |how: &str| {
        format!(
            "client_ca = 'FOLDER/ca.pem'\nauthentication = ['certificate']\ncertificate_client_id = '{how}'\n"
        )
    };
    let listeners = vec![
        equal.listener(&keys("equal")).into(),
        prefix.listener(&keys("prefix")).into(),
    ];
    let acl = equal.path("acl.toml");
    fs::write(
        &acl,
        "[[rule]]\nuser = 'sensor-1'\npublish = ['device/%u/#']\n",
    )
    .unwrap();
    let deployment = Deployment::builder()
        .gateway("listener", Value::Array(listeners))
        .gateway("acl_file", acl.display().to_string())
        .gateway("on_denied", "acknowledge")
        .start();
    let not_authorized = Some(packet::connack(5).to_vec());
    let welcome = Some(packet::CONNECTED.to_vec());
    let (one, other) = (
        equal.authority.sign_client("sensor-1"),
        prefix.authority.sign_client("sensor-1"),
    );
    assert_eq!(equal.knock(Some(&one), "sensor-1"), welcome);
    assert_eq!(equal.knock(Some(&one), "sensor-1/a"), not_authorized);
    assert_eq!(prefix.knock(Some(&other), "sensor-1/a"), welcome);
    assert_eq!(prefix.knock(Some(&other), "sensor-2"), not_authorized);
    let mut client = connected(equal.connect(Some(&one)), "sensor-1");
    client.publish("device/sensor-1/x", 1, "mine");
    client.publish("device/sensor-2/x", 2, "not mine");
    let stored: Vec<_> = deployment
        .device_records()
        .iter()
        .map(|record| record.payload_text())
        .collect();
    assert_eq!(stored, ["mine"]);
}

#[test]
fn a_client_without_a_certificate_is_asked_otherwise_where_it_is_optional() {
    let tls = Tls::new();
    let _deployment = tls
        .builder(
            "client_ca = 'FOLDER/ca.pem'\nclient_certificate = 'optional'\nauthentication = ['certificate', 'iggy']\n",
        )
        .start();
    let good = tls.authority.sign_client("sensor-1");
    let of_another = Authority::new("the test's").sign_client("sensor-1");
    assert_eq!(tls.knock(None, "x"), Some(packet::connack(5).to_vec()));
    assert_eq!(
        tls.knock(Some(&good), "x"),
        Some(packet::CONNECTED.to_vec())
    );
    assert_eq!(
        tls.knock(Some(&of_another), "x"),
        None,
        "a bad one is not none"
    );
    let mut client = tls.connect(None);
    client.send(&packet::connect_as(
        "y",
        &e2e::binaries::username(),
        e2e::binaries::password(),
    ));
    client.expect(&packet::CONNECTED);
}

#[test]
fn b70_a_renewed_certificate_is_shown_to_new_clients_and_the_connected_ones_stay() {
    let tls = Tls::new();
    let mut deployment = tls.builder("").limit("reload_interval", "200ms").start();
    let mut subscriber = connected(tls.connect(None), "subscriber");
    subscriber.subscribe(TOPIC, 0);
    let mut publisher = connected(tls.connect(None), "publisher");
    let shown = || tls::shown(&tls::connect(tls.address, &tls.authority, None, &[&TLS13]).unwrap());
    let mut exchange = |text: &str| {
        publisher.publish(TOPIC, 1, text);
        assert_eq!(subscriber.expect_publish().payload, text.as_bytes());
    };
    exchange("before");

    let second = tls.authority.sign_server(2);
    second.write(tls.folder.path(), "server");
    wait::until("the new certificate is shown", PATIENCE, || {
        shown() == tls::der(&second)
    });
    exchange("after the renewal");

    fs::write(tls.path("server.pem"), "garbage").unwrap();
    deployment
        .host
        .wait_for_log(&["ERROR", "server.pem", "stays in force"]);
    assert_eq!(shown(), tls::der(&second));
    exchange("after the garbage");

    // A key that is another certificate's is no better.
    let third = tls.authority.sign_server(3);
    tls::write_secret(&tls.path("server.pem"), &third.certificate);
    deployment
        .host
        .wait_for_log(&["ERROR", "do not go together"]);
    assert_eq!(shown(), tls::der(&second));
    tls::write_secret(&tls.path("server.key"), &third.key);
    wait::until("the third certificate is shown", PATIENCE, || {
        shown() == tls::der(&third)
    });
    deployment.host.wait_for_log(&["the alarm is over"]);
    exchange("at last");
    assert!(deployment.host.process().ended().is_none());
}

#[test]
fn b70_a_signal_reads_the_files_where_they_are_not_looked_at() {
    let tls = Tls::new();
    let mut deployment = tls.builder("").limit("reload_interval", "0s").start();
    let mut client = connected(tls.connect(None), "client");
    let second = tls.authority.sign_server(2);
    second.write(tls.folder.path(), "server");
    deployment.host.process().hang_up();
    let shown = || tls::shown(&tls::connect(tls.address, &tls.authority, None, &[&TLS13]).unwrap());
    wait::until("the new certificate is shown", PATIENCE, || {
        shown() == tls::der(&second)
    });
    client.ping();
}

/// Starts with a TLS listener whose files `spoil` makes unusable, and gives the line that says why nothing starts.
fn refused(spoil: impl FnOnce(&Tls)) -> String {
    let tls = Tls::new();
    let builder = tls.builder("client_ca = 'FOLDER/ca.pem'\n");
    spoil(&tls);
    let deployment = builder.start_with(|_: &Files| {});
    deployment.host.wait_for_status(
        Kind::Source,
        &deployment.files.connector_key(e2e::config::SOURCE),
        "error",
    );
    let line = deployment
        .host
        .wait_for_log(&["ERROR", &tls.address.to_string()]);
    assert!(TcpStream::connect(tls.address).is_err());
    assert!(deployment.files.has(GATEWAY));
    line
}

fn set_mode(path: &PathBuf, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("permissions");
}

#[test]
fn files_that_cannot_be_used_are_named_at_the_start_with_what_to_do() {
    type Spoil = fn(&Tls);
    let cases: [(&str, Spoil, [&str; 2]); 7] = [
        (
            "a key that all may read",
            |tls| set_mode(&tls.path("server.key"), 0o644),
            ["server.key", "chmod o-r"],
        ),
        (
            "a certificate that all may write",
            |tls| set_mode(&tls.path("server.pem"), 0o646),
            ["server.pem", "chmod o-w"],
        ),
        (
            "no key",
            |tls| fs::remove_file(tls.path("server.key")).unwrap(),
            ["server.key", "cannot be read"],
        ),
        (
            "an empty certificate",
            |tls| tls::write_secret(&tls.path("server.pem"), ""),
            ["server.pem", "BEGIN CERTIFICATE"],
        ),
        (
            "a certificate for a key",
            |tls| {
                fs::copy(tls.path("server.pem"), tls.path("server.key")).unwrap();
                set_mode(&tls.path("server.key"), 0o600);
            },
            ["server.key", "BEGIN PRIVATE KEY"],
        ),
        (
            "another's key",
            |tls| tls::write_secret(&tls.path("server.key"), &tls.authority.sign_server(9).key),
            ["do not go together", "put the key"],
        ),
        (
            "no authority",
            |tls| tls::write_secret(&tls.path("ca.pem"), "nothing"),
            ["ca.pem", "BEGIN CERTIFICATE"],
        ),
    ];
    for (what, spoil, expected) in cases {
        let line = refused(spoil);
        for part in expected {
            assert!(line.contains(part), "{what}: {line}");
        }
    }
}

#[test]
fn b68_a_handshake_that_is_never_made_ends_with_connect_timeout() {
    let tls = Tls::new();
    let mut deployment = tls.builder("").limit("connect_timeout", "2s").start();
    let before = deployment.host.process().descriptors();
    let silent: Vec<_> = (0..50)
        .map(|_| TcpStream::connect(tls.address).unwrap())
        .collect();
    let halves: Vec<_> = (0..50)
        .map(|_| {
            let mut stream = TcpStream::connect(tls.address).unwrap();
            stream.write_all(&[0x16, 3, 1, 2, 0, 1]).unwrap();
            stream
        })
        .collect();
    // Those that make the handshake and say no more, too.
    let quiet: Vec<_> = (0..20).map(|_| tls.connect(None)).collect();
    connected(tls.connect(None), "good");
    for mut client in quiet {
        client.expect_closed(PROMPT);
    }
    for mut stream in silent.into_iter().chain(halves) {
        stream
            .set_read_timeout(Some(Duration::from_secs(8)))
            .unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    }
    wait::until("all descriptors are back", PATIENCE, || {
        deployment.host.process().descriptors() <= before
    });
}
