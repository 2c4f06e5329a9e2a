//! The store on a disk that can be held up and can fail.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use iggy_binary_protocol::requests::messages::{RawMessage, SendMessagesEncoder};
use iggy_binary_protocol::{WireIdentifier, WireOptions, WirePartitioning};
use iggy_common::IggyError;
use parking_lot::{Condvar, Mutex};
use redb::backends::InMemoryBackend;
use redb::{Builder, StorageBackend};

use super::{SYNC_WITHIN, Store, StoreError};
use crate::server::catalog::{ConsumerKey, ConsumerKind, Partition};
use crate::server::change::Change;
use crate::server::record::Batch;
use crate::server::settings;

const DEADLINE: Duration = Duration::from_secs(30);

/// The switches of a disk.
#[derive(Debug, Default)]
struct Switches {
    held: Mutex<bool>,
    released: Condvar,
    waiting: AtomicBool,
    broken: AtomicBool,
    syncs: AtomicUsize,
}

impl Switches {
    fn hold(&self, hold: bool) {
        *self.held.lock() = hold;
        self.released.notify_all();
    }
}

#[derive(Debug)]
struct Disk {
    memory: InMemoryBackend,
    switches: Arc<Switches>,
}

impl Disk {
    fn check(&self) -> std::io::Result<()> {
        match self.switches.broken.load(Ordering::Acquire) {
            true => Err(std::io::ErrorKind::StorageFull.into()),
            false => Ok(()),
        }
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> std::io::Result<u64> {
        self.memory.len()
    }

    fn read(&self, offset: u64, len: usize) -> std::io::Result<Vec<u8>> {
        self.memory.read(offset, len)
    }

    fn set_len(&self, len: u64) -> std::io::Result<()> {
        self.check()?;
        self.memory.set_len(len)
    }

    fn sync_data(&self, eventual: bool) -> std::io::Result<()> {
        self.check()?;
        self.switches.syncs.fetch_add(1, Ordering::AcqRel);
        let mut held = self.switches.held.lock();
        while *held {
            self.switches.waiting.store(true, Ordering::Release);
            self.switches.released.wait(&mut held);
        }
        self.memory.sync_data(eventual)
    }

    fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.check()?;
        self.memory.write(offset, data)
    }
}

/// The switches of a disk that is let go when its test ends, also by a failure: the store waits for it.
struct Held(Arc<Switches>);

impl Deref for Held {
    type Target = Switches;

    fn deref(&self) -> &Switches {
        &self.0
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.hold(false);
    }
}

/// A store with one partition, and the switches of its disk.
async fn store() -> (Arc<Store>, Arc<Partition>, Held) {
    let switches = Arc::<Switches>::default();
    let disk = Disk {
        memory: InMemoryBackend::new(),
        switches: Arc::clone(&switches),
    };
    let database = Builder::new().create_with_backend(disk).unwrap();
    let store = Arc::new(Store::start(database, Path::new("memory")).unwrap());
    let stream = WireIdentifier::numeric(0);
    store
        .change(Change::CreateStream {
            name: "s".to_owned(),
        })
        .await
        .unwrap();
    let settings = settings::create(&WireOptions::empty(), 1).unwrap();
    let changed = store
        .change(Change::CreateTopic {
            stream: stream.clone(),
            name: "t".to_owned(),
            partitions: 1,
            settings,
        })
        .await
        .unwrap();
    let (_, topic) = changed
        .catalog
        .topic(&stream, &WireIdentifier::numeric(changed.id))
        .unwrap();
    let partition = Arc::clone(topic.partition(0).unwrap());
    (store, partition, Held(switches))
}

fn batch() -> Batch {
    let id = WireIdentifier::numeric(0);
    let message = RawMessage {
        id: 1,
        origin_timestamp: 1,
        headers: None,
        payload: b"payload",
    };
    let mut body = BytesMut::new();
    SendMessagesEncoder::encode(
        &mut body,
        &id,
        &id,
        &WirePartitioning::PartitionId(0),
        &[message],
    )
    .unwrap();
    let metadata = u32::from_le_bytes(body[..4].try_into().unwrap()) as usize;
    Batch::admit(Bytes::from(body).slice(4 + metadata..), 1).unwrap()
}

async fn until(what: &str, check: impl Fn() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !check() {
        assert!(Instant::now() < end, "this never happened: {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn append(
    store: &Arc<Store>,
    partition: &Arc<Partition>,
    durable: bool,
) -> tokio::task::JoinHandle<Result<u64, IggyError>> {
    let (store, partition) = (Arc::clone(store), Arc::clone(partition));
    tokio::spawn(async move { store.append(partition, batch(), durable).await })
}

#[tokio::test]
async fn a_durable_append_is_confirmed_and_seen_only_after_the_fsync() {
    let (store, partition, switches) = store().await;
    switches.hold(true);
    let confirmed = append(&store, &partition, true);
    until("the writer waits for the disk", || {
        switches.waiting.load(Ordering::Acquire)
    })
    .await;
    assert!(!confirmed.is_finished());
    assert_eq!(partition.progress().next_offset, 0);
    switches.hold(false);
    assert_eq!(confirmed.await.unwrap().unwrap(), 0);
    assert_eq!(partition.progress().next_offset, 1);
    assert_eq!(store.read(partition, 0, 9, 1000).await.unwrap().count, 1);
}

#[tokio::test]
async fn what_is_queued_during_an_fsync_shares_the_next_one() {
    let (store, partition, switches) = store().await;
    switches.hold(true);
    let first = append(&store, &partition, true);
    until("the writer waits for the disk", || {
        switches.waiting.load(Ordering::Acquire)
    })
    .await;
    let rest: Vec<_> = (0..50).map(|_| append(&store, &partition, true)).collect();
    tokio::task::yield_now().await;
    let before = switches.syncs.load(Ordering::Acquire);
    switches.hold(false);
    first.await.unwrap().unwrap();
    let mut offsets = Vec::new();
    for append in rest {
        offsets.push(append.await.unwrap().unwrap());
    }
    offsets.sort_unstable();
    assert_eq!(offsets, (1..=50).collect::<Vec<_>>());
    // One fsync or two a commit; alone they would have been 50 at least.
    let syncs = switches.syncs.load(Ordering::Acquire) - before;
    assert!(syncs <= 10, "{syncs} fsyncs");
}

#[tokio::test]
async fn a_replicated_append_does_not_wait_for_the_disk_and_reaches_it_within_its_time() {
    let (store, partition, switches) = store().await;
    let before = switches.syncs.load(Ordering::Acquire);
    let started = Instant::now();
    for expected in 0..20 {
        assert_eq!(
            append(&store, &partition, false).await.unwrap().unwrap(),
            expected
        );
    }
    let syncs = switches.syncs.load(Ordering::Acquire);
    if started.elapsed() < SYNC_WITHIN {
        assert_eq!(syncs, before);
    }
    assert_eq!(
        store.read(partition, 0, 99, 100_000).await.unwrap().count,
        20
    );
    until("the appends are on the disk", || {
        switches.syncs.load(Ordering::Acquire) > before
    })
    .await;
}

#[tokio::test]
async fn an_offset_and_a_change_of_the_catalog_wait_for_the_disk() {
    let (store, partition, switches) = store().await;
    append(&store, &partition, false).await.unwrap().unwrap();
    let key = ConsumerKey {
        kind: ConsumerKind::Consumer,
        id: 1,
    };
    let before = switches.syncs.load(Ordering::Acquire);
    store
        .set_offset(Arc::clone(&partition), key, Some(0))
        .await
        .unwrap();
    let between = switches.syncs.load(Ordering::Acquire);
    assert!(between > before);
    let name = "u".to_owned();
    store.change(Change::CreateStream { name }).await.unwrap();
    assert!(switches.syncs.load(Ordering::Acquire) > between);
}

#[tokio::test]
async fn when_the_disk_fails_nothing_of_the_turn_is_seen_and_the_store_says_so() {
    let (store, partition, switches) = store().await;
    append(&store, &partition, true).await.unwrap().unwrap();
    switches.broken.store(true, Ordering::Release);
    assert!(append(&store, &partition, true).await.unwrap().is_err());
    assert_eq!(partition.progress().next_offset, 1);
    let failure = tokio::time::timeout(DEADLINE, store.failed())
        .await
        .unwrap();
    assert!(matches!(*failure, StoreError::Io(_)), "{failure}");
    // From now on everything that writes is refused at once.
    assert!(append(&store, &partition, false).await.unwrap().is_err());
    let name = "u".to_owned();
    assert!(store.change(Change::CreateStream { name }).await.is_err());
    assert_eq!(store.catalog().streams.len(), 1);
}

#[tokio::test]
async fn what_is_queued_for_a_partition_that_is_deleted_in_the_same_turn_is_refused() {
    let (store, partition, switches) = store().await;
    switches.hold(true);
    let first = append(&store, &partition, true);
    until("the writer waits for the disk", || {
        switches.waiting.load(Ordering::Acquire)
    })
    .await;
    let late = append(&store, &partition, true);
    tokio::task::yield_now().await;
    let deleting = {
        let store = Arc::clone(&store);
        let stream = WireIdentifier::numeric(0);
        tokio::spawn(async move { store.change(Change::DeleteStream { stream }).await })
    };
    tokio::task::yield_now().await;
    switches.hold(false);
    first.await.unwrap().unwrap();
    deleting.await.unwrap().unwrap();
    // Either it came before the deletion or it was refused; it never writes under a uid that is gone.
    let late = late.await.unwrap();
    assert!(
        matches!(late, Ok(1) | Err(IggyError::ResourceNotFound(_))),
        "{late:?}"
    );
    let after = append(&store, &partition, true).await.unwrap();
    assert!(
        matches!(after, Err(IggyError::ResourceNotFound(_))),
        "{after:?}"
    );
    assert_eq!(store.read(partition, 0, 9, 1000).await.unwrap().count, 0);
}

#[tokio::test]
async fn the_offsets_of_a_deleted_group_are_deleted_and_no_others() {
    let (store, partition, _switches) = store().await;
    append(&store, &partition, false).await.unwrap().unwrap();
    let place = || (WireIdentifier::numeric(0), WireIdentifier::numeric(0));
    let mut keys = Vec::new();
    for name in ["a", "b"] {
        let (stream, topic) = place();
        let name = name.to_owned();
        let group = store
            .change(Change::CreateGroup {
                stream,
                topic,
                name,
            })
            .await
            .unwrap();
        let kind = ConsumerKind::Group;
        keys.push(ConsumerKey { kind, id: group.id });
    }
    let kind = ConsumerKind::Consumer;
    keys.push(ConsumerKey {
        kind,
        id: keys[0].id,
    });
    for key in &keys {
        store
            .set_offset(Arc::clone(&partition), *key, Some(0))
            .await
            .unwrap();
    }
    let (stream, topic) = place();
    let group = WireIdentifier::numeric(keys[0].id);
    store
        .change(Change::DeleteGroup {
            stream,
            topic,
            group,
        })
        .await
        .unwrap();
    let left: Vec<_> = keys.iter().map(|key| partition.offset(*key)).collect();
    assert_eq!(left, [None, Some(0), Some(0)]);
}
