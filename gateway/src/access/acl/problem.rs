//! What can be wrong with a file of permissions: one variant a reason.
//!
//! What always holds: each message says what is wrong and what to do.

use crate::mqtt::TopicError;
use crate::report::advice;

use super::Effect;

/// Why a file of permissions cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AclProblem {
    /// The file is not TOML.
    #[error("{0}; correct the TOML here")]
    Syntax(String),
    /// Nobody may do anything.
    #[error(
        "no [[rule]], so nobody could do anything; add one, or leave permissions out of the configuration to allow everything"
    )]
    NoRules,
    /// Too many rules.
    #[error(
        "{count} rules, but {max} are the most; use groups, names that end with * and placeholders, so that one rule serves many clients"
    )]
    TooMany {
        /// How many there are.
        count: usize,
        /// How many there may be.
        max: usize,
    },
    /// No such key.
    #[error("this key is not known; {}", advice(*nearest, known))]
    UnknownKey {
        /// The known key that looks most like it.
        nearest: Option<&'static str>,
        /// All keys that may stand here.
        known: &'static [&'static str],
    },
    /// The value is of the wrong TOML type.
    #[error("must be {expected}, but is {found}; write {expected}")]
    WrongType {
        /// What may stand here.
        expected: &'static str,
        /// What stands here.
        found: &'static str,
    },
    /// Not one of the words that may stand here.
    #[error("{found:?} means nothing here; {}", advice(*nearest, known))]
    UnknownWord {
        /// The word as written.
        found: String,
        /// The known word that looks most like it.
        nearest: Option<&'static str>,
        /// All words that may stand here.
        known: &'static [&'static str],
    },
    /// A list of nothing.
    #[error("an empty list matches nothing; add to it, or remove the key")]
    EmptyList,
    /// A name without characters.
    #[error("an empty name matches nobody; write a name, or \"*\" for everybody who has one")]
    EmptyName,
    /// A `*` that is not at the end.
    #[error(
        "* stands for the rest of a name, and only at its end; write for example \"sensor-*\", or list the names"
    )]
    MisplacedStar,
    /// No such group.
    #[error("there is no group {found:?}; {}", group_advice(nearest.as_deref(), known))]
    UnknownGroup {
        /// The name as written.
        found: String,
        /// The group that looks most like it.
        nearest: Option<String>,
        /// Some of the groups that there are.
        known: Vec<String>,
    },
    /// A rule about nothing.
    #[error(
        "neither publish nor subscribe, so the rule does nothing; add one of them, or remove the rule"
    )]
    NoFilters,
    /// No such placeholder.
    #[error("{found:?} is no placeholder; {}", placeholder_advice(found))]
    UnknownPlaceholder {
        /// What stands there.
        found: String,
    },
    /// MQTT does not allow the filter.
    #[error("{0}; correct the filter")]
    Illegal(TopicError),
    /// Earlier rules take all there is to decide.
    #[error(
        "this rule never decides, because rule {earlier} comes first for the same or more clients and topics; move it before rule {earlier}, or remove it"
    )]
    NeverReached {
        /// The earlier rule, counted from 1.
        earlier: usize,
    },
    /// An earlier rule takes what this filter is for, and says the opposite.
    #[error(
        "this filter never decides, because rule {earlier} comes first for the same or more clients and topics, and its effect is {effect}; move the rule before rule {earlier}, or remove the filter"
    )]
    Overruled {
        /// The earlier rule, counted from 1.
        earlier: usize,
        /// What it says.
        effect: Effect,
    },
}

fn placeholder_advice(found: &str) -> String {
    let lower = found.to_lowercase();
    let nearest = ["%u", "%c"].into_iter().find(|known| *known == lower);
    match nearest {
        Some(nearest) => format!("did you mean {nearest}? Write %% for a percent sign"),
        None => {
            "use %u for the user name, %c for the client id, and %% for a percent sign".to_owned()
        }
    }
}

fn group_advice(nearest: Option<&str>, known: &[String]) -> String {
    match (nearest, known) {
        (Some(nearest), _) => format!("did you mean {nearest:?}?"),
        (None, []) => "add it under [groups]".to_owned(),
        (None, known) => format!(
            "add it under [groups], where there are {}",
            known.join(", ")
        ),
    }
}
