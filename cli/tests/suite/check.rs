//! `check` of topic maps, and what holds for files of all kinds.

use std::fs;

use crate::program::{Folder, SEED_MAP};

#[test]
fn a_map_without_problems_is_ok_and_exits_0() {
    let map = SEED_MAP.replace(r"\w", "[a-z]").replace(r"\d", "[0-9]");
    let ran = Folder::with_map(&map)
        .run(["check", "topic-map.toml"])
        .exits(0);
    assert_eq!(
        ran.stdout,
        "topic-map.toml: topic map: ok\n0 errors, 0 warnings in 1 file\n"
    );
    assert_eq!(ran.stderr, "");
}

#[test]
fn warnings_are_printed_and_counted_and_fail_only_when_they_are_denied() {
    let folder = Folder::with_map(SEED_MAP);
    let texts = [
        r"\w also matches",
        r"\d also matches",
        "0 errors, 2 warnings in 1 file",
    ];
    folder
        .run(["check", "topic-map.toml"])
        .exits(0)
        .prints(texts);
    let denied = ["check", "--deny-warnings", "topic-map.toml"];
    folder
        .run(denied)
        .exits(1)
        .prints(texts)
        .prints(["warnings count as errors"]);
}

#[test]
fn all_problems_of_all_files_are_reported_together_with_their_lines() {
    let broken = SEED_MAP
        .replace("default_stream", "default_straem")
        .replace("$2", "$3");
    let folder = Folder::with_map(&broken)
        .file("other.toml", "default_stream = 's'\ndefault_topic = ''\n")
        .file("gateway.toml", "lisen = 1\niggy_password = 'pw'\n");
    let files = ["topic-map.toml", "other.toml", "gateway.toml"];
    let ran = folder.run(["check"].iter().chain(&files)).exits(1);
    let ran = ran.prints([
        "did you mean default_stream?",
        "partition_key = 'room_$3'",
        "^^",
        "default_topic = ''",
        "did you mean `listen`?",
        "topic-map.toml: topic map: 3 errors",
        "other.toml: topic map: 1 error\n",
        "gateway.toml: gateway file: 1 error\n",
        "5 errors, 0 warnings in 3 files",
    ]);
    assert_eq!(ran.stderr, "");
}

#[test]
fn json_says_the_same_as_the_text_with_lines_columns_and_spans() {
    let text = "default_stream = 's'\ndefault_topic = 't'\nmax_topics = 0\n";
    let folder = Folder::with_map(text);
    let report = folder
        .run(["check", "--format", "json", "topic-map.toml"])
        .exits(1)
        .json();
    let problem = &report["files"][0]["problems"][0];
    let span = &problem["span"];
    let (start, end) = (
        span["start"].as_u64().unwrap(),
        span["end"].as_u64().unwrap(),
    );
    assert_eq!(&text[start as usize..end as usize], "0");
    assert_eq!(
        report,
        serde_json::json!({
            "files": [{
                "file": "topic-map.toml",
                "kind": "map",
                "problems": [{
                    "level": "error",
                    "line": 3,
                    "column": 14,
                    "span": {"start": start, "end": end},
                    "key": "max_topics",
                    "message": problem["message"],
                }],
            }],
            "errors": 1,
            "warnings": 0,
        })
    );
    assert!(
        problem["message"]
            .as_str()
            .unwrap()
            .contains("out of range")
    );
    assert_eq!(
        folder
            .run([
                "check",
                "--format",
                "json",
                "--deny-warnings",
                "topic-map.toml"
            ])
            .code,
        1
    );
}

#[test]
fn a_file_that_is_named_twice_is_reported_once() {
    let folder = Folder::with_map(SEED_MAP).file("sub/x", "");
    let files = [
        "check",
        "topic-map.toml",
        "./topic-map.toml",
        "sub/../topic-map.toml",
    ];
    folder
        .run(files)
        .exits(0)
        .prints(["0 errors, 2 warnings in 1 file"]);
}

#[test]
fn files_that_cannot_be_used_are_told_with_the_reason_and_the_others_are_checked() {
    let folder = Folder::with_map(SEED_MAP)
        .file(
            "latin1.toml",
            b"default_stream = 's'\ndefault_topic = 'caf\xe9'\n",
        )
        .file("sub/x", "")
        .file("notes.toml", "[http]\nenabled = true\n");
    let huge = fs::File::create(folder.path().join("huge.toml")).unwrap();
    huge.set_len(9 << 20).unwrap();
    let files = [
        "latin1.toml",
        "sub",
        "notes.toml",
        "huge.toml",
        "absent.toml",
        "topic-map.toml",
    ];
    folder.run(["check"].iter().chain(&files)).exits(2).prints([
        "latin1.toml: is not UTF-8: byte 21 in line 2",
        "sub: is a folder",
        "notes.toml: has no key that tells what it is",
        "huge.toml: has more than 8 MiB",
        "absent.toml: cannot be read: No such file",
        "topic-map.toml: topic map: 2 warnings",
        "5 errors, 2 warnings in 6 files",
    ]);
    let json = folder
        .run(["check", "--format", "json", "absent.toml"])
        .exits(2)
        .json();
    assert_eq!(json["files"][0]["kind"], serde_json::Value::Null);
    assert_eq!(json["errors"], 1);
}

#[test]
fn what_a_file_is_can_be_said() {
    let folder = Folder::new().file("notes.toml", "[http]\nenabled = true\n");
    folder
        .run(["check", "--kind", "map", "notes.toml"])
        .exits(1)
        .prints(["http", "topic map"]);
    folder
        .run(["check", "--kind", "gateway", "notes.toml"])
        .exits(1)
        .prints(["notes.toml:1:2: http: unknown key", "gateway file"]);
    folder
        .run(["check", "--kind", "toml", "notes.toml"])
        .exits(2)
        .complains(["--kind"]);
}

#[test]
fn a_file_that_is_not_toml_is_told_with_its_line_whatever_it_is() {
    for text in [
        "default_stream = 'a\n",
        "x = = 1\n",
        "listen = [\n",
        "[plugin_config]\nx\n",
    ] {
        let folder = Folder::new().file("file.toml", text);
        let ran = folder.run(["check", "file.toml"]).exits(1);
        ran.prints(["file.toml:", "TOML", "error"]);
    }
}

#[test]
fn no_line_of_a_gateway_file_is_shown_even_if_it_is_taken_for_a_map() {
    let text = "iggy_password = 'hush'\nlisten = 'x'\nrule = 1\niggy_password = 'hush'\n";
    let folder = Folder::new()
        .file("gateway.toml", text)
        .file("good.toml", &text[..36]);
    for file in ["gateway.toml", "good.toml"] {
        for kind in ["map", "gateway", "connector"] {
            for format in ["text", "json"] {
                let ran = folder.run(["check", "--kind", kind, "--format", format, file]);
                assert!(!ran.stdout.contains("hush"), "{ran:#?}");
                assert!(!ran.stderr.contains("hush"), "{ran:#?}");
            }
        }
        let ran = folder.run(["explain", "a", "--map", file]).exits(2);
        assert!(!ran.stderr.contains("hush"), "{ran:#?}");
    }
}

#[test]
fn checking_nothing_is_a_mistake() {
    Folder::new().run(["check"]).exits(2).complains(["FILE"]);
    let nothing: [&str; 0] = [];
    Folder::new().run(nothing).exits(2).complains(["Usage"]);
}
