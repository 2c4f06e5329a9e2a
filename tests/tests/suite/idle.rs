//! Thousands of connections that do nothing, over TCP and over TLS: what they cost, and that others are served meanwhile.

use e2e::binaries;
use e2e::packet;
use e2e::raw::RawClient;
use e2e::tls;
use e2e::wait::{self, PATIENCE};
use tokio_rustls::rustls::version::TLS13;

use crate::connection_life::{allow_open_files, may_open_files};
use crate::tls::Tls;

const CONNECTIONS: usize = 5_000;
/// What one may take at most, in bytes. It is less in a release build; docs/security.md has the figures.
const PER_TCP: u64 = 12 * 1_024;
const PER_TLS: u64 = 48 * 1_024;

#[test]
fn five_thousand_idle_connections_stay_within_limits_over_tcp_and_over_tls() {
    // Those of both kinds, each with an end in this process.
    let files = 2 * CONNECTIONS as u64 + 1_000;
    if !may_open_files(files) {
        return binaries::skipped("thousands of idle connections", "ulimit -Hn is too low");
    }
    allow_open_files(files);
    let tls = Tls::new();
    let mut deployment = tls
        .builder("")
        .limit("max_connections_per_address", 20_000)
        .limit("max_connections", 20_000)
        .start();
    let mqtt = deployment.mqtt();
    let mut warm: Vec<_> = (0..50)
        .map(|n| RawClient::connect(mqtt, &format!("warm-{n}")))
        .collect();
    let mut measure = |what: &str, limit: u64, open: &dyn Fn(&str) -> RawClient| {
        let process = deployment.host.process();
        let (before, descriptors) = (process.resident_bytes(), process.descriptors());
        let clients: Vec<_> = (0..CONNECTIONS)
            .map(|n| open(&format!("{what}-{n}")))
            .collect();
        let process = deployment.host.process();
        assert!(process.descriptors() >= descriptors + CONNECTIONS);
        let each = process.resident_bytes().saturating_sub(before) / CONNECTIONS as u64;
        println!("{what}: {each} bytes for each of {CONNECTIONS} idle connections");
        assert!(each < limit, "{what}: {each} bytes each");
        // Those who come between are served.
        warm[0].publish("device/1/x", 1, what);
        clients
    };
    let over_tls = measure("TLS", PER_TLS, &|id| {
        let link = tls::connect(tls.address, &tls.authority, None, &[&TLS13]).unwrap();
        let mut client = RawClient::over(link);
        client.send(&packet::connect(id, 0));
        client.expect(&packet::CONNECTED);
        client
    });
    let over_tcp = measure("TCP", PER_TCP, &|id| RawClient::connect(mqtt, id));
    let with_them = deployment.host.process().descriptors();
    drop((over_tls, over_tcp));
    wait::until("their descriptors are back", PATIENCE, || {
        deployment.host.process().descriptors() + 2 * CONNECTIONS <= with_them
    });
}
