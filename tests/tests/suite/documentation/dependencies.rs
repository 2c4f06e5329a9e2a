//! Every library that the workspace uses stands in CONTRIBUTING.md with what it is for, and none that it does not use.

use std::collections::BTreeSet;
use std::fs;

use e2e::binaries::repository;
use toml::{Table, Value};

fn file(path: &str) -> Table {
    let path = repository().join(path);
    let text = fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
    text.parse()
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn tables<'a>(file: &'a Table, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    file.get(key)
        .and_then(Value::as_table)
        .into_iter()
        .flatten()
}

/// What the members take from outside the workspace.
fn used() -> BTreeSet<String> {
    let workspace = file("Cargo.toml");
    let workspace = workspace["workspace"].as_table().expect("a table");
    let own: BTreeSet<&String> = tables(workspace, "dependencies")
        .filter(|(_, what)| what.get("path").is_some())
        .map(|(name, _)| name)
        .collect();
    let mut used = BTreeSet::new();
    for member in workspace["members"].as_array().expect("a list") {
        let manifest = file(&format!("{}/Cargo.toml", member.as_str().expect("a name")));
        for kind in ["dependencies", "dev-dependencies", "build-dependencies"] {
            used.extend(tables(&manifest, kind).map(|(name, _)| name.clone()));
        }
    }
    used.retain(|name| !own.contains(name));
    used
}

/// What stands in backticks in the chapter about dependencies, without the files.
fn named() -> BTreeSet<String> {
    let text = fs::read_to_string(repository().join("CONTRIBUTING.md")).expect("CONTRIBUTING.md");
    let (_, chapter) = text.split_once("\n## Dependencies\n").expect("the chapter");
    let code = chapter.split('`').skip(1).step_by(2);
    code.filter(|name| {
        !name.contains(['.', ' '])
            && name.starts_with(|first: char| first.is_ascii_lowercase())
            // Features of tokio-rustls, and parts of this workspace.
            && !["aws-lc-rs", "wire", "top", "status"].contains(name)
    })
    .map(str::to_owned)
    .collect()
}

#[test]
fn every_dependency_has_its_reason_and_every_reason_its_dependency() {
    let (used, named) = (used(), named());
    let unnamed: Vec<_> = used.difference(&named).collect();
    assert!(unnamed.is_empty(), "not in CONTRIBUTING.md: {unnamed:?}");
    let unused: Vec<_> = named.difference(&used).collect();
    assert!(
        unused.is_empty(),
        "in CONTRIBUTING.md, and not used: {unused:?}"
    );
}
