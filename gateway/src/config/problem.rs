//! What can be wrong with a configuration, told so that the operator can mend it at once.
//!
//! What always holds: a problem is one line, begins with the place it was found at, and never holds a password nor the
//! value of a key that the gateway does not know; text from outside is quoted, cut and free of control characters.

use std::fmt;
use std::path::{Path, PathBuf};

use super::limits::BrokenRelation;

/// The longest piece of the operator's own text that a message repeats, in characters.
const MAX_QUOTED: usize = 60;

/// Everything that is wrong with a configuration, one line a problem.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", lines(.problems))]
pub struct ConfigError {
    /// The problems, at least one: the file's in the order of its lines, then those of `plugin_config`, of the
    /// environment, and of how values go together.
    pub problems: Vec<Problem>,
}

fn lines(problems: &[Problem]) -> String {
    problems
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("\n")
}

/// Where a value was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A key in the gateway file; line and column count from 1.
    File {
        /// The file as the operator named it.
        file: PathBuf,
        /// The line of the value, or of the key if the key itself is wrong.
        line: usize,
        /// The column in characters.
        column: usize,
        /// The key, with its table: `limits.max_connections`.
        key: String,
    },
    /// A key in the connector's `plugin_config`.
    Inline {
        /// The key, with its table.
        key: String,
    },
    /// An environment variable.
    Environment {
        /// Its name.
        variable: String,
    },
    /// Nowhere: the key of a value that is missing.
    Missing {
        /// The key.
        key: &'static str,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File {
                file,
                line,
                column,
                key,
            } => {
                write!(f, "{}:{line}:{column}: {}", plain_path(file), plain(key))
            }
            Self::Inline { key } => write!(f, "plugin_config.{}", plain(key)),
            Self::Environment { variable } => f.write_str(&plain(variable)),
            Self::Missing { key } => f.write_str(key),
        }
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The gateway file could not be opened or read.
    #[error("{place}: cannot read the gateway file {}: {reason}; check the path (it counts from the working directory of the process) and the permissions", plain_path(.file))]
    FileUnreadable {
        /// Who named the file.
        place: Place,
        /// The file.
        file: PathBuf,
        /// What the operating system said.
        reason: String,
    },
    /// The gateway file is not TOML.
    #[error("{}:{line}:{column}: not valid TOML: {reason}; mend this line", plain_path(.file))]
    Syntax {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The column in characters, from 1.
        column: usize,
        /// What the parser said.
        reason: String,
    },
    /// `plugin_config` is something else than a table.
    #[error(
        "plugin_config: a table is needed, not {found}; write `[plugin_config]` and below it `config = \"path/to/gateway.toml\"`"
    )]
    NotATable {
        /// What it is.
        found: &'static str,
    },
    /// The key is not one of the gateway's.
    #[error("{place}: unknown key; {hint}")]
    UnknownKey {
        /// Where.
        place: Place,
        /// The nearest known key, or all of them.
        hint: String,
    },
    /// The value has another type than the key.
    #[error("{place}: {expected} is needed, not {found}")]
    WrongType {
        /// Where.
        place: Place,
        /// What the key takes, with an example.
        expected: &'static str,
        /// What was given.
        found: &'static str,
    },
    /// The value has the right type, but cannot be used.
    #[error("{place}: {reason}")]
    BadValue {
        /// Where.
        place: Place,
        /// What is wrong with it and what can stand there.
        reason: String,
    },
    /// A password in `plugin_config`.
    #[error(
        "{place}: no password may stand in plugin_config, because the connectors runtime shows plugin_config to everyone who can reach its HTTP API; remove it here, change it if it was real, and put it into the gateway file, the file named by iggy_password_file, or MQTT_GATEWAY_IGGY_PASSWORD"
    )]
    InlinePassword {
        /// Where.
        place: Place,
    },
    /// One source gives the password and a file with it.
    #[error("{place}: iggy_password is given in the same place; remove one of the two")]
    TwoPasswords {
        /// Where the file is named.
        place: Place,
    },
    /// No source gives the password.
    #[error(
        "{place}: no password for Iggy; set iggy_password or iggy_password_file in the gateway file, or MQTT_GATEWAY_IGGY_PASSWORD or MQTT_GATEWAY_IGGY_PASSWORD_FILE in the environment"
    )]
    NoPassword {
        /// The key.
        place: Place,
    },
    /// Nobody has said who may come in.
    #[error(
        "{place}: how clients are authenticated is not said; set authentication, for example to [\"users\"] with users_file, or to [\"anonymous\"] to let everyone in who reaches the listener"
    )]
    NoAuthentication {
        /// The key.
        place: Place,
    },
    /// The file with the password cannot be used.
    #[error("{place}: cannot take the password from {}: {reason}", plain_path(.file))]
    PasswordFile {
        /// Who named the file.
        place: Place,
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Two values do not go together.
    #[error("{place}: {broken}; lower the one or raise the other")]
    Relation {
        /// Where one of the two was given.
        place: Place,
        /// Which two, and why.
        broken: Box<BrokenRelation>,
    },
}

/// The operator's text in quotes, fit for one log line.
pub(super) fn quoted(text: &str) -> String {
    format!("\"{}\"", plain(text))
}

/// The text without control characters and cut to a length for one log line.
pub(super) fn plain(text: &str) -> String {
    let mut out = String::new();
    for (count, character) in text.chars().enumerate() {
        if count == MAX_QUOTED {
            out.push('…');
            break;
        }
        match character {
            '"' | '\'' | '\\' => out.push(character),
            other => out.extend(other.escape_debug()),
        }
    }
    out
}

/// A path in full, without control characters.
fn plain_path(path: &Path) -> String {
    path.to_string_lossy()
        .chars()
        .flat_map(char::escape_debug)
        .collect()
}
