//! The users file: what is read, what is refused with its line, and that time tells nothing (A6).

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;

/// A hash that costs next to nothing, so that tests can make many.
fn cheap(password: &str) -> String {
    hash_with(8, 1, 1, password)
}

fn hash_with(memory: u32, passes: u32, lanes: u32, password: &str) -> String {
    let argon2 = argon2id(memory, passes, lanes).unwrap();
    argon2
        .hash_password(password.as_bytes())
        .unwrap()
        .to_string()
}

fn users(lines: &[(&str, String)]) -> Users {
    let text: String = lines
        .iter()
        .map(|(name, hash)| format!("{name}:{hash}\n"))
        .collect();
    Users::parse("users", &text).unwrap()
}

fn problems(text: &str) -> Vec<(usize, UserReason)> {
    match Users::parse("users", text).unwrap_err() {
        UsersError::Lines(problems) => problems
            .into_iter()
            .map(|problem| (problem.line, problem.what))
            .collect(),
        other => panic!("{other}"),
    }
}

#[test]
fn the_right_password_of_a_user_is_the_only_one_that_is_accepted() {
    let users = users(&[("anna", cheap("a")), ("ben", cheap("b"))]);
    assert_eq!(users.len(), 2);
    assert!(users.verify("anna", b"a"));
    assert!(users.verify("ben", b"b"));
    for (name, password) in [
        ("anna", "b"),
        ("anna", ""),
        ("anna", "a "),
        ("Anna", "a"),
        ("", "a"),
        ("nobody", "a"),
        ("anna:", "a"),
    ] {
        assert!(
            !users.verify(name, password.as_bytes()),
            "{name} {password}"
        );
    }
}

#[test]
fn the_hash_that_is_made_has_the_parameters_of_owasp_and_its_own_salt() {
    let (one, two) = (hash(b"secret").unwrap(), hash(b"secret").unwrap());
    assert!(one.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{one}");
    assert_ne!(one, two);
    let users = users(&[("anna", one)]);
    assert!(users.verify("anna", b"secret"));
    assert!(!users.verify("anna", b"Secret"));
}

#[test]
fn hashes_of_the_reference_implementation_are_understood() {
    // Test vectors of https://github.com/P-H-C/phc-winner-argon2 (src/test.c).
    for hash in [
        "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4",
        "$argon2id$v=19$m=256,t=2,p=2$c29tZXNhbHQ$bQk8UB/VmZZF4Oo79iDXuL5/0ttZwg2f/5U52iv1cDc",
    ] {
        let users = users(&[("anna", hash.to_owned())]);
        assert!(users.verify("anna", b"password"), "{hash}");
        assert!(!users.verify("anna", b"Password"), "{hash}");
    }
}

#[test]
fn comments_empty_lines_and_line_ends_of_windows_do_not_count() {
    let text = format!("# users\r\n\r\n   \r\nanna:{}\r\n#ben:x", cheap("a"));
    let users = Users::parse("users", &text).unwrap();
    assert_eq!(users.len(), 1);
    assert!(users.verify("anna", b"a"));
}

#[test]
fn a_name_may_hold_what_topics_and_patterns_hold() {
    let names = [
        "a/b",
        "+",
        "#x"[1..].as_ref(),
        "%u",
        "a b",
        "ü東京",
        "a#",
        "*",
        "=\"'",
    ];
    let lines: Vec<(&str, String)> = names.iter().map(|name| (*name, cheap(name))).collect();
    let users = users(&lines);
    for name in names {
        assert!(users.verify(name, name.as_bytes()), "{name}");
    }
}

#[test]
fn every_line_that_is_no_user_is_reported_with_its_number_and_reason_at_once() {
    let good = cheap("a");
    let long = "x".repeat(MAX_NAME_BYTES + 1);
    let just = "x".repeat(MAX_NAME_BYTES);
    let text = format!(
        "anna:{good}\nben\n:{good}\nc\u{7}:{good}\n{long}:{good}\n{just}:{good}\nanna:{good}\nd:\ne:secret\nf:$6$abc$def\ng:$2y$05$abc\nh:{}\n i:{good}\nj :{good}\nk:{good}x!\n",
        &good[..good.len() / 2],
    );
    assert_eq!(
        problems(&text),
        [
            (2, UserReason::NoColon),
            (3, UserReason::Name(BadName::Empty)),
            (4, UserReason::Name(BadName::Character)),
            (5, UserReason::Name(BadName::TooLong)),
            (7, UserReason::Duplicate { earlier: 1 }),
            (8, UserReason::NoHash),
            (9, UserReason::NotArgon2id),
            (10, UserReason::NotArgon2id),
            (11, UserReason::NotArgon2id),
            (12, UserReason::Damaged),
            (13, UserReason::Name(BadName::Space)),
            (14, UserReason::Name(BadName::Space)),
            (15, UserReason::Damaged),
        ]
    );
    assert_eq!(check_name("#x"), Err(BadName::Comment));
}

#[test]
fn a_name_in_a_users_file_never_reaches_into_another_field() {
    let good = cheap("a");
    // The first colon ends the name: what follows is no hash then.
    assert_eq!(
        problems(&format!("a:b:{good}")),
        [(1, UserReason::NotArgon2id)]
    );
}

#[test]
fn argon2i_and_argon2d_and_old_versions_are_refused() {
    let good = cheap("a");
    for bad in [
        good.replace("argon2id", "argon2i"),
        good.replace("argon2id", "argon2d"),
    ] {
        assert_eq!(
            problems(&format!("a:{bad}")),
            [(1, UserReason::NotArgon2id)]
        );
    }
    for bad in [good.replace("v=19$", "v=16$"), good.replace("v=19$", "")] {
        assert_eq!(problems(&format!("a:{bad}")), [(1, UserReason::Damaged)]);
    }
}

#[test]
fn a_line_that_would_take_gigabytes_or_minutes_is_refused_before_anything_is_computed() {
    let good = cheap("a");
    let costing = |cost: &str| format!("a:{}", good.replace("m=8,t=1,p=1", cost));
    let begun = Instant::now();
    for (cost, memory_kib, passes, lanes) in [
        ("m=4294967295,t=1,p=1", u32::MAX, 1, 1),
        ("m=262145,t=1,p=1", 262_145, 1, 1),
        ("m=262144,t=5,p=1", 262_144, 5, 1),
        ("m=8,t=4294967295,p=1", 8, u32::MAX, 1),
        ("m=8192,t=1,p=1000", 8192, 1, 1000),
    ] {
        let expected = UserReason::TooExpensive {
            memory_kib,
            passes,
            lanes,
        };
        assert_eq!(problems(&costing(cost)), [(1, expected)], "{cost}");
    }
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert_eq!(
        problems(&costing("m=0,t=1,p=1")),
        [(1, UserReason::Damaged)]
    );
    assert_eq!(
        problems(&costing("m=8,t=0,p=1")),
        [(1, UserReason::Damaged)]
    );
}

#[test]
fn no_message_shows_a_name_or_a_hash() {
    let good = cheap("a");
    let text = format!("anna:{good}\nanna:{good}\nhunter2\nben:hunter2\n");
    let error = Users::parse("users", &text).unwrap_err();
    for shown in [error.to_string(), format!("{error:?}")] {
        for secret in ["anna", "ben", "hunter2", good.rsplit('$').next().unwrap()] {
            assert!(!shown.contains(secret), "{secret} in {shown}");
        }
    }
    let parsed = users(&[("anna", good)]);
    assert_eq!(format!("{parsed:?}"), "Users { len: 1, .. }");
    assert!(
        error
            .to_string()
            .starts_with("the users file has 3 errors:\nusers:2: line 1 is")
    );
}

#[test]
fn a_file_without_users_is_an_error_that_says_how_to_add_one() {
    for text in ["", "\n", "# nobody\n"] {
        let error = Users::parse("users", text).unwrap_err();
        assert_eq!(
            error.to_string(),
            "users: no users; add one with: mqtt-gateway passwd users NAME"
        );
    }
}

#[test]
fn a_users_file_that_everybody_can_read_or_its_group_can_write_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), format!("anna:{}\n", cheap("a"))).unwrap();
    for (mode, good) in [(0o600, true), (0o640, true), (0o644, false), (0o660, false)] {
        fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
        match Users::load(file.path()) {
            Ok(users) => assert!(good && users.verify("anna", b"a"), "{mode:o}"),
            Err(error) => assert!(!good && error.to_string().contains("chmod"), "{error}"),
        }
    }
}

#[test]
fn a_fingerprint_changes_exactly_when_the_line_of_the_user_changes() {
    let (a, b) = (cheap("a"), cheap("b"));
    let before = users(&[("anna", a.clone()), ("ben", b.clone())]);
    let after = users(&[("ben", b), ("anna", cheap("a")), ("carl", a)]);
    assert_eq!(before.fingerprint("ben"), after.fingerprint("ben"));
    assert_ne!(before.fingerprint("anna"), after.fingerprint("anna"));
    assert_eq!(before.fingerprint("carl"), None);
    assert!(after.fingerprint("carl").is_some());
}

/// What is computed to check a password of that name: the parameters of each hash.
fn work(users: &Users, name: &str) -> Vec<String> {
    let mut computed = Vec::new();
    let fits = users.verify_by(name, b"wrong", |hash, password| {
        assert_eq!(password, b"wrong");
        computed.push(hash.split('$').take(4).collect::<Vec<_>>().join("$"));
        verify(hash, password)
    });
    assert!(!fits);
    computed
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a6_a_name_that_is_not_there_costs_what_most_names_cost(
        memory in 8_u32..64,
        passes in 1_u32..4,
        others in 0_usize..3,
        name in "[a-z]{0,8}",
    ) {
        let mut lines = vec![("Anna", hash_with(memory, passes, 1, "a"))];
        lines.push(("Ben", hash_with(memory, passes, 1, "b")));
        lines.push(("Carl", hash_with(memory, passes, 1, "c")));
        for name in ["Dora", "Emil"].iter().take(others) {
            lines.push((name, hash_with(128, 5, 1, "d")));
        }
        let users = users(&lines);
        let of_anna = work(&users, "Anna");
        prop_assert_eq!(of_anna.len(), 1);
        prop_assert_eq!(work(&users, &name), of_anna);
    }
}

#[test]
fn a6_a_name_that_is_not_there_is_refused_even_if_the_dummy_hash_fits() {
    let users = users(&[("anna", cheap("a"))]);
    assert!(!users.verify_by("nobody", b"a", |_, _| true));
    assert!(users.verify_by("anna", b"a", |_, _| true));
}
