//! `explain`: what the topic map does with a topic, and why, and what a client may do with it.
//!
//! What always holds: every answer comes from the compiled map ([`TopicMap`]) and the permissions that the running gateway
//! would use; here it is put into words.

mod access;
mod balance;
mod batch;
mod lines;
mod place;
mod print;
mod report;
mod rows;
mod subscribe;
mod summary;

use std::io;
use std::path::{Path, PathBuf};

use mqtt_gateway::config::Limits;
use mqtt_gateway::mapping::TopicMap;
use mqtt_gateway::mapping::envelope::HeaderSet;
use mqtt_gateway::wire::Violation;
use toml::de::DeTable;

use crate::args::{ExplainArgs, Format};
use crate::file::{self, Kind, Unusable, shown};
use crate::output::Output;
use crate::{Failure, Verdict, check, settings};

/// The map that is used when none is named.
const DEFAULT_MAP: &str = "topic-map.toml";

/// Why nothing can be explained.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExplainError {
    /// No map is named, and there is none where one is looked for.
    #[error(
        "there is no {DEFAULT_MAP} in the working directory; name the topic map with --map FILE, or the gateway file with --config FILE"
    )]
    NoMap,
    /// A file that is named cannot be used.
    #[error("{} {reason}", shown(file))]
    File {
        /// The file.
        file: PathBuf,
        /// Why not.
        reason: Unusable,
    },
    /// The wrong option.
    #[error("{} is a {found}; name it with {option}", shown(file))]
    OtherKind {
        /// The file.
        file: PathBuf,
        /// What it is.
        found: Kind,
        /// The option for it.
        option: &'static str,
    },
    /// The map does not compile, or the configuration cannot be used.
    #[error("the gateway would not start with {}:\n\n{}", shown(file), problems.trim_end())]
    Problems {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        problems: String,
    },
    /// Several topics, where one is explained at a time.
    #[error(
        "one topic at a time is explained by the topic map; give one, or a list of them with --file"
    )]
    SeveralTopics,
    /// The list of topics cannot be read.
    #[error(
        "cannot read the topics in {}: {error}; check the path and the permissions",
        shown(file)
    )]
    Topics {
        /// The file.
        file: PathBuf,
        /// Why not.
        error: io::Error,
    },
}

/// A compiled map and what belongs to it.
pub(crate) struct Loaded {
    /// The map.
    pub(crate) map: TopicMap,
    /// Its file's name, as it is shown.
    pub(crate) file: String,
    /// The headers that the gateway writes.
    pub(crate) headers: HeaderSet,
    /// The gateway's limits; `None` if only the map is known.
    pub(crate) limits: Option<Limits>,
    /// The file of permissions that the configuration names.
    pub(crate) acl: Option<PathBuf>,
}

impl Loaded {
    /// Why the gateway disconnects a client that names such a topic or filter, although MQTT allows it.
    pub(crate) fn over_a_limit(&self, topic: &str) -> Option<Violation> {
        self.limits.as_ref()?.wire().check_topic(topic).err()
    }
}

/// Explains.
pub(crate) fn run(arguments: &ExplainArgs, output: &mut Output) -> Result<Verdict, Failure> {
    let json = arguments.format == Format::Json;
    let client_by = |acl: Option<&PathBuf>| {
        acl.map(|acl| access::Client::load(acl, arguments))
            .transpose()
    };
    if arguments.map.is_none()
        && arguments.config.is_none()
        && let Some(client) = client_by(arguments.acl.as_ref())?
    {
        let report = client.topics(&arguments.topic);
        match json {
            true => output.json(&report)?,
            false => access::print_topics(&report, output)?,
        }
        return Ok(verdict(report.is_refused(arguments.subscribe)));
    }
    let loaded = load(arguments)?;
    let acl = arguments.acl.as_ref().or(loaded.acl.as_ref());
    let client = client_by(acl.filter(|_| arguments.file.is_none()))?;
    let refused = if let Some(topics) = &arguments.file {
        let lines = lines::Lines::open(topics).map_err(|error| ExplainError::Topics {
            file: topics.clone(),
            error,
        })?;
        batch::run(&loaded, topics, lines, arguments.partitions, json, output)?
    } else {
        // Without a file there is a topic; the definition of the arguments sees to it.
        let [topic] = arguments.topic.as_slice() else {
            return Err(ExplainError::SeveralTopics.into());
        };
        let access = client.map(|client| client.access(topic));
        if arguments.subscribe {
            let mut report = subscribe::subscription(&loaded, topic, arguments.partitions);
            report.access = access;
            match json {
                true => output.json(&report)?,
                false => subscribe::print(&report, output)?,
            }
            report.is_refused()
        } else {
            let mut report = report::topic(&loaded, topic, arguments.partitions);
            report.access = access;
            match json {
                true => output.json(&report)?,
                false => print::print(&report, output)?,
            }
            report.is_refused()
        }
    };
    Ok(verdict(refused))
}

fn verdict(refused: bool) -> Verdict {
    match refused {
        true => Verdict::Problems,
        false => Verdict::Fine,
    }
}

fn load(arguments: &ExplainArgs) -> Result<Loaded, ExplainError> {
    let Some(config) = &arguments.config else {
        let path = arguments.map.as_deref().unwrap_or(Path::new(DEFAULT_MAP));
        if arguments.map.is_none() && !path.exists() {
            return Err(ExplainError::NoMap);
        }
        return map(path, HeaderSet::default(), None);
    };
    let text = read(config)?;
    let kind = match Kind::of(DeTable::parse_recoverable(&text).0.get_ref()) {
        Some(found @ (Kind::Map | Kind::Acl | Kind::Users)) => {
            return Err(ExplainError::OtherKind {
                file: config.clone(),
                found,
                option: match found {
                    Kind::Map => "--map",
                    _ => "--acl",
                },
            });
        }
        Some(Kind::Connector) => Kind::Connector,
        // A gateway file may leave everything at its default.
        Some(Kind::Gateway) | None => Kind::Gateway,
    };
    match settings::load(config, kind, &text, &None).config {
        Ok(config) => {
            let loaded = map(&config.topic_map, config.headers, Some(config.limits))?;
            Ok(Loaded {
                acl: config.access.acl_file,
                ..loaded
            })
        }
        Err(_) => Err(problems(config, kind)),
    }
}

fn map(path: &Path, headers: HeaderSet, limits: Option<Limits>) -> Result<Loaded, ExplainError> {
    let text = read(path)?;
    let recognised = Kind::of(DeTable::parse_recoverable(&text).0.get_ref());
    if let Some(found @ (Kind::Gateway | Kind::Connector | Kind::Acl)) = recognised {
        return Err(ExplainError::OtherKind {
            file: path.to_owned(),
            found,
            option: match found {
                Kind::Acl => "--acl",
                _ => "--config",
            },
        });
    }
    let file = shown(path);
    match TopicMap::compile(&file, &text) {
        Ok(map) => Ok(Loaded {
            map,
            file,
            headers,
            limits,
            acl: None,
        }),
        Err(_) => Err(problems(path, Kind::Map)),
    }
}

fn read(path: &Path) -> Result<String, ExplainError> {
    file::read(path).map_err(|reason| ExplainError::File {
        file: path.to_owned(),
        reason,
    })
}

fn problems(path: &Path, kind: Kind) -> ExplainError {
    ExplainError::Problems {
        file: path.to_owned(),
        problems: check::problems_in(path, kind),
    }
}
