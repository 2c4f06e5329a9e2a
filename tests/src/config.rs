//! A test's own copy of the files in `runtime-config/`, and the topic map that most tests use.
//!
//! Always holds: a test starts from the shipped files and says what it changes; the shipped files themselves are never
//! written. In the copy the folder has the same name and place below the working directory, so relative paths work.

use std::fs;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use crate::binaries;

/// The shared gateway file.
pub const GATEWAY: &str = "gateway.toml";
/// The topic map.
pub const TOPIC_MAP: &str = "topic-map.toml";
/// The runtime's own file.
pub const RUNTIME: &str = "config.toml";
/// The source connector's file.
pub const SOURCE: &str = "connectors/mqtt_source.toml";
/// The sink connector's file.
pub const SINK: &str = "connectors/mqtt_sink.toml";

/// The dead-letter topic, as the shipped files have it. Each test has a stream of its own for it.
pub const DEAD_LETTERS: &str = "dead_letter";

/// How many partitions the topics of [`own_map`] have.
pub const PARTITIONS: u32 = 4;

/// A topic in Iggy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The stream.
    pub stream: String,
    /// The topic.
    pub topic: String,
    /// How many partitions it is made with.
    pub partitions: u32,
    /// Whether Iggy is to have a message on stable storage before it confirms it.
    pub persisted: bool,
}

impl Target {
    /// A topic with the given names, whose messages are on stable storage when they are confirmed.
    pub fn new(stream: &str, topic: &str, partitions: u32) -> Self {
        Self {
            stream: stream.to_owned(),
            topic: topic.to_owned(),
            partitions,
            persisted: true,
        }
    }

    /// One whose messages Iggy may still have in memory only when it confirms them.
    pub fn committed_only(mut self) -> Self {
        self.persisted = false;
        self
    }
}

/// A topic map in which `device/ID/...` is stored in `STREAM/devices` with the key `ID`, and everything else in
/// `STREAM/rest`, or nowhere when `refuse`.
pub fn own_map(stream: &str, refuse: bool) -> String {
    let on_unmatched = if refuse { "refuse" } else { "fallback" };
    format!(
        "default_stream = '{stream}'\n\
         default_topic = 'rest'\n\
         on_unmatched = '{on_unmatched}'\n\
         partitions = {PARTITIONS}\n\
         \n\
         [[rule]]\n\
         mqtt_topic = 'device/([^/]+)/.*'\n\
         stream = '{stream}'\n\
         topic = 'devices'\n\
         partition_key = '$1'\n"
    )
}

/// A map in which every reason for a refusal is at hand that a device can bring about.
pub fn map_of_refusals(stream: &str) -> String {
    format!(
        "on_unmatched = 'refuse'\n\
         max_topics = 1\n\
         [[rule]]\n\
         mqtt_topic = 'device/([^/]+)/.*'\n\
         stream = '{stream}'\n\
         topic = 'devices'\n\
         partition_key = '$1'\n\
         [[rule]]\n\
         mqtt_topic = 'guarded/([^/]+)'\n\
         stream = '{stream}'\n\
         topic = 'guarded_$1'\n\
         auto_create = false\n\
         [[rule]]\n\
         mqtt_topic = 'dynamic/([^/]+)'\n\
         stream = '{stream}'\n\
         topic = 'dynamic_$1'\n"
    )
}

/// The files of one test.
#[derive(Debug)]
pub struct Files {
    working_directory: PathBuf,
    folder: PathBuf,
}

impl Files {
    /// Copies the shipped files below `working_directory`.
    ///
    /// # Panics
    /// When the shipped files are not as expected.
    pub fn copy_shipped(working_directory: &Path) -> Self {
        let folder = working_directory.join("runtime-config");
        copy_folder(&binaries::repository().join("runtime-config"), &folder);
        Self {
            working_directory: working_directory.to_owned(),
            folder,
        }
    }

    /// Where the host runs.
    pub fn working_directory(&self) -> &Path {
        &self.working_directory
    }

    /// The whole path of a file.
    pub fn path(&self, file: &str) -> PathBuf {
        self.folder.join(file)
    }

    /// The text of a file.
    ///
    /// # Panics
    /// When there is none.
    pub fn read(&self, file: &str) -> String {
        fs::read_to_string(self.path(file))
            .unwrap_or_else(|error| panic!("cannot read runtime-config/{file}: {error}"))
    }

    /// Writes a file.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn write(&self, file: &str, text: &str) {
        fs::write(self.path(file), text)
            .unwrap_or_else(|error| panic!("cannot write runtime-config/{file}: {error}"));
    }

    /// Removes a file.
    ///
    /// # Panics
    /// When there is none.
    pub fn remove(&self, file: &str) {
        fs::remove_file(self.path(file))
            .unwrap_or_else(|error| panic!("cannot remove runtime-config/{file}: {error}"));
    }

    /// A file as a TOML table.
    ///
    /// # Panics
    /// When it is not TOML.
    pub fn table(&self, file: &str) -> Table {
        self.read(file)
            .parse()
            .unwrap_or_else(|error| panic!("runtime-config/{file} is not TOML: {error}"))
    }

    /// Sets one key of a file, named by its path.
    ///
    /// # Panics
    /// When the file is not TOML or something on the way to the key is no table.
    pub fn set(&self, file: &str, key: &[&str], value: impl Into<Value>) {
        let mut table = self.table(file);
        set(&mut table, key, value.into());
        self.write(file, &table.to_string());
    }

    /// Lets a source connector's runtime open its producer for another topic.
    ///
    /// # Panics
    /// When the file has no `[[streams]]`.
    pub fn set_producer(&self, file: &str, stream: &str, topic: &str) {
        let mut table = self.table(file);
        let entry = table
            .get_mut("streams")
            .and_then(Value::as_array_mut)
            .and_then(|streams| streams.first_mut())
            .and_then(Value::as_table_mut)
            .unwrap_or_else(|| panic!("runtime-config/{file} has no [[streams]]"));
        entry.insert("stream".to_owned(), stream.into());
        entry.insert("topic".to_owned(), topic.into());
        self.write(file, &table.to_string());
    }

    /// The key of the connector that a connector file describes.
    ///
    /// # Panics
    /// When the file has none.
    pub fn connector_key(&self, file: &str) -> String {
        self.table(file)
            .get("key")
            .and_then(Value::as_str)
            .unwrap_or_else(|| panic!("runtime-config/{file} has no key"))
            .to_owned()
    }

    /// Whether a file is there.
    pub fn has(&self, file: &str) -> bool {
        self.path(file).exists()
    }

    /// The topics that the topic map and the connector files name without captures.
    pub fn constant_targets(&self) -> Vec<Target> {
        let map = self.read(TOPIC_MAP);
        let Ok(map) = map.parse::<Table>() else {
            return Vec::new();
        };
        let partitions = partitions_of(&map).unwrap_or(1);
        let persisted = persisted(&map).unwrap_or(true);
        let mut targets = Vec::new();
        let mut add = |stream: Option<&Value>, topic: Option<&Value>, partitions, persisted| {
            if let (Some(Value::String(stream)), Some(Value::String(topic))) = (stream, topic)
                && !stream.contains('$')
                && !topic.contains('$')
            {
                targets.push(Target {
                    persisted,
                    ..Target::new(stream, topic, partitions)
                });
            }
        };
        add(
            map.get("default_stream"),
            map.get("default_topic"),
            partitions,
            persisted,
        );
        for rule in map
            .get("rule")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let rule = rule.as_table().cloned().unwrap_or_default();
            add(
                rule.get("stream"),
                rule.get("topic"),
                partitions_of(&rule).unwrap_or(partitions),
                self::persisted(&rule).unwrap_or(persisted),
            );
        }
        if self.has(SOURCE) {
            let source = self.table(SOURCE);
            for entry in source
                .get("streams")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
            {
                add(entry.get("stream"), entry.get("topic"), 1, true);
            }
        }
        targets
    }
}

fn partitions_of(table: &Table) -> Option<u32> {
    u32::try_from(table.get("partitions")?.as_integer()?).ok()
}

fn persisted(table: &Table) -> Option<bool> {
    Some(table.get("durability")?.as_str()? == "persisted")
}

fn set(table: &mut Table, key: &[&str], value: Value) {
    match key {
        [] => {}
        [last] => {
            table.insert((*last).to_owned(), value);
        }
        [first, rest @ ..] => {
            let inner = table
                .entry(*first)
                .or_insert_with(|| Value::Table(Table::new()));
            let inner = inner
                .as_table_mut()
                .unwrap_or_else(|| panic!("`{first}` is no table"));
            set(inner, rest, value);
        }
    }
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to)
        .unwrap_or_else(|error| panic!("cannot create {}: {error}", to.display()));
    let entries = fs::read_dir(from)
        .unwrap_or_else(|error| panic!("cannot read {}: {error}", from.display()));
    for entry in entries.flatten() {
        let source = entry.path();
        let target = to.join(entry.file_name());
        if source.is_dir() {
            copy_folder(&source, &target);
        } else {
            fs::copy(&source, &target)
                .unwrap_or_else(|error| panic!("cannot copy {}: {error}", source.display()));
        }
    }
}
