//! The log in Apache Iggy, over the crate `iggy` and those that it is made of (the only place that names them).
//!
//! What always holds: an append returns `Ok` only after the server confirmed it; a request whose outcome is unknown ends in a
//! transient error and its connection is not used again; no request waits for a server that is known to be away; polls and
//! commits have connections of their own, so appends cannot starve them, nor they the appends; a connection whose reply
//! could not be understood is not used again, because the rest of that reply may still be on it.
//!
//! How the work is split: `pool` lends connections and rebuilds them, `connection` makes one, `records` and `topics` translate,
//! `polls` checks what a poll brought, `errors` judges what went wrong.

mod connection;
mod errors;
mod polls;
mod pool;
mod records;
#[cfg(test)]
mod tests;
mod topics;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ::iggy::prelude::{
    Consumer, ConsumerOffsetClient, Identifier, IggyError, IggyTimestamp, MessageClient,
    Partitioning, PollingStrategy, StreamClient, SystemClient, TcpClient, TopicClient,
};
use async_trait::async_trait;
use iggy_binary_protocol::requests::messages::PollMessagesRequest;
use iggy_common::BinaryTransport;
use iggy_common::wire_conversions::{
    consumer_to_wire, identifier_to_wire, polling_strategy_to_wire,
};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::limited::Limited;

use super::{Log, LogError, Polled, Record, Target, TopicInfo, TopicSpec, Triple};
use connection::Dialer;
use errors::{Class, class, is_unreadable};
use polls::{Compare, Damage, Poll};
use pool::{Dial, Pool};

/// How long checking somebody's user name and password may take.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a description was not taken.
const UNREADABLE: &str = "its reply cannot be understood";

/// Where Iggy is and how it is used.
#[derive(Clone)]
pub struct IggyLogConfig {
    /// `host:port` of the server's TCP listener; the host may be a name.
    pub address: String,
    /// The user to log in as.
    pub username: String,
    /// The user's password. Not shown by `Debug`.
    pub password: String,
    /// Connections for appends and administration, as many again for polls and commits, and as many for those who are
    /// behind. At least 1.
    pub connections: usize,
    /// How long one answer may take, and how long a request may wait for a connection.
    pub request_timeout: Duration,
}

impl IggyLogConfig {
    /// The default of `request_timeout`. An append that is given up earlier than it has to be is stored twice.
    pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
}

impl fmt::Debug for IggyLogConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IggyLogConfig")
            .field("address", &self.address)
            .field("username", &self.username)
            .field("connections", &self.connections)
            .field("request_timeout", &self.request_timeout)
            .finish_non_exhaustive()
    }
}

/// The log in Apache Iggy. Its connections end when it is closed or dropped.
pub struct IggyLog {
    dialer: Arc<Dialer>,
    /// For appends and administration.
    writers: Pool<Dialer>,
    /// For polls and committed offsets.
    readers: Pool<Dialer>,
    /// Whether the checksums of polled batches fit, if nothing is damaged.
    compare_batches: AtomicBool,
    /// Log lines about what Iggy has stored damaged, each time that it is read.
    damaged: Limited,
    /// For those who are behind. Its connections are made when they are needed.
    rereaders: Pool<Dialer>,
    request_timeout: Duration,
}

impl IggyLog {
    /// A client that connects when it is first used. Does no I/O.
    pub fn new(config: IggyLogConfig) -> Self {
        let IggyLogConfig {
            address,
            username,
            password,
            connections,
            request_timeout,
        } = config;
        let dialer = Arc::new(Dialer::new(address, username, password));
        let back = Arc::new(Notify::new());
        let pool = || Pool::new(dialer.clone(), connections, request_timeout, back.clone());
        Self {
            writers: pool(),
            readers: pool(),
            compare_batches: AtomicBool::new(true),
            damaged: Limited::default(),
            rereaders: pool(),
            dialer,
            request_timeout,
        }
    }

    /// Waits until the first connection is made and logged in, or until the first attempt has failed. Goes on trying either
    /// way, until the client is dropped.
    ///
    /// # Errors
    /// [`LogError::BadCredentials`], [`LogError::Unreachable`], or [`LogError::Refused`] if the server speaks another version
    /// of the protocol.
    pub async fn connect(&self) -> Result<(), LogError> {
        self.writers.connect().await
    }

    /// Makes a request on one of the pool's connections and decides what becomes of the connection.
    ///
    /// # Errors
    /// The outer error: nothing was sent, or no answer came. The inner error: the SDK's or the server's answer.
    async fn ask<T, R>(
        &self,
        pool: &Pool<Dialer>,
        request: impl FnOnce(Arc<TcpClient>) -> R + Send,
    ) -> Result<Result<T, IggyError>, LogError>
    where
        R: Future<Output = Result<T, IggyError>> + Send,
    {
        let lease = pool.lease().await?;
        let Ok(answer) = timeout(self.request_timeout, request(lease.connection())).await else {
            // The exchange goes on in a task of the SDK and may still be done.
            drop(lease);
            return Err(LogError::Timeout(self.request_timeout));
        };
        match &answer {
            Err(error) if class(error) == Class::Broken => lease.broken(),
            Err(error) if is_unreadable(error) => drop(lease),
            _ => lease.give_back(),
        }
        Ok(answer)
    }

    fn explain<'a, T: fmt::Display>(&'a self, about: &'a T) -> impl Fn(IggyError) -> LogError + 'a {
        move |error| self.dialer.explain(&error, &about.to_string())
    }

    /// As [`Self::explain`], for requests whose reply describes something: that description is what cannot be read then, so
    /// the request may be made again.
    fn explain_details<'a, T: fmt::Display>(
        &'a self,
        about: &'a T,
    ) -> impl Fn(IggyError) -> LogError + 'a {
        move |error| match is_unreadable(&error) {
            true => self.dialer.unreachable(UNREADABLE),
            false => self.explain(about)(error),
        }
    }

    fn identifiers(&self, target: &Target) -> Result<(Identifier, Identifier), LogError> {
        let named = |name: &str| Identifier::named(name).map_err(self.explain(target));
        Ok((
            named(target.stream.as_str())?,
            named(target.topic.as_str())?,
        ))
    }

    async fn read(
        &self,
        pool: &Pool<Dialer>,
        triple: &Triple,
        strategy: PollingStrategy,
        max: u32,
    ) -> Result<Polled, LogError> {
        let (stream, topic) = self.identifiers(&triple.target)?;
        let request = || -> Result<PollMessagesRequest, IggyError> {
            Ok(PollMessagesRequest {
                // Any consumer will do: without a commit the server keeps nothing of it.
                consumer: consumer_to_wire(&Consumer::default())?,
                stream_id: identifier_to_wire(&stream)?,
                topic_id: identifier_to_wire(&topic)?,
                partition_id: Some(triple.partition),
                strategy: polling_strategy_to_wire(&strategy),
                count: max,
                auto_commit: false,
            })
        };
        let request = request().map_err(self.explain(triple))?;
        let mut polled = self.ask_poll(pool, triple, &request).await?;
        if !polled.damage.is_empty() {
            let again = self.ask_poll(pool, triple, &request).await?;
            if !again.damage.iter().all(|one| polled.damage.contains(one)) {
                return Err(self
                    .dialer
                    .unreachable("what it sent does not fit its checksums"));
            }
            // What is the same twice was not damaged on its way, so asking once more would not mend it.
            match again.damage.iter().find_map(Damage::offset) {
                Some(offset) => {
                    if let Some(left_out) = self.damaged.allow(Instant::now()) {
                        tracing::warn!(stream = %triple.target.stream, topic = %triple.target.topic, partition = triple.partition, offset, left_out, "Iggy has stored a record that does not fit its checksum; it is delivered as it is");
                    }
                }
                None if again.damage.is_empty() => {}
                None => self.compare_batches.store(false, Ordering::Relaxed),
            }
            polled = again;
        }
        let Poll {
            messages,
            newest_offset,
            ..
        } = polled;
        Ok(Polled {
            records: messages.into_iter().map(records::decode).collect(),
            newest_offset,
        })
    }

    /// Without the SDK's own decoding, which trusts what the reply says.
    async fn ask_poll(
        &self,
        pool: &Pool<Dialer>,
        triple: &Triple,
        request: &PollMessagesRequest,
    ) -> Result<Poll, LogError> {
        let compare = match self.compare_batches.load(Ordering::Relaxed) {
            true => Compare::All,
            false => Compare::Messages,
        };
        let poll = |client: Arc<TcpClient>| async move {
            let reply = client.send_poll_with_response(request).await?;
            polls::decode(reply, triple.partition, compare)
        };
        self.ask(pool, poll).await?.map_err(self.explain(triple))
    }

    async fn poll_in(
        &self,
        pool: &Pool<Dialer>,
        triple: &Triple,
        from: u64,
        max: u32,
    ) -> Result<Polled, LogError> {
        let mut polled = self
            .read(pool, triple, PollingStrategy::offset(from), max.max(1))
            .await?;
        polled.records.retain(|record| record.offset >= from);
        polled.records.truncate(max as usize);
        Ok(polled)
    }

    async fn create_stream(&self, target: &Target, stream: Identifier) -> Result<(), LogError> {
        let get = |client: Arc<TcpClient>| async move { client.get_stream(&stream).await };
        match self.ask(&self.writers, get).await? {
            Ok(Some(_)) => return Ok(()),
            Ok(None) => {}
            Err(error) if class(&error) == Class::Missing => {}
            Err(error) => return Err(self.explain_details(&target.stream)(error)),
        }
        let name = target.stream.clone();
        let create =
            |client: Arc<TcpClient>| async move { client.create_stream(name.as_str()).await };
        match self.ask(&self.writers, create).await? {
            Ok(_) | Err(IggyError::StreamNameAlreadyExists(_)) => Ok(()),
            Err(error) => Err(self.explain(&target.stream)(error)),
        }
    }
}

impl fmt::Debug for IggyLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IggyLog")
            .field("dialer", &self.dialer)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Log for IggyLog {
    async fn ping(&self) -> Result<(), LogError> {
        let ping = |client: Arc<TcpClient>| async move { client.ping().await };
        self.ask(&self.writers, ping)
            .await?
            .map_err(self.explain(&"ping"))
    }

    async fn login(&self, username: &str, password: &str) -> Result<(), LogError> {
        match timeout(LOGIN_TIMEOUT, self.dialer.login(username, password)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(LogError::Timeout(LOGIN_TIMEOUT)),
        }
    }

    async fn topic(&self, target: &Target) -> Result<Option<TopicInfo>, LogError> {
        let (stream, topic) = self.identifiers(target)?;
        let get = |client: Arc<TcpClient>| async move { client.get_topic(&stream, &topic).await };
        match self.ask(&self.writers, get).await? {
            Ok(details) => Ok(details.as_ref().map(topics::info)),
            Err(error) if class(&error) == Class::Missing => Ok(None),
            Err(error) => Err(self.explain_details(target)(error)),
        }
    }

    async fn create(&self, target: &Target, spec: &TopicSpec) -> Result<TopicInfo, LogError> {
        let options = topics::create_options(spec)?;
        if let Some(info) = self.topic(target).await? {
            return Ok(info);
        }
        let (stream, _) = self.identifiers(target)?;
        self.create_stream(target, stream.clone()).await?;
        let name = target.topic.clone();
        let create = |client: Arc<TcpClient>| async move {
            client.create_topic(&stream, name.as_str(), &options).await
        };
        match self.ask(&self.writers, create).await? {
            Ok(details) => Ok(topics::info(&details)),
            Err(IggyError::TopicNameAlreadyExists(..)) => self
                .topic(target)
                .await?
                .ok_or_else(|| LogError::NoSuchTarget(target.to_string())),
            Err(error) => Err(topics::explain_creation(&error, target)
                .unwrap_or_else(|| self.explain(target)(error))),
        }
    }

    async fn append(&self, triple: &Triple, records: &[Record]) -> Result<(), LogError> {
        if records.is_empty() {
            return Ok(());
        }
        let mut messages = records::encode(records)?;
        let (stream, topic) = self.identifiers(&triple.target)?;
        let partitioning = Partitioning::partition_id(triple.partition);
        let send = |client: Arc<TcpClient>| async move {
            client
                .send_messages(&stream, &topic, &partitioning, &mut messages)
                .await
        };
        self.ask(&self.writers, send)
            .await?
            .map(drop)
            .map_err(self.explain(triple))
    }

    async fn poll(&self, triple: &Triple, from: u64, max: u32) -> Result<Polled, LogError> {
        self.poll_in(&self.readers, triple, from, max).await
    }

    async fn reread(&self, triple: &Triple, from: u64, max: u32) -> Result<Polled, LogError> {
        self.poll_in(&self.rereaders, triple, from, max).await
    }

    async fn end(&self, triple: &Triple) -> Result<u64, LogError> {
        let polled = self
            .read(&self.readers, triple, PollingStrategy::last(), 1)
            .await?;
        // An empty partition answers with the newest offset 0, as one does that has a single record. If retention has removed
        // everything, the newest offset stays, so anything above 0 was given to a record once.
        let newest = polled
            .records
            .last()
            .map(|record| record.offset)
            .max((polled.newest_offset > 0).then_some(polled.newest_offset));
        Ok(newest.map_or(0, |offset| offset + 1))
    }

    async fn stored_within(&self, triple: &Triple, age: Duration) -> Result<u64, LogError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let oldest = now.unwrap_or_default().saturating_sub(age);
        let oldest = u64::try_from(oldest.as_micros()).unwrap_or(u64::MAX);
        let strategy = PollingStrategy::timestamp(IggyTimestamp::from(oldest));
        let polled = self.read(&self.readers, triple, strategy, 1).await?;
        match polled.records.first() {
            Some(record) => Ok(record.offset),
            None => self.end(triple).await,
        }
    }

    async fn committed(&self, triple: &Triple, consumer: &str) -> Result<Option<u64>, LogError> {
        let (stream, topic) = self.identifiers(&triple.target)?;
        let partition = Some(triple.partition);
        let consumer = Consumer::new(Identifier::named(consumer).map_err(self.explain(triple))?);
        let get = |client: Arc<TcpClient>| async move {
            client
                .get_consumer_offset(&consumer, &stream, &topic, partition)
                .await
        };
        match self.ask(&self.readers, get).await? {
            Ok(offset) => Ok(offset.map(|offset| offset.stored_offset)),
            Err(IggyError::ConsumerOffsetNotFound(_) | IggyError::NotResolvedConsumer(_)) => {
                Ok(None)
            }
            Err(error) => Err(self.explain_details(triple)(error)),
        }
    }

    async fn commit(&self, triple: &Triple, consumer: &str, offset: u64) -> Result<(), LogError> {
        let (stream, topic) = self.identifiers(&triple.target)?;
        let partition = Some(triple.partition);
        let consumer = Consumer::new(Identifier::named(consumer).map_err(self.explain(triple))?);
        let store = |client: Arc<TcpClient>| async move {
            client
                .store_consumer_offset(&consumer, &stream, &topic, partition, offset)
                .await
        };
        self.ask(&self.readers, store)
            .await?
            .map_err(self.explain(triple))
    }

    async fn forget(&self, triple: &Triple, consumer: &str) -> Result<(), LogError> {
        let (stream, topic) = self.identifiers(&triple.target)?;
        let partition = Some(triple.partition);
        let consumer = Consumer::new(Identifier::named(consumer).map_err(self.explain(triple))?);
        let delete = |client: Arc<TcpClient>| async move {
            client
                .delete_consumer_offset(&consumer, &stream, &topic, partition)
                .await
        };
        match self.ask(&self.readers, delete).await? {
            Err(IggyError::ConsumerOffsetNotFound(_) | IggyError::NotResolvedConsumer(_)) => Ok(()),
            answer => answer.map_err(self.explain(triple)),
        }
    }

    async fn close(&self) {
        self.writers.close();
        self.readers.close();
        self.rereaders.close();
    }
}
