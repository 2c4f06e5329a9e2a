//! Reading the runtime's configuration: defaults, the environment, secrets, and what is refused.

use super::*;

fn environment(variables: &[(&str, &str)]) -> Environment {
    variables
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

#[test]
fn a_file_with_nothing_in_it_gives_the_official_defaults() {
    let config = RuntimeConfig::parse("", "config.toml", &Environment::default()).unwrap();
    assert!(config.http.enabled);
    assert_eq!(config.http.address, "127.0.0.1:8081");
    assert_eq!(config.iggy.address, "localhost:8090");
    assert_eq!(config.iggy.username, "iggy");
    assert_eq!(config.iggy.password.expose(), "iggy");
    assert_eq!(config.state.path, "local_state");
    assert_eq!(config.connectors.config_dir, "");
    assert!(!config.http.metrics.enabled);
}

#[test]
fn the_environment_wins_over_the_file() {
    let text =
        "[http]\naddress = \"127.0.0.1:1\"\n[iggy]\naddress = \"a:1\"\nusername = \"file\"\n";
    let variables = environment(&[
        ("IGGY_CONNECTORS_HTTP_ADDRESS", "127.0.0.1:2"),
        ("IGGY_CONNECTORS_IGGY_ADDRESS", "b:2"),
        ("IGGY_CONNECTORS_IGGY_PASSWORD", "secret"),
        ("IGGY_CONNECTORS_HTTP_METRICS_ENABLED", "true"),
        ("IGGY_CONNECTORS_CONNECTORS_CONFIG_DIR", "elsewhere"),
        ("IGGY_CONNECTORS_STATE_PATH", ""),
    ]);
    let config = RuntimeConfig::parse(text, "config.toml", &variables).unwrap();
    assert_eq!(config.http.address, "127.0.0.1:2");
    assert_eq!(config.iggy.address, "b:2");
    assert_eq!(config.iggy.username, "file");
    assert_eq!(config.iggy.password.expose(), "secret");
    assert!(config.http.metrics.enabled);
    assert_eq!(config.connectors.config_dir, "elsewhere");
    assert_eq!(config.state.path, "local_state");
}

#[test]
fn a_password_that_looks_like_a_number_is_refused_as_the_runtime_does() {
    let variables = environment(&[("IGGY_CONNECTORS_IGGY_PASSWORD", "123456")]);
    let error = RuntimeConfig::parse("", "config.toml", &variables).unwrap_err();
    assert!(matches!(error, ConfigError::WrongValue { .. }), "{error}");
}

#[test]
fn a_secret_is_never_printed() {
    let text =
        "[http]\napi_key = \"hunter2\"\n[iggy]\npassword = \"hunter2\"\ntoken = \"hunter2\"\n";
    let config = RuntimeConfig::parse(text, "config.toml", &Environment::default()).unwrap();
    assert!(!format!("{config:?}").contains("hunter2"));
}

#[test]
fn a_broken_file_is_named_with_its_line() {
    let error = RuntimeConfig::parse("[http]\naddress = ", "config.toml", &Environment::default())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("config.toml") && error.contains("line 2"),
        "{error}"
    );
}

#[test]
fn what_the_sandbox_lacks_is_refused_by_name() {
    for text in [
        "[connectors]\nconfig_type = \"http\"\nbase_url = \"http://localhost\"\n",
        "[http.tls]\nenabled = true\n",
        "[http.cors]\nenabled = true\n",
        "[telemetry]\nenabled = true\n",
    ] {
        let error = RuntimeConfig::parse(text, "config.toml", &Environment::default()).unwrap_err();
        assert!(matches!(error, ConfigError::Unsupported(_)), "{error}");
    }
}

#[test]
fn a_missing_file_says_how_to_name_one() {
    let error = RuntimeConfig::load(Path::new("/nowhere/config.toml"), &Environment::default())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("--config") && error.contains("/nowhere/config.toml"),
        "{error}"
    );
}
