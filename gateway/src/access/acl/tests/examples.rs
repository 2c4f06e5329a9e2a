//! What the rules of a fleet decide, one behaviour a test.

use super::*;

const FLEET: &str = r##"
[groups]
operators = ["anna", "ben"]
auditors  = "carl"

[[rule]]
effect    = "deny"
client_id = "old-*"
publish   = "#"

[[rule]]
group     = ["operators", "auditors"]
subscribe = ["#"]

[[rule]]
group     = "operators"
publish   = ["#"]

[[rule]]
user      = "*"
publish   = ["devices/%c/#"]
subscribe = ["commands/%u", "commands/all"]

[[rule]]
certificate = ["gateway-1", "gateway-2"]
publish     = ["bridge/+/100%%"]
"##;

#[test]
fn the_first_rule_for_the_client_that_matches_decides_and_nothing_else_is_allowed() {
    let acl = acl(FLEET);
    assert_eq!(acl.len(), 5);
    for (user, client_id, name, expected) in [
        (Some("anna"), "a", "anything/at/all", true),
        (Some("anna"), "old-1", "anything", false),
        (Some("carl"), "a", "anything", false),
        (Some("carl"), "d1", "devices/d1/temperature", true),
        (Some("dora"), "d1", "devices/d1/temperature", true),
        (Some("dora"), "d1", "devices/d1", true),
        (Some("dora"), "d1", "devices/d2/temperature", false),
        (Some("dora"), "d1", "devices/d10", false),
        (Some("dora"), "old-1", "devices/old-1/x", false),
        (None, "d1", "devices/d1/temperature", false),
        (Some(""), "d1", "devices/d1/temperature", false),
    ] {
        let allowed = may_publish(&acl, &client(user, client_id), name);
        assert_eq!(allowed, expected, "{user:?} {client_id} {name}");
    }
}

#[test]
fn publishing_and_subscribing_are_decided_apart() {
    let acl = acl(FLEET);
    let carl = acl.permissions(&client("carl", "c"));
    assert!(carl.allows(Action::Subscribe, &topic("x")));
    assert!(!carl.allows(Action::Publish, &topic("x")));
    // A deny rule about publishing leaves subscribing alone.
    let old = acl.permissions(&client("dora", "old-1"));
    assert!(old.allows(Action::Subscribe, &topic("commands/dora")));
    assert!(old.allows(Action::Subscribe, &topic("commands/all")));
    assert!(!old.allows(Action::Subscribe, &topic("commands/anna")));
}

#[test]
fn a_certificate_counts_by_its_common_name_and_only_if_there_is_one() {
    let acl = acl(FLEET);
    for (certificate, expected) in [
        (Some("gateway-1"), true),
        (Some("gateway-3"), false),
        (None, false),
    ] {
        let who = Who {
            certificate,
            ..client(None, "g")
        };
        assert_eq!(
            may_publish(&acl, &who, "bridge/x/100%"),
            expected,
            "{certificate:?}"
        );
    }
}

#[test]
fn everything_that_is_given_in_a_rule_must_match() {
    let acl = acl(
        "[groups]\ng = ['anna', 'ben']\n[[rule]]\nuser = ['anna', 'c*']\ngroup = 'g'\nclient_id = ['x', 'y-*']\npublish = 't'\n",
    );
    for (user, client_id, expected) in [
        ("anna", "x", true),
        ("anna", "y-1", true),
        ("anna", "z", false),
        ("ben", "x", false),
        ("carl", "x", false),
    ] {
        let allowed = may_publish(&acl, &client(user, client_id), "t");
        assert_eq!(allowed, expected, "{user} {client_id}");
    }
}

#[test]
fn without_a_file_everything_is_allowed() {
    let everything = Permissions::everything();
    for name in ["a", "$SYS/x"] {
        assert!(everything.allows(Action::Publish, &topic(name)));
        assert_eq!(
            everything.decide(Action::Subscribe, &topic(name)),
            Decision::Everything
        );
    }
    assert_eq!(format!("{everything:?}"), "Permissions::everything");
}

#[test]
fn a_decision_names_the_rule_its_line_and_the_filter_as_written() {
    let acl = acl(FLEET);
    let dora = acl.permissions(&client("dora", "d1"));
    assert_eq!(
        dora.decide(Action::Publish, &topic("devices/d1/x")),
        Decision::Rule {
            number: 4,
            line: 19,
            effect: Effect::Allow,
            filter: "devices/%c/#",
        }
    );
    assert_eq!(
        dora.decide(Action::Publish, &topic("other")),
        Decision::NoRule
    );
    let old = acl.permissions(&client("dora", "old-1"));
    assert!(matches!(
        old.decide(Action::Publish, &topic("devices/old-1/x")),
        Decision::Rule {
            number: 1,
            line: 6,
            effect: Effect::Deny,
            filter: "#"
        }
    ));
}

#[test]
fn a3_a_value_with_separators_or_wildcards_or_none_opens_nothing() {
    let acl = acl("[[rule]]\npublish = ['devices/%c/#', 'users/x-%u', '%u/own', '%c/own']\n");
    for (user, client_id) in [
        (Some("anna"), "d1/d2"),
        (Some("anna"), "+"),
        (Some("anna"), "#"),
        (Some("a/b"), "d/1"),
        (Some("+"), "+1"),
        (Some("#"), "a#"),
        (Some("$SYS"), "$SYS/"),
        (None, "d/"),
    ] {
        let permissions = acl.permissions(&client(user, client_id));
        let user = user.unwrap_or_default();
        for name in [
            format!("devices/{client_id}/x"),
            "devices/d1/d2/x".to_owned(),
            "devices/any/x".to_owned(),
            format!("users/x-{user}").replace(['+', '#'], "any"),
            format!("{user}/own").replace(['+', '#'], "any"),
            "$SYS/own".to_owned(),
            "/own".to_owned(),
        ] {
            let Ok(name) = TopicName::new(name) else {
                continue;
            };
            // Only names of one level, and none that begins a topic with $, stand for themselves.
            let is_own = user == "anna" && ["users/x-anna", "anna/own"].contains(&name.as_str())
                || user == "$SYS" && name.as_str() == "users/x-$SYS";
            let allowed = permissions.allows(Action::Publish, &name);
            assert_eq!(allowed, is_own, "{user} {client_id} {name}");
        }
    }
}

#[test]
fn a_deny_filter_takes_every_value_as_it_is_and_a_missing_one_for_any_level() {
    let acl = unchecked(
        "[[rule]]\neffect = 'deny'\npublish = ['%c/secret', 'private/%c/#', 'audit/x-%u/#', '%u/closed']\n[[rule]]\npublish = ['#', '$x/#']\n",
    );
    for (user, client_id, denied, allowed) in [
        (Some("anna"), "d1", "d1/secret", "d2/secret"),
        (Some("anna"), "a/b", "private/a/b/c", "private/a/c"),
        (Some("anna"), "$x", "$x/secret", "$x/other"),
        (Some("anna"), "d1", "audit/x-anna", "audit/x-ben"),
        (Some("a/b"), "d1", "audit/x-a/b/c", "audit/x-a"),
        (None, "d1", "audit/x-anna/y", "audit"),
        (None, "d1", "audit/anything", "audits/anything"),
        (None, "d1", "$x/closed", "$x/open"),
    ] {
        let who = client(user, client_id);
        assert!(!may_publish(&acl, &who, denied), "{who:?} {denied}");
        assert!(may_publish(&acl, &who, allowed), "{who:?} {allowed}");
    }
}
