//! Decisions against a model that is written to be obviously right: every rule in order, names compared one by one,
//! filters as regular expressions.

use proptest::prelude::*;
use regex::Regex;

use super::*;

#[derive(Debug, Clone)]
struct ModelRule {
    user: Vec<String>,
    groups: Vec<usize>,
    client_id: Vec<String>,
    certificate: Vec<String>,
    effect: Effect,
    publish: Vec<String>,
    subscribe: Vec<String>,
}

#[derive(Debug, Clone)]
struct Model {
    groups: Vec<Vec<String>>,
    rules: Vec<ModelRule>,
}

#[derive(Debug, Clone)]
struct Client {
    user: Option<String>,
    client_id: String,
    certificate: Option<String>,
}

impl Client {
    fn who(&self) -> Who<'_> {
        Who {
            user: self.user.as_deref(),
            client_id: &self.client_id,
            certificate: self.certificate.as_deref(),
        }
    }
}

fn list(key: &str, items: &[String]) -> String {
    match items.is_empty() {
        true => String::new(),
        false => format!("{key} = {items:?}\n"),
    }
}

impl Model {
    fn to_toml(&self) -> String {
        let mut text = String::from("[groups]\n");
        for (number, members) in self.groups.iter().enumerate() {
            text += &list(&format!("g{number}"), members);
        }
        for rule in &self.rules {
            let groups: Vec<String> = rule
                .groups
                .iter()
                .map(|group| format!("g{group}"))
                .collect();
            text += &format!("[[rule]]\neffect = '{}'\n", rule.effect);
            text += &list("user", &rule.user);
            text += &list("group", &groups);
            text += &list("client_id", &rule.client_id);
            text += &list("certificate", &rule.certificate);
            text += &list("publish", &rule.publish);
            text += &list("subscribe", &rule.subscribe);
        }
        text
    }

    /// The rule that decides, counted from 1, and its filter.
    fn decide(
        &self,
        client: &Client,
        action: Action,
        topic: &str,
    ) -> Option<(usize, Effect, &str)> {
        let user = client.user.as_deref().filter(|user| !user.is_empty());
        for (number, rule) in (1..).zip(&self.rules) {
            let members: Vec<String> = rule
                .groups
                .iter()
                .flat_map(|group| self.groups[*group].clone())
                .collect();
            let is_for = (rule.user.is_empty() || any_name(&rule.user, user))
                && (rule.groups.is_empty() || any_name(&members, user))
                && (rule.client_id.is_empty()
                    || any_name(&rule.client_id, Some(&client.client_id)))
                && (rule.certificate.is_empty()
                    || any_name(&rule.certificate, client.certificate.as_deref()));
            let filters = match action {
                Action::Publish => &rule.publish,
                Action::Subscribe => &rule.subscribe,
            };
            for filter in filters {
                if is_for && matches(filter, rule.effect, user, &client.client_id, topic) {
                    return Some((number, rule.effect, filter));
                }
            }
        }
        None
    }
}

fn any_name(names: &[String], text: Option<&str>) -> bool {
    let Some(text) = text else { return false };
    names.iter().any(|name| match name.strip_suffix('*') {
        Some(prefix) => text.starts_with(prefix),
        None => name == text,
    })
}

fn matches(filter: &str, effect: Effect, user: Option<&str>, client_id: &str, topic: &str) -> bool {
    let mut expression = String::from("(?s)^");
    for (number, level) in filter.split('/').enumerate() {
        match (level, number) {
            ("#", 0) => return !topic.starts_with('$'),
            ("#", _) => {
                expression += "(/.*)?";
                continue;
            }
            (_, 0) => {}
            _ => expression += "/",
        }
        if level == "+" {
            // 4.7.2-1
            if number == 0 && topic.starts_with('$') {
                return false;
            }
            expression += "[^/]*";
            continue;
        }
        if level.contains("%u") && user.is_none() {
            match effect {
                Effect::Allow => return false,
                // Whatever the name were, the topic would begin with this.
                Effect::Deny
                    if number == 0
                        && !["%u", "%c", "$"]
                            .iter()
                            .any(|value| level.starts_with(value)) =>
                {
                    expression += "([^$/][^/]*)?";
                }
                Effect::Deny => expression += "[^/]*",
            }
            continue;
        }
        let mut rest = level;
        while let Some(first) = rest.chars().next() {
            let value = match rest.get(..2) {
                Some("%u") => user,
                Some("%c") => Some(client_id),
                _ => None,
            };
            if let Some(value) = value {
                let opens = value.is_empty()
                    || value.contains(['/', '+', '#'])
                    || number == 0 && rest.len() == level.len() && value.starts_with('$');
                if effect == Effect::Allow && opens {
                    return false;
                }
                expression += &regex::escape(value);
                rest = &rest[2..];
                continue;
            }
            expression += &regex::escape(&first.to_string());
            rest = &rest[if rest.starts_with("%%") {
                2
            } else {
                first.len_utf8()
            }..];
        }
    }
    Regex::new(&(expression + "$")).unwrap().is_match(topic)
}

fn name() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "a", "b", "ab", "a/b", "$a", "+", "a*", "ab*", "*", "b*", "ü*",
    ])
    .prop_map(str::to_owned)
}

fn value() -> impl Strategy<Value = String> {
    let plain =
        prop::sample::select(vec!["a", "b", "ab", "abc", "ü", "$a", "$"]).prop_map(str::to_owned);
    let hostile = prop::sample::select(vec![
        "", "/", "a/b", "+", "#", "a/#", "%u", "%c", "%", "a/", "$/a", "b+",
    ])
    .prop_map(str::to_owned);
    prop_oneof![3 => plain, 2 => hostile]
}

fn level() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => prop::sample::select(vec!["a", "b", "ab", "", "$a", "%%", "ü"]).prop_map(str::to_owned),
        2 => Just("+".to_owned()),
        3 => prop::sample::select(vec!["%u", "%c", "a%u", "%ub", "%u%c", "%c%%", "$%c", "a%cb", "%%%u"]).prop_map(str::to_owned),
    ]
}

fn filter() -> impl Strategy<Value = String> {
    (
        prop::collection::vec(level(), 0..4),
        prop::bool::weighted(0.4),
    )
        .prop_filter_map("empty", |(mut levels, hash)| {
            if hash || levels.is_empty() {
                levels.push("#".to_owned());
            }
            Some(levels.join("/")).filter(|filter| !filter.is_empty())
        })
}

fn topic_text() -> impl Strategy<Value = String> {
    prop::collection::vec(
        prop::sample::select(vec![
            "a", "b", "ab", "aa", "abc", "", "$a", "$", "%", "%u", "ü", "aab", "a%",
        ]),
        1..5,
    )
    .prop_map(|levels| levels.join("/"))
    .prop_filter("no topic", |topic| !topic.is_empty())
}

/// A topic that the filter would match if every value were as good as any other, if that is a topic.
fn aimed_at(filter: &str, client: &Client, filler: &str) -> Option<String> {
    let user = client.user.as_deref().unwrap_or(filler);
    let levels = filter.split('/').map(|level| match level {
        "+" | "#" => filler.to_owned(),
        // Where a percent sign is doubled it is none of a placeholder.
        level => level
            .replace("%%", "\0")
            .replace("%u", user)
            .replace("%c", &client.client_id)
            .replace('\0', "%"),
    });
    let topic = levels
        .collect::<Vec<_>>()
        .join("/")
        .replace(['+', '#'], filler);
    TopicName::new(topic.clone()).is_ok().then_some(topic)
}

fn client_strategy() -> impl Strategy<Value = Client> {
    let id = value().prop_filter("an id is not empty", |id| !id.is_empty());
    (
        prop::option::weighted(0.8, value()),
        id,
        prop::option::of(value()),
    )
        .prop_map(|(user, client_id, certificate)| Client {
            user,
            client_id,
            certificate,
        })
}

fn rule() -> impl Strategy<Value = ModelRule> {
    let names = || prop_oneof![2 => Just(Vec::new()), 1 => prop::collection::vec(name(), 1..3)];
    let groups = prop_oneof![3 => Just(Vec::new()), 1 => prop::collection::vec(0_usize..2, 1..3)];
    let filters = || prop::collection::vec(filter(), 0..3);
    (
        names(),
        groups,
        names(),
        names(),
        any::<bool>(),
        filters(),
        filters(),
    )
        .prop_filter_map(
            "a rule about nothing",
            |(user, groups, client_id, certificate, deny, publish, subscribe)| {
                (!publish.is_empty() || !subscribe.is_empty()).then_some(ModelRule {
                    user,
                    groups,
                    client_id,
                    certificate,
                    effect: if deny { Effect::Deny } else { Effect::Allow },
                    publish,
                    subscribe,
                })
            },
        )
}

fn model() -> impl Strategy<Value = Model> {
    let group = || prop::collection::vec(name(), 1..3);
    (
        prop::collection::vec(group(), 2..=2),
        prop::collection::vec(rule(), 1..8),
    )
        .prop_map(|(groups, rules)| Model { groups, rules })
}

fn number(decision: Decision<'_>) -> Option<(usize, Effect, &str)> {
    match decision {
        Decision::Rule {
            number,
            effect,
            filter,
            ..
        } => Some((number, effect, filter)),
        Decision::NoRule => None,
        Decision::Everything => panic!("there are permissions"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a1_a2_a5_the_first_rule_that_matches_decides_and_without_one_all_is_denied(
        model in model(),
        client in client_strategy(),
        topics in prop::collection::vec(topic_text(), 1..8),
        filler in prop::sample::select(vec!["a", "ab", "a/b"]),
    ) {
        let acl = unchecked(&model.to_toml());
        let permissions = acl.permissions(&client.who());
        let filters = model.rules.iter().flat_map(|rule| rule.publish.iter().chain(&rule.subscribe));
        let aimed = filters.filter_map(|filter| aimed_at(filter, &client, filler));
        let topics: Vec<String> = aimed.chain(topics).collect();
        for name in &topics {
            for action in [Action::Publish, Action::Subscribe] {
                let expected = model.decide(&client, action, name);
                let decision = permissions.decide(action, &topic(name));
                prop_assert_eq!(number(decision), expected, "{} {}", action, name);
                let allowed = expected.is_some_and(|(_, effect, _)| effect == Effect::Allow);
                prop_assert_eq!(permissions.allows(action, &topic(name)), allowed);
                prop_assert_eq!(decision.is_allowed(), allowed);
            }
        }
    }

    #[test]
    fn a3_what_a_placeholder_allows_is_what_it_allows_for_a_harmless_value_in_its_place(
        filter in filter(),
        client in client_strategy(),
        filler in prop::sample::select(vec!["a", "ab", "a/b"]),
    ) {
        let Some(name) = aimed_at(&filter, &client, filler) else { return Ok(()) };
        let acl = unchecked(&format!("[[rule]]\npublish = [{filter:?}]\n"));
        if !may_publish(&acl, &client.who(), &name) {
            return Ok(());
        }
        // The filter as MQTT has it, with + where the value stands: a value never reaches further than a level.
        let levels = filter.split('/').map(|level| match level.contains("%u") || level.contains("%c") {
            true => "+".to_owned(),
            false => level.replace("%%", "%"),
        });
        let widest = levels.collect::<Vec<_>>().join("/");
        // A filter that begins with $ is for topics that do; below a level of their own they are topics as others.
        let (widest, name) = match filter.starts_with('$') {
            true => (format!("x/{widest}"), format!("x/{name}")),
            false => (widest, name),
        };
        prop_assert!(naive(&widest, &name), "{widest} {name}");
    }

    #[test]
    fn a3_denying_never_gets_weaker_by_the_choice_of_a_value(
        filter in filter(),
        client in client_strategy(),
        filler in prop::sample::select(vec!["a", "ab", "a/b"]),
    ) {
        let Some(name) = aimed_at(&filter, &client, filler) else { return Ok(()) };
        // What the same filter would allow to the client, it denies to it.
        let allow = unchecked(&format!("[[rule]]\npublish = [{filter:?}]\n"));
        let deny = unchecked(&format!(
            "[[rule]]\neffect = 'deny'\npublish = [{filter:?}]\n[[rule]]\npublish = ['#', '$a/#', '$/#']\n"
        ));
        if may_publish(&allow, &client.who(), &name) {
            prop_assert!(!may_publish(&deny, &client.who(), &name));
        }
    }

    #[test]
    fn a4_a_filter_without_placeholders_matches_as_mqtt_says(
        filter in filter(),
        name in topic_text(),
        deny in any::<bool>(),
    ) {
        prop_assume!(!filter.contains("%u") && !filter.contains("%c"));
        let effect = if deny { "deny" } else { "allow" };
        let acl = unchecked(&format!("[[rule]]\neffect = '{effect}'\npublish = [{filter:?}]\n"));
        let permissions = acl.permissions(&client(None, "c"));
        let matched = permissions.decide(Action::Publish, &topic(&name)) != Decision::NoRule;
        prop_assert_eq!(matched, naive(&filter.replace("%%", "%"), &name));
    }

    #[test]
    fn what_is_reported_as_never_deciding_never_decides(
        model in model(),
        clients in prop::collection::vec(client_strategy(), 8),
        topics in prop::collection::vec(topic_text(), 8),
    ) {
        let text = model.to_toml();
        let Err(report) = Acl::parse("acl.toml", &text) else { return Ok(()) };
        let acl = unchecked(&text);
        for problem in report.problems() {
            let mut words = problem.key().split(' ').skip(1);
            let dead: usize = words.next().unwrap().parse().unwrap();
            let of = words.next();
            let span = &text[problem.span()];
            for client in &clients {
                let permissions = acl.permissions(&client.who());
                for name in &topics {
                    for action in [Action::Publish, Action::Subscribe] {
                        let decided = number(permissions.decide(action, &topic(name)));
                        let Some((number, _, filter)) = decided else { continue };
                        let is_dead = number == dead
                            && of.is_none_or(|of| of == action.to_string() && span.trim_matches('"') == filter);
                        prop_assert!(!is_dead, "{problem} decides {action} {name} of {client:?}");
                    }
                }
            }
        }
    }
}

/// MQTT 4.7, level by level.
fn naive(filter: &str, topic: &str) -> bool {
    let filter: Vec<&str> = filter.split('/').collect();
    let topic: Vec<&str> = topic.split('/').collect();
    if topic[0].starts_with('$') && matches!(filter[0], "+" | "#") {
        return false;
    }
    for (at, level) in filter.iter().enumerate() {
        match *level {
            "#" => return true,
            _ if at >= topic.len() => return false,
            "+" => {}
            level if level != topic[at] => return false,
            _ => {}
        }
    }
    filter.len() == topic.len()
}

#[test]
fn a4_the_examples_of_the_specification() {
    // MQTT 3.1.1, 4.7.1 and 4.7.2.
    for (filter, name, expected) in [
        ("sport/tennis/player1/#", "sport/tennis/player1", true),
        (
            "sport/tennis/player1/#",
            "sport/tennis/player1/ranking",
            true,
        ),
        (
            "sport/tennis/player1/#",
            "sport/tennis/player1/score/wimbledon",
            true,
        ),
        ("sport/#", "sport", true),
        ("sport/tennis/+", "sport/tennis/player1", true),
        ("sport/tennis/+", "sport/tennis/player1/ranking", false),
        ("sport/+", "sport", false),
        ("sport/+", "sport/", true),
        ("+/+", "/finance", true),
        ("/+", "/finance", true),
        ("+", "/finance", false),
        ("#", "$SYS/x", false),
        ("+/monitor/Clients", "$SYS/monitor/Clients", false),
        ("$SYS/#", "$SYS/x", true),
        ("$SYS/monitor/+", "$SYS/monitor/Clients", true),
        ("/#", "/", true),
        ("/#", "a", false),
        ("a", "A", false),
    ] {
        let acl = acl(&format!("[[rule]]\npublish = '{filter}'\n"));
        assert_eq!(
            may_publish(&acl, &client(None, "c"), name),
            expected,
            "{filter} {name}"
        );
        assert_eq!(naive(filter, name), expected, "{filter} {name}");
    }
}
