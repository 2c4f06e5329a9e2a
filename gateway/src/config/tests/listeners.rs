//! Listeners with tables of their own: what they inherit, and which contradictions are refused.

use serde_json::{Value, json};

use super::{ANYONE, GatewayFile, PASSWORD, inline, lines, load};
use crate::config::{Config, ConfigError, Method};

const TLS: &str = "address = '127.0.0.1:8883'\ncertificate = 'c.pem'\nkey = 'k.pem'\n";

fn methods(config: &Config) -> Vec<(u16, Vec<Method>)> {
    let listeners = config.listeners().into_iter();
    listeners
        .map(|listener| {
            (
                listener.address.port(),
                listener.authentication.iter().collect(),
            )
        })
        .collect()
}

/// The report for a gateway file of which only the password is given by others.
fn report(text: &str) -> Vec<String> {
    let file = GatewayFile::new(text);
    let loaded = Config::load(&file.plugin_config(), [PASSWORD]);
    lines(&file, loaded)
}

#[test]
fn who_may_come_in_has_to_be_said() {
    let report = report("listen = '127.0.0.1:1883'\n");
    assert_eq!(report.len(), 1, "{report:?}");
    assert!(
        report[0].starts_with("authentication: how clients are authenticated is not said"),
        "{report:?}"
    );
}

#[test]
fn a_listener_has_an_authentication_of_its_own_or_that_of_all() {
    let file = GatewayFile::new(
        "authentication = ['anonymous']\nusers_file = 'users'\nlisten = '127.0.0.1:1'\n\
         [[listener]]\naddress = '127.0.0.1:2'\n\
         [[listener]]\naddress = '127.0.0.1:3'\nauthentication = ['users', 'iggy']\n",
    );
    let config = Config::load(&file.plugin_config(), [PASSWORD]).unwrap();
    let expected = [
        (1, vec![Method::Anonymous]),
        (2, vec![Method::Anonymous]),
        (3, vec![Method::Users, Method::Iggy]),
    ];
    assert_eq!(methods(&config), expected);
    let folder = file.folder.path();
    assert_eq!(config.access.users_file, Some(folder.join("users")));
}

#[test]
fn the_default_address_serves_those_who_configure_no_listener() {
    let listener = json!([{ "address": "127.0.0.1:8080", "protocol": "websocket", "path": "/x" }]);
    let config = inline(json!({ "listener": listener })).unwrap();
    let listeners = config.listeners();
    assert_eq!(listeners.len(), 1);
    assert_eq!(
        (listeners[0].scheme(), listeners[0].path.as_str()),
        ("ws", "/x")
    );
    let both = json!({ "listen": "127.0.0.1:1883", "listener": listener });
    assert_eq!(inline(both).unwrap().listeners().len(), 2);
}

#[test]
fn the_listeners_of_the_strongest_source_count() {
    let file = GatewayFile::new(format!(
        "[[listener]]\n{TLS}[[listener]]\naddress = '[::1]:2'\n"
    ));
    let inline = json!({ "config": file.path(), "listener": [{ "address": "127.0.0.1:3" }] });
    let config = load(inline, &[PASSWORD]).unwrap();
    let ports: Vec<_> = config
        .listeners()
        .iter()
        .map(|one| one.address.port())
        .collect();
    assert_eq!(ports, [3]);
}

#[test]
fn other_listeners_make_another_gateway() {
    let with = |port: u16| {
        let listener = json!([{ "address": format!("127.0.0.1:{port}") }]);
        inline(json!({ "listener": listener })).unwrap()
    };
    assert_eq!(with(1).differing_keys(&with(2)), ["listener"]);
}

#[test]
fn contradictions_are_refused_where_they_stand() {
    let cases = [
        (
            "[[listener]]\nprotocol = 'mqtt'\n",
            "2:1: listener[1].protocol: a listener needs one",
        ),
        (
            "[[listener]]\naddress = '127.0.0.1:1'\ncertificate = 'c.pem'\n",
            "3:15: listener[1].certificate: a certificate needs its private key",
        ),
        (
            "[[listener]]\naddress = '127.0.0.1:1'\nkey = 'k.pem'\n",
            "3:7: listener[1].key: a private key needs its certificate",
        ),
        (
            "[[listener]]\naddress = '127.0.0.1:1'\nclient_ca = 'ca.pem'\n",
            "3:13: listener[1].client_ca: this is for TLS",
        ),
        (
            "[[listener]]\naddress = '127.0.0.1:1'\nminimum_tls = '1.3'\n",
            "3:15: listener[1].minimum_tls: this is for TLS",
        ),
        (
            "[[listener]]\naddress = '127.0.0.1:1'\nclient_certificate = 'optional'\n",
            "3:22: listener[1].client_certificate: clients are only asked",
        ),
        (
            "[[listener]]\naddress = '127.0.0.1:1'\npath = '/x'\n",
            "3:8: listener[1].path: only WebSocket has a path",
        ),
        (
            "[[listener]]\naddress = '127.0.0.1:1'\n[[listener]]\naddress = '127.0.0.1:1'\n",
            "listener: 127.0.0.1:1 is listened at twice",
        ),
        (
            "listen = '127.0.0.1:1'\n[[listener]]\naddress = '127.0.0.1:1'\n",
            "listener: 127.0.0.1:1 is listened at twice",
        ),
        (
            "[[listener]]\naddress = '127.0.0.1:1'\nauthentication = ['certificate']\n",
            "3:18: listener[1].authentication: \"certificate\" needs client_ca",
        ),
        (
            "authentication = ['certificate']\n",
            "1:18: authentication: \"certificate\" is for listeners with client_ca",
        ),
        (
            "authentication = ['users']\n",
            "1:18: authentication: \"users\" needs users_file",
        ),
        (
            "authentication = ['jwt']\n",
            "1:18: authentication: \"jwt\" needs jwt_key_files",
        ),
        (
            "users_file = 'u'\nauthentication = ['anonymous']\n",
            "1:14: users_file: no listener uses it",
        ),
        (
            "jwt_key_files = 'u'\nauthentication = ['anonymous']\n",
            "1:17: jwt_key_files: no listener uses it",
        ),
        (
            "jwt_audience = 'u'\nauthentication = ['anonymous']\n",
            "1:16: jwt_audience: there are no keys to check tokens with",
        ),
        (
            "authentication = ['anonymous', 'anonymous']\n",
            "1:18: authentication: \"anonymous\" is listed twice",
        ),
        (
            "authentication = ['ldap']\n",
            "1:18: authentication: \"ldap\" is no way to authenticate",
        ),
        (
            "authentication = []\n",
            "1:18: authentication: nobody could come in",
        ),
        (
            "[listener]\naddress = '127.0.0.1:1'\n",
            "1:1: listener: a list of tables",
        ),
        (
            "[[listener]]\naddres = '127.0.0.1:1'\n",
            "2:1: listener[1].addres: unknown key; did you mean `address`?",
        ),
        (
            "[[listener]]\naddress = '127.0.0.1:1'\nprotocol = 'websocket'\npath = 'mqtt'\n",
            "4:8: listener[1].path: \"mqtt\" is no path",
        ),
    ];
    for (text, expected) in cases {
        let file = GatewayFile::new(text);
        let environment = match text.contains("authentication = ") {
            true if !text.contains("[[") => vec![PASSWORD],
            _ => vec![PASSWORD, ANYONE],
        };
        let report = lines(&file, Config::load(&file.plugin_config(), environment));
        assert_eq!(report.len(), 1, "{text}: {report:?}");
        let line = report[0].trim_start_matches("gateway.toml:");
        assert!(line.starts_with(expected), "{text}: {report:?}");
    }
}

#[test]
fn listeners_of_plugin_config_are_checked_like_those_of_the_file() {
    let report = |listener: Value| -> String {
        let error: ConfigError = inline(json!({ "listener": listener })).unwrap_err();
        error.to_string()
    };
    let line = report(json!([{ "address": "localhost:1" }]));
    assert!(
        line.starts_with("plugin_config.listener[1].address: \"localhost:1\" is not IP:port"),
        "{line}"
    );
    let line = report(json!("127.0.0.1:1"));
    assert!(
        line.starts_with("plugin_config.listener: a list of tables"),
        "{line}"
    );
    let line = report(json!([{ "address": "127.0.0.1:1", "kee": 1 }]));
    assert!(
        line.starts_with("plugin_config.listener[1].kee: unknown key; did you mean `key`?"),
        "{line}"
    );
}
