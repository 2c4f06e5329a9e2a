//! Frames by hand, for what the SDK would never send.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::net::SocketAddr;
use std::time::Duration;

use bytemuck::checked::pod_read_unaligned;
use bytes::BytesMut;
use iggy_binary_protocol::batch::{
    BATCH_HEADER_SIZE, BATCH_MESSAGE_HEADER_SIZE, BatchHeader, calculate_batch_checksum,
};
use iggy_binary_protocol::codes::{LOGIN_REGISTER_CODE, LOGOUT_USER_CODE};
use iggy_binary_protocol::requests::messages::SendMessagesHeader;
use iggy_binary_protocol::requests::users::LoginRegisterRequest;
use iggy_binary_protocol::{
    ClientVersionInfo, Command, EvictionHeader, EvictionReason, HEADER_SIZE, IGGY_PROTOCOL_VERSION,
    Operation, ReplyHeader, RequestHeader, WireEncode, WireIdentifier, WireName, WirePartitioning,
    result_code,
};
use iggy_common::calculate_checksum;
use secrecy::SecretString;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const DEADLINE: Duration = Duration::from_secs(30);

/// What came back.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Back {
    /// A reply: its request number, its error (0 for success) and its body without a result section.
    Reply(u64, u32, Vec<u8>),
    Evicted(EvictionReason),
    Closed,
}

impl Back {
    /// The error of a reply, 0 for success.
    pub(crate) fn code(self) -> u32 {
        match self {
            Self::Reply(_, code, _) => code,
            other => panic!("{other:?} is no reply"),
        }
    }

    /// The body of a successful reply.
    pub(crate) fn body(self) -> Vec<u8> {
        match self {
            Self::Reply(_, 0, body) => body,
            other => panic!("{other:?} is no success"),
        }
    }
}

/// A connection that sends bytes as they are.
pub(crate) struct Raw {
    pub(crate) stream: TcpStream,
    request: u64,
}

impl Raw {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, request: 0 }
    }

    /// A connection that is logged in.
    pub(crate) async fn logged_in(address: SocketAddr) -> Self {
        let mut raw = Self::connect(address).await;
        raw.call(LOGIN_REGISTER_CODE, &login("iggy", "iggy"))
            .await
            .body();
        raw
    }

    /// The frame of the next request.
    pub(crate) fn frame(&mut self, code: u32, body: &[u8]) -> Vec<u8> {
        let operation = match code {
            LOGIN_REGISTER_CODE => Operation::Register,
            LOGOUT_USER_CODE => Operation::Logout,
            code => Operation::from_command_code(code).unwrap_or(Operation::NonReplicated),
        };
        let registers = operation == Operation::Register;
        self.request += 1;
        let mut reserved = [0; 60];
        reserved[..4].copy_from_slice(&code.to_le_bytes());
        let header = RequestHeader {
            command: Command::Request,
            operation,
            size: (HEADER_SIZE + body.len()) as u32,
            client: 77,
            request: if registers { 0 } else { self.request },
            session: if registers { 0 } else { 1 },
            request_checksum: u128::from(calculate_checksum(body)),
            reserved,
            ..RequestHeader::default()
        };
        let mut frame = bytemuck::bytes_of(&header).to_vec();
        frame.extend_from_slice(body);
        frame
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        timeout(DEADLINE, self.stream.write_all(bytes))
            .await
            .unwrap()
            .unwrap();
    }

    /// Reads one answer.
    pub(crate) async fn read(&mut self) -> Back {
        let mut head = [0; HEADER_SIZE];
        let read = timeout(DEADLINE, self.stream.read_exact(&mut head))
            .await
            .expect("no answer came");
        if read.is_err() {
            return Back::Closed;
        }
        let generic: iggy_binary_protocol::GenericHeader = pod_read_unaligned(&head);
        if generic.command == Command::Eviction {
            return Back::Evicted(pod_read_unaligned::<EvictionHeader>(&head).reason);
        }
        let header: ReplyHeader = pod_read_unaligned(&head);
        let mut body = vec![0; header.size as usize - HEADER_SIZE];
        timeout(DEADLINE, self.stream.read_exact(&mut body))
            .await
            .unwrap()
            .unwrap();
        let framed = header.operation.is_result_framed() || header.operation == Operation::Register;
        if header.status != 0 || !framed {
            return Back::Reply(header.request, header.status, body);
        }
        let code = result_code(&body).expect("the result section is complete");
        Back::Reply(header.request, code, body[4..].to_vec())
    }

    pub(crate) async fn call(&mut self, code: u32, body: &[u8]) -> Back {
        let frame = self.frame(code, body);
        self.write(&frame).await;
        self.read().await
    }
}

/// The body of a login.
pub(crate) fn login(user: &str, password: &str) -> Vec<u8> {
    LoginRegisterRequest {
        version_info: ClientVersionInfo {
            protocol_version: IGGY_PROTOCOL_VERSION,
            sdk_name: WireName::new("test").unwrap(),
            sdk_version: WireName::new("0").unwrap(),
        },
        username: WireName::new(user).unwrap(),
        password: SecretString::from(password),
        client_context: None,
    }
    .to_bytes()
    .to_vec()
}

/// One message of a batch by hand.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) offset_delta: u32,
    pub(crate) timestamp_delta: u32,
    pub(crate) headers: Vec<u8>,
    pub(crate) payload: Vec<u8>,
}

impl Message {
    pub(crate) fn new(offset_delta: u32, payload: &[u8]) -> Self {
        Self {
            offset_delta,
            timestamp_delta: 0,
            headers: Vec::new(),
            payload: payload.to_vec(),
        }
    }
}

/// A batch record whose checksums are right, whatever is in it.
pub(crate) fn batch(messages: &[Message], origin_timestamp: u64) -> Vec<u8> {
    let mut blob = Vec::new();
    for message in messages {
        let mut frame = vec![0; BATCH_MESSAGE_HEADER_SIZE];
        frame[8..24].copy_from_slice(&9_u128.to_le_bytes());
        frame[24..28].copy_from_slice(&message.offset_delta.to_le_bytes());
        frame[28..32].copy_from_slice(&message.timestamp_delta.to_le_bytes());
        frame[32..36].copy_from_slice(&(message.headers.len() as u32).to_le_bytes());
        frame[36..40].copy_from_slice(&(message.payload.len() as u32).to_le_bytes());
        frame.extend_from_slice(&message.payload);
        frame.extend_from_slice(&message.headers);
        let checksum = calculate_checksum(&frame[8..]);
        frame[..8].copy_from_slice(&checksum.to_le_bytes());
        blob.extend_from_slice(&frame);
    }
    let length = (BATCH_HEADER_SIZE + blob.len()) as u64;
    let mut header = BatchHeader::new(0, origin_timestamp, length, messages.len() as u32);
    header.batch_checksum = calculate_batch_checksum(&header, &blob);
    let mut record = vec![0; BATCH_HEADER_SIZE];
    header.encode_into(&mut record);
    record.extend_from_slice(&blob);
    record
}

/// The body of a send to `s`/`t`.
pub(crate) fn send_body(partitioning: WirePartitioning, count: u32, batch: &[u8]) -> Vec<u8> {
    let head = SendMessagesHeader {
        stream_id: WireIdentifier::named("s").unwrap(),
        topic_id: WireIdentifier::named("t").unwrap(),
        partitioning,
        messages_count: count,
    };
    let mut body = BytesMut::new();
    body.extend_from_slice(&(head.encoded_size() as u32).to_le_bytes());
    head.encode(&mut body);
    body.extend_from_slice(batch);
    body.to_vec()
}
