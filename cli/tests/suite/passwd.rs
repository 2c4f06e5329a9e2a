//! `passwd`: the users file afterwards, and when it stays as it is.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Stdio;

use mqtt_gateway::access::users::Users;

use crate::program::{Folder, Ran};

/// A hash that costs next to nothing: a test vector of the reference implementation, of "password".
const HASH: &str =
    "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4";

fn passwd(folder: &Folder, user: &str, input: &str) -> Ran {
    folder.run_with(["passwd", "users", user], input)
}

fn text(folder: &Folder) -> String {
    fs::read_to_string(folder.path().join("users")).unwrap()
}

fn chmod(folder: &Folder, mode: u32) {
    let path = folder.path().join("users");
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn mode(folder: &Folder) -> u32 {
    let metadata = fs::metadata(folder.path().join("users")).unwrap();
    metadata.permissions().mode() & 0o7777
}

/// What is in the folder beside the users file.
fn others(folder: &Folder) -> Vec<String> {
    let names = fs::read_dir(folder.path()).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name != "users").collect()
}

#[test]
fn a_user_is_added_to_a_new_file_that_is_the_callers_alone() {
    let folder = Folder::new();
    let ran = passwd(&folder, "anna", "secret\n").exits(0);
    assert_eq!(ran.stdout, "anna added to users\n");
    assert_eq!(mode(&folder), 0o600);
    let users = Users::load(&folder.path().join("users")).unwrap();
    assert!(users.verify("anna", b"secret"));
    assert!(!users.verify("anna", b"secret\n"));
    assert!(!text(&folder).contains("secret"));
    assert_eq!(others(&folder), Vec::<String>::new());
}

#[test]
fn a_password_is_changed_in_its_line_and_all_else_stays() {
    let folder = Folder::new().file("users", format!("# ours\nanna:{HASH}\n\nben:{HASH}"));
    chmod(&folder, 0o640);
    let ran = folder
        .run_with(["passwd", "--stdin", "users", "anna"], "new")
        .exits(0);
    assert_eq!(ran.stdout, "anna changed in users\n");
    let text = text(&folder);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines[0], lines[2]), ("# ours", ""));
    assert!(
        lines[1].starts_with("anna:$argon2id$v=19$m=19456,t=2,p=1$"),
        "{text}"
    );
    assert_eq!(lines[3], format!("ben:{HASH}"));
    assert_eq!(mode(&folder), 0o640);
    let users = Users::parse("users", &text).unwrap();
    assert!(users.verify("anna", b"new") && !users.verify("anna", b"password"));
}

#[test]
fn a_user_is_removed_even_the_last_one() {
    let folder = Folder::new().file("users", format!("# ours\nanna:{HASH}\nben:{HASH}\n"));
    chmod(&folder, 0o600);
    let remove = |user| folder.run(["passwd", "users", user, "--remove"]);
    assert_eq!(remove("anna").exits(0).stdout, "anna removed from users\n");
    assert_eq!(text(&folder), format!("# ours\nben:{HASH}\n"));
    remove("anna")
        .exits(2)
        .complains(["there is no user anna in users"]);
    remove("ben").exits(0);
    assert_eq!(text(&folder), "# ours\n");
}

#[test]
fn a_file_with_mistakes_or_that_others_could_have_changed_or_read_stays_as_it_is() {
    for (content, mode, complaint) in [
        (
            format!("anna:{HASH}\nben\n"),
            0o600,
            "users:2: not of the form name:hash",
        ),
        (format!("anna:{HASH}\n"), 0o660, "chmod go-w "),
        (format!("anna:{HASH}\n"), 0o644, "chmod o-r "),
    ] {
        let folder = Folder::new().file("users", &content);
        chmod(&folder, mode);
        for arguments in [
            &["passwd", "users", "carl"][..],
            &["passwd", "users", "anna", "--remove"],
        ] {
            folder
                .run_with(arguments, "secret\n")
                .exits(2)
                .complains([complaint]);
            assert_eq!(text(&folder), content);
        }
    }
}

#[test]
fn a_name_or_a_password_that_cannot_be_is_refused() {
    let folder = Folder::new();
    for name in ["", "a:b", "#a", " a", "a\n"] {
        passwd(&folder, name, "secret\n")
            .exits(2)
            .complains(["a user's name"]);
    }
    for password in ["", "\n", "\r\n"] {
        passwd(&folder, "anna", password)
            .exits(2)
            .complains(["the password is empty"]);
    }
    passwd(&folder, "anna", &"x".repeat(65_536))
        .exits(2)
        .complains(["longer than"]);
    folder
        .run(["passwd", "users", "anna", "--stdin", "--remove"])
        .exits(2);
    assert_eq!(others(&folder), Vec::<String>::new());
    assert!(!folder.path().join("users").exists());
}

#[test]
fn a_link_stays_a_link_and_what_was_left_over_is_in_nobodys_way() {
    let folder = Folder::new()
        .file("real/users", format!("anna:{HASH}\n"))
        .file("real/.users.new", "left over");
    let real = folder.path().join("real/users");
    fs::set_permissions(&real, fs::Permissions::from_mode(0o600)).unwrap();
    symlink("real/users", folder.path().join("users")).unwrap();
    folder.run(["passwd", "users", "anna", "--remove"]).exits(0);
    assert!(folder.path().join("users").is_symlink());
    assert_eq!(fs::read_to_string(real).unwrap(), "");
    assert!(!folder.path().join("real/.users.new").exists());
}

#[test]
fn several_at_once_lose_nobody() {
    let folder = Folder::new();
    let names = ["anna", "ben", "carl", "dora"];
    let running = names.map(|name| {
        let mut command = folder.command(["passwd", "users", name]);
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"secret\n").unwrap();
        child
    });
    for child in running {
        Ran::from(child.wait_with_output().unwrap()).exits(0);
    }
    let text = text(&folder);
    for name in names {
        assert!(text.contains(&format!("{name}:$argon2id$")), "{text}");
    }
    assert_eq!(others(&folder), Vec::<String>::new());
}
