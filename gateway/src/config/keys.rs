//! The names of all keys: which there are, which variable is which key, and what a wrong name was probably meant to be.
//!
//! What always holds: [`slots`] lists every key that has a value of its own in [`Config`]; the three that decide where
//! other values come from are named here.

use std::sync::LazyLock;
use std::time::Duration;

use super::Config;
use super::sources::PREFIX;
use super::value::{DAY, MILLISECOND, Slot};

/// The one table.
pub(super) const TABLE: &str = "limits";
/// The one list of tables.
pub(super) const LISTENER: &str = "listener";
/// Names the gateway file; in `plugin_config` or the environment, not in the file itself.
pub(super) const CONFIG: &str = "config";
/// The password itself.
pub(super) const PASSWORD: &str = "iggy_password";
/// A file with the password.
pub(super) const PASSWORD_FILE: &str = "iggy_password_file";

/// Every key with the place it fills, in the order of the documentation.
pub(super) fn slots(config: &mut Config) -> Vec<(&'static str, Slot<'_>)> {
    // Without `..`: a new field does not compile until someone decides which key fills it.
    let Config {
        name,
        node,
        listen,
        listener: _,
        access,
        http,
        topic_map,
        headers,
        ingest,
        iggy,
        shutdown_grace,
        limits,
    } = config;
    let super::IngestConfig {
        produce,
        on_unstorable,
        dead_letter,
        on_denied,
        on_weak_durability,
    } = ingest;
    let crate::log::Target {
        stream: dead_letter_stream,
        topic: dead_letter_topic,
    } = dead_letter;
    let super::AccessConfig {
        authentication,
        users_file,
        acl_file,
        jwt,
    } = access;
    let super::JwtKeys {
        algorithm: jwt_algorithm,
        key_files: jwt_key_files,
        user_claim: jwt_user_claim,
        client_id_claim: jwt_client_id_claim,
        issuer: jwt_issuer,
        audience: jwt_audience,
    } = jwt;
    let super::HttpConfig {
        listen: http_listen,
        token_file: http_token_file,
        users: http_users,
    } = http;
    let super::IggyConfig {
        address,
        username,
        password: _,
        connections,
        start_timeout,
        grace,
    } = iggy;
    let mut slots = vec![
        ("name", Slot::Name(name)),
        ("node", Slot::Name(node)),
        ("listen", Slot::Listen(listen)),
        ("authentication", Slot::Methods(authentication)),
        ("users_file", Slot::OptionalFile(users_file)),
        ("acl_file", Slot::OptionalFile(acl_file)),
        ("jwt_algorithm", Slot::Choice(jwt_algorithm)),
        ("jwt_key_files", Slot::Files(jwt_key_files)),
        ("jwt_user_claim", Slot::OptionalText(jwt_user_claim)),
        (
            "jwt_client_id_claim",
            Slot::OptionalText(jwt_client_id_claim),
        ),
        ("jwt_issuer", Slot::OptionalText(jwt_issuer)),
        ("jwt_audience", Slot::OptionalText(jwt_audience)),
        ("http_listen", Slot::AnyListen(http_listen)),
        ("http_token_file", Slot::OptionalFile(http_token_file)),
        ("http_users", Slot::Users(http_users)),
        ("topic_map", Slot::File(topic_map)),
        ("headers", Slot::Headers(headers)),
        ("produce", Slot::Choice(produce)),
        ("on_unstorable", Slot::Choice(on_unstorable)),
        ("dead_letter_stream", Slot::IggyName(dead_letter_stream)),
        ("dead_letter_topic", Slot::IggyName(dead_letter_topic)),
        ("on_denied", Slot::Choice(on_denied)),
        ("on_weak_durability", Slot::Choice(on_weak_durability)),
        ("iggy_address", Slot::Address(address)),
        ("iggy_username", Slot::Credential(username)),
        ("iggy_connections", Slot::Count(connections, 1..=64)),
        (
            "iggy_start_timeout",
            Slot::Time(start_timeout, MILLISECOND..=DAY),
        ),
        ("iggy_grace", Slot::Time(grace, Duration::ZERO..=DAY)),
        (
            "shutdown_grace",
            Slot::Time(shutdown_grace, Duration::ZERO..=DAY),
        ),
    ];
    slots.extend(limits.slots());
    slots
}

static NAMES: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    let mut config = Config::with_defaults();
    let with_value = slots(&mut config).into_iter().map(|(key, _)| key);
    with_value
        .chain([CONFIG, PASSWORD, PASSWORD_FILE])
        .collect()
});

static VARIABLES: LazyLock<Vec<String>> =
    LazyLock::new(|| NAMES.iter().map(|key| variable_of(key)).collect());

/// The variable for a key: `MQTT_GATEWAY_LIMITS_MAX_CONNECTIONS` for `limits.max_connections`.
pub(super) fn variable_of(key: &str) -> String {
    format!("{PREFIX}{}", key.replace('.', "_").to_ascii_uppercase())
}

/// Every key.
#[cfg(test)]
pub(super) fn names() -> &'static [&'static str] {
    &NAMES
}

/// Every variable.
#[cfg(test)]
pub(super) fn variables() -> &'static [String] {
    &VARIABLES
}

/// The key that the variable is for.
pub(super) fn of_variable(variable: &str) -> Option<&'static str> {
    let index = VARIABLES.iter().position(|known| known == variable)?;
    NAMES.get(index).copied()
}

/// What an unknown variable should perhaps have been.
pub(super) fn variable_hint(variable: &str) -> String {
    let known = VARIABLES
        .iter()
        .map(|known| (known.trim_start_matches(PREFIX), known.as_str()));
    match nearest(variable.trim_start_matches(PREFIX), known) {
        Some(known) => format!("did you mean {known}?"),
        None => format!(
            "no variable is like it; known are: {}",
            VARIABLES.join(", ")
        ),
    }
}

/// What an unknown key of a table `[[listener]]` should perhaps have been.
pub(super) fn listener_hint(key: &str) -> String {
    let mut draft = super::listeners::Draft::default();
    let known: Vec<_> = draft.slots().into_iter().map(|(key, _)| key).collect();
    match nearest(key, known.iter().map(|known| (*known, *known))) {
        Some(found) => format!("did you mean `{found}`?"),
        None => format!("a listener has: {}", known.join(", ")),
    }
}

/// What an unknown key of the file or of `plugin_config` should perhaps have been.
pub(super) fn key_hint(key: &str) -> String {
    let (table, leaf) = split(key);
    // A right name in the wrong table is the likeliest: in TOML everything below `[limits]` belongs to it.
    let known = NAMES.iter().copied();
    let by_leaf = known.clone().map(|known| (split(known).1, known));
    let by_key = known.map(|known| (known, known));
    let found =
        nearest(leaf, by_leaf).or_else(|| nearest(&key.replacen("limits_", "limits.", 1), by_key));
    let Some(found) = found else {
        let of_table = NAMES
            .iter()
            .copied()
            .filter(|known| split(known).0 == table)
            .map(|known| split(known).1);
        return format!(
            "no key here is like it; known are: {}",
            of_table.collect::<Vec<_>>().join(", ")
        );
    };
    let (found_table, found_leaf) = split(found);
    match (found_table == table, found_table) {
        (true, _) => format!("did you mean `{found_leaf}`?"),
        (false, "") => format!(
            "did you mean `{found_leaf}` outside of the table {TABLE}? (it goes above the line [{TABLE}])"
        ),
        (false, _) => format!("did you mean `{found_leaf}` in the table {found_table}?"),
    }
}

/// Table and name; the table of a top-level key is empty.
fn split(key: &str) -> (&str, &str) {
    match key
        .strip_prefix(TABLE)
        .and_then(|rest| rest.strip_prefix('.'))
    {
        Some(leaf) => (TABLE, leaf),
        None => ("", key),
    }
}

/// The candidate whose first part is most like the text, if any is like it at all.
fn nearest<'a>(
    text: &str,
    candidates: impl Iterator<Item = (&'a str, &'a str)>,
) -> Option<&'a str> {
    const ALIKE: f64 = 0.55;
    // Longer than any key by far: no need to compare.
    if text.len() > 100 {
        return None;
    }
    let scored =
        candidates.map(|(part, whole)| (strsim::normalized_damerau_levenshtein(text, part), whole));
    let best = scored.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (best.0 >= ALIKE).then_some(best.1)
}
