//! The page about the command line shows what the program prints.

use crate::program::Folder;

const PAGE: &str = include_str!("../../../docs/command-line.md");

/// The fenced blocks of a language.
fn blocks(language: &str) -> Vec<&'static str> {
    let fence = format!("\n```{language}\n");
    let parts = PAGE.split(fence.as_str()).skip(1);
    parts
        .map(|part| part.split("\n```").next().unwrap())
        .collect()
}

/// The arguments of a command as a shell would split it; only single quotes are used on the page.
fn arguments(command: &str) -> Vec<String> {
    let mut arguments = vec![String::new()];
    for (number, part) in command.split('\'').enumerate() {
        if number % 2 == 1 {
            arguments.last_mut().unwrap().push_str(part);
            continue;
        }
        let mut words = part.split(' ');
        arguments
            .last_mut()
            .unwrap()
            .push_str(words.next().unwrap());
        arguments.extend(words.map(str::to_owned));
    }
    arguments.retain(|argument| !argument.is_empty());
    arguments
}

/// The folder that the page works in: the files that it shows, each with its name in the first line.
fn folder() -> Folder {
    let mut folder = Folder::new();
    let files: Vec<&str> = ["toml", "text"].into_iter().flat_map(blocks).collect();
    let mut count = 0;
    for file in files {
        let name = file.strip_prefix("# ").and_then(|rest| rest.lines().next());
        if let Some(name) = name {
            folder = folder.file(name, format!("{file}\n"));
            count += 1;
        }
    }
    assert!(count >= 3, "{count}");
    folder
}

#[test]
fn every_example_prints_what_the_page_shows() {
    let folder = folder();
    let mut count = 0;
    for block in blocks("console") {
        for example in format!("\n{block}").split("\n$ ").skip(1) {
            let (command, output) = example.split_once('\n').unwrap_or((example, ""));
            let command = command.strip_prefix("mqtt-gateway ").unwrap();
            let mut arguments = arguments(command);
            // They need a gateway that runs; that there are such options can be said without one.
            if ["status", "top"].contains(&arguments[0].as_str()) {
                arguments.push("--help".to_owned());
                folder.run(arguments).exits(0);
                continue;
            }
            let ran = folder.run(arguments);
            let printed = format!("{}{}", ran.stderr, ran.stdout);
            assert_eq!(printed.trim_end(), output.trim_end(), "{command}");
            assert!(!printed.contains("panicked"));
            count += 1;
        }
    }
    assert!(count >= 5, "{count}");
}

#[test]
fn every_option_and_command_is_on_the_page() {
    let folder = Folder::new();
    for command in [
        &["--help"][..],
        &["check", "--help"],
        &["explain", "--help"],
        &["passwd", "--help"],
        &["status", "--help"],
        &["top", "--help"],
    ] {
        let help = folder.run(command).exits(0).stdout;
        for line in help.lines() {
            let line = line.trim_start();
            if let Some(option) = line.split([' ', ',']).find(|word| word.starts_with("--")) {
                let known = ["--help", "--version"].contains(&option);
                assert!(known || PAGE.contains(option), "{option}");
            }
        }
    }
    for command in ["check", "explain", "passwd", "status", "top", "completions"] {
        assert!(
            PAGE.contains(&format!("mqtt-gateway {command}")),
            "{command}"
        );
    }
}

#[test]
fn the_keys_of_an_explanation_are_those_on_the_page() {
    let ran = folder()
        .run(["explain", "a", "--format", "json"])
        .exits(0)
        .json();
    let mut printed: Vec<&str> = ran
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    let (_, table) = PAGE.split_once("| key | value |").unwrap();
    let rows = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let cells = rows.flat_map(|row| row.split('|').nth(1).unwrap().split(','));
    let mut documented: Vec<&str> = cells.map(|key| key.trim().trim_matches('`')).collect();
    printed.sort_unstable();
    documented.sort_unstable();
    assert_eq!(printed, documented);
}
