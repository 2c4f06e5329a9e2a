//! What is still there after a restart, after `kill -9`, and when the data folder is not as it should be.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "server_support/mod.rs"]
mod support;

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use iggy::prelude::*;
use sandbox::server::{Server, ServerConfig, ServerError, StoreError};
use support::{Running, client, eventually, named, offsets, payloads, poll, send, topic};

/// The program in a process of its own.
struct Process {
    child: Child,
    address: SocketAddr,
}

impl Process {
    fn start(folder: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_sandbox"))
            .args(["server", "--address", "127.0.0.1:0", "--data-dir"])
            .arg(folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let address = output
            .lines()
            .find_map(|line| {
                line.unwrap()
                    .strip_prefix("iggy listening on ")?
                    .parse()
                    .ok()
            })
            .unwrap();
        Self { child, address }
    }

    /// Ends the process as `kill -9` does.
    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn everything_is_there_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path()).await;
    let client = server.client().await;
    topic(&client, 2, Durability::Persisted).await;
    let replicated = TopicCreateOptions {
        partitions_count: Some(3),
        ..TopicCreateOptions::default()
    };
    client
        .create_topic(&named("s"), "r", &replicated)
        .await
        .unwrap();
    send(&client, 1, &["a", "b"]).await;
    send(&client, 1, &["c"]).await;
    client
        .send_messages(
            &named("s"),
            &named("r"),
            &Partitioning::partition_id(2),
            &mut ["x".parse::<IggyMessage>().unwrap()],
        )
        .await
        .unwrap();
    let consumer = Consumer::default();
    client
        .store_consumer_offset(&consumer, &named("s"), &named("t"), Some(1), 1)
        .await
        .unwrap();
    client
        .create_consumer_group(&named("s"), &named("t"), "g")
        .await
        .unwrap();
    let before = poll(&client, 1, PollingStrategy::first(), 9).await;
    let topics_before = client.get_topics(&named("s")).await.unwrap();
    server.stop().await;

    let server = Running::start(folder.path()).await;
    let client = server.client().await;
    let after = poll(&client, 1, PollingStrategy::first(), 9).await;
    assert_eq!(payloads(&after), ["a", "b", "c"]);
    for (before, after) in before.messages.iter().zip(&after.messages) {
        assert_eq!(before.header.to_bytes(), after.header.to_bytes());
    }
    let topics = client.get_topics(&named("s")).await.unwrap();
    let shape = |topics: &[Topic]| -> Vec<_> {
        topics
            .iter()
            .map(|topic| {
                let counts = (topic.partitions_count, topic.messages_count, topic.size);
                (
                    topic.id,
                    topic.name.clone(),
                    topic.created_at,
                    topic.options.clone(),
                    counts,
                )
            })
            .collect()
    };
    assert_eq!(shape(&topics), shape(&topics_before));
    let offset = client
        .get_consumer_offset(&consumer, &named("s"), &named("t"), Some(1))
        .await;
    assert_eq!(offset.unwrap().unwrap().stored_offset, 1);
    let groups = client
        .get_consumer_groups(&named("s"), &named("t"))
        .await
        .unwrap();
    assert_eq!(
        groups
            .iter()
            .map(|group| group.name.as_str())
            .collect::<Vec<_>>(),
        ["g"]
    );

    // It goes on where it was.
    assert_eq!(
        send(&client, 1, &["d"]).await.confirmations[0].base_offset,
        3
    );
    client.create_stream("next").await.unwrap();
    assert_eq!(
        client.get_stream(&named("next")).await.unwrap().unwrap().id,
        1
    );
    server.stop().await;
}

#[tokio::test]
async fn what_was_deleted_does_not_come_back_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path()).await;
    let client = server.client().await;
    topic(&client, 1, Durability::Persisted).await;
    send(&client, 0, &["old"]).await;
    client.create_stream("gone").await.unwrap();
    client.delete_stream(&named("gone")).await.unwrap();
    client.delete_topic(&named("s"), &named("t")).await.unwrap();
    let options = TopicCreateOptions::default();
    client
        .create_topic(&named("s"), "t", &options)
        .await
        .unwrap();
    send(&client, 0, &["new"]).await;
    client.purge_topic(&named("s"), &named("t")).await.unwrap();
    send(&client, 0, &["newest"]).await;
    server.stop().await;

    let server = Running::start(folder.path()).await;
    let client = server.client().await;
    assert_eq!(
        payloads(&poll(&client, 0, PollingStrategy::first(), 9).await),
        ["newest"]
    );
    assert_eq!(client.get_streams().await.unwrap().len(), 1);
    let again = client.create_stream("gone").await.unwrap();
    assert_eq!((again.id, again.topics_count), (2, 0));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_confirmed_in_a_persisted_topic_is_lost_by_kill_9() {
    const WRITERS: u32 = 4;
    let folder = tempfile::tempdir().unwrap();
    let mut expected = [0_u64; WRITERS as usize];
    for round in 0..3 {
        let process = Process::start(folder.path());
        let setup = client(process.address).await;
        if round == 0 {
            topic(&setup, WRITERS, Durability::Persisted).await;
        }
        for (partition, confirmed) in (0..).zip(&mut expected) {
            let last = poll(&setup, partition, PollingStrategy::last(), 1).await;
            let next = last
                .messages
                .first()
                .map_or(0, |message| message.header.offset + 1);
            assert!(
                next >= *confirmed,
                "partition {partition}: {confirmed} confirmed, {next} there"
            );
            // A batch whose confirmation was cut off may be there all the same.
            *confirmed = next;
        }
        let confirmed: Vec<_> = expected
            .iter()
            .map(|start| Arc::new(AtomicU64::new(*start)))
            .collect();
        let mut writers = Vec::new();
        for (partition, confirmed) in (0..).zip(&confirmed) {
            let (address, confirmed) = (process.address, Arc::clone(confirmed));
            writers.push(tokio::spawn(async move {
                let client = client(address).await;
                let partitioning = Partitioning::partition_id(partition);
                loop {
                    let next = confirmed.load(Ordering::Acquire);
                    let mut batch: Vec<_> = (next..next + 3)
                        .map(|number| number.to_string().parse::<IggyMessage>().unwrap())
                        .collect();
                    let sent = client
                        .send_messages(&named("s"), &named("t"), &partitioning, &mut batch)
                        .await;
                    let Ok(sent) = sent else { break };
                    assert_eq!(sent.confirmations[0].base_offset, next);
                    confirmed.store(next + 3, Ordering::Release);
                }
            }));
        }
        let start: u64 = expected.iter().sum();
        eventually("every writer has written a good deal", async || {
            let counts: Vec<_> = confirmed
                .iter()
                .map(|count| count.load(Ordering::Acquire))
                .collect();
            (counts.iter().sum::<u64>() > start + 300).then_some(())
        })
        .await;
        process.kill();
        for writer in writers {
            writer.abort();
        }
        expected = std::array::from_fn(|partition| confirmed[partition].load(Ordering::Acquire));
    }

    let process = Process::start(folder.path());
    let reader = client(process.address).await;
    for (partition, confirmed) in (0..).zip(expected) {
        let all = poll(&reader, partition, PollingStrategy::first(), 100_000).await;
        assert!(all.messages.len() as u64 >= confirmed);
        for (number, message) in (0_u64..).zip(&all.messages) {
            assert_eq!(message.header.offset, number);
            assert_eq!(message.payload, number.to_string().as_bytes());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_topics_and_offsets_are_not_lost_by_kill_9() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path());
    let before = client(process.address).await;
    topic(&before, 2, Durability::Replicated).await;
    send(&before, 1, &["a", "b"]).await;
    let consumer = Consumer::new(named("reader"));
    before
        .store_consumer_offset(&consumer, &named("s"), &named("t"), Some(1), 1)
        .await
        .unwrap();
    process.kill();

    let process = Process::start(folder.path());
    let after = client(process.address).await;
    let found = after
        .get_topic(&named("s"), &named("t"))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(found.partitions_count, 2);
    let offset = after
        .get_consumer_offset(&consumer, &named("s"), &named("t"), Some(1))
        .await;
    assert_eq!(offset.unwrap().unwrap().stored_offset, 1);
    // The offset's fsync took the messages before it along.
    assert_eq!(
        offsets(&poll(&after, 1, PollingStrategy::first(), 9).await),
        [0, 1]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flush_brings_a_replicated_topic_to_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path());
    let before = client(process.address).await;
    topic(&before, 1, Durability::Replicated).await;
    send(&before, 0, &["a", "b"]).await;
    before
        .flush_unsaved_buffer(&named("s"), &named("t"), 0, true)
        .await
        .unwrap();
    process.kill();
    let process = Process::start(folder.path());
    let after = client(process.address).await;
    assert_eq!(
        offsets(&poll(&after, 0, PollingStrategy::first(), 9).await),
        [0, 1]
    );
    let missing = after
        .flush_unsaved_buffer(&named("s"), &named("t"), 1, true)
        .await;
    assert_eq!(missing.unwrap_err().as_code(), 3007);
}

async fn refused(folder: &Path) -> ServerError {
    let config = ServerConfig::new("127.0.0.1:0".parse().unwrap(), folder);
    match Server::bind(config).await {
        Ok(_) => panic!("the server started"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn a_data_folder_in_use_is_refused_with_advice() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path()).await;
    let error = refused(folder.path()).await;
    assert!(
        matches!(error, ServerError::Open(StoreError::InUse { .. })),
        "{error}"
    );
    assert!(error.to_string().contains("choose another data folder"));
    server.stop().await;
    Running::start(folder.path()).await.stop().await;
}

#[tokio::test]
async fn a_data_folder_that_cannot_be_used_is_refused_with_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "not a folder").unwrap();
    let error = refused(&file).await;
    assert!(
        matches!(error, ServerError::Open(StoreError::Folder { .. })),
        "{error}"
    );
    assert!(error.to_string().contains(file.to_str().unwrap()));

    std::fs::write(folder.path().join("sandbox.redb"), "this is no database").unwrap();
    let error = refused(folder.path()).await;
    assert!(
        matches!(error, ServerError::Open(StoreError::Open { .. })),
        "{error}"
    );
}

#[tokio::test]
async fn an_address_in_use_is_refused_with_advice() {
    let folder = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let error = match Server::bind(ServerConfig::new(address, folder.path())).await {
        Ok(_) => panic!("the server started"),
        Err(error) => error,
    };
    assert!(matches!(error, ServerError::Bind { .. }));
    assert!(error.to_string().contains(&address.to_string()), "{error}");
}
