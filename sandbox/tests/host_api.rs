//! The host's HTTP API: what it shows, and restarts.
#![allow(clippy::unwrap_used)] // In tests a panic is the report.

mod host_support;

use host_support::{World, get, http, post};
use sandbox::host::environment::Environment;
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn a_connector_is_shown_with_the_official_fields() {
    let world = World::start().await;
    world.source("source", "s", "t", "");
    world.sink("sink", "");
    let host = world.host().await;
    assert_eq!(
        get(&host, "/health").await.json(),
        json!({"status": "healthy"})
    );
    let shown = get(&host, "/sources/source").await.json();
    let id = shown["id"].clone();
    assert!(id.is_u64(), "{shown}");
    let path = host_support::fixture_plugin().display().to_string();
    let info = json!({
        "id": id,
        "key": "source",
        "name": "source",
        "path": path,
        "enabled": true,
        "status": "running",
    });
    assert_eq!(get(&host, "/sources").await.json(), json!([info]));
    let mut details = info;
    details["streams"] = json!([{
        "stream": "s",
        "topic": "t",
        "schema": "raw",
        "avro_schema_json": null,
        "avro_schema_path": null,
        "batch_length": null,
        "linger_time": null,
    }]);
    assert_eq!(shown, details);
    let sink = get(&host, "/sinks/sink").await.json();
    assert_eq!(
        (&sink["status"], &sink["streams"]),
        (&json!("running"), &json!([]))
    );
    host.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_connector_is_not_found() {
    let world = World::start().await;
    let host = world.host().await;
    for (method, path, code) in [
        ("GET", "/sources/nobody", "source_not_found"),
        ("POST", "/sources/nobody/restart", "source_not_found"),
        ("GET", "/sinks/nobody", "sink_not_found"),
        ("POST", "/sinks/nobody/restart", "sink_not_found"),
        ("GET", "/sinks/nobody/configs/plugin", "sink_not_found"),
    ] {
        let answer = http(host.api_address().unwrap(), method, path, "").await;
        assert_eq!(
            (answer.status, &answer.json()["code"]),
            (404, &json!(code)),
            "{path}"
        );
    }
    host.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_connector_is_closed_and_opened_under_a_new_id_and_works_on() {
    let world = World::start().await;
    world.source("source", "s", "t", r#"batches = [["one"]]"#);
    world.sink("sink", "");
    let host = world.host().await;
    world
        .journal_with(|lines| lines.contains(&"source ack".to_owned()))
        .await;
    let id = |shown: &Value| shown["id"].as_u64().unwrap();
    for (list, key) in [("/sources", "source"), ("/sinks", "sink")] {
        let before = get(&host, &format!("{list}/{key}")).await.json();
        assert_eq!(
            post(&host, &format!("{list}/{key}/restart")).await.status,
            204
        );
        let after = get(&host, &format!("{list}/{key}")).await.json();
        assert_eq!(after["status"], "running");
        assert_ne!(id(&before), id(&after));
        let journal = world.journal();
        let lines: Vec<&String> = journal
            .iter()
            .filter(|line| {
                line.starts_with(&format!("{key} open")) || **line == format!("{key} close")
            })
            .collect();
        assert_eq!(
            lines,
            [
                &format!("{key} open {}", id(&before)),
                &format!("{key} close"),
                &format!("{key} open {}", id(&after)),
            ]
        );
    }
    assert_eq!(get(&host, "/health").await.status, 200);
    host.shutdown().await;
    // The state went along: the batch was not produced again.
    assert_eq!(world.stored("s", "t").await, ["one"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_one_connector_touches_no_other() {
    let world = World::start().await;
    world.source("source", "s", "t", "");
    world.sink("sink", "");
    let host = world.host().await;
    let sink_before = get(&host, "/sinks/sink").await.json();
    assert_eq!(post(&host, "/sources/source/restart").await.status, 204);
    assert_eq!(get(&host, "/sinks/sink").await.json(), sink_before);
    assert!(!world.journal().contains(&"sink close".to_owned()));
    host.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_that_fails_says_why_and_leaves_the_connector_stopped() {
    let world = World::start().await;
    world.sink("sink", "fail_open = true");
    let host = world.host().await;
    let answer = post(&host, "/sinks/sink/restart").await;
    assert_eq!(
        (answer.status, &answer.json()["code"]),
        (400, &json!("invalid_configuration"))
    );
    assert!(
        answer.body.contains("Plugin initialization failed"),
        "{answer:?}"
    );
    assert_eq!(get(&host, "/sinks/sink").await.json()["status"], "stopped");
    host.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_plugin_config_is_shown_as_it_is_in_the_format_asked_for() {
    let world = World::start().await;
    world.sink("sink", "marker = 3");
    let host = world.host().await;
    let toml = get(&host, "/sinks/sink/configs/plugin").await;
    assert!(
        toml.head.contains("content-type: application/toml"),
        "{toml:?}"
    );
    assert!(toml.body.contains("marker = 3"), "{toml:?}");
    let json = get(&host, "/sinks/sink/configs/plugin?format=json").await;
    assert_eq!(
        json.json(),
        json!({"name": "sink", "journal": world.path("journal"), "marker": 3})
    );
    assert_eq!(
        get(&host, "/sinks/sink/configs/plugin?format=xml")
            .await
            .status,
        400
    );
    host.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_an_api_key_only_the_welcome_and_the_health_page_answer_without_it() {
    let world = World::start().await;
    world.sink("sink", "");
    let environment: Environment = [("IGGY_CONNECTORS_HTTP_API_KEY", "key with space")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into_iter()
        .collect();
    let host = world.host_in(&environment).await;
    let address = host.api_address().unwrap();
    for (path, headers, expected) in [
        ("/", "", 200),
        ("/health", "", 200),
        ("/sinks", "", 401),
        ("/sinks", "api-key: wrong\r\n", 401),
        ("/sinks", "api-key: key with space\r\n", 200),
        ("/stats", "", 401),
    ] {
        let answer = http(address, "GET", path, headers).await;
        assert_eq!(answer.status, expected, "{path} with {headers}");
    }
    assert_eq!(
        http(address, "POST", "/sinks/sink/restart", "")
            .await
            .status,
        401
    );
    assert!(!world.journal().contains(&"sink close".to_owned()));
    host.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_served_only_when_they_are_switched_on() {
    let world = World::start().await;
    world.source("source", "s", "t", r#"batches = [["one", "two"]]"#);
    let host = world.host().await;
    assert_eq!(get(&host, "/metrics").await.status, 404);
    world
        .journal_with(|lines| lines.contains(&"source ack".to_owned()))
        .await;
    host.shutdown().await;
    let environment: Environment = [("IGGY_CONNECTORS_HTTP_METRICS_ENABLED", "true")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into_iter()
        .collect();
    world.source(
        "source",
        "s",
        "t",
        r#"batches = [["one", "two"], ["three"]]"#,
    );
    let host = world.host_in(&environment).await;
    let line =
        r#"iggy_connector_messages_sent_total{connector_key="source",connector_type="source"} 1"#;
    host_support::eventually(
        async || get(&host, "/metrics").await.body,
        |page| {
            page.lines().any(|it| it == line) && page.contains("iggy_connectors_sources_running 1")
        },
    )
    .await;
    host.shutdown().await;
}
