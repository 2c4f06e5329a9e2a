//! A source that cannot be read as a whole is told in one line, and hides nothing of the others.

use std::ffi::OsString;

use serde_json::json;

use super::{GatewayFile, line, lines, load};
use crate::config::Config;

#[test]
fn a_missing_or_unreadable_gateway_file_is_one_line() {
    let report = load(json!({ "config": "no/such/gateway.toml" }), &[])
        .unwrap_err()
        .to_string();
    assert!(
        report.starts_with(
            "plugin_config.config: cannot read the gateway file no/such/gateway.toml: No such file"
        ),
        "{report}"
    );
    assert_eq!(
        report.lines().count(),
        1,
        "what may stand in the file is not missed as well: {report}"
    );

    let folder = tempfile::tempdir().unwrap();
    let environment = [("MQTT_GATEWAY_CONFIG", folder.path().to_str().unwrap())];
    let report = load(json!({}), &environment).unwrap_err().to_string();
    assert!(
        report.starts_with("MQTT_GATEWAY_CONFIG: ") && report.contains("not a file"),
        "{report}"
    );

    let large = GatewayFile::new(vec![b'#'; (1 << 20) + 1]);
    assert!(
        large
            .load()
            .unwrap_err()
            .to_string()
            .contains("more than 1048576 bytes")
    );

    let report = line(json!({ "config": 5.5 }));
    assert!(
        report.contains("cannot read the gateway file 5.5"),
        "{report}"
    );
    let report = line(json!({ "config": ["gateway.toml"] }));
    assert!(
        report.starts_with("plugin_config.config: a text with the path of a file is needed"),
        "{report}"
    );
}

#[test]
fn a_broken_gateway_file_is_told_line_and_column() {
    let file = GatewayFile::new("node = 'a'\nlisten = \n# more\niggy_grace = 10s\n");
    let report = lines(&file, file.load());
    assert!(report.len() >= 2, "both broken lines are named: {report:?}");
    assert!(report[0].starts_with("gateway.toml:2:"), "{report:?}");
    assert!(
        report
            .iter()
            .any(|line| line.starts_with("gateway.toml:4:")),
        "{report:?}"
    );

    let file = GatewayFile::new("node = 'a'\nnode = 'b'\n");
    let report = lines(&file, file.load());
    assert!(
        report.len() == 1
            && report[0].starts_with("gateway.toml:2:1: not valid TOML: duplicate key"),
        "{report:?}"
    );

    let file = GatewayFile::new(b"node = 'a'\nname = '\xff'\n");
    assert_eq!(
        lines(&file, file.load()),
        ["gateway.toml:2:9: not valid TOML: this is not UTF-8; mend this line"]
    );
}

#[test]
fn a_broken_file_does_not_hide_what_is_wrong_elsewhere() {
    let file = GatewayFile::new("node = \n");
    let plugin_config = json!({ "config": file.path(), "nodes": "a" });
    let report = lines(
        &file,
        load(plugin_config, &[("MQTT_GATEWAY_IGGY_GRACE", "1")]),
    );
    assert_eq!(report.len(), 3, "{report:?}");
}

#[test]
fn limits_has_to_be_a_table_and_plugin_config_too() {
    let report = line(json!({ "limits": 5 }));
    assert!(
        report.starts_with("plugin_config.limits: a table,") && report.ends_with("not a number"),
        "{report}"
    );
    let file = GatewayFile::new("iggy_password = 'pw'\n[[limits]]\nsend_window = 5\n");
    let report = lines(&file, file.load());
    assert!(
        report.len() == 1 && report[0].starts_with("gateway.toml:2:"),
        "{report:?}"
    );
    let report = line(json!(["config"]));
    assert!(
        report.starts_with("plugin_config: a table is needed, not a list"),
        "{report}"
    );
}

#[test]
fn the_file_cannot_name_another_file() {
    let file = GatewayFile::new("config = 'other.toml'\niggy_password = 'pw'\n");
    let report = lines(&file, file.load());
    assert_eq!(report.len(), 1);
    assert!(
        report[0].starts_with("gateway.toml:1:1: config: unknown key; it names this file"),
        "{report:?}"
    );
}

#[cfg(unix)]
#[test]
fn a_variable_that_is_not_utf8_is_refused() {
    use std::os::unix::ffi::OsStringExt;
    let bad = OsString::from_vec(vec![b'a', 0xff]);
    let environment = [
        (OsString::from("MQTT_GATEWAY_IGGY_PASSWORD"), bad.clone()),
        (OsString::from("SOMETHING_ELSE"), bad.clone()),
        (bad, OsString::from("x")),
    ];
    let error = Config::load(&json!({}), environment).unwrap_err();
    assert_eq!(
        error.to_string(),
        "MQTT_GATEWAY_IGGY_PASSWORD: is not valid UTF-8; write it anew"
    );
}
