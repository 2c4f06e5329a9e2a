//! The frames of the Iggy binary protocol, as pure functions between bytes and values.
//!
//! A request is a header of 256 bytes and a body; the header's size field counts both. The command is the header's
//! operation, or, for commands that a cluster would not replicate, a number in its first reserved bytes. A reply has the
//! same shape and echoes the request; an error stands in its status, or, for a change to the catalog, in a result section
//! before the body. An eviction is a header alone and ends the session.

use bytemuck::checked::try_pod_read_unaligned;
use bytes::{BufMut, Bytes, BytesMut};
use iggy_binary_protocol::codes::{LOGIN_REGISTER_CODE, LOGOUT_USER_CODE};
use iggy_binary_protocol::{
    Command, ConsensusHeader, EvictionHeader, EvictionReason, HEADER_SIZE, IGGY_PROTOCOL_VERSION,
    IGGY_PROTOCOL_VERSION_MIN, Operation, ReplyHeader, RequestHeader,
};
use iggy_common::{IggyError, calculate_checksum};

/// The bytes of a header.
pub(crate) type Head = [u8; HEADER_SIZE];

/// A request's header, checked on its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestHead {
    header: RequestHeader,
    /// The command's number.
    pub(crate) code: u32,
    /// The length of the body that follows, in bytes.
    pub(crate) body_len: usize,
}

/// Why a header cannot be served. The connection is closed after both, because what follows cannot be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HeadError {
    /// Smaller than a header or larger than the limit.
    #[error("a frame of {0} bytes is out of bounds")]
    Size(u32),
    /// Not a request, or one with fields that contradict each other.
    #[error("a request header is malformed")]
    Malformed,
}

/// What a request is answered with.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Success, with the command's own response.
    Reply(Bytes),
    /// The command was refused; the session goes on.
    Refuse(IggyError),
    /// The session is over, or none was opened.
    Evict(EvictionReason),
}

impl RequestHead {
    /// Reads a header. Frames may be at most `limit` bytes long, the header included.
    ///
    /// # Errors
    /// See [`HeadError`].
    pub(crate) fn parse(head: &Head, limit: usize) -> Result<Self, HeadError> {
        let size = iggy_binary_protocol::read_size_field(head).unwrap_or_default();
        let body_len = (size as usize)
            .checked_sub(HEADER_SIZE)
            .filter(|_| size as usize <= limit)
            .ok_or(HeadError::Size(size))?;
        let header: RequestHeader =
            try_pod_read_unaligned(head).map_err(|_| HeadError::Malformed)?;
        header.validate().map_err(|_| HeadError::Malformed)?;
        let code = match header.operation {
            Operation::NonReplicated => {
                let [a, b, c, d, ..] = header.reserved;
                u32::from_le_bytes([a, b, c, d])
            }
            Operation::Register => LOGIN_REGISTER_CODE,
            Operation::Logout => LOGOUT_USER_CODE,
            // An operation without a command is one that only servers send to each other.
            operation => operation.to_command_code().ok_or(HeadError::Malformed)?,
        };
        Ok(Self {
            header,
            code,
            body_len,
        })
    }

    /// Whether the request needs a session (all but those that only read do).
    pub(crate) fn is_replicated(&self) -> bool {
        self.header.operation != Operation::NonReplicated
    }

    /// The number that the client chose for itself.
    pub(crate) fn client(&self) -> u128 {
        self.header.client
    }

    /// Checks the body against the header's checksum, if the client gave one.
    ///
    /// # Errors
    /// `InvalidFormat`, as Iggy says.
    pub(crate) fn verify(&self, body: &[u8]) -> Result<(), IggyError> {
        let stamped = self.header.request_checksum;
        match stamped == 0 || stamped == u128::from(calculate_checksum(body)) {
            true => Ok(()),
            false => Err(IggyError::InvalidFormat),
        }
    }

    /// The frame that answers this request: its head (which may run on into a result section) and its body.
    /// `commit` is the number of catalog changes so far, `session` the one that the connection is bound to, or 0.
    pub(crate) fn answer(&self, answer: Answer, session: u64, commit: u64) -> (Bytes, Bytes) {
        let framed = self.header.operation.is_metadata();
        match answer {
            Answer::Reply(body) => {
                // A count of 0 says "no error"; see `iggy_binary_protocol::result_code`.
                let counted = self.header.operation.is_result_framed()
                    || self.header.operation == Operation::Register;
                let section: &[u8] = if counted { &[0; 4] } else { &[] };
                (self.reply(section, body.len(), 0, session, commit), body)
            }
            Answer::Refuse(error) if framed => {
                let mut section = BytesMut::with_capacity(12);
                section.put_u32_le(1);
                section.put_u32_le(0);
                section.put_u32_le(error.as_code());
                (self.reply(&section, 0, 0, session, commit), Bytes::new())
            }
            Answer::Refuse(error) => (
                self.reply(&[], 0, error.as_code(), session, commit),
                Bytes::new(),
            ),
            Answer::Evict(reason) => (eviction(self.header.client, reason), Bytes::new()),
        }
    }

    fn reply(
        &self,
        section: &[u8],
        body_len: usize,
        status: u32,
        session: u64,
        commit: u64,
    ) -> Bytes {
        let total = HEADER_SIZE + section.len() + body_len;
        let header = ReplyHeader {
            // Bodies are bounded far below 4 GiB by the caps on what a reply may hold.
            size: u32::try_from(total).unwrap_or(u32::MAX),
            cluster: self.header.cluster,
            view: self.header.view,
            release: self.header.release,
            command: Command::Reply,
            replica: self.header.replica,
            request_checksum: self.header.request_checksum,
            client: self.header.client,
            op: session,
            commit,
            timestamp: self.header.timestamp,
            request: self.header.request,
            operation: self.header.operation,
            status,
            ..ReplyHeader::default()
        };
        let mut out = BytesMut::with_capacity(HEADER_SIZE + section.len());
        out.put_slice(bytemuck::bytes_of(&header));
        out.put_slice(section);
        out.freeze()
    }
}

/// The frame that ends the session of `client`.
pub(crate) fn eviction(client: u128, reason: EvictionReason) -> Bytes {
    // A reader of the frame may refuse the number 0.
    let client = client.max(1);
    let header = match reason {
        EvictionReason::IncompatibleProtocol => EvictionHeader::incompatible_protocol(
            0,
            0,
            0,
            client,
            IGGY_PROTOCOL_VERSION,
            IGGY_PROTOCOL_VERSION_MIN,
        ),
        reason => EvictionHeader::new(0, 0, 0, client, reason),
    };
    Bytes::copy_from_slice(bytemuck::bytes_of(&header))
}
