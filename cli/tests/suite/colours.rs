//! Colours only on a terminal, or when they are asked for; a closed pipe; completions.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use crate::program::{Folder, SEED_MAP};

/// Commands that print something in each style.
const COMMANDS: &[&[&str]] = &[
    &[
        "check",
        "topic-map.toml",
        "broken.toml",
        "absent.toml",
        "gateway.toml",
    ],
    &["explain", "foo"],
    &["explain", "$SYS"],
    &["explain", "a/#", "--subscribe"],
    &["explain", "--file", "topics.txt"],
];

fn folder() -> Folder {
    Folder::with_map(SEED_MAP)
        .file("broken.toml", SEED_MAP.replace("$2", "$7"))
        .file("gateway.toml", "lisen = 1\n")
        .file("topics.txt", "foo\n$SYS\n")
}

#[test]
fn without_a_terminal_there_are_no_escape_codes_unless_they_are_asked_for() {
    let folder = folder();
    for command in COMMANDS {
        for color in [&[][..], &["--color", "auto"], &["--color", "never"]] {
            let ran = folder.run(color.iter().chain(*command));
            assert!(
                !ran.stdout.contains('\x1b'),
                "{command:?} {color:?}: {ran:#?}"
            );
            assert!(
                !ran.stderr.contains('\x1b'),
                "{command:?} {color:?}: {ran:#?}"
            );
        }
        let always = folder.run(command.iter().chain(&["--color", "always"]));
        assert!(always.stdout.contains('\x1b'), "{command:?}: {always:#?}");
    }
}

#[test]
fn colours_change_nothing_but_colours() {
    let folder = folder();
    for command in COMMANDS {
        let plain = folder.run(*command);
        let styled = folder.run(["--color=always"].iter().chain(*command));
        let mut stripped = String::new();
        let mut rest = styled.stdout.as_str();
        while let Some((before, code)) = rest.split_once("\x1b[") {
            stripped.push_str(before);
            rest = code.split_once('m').unwrap().1;
        }
        stripped.push_str(rest);
        assert_eq!(stripped, plain.stdout);
        assert_eq!(styled.code, plain.code);
    }
}

#[test]
fn the_usual_variables_decide_when_nothing_is_asked_for() {
    let forced = folder().variable("CLICOLOR_FORCE", "1");
    assert!(forced.run(["explain", "foo"]).stdout.contains('\x1b'));
    let never = forced.variable("NO_COLOR", "1");
    assert!(!never.run(["explain", "foo"]).stdout.contains('\x1b'));
    assert!(
        never
            .run(["explain", "foo", "--color", "always"])
            .stdout
            .contains('\x1b')
    );
}

#[test]
fn json_has_no_colours() {
    let ran = folder().run(["--color", "always", "explain", "foo", "--format", "json"]);
    assert!(!ran.stdout.contains('\x1b'));
    ran.json();
}

#[test]
fn a_closed_pipe_ends_the_program_quietly() {
    let topics = "sensors/1/data\n".repeat(200_000);
    let folder = folder().file("many.txt", topics);
    for format in ["text", "json"] {
        let mut command = folder.command(["explain", "--file", "many.txt", "--format", format]);
        let mut child = command.spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut String::new()).unwrap();
        drop(stdout);
        let mut stderr = String::new();
        child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut stderr)
            .unwrap();
        assert_eq!(stderr, "", "{format}");
        assert!(child.wait().unwrap().success(), "{format}");
    }
}

#[test]
fn results_do_not_get_lost_in_silence_when_they_cannot_be_written() {
    // Everything written there fails for want of space.
    let Ok(full) = std::fs::File::options().write(true).open("/dev/full") else {
        eprintln!("left out: this system has no /dev/full");
        return;
    };
    let folder = folder();
    let mut command = folder.command(["explain", "foo"]);
    let child = command.stdout(full).stderr(Stdio::piped()).spawn().unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.starts_with("error: cannot write the result"),
        "{stderr}"
    );
}

#[test]
fn completions_are_printed_for_each_shell() {
    let folder = Folder::new();
    for (shell, part) in [
        ("bash", "complete -F"),
        ("zsh", "#compdef mqtt-gateway"),
        ("fish", "complete -c mqtt-gateway"),
        ("elvish", "mqtt-gateway"),
        ("powershell", "mqtt-gateway"),
    ] {
        let ran = folder.run(["completions", shell]).exits(0);
        ran.prints([part, "deny-warnings", "explain"]);
    }
    folder
        .run(["completions", "tcsh"])
        .exits(2)
        .complains(["possible values"]);
    let mut command = folder.command(["completions", "bash"]);
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let mut stderr = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut stderr)
        .unwrap();
    assert_eq!(stderr, "");
    child.wait().unwrap();
}
