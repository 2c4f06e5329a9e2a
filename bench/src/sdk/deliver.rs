//! One producer and one consumer with Iggy's SDK: what delivery costs without a gateway.
//!
//! Always holds: no more messages than the window are on their way, as with the driver's subscribers; the producer appends
//! as many at a time as the window allows, and the consumer polls again at once; a latency begins before the append.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use iggy::prelude::{
    Client, Consumer, Identifier, IggyMessage, MessageClient, Partitioning, PollingStrategy,
};
use tokio::runtime::Runtime;
use tokio::sync::Notify;

use super::SdkError;
use crate::driver::Limit;
use crate::interrupt;
use crate::outcome::{Latencies, Outcome};
use crate::stack::{STREAM, server};

/// How long the consumer waits for one more message.
const PATIENCE: Duration = Duration::from_secs(30);
/// The most that a poll takes.
const POLLED: u32 = 1_000;

/// What is to be done. The topic must have one partition and be empty.
#[derive(Debug, Clone)]
pub(crate) struct Delivery {
    /// The server.
    pub(crate) address: SocketAddr,
    /// The topic.
    pub(crate) topic: String,
    /// How many messages may be on their way; at least 1.
    pub(crate) window: u16,
    /// The payload of every message, in bytes; at least 8.
    pub(crate) payload: usize,
    /// When no more messages are appended.
    pub(crate) limit: Limit,
}

#[derive(Debug, Default)]
struct Shared {
    appended: AtomicU64,
    delivered: AtomicU64,
    is_complete: AtomicBool,
    has_delivered: Notify,
}

/// Appends until the limit and polls until everything has come.
///
/// # Errors
/// See [`SdkError`].
pub(crate) fn deliver(plan: &Delivery, runtime: &Runtime) -> Result<Outcome, SdkError> {
    runtime.block_on(async {
        let shared = Arc::new(Shared::default());
        let begin = Instant::now();
        let producer = tokio::spawn(produce(plan.clone(), shared.clone(), begin));
        let outcome = consume(plan, &shared, begin).await;
        if outcome.is_err() {
            producer.abort();
        }
        match producer.await {
            Ok(produced) => produced?,
            Err(error) if error.is_cancelled() => {}
            Err(error) => return Err(error.into()),
        }
        outcome
    })
}

async fn produce(plan: Delivery, shared: Arc<Shared>, begin: Instant) -> Result<(), SdkError> {
    let done = append(&plan, &shared, begin).await;
    shared.is_complete.store(true, Ordering::Release);
    done
}

async fn append(plan: &Delivery, shared: &Shared, begin: Instant) -> Result<(), SdkError> {
    let client = server::connect(plan.address).await?;
    let (stream, topic) = (Identifier::named(STREAM)?, Identifier::named(&plan.topic)?);
    let partitioning = Partitioning::partition_id(0);
    let window = u64::from(plan.window.max(1));
    let mut appended = 0;
    while appended < plan.limit.messages && begin.elapsed() < plan.limit.duration {
        let on_the_way = appended - shared.delivered.load(Ordering::Acquire);
        let count = (window - on_the_way).min(plan.limit.messages - appended);
        if count == 0 {
            // A message that is delivered before this begins leaves its permit behind.
            shared.has_delivered.notified().await;
            continue;
        }
        let sent = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let mut payload = vec![b'x'; plan.payload.max(8)];
        if let Some(head) = payload.get_mut(..8) {
            head.copy_from_slice(&sent.to_be_bytes());
        }
        let mut batch = (0..count)
            .map(|_| {
                IggyMessage::builder()
                    .payload(payload.clone().into())
                    .build()
            })
            .collect::<Result<Vec<_>, _>>()?;
        appended += count;
        shared.appended.store(appended, Ordering::Release);
        client
            .send_messages(&stream, &topic, &partitioning, &mut batch)
            .await?;
    }
    client.shutdown().await?;
    Ok(())
}

async fn consume(plan: &Delivery, shared: &Shared, begin: Instant) -> Result<Outcome, SdkError> {
    let client = server::connect(plan.address).await?;
    let (stream, topic) = (Identifier::named(STREAM)?, Identifier::named(&plan.topic)?);
    let consumer = Consumer::default();
    let mut latencies = Latencies::new();
    let mut delivered = 0;
    let mut last = begin;
    loop {
        let is_complete = shared.is_complete.load(Ordering::Acquire);
        if is_complete && delivered == shared.appended.load(Ordering::Acquire) {
            break;
        }
        if interrupt::asked() {
            return Err(SdkError::Interrupted);
        }
        if last.elapsed() > PATIENCE {
            return Err(SdkError::Stalled);
        }
        let strategy = PollingStrategy::offset(delivered);
        let polled = client
            .poll_messages(
                &stream,
                &topic,
                Some(0),
                &consumer,
                &strategy,
                POLLED,
                false,
            )
            .await?;
        if polled.messages.is_empty() {
            continue;
        }
        last = Instant::now();
        for message in &polled.messages {
            let head = message
                .payload
                .get(..8)
                .and_then(|head| head.try_into().ok());
            let sent = Duration::from_nanos(head.map_or(0, u64::from_be_bytes));
            latencies.record((last - begin).saturating_sub(sent));
        }
        delivered += polled.messages.len() as u64;
        shared.delivered.store(delivered, Ordering::Release);
        shared.has_delivered.notify_one();
    }
    client.shutdown().await?;
    Ok(Outcome {
        messages: delivered,
        elapsed: last - begin,
        unsent: 0,
        latencies,
    })
}
