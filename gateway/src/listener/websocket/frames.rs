//! What a client sends after the upgrade: frames (RFC 6455, section 5) to the bytes that they carry. Pure: no stream.
//!
//! What always holds: the payload of a data frame is unmasked and moved to the front where it was read, so that no frame is
//! buffered, however long it is; what is kept between two calls is a header that is not complete yet (14 bytes) and the
//! payload of one control frame (125 bytes). How the bytes were cut into portions does not matter. After a failure or a
//! Close frame nothing is taken any more.

use std::io::Cursor;

use tokio_tungstenite::tungstenite::protocol::frame::FrameHeader;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Control, Data, OpCode};

/// The longest frame header: two bytes, eight of length, four of mask.
const MAX_HEADER: usize = 14;
/// The longest payload of a control frame (RFC 6455, 5.5).
pub(super) const MAX_CONTROL: usize = 125;

/// Why a client's frames end the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// Text: MQTT is carried in binary frames (MQTT-6.0.0-1).
    #[error(
        "a WebSocket text frame; MQTT needs binary frames, so the client must be told to send these"
    )]
    Text,
    /// The header is against the rules.
    #[error("the WebSocket frame is malformed: {0}")]
    Frame(&'static str),
    /// Longer than is allowed.
    #[error(
        "a WebSocket frame announces {size} bytes, and the limit is {max} (limits.{})",
        if *.admitted { "max_packet_size" } else { "max_connect_size" }
    )]
    TooLong {
        /// What its header says, in bytes.
        size: u64,
        /// The limit.
        max: u64,
        /// Whether its CONNECT was accepted, which decides which limit it is.
        admitted: bool,
    },
}

impl Broken {
    /// What the Close frame says (RFC 6455, 7.4.1).
    pub(super) fn close_code(self) -> u16 {
        match self {
            Self::Text => CloseCode::Unsupported,
            Self::Frame(_) => CloseCode::Protocol,
            Self::TooLong { .. } => CloseCode::Size,
        }
        .into()
    }
}

/// The payload of a control frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct Payload {
    bytes: [u8; MAX_CONTROL],
    length: usize,
}

impl Payload {
    /// The bytes so far.
    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    fn push(&mut self, bytes: &[u8]) {
        if let Some(room) = self.bytes.get_mut(self.length..self.length + bytes.len()) {
            room.copy_from_slice(bytes);
            self.length += bytes.len();
        }
    }
}

impl Default for Payload {
    fn default() -> Self {
        Self {
            bytes: [0; MAX_CONTROL],
            length: 0,
        }
    }
}

/// What a client has sent that must be answered.
#[derive(Debug)]
pub(super) enum Told {
    /// A Ping, with its payload: rare, so not kept in each connection.
    Ping(Box<Payload>),
    /// A Close, with the code to answer, if it gave one.
    Close(Option<u16>),
}

/// The frame whose payload is being read.
#[derive(Debug)]
enum Current {
    Data,
    Pong,
    Ping(Box<Payload>),
    Close(Box<Payload>),
}

/// The frames of one client.
#[derive(Debug)]
pub(super) struct Frames {
    max_connect_size: u64,
    max_packet_size: u64,
    /// The beginning of a header that is not complete.
    header: [u8; MAX_HEADER],
    header_length: u8,
    /// Turned so that its first byte is for the next byte of the payload.
    mask: [u8; 4],
    /// What is left of the current frame's payload.
    left: u64,
    current: Current,
    /// Whether the message that a data frame has begun is not finished.
    is_fragmented: bool,
}

impl Frames {
    /// Nothing read yet.
    pub(super) fn new(max_connect_size: usize, max_packet_size: usize) -> Self {
        Self {
            max_connect_size: max_connect_size as u64,
            max_packet_size: max_packet_size as u64,
            header: [0; MAX_HEADER],
            header_length: 0,
            mask: [0; 4],
            left: 0,
            current: Current::Data,
            is_fragmented: false,
        }
    }

    /// How many bytes can be read without reading into the frame after the current one.
    pub(super) fn needed(&self) -> usize {
        if self.left > 0 {
            return usize::try_from(self.left).unwrap_or(usize::MAX);
        }
        self.header_size()
            .saturating_sub(usize::from(self.header_length))
    }

    /// Whether the connection may end here: between two messages.
    pub(super) fn is_between_messages(&self) -> bool {
        self.left == 0 && self.header_length == 0 && !self.is_fragmented
    }

    /// Takes all of `raw`, and leaves what data frames carry at its front. Gives how many bytes that is, and what must be
    /// answered: of several Pings the last, as RFC 6455 (5.5.3) allows. What comes behind a Close or a failure is not looked at.
    pub(super) fn take(
        &mut self,
        raw: &mut [u8],
        admitted: bool,
    ) -> (usize, Option<Result<Told, Broken>>) {
        let mut told = None;
        let (mut from, mut kept) = (0, 0);
        while from < raw.len() {
            if self.left > 0 {
                let count = usize::try_from(self.left)
                    .unwrap_or(usize::MAX)
                    .min(raw.len() - from);
                kept += self.payload(raw, from, kept, count);
                from += count;
            } else {
                let rest = raw.get(from..).unwrap_or_default();
                let (count, is_complete) = self.header(rest);
                from += count;
                if !is_complete {
                    break;
                }
                if let Err(broken) = self.begin(admitted) {
                    return (kept, Some(Err(broken)));
                }
            }
            if self.left == 0 {
                match std::mem::replace(&mut self.current, Current::Data) {
                    Current::Data | Current::Pong => {}
                    Current::Ping(payload) => told = Some(Ok(Told::Ping(payload))),
                    Current::Close(payload) => {
                        return (kept, Some(close_code(payload.bytes()).map(Told::Close)));
                    }
                }
            }
        }
        (kept, told)
    }

    /// Takes `count` bytes of payload at `from`. Gives how many were moved to `kept`.
    fn payload(&mut self, raw: &mut [u8], from: usize, kept: usize, count: usize) -> usize {
        self.left -= count as u64;
        let bytes = raw.get_mut(from..from + count).unwrap_or_default();
        unmask(bytes, self.mask);
        self.mask.rotate_left(count % 4);
        match &mut self.current {
            Current::Data => {
                raw.copy_within(from..from + count, kept);
                count
            }
            Current::Ping(payload) | Current::Close(payload) => {
                payload.push(bytes);
                0
            }
            Current::Pong => 0,
        }
    }

    /// Takes what belongs to the header from `rest`. Gives how many bytes these are, and whether it is complete.
    fn header(&mut self, rest: &[u8]) -> (usize, bool) {
        let mut taken = 0;
        loop {
            let have = usize::from(self.header_length);
            let size = self.header_size();
            if have == size {
                return (taken, true);
            }
            let count = (size - have).min(rest.len() - taken);
            if count == 0 {
                return (taken, false);
            }
            let (from, to) = (
                rest.get(taken..taken + count),
                self.header.get_mut(have..have + count),
            );
            if let (Some(from), Some(to)) = (from, to) {
                to.copy_from_slice(from);
            }
            taken += count;
            self.header_length += count as u8;
        }
    }

    /// The size of the header, as far as it can be known: the second byte tells.
    fn header_size(&self) -> usize {
        if self.header_length < 2 {
            return 2;
        }
        let [_, second, ..] = self.header;
        let length = match second & 0x7f {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        2 + length + if second & 0x80 == 0 { 0 } else { 4 }
    }

    /// Begins the frame whose header is complete.
    fn begin(&mut self, admitted: bool) -> Result<(), Broken> {
        let bytes = self.header.get(..usize::from(self.header_length));
        let parsed = FrameHeader::parse(&mut Cursor::new(bytes.unwrap_or_default()));
        self.header_length = 0;
        let Ok(Some((header, size))) = parsed else {
            return Err(Broken::Frame("its opcode is reserved"));
        };
        if header.rsv1 || header.rsv2 || header.rsv3 {
            return Err(Broken::Frame(
                "a reserved bit is set, though no extension was agreed on",
            ));
        }
        let Some(mask) = header.mask else {
            return Err(Broken::Frame("it is not masked, as a client's must be"));
        };
        self.current = match header.opcode {
            OpCode::Control(_) if !header.is_final => {
                return Err(Broken::Frame("a control frame is fragmented"));
            }
            OpCode::Control(_) if size > MAX_CONTROL as u64 => {
                return Err(Broken::Frame("a control frame has more than 125 bytes"));
            }
            OpCode::Control(Control::Ping) => Current::Ping(Box::default()),
            OpCode::Control(Control::Close) => Current::Close(Box::default()),
            OpCode::Control(_) => Current::Pong,
            OpCode::Data(Data::Continue) if !self.is_fragmented => {
                return Err(Broken::Frame("it continues a message that was not begun"));
            }
            OpCode::Data(Data::Text | Data::Binary) if self.is_fragmented => {
                return Err(Broken::Frame(
                    "it begins a message before the last one was finished",
                ));
            }
            OpCode::Data(Data::Text) => return Err(Broken::Text),
            OpCode::Data(_) => {
                let max = if admitted {
                    self.max_packet_size
                } else {
                    self.max_connect_size
                };
                if size > max {
                    return Err(Broken::TooLong {
                        size,
                        max,
                        admitted,
                    });
                }
                self.is_fragmented = !header.is_final;
                Current::Data
            }
        };
        self.mask = mask;
        self.left = size;
        Ok(())
    }
}

/// The code with which a Close is answered: its own (RFC 6455, 5.5.1).
fn close_code(payload: &[u8]) -> Result<Option<u16>, Broken> {
    let Some((code, reason)) = payload.split_first_chunk::<2>() else {
        return if payload.is_empty() {
            Ok(None)
        } else {
            Err(Broken::Frame("a Close frame has half a code"))
        };
    };
    let code = u16::from_be_bytes(*code);
    if !CloseCode::from(code).is_allowed() || std::str::from_utf8(reason).is_err() {
        return Err(Broken::Frame("the code or reason of a Close frame is none"));
    }
    Ok(Some(code))
}

/// Applies `mask` (RFC 6455, 5.3), whose first byte is for the first of `bytes`.
fn unmask(bytes: &mut [u8], mask: [u8; 4]) {
    let mut words = bytes.chunks_exact_mut(4);
    for word in &mut words {
        for (byte, mask) in word.iter_mut().zip(mask) {
            *byte ^= mask;
        }
    }
    for (byte, mask) in words.into_remainder().iter_mut().zip(mask) {
        *byte ^= mask;
    }
}
