//! The files, functions, types, counters and tests that the pages name are there.
//!
//! A piece of code in the running text is looked at when it is
//!
//! - `path.rs` or `path.rs::Name::name`: a file, below the repository's folder or below `gateway/src/`, and what is declared in it;
//! - a path that begins with a folder of the repository;
//! - a name of six words or more with underscores: a test;
//! - in a table's column that is called "counted" or "counter": a counter.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::PathBuf;

use e2e::binaries::repository;

use super::markdown::{Located, Page, Span, pages};
use super::sources::{declared, rust_files};

/// The folders of the repository whose files the pages name.
const FOLDERS: [&str; 13] = [
    ".ci",
    "bench",
    "cli",
    "connector-sdk",
    "docs",
    "fuzz",
    "gateway",
    "plugin",
    "runtime-config",
    "scripts",
    "sink",
    "source",
    "tests",
];

/// Words that are joined to the name of a test; keys and counters have fewer.
const WORDS_OF_A_TEST: usize = 6;

fn spans(pages: &[Page]) -> impl Iterator<Item = (&Page, &Located<Span>)> {
    pages
        .iter()
        .flat_map(|page| page.spans.iter().map(move |span| (page, span)))
}

#[test]
fn every_file_that_is_named_is_there_and_declares_what_is_named_in_it() {
    let mut known: HashMap<PathBuf, BTreeSet<String>> = HashMap::new();
    let mut wrong = Vec::new();
    let mut count = 0;
    let pages = pages();
    for (page, span) in spans(&pages) {
        let text = &span.what.text;
        let (file, name) = text.split_once("::").unwrap_or((text, ""));
        if !file.ends_with(".rs") {
            continue;
        }
        count += 1;
        let place = page.at(span.line);
        let roots = ["", "gateway/src"].map(|root| repository().join(root).join(file));
        let Some(path) = roots.into_iter().find(|path| path.is_file()) else {
            wrong.push(format!("{place}: {file} is not there"));
            continue;
        };
        let names = known.entry(path.clone()).or_insert_with(|| declared(&path));
        if !name.is_empty() && !names.contains(name) {
            wrong.push(format!("{place}: {file} does not declare {name}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 100, "{count}");
}

#[test]
fn every_path_of_the_repository_that_is_named_is_there() {
    let is_path = |text: &str| {
        let begins_with_folder = text
            .split_once('/')
            .is_some_and(|(first, _)| FOLDERS.contains(&first));
        begins_with_folder
            && text
                .chars()
                .all(|one| one.is_ascii_alphanumeric() || "._-/".contains(one))
    };
    let mut wrong = Vec::new();
    let mut count = 0;
    let pages = pages();
    for (page, span) in spans(&pages) {
        // What fuzzing finds is not kept.
        if !is_path(&span.what.text) || page.is("CONTRIBUTING.md") {
            continue;
        }
        count += 1;
        if !repository().join(&span.what.text).exists() {
            wrong.push(format!("{}: {}", page.at(span.line), span.what.text));
        }
    }
    assert!(wrong.is_empty(), "not there:\n{}", wrong.join("\n"));
    assert!(count > 20, "{count}");
}

#[test]
fn every_test_that_is_named_is_there() {
    let is_test = |text: &str| {
        !text.starts_with("mqtt_gateway_")
            && text.split('_').count() >= WORDS_OF_A_TEST
            && text
                .chars()
                .all(|one| one.is_ascii_lowercase() || one.is_ascii_digit() || one == '_')
    };
    let sources: String = ["gateway/src", "tests", "cli", "connector-sdk", "sandbox"]
        .into_iter()
        .flat_map(rust_files)
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    let mut wrong = Vec::new();
    let mut count = 0;
    let pages = pages();
    for (page, span) in spans(&pages) {
        let name = &span.what.text;
        if !is_test(name) {
            continue;
        }
        count += 1;
        if !sources.contains(&format!("fn {name}(")) {
            wrong.push(format!("{}: {name}", page.at(span.line)));
        }
    }
    assert!(wrong.is_empty(), "no such test:\n{}", wrong.join("\n"));
    assert!(count > 20, "{count}");
}

#[test]
fn every_counter_that_is_named_in_a_table_is_there() {
    let sources: String = rust_files("gateway/src")
        .into_iter()
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    let words: BTreeSet<&str> = sources
        .split(|one: char| !(one.is_ascii_alphanumeric() || one == '_'))
        .collect();
    let mut wrong = Vec::new();
    let mut count = 0;
    let pages = pages();
    for (page, span) in spans(&pages) {
        let column = span.what.column.as_deref();
        let name = &span.what.text;
        // A form, such as `refused_…`, or a line of the log.
        if !matches!(column, Some("counted" | "counter")) || name.contains(['…', ' ']) {
            continue;
        }
        count += 1;
        if !words.contains(name.as_str()) {
            wrong.push(format!("{}: {name}", page.at(span.line)));
        }
    }
    assert!(wrong.is_empty(), "no such counter:\n{}", wrong.join("\n"));
    assert!(count > 50, "{count}");
}
