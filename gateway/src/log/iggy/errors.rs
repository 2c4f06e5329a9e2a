//! What each error of the Iggy SDK means for a caller of the log.
//!
//! What always holds: the match over the SDK's errors has no catch-all, so a release of the SDK that knows more of them does
//! not compile until each is judged. An error that may pass by itself, or whose outcome is unknown, is transient; when in
//! doubt too, because a retry carries the same record ids.
//!
//! | class | becomes | codes of Iggy |
//! |---|---|---|
//! | broken: the connection is of no use any more | `Unreachable` (transient) | 8, 9, 30, 31, 40, 61, 63, 206, 304, 14000, 14001 |
//! | busy: the server cannot now | `Busy` (transient) | 1 and all unknown codes, 3, 57–59, 82, server-side I/O and recovery (10–21, 1000–1008, 1015, 2000–2009, 2017, 2020, 3000–3006, 3009–3012, 3020, 3023, 4000–4016, 4020, 4021, 4026, 4027, 4039, 4050–4057, 4102, 6000–7004, 9000–12001, 13000) |
//! | credentials | `BadCredentials` | 42–45, 47, 53, 54 |
//! | permission | `NotPermitted` | 41 |
//! | missing | `NoSuchTarget` | 20, 1009–1011, 2010, 2011, 3007, 3008 |
//! | too large | `TooLarge` | 4017, 4022, 4023, 4025, 4028, 4043 |
//! | refused | `Refused` | everything else: wrong arguments, features the server lacks, limits of its configuration |
//!
//! Code 3 (invalid command) is what the SDK says when it cannot understand a reply, and what an older server answers to a
//! command that it does not know; code 82 (invalid number encoding) is said by the SDK only, of a reply that is too short. Where
//! a reply could not be read to its end, the SDK itself closes the connection. Code 40
//! (unauthenticated) comes when the server has forgotten the session; a new connection logs in anew. Code 59 (already
//! applied) means that the request was done; a retry stores it twice, which at-least-once allows.

use ::iggy::prelude::IggyError;

use crate::log::LogError;

/// What an error means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// The connection is of no use any more.
    Broken,
    /// The server cannot do it now.
    Busy,
    /// The user name or password is wrong.
    Credentials,
    /// The user may not do it.
    Permission,
    /// The stream, topic or partition is not there.
    Missing,
    /// A record or the request is too large.
    TooLarge,
    /// The server will never do it.
    Refused,
}

/// What the caller of a failed request needs to be told about it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Context<'a> {
    /// The server's address.
    pub(super) address: &'a str,
    /// The user that the connection is logged in as.
    pub(super) username: &'a str,
    /// What the request was about: a stream and topic, with a partition if there is one.
    pub(super) about: &'a str,
}

impl Context<'_> {
    /// The log's word for `error`.
    pub(super) fn explain(&self, error: &IggyError) -> LogError {
        // The text of the SDK's error names the target with made-up numbers: only the code comes over the wire.
        let name = error.as_string().replace('_', " ");
        let reason = || format!("{name} (Iggy error {})", error.as_code());
        let about = || format!("{}: {}", self.about, reason());
        match class(error) {
            Class::Broken => LogError::Unreachable {
                address: self.address.to_owned(),
                reason: reason(),
            },
            Class::Busy => LogError::Busy(about()),
            Class::Credentials => LogError::BadCredentials {
                username: self.username.to_owned(),
            },
            Class::Permission => LogError::NotPermitted(self.about.to_owned()),
            Class::Missing => LogError::NoSuchTarget(self.about.to_owned()),
            Class::TooLarge => LogError::TooLarge(about()),
            Class::Refused => LogError::Refused(about()),
        }
    }
}

/// Whether the error may mean that a reply was not what the protocol says, so that more of it may still come.
pub(super) fn is_unreadable(error: &IggyError) -> bool {
    matches!(
        error,
        IggyError::InvalidCommand | IggyError::InvalidNumberEncoding | IggyError::InvalidFormat
    )
}

/// Judges an error. See the table of the module.
pub(super) fn class(error: &IggyError) -> Class {
    use IggyError as E;
    match error {
        E::Disconnected
        | E::CannotEstablishConnection
        | E::StaleClient
        | E::TcpError
        | E::Unauthenticated
        | E::NotConnected
        | E::ClientShutdown
        | E::ConnectionClosed
        | E::EmptyResponse
        | E::AlreadyAuthenticated
        | E::InvalidSession(..) => Class::Broken,

        E::Error
        | E::InvalidCommand
        | E::InvalidNumberEncoding
        | E::TransientNotCommitted
        | E::TransientNotAccepted
        | E::RequestAlreadyApplied
        | E::CannotCreateBaseDirectory(..)
        | E::CannotCreateRuntimeDirectory(..)
        | E::CannotRemoveRuntimeDirectory(..)
        | E::CannotCreateStateDirectory(..)
        | E::StateFileNotFound
        | E::StateFileCorrupted
        | E::InvalidStateEntryChecksum(..)
        | E::CannotOpenDatabase(..)
        | E::CannotCloseWebSocketConnection(..)
        | E::CannotCreateStreamsDirectory(..)
        | E::CannotCreateStreamDirectory(..)
        | E::CannotCreateStreamInfo(..)
        | E::CannotUpdateStreamInfo(..)
        | E::CannotOpenStreamInfo(..)
        | E::CannotReadStreamInfo(..)
        | E::CannotCreateStream(..)
        | E::CannotDeleteStream(..)
        | E::CannotDeleteStreamDirectory(..)
        | E::CannotReadStreams
        | E::CannotCreateTopicsDirectory(..)
        | E::CannotCreateTopicDirectory(..)
        | E::CannotCreateTopicInfo(..)
        | E::CannotUpdateTopicInfo(..)
        | E::CannotOpenTopicInfo(..)
        | E::CannotReadTopicInfo(..)
        | E::CannotCreateTopic(..)
        | E::CannotDeleteTopic(..)
        | E::CannotDeleteTopicDirectory(..)
        | E::CannotPollTopic
        | E::CannotReadTopics(..)
        | E::TopicDirectoryNotFound(..)
        | E::CannotCreatePartition(..)
        | E::CannotCreatePartitionsDirectory(..)
        | E::CannotCreatePartitionDirectory(..)
        | E::CannotOpenPartitionLogFile
        | E::CannotReadPartitions
        | E::CannotDeletePartition(..)
        | E::CannotDeletePartitionDirectory(..)
        | E::TopicFull(..)
        | E::CannotDeleteConsumerOffsetsDirectory(..)
        | E::CannotDeleteConsumerOffsetFile(..)
        | E::CannotCreateConsumerOffsetsDirectory(..)
        | E::CannotReadConsumerOffsets(..)
        | E::CannotOpenConsumerOffsetsFile(..)
        | E::SegmentNotFound
        | E::SegmentClosed(..)
        | E::InvalidSegmentSize(..)
        | E::CannotCreateSegmentLogFile(..)
        | E::CannotCreateSegmentIndexFile(..)
        | E::CannotCreateSegmentTimeIndexFile(..)
        | E::CannotSaveMessagesToSegment
        | E::CannotSaveIndexToSegment
        | E::CannotSaveTimeIndexToSegment
        | E::CannotAppendMessage
        | E::CannotReadMessage
        | E::CannotReadMessageId
        | E::CannotReadMessageState
        | E::CannotReadMessageTimestamp
        | E::CannotReadHeadersLength
        | E::CannotReadHeadersPayload
        | E::CannotReadMessageLength
        | E::CannotReadMessagePayload
        | E::CannotReadMessageChecksum
        | E::InvalidMessageChecksum(..)
        | E::InvalidBatchChecksum(..)
        | E::CannotSendMessagesDueToClientDisconnection
        | E::BackgroundSendError
        | E::BackgroundSendTimeout
        | E::BackgroundSendBufferFull
        | E::BackgroundWorkerDisconnected
        | E::BackgroundSendBufferOverflow
        | E::ProducerSendFailed { .. }
        | E::ProducerClosed
        | E::SegmentSizeMismatchAtOpen(..)
        | E::MissingBaseOffsetRetainedMessageBatch
        | E::MissingLastOffsetDeltaRetainedMessageBatch
        | E::MissingMaxTimestampRetainedMessageBatch
        | E::MissingLengthRetainedMessageBatch
        | E::MissingPayloadRetainedMessageBatch
        | E::CannotReadBatchBaseOffset
        | E::CannotReadBatchLength
        | E::CannotReadLastOffsetDelta
        | E::CannotReadMaxTimestamp
        | E::CannotReadBatchPayload
        | E::SnapshotFileCompletionFailed
        | E::CannotSerializeResource
        | E::CannotDeserializeResource
        | E::CannotReadFile
        | E::CannotReadFileMetadata
        | E::CannotSeekFile
        | E::CannotAppendToFile
        | E::CannotWriteToFile
        | E::CannotOverwriteFile
        | E::CannotDeleteFile
        | E::CannotSyncFile
        | E::CannotReadIndexOffset
        | E::CannotReadIndexPosition
        | E::CannotReadIndexTimestamp
        | E::TimestampOutOfRange(..)
        | E::ShardNotFound(..)
        | E::ShardCommunicationError
        | E::CannotBindToSocket(..)
        | E::TaskTimeout
        | E::IoError(..) => Class::Busy,

        E::InvalidCredentials
        | E::InvalidUsername
        | E::InvalidPassword
        | E::InvalidUserStatus
        | E::UserInactive
        | E::InvalidPersonalAccessToken
        | E::PersonalAccessTokenExpired(..) => Class::Credentials,

        E::Unauthorized => Class::Permission,

        E::ResourceNotFound(..)
        | E::StreamIdNotFound(..)
        | E::StreamNameNotFound(..)
        | E::StreamDirectoryNotFound(..)
        | E::TopicIdNotFound(..)
        | E::TopicNameNotFound(..)
        | E::PartitionNotFound(..)
        | E::NoPartitions(..) => Class::Missing,

        E::TooBigUserHeaders
        | E::TooBigMessagePayload
        | E::TooManyMessages
        | E::InvalidMessagePayloadLength
        | E::InvalidKeyValueLength
        | E::OptionsBlockTooLarge(..) => Class::TooLarge,

        E::InvalidConfiguration
        | E::InvalidFormat
        | E::FeatureUnavailable
        | E::InvalidIdentifier
        | E::InvalidVersion(..)
        | E::QuicError
        | E::InvalidServerAddress
        | E::InvalidClientAddress
        | E::InvalidIpAddress(..)
        | E::HttpError(..)
        | E::InvalidApiUrl(..)
        | E::UserAlreadyExists
        | E::CannotDeleteUser(..)
        | E::CannotChangePermissions(..)
        | E::InvalidPersonalAccessTokenName
        | E::PersonalAccessTokenAlreadyExists(..)
        | E::PersonalAccessTokensLimitReached(..)
        | E::UsersLimitReached
        | E::InvalidPersonalAccessTokenExpiry
        | E::InvalidTlsDomain
        | E::InvalidTlsCertificatePath
        | E::InvalidTlsCertificate
        | E::FailedToAddCertificate
        | E::InvalidEncryptionKey
        | E::CannotEncryptData
        | E::CannotDecryptData
        | E::InvalidJwtAlgorithm(..)
        | E::InvalidJwtSecret
        | E::JwtMissing
        | E::CannotGenerateJwt
        | E::AccessTokenMissing
        | E::InvalidAccessToken
        | E::CannotFetchJwks(..)
        | E::InvalidSizeBytes
        | E::InvalidUtf8
        | E::InvalidBooleanValue
        | E::InvalidNumberValue
        | E::ClientNotFound(..)
        | E::InvalidClientId
        | E::CannotParseHeaderKind(..)
        | E::HttpResponseError(..)
        | E::InvalidHttpRequest
        | E::InvalidJsonResponse
        | E::InvalidBytesResponse
        | E::CannotCreateEndpoint
        | E::CannotParseUrl
        | E::WebSocketError
        | E::WebSocketConnectionError
        | E::WebSocketCloseError
        | E::WebSocketReceiveError
        | E::WebSocketSendError
        | E::StreamNameAlreadyExists(..)
        | E::InvalidStreamName
        | E::InvalidStreamId
        | E::InvalidTopicSize(..)
        | E::TooManyStreams
        | E::TopicNameAlreadyExists(..)
        | E::InvalidTopicName
        | E::TooManyPartitions
        | E::InvalidTopicId
        | E::InvalidReplicationFactor
        | E::InvalidPartitionsCount
        | E::TooManyTopics
        | E::PartitionIdSpaceExhausted
        | E::ConsumerOffsetNotFound(..)
        | E::NotResolvedConsumer(..)
        | E::TooManyConsumerOffsets
        | E::InvalidMessagesCount
        | E::InvalidHeaderKey
        | E::InvalidHeaderValue
        | E::EmptyMessagePayload
        | E::CommandLengthError(..)
        | E::InvalidSegmentsCount(..)
        | E::NonZeroOffset(..)
        | E::NonZeroTimestamp(..)
        | E::MissingIndex(..)
        | E::InvalidIndexesByteSize(..)
        | E::InvalidIndexesCount(..)
        | E::InvalidMessagesSize(..)
        | E::TooSmallMessage(..)
        | E::InvalidMessageTimestampDelta(..)
        | E::InvalidHeaderKind(..)
        | E::UnsupportedOptionKey(..)
        | E::InvalidOptionValue(..)
        | E::InvalidOffset(..)
        | E::InvalidReservedField(..)
        | E::ConsumerGroupIdNotFound(..)
        | E::InvalidConsumerGroupId
        | E::ConsumerGroupNameNotFound(..)
        | E::ConsumerGroupNameAlreadyExists(..)
        | E::InvalidConsumerGroupName
        | E::ConsumerGroupMemberNotFound(..)
        | E::CannotCreateConsumerGroupInfo(..)
        | E::CannotDeleteConsumerGroupInfo(..)
        | E::ConsumerGroupPartitionNotOwned(..)
        | E::InvalidConnectionString
        | E::IncompatibleProtocolVersion(..) => Class::Refused,
    }
}

#[cfg(test)]
mod tests;
