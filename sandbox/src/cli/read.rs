//! `sandbox read`: prints what is stored in a topic.
//!
//! Always holds: reading leaves no trace in Iggy (no offset is committed), and a message takes exactly one line.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;

use clap::Args;
use iggy::prelude::{
    Consumer, HeaderValue, Identifier, IggyClient, IggyMessage, MessageClient, PollingStrategy,
    TopicClient,
};
use serde_json::{Map, Value, json};

use sandbox::host::iggy_clients;

use super::Failure;
use super::credentials::Login;

/// Messages a poll.
const BATCH: u32 = 1000;

/// How long the server may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The Iggy stream.
    stream: String,
    /// The Iggy topic.
    topic: String,
    /// Only this partition; they are numbered from 0.
    #[arg(long)]
    partition: Option<u32>,
    /// Only messages from this offset on.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// One JSON object a line; a payload that is not UTF-8 is given as `payload_hex` instead of `payload`.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    login: Login,
}

pub(super) async fn execute(arguments: Arguments) -> Result<(), Failure> {
    let config = arguments.login.config()?;
    // The SDK would go on trying for ever.
    let reached = tokio::time::timeout(
        CONNECT_TIMEOUT,
        tokio::net::TcpStream::connect(config.address.as_str()),
    );
    match reached.await {
        Ok(Ok(_)) => {}
        Ok(Err(reason)) => return Err(format!("no Iggy at {}: {reason}", config.address).into()),
        Err(_) => return Err(format!("no Iggy answers at {}", config.address).into()),
    }
    let client = iggy_clients::connect(&config).await?;
    let stream = Identifier::named(&arguments.stream)?;
    let topic = Identifier::named(&arguments.topic)?;
    let details = client.get_topic(&stream, &topic).await?.ok_or_else(|| {
        format!(
            "there is no topic {} in a stream {}",
            arguments.topic, arguments.stream
        )
    })?;
    let partitions = match arguments.partition {
        Some(partition) if partition >= details.partitions_count => {
            return Err(format!(
                "the topic has {} partitions, numbered from 0",
                details.partitions_count
            )
            .into());
        }
        Some(partition) => partition..partition + 1,
        None => 0..details.partitions_count,
    };
    for partition in partitions {
        print_partition(&client, &stream, &topic, partition, &arguments).await?;
    }
    Ok(())
}

async fn print_partition(
    client: &IggyClient,
    stream: &Identifier,
    topic: &Identifier,
    partition: u32,
    arguments: &Arguments,
) -> Result<(), Failure> {
    let consumer = Consumer::new(Identifier::named("sandbox-read")?);
    let mut next = arguments.from;
    loop {
        let strategy = PollingStrategy::offset(next);
        let polled = client
            .poll_messages(
                stream,
                topic,
                Some(partition),
                &consumer,
                &strategy,
                BATCH,
                false,
            )
            .await?;
        let Some(last) = polled.messages.last() else {
            return Ok(());
        };
        next = last.header.offset + 1;
        let mut output = std::io::stdout().lock();
        for message in &polled.messages {
            let line = match arguments.json {
                true => json_line(partition, message),
                false => text_line(partition, message),
            };
            writeln!(output, "{line}")?;
        }
        output.flush()?;
    }
}

/// The message's headers as text, ordered by name.
fn headers(message: &IggyMessage) -> Vec<(String, HeaderValue)> {
    let headers = message
        .user_headers_map()
        .ok()
        .flatten()
        .unwrap_or_default();
    headers
        .into_iter()
        .map(|(key, value)| (key.to_string_value(), value))
        .collect()
}

fn text_line(partition: u32, message: &IggyMessage) -> String {
    let mut line = format!("partition {partition} offset {}", message.header.offset);
    for (name, value) in headers(message) {
        // Writing to a string cannot fail.
        let _ = write!(line, " {name}={}", value.to_string_value().escape_debug());
    }
    let _ = match std::str::from_utf8(&message.payload) {
        Ok(text) => write!(line, " payload=\"{}\"", text.escape_debug()),
        Err(_) => write!(line, " payload=0x{}", hex(&message.payload)),
    };
    line
}

fn json_line(partition: u32, message: &IggyMessage) -> String {
    let headers: Map<String, Value> = headers(message)
        .into_iter()
        .map(|(name, value)| (name, value.to_string_value().into()))
        .collect();
    let mut line = json!({
        "partition": partition,
        "offset": message.header.offset,
        // As text: JSON readers cannot hold 128 bits in a number.
        "id": message.header.id.to_string(),
        "timestamp": message.header.timestamp,
        "headers": headers,
    });
    match std::str::from_utf8(&message.payload) {
        Ok(text) => line["payload"] = text.into(),
        Err(_) => line["payload_hex"] = hex(&message.payload).into(),
    }
    line.to_string()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::str::FromStr;

    use iggy::prelude::HeaderKey;

    use super::*;

    fn message(payload: &[u8]) -> IggyMessage {
        let headers = BTreeMap::from([
            (
                HeaderKey::from_str("mqtt.topic").unwrap(),
                HeaderValue::from_str("a/b").unwrap(),
            ),
            (
                HeaderKey::from_str("mqtt.qos").unwrap(),
                HeaderValue::from(1u8),
            ),
        ]);
        IggyMessage::builder()
            .id(7)
            .payload(payload.to_vec().into())
            .user_headers(headers)
            .build()
            .unwrap()
    }

    #[test]
    fn a_message_takes_one_line_with_its_headers_decoded() {
        assert_eq!(
            text_line(2, &message(b"21.5\n")),
            r#"partition 2 offset 0 mqtt.qos=1 mqtt.topic=a/b payload="21.5\n""#
        );
        assert_eq!(
            text_line(0, &message(&[0xff, 0x00])),
            "partition 0 offset 0 mqtt.qos=1 mqtt.topic=a/b payload=0xff00"
        );
    }

    #[test]
    fn a_message_can_be_read_back_from_json() {
        let line: Value = serde_json::from_str(&json_line(2, &message(b"21.5"))).unwrap();
        assert_eq!(line["partition"], 2);
        assert_eq!(line["id"], "7");
        assert_eq!(
            line["headers"],
            json!({"mqtt.qos": "1", "mqtt.topic": "a/b"})
        );
        assert_eq!(line["payload"], "21.5");
        let line: Value = serde_json::from_str(&json_line(2, &message(&[0xff, 0]))).unwrap();
        assert_eq!(line["payload_hex"], "ff00");
    }
}
