//! Permissions and users files: what `check` says of them, and what `explain` says of a client.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use mqtt_gateway::access::acl::{Acl, Action, Decision, Who};
use mqtt_gateway::mqtt::TopicName;
use serde_json::{Value, json};

use crate::program::{Folder, SEED_MAP};

const ACL: &str = r##"[groups]
operators = ["anna"]

[[rule]]
group   = "operators"
publish = ["#"]

[[rule]]
effect  = "deny"
publish = ["devices/%c/config"]

[[rule]]
user      = "*"
publish   = ["devices/%c/#"]
subscribe = ["commands/%u"]
"##;

/// A hash that costs next to nothing: a test vector of the reference implementation, of "password".
const HASH: &str =
    "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4";

fn chmod(folder: &Folder, file: &str, mode: u32) {
    fs::set_permissions(folder.path().join(file), fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn good_permissions_and_users_are_told_by_what_is_in_them() {
    let folder = Folder::new()
        .file("acl.toml", ACL)
        .file("users", format!("# ours\nanna:{HASH}\n"));
    chmod(&folder, "users", 0o600);
    let ran = folder.run(["check", "acl.toml", "users"]).exits(0);
    assert_eq!(
        ran.stdout,
        "acl.toml: file of permissions: ok\nusers: users file: ok\n0 errors, 0 warnings in 2 files\n"
    );
    for (kind, file) in [("acl", "acl.toml"), ("users", "users")] {
        folder.run(["check", "--kind", kind, file]).exits(0);
        let ran = folder.run(["check", "--format", "json", file]).exits(0);
        assert_eq!(ran.json()["files"][0]["kind"], kind);
    }
}

#[test]
fn every_mistake_in_permissions_is_shown_with_its_line() {
    let folder = Folder::new().file(
        "acl.toml",
        "[[rule]]\npublish = ['a#', 'x/%n']\nuzer = 'a'\n",
    );
    let ran = folder.run(["check", "acl.toml"]).exits(1);
    for text in [
        " --> acl.toml:2:12\n",
        " --> acl.toml:2:21\n",
        " --> acl.toml:3:1\n",
        "did you mean user?",
        "acl.toml: file of permissions: 3 errors",
    ] {
        assert!(ran.stdout.contains(text), "{text} in {ran:#?}");
    }
    let ran = folder
        .run(["check", "--format", "json", "acl.toml"])
        .exits(1);
    let problem = &ran.json()["files"][0]["problems"][2];
    assert_eq!(problem["key"], "rule 1 uzer");
    assert_eq!(
        (&problem["line"], &problem["column"]),
        (&json!(3), &json!(1))
    );
}

#[test]
fn every_mistake_in_a_users_file_is_told_with_its_line_and_without_its_content() {
    let folder = Folder::new().file(
        "users",
        format!("anna:{HASH}\nanna:{HASH}\nben:hunter2\ncarl\n"),
    );
    chmod(&folder, "users", 0o600);
    for arguments in [
        &["check", "users"][..],
        &["check", "--format", "json", "users"],
    ] {
        let ran = folder.run(arguments).exits(1);
        for secret in ["anna", "hunter2", "c29tZXNhbHQ"] {
            assert!(!ran.stdout.contains(secret), "{secret} in {ran:#?}");
        }
    }
    let ran = folder.run(["check", "users"]).exits(1);
    for text in [
        "error: users:2: line 1 is for the same user",
        "error: users:3: not an argon2id hash",
        "error: users:4: not of the form name:hash",
        "users: users file: 3 errors",
    ] {
        assert!(ran.stdout.contains(text), "{text} in {ran:#?}");
    }
    let empty = Folder::new().file("users", "# nobody\n");
    let ran = empty.run(["check", "--kind", "users", "users"]).exits(1);
    assert!(
        ran.stdout
            .contains("error: users: no users; add one with: mqtt-gateway passwd users NAME"),
        "{ran:#?}"
    );
}

#[test]
fn a_file_that_the_gateway_would_not_read_is_a_warning_with_the_remedy() {
    let folder = Folder::new()
        .file("acl.toml", ACL)
        .file("users", format!("anna:{HASH}\n"));
    for (file, mode, remedy) in [
        ("users", 0o644, "chmod o-r users"),
        ("users", 0o660, "chmod go-w users"),
        ("acl.toml", 0o646, "chmod o-w acl.toml"),
    ] {
        chmod(&folder, file, mode);
        let ran = folder.run(["check", file]).exits(0);
        let warning = format!("warning: {file}: the gateway does not read it: ");
        assert!(ran.stdout.contains(&warning), "{ran:#?}");
        assert!(ran.stdout.contains(remedy), "{ran:#?}");
        folder.run(["check", "--deny-warnings", file]).exits(1);
    }
}

#[test]
fn the_lines_of_a_file_that_is_something_else_are_not_shown() {
    let folder = Folder::new()
        .file("users", format!("anna:{HASH}\n"))
        .file("gateway.toml", "iggy_password = 'hunter2'\n");
    for file in ["users", "gateway.toml"] {
        let ran = folder.run(["check", "--kind", "acl", file]).exits(1);
        for secret in ["hunter2", "c29tZXNhbHQ"] {
            assert!(!ran.stdout.contains(secret), "{ran:#?}");
        }
    }
}

#[test]
fn a5_explain_says_of_a_client_what_the_gateway_decides() {
    let folder = Folder::new().file("acl.toml", ACL);
    let acl = Acl::parse("acl.toml", ACL).unwrap();
    let topics = [
        "devices/d1/x",
        "devices/d1/config",
        "devices/d2/x",
        "commands/anna",
        "$SYS/x",
    ];
    for user in [None, Some("anna"), Some("ben"), Some("a/b")] {
        for client_id in ["d1", "+"] {
            let mut arguments = vec![
                "explain",
                "--acl",
                "acl.toml",
                "--client-id",
                client_id,
                "--format",
                "json",
            ];
            if let Some(user) = user {
                arguments.extend(["--user", user]);
            }
            arguments.extend(topics);
            let report = folder.run(arguments).json();
            let permissions = acl.permissions(&Who {
                user,
                client_id,
                certificate: None,
            });
            for (topic, explained) in topics.iter().zip(report["topics"].as_array().unwrap()) {
                let name = TopicName::new(*topic).unwrap();
                for (key, action) in [
                    ("publish", Action::Publish),
                    ("subscribe", Action::Subscribe),
                ] {
                    let rule = match permissions.decide(action, &name) {
                        Decision::Rule {
                            number,
                            line,
                            filter,
                            ..
                        } => {
                            json!({ "number": number, "line": line, "filter": filter })
                        }
                        _ => Value::Null,
                    };
                    let allowed = permissions.allows(action, &name);
                    assert_eq!(
                        explained[key],
                        json!({ "allowed": allowed, "rule": rule }),
                        "{user:?} {client_id} {topic}"
                    );
                }
            }
        }
    }
}

#[test]
fn the_exit_code_tells_about_publishing_or_with_the_option_about_subscribing() {
    let folder = Folder::new().file("acl.toml", ACL);
    let explain = |more: &[&str]| {
        let arguments = [
            "explain",
            "--acl",
            "acl.toml",
            "--user",
            "ben",
            "--client-id",
            "d1",
        ];
        folder.run(arguments.iter().chain(more))
    };
    explain(&["devices/d1/x"]).exits(0);
    explain(&["devices/d1/x", "devices/d2/x"]).exits(1);
    explain(&["devices/d1/x", "--subscribe"]).exits(1);
    explain(&["commands/ben", "--subscribe"]).exits(0);
    let ran = explain(&["a/+"]).exits(1);
    assert!(ran.labelled("invalid").contains("wildcards"), "{ran:#?}");
    let ran = explain(&["devices/d1/config"]).exits(1);
    assert_eq!(
        ran.labelled("publish"),
        "denied by rule 2 (line 8): devices/%c/config"
    );
}

#[test]
fn a_topic_map_and_permissions_are_explained_together() {
    let folder = Folder::with_map(SEED_MAP).file("acl.toml", ACL);
    let arguments = [
        "explain",
        "--acl",
        "acl.toml",
        "--map",
        "topic-map.toml",
        "sensors/7/data",
    ];
    let ran = folder.run(arguments).exits(1);
    assert_eq!(ran.labelled("publish"), "denied because no rule matches");
    assert_eq!(ran.labelled("stream"), "sensors");
    let anna = folder
        .run(
            arguments
                .iter()
                .chain(&["--user", "anna", "--format", "json"]),
        )
        .exits(0)
        .json();
    assert_eq!(anna["outcome"], "stored");
    assert_eq!(anna["access"]["publish"]["rule"]["number"], 1);
    let reads = folder
        .run(arguments.iter().chain(&["--user", "anna", "--subscribe"]))
        .exits(1);
    assert_eq!(
        reads.labelled("subscribe"),
        "denied because no rule matches"
    );
    // Without the permissions nothing is said of them.
    let plain = folder
        .run(["explain", "a", "--format", "json"])
        .exits(0)
        .json();
    assert!(plain.get("access").is_none());
}

#[test]
fn what_cannot_be_explained_is_said() {
    let folder = Folder::with_map(SEED_MAP)
        .file("acl.toml", ACL)
        .file("broken.toml", "[[rule]]\npublish = 'a#'\n");
    folder.run(["explain", "--user", "anna", "a"]).exits(2);
    folder
        .run(["explain", "--acl", "acl.toml", "--file", "-"])
        .exits(2);
    folder.run(["explain", "--acl", "acl.toml"]).exits(2);
    folder
        .run(["explain", "a", "b"])
        .exits(2)
        .complains(["one topic at a time"]);
    folder
        .run(["explain", "--acl", "none.toml", "a"])
        .exits(2)
        .complains(["none.toml cannot be read"]);
    folder
        .run(["explain", "--acl", "broken.toml", "a"])
        .exits(2)
        .complains([
            "the gateway would not start with broken.toml",
            "broken.toml:2:11",
        ]);
    folder
        .run(["explain", "--map", "acl.toml", "a"])
        .exits(2)
        .complains(["acl.toml is a file of permissions; name it with --acl"]);
}

#[test]
fn control_characters_of_clients_and_permissions_are_escaped() {
    let folder = Folder::new()
        .file("acl.toml", "[[rule]]\npublish = \"a\\u001b[2J\"\n")
        .file(
            "broken.toml",
            "[[rule]]\npublish = \"\\u001b%x\"\n\"\\u001b\" = 1\ngroup = \"\\u001b\"\n",
        );
    let ran = folder.run([
        "explain",
        "--acl",
        "acl.toml",
        "--user",
        "\x1b[2J",
        "--client-id",
        "\x1b",
        "a\x1b[2J",
    ]);
    assert!(ran.stdout.contains("allowed by rule 1"), "{ran:#?}");
    for ran in [
        ran,
        folder.run(["check", "broken.toml"]),
        folder.run(["explain", "--acl", "broken.toml", "a"]),
    ] {
        assert!(
            !ran.stdout.contains('\x1b') && !ran.stderr.contains('\x1b'),
            "{ran:#?}"
        );
    }
}
