//! The text of a users file with one user more, less, or with another password.
//!
//! What always holds: every other line stays as it is, byte for byte.

use mqtt_gateway::access::users::{Line, line};

fn is_of(text: &str, user: &str) -> bool {
    matches!(line(text), Line::User { name, .. } if name == user)
}

/// `text` with that hash for the user, and whether it is a new one.
pub(super) fn set(text: &str, user: &str, hash: &str) -> (String, bool) {
    let mut changed = String::with_capacity(text.len() + user.len() + hash.len() + 2);
    let mut is_new = true;
    for line in text.split_inclusive('\n') {
        let content = line.trim_end_matches(['\r', '\n']);
        if is_of(content, user) {
            changed.push_str(&format!("{user}:{hash}{}", &line[content.len()..]));
            is_new = false;
        } else {
            changed.push_str(line);
        }
    }
    if is_new {
        if !changed.is_empty() && !changed.ends_with('\n') {
            changed.push('\n');
        }
        changed.push_str(&format!("{user}:{hash}\n"));
    }
    (changed, is_new)
}

/// `text` without the user; `None` if there is no such one.
pub(super) fn remove(text: &str, user: &str) -> Option<String> {
    let of_others = |line: &&str| !is_of(line.trim_end_matches(['\r', '\n']), user);
    let changed: String = text.split_inclusive('\n').filter(of_others).collect();
    (changed.len() < text.len()).then_some(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_changed_in_place_and_a_new_one_comes_last() {
        let text = "# ours\n\nanna:$1\r\nben:$2";
        assert_eq!(
            set(text, "anna", "$3"),
            ("# ours\n\nanna:$3\r\nben:$2".to_owned(), false)
        );
        assert_eq!(
            set(text, "ben", "$3"),
            ("# ours\n\nanna:$1\r\nben:$3".to_owned(), false)
        );
        assert_eq!(
            set(text, "an", "$3"),
            ("# ours\n\nanna:$1\r\nben:$2\nan:$3\n".to_owned(), true)
        );
        assert_eq!(set("", "anna", "$1"), ("anna:$1\n".to_owned(), true));
    }

    #[test]
    fn only_the_line_of_the_user_is_removed() {
        let text = "#anna:$1\nanna:$1\nannab:$2\n";
        assert_eq!(remove(text, "anna").unwrap(), "#anna:$1\nannab:$2\n");
        assert_eq!(remove(text, "ann"), None);
        assert_eq!(remove("anna:$1", "anna").unwrap(), "");
    }
}
