//! What can be wrong with a topic map, and what can be doubtful about it: one variant a reason.
//!
//! What always holds: each message says what is wrong and what to do.

use crate::log::MAX_NAME_BYTES;
use crate::report::advice;

/// Why a topic map does not compile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The file is not TOML.
    #[error("{0}; correct the TOML here")]
    Syntax(String),
    /// A text between double quotes with a backslash that TOML does not know.
    #[error(
        "{0}; write patterns and templates in single quotes: between them TOML leaves every \\ as it is"
    )]
    BrokenEscape(String),
    /// Too many tables of a kind.
    #[error(
        "{count} [[{name}]] tables, but {max} are the most; use groups in the templates, so that one rule serves many topics"
    )]
    TooMany {
        /// The kind.
        name: &'static str,
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
    /// A rule lacks a key that every rule needs.
    #[error("missing, and every rule needs it; add a line {key} = '…'")]
    MissingKey {
        /// The key.
        key: &'static str,
    },
    /// Nothing is said about topics that match no rule.
    #[error(
        "missing, so topics that match no rule have nowhere to go; set {key}, or on_unmatched = \"refuse\""
    )]
    MissingDefault {
        /// `default_stream` or `default_topic`.
        key: &'static str,
    },
    /// A number is too small or too large.
    #[error("{found} is out of range; give a whole number from {min} to {max}")]
    OutOfRange {
        /// The number as written.
        found: String,
        /// The smallest that is accepted.
        min: u32,
        /// The largest that is accepted.
        max: u32,
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
    /// Not a duration.
    #[error(
        "{found:?} is not a duration ({reason}); write one such as \"12h\" or \"30days\", or \"never\" or \"server_default\""
    )]
    BadDuration {
        /// The value as written.
        found: String,
        /// Why not.
        reason: String,
    },
    /// Not a size.
    #[error(
        "{found:?} is not a size ({reason}); write one such as \"500MB\" or \"10GiB\", or \"unlimited\" or \"server_default\""
    )]
    BadSize {
        /// The value as written.
        found: String,
        /// Why not.
        reason: String,
    },
    /// The pattern is not a regular expression.
    #[error("the pattern does not compile: {0}; correct it here")]
    BadPattern(String),
    /// The compiled pattern takes too much memory.
    #[error(
        "the compiled pattern takes more than {limit} bytes; use smaller repetitions, or split the rule"
    )]
    PatternTooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// All compiled patterns together take too much memory.
    #[error(
        "the compiled patterns of all rules together take more than {limit} bytes; use fewer or simpler rules: \\w and \\d are large, [0-9A-Za-z_] and [0-9] are small"
    )]
    PatternsTooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// The pattern matches no text, or only the empty one, which is no topic.
    #[error("no topic can match this pattern; correct it, or remove the rule")]
    MatchesNothing,
    /// The pattern begins with `$` as the end anchor.
    #[error(
        "no topic can match this pattern, because $ at its beginning is the end of the topic; write \\$ for a dollar"
    )]
    LeadingEndAnchor,
    /// The pattern demands a character that no topic has.
    #[error(
        "no topic can match this pattern, because a topic never contains +, # or U+0000; this is a regular expression: write [^/]+ for one level and .* for all that follow"
    )]
    DemandsForbidden,
    /// An earlier rule has the same pattern.
    #[error(
        "this rule is never reached, because rule {earlier} matches the same topics; remove one of the two"
    )]
    SameAsEarlier {
        /// The earlier rule, counted from 1.
        earlier: usize,
    },
    /// An earlier rule takes every topic.
    #[error(
        "this rule is never reached, because rule {earlier} matches every topic; move it before rule {earlier}, or remove it"
    )]
    AfterCatchAll {
        /// The earlier rule, counted from 1.
        earlier: usize,
    },
    /// A `$` that is not a reference.
    #[error(
        "a $ must begin $1, ${{1}} or ${{name}}, or be doubled; write ${{name}} for a named group and $$ for a dollar"
    )]
    MalformedReference,
    /// No such group.
    #[error(
        "{} names no group of mqtt_topic, which has {groups}; correct it, or add the group", reference.escape_debug()
    )]
    UnknownGroup {
        /// The reference as written.
        reference: String,
        /// The groups that there are, in words.
        groups: String,
    },
    /// A group that some matches leave out.
    #[error(
        "{reference} takes no part in some matches of mqtt_topic (it is optional, or in one branch of an alternation); make the group part of every match, or split the rule"
    )]
    OptionalGroup {
        /// The reference as written.
        reference: String,
    },
    /// A reference where there is no pattern.
    #[error("{reference} names no group, because there is no pattern here; write $$ for a dollar")]
    NoPattern {
        /// The reference as written.
        reference: String,
    },
    /// A constant name without characters.
    #[error("empty, but Iggy names have 1 to {MAX_NAME_BYTES} bytes; give it a name")]
    EmptyName,
    /// A name that is always longer than Iggy allows.
    #[error(
        "always has {at_least} bytes or more, but Iggy names have 1 to {MAX_NAME_BYTES}; shorten it"
    )]
    NameTooLong {
        /// The shortest that it can be, in bytes.
        at_least: usize,
    },
    /// A template that some topics expand to nothing.
    #[error(
        "some topics would give an empty name; add constant text, or make a group match at least one character (+ instead of *)"
    )]
    MayBeEmpty,
    /// A topic of other producers lacks a key that every one needs.
    #[error("missing, and every [[foreign]] topic needs it; add a line {key} = '…'")]
    MissingForeignKey {
        /// The key.
        key: &'static str,
    },
    /// Two entries are about the same topic.
    #[error("foreign {earlier} is about the same Iggy topic; remove one of the two")]
    SameForeign {
        /// The earlier entry, counted from 1.
        earlier: usize,
    },
    /// No such variable.
    #[error("{} is not known here; use one of ${}", reference.escape_debug(), known.join(", $"))]
    UnknownVariable {
        /// The reference as written.
        reference: String,
        /// The variables that there are.
        known: &'static [&'static str],
    },
    /// A `$` that is no variable.
    #[error(
        "a $ must begin a variable such as $stream or ${{stream}}, or be doubled; write $$ for a dollar"
    )]
    MalformedVariable,
    /// The template can give no legal topic.
    #[error(
        "no record would get a legal MQTT topic: {0}; correct the template, or the names in it"
    )]
    IllegalForeignTopic(crate::mqtt::TopicError),
    /// `$key` without a header to take it from.
    #[error(
        "Iggy stores no key with a record, so $key is not known; name the user header that carries it with key_header = '…', or leave $key out"
    )]
    NoKeyHeader,
    /// No name of a header.
    #[error("has {bytes} bytes, but the name of a header has 1 to 255; correct it")]
    BadHeaderName {
        /// How long it is.
        bytes: usize,
    },
    /// A constant key without characters.
    #[error(
        "empty, so every message would go to the same partition; give it a key, or remove it to use all partitions in turn"
    )]
    EmptyKey,
}

/// What is doubtful in a topic map that compiles.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Warning {
    /// Without a key, messages of one topic go to several partitions.
    #[error(
        "{partitions} partitions and no partition_key: messages of one MQTT topic go to all of them in turn, order is not kept; set partition_key to keep it"
    )]
    Balanced {
        /// The number of partitions of the topics that this makes.
        partitions: u32,
    },
    /// `\d` and `\w` match more than ASCII.
    #[error("{class} also matches {what} outside ASCII; write {instead} if you mean ASCII only")]
    UnicodeClass {
        /// The class as written.
        class: &'static str,
        /// What it matches.
        what: &'static str,
        /// The ASCII class.
        instead: &'static str,
    },
    /// A `+` after a slash looks like the MQTT wildcard.
    #[error(
        "/+ means one or more slashes here, not any one level; write /[^/]+ for one level, or /{{1,}} if slashes are meant"
    )]
    LooksLikeWildcard,
    /// A character that is not seen, probably from an escape between double quotes.
    #[error(
        "the pattern contains the control character {escaped}, which topics hardly do; if a \\ before a letter was meant, write the pattern in single quotes"
    )]
    ControlCharacter {
        /// The character, escaped.
        escaped: String,
    },
    /// A header that nothing uses.
    #[error("not used, because mqtt_topic has no $key; remove one of the two")]
    UnusedKeyHeader,
    /// A default that nothing uses.
    #[error("not used, because on_unmatched = \"refuse\"; remove one of the two")]
    UnusedDefault,
    /// Two rules would make the same Iggy topic differently.
    #[error(
        "{earlier} leads to the same Iggy topic {target} with other settings, and the topic is made only once; give both the same partitions, message_expiry, max_topic_size, durability and auto_create"
    )]
    DisputedTarget {
        /// Who else leads there.
        earlier: super::RuleId,
        /// Where.
        target: crate::log::Target,
    },
}
