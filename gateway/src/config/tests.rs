//! What an operator can rely on: where values come from and which one counts. Passwords, reports, documents
//! and random input have their own files.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Config, ConfigError, Limits};

mod documents;
mod listeners;
mod passwords;
mod random;
mod reports;
mod unusable_sources;

/// Whoever may come in, which has to be said; the tests of that say it themselves.
const ANYONE: (&str, &str) = ("MQTT_GATEWAY_AUTHENTICATION", "anonymous");
const PASSWORD: (&str, &str) = ("MQTT_GATEWAY_IGGY_PASSWORD", "from-the-environment");

fn load(plugin_config: Value, environment: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let mut environment = environment.to_vec();
    if environment.iter().all(|(name, _)| *name != ANYONE.0) {
        environment.push(ANYONE);
    }
    Config::load(&plugin_config, environment)
}

/// Loads a configuration of which only the password stands in the environment.
fn inline(plugin_config: Value) -> Result<Config, ConfigError> {
    load(plugin_config, &[PASSWORD])
}

/// A folder with a gateway file, and the `plugin_config` that names it.
struct GatewayFile {
    folder: TempDir,
}

impl GatewayFile {
    fn new(text: impl AsRef<[u8]>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("gateway.toml"), text).unwrap();
        Self { folder }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("gateway.toml")
    }

    fn beside(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    fn plugin_config(&self) -> Value {
        json!({ "config": self.path() })
    }

    fn load(&self) -> Result<Config, ConfigError> {
        load(self.plugin_config(), &[])
    }
}

/// The lines of the report, with the file's path cut to its name.
fn lines(file: &GatewayFile, result: Result<Config, ConfigError>) -> Vec<String> {
    let folder = format!("{}/", file.folder.path().display());
    result
        .unwrap_err()
        .to_string()
        .replace(&folder, "")
        .lines()
        .map(str::to_owned)
        .collect()
}

fn line(plugin_config: Value) -> String {
    let error = inline(plugin_config).unwrap_err();
    assert_eq!(error.problems.len(), 1, "{error}");
    error.to_string()
}

#[test]
fn only_the_password_and_who_may_come_in_have_to_be_set() {
    for plugin_config in [json!({}), Value::Null] {
        let config = inline(plugin_config).unwrap();
        assert_eq!(config.name, "mqtt");
        assert_eq!(config.node, "node-1");
        assert_eq!(config.listen, ["127.0.0.1:1883".parse().unwrap()]);
        assert_eq!(config.topic_map, Path::new("topic-map.toml"));
        assert_eq!(config.iggy.address, "127.0.0.1:8090");
        assert_eq!(config.iggy.username, "iggy");
        assert_eq!(config.iggy.password.expose(), "from-the-environment");
        assert_eq!(config.iggy.connections, 4);
        assert_eq!(config.iggy.start_timeout, Duration::from_secs(30));
        assert_eq!(config.iggy.grace, Duration::from_secs(10));
        assert_eq!(config.shutdown_grace, Duration::from_secs(5));
        assert_eq!(config.limits, Limits::default());
    }
}

#[test]
fn the_environment_counts_over_plugin_config_and_that_over_the_file() {
    let file = GatewayFile::new(
        "name = 'file'\nnode = 'file'\niggy_username = 'file'\niggy_password = 'pw'\n\
         [limits]\nmax_connections = 1\nsend_window = 1\nreceive_window = 1\n",
    );
    let plugin_config = json!({
        "config": file.path(),
        "node": "inline", "iggy_username": "inline",
        "limits": { "send_window": 2, "receive_window": 2 },
    });
    let environment = [
        ("MQTT_GATEWAY_IGGY_USERNAME", "environment"),
        ("MQTT_GATEWAY_LIMITS_RECEIVE_WINDOW", "3"),
        ("MQTT_GATEWA_NODE", "of-someone-else"),
        ("PATH", "/bin"),
    ];
    let config = load(plugin_config, &environment).unwrap();
    assert_eq!(
        [&config.name, &config.node, &config.iggy.username],
        ["file", "inline", "environment"]
    );
    let limits = &config.limits;
    assert_eq!(
        [
            limits.max_connections,
            limits.send_window,
            limits.receive_window
        ],
        [1, 2, 3]
    );
    assert_eq!(
        limits.max_subscriptions,
        Limits::default().max_subscriptions
    );
}

#[test]
fn every_key_can_be_given_in_every_source() {
    // Values that are allowed for every key of the kind, and are nobody's default.
    let mut example = Config::with_defaults();
    for (key, slot) in super::keys::slots(&mut example) {
        use super::value::Slot;
        let value = match slot {
            Slot::Name(_) | Slot::Credential(_) | Slot::File(_) => json!("other"),
            Slot::Listen(_) | Slot::AnyListen(_) => json!("127.0.0.2:1884"),
            Slot::Users(_) => json!(["one", "two"]),
            Slot::OptionalFile(_) | Slot::Files(_) | Slot::OptionalText(_) => json!("other"),
            Slot::OneAddress(_) | Slot::UrlPath(_) => unreachable!("{key}: of listeners"),
            Slot::Methods(_) => json!(["anonymous", "iggy"]),
            Slot::Address(_) => json!("iggy:8091"),
            Slot::Headers(_) => json!(["qos", "client_id"]),
            Slot::IggyName(_) => json!("other"),
            Slot::Choice(choice) => json!(choice.words().last().unwrap()),
            Slot::Count(..) | Slot::Count32(..) => json!(7),
            Slot::Size(..) => json!("2MiB"),
            Slot::Time(..) => json!("49ms"),
        };
        // Some of the keys need a value of their own.
        let value = match key {
            "limits.max_connect_size" => json!("9KiB"),
            "limits.max_packet_size" => json!("1023KiB"),
            "limits.max_topic_length" => json!(100),
            "limits.max_keep_alive" => json!("49s"),
            _ => value,
        };
        let toml_line = format!("{key} = {value}\niggy_password = 'pw'\n");
        let text = match &value {
            serde_json::Value::String(text) => text.clone(),
            serde_json::Value::Array(items) => {
                let items = items.iter().map(|item| item.as_str().unwrap());
                items.collect::<Vec<_>>().join(", ")
            }
            other => other.to_string(),
        };
        let plugin_config = match key.split_once('.') {
            Some((table, leaf)) => json!({ table: { leaf: value } }),
            None => json!({ key: value }),
        };
        let variable = super::keys::variable_of(key);
        // Some are refused where nothing uses them.
        let others: &[(&str, &str)] = match key {
            "http_users" => &[("MQTT_GATEWAY_AUTHENTICATION", "iggy")],
            "users_file" => &[("MQTT_GATEWAY_AUTHENTICATION", "users")],
            "jwt_key_files" => &[("MQTT_GATEWAY_AUTHENTICATION", "jwt")],
            key if key.starts_with("jwt_") => &[
                ("MQTT_GATEWAY_AUTHENTICATION", "jwt"),
                ("MQTT_GATEWAY_JWT_KEY_FILES", "key.pem"),
            ],
            _ => &[],
        };
        let of_inline = [others, &[PASSWORD]].concat();
        let of_environment = [others, &[PASSWORD, (&variable, &text)]].concat();
        let from_file = GatewayFile::new(toml_line);
        let from_file = load(from_file.plugin_config(), others);
        let from_inline = load(plugin_config, &of_inline);
        let from_environment = load(json!({}), &of_environment);
        for config in [from_file, from_inline, from_environment] {
            let mut config = config.unwrap_or_else(|error| panic!("{key}: {error}"));
            if key != "topic_map" {
                config.topic_map = "topic-map.toml".into();
            }
            config.iggy.password = super::Secret::new("");
            if key != "authentication" {
                config.access.authentication = Default::default();
            }
            if key != "jwt_key_files" {
                config.access.jwt.key_files.clear();
            }
            assert_eq!(config.differing_keys(&Config::with_defaults()), [key]);
        }
    }
}

#[test]
fn relative_paths_count_from_the_file_that_holds_them() {
    let file = GatewayFile::new("iggy_password_file = './secret'\n");
    file.beside("secret", "pw\n");
    let folder = file.folder.path();
    let config = file.load().unwrap();
    assert_eq!(
        config.topic_map,
        folder.join("topic-map.toml"),
        "the default stands beside the file"
    );
    assert_eq!(config.iggy.password.expose(), "pw");

    let file = GatewayFile::new("iggy_password = 'pw'\ntopic_map = 'maps/a.toml'\n");
    assert_eq!(
        file.load().unwrap().topic_map,
        file.folder.path().join("maps/a.toml")
    );
    let config = load(
        file.plugin_config(),
        &[("MQTT_GATEWAY_TOPIC_MAP", "maps/b.toml")],
    )
    .unwrap();
    assert_eq!(
        config.topic_map,
        Path::new("maps/b.toml"),
        "a variable counts from the working directory"
    );

    assert_eq!(
        inline(json!({ "topic_map": "./c.toml" }))
            .unwrap()
            .topic_map,
        Path::new("c.toml")
    );
    assert_eq!(
        inline(json!({ "topic_map": "/etc/c.toml" }))
            .unwrap()
            .topic_map,
        Path::new("/etc/c.toml")
    );
}

#[test]
fn the_environment_can_name_the_gateway_file() {
    let file = GatewayFile::new("name = 'first'\niggy_password = 'pw'");
    let second = file.beside("second.toml", "name = 'second'\niggy_password = 'pw'");
    let variable = ("MQTT_GATEWAY_CONFIG", second.to_str().unwrap());
    assert_eq!(
        load(file.plugin_config(), &[variable]).unwrap().name,
        "second"
    );
    assert_eq!(load(json!({}), &[variable]).unwrap().name, "second");
}

#[test]
fn what_the_runtime_turned_into_a_number_or_a_truth_value_is_a_text_again() {
    let config = inline(json!({ "iggy_username": 123_456, "node": 7, "name": true })).unwrap();
    assert_eq!(
        [&config.iggy.username, &config.node, &config.name],
        ["123456", "7", "true"]
    );
    let file = GatewayFile::new("iggy_password = 123456\n");
    assert_eq!(file.load().unwrap().iggy.password.expose(), "123456");
}

#[test]
fn listen_takes_one_address_or_a_list() {
    let two = [
        "127.0.0.1:1883".parse().unwrap(),
        "[::1]:1883".parse().unwrap(),
    ];
    assert_eq!(
        inline(json!({ "listen": "[::1]:1883" })).unwrap().listen,
        two[1..]
    );
    assert_eq!(
        inline(json!({ "listen": ["127.0.0.1:1883", "[::1]:1883"] }))
            .unwrap()
            .listen,
        two
    );
    let environment = [
        PASSWORD,
        ("MQTT_GATEWAY_LISTEN", "127.0.0.1:1883, [::1]:1883"),
    ];
    assert_eq!(load(json!({}), &environment).unwrap().listen, two);
    let any_port = inline(json!({ "listen": ["127.0.0.1:0", "127.0.0.1:0"] })).unwrap();
    assert_eq!(any_port.listen.len(), 2, "each port 0 is another port");
}

#[test]
fn sizes_are_bytes_or_have_a_unit() {
    for (given, bytes) in [
        (json!(300_000), 300_000),
        (json!("300000"), 300_000),
        (json!("300KiB"), 307_200),
        (json!("300 kB"), 300_000),
        (json!("0.5MiB"), 524_288),
    ] {
        let config = inline(json!({ "limits": { "max_packet_size": given } })).unwrap();
        assert_eq!(config.limits.max_packet_size, bytes);
    }
    let variable = ("MQTT_GATEWAY_LIMITS_MAX_PACKET_SIZE", "300KiB");
    assert_eq!(
        load(json!({}), &[PASSWORD, variable])
            .unwrap()
            .limits
            .max_packet_size,
        307_200
    );
}

#[test]
fn times_have_a_unit_and_may_be_zero_where_that_means_something() {
    let config = inline(json!({
        "shutdown_grace": "0s", "iggy_grace": "0s", "iggy_start_timeout": "1h 30m",
        "limits": { "ack_timeout": "250ms" },
    }));
    let config = config.unwrap();
    assert_eq!(
        [config.shutdown_grace, config.iggy.grace],
        [Duration::ZERO; 2]
    );
    assert_eq!(config.iggy.start_timeout, Duration::from_secs(5_400));
    assert_eq!(config.limits.ack_timeout, Duration::from_millis(250));
}

#[test]
fn the_variables_of_a_kubernetes_service_called_mqtt_gateway_are_not_ours() {
    let environment = [
        PASSWORD,
        ("MQTT_GATEWAY_SERVICE_HOST", "10.0.0.1"),
        ("MQTT_GATEWAY_SERVICE_PORT", "1883"),
        ("MQTT_GATEWAY_SERVICE_PORT_MQTT", "1883"),
        ("MQTT_GATEWAY_PORT", "tcp://10.0.0.1:1883"),
        ("MQTT_GATEWAY_PORT_1883_TCP_ADDR", "10.0.0.1"),
    ];
    assert_eq!(load(json!({}), &environment), inline(json!({})));
    for variable in super::keys::variables() {
        let rest = variable.trim_start_matches("MQTT_GATEWAY_");
        assert!(
            !super::sources::is_service_link(rest),
            "{variable} is a key"
        );
    }
}

#[test]
fn differing_keys_are_named_without_their_values() {
    let plain = inline(json!({})).unwrap();
    assert!(plain.differing_keys(&plain.clone()).is_empty());
    let other = load(
        json!({ "node": "node-2", "topic_map": "b.toml", "limits": { "ack_timeout": "31s" } }),
        &[("MQTT_GATEWAY_IGGY_PASSWORD", "another")],
    );
    let other = other.unwrap();
    let keys = ["node", "topic_map", "limits.ack_timeout", "iggy_password"];
    assert_eq!(plain.differing_keys(&other), keys);
    assert_eq!(other.differing_keys(&plain), keys);
    assert_ne!(plain, other);
}

#[test]
fn the_defaults_are_in_their_ranges_and_go_together() {
    let mut config = Config::with_defaults();
    let shown: Vec<_> = super::keys::slots(&mut config)
        .into_iter()
        .map(|(key, slot)| (key, slot.show()))
        .collect();
    for ((key, mut slot), (_, text)) in super::keys::slots(&mut config).into_iter().zip(shown) {
        // Nothing by default.
        if text.is_empty() {
            continue;
        }
        let raw = super::value::Raw::Variable(text);
        slot.set(&raw, Path::new(""))
            .unwrap_or_else(|fault| panic!("{key}: {fault:?}"));
    }
    assert_eq!(config, Config::with_defaults());
    assert!(config.limits.broken_relations().is_empty());
}
