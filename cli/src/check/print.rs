//! The report of `check` as people read it: problems, then a line for each file, then the sum.

use std::fmt::Write;
use std::io;

use mqtt_gateway::mapping::render;

use super::report::{FileReport, InTheMap, Level, Problem, Report};
use crate::output::{ERROR, GOOD, HEADING, NOTE, Output, WARNING};
use crate::text::{counted, plain};

/// Prints the report.
pub(super) fn print(report: &Report, deny_warnings: bool, output: &mut Output) -> io::Result<()> {
    for file in &report.files {
        match &file.in_the_map {
            InTheMap::Problems(problems) => {
                output.block(&render::problems(problems, output.is_styled()))?;
            }
            InTheMap::Permissions(problems) => {
                output.block(&render::problems(problems, output.is_styled()))?;
                // What is not about a line of it.
                for problem in file.problems.iter().filter(|found| found.line.is_none()) {
                    print_problem(file, problem, output)?;
                }
            }
            InTheMap::Warnings(warnings) if !warnings.is_empty() => {
                output.block(&render::warnings(warnings, output.is_styled()))?;
            }
            InTheMap::Warnings(_) | InTheMap::Nothing => {
                for problem in &file.problems {
                    print_problem(file, problem, output)?;
                }
                if !file.problems.is_empty() {
                    output.line("")?;
                }
            }
        }
    }
    for file in &report.files {
        let kind = file
            .kind
            .map_or("unknown".to_owned(), |kind| kind.to_string());
        let found = match count(file, Level::Error) {
            0 => match count(file, Level::Warning) {
                0 => output.paint(GOOD, "ok"),
                warnings => output.paint(WARNING, counted(warnings, "warning")),
            },
            errors => output.paint(ERROR, counted(errors, "error")),
        };
        output.line(format_args!("{}: {kind}: {found}", plain(&file.file)))?;
    }
    let denied = if deny_warnings && report.warnings > 0 {
        "; warnings count as errors"
    } else {
        ""
    };
    let sum = format!(
        "{}, {} in {}",
        counted(report.errors as u64, "error"),
        counted(report.warnings as u64, "warning"),
        counted(report.files.len() as u64, "file"),
    );
    output.line(format_args!("{}{denied}", output.paint(HEADING, sum)))
}

fn print_problem(file: &FileReport, problem: &Problem, output: &mut Output) -> io::Result<()> {
    let (style, level) = match problem.level {
        Level::Error => (ERROR, "error"),
        Level::Warning => (WARNING, "warning"),
        Level::Note => (NOTE, "note"),
    };
    let level = output.paint(style, level);
    output.line(format_args!("{level}: {}", line(file, problem)))
}

/// The errors as lines without colours.
pub(super) fn plain_problems(report: &Report) -> String {
    let mut out = String::new();
    for file in &report.files {
        match &file.in_the_map {
            InTheMap::Problems(problems) => out.push_str(&render::problems(problems, false)),
            InTheMap::Permissions(problems) => out.push_str(&render::problems(problems, false)),
            _ => {
                let errors = file
                    .problems
                    .iter()
                    .filter(|problem| problem.level == Level::Error);
                for problem in errors {
                    // Writing to a string does not fail.
                    let _ = writeln!(out, "{}", line(file, problem));
                }
            }
        }
    }
    out
}

fn count(file: &FileReport, level: Level) -> u64 {
    file.problems
        .iter()
        .filter(|problem| problem.level == level)
        .count() as u64
}

/// `file:line:column: key: message`, without what is not known.
fn line(file: &FileReport, problem: &Problem) -> String {
    let mut out = plain(&file.file).into_owned();
    for number in [problem.line, problem.column].into_iter().flatten() {
        let _ = write!(out, ":{number}");
    }
    out.push_str(": ");
    if !problem.key.is_empty() {
        let _ = write!(out, "{}: ", plain(&problem.key));
    }
    out.push_str(&plain(&problem.message));
    out
}
