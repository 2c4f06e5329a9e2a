//! Gathers what there is to say about files, and about the files that they name.
//!
//! What always holds: a file that is named several times is checked and reported once; a file that cannot be used does not
//! keep the others from being checked.

use std::path::{Path, PathBuf};

use mqtt_gateway::access::acl::{self, Acl};
use mqtt_gateway::access::files::{self, FileError};
use mqtt_gateway::access::users::{self, Users, UsersError};
use mqtt_gateway::config::{self, Place, Produce};
use mqtt_gateway::mapping::{Located, NotOneTarget, TopicMap};
use toml::de::{DeTable, Error as TomlError};

use super::report::{FileReport, InTheMap, Level, Problem, Report, Span};
use crate::file::{self, Kind, Positions, Unusable};
use crate::settings::{self, Environment};
use crate::text::plain;

/// Checks `files`, all of which are of that kind, if one is given.
pub(super) fn gather(files: &[PathBuf], kind: Option<Kind>, environment: &Environment) -> Report {
    let mut gathering = Gathering {
        environment,
        files: Vec::new(),
    };
    for path in files {
        gathering.named_file(path, kind);
    }
    gathering.report()
}

pub(super) struct Gathering<'a> {
    environment: &'a Environment,
    /// With what tells whether two names are one file's.
    files: Vec<(PathBuf, FileReport)>,
}

impl Gathering<'_> {
    fn report(self) -> Report {
        let files: Vec<FileReport> = self.files.into_iter().map(|(_, file)| file).collect();
        let count = |level| {
            let problems = files.iter().flat_map(|file| &file.problems);
            problems.filter(|problem| problem.level == level).count()
        };
        Report {
            errors: count(Level::Error),
            warnings: count(Level::Warning),
            files,
        }
    }

    /// The report of the file.
    pub(super) fn entry(&mut self, path: &Path, kind: Option<Kind>) -> &mut FileReport {
        let identity = file::identity(path);
        let known = self.files.iter().position(|(known, _)| *known == identity);
        let at = known.unwrap_or_else(|| {
            let report = FileReport {
                file: path.to_string_lossy().into_owned(),
                kind,
                problems: Vec::new(),
                unusable: false,
                in_the_map: InTheMap::Nothing,
            };
            self.files.push((identity, report));
            self.files.len() - 1
        });
        &mut self.files[at].1
    }

    /// The report of the file, if there is one already.
    fn known(&self, path: &Path) -> Option<&FileReport> {
        let identity = file::identity(path);
        let mut files = self.files.iter();
        files.find_map(|(known, report)| (*known == identity).then_some(report))
    }

    /// A file that the operator named.
    fn named_file(&mut self, path: &Path, kind: Option<Kind>) {
        let text = match file::read(path) {
            Ok(text) => text,
            Err(reason) => return self.unusable(path, kind, &reason),
        };
        if kind == Some(Kind::Users) || kind.is_none() && file::is_users(&text) {
            return self.users(path, &text);
        }
        let (table, errors) = DeTable::parse_recoverable(&text);
        let recognised = Kind::of(table.get_ref());
        // Another file may have named it as what it is.
        let told = || self.known(path).and_then(|report| report.kind);
        match kind.or(recognised).or_else(told) {
            None if errors.is_empty() => self.unusable(path, None, &Unusable::Unknown),
            None | Some(Kind::Connector) if !errors.is_empty() => {
                self.not_toml(path, kind.or(recognised), &text, &errors);
            }
            Some(Kind::Map) => self.map(path, &text, recognised),
            Some(Kind::Acl) => self.acl(path, &text, recognised),
            Some(kind) => self.configuration(path, kind, &text, table.get_ref()),
            None => {}
        }
    }

    fn unusable(&mut self, path: &Path, kind: Option<Kind>, reason: &Unusable) {
        let report = self.entry(path, kind);
        report.unusable = true;
        report.add(whole_file(reason.to_string()));
    }

    fn not_toml(&mut self, path: &Path, kind: Option<Kind>, text: &str, errors: &[TomlError]) {
        let report = self.entry(path, kind);
        let mut positions = Positions::of(text);
        for error in errors {
            let span = error.span().unwrap_or_default();
            let (line, column) = positions.at(span.start);
            // The first line of the message only: others would show lines of the file.
            let reason = error.message().lines().next().unwrap_or_default();
            report.add(Problem {
                level: Level::Error,
                line: Some(line),
                column: Some(column),
                span: Some(Span {
                    start: span.start,
                    end: span.end,
                }),
                key: String::new(),
                message: format!("not valid TOML: {reason}; mend this line"),
            });
        }
    }

    /// `recognised` is what the file looks like.
    fn map(&mut self, path: &Path, text: &str, recognised: Option<Kind>) {
        if self.known(path).is_some() {
            return;
        }
        let report = self.entry(path, Some(Kind::Map));
        let mut positions = Positions::of(text);
        let in_the_map = match TopicMap::compile(&plain(&report.file), text) {
            Ok(map) => {
                let warnings = map.warnings();
                report.problems = warnings
                    .iter()
                    .map(|warning| located(Level::Warning, warning, &mut positions))
                    .collect();
                InTheMap::Warnings(warnings.to_vec())
            }
            Err(problems) => {
                let found = problems.problems().iter();
                report.problems = found
                    .map(|problem| located(Level::Error, problem, &mut positions))
                    .collect();
                InTheMap::Problems(problems)
            }
        };
        // Lines of what may be a gateway file could show its password.
        if matches!(recognised, None | Some(Kind::Map)) {
            report.in_the_map = in_the_map;
        }
    }

    /// `recognised` is what the file looks like.
    pub(super) fn acl(&mut self, path: &Path, text: &str, recognised: Option<Kind>) {
        if self.known(path).is_some() {
            return;
        }
        let report = self.entry(path, Some(Kind::Acl));
        if let Err(problems) = Acl::parse(&plain(&report.file), text) {
            let mut positions = Positions::of(text);
            let found = problems.problems().iter();
            report.problems = found
                .map(|problem| located(Level::Error, problem, &mut positions))
                .collect();
            // Lines of another file could show its secrets.
            if recognised == Some(Kind::Acl) {
                report.in_the_map = InTheMap::Permissions(problems);
            }
        }
        if let Err(error) = files::read_public(path, acl::MAX_FILE_BYTES) {
            self.refused(path, &error);
        }
    }

    pub(super) fn users(&mut self, path: &Path, text: &str) {
        if self.known(path).is_some() {
            return;
        }
        let report = self.entry(path, Some(Kind::Users));
        match Users::parse(&file::shown(path), text) {
            Ok(_) => {}
            Err(UsersError::Lines(problems)) => {
                report.problems = problems
                    .iter()
                    .map(|problem| Problem {
                        line: Some(problem.line()),
                        ..whole_file(problem.what().to_string())
                    })
                    .collect();
            }
            Err(other) => {
                let message = other.to_string();
                let message = message.strip_prefix(&format!("{}: ", file::shown(path)));
                report.add(whole_file(
                    message.map_or_else(|| other.to_string(), str::to_owned),
                ));
            }
        }
        if let Err(error) = files::read_secret(path, users::MAX_FILE_BYTES) {
            self.refused(path, &error);
        }
    }

    /// What the gateway will not read for its permissions. They may be others where the gateway runs.
    fn refused(&mut self, path: &Path, error: &FileError) {
        let message = error.to_string();
        let named = format!("{}: ", path.display());
        let message = message.strip_prefix(&named).unwrap_or(&message);
        self.entry(path, None).add(Problem {
            level: Level::Warning,
            ..whole_file(format!("the gateway does not read it: {message}"))
        });
    }

    fn configuration(&mut self, path: &Path, kind: Kind, text: &str, table: &DeTable<'_>) {
        self.entry(path, Some(kind));
        let loaded = settings::load(path, kind, text, self.environment);
        let gateway_file = match kind {
            Kind::Connector => settings::gateway_file(table, self.environment),
            Kind::Map | Kind::Gateway | Kind::Acl | Kind::Users => None,
        };
        if let Some(gateway_file) = &gateway_file {
            self.entry(gateway_file, Some(Kind::Gateway));
        }
        let here = Here {
            path,
            kind,
            text,
            table,
            gateway_file: gateway_file.as_deref(),
        };
        for problem in &loaded.elsewhere {
            self.config_problem(&here, Level::Note, problem);
        }
        let (map, produce) = match loaded.config {
            Ok(config) => {
                self.access_of(&here, &config);
                (Some(config.topic_map), config.ingest.produce)
            }
            Err(problems) => {
                for problem in &problems {
                    self.config_problem(&here, Level::Error, problem);
                }
                let is_syntax = |problem: &_| matches!(problem, config::Problem::Syntax { .. });
                let map = if problems.iter().any(is_syntax) {
                    // What can be made out of the rest is a guess.
                    None
                } else {
                    settings::map_beside_problems(path, kind, table, here.gateway_file)
                };
                // Whether the map fits is known when the configuration is right.
                (map, Produce::default())
            }
        };
        if let Some(map) = map {
            self.map_of(&here, &map);
            if produce == Produce::Runtime {
                self.fit_for_the_runtime(&here, &map);
            }
        }
    }

    /// The topic map that a configuration names.
    fn map_of(&mut self, here: &Here<'_>, map: &Path) {
        let shown = file::shown(map);
        let message = match file::read(map) {
            Err(reason) => format!("the topic map {shown} {reason}"),
            Ok(text) => match self.known(map).and_then(|report| report.kind) {
                Some(other @ (Kind::Gateway | Kind::Connector | Kind::Acl | Kind::Users)) => {
                    format!("{shown} is a {other} and no topic map; correct the path")
                }
                Some(Kind::Map) | None => {
                    let recognised = Kind::of(DeTable::parse_recoverable(&text).0.get_ref());
                    return self.map(map, &text, recognised);
                }
            },
        };
        let place = here.place_of("topic_map");
        let report = self.entry(here.path, Some(here.kind));
        report.add(Problem {
            line: place.map(|(line, _)| line),
            column: place.map(|(_, column)| column),
            key: "topic_map".to_owned(),
            ..whole_file(message)
        });
    }

    /// The condition of the start with `produce = "runtime"`. A map that does not compile has its own problems.
    fn fit_for_the_runtime(&mut self, here: &Here<'_>, map: &Path) {
        let shown = file::shown(map);
        let compiled = |text: String| TopicMap::compile(&shown, &text).ok();
        let Some(map) = file::read(map).ok().and_then(compiled) else {
            return;
        };
        let Err(NotOneTarget(unfit)) = map.only_target() else {
            return;
        };
        let (path, kind, place) = here.file_with("produce");
        for unfit in unfit {
            let message = format!(
                "\"runtime\" does not fit the topic map {shown}: {unfit}; mend it, or set produce = \"client\""
            );
            self.entry(&path, Some(kind)).add(Problem {
                line: place.map(|(line, _)| line),
                column: place.map(|(_, column)| column),
                key: "produce".to_owned(),
                ..whole_file(message)
            });
        }
    }

    fn config_problem(&mut self, here: &Here<'_>, level: Level, problem: &config::Problem) {
        let text = problem.to_string();
        let found = |key: &str, place: Option<(usize, usize)>, message: &str| Problem {
            level,
            line: place.map(|(line, _)| line),
            column: place.map(|(_, column)| column),
            span: None,
            key: key.to_owned(),
            message: message.to_owned(),
        };
        let (path, kind, found) = match (problem, settings::place(problem)) {
            (
                config::Problem::Syntax {
                    file, line, column, ..
                },
                _,
            ) => {
                let message = text.split_once(&format!(":{line}:{column}: "));
                let message = message.map_or(text.as_str(), |(_, message)| message);
                let found = found("", Some((*line, *column)), message);
                (file.as_path(), Kind::Gateway, found)
            }
            // The file that is checked was read a moment ago, so this is its size.
            (config::Problem::FileUnreadable { reason, .. }, _) if here.kind == Kind::Gateway => {
                (here.path, here.kind, found("", None, reason))
            }
            (_, Some(place)) => {
                let message = text.strip_prefix(&format!("{place}: ")).unwrap_or(&text);
                match place {
                    Place::File {
                        file,
                        line,
                        column,
                        key,
                    } => {
                        let found = found(key, Some((*line, *column)), message);
                        (file.as_path(), Kind::Gateway, found)
                    }
                    Place::Inline { key } => {
                        let shown = format!("{}.{key}", file::PLUGIN_CONFIG);
                        let found = found(&shown, here.place_of(key), message);
                        (here.path, here.kind, found)
                    }
                    Place::Environment { variable } => {
                        (here.path, here.kind, found(variable, None, message))
                    }
                    Place::Missing { key } => {
                        let found = found(key, None, message);
                        match here.gateway_file {
                            Some(file) => (file, Kind::Gateway, found),
                            None => (here.path, here.kind, found),
                        }
                    }
                }
            }
            (_, None) => (here.path, here.kind, found("", None, &text)),
        };
        self.entry(path, Some(kind)).add(found);
    }
}

/// The file that is being checked.
pub(super) struct Here<'a> {
    path: &'a Path,
    kind: Kind,
    text: &'a str,
    table: &'a DeTable<'a>,
    /// The gateway file that a connector's file names.
    gateway_file: Option<&'a Path>,
}

impl Here<'_> {
    fn place_of(&self, key: &str) -> Option<(usize, usize)> {
        settings::place_of_key(self.kind, self.text, self.table, key)
    }

    /// The file that has the key, and where; this one, if none has.
    pub(super) fn file_with(&self, key: &str) -> (PathBuf, Kind, Option<(usize, usize)>) {
        let here = self.place_of(key);
        let there = || {
            let file = self.gateway_file?;
            let text = file::read(file).ok()?;
            let table = DeTable::parse(&text).ok()?;
            let place = settings::place_of_key(Kind::Gateway, &text, table.get_ref(), key)?;
            Some((file.to_owned(), Kind::Gateway, Some(place)))
        };
        (here.is_none().then(there).flatten()).unwrap_or((self.path.to_owned(), self.kind, here))
    }
}

impl FileReport {
    /// Two connectors may name the same gateway file: what is said already is not repeated.
    pub(super) fn add(&mut self, problem: Problem) {
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }
}

pub(super) fn whole_file(message: String) -> Problem {
    Problem {
        level: Level::Error,
        line: None,
        column: None,
        span: None,
        key: String::new(),
        message,
    }
}

/// As [`Located`] says; but counting lines from the beginning for each of thousands of problems would take minutes.
fn located<T: std::fmt::Display>(
    level: Level,
    located: &Located<T>,
    positions: &mut Positions<'_>,
) -> Problem {
    let span = located.span();
    let (line, column) = positions.at(span.start);
    Problem {
        level,
        line: Some(line),
        column: Some(column),
        span: Some(Span {
            start: span.start,
            end: span.end,
        }),
        key: located.key().to_owned(),
        message: located.what().to_string(),
    }
}
