//! Where a page repeats a default, it is the one in docs/configuration.md, which a test of the gateway compares with the code.
//!
//! A default is repeated as `` `key` (value) ``, `` `key` (value by default) `` or `` `key`, value by default ``.

use std::collections::BTreeMap;
use std::fs;

use e2e::binaries::repository;

use super::markdown::pages;

/// The keys of docs/configuration.md and their defaults.
fn defaults() -> BTreeMap<String, String> {
    let page =
        fs::read_to_string(repository().join("docs/configuration.md")).expect("the reference");
    let cells = page
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| line.split(" | ").collect::<Vec<_>>());
    cells
        .filter(|cells| cells.len() == 4)
        .map(|cells| {
            let plain = |cell: &str| cell.trim_matches(['|', ' ', '`']).to_owned();
            (plain(cells[0]), plain(cells[1]))
        })
        .collect()
}

/// As docs/configuration.md writes it: `64 MiB` and `65,535` without what people need to read them.
fn plain(value: &str) -> String {
    let value = value.trim().trim_matches('`');
    value
        .chars()
        .filter(|one| ![' ', ',', '"'].contains(one))
        .collect()
}

/// The default that stands behind the key, if one does.
fn repeated(behind: &str) -> Option<String> {
    const BY_DEFAULT: &str = " by default";
    if let Some(rest) = behind.strip_prefix(" (") {
        let inner = rest.split(')').next().unwrap_or_default();
        let value = match inner.split_once(BY_DEFAULT) {
            Some((value, _)) => value,
            None => inner,
        };
        let is_value = value.len() < 12 && value.starts_with(|one: char| one.is_ascii_digit());
        return is_value.then(|| plain(value));
    }
    let rest = behind.strip_prefix(", ")?;
    let (value, _) = rest.split_once(BY_DEFAULT)?;
    (value.len() < 12).then(|| plain(value))
}

#[test]
fn every_default_that_a_page_repeats_is_that_of_the_reference() {
    let defaults = defaults();
    assert!(defaults.len() > 50, "{}", defaults.len());
    let mut wrong = Vec::new();
    let mut count = 0;
    for page in pages() {
        let text = fs::read_to_string(repository().join(&page.path)).unwrap();
        for (number, line) in text.lines().enumerate() {
            for (key, default) in &defaults {
                let name = format!("`{key}`");
                for (at, _) in line.match_indices(&name) {
                    let Some(said) = repeated(&line[at + name.len()..]) else {
                        continue;
                    };
                    count += 1;
                    if said != plain(default) {
                        let place = page.at(number + 1);
                        wrong.push(format!("{place}: {key} is {default}, not {said}"));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count >= 8, "{count}");
}

#[test]
fn a_repeated_default_is_found_in_each_of_its_forms() {
    assert_eq!(repeated(" (64 MiB) for").as_deref(), Some("64MiB"));
    assert_eq!(
        repeated(" (65,535 by default), x").as_deref(),
        Some("65535")
    );
    assert_eq!(repeated(", 256 KiB by default").as_deref(), Some("256KiB"));
    assert_eq!(repeated(" (see below)"), None);
    assert_eq!(repeated(" is 5 s by default"), None);
}
