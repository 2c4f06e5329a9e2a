//! Asks Iggy regularly what the topics in use are like, and tells ingest and delivery.
//!
//! What always holds: every topic that is known or read is asked about each `topology_interval`, by one request, and at
//! once when someone has learned something new about it; a topic that was told of in vain is told of again soon.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use crate::log::{Log, LogError, Target};
use crate::session::Context;

/// How soon something that failed is tried again.
const AGAIN: Duration = Duration::from_millis(500);

/// Runs until it is dropped.
pub async fn watch(context: Arc<Context>, log: Arc<dyn Log>) {
    let interval = context.config.limits.topology_interval;
    let mut next = Instant::now() + interval;
    let mut failed: HashSet<Target> = HashSet::new();
    loop {
        let due = if failed.is_empty() {
            next
        } else {
            next.min(Instant::now() + AGAIN)
        };
        let mut asking = match timeout_at(due, context.targets.news()).await {
            Ok(news) => {
                // Several may be learned at a time, and an outage makes much news.
                sleep(Duration::from_millis(1)).await;
                news
            }
            Err(_) => std::mem::take(&mut failed),
        };
        if Instant::now() >= next {
            asking.extend(context.targets.all_known());
            if let Some(delivery) = context.delivery.load_full() {
                asking.extend(delivery.targets());
            }
            next = Instant::now() + interval;
        }
        let mut asking = asking.into_iter();
        while let Some(target) = asking.next() {
            if let Err(error) = ask(&context, &*log, &target).await {
                tracing::debug!(%target, %error, "topic not asked about, or its news not acted on");
                // The others would fail as well, and what no waiting changes is asked again in its turn.
                if error.is_transient() {
                    failed.insert(target);
                    failed.extend(asking);
                    break;
                }
            }
        }
    }
}

/// Asks about one topic, and lets those act on it who have to.
async fn ask(context: &Context, log: &dyn Log, target: &Target) -> Result<(), LogError> {
    let Some(info) = log.topic(target).await? else {
        // Whoever appends to it or reads it finds that out, and what to do about it.
        return Ok(());
    };
    context.targets.note(target, info);
    if let Some(ingest) = context.ingest.load_full() {
        ingest.partitions_learned(target, info.partitions);
    }
    match context.delivery.load_full() {
        Some(delivery) => delivery.learn(target, info).await,
        None => Ok(()),
    }
}
