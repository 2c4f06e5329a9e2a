//! What is stored in Iggy, read with Iggy's own SDK at its lowest level: no consumer, no stored offset, every partition
//! from its beginning.
//!
//! Always holds: reading changes nothing on the server, and each call uses a connection of its own, so a server that was
//! killed in between does not matter.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use iggy::prelude::{
    Client, Consumer, ConsumerOffsetClient, GlobalPermissions, HeaderKey, HeaderKind, HeaderValue,
    Identifier, IggyClient, IggyClientBuilder, IggyError, IggyMessage, MessageClient, Permissions,
    PollingStrategy, StreamClient, TopicClient, TopicDetails, UserClient, UserStatus,
};
use tokio::runtime::{Builder, Runtime};

use crate::binaries::{self, IggyChoice};
use crate::wait;

const DEADLINE: Duration = Duration::from_secs(20);
const POLL: u32 = 1_000;

/// The value of a user header, of the kinds that the gateway writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Header {
    /// A string.
    Text(String),
    /// A `u8`.
    U8(u8),
    /// A `u16`.
    U16(u16),
    /// A boolean.
    Bool(bool),
    /// Any other kind, as text.
    Other(String),
}

/// One stored message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The partition, from 0.
    pub partition: u32,
    /// The offset in the partition.
    pub offset: u64,
    /// The message id.
    pub id: u128,
    /// The user headers.
    pub headers: BTreeMap<String, Header>,
    /// The payload.
    pub payload: Vec<u8>,
}

impl Record {
    /// The text of a header; empty when there is none of this name.
    pub fn text(&self, header: &str) -> &str {
        match self.headers.get(header) {
            Some(Header::Text(text)) => text,
            _ => "",
        }
    }

    /// The payload as text.
    pub fn payload_text(&self) -> String {
        String::from_utf8_lossy(&self.payload).into_owned()
    }
}

/// Reads what a server has stored.
#[derive(Debug)]
pub struct Reader {
    runtime: Runtime,
    address: SocketAddr,
}

impl Reader {
    /// A reader for the server at `address`; connects with each call.
    ///
    /// # Panics
    /// When the operating system gives no threads.
    pub fn new(address: SocketAddr) -> Self {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime for the SDK");
        Self { runtime, address }
    }

    /// Waits until a login works.
    ///
    /// # Panics
    /// When it does not within `deadline`.
    pub fn wait_until_served(&self, deadline: Duration) {
        wait::until("Iggy lets a user log in", deadline, || {
            self.with(async |client| client.get_streams().await.map(|_| ()))
                .is_ok()
        });
    }

    /// Makes a user who may read every stream and append to none. Says whether the server has users; the sandbox has not.
    ///
    /// # Panics
    /// When a server that has users refuses.
    pub fn make_reading_user(&self, name: &str, password: &str) -> bool {
        let permissions = Permissions {
            global: GlobalPermissions {
                read_streams: true,
                read_topics: true,
                poll_messages: true,
                ..GlobalPermissions::default()
            },
            streams: None,
        };
        let made = self.with(async move |client| {
            client
                .create_user(name, password, UserStatus::Active, Some(permissions))
                .await
        });
        match made {
            Ok(_) => true,
            Err(_) if matches!(binaries::iggy_choice(), IggyChoice::Sandbox) => false,
            Err(error) => panic!("cannot make the user {name}: {error}"),
        }
    }

    /// Every message of a topic, partition by partition in offset order; empty when there is no such topic.
    ///
    /// # Panics
    /// When the server does not answer.
    pub fn records(&self, stream: &str, topic: &str) -> Vec<Record> {
        self.with(async |client| read_topic(client, stream, topic).await)
            .unwrap_or_else(|error| panic!("cannot read {stream}/{topic} from Iggy: {error}"))
    }

    /// What a consumer has committed on each partition of a topic.
    ///
    /// # Panics
    /// When the server does not answer or there is no such topic.
    pub fn committed(&self, stream: &str, topic: &str, consumer: &str) -> Vec<Option<u64>> {
        self.with(async |client| {
            let (stream, topic) = (name(stream)?, name(topic)?);
            let details = client.get_topic(&stream, &topic).await?;
            let partitions = details.map_or(0, |details| details.partitions_count);
            let consumer = Consumer::new(name(consumer)?);
            let mut committed = Vec::new();
            for partition in 0..partitions {
                let offset = client
                    .get_consumer_offset(&consumer, &stream, &topic, Some(partition))
                    .await;
                committed.push(match offset {
                    Ok(offset) => offset.map(|offset| offset.stored_offset),
                    Err(
                        IggyError::ConsumerOffsetNotFound(_) | IggyError::NotResolvedConsumer(_),
                    ) => None,
                    Err(error) => return Err(error),
                });
            }
            Ok(committed)
        })
        .unwrap_or_else(|error| panic!("cannot read the offsets of {consumer}: {error}"))
    }

    /// Waits until a topic holds at least `count` messages that fit, and gives all that fit.
    ///
    /// # Panics
    /// When it does not hold them in time.
    pub fn wait_for(
        &self,
        stream: &str,
        topic: &str,
        count: usize,
        fits: impl Fn(&Record) -> bool,
    ) -> Vec<Record> {
        wait::value(
            &format!("{stream}/{topic} holds {count} messages of the test"),
            wait::PATIENCE,
            || {
                let mut records = self.records(stream, topic);
                records.retain(&fits);
                (records.len() >= count).then_some(records)
            },
        )
    }

    /// Every message of every topic of a stream.
    ///
    /// # Panics
    /// When the server does not answer.
    pub fn stream_records(&self, stream: &str) -> Vec<Record> {
        self.with(async |client| {
            let Some(details) = client.get_stream(&name(stream)?).await? else {
                return Ok(Vec::new());
            };
            let mut records = Vec::new();
            for topic in details.topics {
                records.extend(read_topic(client, stream, &topic.name).await?);
            }
            Ok(records)
        })
        .unwrap_or_else(|error| panic!("cannot read stream {stream} from Iggy: {error}"))
    }

    /// The topic as the server describes it; nothing when it or its stream is not there.
    ///
    /// # Panics
    /// When the server does not answer.
    pub fn topic(&self, stream: &str, topic: &str) -> Option<TopicDetails> {
        self.with(async |client| {
            if client.get_stream(&name(stream)?).await?.is_none() {
                return Ok(None);
            }
            client.get_topic(&name(stream)?, &name(topic)?).await
        })
        .unwrap_or_else(|error| panic!("cannot describe {stream}/{topic}: {error}"))
    }

    /// Whether there is such a stream.
    ///
    /// # Panics
    /// When the server does not answer.
    pub fn has_stream(&self, stream: &str) -> bool {
        self.with(async |client| client.get_stream(&name(stream)?).await)
            .unwrap_or_else(|error| panic!("cannot describe stream {stream}: {error}"))
            .is_some()
    }

    pub(crate) fn with<T>(
        &self,
        work: impl AsyncFnOnce(&IggyClient) -> Result<T, IggyError>,
    ) -> Result<T, IggyError> {
        self.runtime.block_on(async {
            limited(async {
                let client = connect(self.address).await?;
                let result = work(&client).await;
                let _ = client.disconnect().await;
                result
            })
            .await
        })
    }
}

async fn limited<T>(work: impl Future<Output = Result<T, IggyError>>) -> Result<T, IggyError> {
    tokio::time::timeout(DEADLINE, work)
        .await
        .unwrap_or(Err(IggyError::Disconnected))
}

async fn connect(address: SocketAddr) -> Result<IggyClient, IggyError> {
    let user = binaries::username();
    let password = binaries::password();
    let client = IggyClientBuilder::from_connection_string(&format!(
        "iggy://{user}:{password}@{address}?nodelay=true"
    ))?
    .build()?;
    client.connect().await?;
    Ok(client)
}

async fn read_topic(
    client: &IggyClient,
    stream: &str,
    topic: &str,
) -> Result<Vec<Record>, IggyError> {
    if client.get_stream(&name(stream)?).await?.is_none() {
        return Ok(Vec::new());
    }
    let Some(details) = client.get_topic(&name(stream)?, &name(topic)?).await? else {
        return Ok(Vec::new());
    };
    let mut records = Vec::new();
    for partition in 0..details.partitions_count {
        let mut offset = 0;
        loop {
            let polled = client
                .poll_messages(
                    &name(stream)?,
                    &name(topic)?,
                    Some(partition),
                    &Consumer::new(name("e2e_reader")?),
                    &PollingStrategy::offset(offset),
                    POLL,
                    false,
                )
                .await?;
            let Some(last) = polled.messages.last() else {
                break;
            };
            offset = last.header.offset + 1;
            for message in &polled.messages {
                records.push(record(partition, message)?);
            }
        }
    }
    Ok(records)
}

fn record(partition: u32, message: &IggyMessage) -> Result<Record, IggyError> {
    let headers = message.user_headers_map()?.unwrap_or_default();
    Ok(Record {
        partition,
        offset: message.header.offset,
        id: message.header.id,
        headers: headers
            .iter()
            .map(|(key, value)| (key_text(key), header(value)))
            .collect(),
        payload: message.payload.to_vec(),
    })
}

fn key_text(key: &HeaderKey) -> String {
    key.as_str()
        .map_or_else(|_| key.to_string_value(), str::to_owned)
}

fn header(value: &HeaderValue) -> Header {
    let known = match value.kind() {
        HeaderKind::String => value.as_str().map(|text| Header::Text(text.to_owned())),
        HeaderKind::Uint8 => value.as_uint8().map(Header::U8),
        HeaderKind::Uint16 => value.as_uint16().map(Header::U16),
        HeaderKind::Bool => value.as_bool().map(Header::Bool),
        _ => Ok(Header::Other(value.to_string_value())),
    };
    known.unwrap_or_else(|_| Header::Other(value.to_string_value()))
}

pub(crate) fn name(name: &str) -> Result<Identifier, IggyError> {
    Identifier::named(name)
}
