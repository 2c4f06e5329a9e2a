//! The error that a connector hands to the interface. Its text is all that reaches the operator (by way of the log), so
//! it has to say the reason.

use crate::Schema;

/// Why a connector could not do what was asked. The variants are those of the official crate that a gateway needs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Error {
    /// A value in `plugin_config` cannot be used.
    #[error("invalid configuration: {0}")]
    InvalidConfigValue(String),
    /// The connector could not be started.
    #[error("{0}")]
    InitError(String),
    /// A peer cannot be reached or the connection to it was lost.
    #[error("connection error: {0}")]
    Connection(String),
    /// Data could not be handed on.
    #[error("cannot store data: {0}")]
    CannotStoreData(String),
    /// A value could not be encoded or decoded.
    #[error("serialization error: {0}")]
    Serialization(String),
    /// The state that the runtime kept for this connector is not usable.
    #[error("the state kept for this connector is invalid")]
    InvalidState,
    /// The payload is not JSON although the schema says so.
    #[error("the payload is not JSON")]
    InvalidJsonPayload,
    /// The payload is not UTF-8 although the schema says text.
    #[error("the payload is not UTF-8 text")]
    InvalidTextPayload,
    /// This connector does not take payloads of that schema.
    #[error("cannot decode payloads of schema {0}")]
    CannotDecode(Schema),
}
