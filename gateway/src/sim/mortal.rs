//! A log as one process sees it: when the process is killed, nothing that it has asked is answered any more, and nothing
//! that it asks is done; others that use the same log notice nothing. It also watches how the log is read.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;

use crate::log::memory::MemoryLog;
use crate::log::{Log, LogError, Polled, Record, Target, TopicInfo, TopicSpec, Triple};

/// See the module.
#[derive(Default)]
pub(crate) struct Mortal {
    memory: Arc<MemoryLog>,
    is_dead: AtomicBool,
    polled: Mutex<HashSet<Triple>>,
    rereads: AtomicUsize,
    most_rereads: AtomicUsize,
}

impl Mortal {
    pub(crate) fn on(memory: Arc<MemoryLog>) -> Arc<Self> {
        Arc::new(Self {
            memory,
            ..Self::default()
        })
    }

    /// The process is killed.
    pub(crate) fn kill(&self) {
        self.is_dead.store(true, Ordering::SeqCst);
    }

    /// How many reads for those who are behind were under way at a time.
    pub(crate) fn most_rereads(&self) -> usize {
        self.most_rereads.load(Ordering::SeqCst)
    }

    async fn alive<T>(
        &self,
        call: impl Future<Output = Result<T, LogError>>,
    ) -> Result<T, LogError> {
        if !self.is_dead.load(Ordering::SeqCst) {
            let answer = call.await;
            if !self.is_dead.load(Ordering::SeqCst) {
                return answer;
            }
        }
        std::future::pending().await
    }
}

/// Takes a partition off those that are polled.
struct Polling<'a>(&'a Mortal, &'a Triple);

impl Drop for Polling<'_> {
    fn drop(&mut self) {
        self.0.polled.lock().remove(self.1);
    }
}

/// Counts a read for one who is behind.
struct Rereading<'a>(&'a AtomicUsize);

impl Drop for Rereading<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl Log for Mortal {
    async fn ping(&self) -> Result<(), LogError> {
        self.alive(self.memory.ping()).await
    }

    async fn login(&self, username: &str, password: &str) -> Result<(), LogError> {
        self.alive(self.memory.login(username, password)).await
    }

    async fn topic(&self, target: &Target) -> Result<Option<TopicInfo>, LogError> {
        self.alive(self.memory.topic(target)).await
    }

    async fn create(&self, target: &Target, spec: &TopicSpec) -> Result<TopicInfo, LogError> {
        self.alive(self.memory.create(target, spec)).await
    }

    async fn append(&self, triple: &Triple, records: &[Record]) -> Result<(), LogError> {
        self.alive(self.memory.append(triple, records)).await
    }

    async fn poll(&self, triple: &Triple, from: u64, max: u32) -> Result<Polled, LogError> {
        assert!(
            self.polled.lock().insert(triple.clone()),
            "D1: two readers of {triple}"
        );
        let _polling = Polling(self, triple);
        self.alive(self.memory.poll(triple, from, max)).await
    }

    async fn reread(&self, triple: &Triple, from: u64, max: u32) -> Result<Polled, LogError> {
        let now = self.rereads.fetch_add(1, Ordering::SeqCst) + 1;
        let _rereading = Rereading(&self.rereads);
        self.most_rereads.fetch_max(now, Ordering::SeqCst);
        self.alive(self.memory.reread(triple, from, max)).await
    }

    async fn end(&self, triple: &Triple) -> Result<u64, LogError> {
        self.alive(self.memory.end(triple)).await
    }

    async fn stored_within(&self, triple: &Triple, age: Duration) -> Result<u64, LogError> {
        self.alive(self.memory.stored_within(triple, age)).await
    }

    async fn committed(&self, triple: &Triple, consumer: &str) -> Result<Option<u64>, LogError> {
        self.alive(self.memory.committed(triple, consumer)).await
    }

    async fn commit(&self, triple: &Triple, consumer: &str, offset: u64) -> Result<(), LogError> {
        self.alive(self.memory.commit(triple, consumer, offset))
            .await
    }

    async fn forget(&self, triple: &Triple, consumer: &str) -> Result<(), LogError> {
        self.alive(self.memory.forget(triple, consumer)).await
    }

    async fn close(&self) {}
}
