//! How the topics of the measurements are made.
//!
//! Always holds: gateway and SDK append to the very same topics, which are made here and by nobody else, so that both meet
//! the same settings.
//!
//! Iggy servers before the release 0.9.0 refuse topics with a `durability` from the SDK 0.11. There they are made over the
//! HTTP API, with the options that such a server has for the same promise: `enforce_fsync` and `messages_required_to_save`.

use std::net::SocketAddr;

use iggy::prelude::{
    Durability, Identifier, IggyError, StreamClient, TcpClient, TopicClient, TopicCreateOptions,
};
use serde_json::{Value, json};

use super::http::{self, Reply};
use super::{PASSWORD, STREAM, StackError, USER};

/// A topic to be made in the stream [`STREAM`].
#[derive(Debug, Clone)]
pub(crate) struct Topic {
    /// Its name.
    pub(crate) name: String,
    /// How many partitions it gets.
    pub(crate) partitions: u32,
    /// Whether a confirmation means stable storage.
    pub(crate) persisted: bool,
}

/// Makes the stream and the topics. `http` is the server's HTTP API, if it has one.
///
/// # Errors
/// [`StackError::Iggy`], [`StackError::Http`].
pub(super) async fn create(
    client: &TcpClient,
    http: Option<SocketAddr>,
    topics: &[Topic],
) -> Result<(), StackError> {
    client
        .create_stream(STREAM)
        .await
        .map_err(|source| refused(format!("create the stream {STREAM}"), source))?;
    for topic in topics {
        match (create_topic(client, topic).await, http) {
            (Ok(()), _) => {}
            (Err(_), Some(http)) => create_over_http(http, topic)?,
            (Err(source), None) => {
                return Err(refused(format!("create the topic {}", topic.name), source));
            }
        }
    }
    Ok(())
}

/// How many messages a topic holds.
///
/// # Errors
/// [`StackError::Iggy`].
pub(super) async fn messages(client: &TcpClient, topic: &str) -> Result<u64, StackError> {
    let read = async {
        client
            .get_topic(&Identifier::named(STREAM)?, &Identifier::named(topic)?)
            .await?
            .ok_or(IggyError::ResourceNotFound(topic.to_owned()))
    };
    match read.await {
        Ok(details) => Ok(details.messages_count),
        Err(source) => Err(refused(format!("describe the topic {topic}"), source)),
    }
}

/// Removes all messages of a topic.
///
/// # Errors
/// [`StackError::Iggy`].
pub(super) async fn empty(client: &TcpClient, topic: &str) -> Result<(), StackError> {
    let purge = async {
        client
            .purge_topic(&Identifier::named(STREAM)?, &Identifier::named(topic)?)
            .await
    };
    purge
        .await
        .map_err(|source| refused(format!("empty the topic {topic}"), source))
}

async fn create_topic(client: &TcpClient, topic: &Topic) -> Result<(), IggyError> {
    let durability = if topic.persisted {
        Durability::Persisted
    } else {
        Durability::Replicated
    };
    let options = TopicCreateOptions {
        partitions_count: Some(topic.partitions),
        durability,
        consumer_offset_durability: durability,
        ..TopicCreateOptions::default()
    };
    let stream = Identifier::named(STREAM)?;
    client
        .create_topic(&stream, &topic.name, &options)
        .await
        .map(drop)
}

fn create_over_http(http: SocketAddr, topic: &Topic) -> Result<(), StackError> {
    let login = json!({"username": USER, "password": PASSWORD});
    let reply = post(http, "/users/login", None, &login)?;
    let session = reply.json();
    let token = session
        .pointer("/access_token/token")
        .and_then(Value::as_str)
        .ok_or_else(|| not_done("log a user in", &reply))?;
    let options = if topic.persisted {
        json!({"enforce_fsync": "true", "messages_required_to_save": "1"})
    } else {
        json!({})
    };
    let body = json!({
        "name": topic.name,
        "partitions_count": topic.partitions,
        "compression_algorithm": "none",
        "message_expiry": 0,
        "max_topic_size": 0,
        "options": options,
    });
    let path = format!("/streams/{STREAM}/topics");
    let reply = post(http, &path, Some(token), &body)?;
    if reply.status < 300 {
        Ok(())
    } else {
        Err(not_done(
            &format!("create the topic {}", topic.name),
            &reply,
        ))
    }
}

fn post(
    http: SocketAddr,
    path: &str,
    token: Option<&str>,
    body: &Value,
) -> Result<Reply, StackError> {
    http::request(http, "POST", path, token, Some(body)).map_err(|error| StackError::Http {
        what: format!("answer POST {path}"),
        reason: error.to_string(),
    })
}

fn not_done(what: &str, reply: &Reply) -> StackError {
    StackError::Http {
        what: what.to_owned(),
        reason: format!("status {}, {}", reply.status, reply.body),
    }
}

fn refused(what: String, source: IggyError) -> StackError {
    StackError::Iggy { what, source }
}
