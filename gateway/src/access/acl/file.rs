//! Reading a file of permissions: TOML to rules.
//!
//! What always holds: reading goes on after a problem, so that all of them are reported together; what cannot be read is
//! left out, and what is left out is reported.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::filter::{Filter, FilterProblem};
use super::permissions::Action;
use super::problem::AclProblem;
use super::reach::Placed;
use super::who::{Clients, Name};
use super::{Effect, Rule};
use crate::report::{Located, Source, Text, nearest};

const FILE_KEYS: &[&str] = &["groups", "rule"];
const RULE_KEYS: &[&str] = &[
    "user",
    "client_id",
    "certificate",
    "group",
    "effect",
    "publish",
    "subscribe",
];
const EFFECTS: &[&str] = &["allow", "deny"];
const TEXTS: &str = "a text or a list of texts";
/// The most `[[rule]]` tables.
pub(super) const MAX_RULES: usize = 100_000;
/// How many groups a message lists.
const MAX_LISTED: usize = 10;

type Value<'t> = Spanned<DeValue<'t>>;

/// Reads `source`; everything that is wrong becomes a problem.
pub(super) fn read(source: &Arc<Source>) -> Result<Vec<Placed>, Vec<Located<AclProblem>>> {
    let mut reader = Reader {
        source,
        problems: Vec::new(),
        prefix: String::new(),
        groups: BTreeMap::new(),
        lines: Lines::default(),
    };
    let (table, errors) = DeTable::parse_recoverable(&source.text);
    for error in &errors {
        let span = error.span().unwrap_or_default();
        reader.problem(span, "", AclProblem::Syntax(error.message().to_owned()));
    }
    // What was recovered is a guess, and problems in it may be none.
    if !errors.is_empty() {
        return Err(reader.problems);
    }
    let rules = reader.file(table.get_ref());
    match reader.problems.is_empty() {
        true => Ok(rules),
        false => Err(reader.problems),
    }
}

struct Reader<'a> {
    source: &'a Arc<Source>,
    problems: Vec<Located<AclProblem>>,
    /// Goes before keys in messages: `rule 2 `.
    prefix: String,
    groups: BTreeMap<String, Vec<Name>>,
    lines: Lines,
}

/// Counts lines in one pass, because rules are asked for in their order.
#[derive(Default)]
struct Lines {
    byte: usize,
    breaks: usize,
}

impl Lines {
    fn at(&mut self, text: &str, byte: usize) -> usize {
        let between = text.as_bytes().get(self.byte..byte).unwrap_or_default();
        self.breaks += between.iter().filter(|byte| **byte == b'\n').count();
        self.byte = self.byte.max(byte);
        self.breaks + 1
    }
}

impl Reader<'_> {
    fn problem(&mut self, span: Range<usize>, key: &str, problem: AclProblem) {
        let key = format!("{}{key}", self.prefix).trim_end().to_owned();
        let located = Located::new(self.source, span, key, problem);
        self.problems.push(located);
    }

    fn file(&mut self, table: &DeTable<'_>) -> Vec<Placed> {
        // Groups first, wherever they stand.
        if let Some(groups) = table.get("groups") {
            self.groups(groups);
        }
        let mut rules = None;
        for (key, value) in table {
            let name: &str = key.get_ref();
            match name {
                "groups" => {}
                "rule" => rules = Some(self.rules(value)),
                _ => self.unknown(key, FILE_KEYS),
            }
        }
        rules.unwrap_or_else(|| {
            self.problem(0..0, "", AclProblem::NoRules);
            Vec::new()
        })
    }

    fn groups(&mut self, value: &Value<'_>) {
        let DeValue::Table(groups) = value.get_ref() else {
            return self.wrong_type("groups", value, "a table, under a [groups] line");
        };
        for (key, members) in groups {
            let name: &str = key.get_ref();
            self.prefix = "groups ".to_owned();
            let members = self.names(name, members);
            self.prefix.clear();
            // Known, though perhaps without those that cannot be read: rules that name it are not wrong.
            self.groups.insert(name.to_owned(), members);
        }
    }

    fn rules(&mut self, value: &Value<'_>) -> Vec<Placed> {
        const EXPECTED: &str = "tables, each under a [[rule]] line";
        let DeValue::Array(tables) = value.get_ref() else {
            self.wrong_type("rule", value, EXPECTED);
            return Vec::new();
        };
        if tables.is_empty() {
            self.problem(value.span(), "rule", AclProblem::NoRules);
        }
        if let Some(beyond) = tables.get(MAX_RULES) {
            let (count, max) = (tables.len(), MAX_RULES);
            self.problem(beyond.span(), "rule", AclProblem::TooMany { count, max });
            return Vec::new();
        }
        let mut rules = Vec::with_capacity(tables.len());
        for (number, table) in (1..).zip(tables.iter()) {
            match table.get_ref() {
                DeValue::Table(keys) => {
                    self.prefix = format!("rule {number} ");
                    rules.push(self.rule(number, table.span(), keys));
                    self.prefix.clear();
                }
                _ => self.wrong_type("rule", table, EXPECTED),
            }
        }
        rules
    }

    fn rule(&mut self, number: usize, span: Range<usize>, table: &DeTable<'_>) -> Placed {
        let effect = match table.get("effect") {
            Some(value) => self.effect(value),
            None => Effect::Allow,
        };
        let mut clients = Clients::default();
        let (mut publish, mut subscribe) = (None, None);
        for (key, value) in table {
            let name: &str = key.get_ref();
            match name {
                "user" => clients.user = Some(self.names(name, value)),
                "client_id" => clients.client_id = Some(self.names(name, value)),
                "certificate" => clients.certificate = Some(self.names(name, value)),
                "group" => clients.members = Some(self.members(name, value)),
                "effect" => {}
                "publish" => publish = Some(self.filters(Action::Publish, value, effect)),
                "subscribe" => subscribe = Some(self.filters(Action::Subscribe, value, effect)),
                _ => self.unknown(key, RULE_KEYS),
            }
        }
        if publish.is_none() && subscribe.is_none() {
            self.problem(span.clone(), "", AclProblem::NoFilters);
        }
        let (publish, publish_spans) = publish
            .unwrap_or_default()
            .into_iter()
            .unzip::<_, _, Vec<_>, _>();
        let (subscribe, subscribe_spans) = subscribe
            .unwrap_or_default()
            .into_iter()
            .unzip::<_, _, Vec<_>, _>();
        Placed {
            rule: Rule {
                number,
                line: self.lines.at(&self.source.text, span.start),
                effect,
                clients,
                publish: publish.into(),
                subscribe: subscribe.into(),
            },
            span,
            publish: publish_spans,
            subscribe: subscribe_spans,
        }
    }

    fn effect(&mut self, value: &Value<'_>) -> Effect {
        let DeValue::String(word) = value.get_ref() else {
            self.wrong_type("effect", value, "a text");
            return Effect::Allow;
        };
        match &**word {
            "allow" => Effect::Allow,
            "deny" => Effect::Deny,
            word => {
                let problem = AclProblem::UnknownWord {
                    found: word.to_owned(),
                    nearest: nearest(word, EFFECTS),
                    known: EFFECTS,
                };
                self.problem(value.span(), "effect", problem);
                Effect::Allow
            }
        }
    }

    /// The texts in a text or a list of them; what is none is reported.
    fn texts(&mut self, key: &str, value: &Value<'_>) -> Vec<Text> {
        let text = |text: &str, span| Text::new(&self.source.text, span, text);
        match value.get_ref() {
            DeValue::String(one) => vec![text(one, value.span())],
            DeValue::Array(list) => {
                let mut texts = Vec::with_capacity(list.len());
                let mut others = Vec::new();
                for value in list.iter() {
                    match value.get_ref() {
                        DeValue::String(one) => texts.push(text(one, value.span())),
                        _ => others.push(value),
                    }
                }
                if list.is_empty() {
                    self.problem(value.span(), key, AclProblem::EmptyList);
                }
                for other in others {
                    self.wrong_type(key, other, "a text");
                }
                texts
            }
            _ => {
                self.wrong_type(key, value, TEXTS);
                Vec::new()
            }
        }
    }

    fn names(&mut self, key: &str, value: &Value<'_>) -> Vec<Name> {
        let texts = self.texts(key, value);
        let mut names = Vec::with_capacity(texts.len());
        for text in &texts {
            let (name, is_prefix) = match text.value.strip_suffix('*') {
                Some(prefix) => (prefix, true),
                None => (&*text.value, false),
            };
            if let Some(star) = name.find('*') {
                self.problem(text.at(&(star..star + 1)), key, AclProblem::MisplacedStar);
            } else if is_prefix {
                names.push(Name::Prefix(name.into()));
            } else if name.is_empty() {
                self.problem(text.span(), key, AclProblem::EmptyName);
            } else {
                names.push(Name::Exact(name.into()));
            }
        }
        names
    }

    /// The members of the groups that are named.
    fn members(&mut self, key: &str, value: &Value<'_>) -> Vec<Name> {
        let mut members = Vec::new();
        for text in self.texts(key, value) {
            if let Some(of_group) = self.groups.get(&text.value) {
                members.extend(of_group.iter().cloned());
                continue;
            }
            let known: Vec<&str> = self.groups.keys().map(String::as_str).collect();
            let problem = AclProblem::UnknownGroup {
                nearest: nearest(&text.value, &known).map(str::to_owned),
                known: known
                    .into_iter()
                    .take(MAX_LISTED)
                    .map(str::to_owned)
                    .collect(),
                found: text.value.clone(),
            };
            self.problem(text.span(), key, problem);
        }
        members
    }

    fn filters(
        &mut self,
        action: Action,
        value: &Value<'_>,
        effect: Effect,
    ) -> Vec<(Filter, Range<usize>)> {
        let key = action.to_string();
        let texts = self.texts(&key, value);
        let mut filters = Vec::with_capacity(texts.len());
        for text in &texts {
            let problems = match Filter::new(&text.value, effect) {
                Ok(filter) => {
                    filters.push((filter, text.span()));
                    continue;
                }
                Err(problems) => problems,
            };
            for problem in problems {
                let (span, problem) = match problem {
                    FilterProblem::UnknownPlaceholder(at) => {
                        let found = text.value[at.clone()].to_owned();
                        (text.at(&at), AclProblem::UnknownPlaceholder { found })
                    }
                    FilterProblem::Illegal(error) => (text.span(), AclProblem::Illegal(error)),
                };
                self.problem(span, &key, problem);
            }
        }
        filters
    }

    fn unknown(&mut self, key: &Spanned<DeString<'_>>, known: &'static [&'static str]) {
        let name: &str = key.get_ref();
        let nearest = nearest(name, known);
        self.problem(key.span(), name, AclProblem::UnknownKey { nearest, known });
    }

    fn wrong_type(&mut self, key: &str, value: &Value<'_>, expected: &'static str) {
        let found = match value.get_ref() {
            DeValue::String(_) => "a text",
            DeValue::Integer(_) => "a whole number",
            DeValue::Float(_) => "a fraction",
            DeValue::Boolean(_) => "a truth value",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        self.problem(value.span(), key, AclProblem::WrongType { expected, found });
    }
}
