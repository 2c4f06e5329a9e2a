//! `check`: everything that is wrong with the operator's files, all at once.
//!
//! What always holds: what is said about a topic map comes from [`TopicMap::compile`](mqtt_gateway::mapping::TopicMap),
//! what is said about a configuration from [`Config::load`](mqtt_gateway::config::Config); here it is collected and shown.

mod access;
mod gather;
mod print;
mod report;

use std::io;

use crate::Verdict;
use crate::args::{CheckArgs, Format};
use crate::output::Output;

/// Checks and reports.
pub(crate) fn run(arguments: &CheckArgs, output: &mut Output) -> io::Result<Verdict> {
    let report = gather::gather(&arguments.files, arguments.kind, &arguments.environment());
    match arguments.format {
        Format::Json => output.json(&report)?,
        Format::Text => print::print(&report, arguments.deny_warnings, output)?,
    }
    Ok(if report.files.iter().any(|file| file.unusable) {
        Verdict::Unusable
    } else if report.errors > 0 || (arguments.deny_warnings && report.warnings > 0) {
        Verdict::Problems
    } else {
        Verdict::Fine
    })
}

/// The lines that say what is wrong with one file, for when that is not the result but keeps from it.
pub(crate) fn problems_in(path: &std::path::Path, kind: crate::file::Kind) -> String {
    print::plain_problems(&gather::gather(&[path.to_owned()], Some(kind), &None))
}
