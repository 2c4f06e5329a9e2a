//! What the gateway is compared with: Iggy's own SDK, appending without anything in between.
//!
//! Always holds: it uses the SDK as the gateway does (one request at a time on a connection, without Nagle's algorithm),
//! in the runtime that a program gets from `#[tokio::main]`, and appends to the same topics; its messages carry the same
//! payload and no headers, which favours it.

use std::net::SocketAddr;
use std::time::Instant;

use iggy::prelude::{
    Client, Identifier, IggyError, IggyMessage, MessageClient, Partitioning, TcpClient,
};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::driver::Limit;
use crate::interrupt;
use crate::outcome::{Latencies, Outcome};
use crate::stack::{STREAM, server};

mod deliver;

pub(crate) use deliver::{Delivery, deliver};

/// What the SDK does.
#[derive(Debug, Clone)]
pub(crate) struct Producers {
    /// The server.
    pub(crate) address: SocketAddr,
    /// The topic.
    pub(crate) topic: String,
    /// Connections; number N appends to partition N.
    pub(crate) connections: u32,
    /// Messages of one append.
    pub(crate) batch: usize,
    /// The payload of every message, in bytes.
    pub(crate) payload: usize,
    /// When no more messages are appended.
    pub(crate) limit: Limit,
}

/// Why it failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SdkError {
    /// Iggy, or the way to it.
    #[error("an append with the SDK failed: {0}")]
    Iggy(#[from] IggyError),
    /// One of the tasks has panicked.
    #[error("a task that appends ended early: {0}")]
    Task(#[from] tokio::task::JoinError),
    /// Nothing came for too long.
    #[error("a poll with the SDK gave nothing for too long while messages were missing")]
    Stalled,
    /// The user wants this to stop.
    #[error("interrupted")]
    Interrupted,
}

/// Connects, appends until the limit, and gives the latency of each append.
///
/// # Errors
/// See [`SdkError`].
pub(crate) fn append(producers: &Producers, runtime: &Runtime) -> Result<Outcome, SdkError> {
    runtime.block_on(async {
        let mut clients = Vec::new();
        for _ in 0..producers.connections {
            clients.push(server::connect(producers.address).await?);
        }
        let mut tasks = JoinSet::new();
        let start = Instant::now();
        for (partition, client) in (0..).zip(clients) {
            tasks.spawn(produce(client, partition, producers.clone(), start));
        }
        let mut whole = Outcome {
            messages: 0,
            elapsed: start.elapsed(),
            unsent: 0,
            latencies: Latencies::new(),
        };
        while let Some(ended) = tasks.join_next().await {
            let part = ended??;
            whole.messages += part.messages;
            whole.elapsed = whole.elapsed.max(part.elapsed);
            whole.latencies.merge(&part.latencies);
        }
        Ok(whole)
    })
}

async fn produce(
    client: TcpClient,
    partition: u32,
    producers: Producers,
    start: Instant,
) -> Result<Outcome, SdkError> {
    let stream = Identifier::named(STREAM)?;
    let topic = Identifier::named(&producers.topic)?;
    let partitioning = Partitioning::partition_id(partition);
    let limit = producers.limit.messages / u64::from(producers.connections.max(1));
    let payload = "x".repeat(producers.payload);
    let mut latencies = Latencies::new();
    let mut messages = 0;
    let mut last = start;
    while messages < limit && start.elapsed() < producers.limit.duration {
        if interrupt::asked() {
            return Err(SdkError::Interrupted);
        }
        let count = producers
            .batch
            .min(usize::try_from(limit - messages).unwrap_or(usize::MAX));
        let mut batch = Vec::with_capacity(count);
        for _ in 0..count {
            batch.push(
                IggyMessage::builder()
                    .payload(payload.clone().into())
                    .build()?,
            );
        }
        let sent = Instant::now();
        client
            .send_messages(&stream, &topic, &partitioning, &mut batch)
            .await?;
        last = Instant::now();
        latencies.record(last - sent);
        messages += count as u64;
    }
    client.shutdown().await?;
    Ok(Outcome {
        messages,
        elapsed: last - start,
        unsent: 0,
        latencies,
    })
}
