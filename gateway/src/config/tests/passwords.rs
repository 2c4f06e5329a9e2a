//! Where a password may come from, and that it shows up nowhere.

use serde_json::json;

use super::{GatewayFile, PASSWORD, inline, line, lines, load};
use crate::config::Problem;

#[test]
fn the_end_of_the_line_in_a_password_file_is_not_part_of_the_password() {
    for (text, password) in [
        ("pw", "pw"),
        ("pw\n", "pw"),
        ("pw\r\n", "pw"),
        (" p w \n", " p w "),
    ] {
        let file = GatewayFile::new("iggy_password_file = 'secret'\n");
        file.beside("secret", text);
        assert_eq!(file.load().unwrap().iggy.password.expose(), password);
    }
}

#[test]
fn a_stronger_source_replaces_the_password_of_a_weaker_one_whichever_key_it_uses() {
    let file = GatewayFile::new("iggy_password_file = 'does-not-exist'\n");
    let config = load(
        file.plugin_config(),
        &[("MQTT_GATEWAY_IGGY_PASSWORD", "pw")],
    )
    .unwrap();
    assert_eq!(config.iggy.password.expose(), "pw");

    let file = GatewayFile::new("iggy_password = 'weak'\n");
    let secret = file.beside("secret", "strong");
    let plugin_config = json!({ "config": file.path(), "iggy_password_file": secret });
    assert_eq!(
        load(plugin_config, &[]).unwrap().iggy.password.expose(),
        "strong"
    );
}

#[test]
fn the_password_is_not_shown() {
    let config = load(json!({}), &[("MQTT_GATEWAY_IGGY_PASSWORD", "hunter2")]).unwrap();
    let shown = format!(
        "{config:?} {:?} {}",
        config.iggy.password, config.iggy.password
    );
    assert!(!shown.contains("hunter2"), "{shown}");
    assert!(shown.contains("[redacted]"));
}

#[test]
fn a_number_like_password_in_a_variable_keeps_every_character() {
    let config = load(json!({}), &[("MQTT_GATEWAY_IGGY_PASSWORD", "007.0e1 ")]).unwrap();
    assert_eq!(config.iggy.password.expose(), "007.0e1 ");
}

#[test]
fn a_missing_password_names_every_way_to_give_one() {
    let report = load(json!({}), &[]).unwrap_err().to_string();
    assert!(
        report.starts_with("iggy_password: no password for Iggy; "),
        "{report}"
    );
    for way in [
        "gateway file",
        "iggy_password_file",
        "MQTT_GATEWAY_IGGY_PASSWORD",
        "MQTT_GATEWAY_IGGY_PASSWORD_FILE",
    ] {
        assert!(report.contains(way), "{report}");
    }
    for empty in [
        load(json!({}), &[("MQTT_GATEWAY_IGGY_PASSWORD", "")]),
        GatewayFile::new("iggy_password = ''").load(),
    ] {
        let report = empty.unwrap_err().to_string();
        assert!(report.contains("is empty"), "{report}");
    }
}

#[test]
fn a_password_in_plugin_config_is_refused_with_the_reason() {
    // Even beside a password that would count over it: the runtime shows it all the same.
    let report = line(json!({ "iggy_password": "hunter2" }));
    assert!(
        report.starts_with("plugin_config.iggy_password: no password may stand in plugin_config"),
        "{report}"
    );
    assert!(
        report.contains("HTTP API") && report.contains("iggy_password_file"),
        "{report}"
    );
    assert!(!report.contains("hunter2"));
}

#[test]
fn a_password_and_a_file_with_one_in_the_same_source_are_refused() {
    let file = GatewayFile::new("iggy_password = 'pw'\niggy_password_file = 'secret'\n");
    file.beside("secret", "pw");
    let file_lines = lines(&file, file.load());
    assert_eq!(
        file_lines,
        [
            "gateway.toml:2:22: iggy_password_file: iggy_password is given in the same place; remove one of the two"
        ]
    );
    let environment = [PASSWORD, ("MQTT_GATEWAY_IGGY_PASSWORD_FILE", "x")];
    let error = load(json!({}), &environment).unwrap_err();
    assert!(
        matches!(error.problems.as_slice(), [Problem::TwoPasswords { .. }]),
        "{error}"
    );
}

#[test]
fn a_password_file_that_cannot_be_used_is_named() {
    let file = GatewayFile::new("iggy_password_file = 'secret'\n");
    let missing = lines(&file, file.load());
    assert_eq!(missing.len(), 1);
    assert!(
        missing[0].starts_with("gateway.toml:1:22: iggy_password_file: cannot take the password from secret: No such file"),
        "{missing:?}"
    );
    for (content, reason) in [
        (&b"\n"[..], "empty"),
        (&[0xff], "UTF-8"),
        (&[b'x'; 256], "256 bytes"),
        (&[b'x'; 5_000], "4096"),
    ] {
        file.beside("secret", content);
        let lines = lines(&file, file.load());
        assert!(lines.len() == 1 && lines[0].contains(reason), "{lines:?}");
    }
}

#[test]
fn no_report_shows_a_secret() {
    let secret = "hunter2";
    let broken_files = [
        "iggy_password = hunter2\n",
        "iggy_password = \"hunter2\n",
        "iggy_password = 'hunter2' x\n",
        "iggy_password = \"hunter2\\q\"\n",
        "iggy_password 'hunter2'\n",
        "iggy_pasword = 'hunter2'\n",
        "iggy_password = ['hunter2']\n",
        "iggy_password = { value = 'hunter2' }\n",
        "iggy_password = 'hunter2'\niggy_password = 'hunter2'\n",
        "[limits]\niggy_password = 'hunter2'\n",
        "iggy_address = 'iggy://iggy:hunter2@localhost:8090'\niggy_password = 'pw'\n",
    ];
    for text in broken_files {
        let file = GatewayFile::new(text);
        let error = file.load().unwrap_err();
        assert!(
            !format!("{error} {error:?}").contains(secret),
            "{text:?}: {error}"
        );
    }
    let inline_configs = [
        json!({ "iggy_password": secret }),
        json!({ "iggy_password": [secret] }),
        json!({ "iggypassword": secret }),
        json!({ "password": { "value": secret } }),
        json!({ "iggy_address": format!("iggy:{secret}@localhost:8090") }),
        json!({ "limits": { "iggy_password": secret } }),
        json!(secret),
    ];
    for plugin_config in inline_configs {
        let error = inline(plugin_config.clone()).unwrap_err();
        assert!(
            !format!("{error} {error:?}").contains(secret),
            "{plugin_config}: {error}"
        );
    }
    let environment = [
        ("MQTT_GATEWAY_PASSWORD", secret),
        ("MQTT_GATEWAY_IGGY_PASSWORD", secret),
        ("MQTT_GATEWAY_IGGY_PASSWORD_FILE", "x"),
    ];
    let error = load(json!({}), &environment).unwrap_err();
    assert!(!format!("{error} {error:?}").contains(secret), "{error}");
    let too_long = secret.repeat(100);
    let error = load(json!({}), &[("MQTT_GATEWAY_IGGY_PASSWORD", &too_long)]).unwrap_err();
    assert!(!error.to_string().contains(secret), "{error}");
}
