//! Patterns: one regular expression each, and what can be known about all its matches without a topic.
//!
//! What always holds: a [`Pattern`] matches whole topics only, whatever anchors, flags or comments its text has; time is
//! linear in the topic; memory is capped. What is said about every match errs on the side of saying less.

mod doubts;

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use regex_automata::meta::Regex;
use regex_automata::util::captures::Captures;
use regex_syntax::ast::{self, Ast};
use regex_syntax::hir::{Class, Hir, HirKind, Look, translate::TranslatorBuilder};

use super::problem::{Problem, Warning};
use doubts::doubts;

/// The largest compiled pattern, in bytes.
const SIZE_LIMIT: usize = 1 << 20;
/// The cap of a pattern's lazily built automaton, in bytes per thread. It only serves rules whose groups are used, and
/// runs once per topic that is not remembered.
const CACHE_LIMIT: usize = 256 << 10;
/// The largest one-pass automaton of a pattern, in bytes. It finds groups fastest, and takes most of a megabyte for one
/// `\\w`; then another way is taken.
const ONE_PASS_LIMIT: usize = 64 << 10;
/// How deep a pattern may nest. Far below the default of the crate `regex` (250), which sees one level more.
const NEST_LIMIT: u32 = 100;

/// A compiled pattern.
#[derive(Debug)]
pub(super) struct Pattern {
    regex: Regex,
    begins_with_dollar: bool,
}

/// What compiling needs to know about a pattern, and resolving no more.
#[derive(Debug)]
pub(super) struct Facts {
    /// The groups.
    pub(super) groups: Arc<Groups>,
    /// Its form without groups and without the anchors that whole-topic matching implies.
    form: Hir,
    /// What is doubtful about it, with the bytes of its text.
    pub(super) warnings: Vec<(Range<usize>, Warning)>,
}

impl Pattern {
    /// Compiles `text`.
    pub(super) fn compile(text: &str) -> Result<(Self, Facts), (Range<usize>, Problem)> {
        let whole = 0..text.len();
        let (ast, hir) = parse(text)?;
        if let Some(problem) = hopeless(&hir) {
            return Err((whole, problem));
        }
        let config = Regex::config()
            .nfa_size_limit(Some(SIZE_LIMIT))
            .onepass_size_limit(Some(ONE_PASS_LIMIT))
            .hybrid_cache_capacity(CACHE_LIMIT);
        let regex = Regex::builder()
            .configure(config)
            .build_from_hir(&whole_topic(hir.clone()))
            .map_err(|error| {
                let problem = match error.size_limit() {
                    Some(limit) => Problem::PatternTooLarge { limit },
                    None => Problem::BadPattern(error.to_string()),
                };
                (whole, problem)
            })?;
        let facts = Facts {
            groups: Arc::new(Groups::of(&hir)),
            form: form(&hir),
            warnings: doubts(text, &ast),
        };
        let begins_with_dollar = begins_with_dollar(&hir);
        Ok((
            Self {
                regex,
                begins_with_dollar,
            },
            facts,
        ))
    }

    /// Whether every match begins with `$`: only such a pattern is for topics that begin with `$`, and it is for no
    /// others.
    pub(super) fn begins_with_dollar(&self) -> bool {
        self.begins_with_dollar
    }

    /// About how many bytes it takes, without what searching builds.
    pub(super) fn size(&self) -> usize {
        self.regex.memory_usage()
    }

    /// Whether the whole of `topic` matches.
    pub(super) fn matches(&self, topic: &str) -> bool {
        self.regex.is_match(topic)
    }

    /// The groups, if the whole of `topic` matches.
    pub(super) fn captures(&self, topic: &str) -> Option<Captures> {
        let mut captures = self.regex.create_captures();
        self.regex.captures(topic, &mut captures);
        captures.is_match().then_some(captures)
    }
}

impl Pattern {
    /// The groups without the whole topic, if that matches: number, name if there is one, and text.
    pub(super) fn named_captures<'a>(
        &'a self,
        topic: &'a str,
    ) -> impl Iterator<Item = (usize, Option<&'a str>, &'a str)> {
        let names = self
            .regex
            .group_info()
            .pattern_names(regex_automata::PatternID::ZERO);
        let captures = self.captures(topic);
        names.enumerate().skip(1).filter_map(move |(index, name)| {
            let group = captures.as_ref()?.get_group(index)?;
            Some((index, name, &topic[group.range()]))
        })
    }
}

impl Facts {
    /// Whether both patterns are written differently at most, and match the same topics.
    pub(super) fn same_form(&self, other: &Self) -> bool {
        self.form == other.form
    }

    /// The same for all patterns of the same form, and hardly ever for others.
    pub(super) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        fingerprint(&self.form, &mut hasher);
        hasher.finish()
    }

    /// What the automaton of all patterns is built from: matches whole topics only.
    pub(super) fn whole_topic(&self) -> Hir {
        whole_topic(self.form.clone())
    }

    /// Whether every topic matches that does not begin with `$`.
    pub(super) fn is_catch_all(&self) -> bool {
        let HirKind::Repetition(repetition) = self.form.kind() else {
            return false;
        };
        let HirKind::Class(Class::Unicode(class)) = repetition.sub.kind() else {
            return false;
        };
        let every = class
            .ranges()
            .iter()
            .any(|range| range.start() == '\0' && range.end() == char::MAX);
        every && repetition.min <= 1 && repetition.max.is_none()
    }
}

/// Matches where `hir` matches the whole text.
fn whole_topic(hir: Hir) -> Hir {
    Hir::concat(vec![Hir::look(Look::Start), hir, Hir::look(Look::End)])
}

/// Of a class only how many ranges it has: they can be many, and mostly are those of a well-known class.
fn fingerprint(hir: &Hir, hasher: &mut DefaultHasher) {
    std::mem::discriminant(hir.kind()).hash(hasher);
    match hir.kind() {
        HirKind::Empty => {}
        HirKind::Literal(literal) => literal.0.hash(hasher),
        HirKind::Class(Class::Unicode(class)) => class.ranges().len().hash(hasher),
        HirKind::Class(Class::Bytes(class)) => class.ranges().len().hash(hasher),
        HirKind::Look(look) => look.as_repr().hash(hasher),
        HirKind::Repetition(repetition) => {
            (repetition.min, repetition.max, repetition.greedy).hash(hasher);
            fingerprint(&repetition.sub, hasher);
        }
        HirKind::Capture(capture) => fingerprint(&capture.sub, hasher),
        HirKind::Concat(subs) | HirKind::Alternation(subs) => {
            subs.len().hash(hasher);
            subs.iter().for_each(|sub| fingerprint(sub, hasher));
        }
    }
}

/// The groups of a pattern. Group 0 is the whole topic.
#[derive(Debug)]
pub(super) struct Groups(Vec<(usize, Option<String>, Group)>);

/// A group.
#[derive(Debug, Clone, Copy)]
pub(super) struct Group {
    /// Whether it takes part in every match.
    pub(super) always: bool,
    /// The shortest text that it matches, in bytes.
    pub(super) minimum: usize,
}

impl Groups {
    fn of(hir: &Hir) -> Self {
        let whole = Group {
            always: true,
            // No topic is empty.
            minimum: hir.properties().minimum_len().unwrap_or(0).max(1),
        };
        let mut groups = vec![(0, None, whole)];
        collect(hir, true, &mut groups);
        groups.sort_by_key(|(index, _, _)| *index);
        Self(groups)
    }

    /// The group of that number or name, and its number.
    pub(super) fn find(&self, name: &str) -> Option<(usize, Group)> {
        let number = name.bytes().all(|byte| byte.is_ascii_digit());
        self.0
            .iter()
            .find(|(index, group_name, _)| {
                if number {
                    name.parse() == Ok(*index)
                } else {
                    group_name.as_deref() == Some(name)
                }
            })
            .map(|(index, _, group)| (*index, *group))
    }
}

/// In words: `2 groups: $1, ${site}`.
impl fmt::Display for Groups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let explicit = self.0.get(1..).unwrap_or_default();
        match explicit {
            [] => return f.write_str("none"),
            [_] => f.write_str("one: ")?,
            _ => write!(f, "{}: ", explicit.len())?,
        }
        for (number, (index, name, _)) in explicit.iter().enumerate() {
            let comma = if number > 0 { ", " } else { "" };
            match name {
                Some(name) => write!(f, "{comma}${{{name}}}")?,
                None => write!(f, "{comma}${index}")?,
            }
        }
        Ok(())
    }
}

/// Adds the groups in `hir`, which itself takes part in every match if `always`.
fn collect(hir: &Hir, always: bool, groups: &mut Vec<(usize, Option<String>, Group)>) {
    match hir.kind() {
        HirKind::Capture(capture) => {
            let group = Group {
                always,
                minimum: capture.sub.properties().minimum_len().unwrap_or(0),
            };
            let name = capture.name.as_deref().map(str::to_owned);
            groups.push((capture.index as usize, name, group));
            collect(&capture.sub, always, groups);
        }
        HirKind::Repetition(repetition) => {
            collect(&repetition.sub, always && repetition.min > 0, groups);
        }
        HirKind::Concat(subs) => subs.iter().for_each(|sub| collect(sub, always, groups)),
        HirKind::Alternation(subs) => subs.iter().for_each(|sub| collect(sub, false, groups)),
        HirKind::Empty | HirKind::Literal(_) | HirKind::Class(_) | HirKind::Look(_) => {}
    }
}

/// The pattern as written, and as it is understood.
pub(super) fn parse(text: &str) -> Result<(Ast, Hir), (Range<usize>, Problem)> {
    let bad = |span: &ast::Span, reason: String| {
        let problem = Problem::BadPattern(reason);
        (span.start.offset..span.end.offset, problem)
    };
    let ast = ast::parse::ParserBuilder::new()
        .nest_limit(NEST_LIMIT)
        .build()
        .parse(text)
        .map_err(|error| bad(error.span(), error.kind().to_string()))?;
    let hir = TranslatorBuilder::new()
        .dot_matches_new_line(true)
        .build()
        .translate(text, &ast)
        .map_err(|error| bad(error.span(), error.kind().to_string()))?;
    Ok((ast, hir))
}

/// Why no topic can match, as far as that is easily seen.
fn hopeless(hir: &Hir) -> Option<Problem> {
    let properties = hir.properties();
    if demands_forbidden(hir) {
        Some(Problem::DemandsForbidden)
    } else if properties.minimum_len().is_none() || properties.maximum_len() == Some(0) {
        Some(Problem::MatchesNothing)
    } else if properties.look_set_prefix().contains(Look::End) {
        Some(Problem::LeadingEndAnchor)
    } else {
        None
    }
}

/// Whether every match contains a character that no topic has.
fn demands_forbidden(hir: &Hir) -> bool {
    match hir.kind() {
        HirKind::Literal(literal) => literal.0.iter().any(|byte| b"+#\0".contains(byte)),
        HirKind::Capture(capture) => demands_forbidden(&capture.sub),
        HirKind::Repetition(repetition) => repetition.min > 0 && demands_forbidden(&repetition.sub),
        HirKind::Concat(subs) => subs.iter().any(demands_forbidden),
        HirKind::Alternation(subs) => subs.iter().all(demands_forbidden),
        HirKind::Empty | HirKind::Class(_) | HirKind::Look(_) => false,
    }
}

/// Whether every match begins with `$`.
fn begins_with_dollar(hir: &Hir) -> bool {
    match hir.kind() {
        HirKind::Literal(literal) => literal.0.first() == Some(&b'$'),
        HirKind::Capture(capture) => begins_with_dollar(&capture.sub),
        HirKind::Repetition(repetition) => {
            repetition.min > 0 && begins_with_dollar(&repetition.sub)
        }
        HirKind::Concat(subs) => subs
            .iter()
            .find(|sub| sub.properties().maximum_len() != Some(0))
            .is_some_and(begins_with_dollar),
        HirKind::Alternation(subs) => subs.iter().all(begins_with_dollar),
        HirKind::Empty | HirKind::Class(_) | HirKind::Look(_) => false,
    }
}

/// `hir` without groups, and without the anchors that whole-topic matching implies.
fn form(hir: &Hir) -> Hir {
    let bare = bare(hir);
    let HirKind::Concat(subs) = bare.kind() else {
        return bare;
    };
    let mut subs = subs.as_slice();
    while let [first, rest @ ..] = subs
        && matches!(first.kind(), HirKind::Look(Look::Start))
    {
        subs = rest;
    }
    while let [rest @ .., last] = subs
        && matches!(last.kind(), HirKind::Look(Look::End))
    {
        subs = rest;
    }
    Hir::concat(subs.to_vec())
}

/// `hir` without groups.
fn bare(hir: &Hir) -> Hir {
    match hir.kind() {
        HirKind::Capture(capture) => bare(&capture.sub),
        HirKind::Repetition(repetition) => Hir::repetition(repetition.with(bare(&repetition.sub))),
        HirKind::Concat(subs) => Hir::concat(subs.iter().map(bare).collect()),
        HirKind::Alternation(subs) => Hir::alternation(subs.iter().map(bare).collect()),
        HirKind::Empty | HirKind::Literal(_) | HirKind::Class(_) | HirKind::Look(_) => hir.clone(),
    }
}
