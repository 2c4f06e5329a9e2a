//! Input that nobody writes on purpose: it is told what is wrong, and nothing panics or reaches the terminal as it is.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::program::{Folder, SEED_MAP};

#[test]
fn control_characters_of_topics_are_escaped_in_text_and_kept_in_json() {
    let folder = Folder::with_map(SEED_MAP);
    for topic in [
        "a\x1b[31mb",
        "line\nbreak",
        "\u{202e}evil",
        "bell\x07",
        "c1\u{9b}31m",
        "tab\t",
    ] {
        let ran = folder.run(["explain", topic]).exits(0);
        let control = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!ran.stdout.contains(control), "{ran:#?}");
        assert!(!ran.stdout.contains("line\nbreak"), "{ran:#?}");
        let json = folder
            .run(["explain", topic, "--format", "json"])
            .exits(0)
            .json();
        assert_eq!(json["topic"], topic);
        assert_eq!(json["headers"][0]["value"], topic);
        let read = folder.run(["explain", topic, "--subscribe"]).exits(0);
        assert!(!read.stdout.contains(control), "{read:#?}");
    }
    let captured = folder
        .run(["explain", "sensors/\x1b]0;x\x07/data"])
        .exits(0);
    assert!(!captured.stdout.contains('\x1b'), "{captured:#?}");
    let ran = folder.run_with(
        ["explain", "--file", "-"],
        "a\x1b[2J\n$\x1b[2J\nsensors/\x1b/data\n",
    );
    assert!(!ran.stdout.contains('\x1b'), "{ran:#?}");
}

#[test]
fn control_characters_of_files_are_escaped() {
    let folder = Folder::new()
        .file("map.toml", "default_stream = 's'\ndefault_topic = 't'\n\"\\u001b[2J\\n\" = 1\nrule = [ { \"\\u001b\" = 1 } ]\n")
        .file("gateway.toml", "listen = \"\\u001b[2J\"\n\"\\u001b\" = 1\n")
        .file("connector.toml", "[plugin_config]\n\"\\u001b\" = \"\\u001b\"\nconfig = \"\\u001b\"\n")
        .file("raw.toml", "default_stream = 's'\n\x1b[2J = 1\n");
    for file in [
        "map.toml",
        "gateway.toml",
        "connector.toml",
        "raw.toml",
        "\x1b[2J",
    ] {
        let ran = folder.run(["check", file]);
        assert!(!ran.stdout.contains('\x1b'), "{ran:#?}");
        assert!(!ran.stderr.contains('\x1b'), "{ran:#?}");
        let ran = folder.run(["explain", "a", "--map", file]).exits(2);
        assert!(!ran.stderr.contains('\x1b'), "{ran:#?}");
    }
}

#[test]
fn the_longest_topics_are_explained_and_cut_for_people() {
    let folder = Folder::with_map(SEED_MAP);
    for topic in ["x".repeat(65_535), "/".repeat(65_535), "東".repeat(21_845)] {
        let ran = folder.run(["explain", &topic]).exits(0);
        assert!(ran.stdout.len() < 20_000, "{}", ran.stdout.len());
        let ran = ran.prints([
            "(65535 bytes)",
            "mqtt.topic.1 to mqtt.topic.2",
            "the rest of the topic",
        ]);
        assert!(
            ran.stdout.lines().all(|line| line.chars().count() < 300),
            "{ran:#?}"
        );
        let json = folder
            .run(["explain", &topic, "--format", "json"])
            .exits(0)
            .json();
        let parts = json["headers"].as_array().unwrap().iter();
        let parts = parts.filter(|part| part["key"].as_str().unwrap().starts_with("mqtt.topic"));
        let joined: String = parts.map(|part| part["value"].as_str().unwrap()).collect();
        assert_eq!(joined, topic);
        folder.run(["explain", "--subscribe", &topic]).exits(0);
    }
    let mut lines = "y".repeat(65_535);
    lines += "\n";
    lines += &"y".repeat(65_536);
    lines += "\n";
    lines += &"y".repeat(5_000_000);
    let ran = folder.run_with(["explain", "--file", "-"], lines).exits(1);
    let ran = ran.prints(["3 topics: 0 by rules, 1 on the fallback, 2 not stored"]);
    assert!(ran.stdout.len() < 5_000);
}

#[test]
fn arguments_and_files_that_are_not_utf8_are_told() {
    let folder = Folder::with_map(SEED_MAP);
    let broken = OsStr::from_bytes(b"a/\xff");
    let explain = [OsStr::new("explain"), broken];
    folder.run(explain).exits(2).complains(["UTF-8"]);
    let name = OsStr::from_bytes(b"\xff.toml");
    std::fs::copy(
        folder.path().join("topic-map.toml"),
        folder.path().join(name),
    )
    .unwrap();
    let check = folder.run([OsStr::new("check"), name]).exits(2);
    check.prints(["\u{fffd}.toml: has a name that is not UTF-8"]);
    for option in ["--map", "--config"] {
        let arguments = [
            OsStr::new("explain"),
            OsStr::new("a"),
            OsStr::new(option),
            name,
        ];
        folder
            .run(arguments)
            .exits(2)
            .complains(["has a name that is not UTF-8"]);
    }
    let ran = folder
        .run_with(["explain", "--file", "-"], b"good\nb\xff\ngood\n".to_vec())
        .exits(1);
    ran.prints([
        "3 topics: 0 by rules, 2 on the fallback, 1 not stored",
        "a topic must be UTF-8",
    ]);
}

#[test]
fn files_of_noise_are_told_to_be_broken() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    const PIECES: &[&str] = &[
        "[[rule]]\n",
        "mqtt_topic = '",
        "'\n",
        "stream = \"",
        "\"\n",
        "[",
        "]",
        "{",
        "}",
        "=",
        "\\",
        "(",
        ")?",
        "$1",
        "#",
        "default_stream = 's'\n",
        "default_topic = 't'\n",
        "[plugin_config]\n",
        "config = '.'\n",
        "listen = [",
        "'''",
        "\u{0}",
        "東",
        "\r\n",
        ",",
        "partitions = 9999999999999999999999\n",
        "limits.max_connections = -1\n",
        "rule = 1\n",
        "topic_map = ''\n",
    ];
    for _ in 0..150 {
        let count = random() % 12;
        let text: String = (0..count)
            .map(|_| PIECES[random() as usize % PIECES.len()])
            .collect();
        let folder = Folder::new().file("noise.toml", &text);
        for arguments in [
            &["check", "noise.toml"][..],
            &["check", "noise.toml", "--kind", "map", "--format", "json"],
            &["check", "noise.toml", "--kind", "connector"],
            &["explain", "a/b", "--map", "noise.toml"],
            &["explain", "a/b", "--config", "noise.toml"],
        ] {
            let ran = folder.run(arguments);
            assert!(
                (0..=2).contains(&ran.code),
                "{text:?} {arguments:?}: {ran:#?}"
            );
            assert!(
                !ran.stderr.contains("panicked"),
                "{text:?} {arguments:?}: {ran:#?}"
            );
        }
    }
}

#[test]
fn devices_and_pipes_are_not_read_for_ever() {
    Folder::new()
        .run(["check", "/dev/zero", "/dev/null"])
        .exits(2)
        .prints([
            "/dev/zero: is not a regular file",
            "/dev/null: is not a regular file",
        ]);
}
