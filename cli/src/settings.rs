//! The gateway's configuration as far as a file tells it.
//!
//! What always holds: without the environment, what only the machine of the gateway can know (a password that is given
//! there) is a note and no problem; everything else is as [`Config::load`] says.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use mqtt_gateway::config::{Config, ConfigError, Place, Problem};
use serde_json::{Value, json};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::file::{self, Kind, PLUGIN_CONFIG, Positions};

/// The variables of the environment, or none if they do not count.
pub(crate) type Environment = Option<Vec<(OsString, OsString)>>;

/// Names the gateway file; when one is checked, it is that one.
const CONFIG_VARIABLE: &str = "MQTT_GATEWAY_CONFIG";
const AUTHENTICATION_VARIABLE: &str = "MQTT_GATEWAY_AUTHENTICATION";
const PASSWORD_VARIABLE: &str = "MQTT_GATEWAY_IGGY_PASSWORD";

/// A configuration, or what is wrong with it.
pub(crate) struct Loaded {
    /// Everything that is wrong.
    pub(crate) config: Result<Config, Vec<Problem>>,
    /// Passwords that this file or this machine lacks.
    pub(crate) elsewhere: Vec<Problem>,
}

/// The configuration in the file, which is of that kind (not a map) and has that text.
pub(crate) fn load(path: &Path, kind: Kind, text: &str, environment: &Environment) -> Loaded {
    let plugin_config = match kind {
        Kind::Connector => plugin_config(text),
        Kind::Map | Kind::Gateway | Kind::Acl | Kind::Users => {
            json!({ "config": path.to_string_lossy() })
        }
    };
    let Some(variables) = environment else {
        return as_it_stands(&plugin_config);
    };
    let variables = variables
        .iter()
        .filter(|(name, _)| kind == Kind::Connector || name != CONFIG_VARIABLE);
    let config = Config::load(&plugin_config, variables.cloned());
    Loaded {
        config: config.map_err(|error| error.problems),
        elsewhere: Vec::new(),
    }
}

fn as_it_stands(plugin_config: &Value) -> Loaded {
    let none: [(&str, &str); 0] = [];
    let problems = match Config::load(plugin_config, none) {
        Ok(config) => {
            return Loaded {
                config: Ok(config),
                elsewhere: Vec::new(),
            };
        }
        Err(ConfigError { problems }) => problems,
    };
    let (elsewhere, problems): (Vec<_>, Vec<_>) =
        problems.into_iter().partition(|problem| match problem {
            Problem::NoPassword { .. } | Problem::NoAuthentication { .. } => true,
            Problem::PasswordFile { file, .. } => !file.try_exists().unwrap_or(false),
            _ => false,
        });
    let config = if problems.is_empty() {
        // Any password will do to get at the rest, and anyone may come in.
        let mut environment = vec![(PASSWORD_VARIABLE, "unknown")];
        let is_open = |problem: &Problem| matches!(problem, Problem::NoAuthentication { .. });
        if elsewhere.iter().any(is_open) {
            environment.push((AUTHENTICATION_VARIABLE, "anonymous"));
        }
        Config::load(plugin_config, environment).map_err(|error| error.problems)
    } else {
        Err(problems)
    };
    Loaded { config, elsewhere }
}

/// The table of a connector's file as the runtime hands it over; null if there is none.
fn plugin_config(text: &str) -> Value {
    let table = toml::from_str::<toml::Table>(text).unwrap_or_default();
    let plugin_config = table.get(PLUGIN_CONFIG);
    plugin_config.map_or(Value::Null, |value| {
        serde_json::to_value(value).unwrap_or_default()
    })
}

/// The gateway file that a connector's file, or the environment over it, names.
pub(crate) fn gateway_file(table: &DeTable<'_>, environment: &Environment) -> Option<PathBuf> {
    let variables = environment.iter().flatten();
    let variable = variables
        .filter(|(name, _)| name == CONFIG_VARIABLE)
        .find_map(|(_, value)| value.to_str());
    let named = variable.or_else(|| text_at(table, Kind::Connector, "config"));
    named.map(PathBuf::from).filter(|path| path.is_file())
}

/// Where the topic map is, as far as a configuration with problems tells: where [`Config::load`] would look for it.
pub(crate) fn map_beside_problems(
    path: &Path,
    kind: Kind,
    table: &DeTable<'_>,
    gateway_file: Option<&Path>,
) -> Option<PathBuf> {
    if kind == Kind::Connector {
        if let Some(inline) = text_at(table, kind, "topic_map") {
            return Some(PathBuf::from(inline));
        }
        let gateway_file = gateway_file?;
        let text = file::read(gateway_file).ok()?;
        let table = DeTable::parse(&text).ok()?;
        return map_beside_problems(gateway_file, Kind::Gateway, table.get_ref(), None);
    }
    let name = match table.get("topic_map") {
        None => "topic-map.toml",
        Some(_) => text_at(table, kind, "topic_map")?,
    };
    Some(path.parent().unwrap_or(Path::new("")).join(name))
}

fn text_at<'t>(table: &'t DeTable<'_>, kind: Kind, key: &str) -> Option<&'t str> {
    match value_at(table, kind, key)?.get_ref() {
        DeValue::String(text) => Some(text),
        _ => None,
    }
}

/// Where a key of the gateway stands in a file of that kind: line and column of its value.
pub(crate) fn place_of_key(
    kind: Kind,
    text: &str,
    table: &DeTable<'_>,
    key: &str,
) -> Option<(usize, usize)> {
    let value = value_at(table, kind, key)?;
    Some(Positions::of(text).at(value.span().start))
}

/// The value of a key of the gateway in a file of that kind.
fn value_at<'t, 'd>(
    table: &'t DeTable<'d>,
    kind: Kind,
    key: &str,
) -> Option<&'t Spanned<DeValue<'d>>> {
    let mut table = table;
    if kind == Kind::Connector {
        table = as_table(table.get(PLUGIN_CONFIG)?.get_ref())?;
    }
    match key.split_once('.') {
        None => table.get(key),
        Some((outer, inner)) => as_table(table.get(outer)?.get_ref())?.get(inner),
    }
}

fn as_table<'t, 'd>(value: &'t DeValue<'d>) -> Option<&'t DeTable<'d>> {
    match value {
        DeValue::Table(table) => Some(table),
        _ => None,
    }
}

/// The part of a problem that its [`Place`] is.
pub(crate) fn place(problem: &Problem) -> Option<&Place> {
    match problem {
        Problem::FileUnreadable { place, .. }
        | Problem::UnknownKey { place, .. }
        | Problem::WrongType { place, .. }
        | Problem::BadValue { place, .. }
        | Problem::InlinePassword { place }
        | Problem::TwoPasswords { place }
        | Problem::NoPassword { place }
        | Problem::NoAuthentication { place }
        | Problem::PasswordFile { place, .. }
        | Problem::Relation { place, .. } => Some(place),
        Problem::Syntax { .. } | Problem::NotATable { .. } => None,
    }
}
