//! The three places a value can come from, brought to one form: a list of entries, each with its key and its place.
//!
//! What always holds: reading a source never looks at what a value means; every key that was given becomes an entry,
//! known or not, so that nothing is passed over in silence.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::Value;
use toml::de::{DeTable, DeValue};

use super::keys::{self, LISTENER, TABLE};
use super::problem::{Place, Problem};
use super::value::Raw;

/// The prefix of the gateway's environment variables.
pub(super) const PREFIX: &str = "MQTT_GATEWAY_";
/// A configuration file is a few kilobytes; whatever is larger is not one.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// One key as a source gave it.
#[derive(Debug)]
pub(super) struct Entry {
    /// The key with its table: `limits.max_connections`. For a variable that is no key's, the variable's name.
    pub(super) key: String,
    /// Where the key stands.
    pub(super) key_place: Place,
    /// Where the value stands.
    pub(super) place: Place,
    /// The value.
    pub(super) raw: Raw,
}

/// Which source a layer is; what is allowed differs a little.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    File,
    Inline,
    Environment,
}

/// Everything that one source gave.
#[derive(Debug)]
pub(super) struct Layer {
    pub(super) origin: Origin,
    /// The folder that relative paths count from; empty: the working directory.
    pub(super) base: PathBuf,
    pub(super) entries: Vec<Entry>,
}

/// Reads the connector's `plugin_config`. A connector without one has all keys at their defaults.
pub(super) fn inline(plugin_config: &Value) -> Result<Layer, Problem> {
    let mut entries = Vec::new();
    match plugin_config {
        Value::Null => {}
        Value::Object(object) => {
            for (key, value) in object {
                match value {
                    Value::Object(table) if key == TABLE => {
                        entries.extend(
                            table
                                .iter()
                                .map(|(key, value)| inline_entry(format!("{TABLE}.{key}"), value)),
                        );
                    }
                    Value::Array(tables)
                        if key == LISTENER && tables.iter().all(Value::is_object) =>
                    {
                        for (index, table) in tables.iter().enumerate() {
                            let prefix = listener_prefix(index);
                            let table = table.as_object().into_iter().flatten();
                            entries.extend(
                                table.map(|(key, value)| {
                                    inline_entry(format!("{prefix}{key}"), value)
                                }),
                            );
                        }
                    }
                    value => entries.push(inline_entry(top_level(key), value)),
                }
            }
        }
        other => {
            return Err(Problem::NotATable {
                found: json_raw(other).kind(),
            });
        }
    }
    Ok(Layer {
        origin: Origin::Inline,
        base: PathBuf::new(),
        entries,
    })
}

/// What stands before the keys of a listener: they are counted from 1.
fn listener_prefix(index: usize) -> String {
    format!("{LISTENER}[{}].", index + 1)
}

/// The listener that the key is of, and its name there.
pub(super) fn of_listener(key: &str) -> Option<(usize, &str)> {
    let (index, leaf) = key
        .strip_prefix(LISTENER)?
        .strip_prefix('[')?
        .split_once("].")?;
    Some((index.parse().ok()?, leaf))
}

/// A key outside of the table. One that holds a dot itself is put in quotes, lest it be taken for a key of the table.
fn top_level(key: &str) -> String {
    match key.contains(['.', '[']) {
        true => format!("\"{key}\""),
        false => key.to_owned(),
    }
}

fn inline_entry(key: String, value: &Value) -> Entry {
    let place = Place::Inline { key: key.clone() };
    Entry {
        key,
        key_place: place.clone(),
        place,
        raw: json_raw(value),
    }
}

fn json_raw(value: &Value) -> Raw {
    match value {
        Value::Null => Raw::Other("null"),
        Value::Bool(value) => Raw::Bool(*value),
        Value::Number(number) => Raw::Number(number.to_string()),
        Value::String(text) => Raw::Text(text.clone()),
        Value::Array(items) => Raw::List(items.iter().map(json_raw).collect()),
        Value::Object(_) => Raw::Other("a table"),
    }
}

/// Picks the gateway's variables out of the environment, in the order of their names.
pub(super) fn environment<K, V>(
    variables: impl IntoIterator<Item = (K, V)>,
) -> (Layer, Vec<Problem>)
where
    K: Into<OsString>,
    V: Into<OsString>,
{
    let mut entries = Vec::new();
    let mut problems = Vec::new();
    for (variable, value) in variables {
        // A name that is not UTF-8 is none of ours: every one of ours is ASCII.
        let Ok(variable) = variable.into().into_string() else {
            continue;
        };
        let Some(rest) = variable.strip_prefix(PREFIX) else {
            continue;
        };
        if is_service_link(rest) {
            continue;
        }
        let place = Place::Environment {
            variable: variable.clone(),
        };
        match value.into().into_string() {
            Ok(value) => entries.push(Entry {
                key: keys::of_variable(&variable).map_or(variable, str::to_owned),
                key_place: place.clone(),
                place,
                raw: Raw::Variable(value),
            }),
            Err(_) => problems.push(Problem::BadValue {
                place,
                reason: "is not valid UTF-8; write it anew".to_owned(),
            }),
        }
    }
    entries.sort_by_key(|entry| entry.place.to_string());
    (
        Layer {
            origin: Origin::Environment,
            base: PathBuf::new(),
            entries,
        },
        problems,
    )
}

/// Kubernetes sets `MQTT_GATEWAY_SERVICE_HOST`, `MQTT_GATEWAY_SERVICE_PORT[_<NAME>]`, `MQTT_GATEWAY_PORT` and
/// `MQTT_GATEWAY_PORT_<NUMBER>_…` in every pod beside a service that is called `mqtt-gateway`; nobody who gets them
/// can help it. None of them is a key.
pub(super) fn is_service_link(rest: &str) -> bool {
    rest == "SERVICE_HOST"
        || rest == "PORT"
        || rest.starts_with("SERVICE_PORT")
        || rest.starts_with("PORT_")
}

/// Reads the gateway file; `place` is where it was named.
pub(super) fn file(path: &Path, place: &Place) -> Result<Layer, Vec<Problem>> {
    let unreadable = |reason| {
        vec![Problem::FileUnreadable {
            place: place.clone(),
            file: path.to_owned(),
            reason,
        }]
    };
    let bytes = read_regular(path, MAX_FILE_BYTES).map_err(unreadable)?;
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let good = error.utf8_error().valid_up_to();
            let before = String::from_utf8_lossy(error.as_bytes().get(..good).unwrap_or_default())
                .into_owned();
            let (line, column) = position(&before, before.len());
            let reason = "this is not UTF-8".to_owned();
            return Err(vec![Problem::Syntax {
                file: path.to_owned(),
                line,
                column,
                reason,
            }]);
        }
    };
    let (table, errors) = DeTable::parse_recoverable(&text);
    if !errors.is_empty() {
        return Err(errors
            .iter()
            .map(|error| syntax(path, &text, error))
            .collect());
    }
    let place = |offset: usize, key: &str| {
        let (line, column) = position(&text, offset);
        Place::File {
            file: path.to_owned(),
            line,
            column,
            key: key.to_owned(),
        }
    };
    let mut entries = Vec::new();
    let mut collect = |table: &DeTable<'_>, prefix: &str| {
        for (key, value) in table {
            let full = match prefix {
                "" if key.get_ref() == TABLE && value.get_ref().is_table() => continue,
                "" if key.get_ref() == LISTENER && listener_tables(value.get_ref()).is_some() => {
                    continue;
                }
                "" => top_level(key.get_ref()),
                prefix => format!("{prefix}{}", key.get_ref()),
            };
            entries.push(Entry {
                key_place: place(key.span().start, &full),
                place: place(value.span().start, &full),
                raw: toml_raw(value.get_ref()),
                key: full,
            });
        }
    };
    collect(table.get_ref(), "");
    if let Some(limits) = table
        .get_ref()
        .get(TABLE)
        .and_then(|limits| limits.get_ref().as_table())
    {
        collect(limits, &format!("{TABLE}."));
    }
    let listeners = table.get_ref().get(LISTENER);
    let listeners = listeners.and_then(|listeners| listener_tables(listeners.get_ref()));
    for (index, listener) in listeners.into_iter().flatten().enumerate() {
        collect(listener, &listener_prefix(index));
    }
    entries.sort_by_key(|entry| match &entry.key_place {
        Place::File { line, column, .. } => (*line, *column),
        Place::Inline { .. } | Place::Environment { .. } | Place::Missing { .. } => (0, 0),
    });
    Ok(Layer {
        origin: Origin::File,
        base: path.parent().map(Path::to_owned).unwrap_or_default(),
        entries,
    })
}

/// The tables of `[[listener]]`, if it is nothing else.
fn listener_tables<'t, 'i>(value: &'t DeValue<'i>) -> Option<Vec<&'t DeTable<'i>>> {
    let items = value.as_array()?.iter();
    items.map(|item| item.get_ref().as_table()).collect()
}

fn toml_raw(value: &DeValue<'_>) -> Raw {
    match value {
        DeValue::String(text) => Raw::Text(text.to_string()),
        DeValue::Integer(integer) => Raw::Number(
            match i128::from_str_radix(integer.as_str(), integer.radix()) {
                Ok(number) => number.to_string(),
                Err(_) => integer.to_string(),
            },
        ),
        DeValue::Float(float) => Raw::Number(float.to_string()),
        DeValue::Boolean(value) => Raw::Bool(*value),
        DeValue::Datetime(_) => Raw::Other("a date"),
        DeValue::Array(items) => {
            Raw::List(items.iter().map(|item| toml_raw(item.get_ref())).collect())
        }
        DeValue::Table(_) => Raw::Other("a table"),
    }
}

/// The parser's own words without the source line that it would print below them: a password may stand there.
fn syntax(path: &Path, text: &str, error: &toml::de::Error) -> Problem {
    let (line, column) = position(text, error.span().map_or(0, |span| span.start));
    let reason = error.message().lines().collect::<Vec<_>>().join(", ");
    Problem::Syntax {
        file: path.to_owned(),
        line,
        column,
        reason,
    }
}

/// Line and column (in characters) of a byte offset, both from 1.
fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before
        .rsplit('\n')
        .next()
        .unwrap_or_default()
        .chars()
        .count()
        + 1;
    (line, column)
}

/// Reads a file to its end. Only regular files: reading a pipe or a device may never end.
pub(super) fn read_regular(path: &Path, max_bytes: u64) -> Result<Vec<u8>, String> {
    let metadata = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if !metadata.is_file() {
        return Err("this is not a file".to_owned());
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| error.to_string())?;
    file.take(max_bytes + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| error.to_string())?;
    if bytes.len() as u64 > max_bytes {
        return Err(format!("it has more than {max_bytes} bytes"));
    }
    Ok(bytes)
}
