//! The log that everything is stored in and read from, as the gateway sees it: the trait [`Log`] and its words.
//!
//! What always holds: [`Log::append`] returns `Ok` only when the whole batch is committed under its topic's durability
//! policy; a transient [`LogError`] says that the outcome may be unknown, so a retry must carry the same record ids; a
//! poll never commits anything. [`iggy`] is the only module that names the Iggy SDK; `memory` is a log for tests.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use bytestring::ByteString;

pub mod appends;
pub mod iggy;
#[cfg(any(test, fuzzing))]
pub mod memory;

/// The longest name of a stream, topic or consumer, in bytes (Iggy 0.9).
pub const MAX_NAME_BYTES: usize = 255;
/// The most partitions of one topic (Iggy 0.9).
pub const MAX_PARTITIONS: u32 = 1000;
/// The largest payload of one record, in bytes (Iggy 0.9). The smallest is 1: Iggy stores no empty payload.
pub const MAX_PAYLOAD_BYTES: usize = 64_000_000;
/// The longest value of one header, in bytes (Iggy 0.9).
pub const MAX_HEADER_VALUE_BYTES: usize = 255;

/// The name of a stream or topic: 1 to 255 bytes. Cloning shares the text.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Arc<str>);

impl Name {
    /// `None` if `text` is empty or longer than [`MAX_NAME_BYTES`].
    pub fn new(text: &str) -> Option<Self> {
        (!text.is_empty() && text.len() <= MAX_NAME_BYTES).then(|| Self(Arc::from(text)))
    }

    /// A name that the gateway has chosen itself.
    ///
    /// # Panics
    /// If it is none.
    pub(crate) fn constant(text: &'static str) -> Self {
        assert!(!text.is_empty() && text.len() <= MAX_NAME_BYTES);
        Self(Arc::from(text))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// A topic of a stream: where records of one kind are stored.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Target {
    /// The Iggy stream.
    pub stream: Name,
    /// The Iggy topic in that stream.
    pub topic: Name,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.stream, self.topic)
    }
}

/// One partition of a topic: the unit of order, of lanes and of readers. Partitions are numbered from 0.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Triple {
    /// The topic.
    pub target: Target,
    /// The partition's number.
    pub partition: u32,
}

impl fmt::Display for Triple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.target, self.partition)
    }
}

/// What a confirmed append promises; a policy of the topic, set when it is created.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Default,
    serde::Serialize,
    serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// Committed: on one server that is its memory, in a cluster a quorum's.
    Commit,
    /// On stable storage.
    #[default]
    Persisted,
}

/// How long a topic keeps a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Expiry {
    /// As long as the server does by default.
    #[default]
    ServerDefault,
    /// For ever.
    Never,
    /// For this long, at least a microsecond.
    After(Duration),
}

/// How large a topic may become before the server removes its oldest records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TopicSize {
    /// As large as the server lets it by default.
    #[default]
    ServerDefault,
    /// As large as there is room.
    Unlimited,
    /// This many bytes, at least 1.
    Bytes(u64),
}

/// How a topic is made when it is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicSpec {
    /// Number of partitions, at least 1.
    pub partitions: u32,
    /// The policy to ask for.
    pub durability: Durability,
    /// How long a record is kept.
    pub message_expiry: Expiry,
    /// How large the topic may become.
    pub max_topic_size: TopicSize,
}

impl Default for TopicSpec {
    fn default() -> Self {
        Self {
            partitions: 1,
            durability: Durability::default(),
            message_expiry: Expiry::default(),
            max_topic_size: TopicSize::default(),
        }
    }
}

/// What the log says of a topic that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopicInfo {
    /// Number of partitions, at least 1.
    pub partitions: u32,
    /// Its policy; `None` if the server does not say.
    pub durability: Option<Durability>,
    /// When it was made, in microseconds since the Unix epoch: what tells it from a topic of the same name that was made
    /// anew.
    pub created_micros: u64,
}

/// The value of a record's header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeaderValue {
    /// 1 to 255 bytes of UTF-8.
    Text(ByteString),
    /// One byte as a number.
    U8(u8),
    /// Two bytes as a number.
    U16(u16),
    /// A truth value.
    Bool(bool),
    /// Of a kind that the gateway does not write, as stored.
    Other(Bytes),
}

/// A record's headers, in the order of their keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Headers(Vec<(ByteString, HeaderValue)>);

impl Headers {
    /// Room for `count` headers.
    pub fn with_capacity(count: usize) -> Self {
        Self(Vec::with_capacity(count))
    }

    /// Sets `key`, replacing what it had. Quickest in the order of the keys.
    pub fn insert(&mut self, key: ByteString, value: HeaderValue) {
        if self.0.last().is_none_or(|(last, _)| *last < key) {
            return self.0.push((key, value));
        }
        match self
            .0
            .binary_search_by(|(k, _)| k.as_bytes().cmp(key.as_bytes()))
        {
            Ok(at) => self.0[at].1 = value,
            Err(at) => self.0.insert(at, (key, value)),
        }
    }

    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&HeaderValue> {
        self.0
            .binary_search_by(|(k, _)| (**k).cmp(key))
            .ok()
            .map(|at| &self.0[at].1)
    }

    /// All headers in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &HeaderValue)> {
        self.0.iter().map(|(key, value)| (&**key, value))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A record to append. Cloning shares the payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Unique per record and the same in every retry of its append.
    pub id: u128,
    /// Its headers.
    pub headers: Headers,
    /// 1 to [`MAX_PAYLOAD_BYTES`] bytes.
    pub payload: Bytes,
}

impl Record {
    /// About how many bytes the record takes in memory and in a request.
    pub fn size(&self) -> usize {
        const FRAME: usize = 64;
        FRAME
            + self.payload.len()
            + self
                .headers
                .iter()
                .map(|(k, v)| {
                    k.len()
                        + 16
                        + if let HeaderValue::Text(t) = v {
                            t.len()
                        } else {
                            0
                        }
                })
                .sum::<usize>()
    }
}

/// A record as it was stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRecord {
    /// Its place in the partition.
    pub offset: u64,
    /// The id that it was appended with.
    pub id: u128,
    /// When the server stored it, in microseconds since the Unix epoch.
    pub timestamp_micros: u64,
    /// Its headers; empty if they could not be decoded.
    pub headers: Headers,
    /// Its payload.
    pub payload: Bytes,
}

/// The answer to a poll.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Polled {
    /// Records in the order of their offsets, all at or after the offset asked for.
    pub records: Vec<StoredRecord>,
    /// The partition's newest offset as the server gives it; 0 for an empty partition too.
    pub newest_offset: u64,
}

/// Why the log did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// Not connected, or the connection broke: what was in flight may or may not have been done.
    #[error("Iggy is not reachable at {address}: {reason}; start it, or correct iggy_address")]
    Unreachable {
        /// The server's address.
        address: String,
        /// What the client said.
        reason: String,
    },
    /// No answer in time: what was in flight may or may not have been done.
    #[error("Iggy did not answer within {0:?}")]
    Timeout(Duration),
    /// The server asked to try again later (leader change, overload).
    #[error("Iggy is busy: {0}")]
    Busy(String),
    /// The user name or password is wrong.
    #[error(
        "Iggy refuses the user {username:?}; correct iggy_username and iggy_password (or iggy_password_file)"
    )]
    BadCredentials {
        /// The user name that was tried.
        username: String,
    },
    /// The user may not do this.
    #[error("Iggy does not permit this to its user: {0}; give the user the permission in Iggy")]
    NotPermitted(String),
    /// The stream, topic or partition does not exist.
    #[error("{0} does not exist in Iggy")]
    NoSuchTarget(String),
    /// One of the records is over the server's limits.
    #[error("a record is over Iggy's limits: {0}")]
    TooLarge(String),
    /// The server refuses for a reason that a retry does not change.
    #[error("Iggy refuses the request: {0}")]
    Refused(String),
}

impl LogError {
    /// Whether the same request may succeed later without anyone changing anything.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. } | Self::Timeout(_) | Self::Busy(_)
        )
    }
}

/// A log of partitions. Every method may be called from many tasks at once; implementations bound their own concurrency.
#[async_trait]
pub trait Log: Send + Sync + 'static {
    /// Whether the log answers now.
    async fn ping(&self) -> Result<(), LogError>;

    /// Whether the log has this user with this password. Beside all else: on a connection of its own, which it closes.
    ///
    /// # Errors
    /// [`LogError::BadCredentials`] if not; others if it cannot be asked.
    async fn login(&self, username: &str, password: &str) -> Result<(), LogError>;

    /// What `target` is like; `None` if it, or its stream, does not exist.
    async fn topic(&self, target: &Target) -> Result<Option<TopicInfo>, LogError>;

    /// Makes `target`, and its stream if that is missing too. If another was quicker, says what it made.
    async fn create(&self, target: &Target, spec: &TopicSpec) -> Result<TopicInfo, LogError>;

    /// Appends `records` in their order, all or none.
    async fn append(&self, triple: &Triple, records: &[Record]) -> Result<(), LogError>;

    /// Reads at most `max` records from offset `from` on. Commits nothing.
    async fn poll(&self, triple: &Triple, from: u64, max: u32) -> Result<Polled, LogError>;

    /// As [`Log::poll`], for one who is behind and reads what was read before. However slow it is, it does not hold up
    /// polls.
    async fn reread(&self, triple: &Triple, from: u64, max: u32) -> Result<Polled, LogError> {
        self.poll(triple, from, max).await
    }

    /// The offset that the next record will get: 0 for an empty partition.
    async fn end(&self, triple: &Triple) -> Result<u64, LogError>;

    /// The offset of the oldest record that was stored within the last `age`, as far as the clocks here and there agree;
    /// the end if there is none.
    async fn stored_within(&self, triple: &Triple, age: Duration) -> Result<u64, LogError>;

    /// The offset that `consumer` has committed, if any.
    async fn committed(&self, triple: &Triple, consumer: &str) -> Result<Option<u64>, LogError>;

    /// Commits `offset` for `consumer`: everything up to and including it is done. It may be lower than the last.
    async fn commit(&self, triple: &Triple, consumer: &str, offset: u64) -> Result<(), LogError>;

    /// Removes what `consumer` has committed. That there is nothing is no error.
    async fn forget(&self, triple: &Triple, consumer: &str) -> Result<(), LogError>;

    /// Closes all connections. Requests after it fail as unreachable.
    async fn close(&self);
}
