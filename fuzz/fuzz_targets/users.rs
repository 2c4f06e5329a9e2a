//! The users file: any text is read or refused with lines of it, and who is read has that password and no other.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mqtt_gateway::access::users::{Line, Users, UsersError, check_name, line};

/// Of "password"; a test vector of the reference implementation that takes half a millisecond.
const HASH: &str = "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4";

/// Whether no number after `key` makes a hash that is accepted and takes long.
fn is_quick(text: &str, key: &str, quick: usize, refused: usize) -> bool {
    text.split(key).skip(1).all(|rest| {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        digits <= quick || digits >= refused
    })
}

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    // Up to 9,999 KiB and 9 passes, or far beyond what is accepted.
    if !is_quick(text, "m=", 4, 7) || !is_quick(text, "t=", 1, 7) || !is_quick(text, "p=", 1, 3) {
        return;
    }
    match Users::parse("fuzz", text) {
        Ok(users) => {
            let named: Vec<(&str, &str)> = text
                .lines()
                .filter_map(|text| match line(text) {
                    Line::User { name, hash } => Some((name, hash)),
                    Line::Nothing | Line::Other => None,
                })
                .collect();
            assert_eq!(named.len(), users.len());
            for (name, hash) in named.iter().take(4) {
                assert_eq!(check_name(name), Ok(()));
                assert!(users.fingerprint(name).is_some());
                if *hash == HASH {
                    assert!(users.verify(name, b"password"));
                }
                assert!(!users.verify(name, b"another password"));
            }
            assert!(!users.verify("", b"password"));
            assert_eq!(users.fingerprint("#nobody"), None);
        }
        Err(error) => {
            if let UsersError::Lines(problems) = &error {
                assert!(!problems.is_empty());
                let lines: Vec<usize> = problems.iter().map(|problem| problem.line()).collect();
                assert!(lines.is_sorted());
                assert!(lines.iter().all(|line| (1..=text.lines().count()).contains(line)));
            }
            // The name of the file is all that comes from outside.
            assert!(error.to_string().chars().all(|c| c == '\n' || !c.is_control()));
        }
    }
});
