//! A topic's options: checked as Iggy checks them, and worked out to what holds.
//!
//! The blocks with the client's own keys and with the defaults are kept apart, because a client that copies a topic sends
//! only the former.

use iggy_binary_protocol::WireOptions;
use iggy_common::wire_conversions::{
    resource_options_from_wire, resource_options_from_wire_split, resource_options_to_wire_split,
};
use iggy_common::{
    CompressionAlgorithm, DEFAULT_PREALLOCATE_SEGMENTS, DEFAULT_SEGMENT_SIZE, IggyByteSize,
    IggyError, IggyExpiry, MAX_TOPIC_SEGMENT_SIZE, MaxTopicSize, TopicCreateOptions,
    TopicRuntimeDefaults, UPDATABLE_TOPIC_OPTION_KEYS, validate_preallocated_topic_bytes,
    validate_topic_segment_size,
};

use super::catalog::TopicSettings;

/// The settings of a new topic.
///
/// # Errors
/// `UnsupportedOptionKey`, `InvalidOptionValue`, `InvalidTopicSize`.
pub(crate) fn create(options: &WireOptions, partitions: u32) -> Result<TopicSettings, IggyError> {
    let given = TopicCreateOptions::parse(options)?;
    let segment_size = given
        .segment_size
        .map_or(DEFAULT_SEGMENT_SIZE, |size| size.as_bytes_u64());
    validate_topic_segment_size(segment_size, MAX_TOPIC_SEGMENT_SIZE)?;
    if given
        .preallocate_segments
        .unwrap_or(DEFAULT_PREALLOCATE_SEGMENTS)
    {
        validate_preallocated_topic_bytes(segment_size, partitions)?;
    }
    let max_topic_size = given.max_topic_size.unwrap_or(MaxTopicSize::Unlimited);
    check_topic_size(max_topic_size, segment_size)?;
    let message_expiry = given.message_expiry.unwrap_or(IggyExpiry::NeverExpire);
    let compression = given.compression_algorithm.unwrap_or_default();

    let supplied = |key: &str| options.iter().any(|option| option.key == key.as_bytes());
    let derived = given.derived_block(
        CompressionAlgorithm::default(),
        IggyExpiry::NeverExpire,
        MaxTopicSize::Unlimited,
        TopicRuntimeDefaults::default(),
        options,
    )?;
    Ok(TopicSettings {
        explicit: given.to_explicit_wire(supplied)?.as_bytes().to_vec(),
        derived: derived.as_bytes().to_vec(),
        durability: given.durability,
        message_expiry: u64::from(message_expiry),
        compression: compression.as_code(),
        max_topic_size: u64::from(max_topic_size),
        segment_size,
    })
}

/// The settings after an update: keys that it does not name stay as they are.
///
/// # Errors
/// As [`create`]; of all keys only compression, expiry and the topic's size can be updated.
pub(crate) fn update(
    old: &TopicSettings,
    options: &WireOptions,
) -> Result<TopicSettings, IggyError> {
    for option in options {
        let key = String::from_utf8_lossy(option.key);
        if !UPDATABLE_TOPIC_OPTION_KEYS.contains(&key.as_ref()) {
            return Err(IggyError::UnsupportedOptionKey(key.into_owned()));
        }
    }
    let given = TopicCreateOptions::parse(options)?;
    let mut settings = old.clone();
    if let Some(size) = given.max_topic_size {
        check_topic_size(size, old.segment_size)?;
        settings.max_topic_size = u64::from(size);
    }
    if let Some(expiry) = given.message_expiry {
        settings.message_expiry = u64::from(expiry);
    }
    if let Some(compression) = given.compression_algorithm {
        settings.compression = compression.as_code();
    }
    let block = |bytes: &[u8]| WireOptions::from_slice(bytes).map_err(|_| IggyError::InvalidFormat);
    let mut all = resource_options_from_wire_split(&block(&old.explicit)?, &block(&old.derived)?)?;
    all.extend(resource_options_from_wire(options, true)?);
    let (explicit, derived) = resource_options_to_wire_split(&all)?;
    settings.explicit = explicit.as_bytes().to_vec();
    settings.derived = derived.as_bytes().to_vec();
    Ok(settings)
}

/// A topic smaller than one segment is a size that Iggy could not enforce, and refuses.
fn check_topic_size(size: MaxTopicSize, segment_size: u64) -> Result<(), IggyError> {
    match size.as_bytes_u64() < segment_size {
        true => Err(IggyError::InvalidTopicSize(
            size,
            IggyByteSize::from(segment_size),
        )),
        false => Ok(()),
    }
}
