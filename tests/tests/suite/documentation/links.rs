//! Links lead somewhere, and every page can be found.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use e2e::binaries::repository;

use super::markdown::{Page, pages};

/// `path` without `.` and `..`; `None` if it leads out of the repository.
fn normal(path: &Path) -> Option<PathBuf> {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(part) => normal.push(part),
            Component::CurDir => {}
            Component::ParentDir if normal.pop() => {}
            _ => return None,
        }
    }
    Some(normal)
}

/// The file and the anchor to which a link of `page` leads; `None` if it leads out into the world.
fn target(page: &Page, link: &str) -> Option<(PathBuf, String)> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    let path = match file {
        "" => page.path.clone(),
        file => page.path.parent().unwrap_or(Path::new("")).join(file),
    };
    let path = normal(&path).unwrap_or_else(|| {
        panic!(
            "{} links to {link}, out of the repository",
            page.path.display()
        )
    });
    Some((path, anchor.to_owned()))
}

#[test]
fn every_link_leads_to_a_file_and_every_anchor_to_a_heading() {
    let pages = pages();
    let anchors: HashMap<&Path, &Vec<String>> = pages
        .iter()
        .map(|page| (page.path.as_path(), &page.anchors))
        .collect();
    let mut broken = Vec::new();
    let mut count = 0;
    for page in &pages {
        for link in &page.links {
            let Some((path, anchor)) = target(page, &link.what) else {
                continue;
            };
            count += 1;
            let place = page.at(link.line);
            if !repository().join(&path).exists() {
                broken.push(format!("{place}: {} is not there", link.what));
            } else if !anchor.is_empty()
                && !anchors
                    .get(path.as_path())
                    .is_some_and(|known| known.contains(&anchor))
            {
                broken.push(format!(
                    "{place}: {} names no heading of that page",
                    link.what
                ));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    assert!(count > 100, "{count}");
}

#[test]
fn every_page_can_be_reached_from_the_table_of_contents() {
    let pages = pages();
    let by_path: HashMap<&Path, &Page> = pages
        .iter()
        .map(|page| (page.path.as_path(), page))
        .collect();
    let mut reached = BTreeSet::new();
    let mut next = VecDeque::from([PathBuf::from("docs/README.md")]);
    while let Some(path) = next.pop_front() {
        let Some(page) = by_path.get(path.as_path()) else {
            continue;
        };
        if !reached.insert(path) {
            continue;
        }
        let links = page.links.iter();
        next.extend(links.filter_map(|link| Some(target(page, &link.what)?.0)));
    }
    let missing: Vec<_> = pages
        .iter()
        .filter(|page| !reached.contains(&page.path))
        .map(|page| page.path.display().to_string())
        .collect();
    assert!(missing.is_empty(), "no way leads to {missing:?}");

    // It is a table of contents: every page of docs/ is named there itself.
    let contents = by_path[Path::new("docs/README.md")];
    let named: BTreeSet<PathBuf> = contents
        .links
        .iter()
        .filter_map(|link| Some(target(contents, &link.what)?.0))
        .collect();
    let left_out: Vec<_> = pages
        .iter()
        .filter(|page| page.path.starts_with("docs") && !page.is("docs/README.md"))
        .filter(|page| !named.contains(&page.path))
        .map(|page| page.path.display().to_string())
        .collect();
    assert!(
        left_out.is_empty(),
        "docs/README.md leaves out {left_out:?}"
    );
}

#[test]
fn the_commands_in_the_readme_are_there_and_can_be_run() {
    let readme = fs::read_to_string(repository().join("README.md")).unwrap();
    for command in ["./scripts/sandbox", "./scripts/test"] {
        assert!(
            readme.lines().any(|line| line.trim() == command),
            "the README does not have the line `{command}`"
        );
        let mode = fs::metadata(repository().join(command))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o111, 0o111, "{command} cannot be run");
    }
}
