//! No input makes loading panic, and what is shown can be read again.

use std::path::{Path, PathBuf};
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Map, Value};

use super::{GatewayFile, load};
use crate::config::keys;
use crate::config::value::{Raw, Slot, duration_text, size_text};
use crate::config::{Config, ConfigError};

/// Keys that exist, keys that nearly do, and any text.
fn key() -> impl Strategy<Value = String> {
    let known: Vec<String> = keys::names().iter().map(|key| (*key).to_owned()).collect();
    let leaves: Vec<String> = known
        .iter()
        .filter_map(|key| Some(key.split_once('.')?.1.to_owned()))
        .collect();
    let any_known = prop::sample::select([known, leaves, vec!["limits".to_owned()]].concat());
    prop_oneof![
        8 => any_known.clone(),
        1 => (any_known, any::<prop::sample::Index>()).prop_map(|(mut key, index)| {
            key.remove(index.index(key.len()));
            key
        }),
        1 => any::<String>(),
    ]
}

/// Texts that are nearly values, and any text.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[0-9]{0,25}[.]?[0-9]{0,25} ?(|[kKMGTPE]i?B?|ms|us|ns|s|m|h|day|month|years)",
        "(\\[[:0-9a-f]{0,10}\\]|[0-9.]{0,15}|[a-z]{1,5}):[0-9]{0,6}",
        "[./]{0,3}[a-z\\PC]{0,5}",
        any::<String>(),
    ]
}

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 40, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((key(), inner), 0..12)
                .prop_map(|entries| Value::from(entries.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// A file of lines that are nearly TOML.
fn toml_text() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        6 => (key(), json()).prop_map(|(key, value)| format!("{key} = {value}")),
        1 => key().prop_map(|key| format!("[{key}]")),
        1 => any::<String>(),
    ];
    prop::collection::vec(line, 0..12).prop_map(|lines| lines.join("\n"))
}

fn variables() -> impl Strategy<Value = Vec<(String, String)>> {
    let variable = key().prop_map(|key| keys::variable_of(&key));
    prop::collection::vec((variable, text()), 0..8)
}

/// Either it is good, or the report is one line a problem.
fn check(result: Result<Config, ConfigError>) -> Result<(), TestCaseError> {
    match result {
        Ok(config) => {
            prop_assert!(!config.listeners().is_empty());
            for listener in config.listeners() {
                prop_assert!(!listener.authentication.is_empty());
            }
            prop_assert!(!config.iggy.password.expose().is_empty());
            prop_assert!(config.limits.broken_relations().is_empty());
        }
        Err(error) => {
            prop_assert!(!error.problems.is_empty());
            prop_assert_eq!(error.to_string().lines().count(), error.problems.len());
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn no_plugin_config_and_no_environment_makes_loading_panic(config in json(), variables in variables()) {
        check(Config::load(&config, variables))?;
    }

    #[test]
    fn no_gateway_file_makes_loading_panic(text in toml_text()) {
        let file = GatewayFile::new(text);
        check(load(file.plugin_config(), &[]))?;
    }

    #[test]
    fn no_bytes_in_a_gateway_file_make_loading_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let file = GatewayFile::new(bytes);
        check(load(file.plugin_config(), &[super::PASSWORD]))?;
    }

    #[test]
    fn what_is_shown_can_be_read_again(texts in prop::collection::vec(text(), 40)) {
        let mut config = Config::with_defaults();
        for ((_, mut slot), text) in keys::slots(&mut config).into_iter().zip(texts) {
            // Most of the texts are refused, which leaves the default.
            let _ = slot.set(&Raw::Variable(text), Path::new(""));
        }
        let mut again = config.clone();
        for (key, mut slot) in keys::slots(&mut again) {
            let shown = slot.show();
            // Nothing by default, which cannot be given.
            if shown.is_empty() {
                continue;
            }
            prop_assert!(slot.set(&Raw::Variable(shown.clone()), Path::new("")).is_ok(), "{}: {}", key, shown);
        }
        prop_assert_eq!(config, again);
    }

    #[test]
    fn a_list_of_files_reads_back_as_itself(text in "[./ \\ta,]{0,12}") {
        let mut files = vec![PathBuf::new()];
        let is_read = Slot::Files(&mut files).set(&Raw::Variable(text), Path::new("")).is_ok();
        if is_read {
            let shown = Slot::Files(&mut files).show();
            let before = files.clone();
            let read = Slot::Files(&mut files).set(&Raw::Variable(shown.clone()), Path::new(""));
            prop_assert!(read.is_ok(), "{shown}");
            prop_assert_eq!(before, files, "{}", shown);
        }
    }

    #[test]
    fn a_size_reads_back_as_itself(size in any::<u64>(), shift in 0_u32..64) {
        let size = size >> shift;
        let parsed: bytesize::ByteSize = size_text(size).parse().unwrap();
        prop_assert_eq!(parsed.as_u64(), size);
        let size = (size >> 44) << 20;
        let parsed: bytesize::ByteSize = size_text(size).parse().unwrap();
        prop_assert_eq!(parsed.as_u64(), size);
    }

    #[test]
    fn a_time_reads_back_as_itself(millis in 0_u64..=86_400_000) {
        let time = Duration::from_millis(millis);
        prop_assert_eq!(humantime::parse_duration(&duration_text(time)).unwrap(), time);
    }
}
