//! The documentation and the sample file say what the code does.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use super::{GatewayFile, PASSWORD, load};
use crate::config::listeners::Draft;
use crate::config::value::Slot;
use crate::config::{Config, Limits, keys};

fn repository(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(path)
}

fn documentation() -> String {
    fs::read_to_string(repository("docs/configuration.md")).unwrap()
}

/// The part of the page below the heading.
fn section(page: &str, heading: &str) -> String {
    let (_, rest) = page
        .split_once(&format!("\n## {heading}\n"))
        .unwrap_or_else(|| panic!("no section {heading}"));
    rest.split("\n## ").next().unwrap().to_owned()
}

/// The fenced blocks of a language.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    text.split(&fence)
        .skip(1)
        .map(|part| part.split("```").next().unwrap().to_owned())
        .collect()
}

/// Key, default and allowed values of each row of the tables in the text.
fn rows(text: &str, prefix: &str) -> Vec<[String; 3]> {
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.map(|row| {
        row.split(" | ")
            .map(|cell| cell.trim_matches(['|', ' ']).to_owned())
            .collect::<Vec<_>>()
    });
    cells
        .map(|cells| match cells.as_slice() {
            [key, default, allowed, meaning] if !meaning.is_empty() => [
                format!("{prefix}{}", key.trim_matches('`')),
                default.clone(),
                allowed.clone(),
            ],
            other => panic!("a row needs four cells: {other:?}"),
        })
        .collect()
}

fn row(key: &str, slot: &Slot<'_>) -> [String; 3] {
    let default = match slot.show() {
        nothing if nothing.is_empty() => "none".to_owned(),
        shown => format!("`{shown}`"),
    };
    [key.to_owned(), default, slot.allowed()]
}

#[test]
fn the_documented_keys_of_listeners_and_their_defaults_are_those_of_the_code() {
    let mut draft = Draft::default();
    let slots = draft.slots();
    let rows_of_code: Vec<_> = slots.iter().map(|(key, slot)| row(key, slot)).collect();
    assert_eq!(
        rows(&section(&documentation(), "Listeners"), ""),
        rows_of_code
    );
}

#[test]
fn the_documented_keys_defaults_and_ranges_are_those_of_the_code() {
    let mut config = Config::with_defaults();
    let slots = keys::slots(&mut config).into_iter();
    let (limits, mut top): (Vec<_>, Vec<_>) = slots
        .map(|(key, slot)| row(key, &slot))
        .partition(|[key, ..]| key.starts_with("limits."));
    for (key, allowed) in [
        (keys::CONFIG, "a file"),
        (keys::PASSWORD, "1 to 255 bytes"),
        (keys::PASSWORD_FILE, "a file"),
    ] {
        top.push([key, "none", allowed].map(str::to_owned));
    }
    let page = documentation();
    assert_eq!(rows(&section(&page, "Keys"), ""), top);
    assert_eq!(rows(&section(&page, "Limits"), "limits."), limits);
}

#[test]
fn the_documented_relations_between_limits_are_those_of_the_code() {
    let page = section(&documentation(), "Limits");
    let (_, rest) = page.split_once("These must go together:").unwrap();
    let sentence = rest.split("\n\n").next().unwrap();
    // What stands in brackets is the reason; chains are told apart by semicolons.
    let chains = sentence.split(';').map(|chain| {
        let keys = chain.split('`').skip(1).step_by(2);
        keys.map(|key| format!("limits.{key}")).collect::<Vec<_>>()
    });
    let documented: BTreeSet<(String, String)> = chains
        .flat_map(|chain| {
            let pairs = chain.windows(2);
            pairs
                .map(|pair| (pair[0].clone(), pair[1].clone()))
                .collect::<Vec<_>>()
        })
        .collect();
    let all_broken = Limits {
        max_connect_size: 4,
        max_packet_size: 3,
        ingest_bytes: 2,
        outbox_bytes: 2,
        outbox_bytes_total: 1,
        poll_interval_min: Duration::from_secs(2),
        poll_interval_max: Duration::from_secs(1),
        ..Limits::default()
    };
    let of_code: BTreeSet<(String, String)> = all_broken
        .broken_relations()
        .into_iter()
        .map(|broken| (broken.lesser.to_owned(), broken.greater.to_owned()))
        .collect();
    assert_eq!(documented, of_code);
}

#[test]
fn every_variable_in_the_documentation_exists() {
    let page = documentation();
    let mut seen = 0;
    for part in page.split("MQTT_GATEWAY_").skip(1) {
        let rest: String = part
            .chars()
            .take_while(|c| c.is_ascii_uppercase() || *c == '_')
            .collect();
        // A form (`<KEY>`, `…`), or one of Kubernetes'.
        if rest.is_empty() || rest == "LIMITS_" || crate::config::sources::is_service_link(&rest) {
            continue;
        }
        assert!(
            keys::of_variable(&format!("MQTT_GATEWAY_{rest}")).is_some(),
            "MQTT_GATEWAY_{rest}"
        );
        seen += 1;
    }
    assert!(seen >= 4, "{seen}");
}

#[test]
fn the_documented_example_loads() {
    let page = documentation();
    let example = blocks(&page, "toml")
        .into_iter()
        .find(|block| block.contains("iggy_password_file"))
        .unwrap();
    let file = GatewayFile::new(example);
    let config = load(file.plugin_config(), &[PASSWORD]).unwrap();
    assert_eq!(config.limits.max_connections, 2_000);
}

#[test]
fn the_documented_report_is_what_the_documented_mistakes_give() {
    let section = section(&documentation(), "When something is wrong");
    let [file, report] = ["toml", "text"].map(|language| blocks(&section, language).remove(0));
    let file = GatewayFile::new(file);
    let folder = format!("{}/", file.folder.path().display());
    let error = file.load().unwrap_err().to_string().replace(&folder, "");
    assert_eq!(error, report.trim_end());
}

#[test]
fn the_documented_listeners_load() {
    let section = section(&documentation(), "Listeners");
    let file = GatewayFile::new(format!(
        "{}\n[limits]\n",
        blocks(&section, "toml").remove(0)
    ));
    let config = Config::load(&file.plugin_config(), [PASSWORD]).unwrap();
    let schemes: Vec<_> = config.listeners().iter().map(|one| one.scheme()).collect();
    assert_eq!(schemes, ["mqtts", "mqtts", "wss"]);
}

/// The file that operators copy loads as it is, and shows in comments what holds without them: `#key = default`.
#[test]
fn the_sample_gateway_file_loads_and_its_comments_show_the_defaults() {
    let sample = repository("runtime-config/gateway.toml");
    let Ok(text) = fs::read_to_string(&sample) else {
        panic!("{} is missing", sample.display());
    };
    load(serde_json::json!({ "config": sample }), &[PASSWORD]).unwrap();

    let mut prefix = "";
    let mut missing: BTreeSet<&str> = keys::slots(&mut Config::with_defaults())
        .into_iter()
        .map(|(key, _)| key)
        .collect();
    let mut config = Config::with_defaults();
    for (number, line) in text.lines().enumerate() {
        if line.trim_start_matches(['#', ' ']).starts_with("[limits]") {
            prefix = "limits.";
        }
        let Some((name, value)) = line.trim_start_matches('#').split_once('=') else {
            continue;
        };
        let key = format!("{prefix}{}", name.trim());
        let slots = keys::slots(&mut config);
        let Some((known, slot)) = slots.into_iter().find(|(known, _)| *known == key) else {
            continue;
        };
        missing.remove(known);
        if !line.starts_with('#') {
            continue;
        }
        let default = slot.show();
        // An example of what there is not by default.
        if default.is_empty() {
            continue;
        }
        // Refused where nothing uses it.
        let more = match key == "jwt_algorithm" {
            true => "authentication = ['jwt']\njwt_key_files = 'k'\n",
            false => "authentication = ['anonymous']\n",
        };
        let file = GatewayFile::new(format!("iggy_password = 'pw'\n{more}{key} = {value}\n"));
        let mut loaded = Config::load(&file.plugin_config(), [PASSWORD])
            .unwrap_or_else(|error| panic!("line {}: {error}", number + 1));
        loaded.topic_map = loaded
            .topic_map
            .strip_prefix(file.folder.path())
            .unwrap()
            .to_owned();
        let shown = keys::slots(&mut loaded)
            .into_iter()
            .find(|(known, _)| *known == key)
            .unwrap()
            .1
            .show();
        assert_eq!(shown, default, "line {}: {line}", number + 1);
    }
    assert!(missing.is_empty(), "the sample leaves out {missing:?}");
}
