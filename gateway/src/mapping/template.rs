//! Templates: text with references to the groups of a pattern (`$1`, `${1}`, `${name}`; `$$` is a dollar).
//!
//! What always holds: a [`Template`] refers only to groups that take part in every match of the pattern that it was
//! bound to, so that expanding it cannot fail.

use std::ops::Range;

use regex_automata::util::captures::Captures;

use super::pattern::Groups;
use super::problem::Problem;

/// A template bound to the groups of one pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Template {
    parts: Vec<Part>,
    /// No expansion is shorter, in bytes.
    minimum: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Group(usize),
}

/// A problem and the bytes of the template's text that it is about.
pub(super) type Found = (Range<usize>, Problem);

impl Template {
    /// Reads `text`; `groups` is `None` where there is no pattern to refer to. All problems are found at once.
    pub(super) fn bind(text: &str, groups: Option<&Groups>) -> Result<Self, Vec<Found>> {
        let mut template = Self {
            parts: Vec::new(),
            minimum: 0,
        };
        let mut found = Vec::new();
        for (at, piece) in pieces(text, |c| c.is_ascii_digit()) {
            match piece {
                Piece::Text(text) => template.push_text(text),
                Piece::Malformed => found.push((at, Problem::MalformedReference)),
                Piece::Reference(name) => match look_up(&text[at.clone()], name, groups) {
                    Ok((index, minimum)) => {
                        template.parts.push(Part::Group(index));
                        template.minimum = template.minimum.saturating_add(minimum);
                    }
                    Err(problem) => found.push((at, problem)),
                },
            }
        }
        if found.is_empty() {
            Ok(template)
        } else {
            Err(found)
        }
    }

    fn push_text(&mut self, text: &str) {
        self.minimum = self.minimum.saturating_add(text.len());
        match self.parts.last_mut() {
            Some(Part::Text(last)) => last.push_str(text),
            _ => self.parts.push(Part::Text(text.to_owned())),
        }
    }

    /// The text, if it is the same for every match.
    pub(super) fn constant(&self) -> Option<&str> {
        match self.parts.as_slice() {
            [] => Some(""),
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// No expansion is shorter than this, in bytes.
    pub(super) fn minimum(&self) -> usize {
        self.minimum
    }

    /// How long the expansion for `captures` in `topic` is, in bytes.
    pub(super) fn length(&self, topic: &str, captures: &Captures) -> usize {
        self.expanded(topic, captures).map(str::len).sum()
    }

    /// The text for `captures` in `topic`.
    pub(super) fn expand(&self, topic: &str, captures: &Captures) -> String {
        let mut text = String::with_capacity(self.length(topic, captures));
        text.extend(self.expanded(topic, captures));
        text
    }

    fn expanded<'a>(
        &'a self,
        topic: &'a str,
        captures: &'a Captures,
    ) -> impl Iterator<Item = &'a str> {
        self.parts.iter().map(move |part| match part {
            Part::Text(text) => text.as_str(),
            Part::Group(index) => captures
                .get_group(*index)
                .map_or("", |group| &topic[group.range()]),
        })
    }
}

/// A piece of a template's text.
pub(super) enum Piece<'t> {
    /// Itself; a doubled dollar comes as one.
    Text(&'t str),
    /// A reference to this name.
    Reference(&'t str),
    /// A `$` that begins nothing.
    Malformed,
}

/// Cuts `text` into its pieces, each with its bytes. A name without braces goes as far as its characters are `bare`.
pub(super) fn pieces(
    text: &str,
    bare: impl Fn(char) -> bool,
) -> impl Iterator<Item = (Range<usize>, Piece<'_>)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = text.get(at..).filter(|rest| !rest.is_empty())?;
        let (length, piece) = match rest.strip_prefix('$') {
            None => {
                let length = rest.find('$').unwrap_or(rest.len());
                (length, Piece::Text(&rest[..length]))
            }
            Some(after) if after.starts_with('$') => (2, Piece::Text("$")),
            Some(after) => match reference(after, &bare) {
                None => (1, Piece::Malformed),
                Some((name, length)) => (1 + length, Piece::Reference(name)),
            },
        };
        let range = at..at + length;
        at += length;
        Some((range, piece))
    })
}

/// The name of the reference whose text after the `$` begins `after`, and how many bytes of `after` it takes.
fn reference(after: &str, bare: impl Fn(char) -> bool) -> Option<(&str, usize)> {
    if let Some(braced) = after.strip_prefix('{') {
        let end = braced.find('}')?;
        let name = &braced[..end];
        // A name with another reference in it is a forgotten brace.
        let sound = !name.is_empty() && !name.contains(['$', '{']);
        sound.then_some((name, end + 2))
    } else {
        let end = after.find(|c: char| !bare(c)).unwrap_or(after.len());
        (end > 0).then(|| (&after[..end], end))
    }
}

/// The index of the group called `name` and the shortest text it can match, in bytes.
fn look_up(
    reference: &str,
    name: &str,
    groups: Option<&Groups>,
) -> Result<(usize, usize), Problem> {
    let reference = reference.to_owned();
    let Some(groups) = groups else {
        return Err(Problem::NoPattern { reference });
    };
    match groups.find(name) {
        None => Err(Problem::UnknownGroup {
            reference,
            groups: groups.to_string(),
        }),
        Some((_, group)) if !group.always => Err(Problem::OptionalGroup { reference }),
        Some((index, group)) => Ok((index, group.minimum)),
    }
}
