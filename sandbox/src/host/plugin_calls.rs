//! What plugins call: one line of log, one batch of a source.
//!
//! Always holds: these run on a plugin's own thread, so they return at once and call nothing of the plugin. A batch
//! goes to the task that forwards the batches of its source.

use std::collections::HashMap;
use std::sync::LazyLock;

use iggy_connector_sdk::ProducedMessages;
use parking_lot::RwLock;
use tokio::sync::mpsc;
use tracing::{debug, error, info, trace, warn};

/// A batch on its way from a source to Iggy.
#[derive(Debug)]
pub(super) struct Batch {
    /// The number by which the source wants to hear of its outcome.
    pub(super) id: u64,
    /// The messages.
    pub(super) messages: ProducedMessages,
}

/// The running sources, by connector id. It is global because the plugin's callback carries nothing but the id, which
/// is therefore unique in the process. A source has at most one batch out, which bounds each queue.
static RUNNING_SOURCES: LazyLock<RwLock<HashMap<u32, mpsc::UnboundedSender<Batch>>>> =
    LazyLock::new(RwLock::default);

/// Batches of the source `id` arrive at the returned end until [`disconnect`].
pub(super) fn connect(id: u32) -> mpsc::UnboundedReceiver<Batch> {
    let (sender, receiver) = mpsc::unbounded_channel();
    RUNNING_SOURCES.write().insert(id, sender);
    receiver
}

/// Refuses further batches of the source `id`; those already taken still arrive, then the receiver ends.
pub(super) fn disconnect(id: u32) {
    RUNNING_SOURCES.write().remove(&id);
}

/// Takes a batch: 0, or -1 when the source does not run or the batch cannot be read.
pub(super) fn receive_batch(id: u32, batch_id: u64, batch: &[u8]) -> i32 {
    let sources = RUNNING_SOURCES.read();
    let Some(source) = sources.get(&id) else {
        // A source that is being closed may still have produced one.
        trace!("refusing batch {batch_id} of the source with id {id}, which does not run");
        return -1;
    };
    let messages = match postcard::from_bytes(batch) {
        Ok(messages) => messages,
        Err(reason) => {
            error!("cannot read batch {batch_id} of the source with id {id}: {reason}");
            return -1;
        }
    };
    match source.send(Batch {
        id: batch_id,
        messages,
    }) {
        Ok(()) => 0,
        Err(_) => -1,
    }
}

/// Writes a plugin's line to the host's log. Levels run from 0, trace, to 4, error. What Iggy's SDK says at INFO about
/// each connection is of use only to whoever debugs it.
pub(super) fn receive_log(level: u8, target: &str, message: &str) {
    let level = if level == 2 && target.starts_with("iggy::") {
        1
    } else {
        level
    };
    match level {
        0 => trace!(target: "connector", "{target}: {message}"),
        1 => debug!(target: "connector", "{target}: {message}"),
        2 => info!(target: "connector", "{target}: {message}"),
        3 => warn!(target: "connector", "{target}: {message}"),
        _ => error!(target: "connector", "{target}: {message}"),
    }
}

#[cfg(test)]
mod tests {
    use iggy_connector_sdk::Schema;

    use super::*;

    fn batch() -> Vec<u8> {
        let messages = ProducedMessages {
            schema: Schema::Raw,
            messages: Vec::new(),
            state: None,
        };
        postcard::to_allocvec(&messages).unwrap()
    }

    #[test]
    fn a_batch_reaches_the_source_it_is_of() {
        let mut first = connect(u32::MAX - 1);
        let mut second = connect(u32::MAX - 2);
        assert_eq!(receive_batch(u32::MAX - 2, 7, &batch()), 0);
        assert_eq!(second.try_recv().unwrap().id, 7);
        assert!(first.try_recv().is_err());
        disconnect(u32::MAX - 1);
        disconnect(u32::MAX - 2);
    }

    #[test]
    fn a_batch_that_cannot_be_read_is_refused() {
        let _receiver = connect(u32::MAX - 3);
        assert_eq!(receive_batch(u32::MAX - 3, 1, &[0xff]), -1);
        disconnect(u32::MAX - 3);
    }

    #[test]
    fn a_batch_after_the_end_is_refused_and_one_before_still_arrives() {
        let mut receiver = connect(u32::MAX - 4);
        assert_eq!(receive_batch(u32::MAX - 4, 1, &batch()), 0);
        disconnect(u32::MAX - 4);
        assert_eq!(receive_batch(u32::MAX - 4, 2, &batch()), -1);
        assert_eq!(receiver.blocking_recv().unwrap().id, 1);
        assert!(receiver.blocking_recv().is_none());
    }
}
