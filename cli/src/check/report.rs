//! What `check` found, as programs read it.
//!
//! What always holds: each file is there once, in the order in which it was first named; the counts are those of the
//! problems.

use mqtt_gateway::access::acl::AclReport;
use mqtt_gateway::mapping::{Located, MapReport, Warning};
use serde::Serialize;

use crate::file::Kind;

/// The whole report.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// What was checked.
    pub(crate) files: Vec<FileReport>,
    /// Problems of the level error.
    pub(crate) errors: usize,
    /// Problems of the level warning.
    pub(crate) warnings: usize,
}

/// What was found in one file.
#[derive(Debug, Serialize)]
pub(crate) struct FileReport {
    /// The file as it was first named.
    pub(crate) file: String,
    /// What it is; `None` if that is not known.
    pub(crate) kind: Option<Kind>,
    /// In the order of the file.
    pub(crate) problems: Vec<Problem>,
    /// Whether it could not be read, or not be told.
    #[serde(skip)]
    pub(crate) unusable: bool,
    /// The problems of a topic map with the lines that they are about.
    #[serde(skip)]
    pub(crate) in_the_map: InTheMap,
}

/// What is said about a topic map or permissions, with their lines.
#[derive(Debug, Default)]
pub(crate) enum InTheMap {
    /// Nothing, or its lines are not to be shown.
    #[default]
    Nothing,
    /// It does not compile.
    Problems(MapReport),
    /// It compiles.
    Warnings(Vec<Located<Warning>>),
    /// The permissions are wrong.
    Permissions(AclReport),
}

/// How bad a problem is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// The gateway does not start.
    Error,
    /// The gateway starts, but may not do what is meant.
    Warning,
    /// Nothing is wrong in the file, but it is not all that is needed.
    Note,
}

/// One thing to say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Problem {
    /// How bad it is.
    pub(crate) level: Level,
    /// The line, from 1; `None` for what is missing, or concerns the whole file.
    pub(crate) line: Option<usize>,
    /// The column in characters, from 1.
    pub(crate) column: Option<usize>,
    /// The bytes of the file that it is about, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) span: Option<Span>,
    /// The key that it is about; may be empty.
    pub(crate) key: String,
    /// What is wrong and what to do.
    pub(crate) message: String,
}

/// Bytes of a file, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Span {
    /// The first.
    pub(crate) start: usize,
    /// The first that does not belong to it any more.
    pub(crate) end: usize,
}
