//! A client that speaks bytes: what it sends is written out, what it gets is read back by rules of its own, so that the
//! gateway's codec is not judged by itself.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::time::timeout;

/// A packet from the gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Got {
    ConnAck(u8),
    PubAck(u16),
    SubAck(u16, Vec<u8>),
    UnsubAck(u16),
    PingResp,
    Publish {
        topic: String,
        payload: Vec<u8>,
        qos: u8,
        dup: bool,
        id: Option<u16>,
    },
}

impl Got {
    /// The payload of a PUBLISH as text.
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Publish { payload, .. } => std::str::from_utf8(payload).unwrap(),
            other => panic!("not a PUBLISH: {other:?}"),
        }
    }
}

/// What a client speaks over.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

pub(crate) struct Client {
    read: ReadHalf<Box<dyn Stream>>,
    write: WriteHalf<Box<dyn Stream>>,
    buffer: VecDeque<u8>,
}

fn string(text: &str) -> Vec<u8> {
    let mut bytes = u16::try_from(text.len()).unwrap().to_be_bytes().to_vec();
    bytes.extend(text.bytes());
    bytes
}

pub(crate) fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    let mut length = body.len();
    loop {
        let low = (length % 128) as u8;
        length /= 128;
        bytes.push(if length > 0 { low | 0x80 } else { low });
        if length == 0 {
            break;
        }
    }
    bytes.extend(body);
    bytes
}

pub(crate) fn publish(topic: &str, payload: &[u8], id: Option<u16>) -> Vec<u8> {
    let mut body = string(topic);
    body.extend(id.into_iter().flat_map(u16::to_be_bytes));
    body.extend(payload);
    packet(if id.is_some() { 0x32 } else { 0x30 }, &body)
}

pub(crate) fn connect(id: &str, keep_alive: u16) -> Vec<u8> {
    let mut body = string("MQTT");
    body.extend([4, 2]);
    body.extend(keep_alive.to_be_bytes());
    body.extend(string(id));
    packet(0x10, &body)
}

/// A CONNECT with a user name, and a password if there is one.
pub(crate) fn connect_as(id: &str, user: &str, password: Option<&[u8]>) -> Vec<u8> {
    let mut body = string("MQTT");
    body.extend([4, if password.is_some() { 0xc2 } else { 0x82 }, 0, 0]);
    body.extend(string(id));
    body.extend(string(user));
    if let Some(password) = password {
        body.extend(u16::try_from(password.len()).unwrap().to_be_bytes());
        body.extend(password);
    }
    packet(0x10, &body)
}

/// A QoS 1 PUBLISH that is sent again.
pub(crate) fn publish_again(topic: &str, payload: &[u8], id: u16) -> Vec<u8> {
    let mut bytes = publish(topic, payload, Some(id));
    bytes[0] |= 0x08;
    bytes
}

/// A SUBSCRIBE with several filters.
pub(crate) fn subscribe_all(filters: &[(&str, u8)]) -> Vec<u8> {
    let mut body = vec![0, 1];
    for (filter, qos) in filters {
        body.extend(string(filter));
        body.push(*qos);
    }
    packet(0x82, &body)
}

impl Client {
    pub(crate) fn new(stream: impl Stream + 'static) -> Self {
        let stream: Box<dyn Stream> = Box::new(stream);
        let (read, write) = tokio::io::split(stream);
        Self {
            read,
            write,
            buffer: VecDeque::new(),
        }
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.write.write_all(bytes).await.unwrap();
    }

    /// Sends and says whether all of it was taken: not so if the gateway has closed the connection.
    pub(crate) async fn try_send(&mut self, bytes: &[u8]) -> bool {
        self.write.write_all(bytes).await.is_ok()
    }

    /// Sends `bytes`, reading meanwhile, until `count` packets have come.
    pub(crate) async fn send_and_take(&mut self, bytes: &[u8], count: usize) -> Vec<Got> {
        let Self {
            read,
            write,
            buffer,
        } = self;
        let taking = async {
            let mut taken = Vec::with_capacity(count);
            while taken.len() < count {
                taken.push(
                    read_packet(read, buffer)
                        .await
                        .expect("the connection ended"),
                );
            }
            taken
        };
        let (sent, taken) = tokio::join!(write.write_all(bytes), taking);
        sent.unwrap();
        taken
    }

    /// Says that nothing more will be sent, and goes on reading.
    pub(crate) async fn close_half(&mut self) {
        let _ = self.write.shutdown().await;
    }

    pub(crate) async fn send_connect(&mut self, id: &str, keep_alive: u16) {
        self.send(&connect(id, keep_alive)).await;
    }

    pub(crate) async fn connect(&mut self, id: &str) {
        self.send_connect(id, 0).await;
        assert_eq!(self.next().await, Got::ConnAck(0));
    }

    pub(crate) async fn publish(&mut self, topic: &str, payload: &str, id: Option<u16>) {
        self.send(&publish(topic, payload.as_bytes(), id)).await;
    }

    /// Sends a QoS 1 PUBLISH again, as after a reconnect.
    pub(crate) async fn publish_again(&mut self, topic: &str, payload: &str, id: u16) {
        self.send(&publish_again(topic, payload.as_bytes(), id))
            .await;
    }

    pub(crate) async fn ack(&mut self, id: u16) {
        let [high, low] = id.to_be_bytes();
        self.send(&[0x40, 2, high, low]).await;
    }

    pub(crate) async fn ping(&mut self) {
        self.send(&[0xc0, 0]).await;
    }

    pub(crate) async fn send_subscribe(&mut self, topic: &str, qos: u8) {
        let mut body = vec![0, 1];
        body.extend(string(topic));
        body.push(qos);
        self.send(&packet(0x82, &body)).await;
    }

    pub(crate) async fn subscribe(&mut self, topic: &str, qos: u8) {
        self.send_subscribe(topic, qos).await;
        assert_eq!(self.next().await, Got::SubAck(1, vec![qos]));
    }

    pub(crate) async fn unsubscribe(&mut self, topic: &str) {
        let mut body = vec![0, 2];
        body.extend(string(topic));
        self.send(&packet(0xa2, &body)).await;
    }

    /// The next packet; panics if none comes within a minute or the connection ends.
    pub(crate) async fn next(&mut self) -> Got {
        timeout(Duration::from_secs(60), self.try_next())
            .await
            .expect("no packet within a minute")
            .expect("the connection ended")
    }

    /// Whether nothing comes for `time`.
    pub(crate) async fn is_quiet_for(&mut self, time: Duration) -> bool {
        timeout(time, self.try_next()).await.is_err()
    }

    /// Reads on until the end; panics if there is none within two minutes.
    pub(crate) async fn rest(&mut self) -> Vec<Got> {
        let mut rest = Vec::new();
        while let Some(got) = timeout(Duration::from_secs(120), self.try_next())
            .await
            .expect("no end within two minutes")
        {
            rest.push(got);
        }
        rest
    }

    /// The next PUBLISH, acknowledged if it asks for that.
    pub(crate) async fn take(&mut self) -> Got {
        let got = self.next().await;
        if let Got::Publish { id: Some(id), .. } = got {
            self.ack(id).await;
        }
        got
    }

    /// The next packet; nothing if the connection has ended. May be dropped while it waits.
    pub(crate) async fn try_next(&mut self) -> Option<Got> {
        read_packet(&mut self.read, &mut self.buffer).await
    }
}

async fn read_packet(
    read: &mut ReadHalf<Box<dyn Stream>>,
    buffer: &mut VecDeque<u8>,
) -> Option<Got> {
    loop {
        if let Some(got) = parse(buffer) {
            return Some(got);
        }
        let mut bytes = [0; 4_096];
        match read.read(&mut bytes).await {
            Ok(0) | Err(_) => return None,
            Ok(n) => buffer.extend(&bytes[..n]),
        }
    }
}

fn parse(buffer: &mut VecDeque<u8>) -> Option<Got> {
    let bytes = buffer.make_contiguous();
    let mut length = 0;
    let mut at = 1;
    loop {
        let byte = *bytes.get(at)?;
        length |= usize::from(byte & 0x7f) << (7 * (at - 1));
        at += 1;
        if byte & 0x80 == 0 {
            break;
        }
    }
    let body = bytes.get(at..at + length)?;
    let id = |at: usize| u16::from_be_bytes([body[at], body[at + 1]]);
    let got = match bytes[0] {
        0x20 => Got::ConnAck(body[1]),
        0x40 => Got::PubAck(id(0)),
        0x90 => Got::SubAck(id(0), body[2..].to_vec()),
        0xb0 => Got::UnsubAck(id(0)),
        0xd0 => Got::PingResp,
        first if first >> 4 == 3 => {
            let topic_end = 2 + usize::from(id(0));
            let qos = first >> 1 & 3;
            let payload_at = if qos > 0 { topic_end + 2 } else { topic_end };
            Got::Publish {
                topic: String::from_utf8(body[2..topic_end].to_vec()).unwrap(),
                payload: body[payload_at..].to_vec(),
                qos,
                dup: first & 8 != 0,
                id: (qos > 0).then(|| id(topic_end)),
            }
        }
        other => panic!("an unexpected packet type: {other:#x}"),
    };
    buffer.drain(..at + length);
    Some(got)
}
