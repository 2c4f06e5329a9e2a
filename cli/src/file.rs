//! The operator's files: reading them whole, and telling what they are.
//!
//! What always holds: a file is read only if it is a regular one and not huge, so that reading ends; a file counts as a topic
//! map only if it holds no key about Iggy, because lines of a map may be shown and the password is such a key.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use mqtt_gateway::access::users;
use mqtt_gateway::mapping::MAX_FILE_BYTES;
use serde::Serialize;
use toml::de::{DeTable, DeValue};

use crate::text::plain;

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// A topic map.
    Map,
    /// A gateway file.
    Gateway,
    /// A connector's file, with the gateway's configuration in its table `plugin_config`.
    Connector,
    /// Permissions.
    Acl,
    /// Users and the hashes of their passwords; the only kind that is not TOML.
    Users,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Map => "topic map",
            Self::Gateway => "gateway file",
            Self::Connector => "connector's file",
            Self::Acl => "file of permissions",
            Self::Users => "users file",
        })
    }
}

/// The table of a connector's file that the gateway gets.
pub(crate) const PLUGIN_CONFIG: &str = "plugin_config";

/// Keys that stand in topic maps only.
const MAP_KEYS: &[&str] = &[
    "rule",
    "foreign",
    "default_stream",
    "default_topic",
    "on_unmatched",
    "max_streams",
    "max_topics",
    "auto_create",
    "partitions",
    "message_expiry",
    "max_topic_size",
    "durability",
];

/// Keys that stand in gateway files only; besides these, all that begin with `iggy_`.
const GATEWAY_KEYS: &[&str] = &[
    "name",
    "node",
    "listen",
    "listener",
    "authentication",
    "users_file",
    "acl_file",
    "jwt_algorithm",
    "jwt_key_files",
    "jwt_user_claim",
    "jwt_client_id_claim",
    "jwt_issuer",
    "jwt_audience",
    "http_listen",
    "http_token_file",
    "http_users",
    "topic_map",
    "shutdown_grace",
    "headers",
    "produce",
    "on_unstorable",
    "dead_letter_stream",
    "dead_letter_topic",
    "on_denied",
    "on_weak_durability",
    "limits",
];

/// Keys of rules that stand in permissions only.
const ACL_RULE_KEYS: &[&str] = &[
    "user",
    "client_id",
    "certificate",
    "group",
    "effect",
    "publish",
    "subscribe",
];

/// Keys of rules that stand in topic maps only.
const MAP_RULE_KEYS: &[&str] = &["mqtt_topic", "stream", "topic", "partition_key"];

/// How many rules have any of these keys.
fn rules_with(table: &DeTable<'_>, keys: &[&str]) -> usize {
    let Some(DeValue::Array(rules)) = table.get("rule").map(|rules| rules.get_ref()) else {
        return 0;
    };
    let has = |rule: &DeTable<'_>| rule.keys().any(|key| keys.contains(&&**key.get_ref()));
    rules
        .iter()
        .filter(|rule| matches!(rule.get_ref(), DeValue::Table(rule) if has(rule)))
        .count()
}

/// Whether the first line that counts is a user's: a name, a colon, and what begins as a hash does.
pub(crate) fn is_users(text: &str) -> bool {
    let mut lines = text.lines().map(users::line);
    let first = lines.find(|line| *line != users::Line::Nothing);
    matches!(first, Some(users::Line::User { name, hash }) if users::check_name(name).is_ok() && hash.starts_with('$'))
}

impl Kind {
    /// What the file is with these keys; `None` if nothing in it tells.
    pub(crate) fn of(table: &DeTable<'_>) -> Option<Self> {
        let count =
            |is: &dyn Fn(&str) -> bool| table.keys().filter(|key| is(key.get_ref())).count();
        // Among these is the password.
        let is_of_iggy = |key: &str| key.starts_with("iggy_");
        let map = count(&|key| MAP_KEYS.contains(&key));
        let gateway = count(&|key| GATEWAY_KEYS.contains(&key) || is_of_iggy(key));
        let of_acl = rules_with(table, ACL_RULE_KEYS) + usize::from(table.contains_key("groups"));
        let of_map = rules_with(table, MAP_RULE_KEYS);
        // A map's keys but `rule`, which permissions have too.
        let rules = usize::from(table.contains_key("rule"));
        if table.contains_key(PLUGIN_CONFIG) {
            Some(Self::Connector)
        } else if of_acl > of_map && map == rules && gateway == 0 {
            Some(Self::Acl)
        } else if map > 0 && map >= gateway && count(&is_of_iggy) == 0 {
            Some(Self::Map)
        } else if gateway > 0 {
            Some(Self::Gateway)
        } else {
            None
        }
    }
}

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unusable {
    /// The operating system does not give it.
    #[error("cannot be read: {0}; check the path and the permissions")]
    Refused(io::Error),
    /// A folder.
    #[error("is a folder; give the files in it")]
    Folder,
    /// A pipe or a device.
    #[error("is not a regular file; save it as one first")]
    NotRegular,
    /// Huge.
    #[error("has more than {} MiB, which no file of the gateway has; check the path", MAX_FILE_BYTES >> 20)]
    TooLarge,
    /// Its name cannot be shown, nor written into a configuration.
    #[error("has a name that is not UTF-8; rename it")]
    Name,
    /// Not text.
    #[error(
        "is not UTF-8: byte {byte} in line {line} is no part of a character; save it as UTF-8, or check the path"
    )]
    NotUtf8 {
        /// The line, from 1.
        line: usize,
        /// The byte in the line, from 1.
        byte: usize,
    },
    /// TOML, but none of ours.
    #[error(
        "has no key that tells what it is: a topic map has for example rule and default_stream, permissions [[rule]] with publish or subscribe, a users file name:$argon2id$…, a gateway file listen and iggy_address, a connector's file [plugin_config]; say it with --kind"
    )]
    Unknown,
}

/// Reads the file.
pub(crate) fn read(path: &Path) -> Result<String, Unusable> {
    if path.to_str().is_none() {
        return Err(Unusable::Name);
    }
    let metadata = fs::metadata(path).map_err(Unusable::Refused)?;
    if metadata.is_dir() {
        return Err(Unusable::Folder);
    }
    if !metadata.is_file() {
        return Err(Unusable::NotRegular);
    }
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes))
        .map_err(Unusable::Refused)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(Unusable::TooLarge);
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        let before = error.as_bytes().get(..good).unwrap_or_default();
        let line_start = before.iter().rposition(|byte| *byte == b'\n');
        Unusable::NotUtf8 {
            line: before.iter().filter(|byte| **byte == b'\n').count() + 1,
            byte: good - line_start.map_or(0, |at| at + 1) + 1,
        }
    })
}

/// The file's name as it is shown.
pub(crate) fn shown(path: &Path) -> String {
    plain(&path.to_string_lossy()).into_owned()
}

/// What tells two names of one file from names of two; for a file that is not there, its name.
pub(crate) fn identity(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// Lines and columns of a text. Asking for places in their order takes one pass over the text.
pub(crate) struct Positions<'t> {
    text: &'t str,
    byte: usize,
    line: usize,
    column: usize,
}

impl<'t> Positions<'t> {
    /// Those of `text`.
    pub(crate) fn of(text: &'t str) -> Self {
        Self {
            text,
            byte: 0,
            line: 1,
            column: 1,
        }
    }

    /// Line and column (in characters), both from 1, of the byte.
    pub(crate) fn at(&mut self, byte: usize) -> (usize, usize) {
        let byte = self.text.floor_char_boundary(byte);
        if byte < self.byte {
            *self = Self::of(self.text);
        }
        let between = &self.text[self.byte..byte];
        match between.rfind('\n') {
            None => self.column += between.chars().count(),
            Some(end) => {
                self.line += between.matches('\n').count();
                self.column = between[end + 1..].chars().count() + 1;
            }
        }
        self.byte = byte;
        (self.line, self.column)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str) -> Option<Kind> {
        Kind::of(DeTable::parse_recoverable(text).0.get_ref())
    }

    /// The keys in the first cells of the tables of a page, between two headings.
    fn documented<'p>(page: &'p str, from: &str, to: &str) -> Vec<&'p str> {
        let (_, rest) = page.split_once(from).unwrap();
        let (part, _) = rest.split_once(to).unwrap();
        let rows = part.lines().filter(|line| line.starts_with("| `"));
        let cells = rows.map(|row| row.split('|').nth(1).unwrap());
        cells
            .flat_map(|cell| cell.split(','))
            .map(|key| key.trim().trim_matches('`'))
            .collect()
    }

    #[test]
    fn every_documented_key_alone_tells_the_kind() {
        let page = include_str!("../../docs/topic-map.md");
        let keys = documented(page, "### Keys of the file", "### Keys of a `[[rule]]`");
        assert!(keys.len() >= 10, "{keys:?}");
        for key in keys {
            assert_eq!(kind(&format!("{key} = 1")), Some(Kind::Map), "{key}");
        }
        let page = include_str!("../../docs/configuration.md");
        let keys = documented(page, "\n## Keys\n", "\n## Listeners\n");
        assert!(keys.len() >= 10, "{keys:?}");
        // `config` names the gateway file, so it does not stand in one.
        for key in keys.into_iter().filter(|key| *key != "config") {
            assert_eq!(kind(&format!("{key} = 1")), Some(Kind::Gateway), "{key}");
        }
    }

    #[test]
    fn permissions_are_told_from_maps_by_the_keys_of_their_rules() {
        for key in ACL_RULE_KEYS {
            let text = format!("[[rule]]\n{key} = 'a'\n");
            assert_eq!(kind(&text), Some(Kind::Acl), "{key}");
        }
        assert_eq!(kind("[groups]\ng = 'a'\n"), Some(Kind::Acl));
        for key in MAP_RULE_KEYS {
            let text = format!("[[rule]]\n{key} = 'a'\n");
            assert_eq!(kind(&text), Some(Kind::Map), "{key}");
        }
        let map = "default_stream = 's'\n[[rule]]\nmqtt_topic = 'a'\n[[rule]]\nuser = 'a'\n";
        assert_eq!(kind(map), Some(Kind::Map));
        // Lines of it could show the password.
        let gateway = "iggy_password = 'secret'\n[[rule]]\nuser = 'a'\n";
        assert_eq!(kind(gateway), Some(Kind::Gateway));
    }

    #[test]
    fn the_keys_of_permissions_are_those_that_the_gateway_knows() {
        use mqtt_gateway::access::acl::{Acl, AclProblem};
        let report = Acl::parse("a", "[[rule]]\npublish = 'a'\nzzz = 1\n").unwrap_err();
        match report.problems()[0].what() {
            AclProblem::UnknownKey { known, .. } => {
                let mut known = known.to_vec();
                let mut here = ACL_RULE_KEYS.to_vec();
                known.sort_unstable();
                here.sort_unstable();
                assert_eq!(known, here);
            }
            other => panic!("{other}"),
        }
    }

    #[test]
    fn a_users_file_is_told_by_its_first_line() {
        for text in ["anna:$argon2id$x", "# ours\n\na b:$2y$05$x\n", "a/b:$"] {
            assert!(is_users(text), "{text}");
        }
        for text in [
            "",
            "# ours\n",
            "anna:secret",
            ":$x",
            "[a]\nb = 'c:$d'",
            "a = 'b'",
            "anna",
        ] {
            assert!(!is_users(text), "{text}");
        }
    }

    #[test]
    fn a_file_that_could_hold_a_password_is_no_topic_map() {
        let both = "iggy_password = 'secret'\ndefault_stream = 's'\n[[rule]]\n";
        assert_eq!(kind(both), Some(Kind::Gateway));
        assert_eq!(kind("name = 'n'\n[[rule]]\n"), Some(Kind::Map));
        assert_eq!(
            kind("name = 'n'\nnode = 'n'\nrule = 1\n"),
            Some(Kind::Gateway)
        );
        let connector = "[plugin_config]\ndefault_stream = 's'\n[[rule]]\n";
        assert_eq!(kind(connector), Some(Kind::Connector));
        assert_eq!(kind("[http]\nenabled = true\n"), None);
        assert_eq!(kind(""), None);
    }

    #[test]
    fn positions_count_lines_and_characters_from_one_in_any_order() {
        let text = "ab\nüxy\n\nz";
        let expected = [
            (0, (1, 1)),
            (2, (1, 3)),
            (3, (2, 1)),
            (4, (2, 1)),
            (5, (2, 2)),
            (8, (3, 1)),
            (9, (4, 1)),
            (99, (4, 2)),
        ];
        let mut positions = Positions::of(text);
        for (byte, place) in expected.into_iter().chain(expected) {
            assert_eq!(positions.at(byte), place, "{byte}");
            assert_eq!(Positions::of(text).at(byte), place, "{byte}");
        }
    }
}
