//! Why a message is refused: one reason each, with a name that stays the same.
//!
//! What always holds: a reason is either of a message that can never be stored where it should (it goes the way of
//! `on_unstorable`), or of one that must not be published (`on_denied`).

use crate::log::LogError;
use crate::mapping::Refusal;
use crate::observe::{Counter, Counters};
use crate::targets::TargetError;

/// Why a message is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// No rule matches, and the map refuses such topics.
    NoRule,
    /// The topic begins with `$`, and no rule is for it.
    DollarTopic,
    /// The rule makes a name that Iggy does not allow.
    InvalidName,
    /// The Iggy topic is not there and must not be made.
    NoTarget,
    /// The Iggy topic would be one more than the map's bounds allow.
    TooManyTargets,
    /// The Iggy topic promises less than the rule asks for.
    WeakDurability,
    /// Iggy does not permit it to the gateway's user.
    NotPermitted,
    /// The message is over Iggy's limits.
    TooLarge,
    /// Iggy refuses it for another reason that no retry changes.
    Rejected,
    /// No source connector is attached.
    NoIngestRole,
    /// The permissions of its client do not allow it.
    NotAllowed,
}

impl Reason {
    /// For headers, counters and log lines.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoRule => "no_rule",
            Self::DollarTopic => "dollar_topic",
            Self::InvalidName => "invalid_name",
            Self::NoTarget => "no_target",
            Self::TooManyTargets => "too_many_targets",
            Self::WeakDurability => "weak_durability",
            Self::NotPermitted => "not_permitted",
            Self::TooLarge => "too_large",
            Self::Rejected => "rejected",
            Self::NoIngestRole => "no_ingest_role",
            Self::NotAllowed => "not_allowed",
        }
    }

    /// Where it is counted.
    pub fn counter(self, counters: &Counters) -> &Counter {
        match self {
            Self::NoRule => &counters.refused_no_rule,
            Self::DollarTopic => &counters.refused_dollar_topic,
            Self::InvalidName => &counters.refused_invalid_name,
            Self::NoTarget => &counters.refused_no_target,
            Self::TooManyTargets => &counters.refused_too_many_targets,
            Self::WeakDurability => &counters.refused_weak_durability,
            Self::NotPermitted => &counters.refused_not_permitted,
            Self::TooLarge => &counters.refused_too_large,
            Self::Rejected => &counters.refused_rejected,
            Self::NoIngestRole => &counters.refused_no_ingest_role,
            Self::NotAllowed => &counters.refused_not_allowed,
        }
    }
}

impl From<&Refusal> for Reason {
    fn from(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::NoRule => Self::NoRule,
            Refusal::DollarTopic => Self::DollarTopic,
            Refusal::InvalidName { .. } => Self::InvalidName,
        }
    }
}

impl From<&TargetError> for Reason {
    fn from(error: &TargetError) -> Self {
        match error {
            TargetError::Missing { .. } | TargetError::ForeignMissing { .. } => Self::NoTarget,
            TargetError::TooManyStreams { .. } | TargetError::TooManyTopics { .. } => {
                Self::TooManyTargets
            }
            TargetError::WeakDurability { .. } => Self::WeakDurability,
            TargetError::Log { error, .. } => error.into(),
        }
    }
}

/// Transient errors are tried again and refuse nothing; if one comes here all the same, it is as vague as it gets.
impl From<&LogError> for Reason {
    fn from(error: &LogError) -> Self {
        match error {
            LogError::NoSuchTarget(_) => Self::NoTarget,
            LogError::NotPermitted(_) | LogError::BadCredentials { .. } => Self::NotPermitted,
            LogError::TooLarge(_) => Self::TooLarge,
            LogError::Refused(_)
            | LogError::Unreachable { .. }
            | LogError::Timeout(_)
            | LogError::Busy(_) => Self::Rejected,
        }
    }
}
