//! Thousands of rules and clients.

use std::time::{Duration, Instant};

use super::*;

const RULES: usize = 10_000;

/// A rule for each user, and some for all.
fn large() -> Acl {
    let mut text = String::from("[[rule]]\nuser = '*'\npublish = 'all/%c'\n");
    for number in 0..RULES {
        text += &format!(
            "[[rule]]\nuser = 'user-{number}'\npublish = ['devices/%c/#', 'site/{number}/+']\nsubscribe = 'commands/%u'\n"
        );
    }
    acl(&text)
}

#[test]
fn ten_thousand_clients_with_a_rule_each_come_back_within_seconds() {
    let acl = large();
    let begun = Instant::now();
    let mut held = Vec::new();
    for number in 0..RULES {
        let (user, client_id) = (format!("user-{number}"), format!("d{number}"));
        let permissions = acl.permissions(&client(&*user, &client_id));
        assert!(permissions.allows(Action::Publish, &topic(&format!("site/{number}/x"))));
        assert!(!permissions.allows(Action::Publish, &topic(&format!("site/{}/x", number + 1))));
        held.push(permissions);
    }
    // Each looks at its own rule and the one for all; if it were at all rules, it would take minutes.
    assert!(
        begun.elapsed() < Duration::from_secs(10),
        "{:?}",
        begun.elapsed()
    );
    for permissions in &held {
        assert_eq!(
            format!("{permissions:?}"),
            "Permissions { own_rules: 1, .. }"
        );
    }
}

#[test]
fn rules_for_all_clients_are_shared_by_all() {
    let mut text = String::new();
    for number in 0..1000 {
        let user = ["", "user = '*'\n", "client_id = '*'\n"][number % 3];
        text += &format!("[[rule]]\n{user}publish = 'a/{number}'\n");
    }
    let acl = acl(&text);
    for (user, expected) in [(None, false), (Some("anna"), true)] {
        let permissions = acl.permissions(&client(user, "c"));
        assert_eq!(
            format!("{permissions:?}"),
            "Permissions { own_rules: 0, .. }"
        );
        assert_eq!(permissions.allows(Action::Publish, &topic("a/1")), expected);
        assert!(permissions.allows(Action::Publish, &topic("a/999")));
    }
}

#[test]
fn a_large_file_in_which_every_rule_could_hide_another_is_checked_within_seconds() {
    let mut text = String::new();
    for number in 0..RULES {
        text += &format!("[[rule]]\nuser = 'user-{number}-*'\npublish = 'devices/%c/#'\n");
    }
    let begun = Instant::now();
    acl(&text);
    assert!(
        begun.elapsed() < Duration::from_secs(30),
        "{:?}",
        begun.elapsed()
    );
}
