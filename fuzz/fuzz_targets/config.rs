//! The configuration: any gateway file under any `plugin_config` is loaded, or reported in a line for each problem, and
//! no secret is shown.
//!
//! Input: the text of the file; after a NUL a `plugin_config` as JSON; after another one the value of a variable.
//! `PASSWORD` stands for a secret.

#![no_main]

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use mqtt_gateway::config::Config;
use serde_json::{Value, json};

const SECRET: &str = "hunter2-correct-horse";
const FROM_ENVIRONMENT: &str = "another-battery-staple";

static FILE: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = std::env::temp_dir().join(format!("fuzz-config-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    folder.join("gateway.toml")
});

/// Whether the secret is where a secret belongs, and nowhere else.
fn is_kept(text: &str) -> bool {
    if text.matches(SECRET).count() != 1 {
        return false;
    }
    match text.parse::<toml::Table>() {
        Ok(table) => table.get("iggy_password").and_then(toml::Value::as_str) == Some(SECRET),
        Err(_) => text.contains(&format!("iggy_password = \"{SECRET}\"")),
    }
}

fuzz_target!(|input: &str| {
    let mut parts = input.splitn(3, '\0');
    let text = parts.next().unwrap_or_default().replace("PASSWORD", SECRET);
    let inline = parts
        .next()
        .and_then(|json| serde_json::from_str(json).ok());
    let variable = parts.next();
    fs::write(&*FILE, &text).expect("a file");
    let mut plugin_config = inline.unwrap_or_else(|| json!({}));
    if let Value::Object(table) = &mut plugin_config {
        table.insert("config".to_owned(), json!(&*FILE));
    }
    let mut environment = vec![("MQTT_GATEWAY_NODE", variable.unwrap_or("node"))];
    if !text.contains("authentication") {
        environment.push(("MQTT_GATEWAY_AUTHENTICATION", "anonymous"));
    }
    if !text.contains(SECRET) {
        environment.push(("MQTT_GATEWAY_IGGY_PASSWORD", FROM_ENVIRONMENT));
    }
    // An input may have found out the secret, and put it where it is no secret.
    let is_kept = !input.contains(SECRET) && is_kept(&text);
    let check = |shown: String| {
        assert!(!is_kept || !shown.contains(SECRET), "{shown}");
        assert!(input.contains(FROM_ENVIRONMENT) || !shown.contains(FROM_ENVIRONMENT));
    };
    match Config::load(&plugin_config, environment) {
        Ok(config) => {
            assert!(!config.listeners().is_empty() && !config.iggy.password.expose().is_empty());
            assert!(config.differing_keys(&config).is_empty());
            check(format!("{config:?}"));
        }
        Err(error) => {
            assert!(!error.problems.is_empty());
            assert_eq!(error.to_string().lines().count(), error.problems.len());
            check(format!("{error} {error:?}"));
        }
    }
});
