//! Counts the appends in what a client sends to Iggy.
//!
//! Always holds: the count does not depend on the pieces in which the bytes are read; bytes that cannot be frames end the
//! counting of their connection and are told, because a count that is silently too low would flatter nobody but us.
//!
//! Iggy 0.9: a request is a header of 256 bytes, whose size field counts the body too, and the body. An append's body begins
//! with the length of its routing (4 bytes) and the routing, which ends with the number of messages.

use std::mem::offset_of;

use iggy_binary_protocol::requests::messages::SendMessagesHeader;
use iggy_binary_protocol::{HEADER_SIZE, Operation, RequestHeader, WireDecode, read_size_field};

/// The longest routing: three names of at most 255 bytes with their heads, and two numbers.
const LONGEST_ROUTING: usize = 4 + 1_024;

/// The appends of a connection or of several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Appends {
    /// Requests.
    pub(super) requests: u64,
    /// Messages in them.
    pub(super) messages: u64,
}

/// These bytes are no requests to Iggy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the gateway sent something to Iggy that is no request of its protocol 0.11")]
pub(super) struct NoFrame;

/// Reads the requests of one connection.
#[derive(Debug, Default)]
pub(super) struct FrameReader {
    /// The beginning of the frame that is being read, as far as it is needed.
    start: Vec<u8>,
    /// Bytes of the frame that are of no interest and still to come.
    skip: usize,
}

impl FrameReader {
    /// Reads on and gives what was completed by `bytes`.
    ///
    /// # Errors
    /// [`NoFrame`]; what comes after cannot be read.
    pub(super) fn read(&mut self, mut bytes: &[u8]) -> Result<Appends, NoFrame> {
        let mut appends = Appends::default();
        loop {
            let (_, rest) = bytes.split_at(self.skip.min(bytes.len()));
            self.skip -= bytes.len() - rest.len();
            bytes = rest;
            let missing = wanted(&self.start)?.saturating_sub(self.start.len());
            if missing > 0 {
                if bytes.is_empty() {
                    return Ok(appends);
                }
                let (taken, rest) = bytes.split_at(missing.min(bytes.len()));
                self.start.extend_from_slice(taken);
                bytes = rest;
                continue;
            }
            if is_append(&self.start) {
                appends.requests += 1;
                appends.messages += messages(&self.start)?;
            }
            self.skip = frame_size(&self.start)? - self.start.len();
            self.start.clear();
        }
    }
}

/// How many bytes of the frame that begins with `start` have to be seen, as far as that is known by now.
fn wanted(start: &[u8]) -> Result<usize, NoFrame> {
    if start.len() < HEADER_SIZE {
        return Ok(HEADER_SIZE);
    }
    let size = frame_size(start)?;
    if !is_append(start) {
        return Ok(HEADER_SIZE);
    }
    let wanted = match routing_length(start) {
        None => HEADER_SIZE + 4,
        Some(length) if length > LONGEST_ROUTING => return Err(NoFrame),
        Some(length) => HEADER_SIZE + 4 + length,
    };
    if wanted > size {
        Err(NoFrame)
    } else {
        Ok(wanted)
    }
}

fn frame_size(start: &[u8]) -> Result<usize, NoFrame> {
    read_size_field(start)
        .and_then(|size| usize::try_from(size).ok())
        .filter(|&size| size >= HEADER_SIZE)
        .ok_or(NoFrame)
}

fn is_append(start: &[u8]) -> bool {
    start.get(offset_of!(RequestHeader, operation)) == Some(&(Operation::SendMessages as u8))
}

fn routing_length(start: &[u8]) -> Option<usize> {
    let length = start.get(HEADER_SIZE..HEADER_SIZE + 4)?;
    usize::try_from(u32::from_le_bytes(length.try_into().ok()?)).ok()
}

fn messages(start: &[u8]) -> Result<u64, NoFrame> {
    let routing = start.get(HEADER_SIZE + 4..).ok_or(NoFrame)?;
    let (header, _) = SendMessagesHeader::decode(routing).map_err(|_| NoFrame)?;
    Ok(u64::from(header.messages_count))
}

#[cfg(test)]
mod tests {
    use super::*;

    use iggy_binary_protocol::WireEncode;
    use iggy_binary_protocol::{SIZE_FIELD_OFFSET, WireIdentifier, WirePartitioning};

    fn frame(operation: Operation, body: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; HEADER_SIZE];
        let size = u32::try_from(HEADER_SIZE + body.len()).unwrap();
        frame[SIZE_FIELD_OFFSET..SIZE_FIELD_OFFSET + 4].copy_from_slice(&size.to_le_bytes());
        frame[offset_of!(RequestHeader, operation)] = operation as u8;
        frame.extend(body);
        frame
    }

    fn append(messages: u32, batch: usize) -> Vec<u8> {
        let header = SendMessagesHeader {
            stream_id: WireIdentifier::named("stream").unwrap(),
            topic_id: WireIdentifier::numeric(7),
            partitioning: WirePartitioning::PartitionId(3),
            messages_count: messages,
        };
        let routing = header.to_bytes();
        let mut body = u32::try_from(routing.len()).unwrap().to_le_bytes().to_vec();
        body.extend(&routing[..]);
        // What follows looks like a header that counts, if it were read as one.
        body.extend(vec![Operation::SendMessages as u8; batch]);
        frame(Operation::SendMessages, &body)
    }

    #[test]
    fn appends_and_their_messages_are_counted_in_whatever_pieces_they_come() {
        let mut bytes = Vec::new();
        bytes.extend(frame(Operation::Register, b"user"));
        bytes.extend(append(1, 256));
        bytes.extend(frame(Operation::NonReplicated, &[]));
        bytes.extend(append(300, 1_000));
        bytes.extend(append(20, 0));
        bytes.extend(frame(Operation::StoreConsumerOffset, &[160; 700]));
        let expected = Appends {
            requests: 3,
            messages: 321,
        };
        for piece in (1..40).chain([100, 255, 256, 257, 1_000, bytes.len()]) {
            let mut reader = FrameReader::default();
            let mut seen = Appends::default();
            for bytes in bytes.chunks(piece) {
                let more = reader.read(bytes).unwrap();
                seen.requests += more.requests;
                seen.messages += more.messages;
            }
            assert_eq!(seen, expected, "in pieces of {piece}");
        }
    }

    #[test]
    fn an_append_counts_once_its_routing_is_there_and_not_before() {
        let bytes = append(5, 100);
        let mut reader = FrameReader::default();
        let routing_end = bytes.len() - 100;
        assert_eq!(
            reader.read(&bytes[..routing_end - 1]),
            Ok(Appends::default())
        );
        let counted = reader.read(&bytes[routing_end - 1..routing_end]).unwrap();
        assert_eq!(counted.messages, 5);
        assert_eq!(reader.read(&bytes[routing_end..]), Ok(Appends::default()));
    }

    #[test]
    fn bytes_that_are_no_frames_are_told() {
        // A frame that is smaller than its header, an append without room for its routing, and one whose routing would have
        // to be kept in memory until a gigabyte of it has come.
        let too_small = vec![0; HEADER_SIZE];
        let truncated = frame(Operation::SendMessages, &100_u32.to_le_bytes());
        let mut endless = frame(Operation::SendMessages, &(1_u32 << 30).to_le_bytes());
        endless[SIZE_FIELD_OFFSET..SIZE_FIELD_OFFSET + 4].copy_from_slice(&[0xFF; 4]);
        for bytes in [too_small, truncated, endless] {
            let mut reader = FrameReader::default();
            assert_eq!(reader.read(&[&bytes[..], &[0]].concat()), Err(NoFrame));
        }
    }
}
