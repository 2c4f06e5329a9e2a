//! How the host starts, runs and stops connectors, with a real plugin library and a real log server.
#![allow(clippy::unwrap_used)] // In tests a panic is the report.

mod host_support;

use host_support::{World, eventually, get};
use sandbox::host::environment::Environment;
use serde_json::Value;

#[tokio::test(flavor = "multi_thread")]
async fn sources_are_opened_before_sinks_and_stopped_before_them() {
    let world = World::start().await;
    // The sinks come first by name, so the order is not that of the files.
    world.sink("a_sink", "");
    world.sink("b_sink", "");
    world.source("x_source", "s", "t", "");
    world.source("y_source", "s", "t", "");
    let host = world.host().await;
    host.shutdown().await;
    let journal = world.journal();
    let names: Vec<&str> = journal
        .iter()
        .filter_map(|line| line.split(' ').next())
        .collect();
    let connectors = ["x_source", "y_source", "a_sink", "b_sink"];
    assert_eq!(names, [connectors, connectors].concat());
    assert!(journal[..4].iter().all(|line| line.contains(" open ")));
    assert!(journal[4..].iter().all(|line| line.ends_with(" close")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_acknowledged_after_it_is_stored_and_not_produced_again_after_a_restart() {
    let world = World::start().await;
    let batches = r#"batches = [["one", "two"], ["three"]]"#;
    world.source("source", "s", "t", batches);
    let host = world.host().await;
    world
        .journal_with(|lines| lines.iter().filter(|line| *line == "source ack").count() == 2)
        .await;
    assert_eq!(world.stored("s", "t").await, ["one", "two", "three"]);
    assert_eq!(
        get(&host, "/sources/source").await.json()["status"],
        "running"
    );
    host.shutdown().await;

    world.source(
        "source",
        "s",
        "t",
        r#"batches = [["one", "two"], ["three"], ["four"]]"#,
    );
    let host = world.host().await;
    world
        .journal_with(|lines| lines.iter().filter(|line| *line == "source ack").count() == 3)
        .await;
    assert_eq!(
        world.stored("s", "t").await,
        ["one", "two", "three", "four"]
    );
    host.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_iggy_cannot_store_is_nacked_and_shown_as_an_error() {
    let world = World::start().await;
    // Iggy stores no empty payload.
    world.source("source", "s", "t", r#"batches = [["", "two"]]"#);
    let host = world.host().await;
    world
        .journal_with(|lines| lines.iter().filter(|line| *line == "source nack").count() >= 2)
        .await;
    let shown = get(&host, "/sources/source").await.json();
    assert_eq!(shown["status"], "error");
    assert!(
        shown["last_error"]["message"]
            .as_str()
            .unwrap()
            .contains("refused"),
        "{shown}"
    );
    assert!(shown["last_error"]["timestamp"].is_u64(), "{shown}");
    assert_eq!(world.stored("s", "t").await, Vec::<String>::new());
    host.shutdown().await;
    assert!(!world.journal().contains(&"source ack".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_that_contradicts_the_schema_is_nacked() {
    let world = World::start().await;
    world.source("source", "s", "t", "schema = \"json\"\nbatches = [[\"{\"]]");
    let host = world.host().await;
    world
        .journal_with(|lines| lines.contains(&"source nack".to_owned()))
        .await;
    assert_eq!(world.stored("s", "t").await, Vec::<String>::new());
    host.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connector_that_fails_to_open_leaves_the_others_alone() {
    let world = World::start().await;
    world.source("bad_source", "s", "t", "fail_open = true");
    world.source("good_source", "s", "t", r#"batches = [["one"]]"#);
    world.sink("bad_sink", "fail_open = true");
    world.sink("good_sink", "");
    world.connector("sink", "wrong_config", "streams = []", "batches = 7");
    let host = world.host().await;
    world
        .journal_with(|lines| lines.contains(&"good_source ack".to_owned()))
        .await;
    for (path, status) in [
        ("/sources/bad_source", "error"),
        ("/sources/good_source", "running"),
        ("/sinks/bad_sink", "error"),
        ("/sinks/good_sink", "running"),
        ("/sinks/wrong_config", "error"),
    ] {
        let shown = get(&host, path).await.json();
        assert_eq!(shown["status"], status, "{shown}");
        let error = shown["last_error"]["message"].as_str().unwrap_or_default();
        assert_eq!(
            error.contains("Plugin initialization failed"),
            status == "error",
            "{shown}"
        );
    }
    assert_eq!(host.failed().len(), 3);
    host.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_library_that_is_missing_or_no_plugin_is_named_in_the_error() {
    let world = World::start().await;
    world.write("no_library.so", "text");
    for (key, path) in [
        ("missing", "/nowhere/libplugin.so".to_owned()),
        ("text", world.path("no_library.so").display().to_string()),
    ] {
        world.write(
            &format!("connectors/{key}.toml"),
            &format!(
                "type = \"sink\"\nkey = \"{key}\"\nenabled = true\nversion = 0\nname = \"{key}\"\n\
                 path = '{path}'\nstreams = []\n"
            ),
        );
    }
    world.sink("good", "");
    let host = world.host().await;
    let sinks = get(&host, "/sinks").await.json();
    let by_key = |key: &str| -> Value {
        let all = sinks.as_array().unwrap();
        all.iter().find(|sink| sink["key"] == key).unwrap().clone()
    };
    let message = |key: &str| by_key(key)["last_error"]["message"].to_string();
    assert!(
        message("missing").contains("/nowhere/libplugin.so"),
        "{sinks}"
    );
    assert!(message("text").contains("no_library.so"), "{sinks}");
    assert_eq!(by_key("good")["status"], "running");
    host.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_without_a_stream_is_closed_again_and_shown_as_an_error() {
    let world = World::start().await;
    world.connector("source", "source", "streams = []", "");
    let host = world.host().await;
    let shown = get(&host, "/sources/source").await.json();
    assert_eq!(shown["status"], "error");
    assert!(
        shown["last_error"]["message"]
            .as_str()
            .unwrap()
            .contains("No streams"),
        "{shown}"
    );
    assert_eq!(world.journal()[1], "source close");
    host.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_streams_the_last_one_gets_the_messages() {
    let world = World::start().await;
    let head = r#"
[[streams]]
stream = "first"
topic = "t"
schema = "raw"
[[streams]]
stream = "second"
topic = "t"
schema = "raw"
"#;
    world.connector("source", "source", head, r#"batches = [["one"]]"#);
    let host = world.host().await;
    world
        .journal_with(|lines| lines.contains(&"source ack".to_owned()))
        .await;
    assert_eq!(world.stored("first", "t").await, Vec::<String>::new());
    assert_eq!(world.stored("second", "t").await, ["one"]);
    host.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_is_given_what_is_stored_and_only_what_is_new_after_a_restart() {
    let world = World::start().await;
    world.source("source", "s", "t", r#"batches = [["one", "two"]]"#);
    let host = world.host().await;
    world
        .journal_with(|lines| lines.contains(&"source ack".to_owned()))
        .await;
    host.shutdown().await;

    let head = "[[streams]]\nstream = \"s\"\ntopics = [\"t\"]\nschema = \"raw\"";
    world.connector("sink", "sink", head, "");
    let host = world.host().await;
    let consumed = |lines: &[String]| -> Vec<String> {
        let lines = lines.iter().filter(|line| line.starts_with("sink consume"));
        lines.cloned().collect()
    };
    let journal = world.journal_with(|lines| consumed(lines).len() == 2).await;
    assert_eq!(
        consumed(&journal),
        [
            "sink consume s/t partition 0 offset 0 headers 0 payload one",
            "sink consume s/t partition 0 offset 1 headers 0 payload two",
        ]
    );
    // What is polled is committed, wherever the plugin is with it.
    let stats = eventually(
        async || get(&host, "/stats").await.json(),
        |stats| stats["connectors"][1]["messages_processed"] == 2,
    )
    .await;
    assert_eq!(stats["sinks_running"], 1, "{stats}");
    host.shutdown().await;

    world.source(
        "source",
        "s",
        "t",
        r#"batches = [["one", "two"], ["three"]]"#,
    );
    let host = world.host().await;
    let journal = world.journal_with(|lines| consumed(lines).len() >= 3).await;
    assert_eq!(
        consumed(&journal)[2..],
        ["sink consume s/t partition 0 offset 2 headers 0 payload three"]
    );
    host.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn environment_variables_reach_the_plugin_and_switch_connectors_off() {
    let world = World::start().await;
    world.source("my_source", "s", "t", "");
    world.sink("my_sink", "");
    let environment: Environment = [
        (
            "IGGY_CONNECTORS_SOURCE_MY_SOURCE_PLUGIN_CONFIG_MARKER",
            "17",
        ),
        ("IGGY_CONNECTORS_SINK_MY_SINK_ENABLED", "false"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into_iter()
    .collect();
    let host = world.host_in(&environment).await;
    assert_eq!(world.journal()[1], "my_source marker 17");
    assert_eq!(get(&host, "/sinks").await.json(), Value::Array(Vec::new()));
    let stats = get(&host, "/stats").await.json();
    assert_eq!(
        (&stats["sinks_total"], &stats["sinks_running"]),
        (&1.into(), &0.into())
    );
    host.shutdown().await;
}
