//! What the tests of the log server share: a server in this process, and real SDK clients for it.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use iggy::prelude::*;
use sandbox::server::{Server, ServerConfig, ServerError, Stats};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// No step of a test may take longer.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// A server in a task of this process.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) stats: Stats,
    shutdown: CancellationToken,
    task: JoinHandle<Result<(), ServerError>>,
}

impl Running {
    /// Starts a server on a free port with its data in `folder`.
    pub(crate) async fn start(folder: &Path) -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap(), folder).await
    }

    /// Starts a server on this address with its data in `folder`.
    pub(crate) async fn start_at(address: SocketAddr, folder: &Path) -> Self {
        let config = ServerConfig::new(address, folder);
        let server = Server::bind(config).await.unwrap();
        let shutdown = CancellationToken::new();
        Self {
            address: server.local_addr(),
            stats: server.stats(),
            task: tokio::spawn(server.run(shutdown.clone())),
            shutdown,
        }
    }

    /// Stops the server as a signal does.
    pub(crate) async fn stop(self) {
        self.shutdown.cancel();
        tokio::time::timeout(DEADLINE, self.task)
            .await
            .unwrap()
            .unwrap()
            .unwrap();
    }

    /// A client that is logged in.
    pub(crate) async fn client(&self) -> IggyClient {
        client(self.address).await
    }
}

/// A client that is logged in at `address`.
pub(crate) async fn client(address: SocketAddr) -> IggyClient {
    let client = connected(address).await;
    client.login_user("iggy", "iggy").await.unwrap();
    client
}

/// A client that is connected but not logged in.
pub(crate) async fn connected(address: SocketAddr) -> IggyClient {
    let client = IggyClientBuilder::new()
        .with_tcp()
        .with_server_address(address.to_string())
        .with_no_delay()
        .build()
        .unwrap();
    client.connect().await.unwrap();
    client
}

/// The stream, topic and consumer that most tests use.
pub(crate) fn named(name: &str) -> Identifier {
    Identifier::named(name).unwrap()
}

/// A stream `s` with a topic `t` of so many partitions.
pub(crate) async fn topic(client: &IggyClient, partitions: u32, durability: Durability) {
    client.create_stream("s").await.unwrap();
    let options = TopicCreateOptions {
        partitions_count: Some(partitions),
        durability,
        ..TopicCreateOptions::default()
    };
    client
        .create_topic(&named("s"), "t", &options)
        .await
        .unwrap();
}

/// Sends one batch with these payloads to a partition of `s`/`t`.
pub(crate) async fn send(
    client: &IggyClient,
    partition: u32,
    payloads: &[&str],
) -> SendMessagesResponse {
    let mut messages: Vec<_> = payloads
        .iter()
        .map(|payload| payload.parse::<IggyMessage>().unwrap())
        .collect();
    client
        .send_messages(
            &named("s"),
            &named("t"),
            &Partitioning::partition_id(partition),
            &mut messages,
        )
        .await
        .unwrap()
}

/// Polls a partition of `s`/`t` as consumer 1 without committing.
pub(crate) async fn poll(
    client: &IggyClient,
    partition: u32,
    strategy: PollingStrategy,
    count: u32,
) -> PolledMessages {
    let consumer = Consumer::default();
    client
        .poll_messages(
            &named("s"),
            &named("t"),
            Some(partition),
            &consumer,
            &strategy,
            count,
            false,
        )
        .await
        .unwrap()
}

/// The payloads of polled messages as text.
pub(crate) fn payloads(polled: &PolledMessages) -> Vec<String> {
    polled
        .messages
        .iter()
        .map(|message| String::from_utf8(message.payload.to_vec()).unwrap())
        .collect()
}

/// The offsets of polled messages.
pub(crate) fn offsets(polled: &PolledMessages) -> Vec<u64> {
    polled
        .messages
        .iter()
        .map(|message| message.header.offset)
        .collect()
}

/// Repeats `check` until it gives something.
pub(crate) async fn eventually<T, F: Future<Output = Option<T>>>(
    what: &str,
    mut check: impl FnMut() -> F,
) -> T {
    let end = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = check().await {
            return found;
        }
        assert!(Instant::now() < end, "this never happened: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Fails unless a client is served as usual.
pub(crate) async fn still_serves(server: &Running) {
    let client = server.client().await;
    client.get_streams().await.unwrap();
    client.disconnect().await.unwrap();
}
