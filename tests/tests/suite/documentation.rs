//! What the README tells a newcomer to run is there.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use e2e::binaries::repository;

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

#[test]
fn the_pages_to_which_the_readme_links_are_there() {
    let readme = fs::read_to_string(repository().join("README.md")).unwrap();
    let mut links = 0;
    for rest in readme.split("](").skip(1) {
        let target = rest.split([')', '#']).next().unwrap_or_default();
        if target.is_empty() || target.contains("://") {
            continue;
        }
        links += 1;
        assert!(
            repository().join(target).exists(),
            "the README links to {target}, which is not there"
        );
    }
    assert!(links > 0, "the README links to no page");
}
