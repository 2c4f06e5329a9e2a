//! Memory that connections share: whoever needs much of it waits until it is free.

use std::sync::Arc;

use iggy_common::IggyError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The unit in which memory is counted. Bytes.
const UNIT: usize = 1024;

/// A fixed amount of memory.
#[derive(Debug)]
pub(crate) struct Memory {
    units: usize,
    free: Arc<Semaphore>,
}

/// A share of it, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Share(OwnedSemaphorePermit);

impl Memory {
    pub(crate) fn new(bytes: usize) -> Self {
        let units = bytes / UNIT;
        Self {
            units,
            free: Arc::new(Semaphore::new(units)),
        }
    }

    /// Takes a share, waiting for it if need be. More than there is in all counts as all of it.
    ///
    /// # Errors
    /// `ClientShutdown` when the server ends.
    pub(crate) async fn take(&self, bytes: usize) -> Result<Share, IggyError> {
        let units = bytes.div_ceil(UNIT).min(self.units);
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        let share = Arc::clone(&self.free).acquire_many_owned(units).await;
        share.map(Share).map_err(|_| IggyError::ClientShutdown)
    }
}

impl Share {
    /// Gives back what is not needed for `bytes`.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        let surplus = self.0.num_permits().saturating_sub(bytes.div_ceil(UNIT));
        drop(self.0.split(surplus));
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn a_share_that_shrinks_lets_others_in() {
        let memory = Memory::new(10 * UNIT);
        let mut all = memory.take(usize::MAX).now_or_never().unwrap().unwrap();
        assert!(memory.take(1).now_or_never().is_none());
        all.shrink(9 * UNIT);
        let one = memory.take(1).now_or_never().unwrap().unwrap();
        assert!(memory.take(1).now_or_never().is_none());
        drop(one);
        all.shrink(10 * UNIT);
        drop(all);
        assert!(memory.take(10 * UNIT).now_or_never().is_some());
    }
}
