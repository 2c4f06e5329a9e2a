//! Patterns: one regular expression each, and what can be known about all its matches without a topic.
//!
//! What always holds: a [`Pattern`] matches whole topics only, whatever anchors, flags or comments its text has; time is
//! linear in the topic; memory is capped. What is said about every match errs on the side of saying less.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use regex::{Captures, Regex, RegexBuilder};
use regex_syntax::ast::{self, Ast};
use regex_syntax::hir::{Class, Hir, HirKind, Look, translate::TranslatorBuilder};

use super::report::{Problem, Warning};

/// The largest compiled pattern, in bytes; also the cap of its lazily built automaton, per thread.
const SIZE_LIMIT: usize = 1 << 20;
/// How deep a pattern may nest. Far below the default of the crate `regex` (250), which sees one level more.
const NEST_LIMIT: u32 = 100;

/// A compiled pattern.
#[derive(Debug, Clone)]
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
        let (ast, hir, comment_at_end) = parse(text)?;
        if let Some(problem) = hopeless(&hir) {
            return Err((whole, problem));
        }
        // `text` alone is well formed, so its groups and flags end inside the parentheses. Only a comment (flag x) could
        // swallow them; with that flag the line feed that ends the comment matches nothing.
        let line_feed = if comment_at_end { "\n" } else { "" };
        let regex = RegexBuilder::new(&format!(r"\A(?:{text}{line_feed})\z"))
            .dot_matches_new_line(true)
            .size_limit(SIZE_LIMIT)
            .dfa_size_limit(SIZE_LIMIT)
            .build()
            .map_err(|error| {
                let problem = match error {
                    regex::Error::CompiledTooBig(limit) => Problem::PatternTooLarge { limit },
                    other => Problem::BadPattern(other.to_string()),
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

    /// Whether the whole of `topic` matches.
    pub(super) fn matches(&self, topic: &str) -> bool {
        self.regex.is_match(topic)
    }

    /// The groups, if the whole of `topic` matches.
    pub(super) fn captures<'t>(&self, topic: &'t str) -> Option<Captures<'t>> {
        self.regex.captures(topic)
    }
}

impl Facts {
    /// Whether both patterns are written differently at most, and match the same topics.
    pub(super) fn same_form(&self, other: &Self) -> bool {
        self.form == other.form
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

/// The pattern as the crate `regex` will see it, and whether a comment runs to its end.
fn parse(text: &str) -> Result<(Ast, Hir, bool), (Range<usize>, Problem)> {
    let range = |span: &ast::Span| span.start.offset..span.end.offset;
    let parsed = ast::parse::ParserBuilder::new()
        .nest_limit(NEST_LIMIT)
        .build()
        .parse_with_comments(text)
        .map_err(|error| {
            let problem = Problem::BadPattern(error.kind().to_string());
            (range(error.span()), problem)
        })?;
    let hir = TranslatorBuilder::new()
        .dot_matches_new_line(true)
        .build()
        .translate(text, &parsed.ast)
        .map_err(|error| {
            let problem = Problem::BadPattern(error.kind().to_string());
            (range(error.span()), problem)
        })?;
    let comment_at_end = parsed
        .comments
        .iter()
        .any(|comment| comment.span.end.offset == text.len());
    Ok((parsed.ast, hir, comment_at_end))
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

/// What compiles but may not be meant.
fn doubts(text: &str, ast: &Ast) -> Vec<(Range<usize>, Warning)> {
    let mut visitor = Doubts {
        ascii: false,
        found: Vec::new(),
    };
    let Ok(()) = ast::visit(ast, &mut visitor);
    let mut found = visitor.found;
    if visitor.ascii {
        found.clear();
    }
    let slashes = text
        .match_indices("/+")
        .map(|(at, part)| (at..at + part.len(), Warning::LooksLikeWildcard));
    found.extend(slashes);
    found
}

/// Collects `\d` and `\w`, and whether the flag `-u` is somewhere: then these may be ASCII only.
struct Doubts {
    ascii: bool,
    found: Vec<(Range<usize>, Warning)>,
}

impl Doubts {
    fn class(&mut self, class: &ast::ClassPerl) {
        let warning = match (&class.kind, class.negated) {
            (ast::ClassPerlKind::Digit, false) => Warning::UnicodeClass {
                class: r"\d",
                what: "digits",
                instead: "[0-9]",
            },
            (ast::ClassPerlKind::Word, false) => Warning::UnicodeClass {
                class: r"\w",
                what: "letters and digits",
                instead: "[0-9A-Za-z_]",
            },
            _ => return,
        };
        let span = class.span.start.offset..class.span.end.offset;
        self.found.push((span, warning));
    }

    fn flags(&mut self, flags: &ast::Flags) {
        self.ascii |= flags.flag_state(ast::Flag::Unicode) == Some(false);
    }
}

impl ast::Visitor for &mut Doubts {
    type Output = ();
    type Err = std::convert::Infallible;

    fn finish(self) -> Result<(), Self::Err> {
        Ok(())
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), Self::Err> {
        match ast {
            Ast::ClassPerl(class) => self.class(class),
            Ast::Flags(set) => self.flags(&set.flags),
            Ast::Group(group) => {
                if let Some(flags) = group.flags() {
                    self.flags(flags);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn visit_class_set_item_pre(&mut self, item: &ast::ClassSetItem) -> Result<(), Self::Err> {
        if let ast::ClassSetItem::Perl(class) = item {
            self.class(class);
        }
        Ok(())
    }
}
