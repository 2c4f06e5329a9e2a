//! Permissions: any file compiles or is refused with places in it, and what compiles decides by its first rule that matches,
//! whatever names clients have.
//!
//! The input is a file of permissions, a line `---`, and lines `user|client id|topic`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mqtt_gateway::access::acl::{Acl, Action, Decision, Effect, Who};
use mqtt_gateway::mqtt::TopicName;
use mqtt_gateway::report::render;

/// Each rule of `text` as a file of its own, if the text can be taken apart at the headings of its rules.
fn one_by_one(text: &str, acl: &Acl) -> Option<Vec<Acl>> {
    let mut parts = text.split("[[rule]]");
    let head = parts.next()?;
    let rules: Option<Vec<Acl>> = parts
        .map(|rule| Acl::parse("one.toml", &format!("{head}[[rule]]{rule}")).ok())
        .collect();
    rules.filter(|rules| rules.len() == acl.len() && rules.iter().all(|rule| rule.len() == 1))
}

fn uses(filter: &str, placeholder: &str) -> bool {
    filter.replace("%%", "").contains(placeholder)
}

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let (text, clients) = text.split_once("\n---\n").unwrap_or((text, ""));
    let acl = match Acl::parse("fuzz.toml", text) {
        Ok(acl) => acl,
        Err(report) => {
            assert!(!report.problems().is_empty());
            for problem in report.problems() {
                assert!(text.get(problem.span()).is_some());
                assert!(!problem.to_string().contains('\n'));
            }
            render::problems(&report, true);
            return;
        }
    };
    let alone = one_by_one(text, &acl);
    for line in clients.lines().take(32) {
        let mut fields = line.splitn(3, '|');
        let (Some(user), Some(client_id), Some(topic)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let Ok(topic) = TopicName::new(topic.to_owned()) else {
            continue;
        };
        if client_id.is_empty() {
            continue;
        }
        let who = Who {
            user: Some(user).filter(|user| !user.is_empty()),
            client_id,
            certificate: Some(user),
        };
        let permissions = acl.permissions(&who);
        for action in [Action::Publish, Action::Subscribe] {
            let decision = permissions.decide(action, &topic);
            assert_eq!(permissions.allows(action, &topic), decision.is_allowed(), "A5");
            if let Some(alone) = &alone {
                let first = alone.iter().position(|rule| {
                    rule.permissions(&who).decide(action, &topic) != Decision::NoRule
                });
                let decided = match decision {
                    Decision::Rule { number, .. } => Some(number - 1),
                    _ => None,
                };
                assert_eq!(decided, first, "A1");
            }
            match decision {
                Decision::Everything => panic!("there are permissions"),
                Decision::NoRule => assert!(!decision.is_allowed(), "A2"),
                Decision::Rule { effect: Effect::Allow, filter, .. } => {
                    let is_safe = |value: &str| !value.is_empty() && !value.contains(['/', '+', '#']);
                    assert!(!uses(filter, "%u") || is_safe(user), "A3");
                    assert!(!uses(filter, "%c") || is_safe(client_id), "A3");
                    let opens_dollar = topic.is_dollar() && !filter.starts_with('$');
                    assert!(!opens_dollar, "A3, A4");
                }
                Decision::Rule { effect: Effect::Deny, .. } => assert!(!decision.is_allowed()),
            }
        }
    }
});
