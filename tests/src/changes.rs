//! What others do to an Iggy server, done with Iggy's own SDK: they produce, and make and delete topics.
//!
//! Always holds: each call uses a connection of its own, and has been confirmed by the server when it returns.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;

use iggy::prelude::{
    Durability, HeaderKey, HeaderValue, IggyError, IggyMessage, MessageClient, Partitioning,
    StreamClient, TopicClient, TopicCreateOptions,
};

use crate::config::Target;
use crate::ports::unique_name;
use crate::records::{Header, Reader, name};

impl Reader {
    /// Sends one message as any Iggy producer would, with a key that chooses the partition.
    ///
    /// # Panics
    /// When the server does not take it.
    pub fn produce(&self, stream: &str, topic: &str, key: &str, payload: &str) {
        self.produce_all(stream, topic, &[(key, payload)]);
    }

    /// Sends messages with the SDK's own producer, each a key, which chooses the partition, and a payload.
    ///
    /// # Panics
    /// When the server does not take one.
    pub fn produce_all(&self, stream: &str, topic: &str, messages: &[(&str, &str)]) {
        self.with(async |client| {
            let producer = client
                .producer(stream, topic)?
                .do_not_create_stream_if_not_exists()
                .do_not_create_topic_if_not_exists()
                .build();
            producer.init().await?;
            for (key, payload) in messages {
                let partitioning = Partitioning::messages_key_str(key)?;
                producer
                    .send_with_partitioning(
                        vec![IggyMessage::from_str(payload)?],
                        Some(Arc::new(partitioning)),
                    )
                    .await?;
            }
            producer.shutdown().await;
            Ok(())
        })
        .unwrap_or_else(|error| panic!("cannot produce to {stream}/{topic}: {error}"));
    }

    /// Sends messages to one partition as any Iggy producer would, each a payload with user headers.
    ///
    /// # Panics
    /// When the server does not take them.
    pub fn produce_with_headers(
        &self,
        stream: &str,
        topic: &str,
        partition: u32,
        messages: &[(&str, &[(&str, Header)])],
    ) {
        self.with(async |client| {
            let mut messages = messages
                .iter()
                .map(|(payload, headers)| with_headers(payload, headers))
                .collect::<Result<Vec<_>, _>>()?;
            client
                .send_messages(
                    &name(stream)?,
                    &name(topic)?,
                    &Partitioning::partition_id(partition),
                    &mut messages,
                )
                .await
                .map(|_| ())
        })
        .unwrap_or_else(|error| panic!("cannot produce to {stream}/{topic}: {error}"));
    }

    /// Makes a topic as the gateway would, and its stream if there is none.
    ///
    /// # Errors
    /// When the server refuses.
    pub fn create(&self, target: &Target) -> Result<(), IggyError> {
        self.with(async |client| {
            let exists = client.get_stream(&name(&target.stream)?).await?.is_some();
            if !exists {
                client.create_stream(&target.stream).await?;
            }
            let options = TopicCreateOptions {
                partitions_count: Some(target.partitions),
                durability: match target.persisted {
                    true => Durability::Persisted,
                    false => Durability::Replicated,
                },
                ..TopicCreateOptions::default()
            };
            client
                .create_topic(&name(&target.stream)?, &target.topic, &options)
                .await
                .map(|_| ())
        })
    }

    /// Whether the server lets this SDK create topics as the gateway does.
    pub(crate) fn can_create_topics(&self) -> bool {
        let probe = Target::new(&unique_name(), "probe", 1);
        let created = self.create(&probe);
        let _ = self.with(async |client| client.delete_stream(&name(&probe.stream)?).await);
        created.is_ok()
    }

    /// Deletes a topic and what is stored in it.
    ///
    /// # Panics
    /// When the server refuses.
    pub fn delete_topic(&self, stream: &str, topic: &str) {
        self.with(async |client| client.delete_topic(&name(stream)?, &name(topic)?).await)
            .unwrap_or_else(|error| panic!("cannot delete {stream}/{topic}: {error}"));
    }

    /// Deletes a stream and all its topics.
    ///
    /// # Panics
    /// When the server refuses.
    pub fn delete_stream(&self, stream: &str) {
        self.with(async |client| client.delete_stream(&name(stream)?).await)
            .unwrap_or_else(|error| panic!("cannot delete stream {stream}: {error}"));
    }
}

fn with_headers(payload: &str, headers: &[(&str, Header)]) -> Result<IggyMessage, IggyError> {
    let headers = headers
        .iter()
        .map(|(key, value)| {
            let value = match value {
                Header::Text(text) | Header::Other(text) => HeaderValue::from_str(text)?,
                Header::U8(number) => HeaderValue::from(*number),
                Header::U16(number) => HeaderValue::from(*number),
                Header::Bool(truth) => HeaderValue::from(*truth),
            };
            Ok((HeaderKey::from_str(key)?, value))
        })
        .collect::<Result<BTreeMap<_, _>, IggyError>>()?;
    IggyMessage::builder()
        .payload(payload.to_owned().into())
        .user_headers(headers)
        .build()
}
