//! A topic filter with placeholders: how it is written, and whether a topic matches it for a client.
//!
//! What always holds: without placeholders, matching is MQTT 4.7 exactly (A4); matching takes one pass over the topic and
//! neither allocates nor locks. A placeholder's value never widens what an *allow* filter matches (A3): one that contains
//! `/`, `+` or `#`, or that would begin the topic with `$`, or that is missing, makes the filter match nothing. In a *deny*
//! filter the value stands for itself, and a missing one for any level, so that denying never gets weaker.

use std::ops::Range;

use super::Effect;
use crate::mqtt::{TopicError, TopicFilter};

/// Why a text is not a filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FilterProblem {
    /// No such placeholder; where it stands in the text.
    UnknownPlaceholder(Range<usize>),
    /// MQTT does not allow it.
    Illegal(TopicError),
}

/// A filter, ready to match.
#[derive(Debug)]
pub(super) struct Filter {
    /// As the file has it.
    written: Box<str>,
    effect: Effect,
    pieces: Box<[Piece]>,
    /// For clients without a user name, if that makes a difference.
    without_user: Option<Box<[Piece]>>,
    /// Whether no topic that begins with `$` matches.
    is_without_dollar: bool,
    has_placeholder: bool,
}

/// A part of a filter. Each matches in one way only, so that nothing is tried twice.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    /// This text, slashes included.
    Text(Box<str>),
    /// `%u`
    User,
    /// `%c`
    ClientId,
    /// `+`
    AnyLevel,
    /// `/#`: the levels below, and the level itself.
    Below,
    /// `#` alone.
    Everything,
}

/// The values of one client.
#[derive(Debug, Clone)]
pub(super) struct Values {
    user: Option<Value>,
    client_id: Value,
}

#[derive(Debug, Clone)]
struct Value {
    text: Box<str>,
    /// Has neither separator nor wildcard, so that it can stand in an allow filter.
    is_one_level: bool,
}

impl Value {
    fn new(text: &str) -> Self {
        Self {
            text: text.into(),
            is_one_level: !text.is_empty() && !text.contains(['/', '+', '#']),
        }
    }
}

impl Values {
    /// An empty name of a user is none.
    pub(super) fn new(user: Option<&str>, client_id: &str) -> Self {
        Self {
            user: user.filter(|user| !user.is_empty()).map(Value::new),
            client_id: Value::new(client_id),
        }
    }
}

impl Filter {
    /// Reads `text`, a filter of a rule with that effect.
    pub(super) fn new(text: &str, effect: Effect) -> Result<Self, Vec<FilterProblem>> {
        let tokens = tokens(text)?;
        // As MQTT sees it: a value stands for a character that means nothing.
        let plain: String = tokens
            .iter()
            .map(|token| match token {
                Token::Character(character) => *character,
                Token::User | Token::ClientId => 'x',
            })
            .collect();
        TopicFilter::new(plain).map_err(|error| vec![FilterProblem::Illegal(error)])?;
        let levels: Vec<&[Token]> = tokens
            .split(|token| *token == Token::Character('/'))
            .collect();
        let first = levels.first().and_then(|level| level.first());
        let is_without_dollar = match first {
            Some(Token::Character(first)) => *first != '$',
            // An allow filter does not take a value for it; a deny filter does.
            Some(Token::User | Token::ClientId) => effect == Effect::Allow,
            None => true,
        };
        let has_user = tokens.contains(&Token::User);
        Ok(Self {
            written: text.into(),
            effect,
            without_user: (has_user && effect == Effect::Deny).then(|| pieces(&levels, true)),
            pieces: pieces(&levels, false),
            is_without_dollar,
            has_placeholder: has_user || tokens.contains(&Token::ClientId),
        })
    }

    /// As the file has it.
    pub(super) fn written(&self) -> &str {
        &self.written
    }

    /// Whether it depends on the client.
    pub(super) fn has_placeholder(&self) -> bool {
        self.has_placeholder
    }

    /// Whether no topic that begins with `$` matches it, whoever the client is.
    pub(super) fn is_without_dollar(&self) -> bool {
        self.is_without_dollar
    }

    /// Whether `topic`, which is a legal topic name, matches for a client with these values.
    pub(super) fn matches(&self, topic: &str, values: &Values) -> bool {
        // 4.7.2-1 for wildcards; for what begins with a text it makes no difference.
        if self.is_without_dollar && topic.starts_with('$') {
            return false;
        }
        let pieces = match (&self.without_user, &values.user) {
            (Some(without_user), None) => without_user,
            _ => &self.pieces,
        };
        let mut rest = topic;
        for piece in pieces {
            let value = match piece {
                Piece::Text(text) => {
                    match rest.strip_prefix(&**text) {
                        Some(after) => rest = after,
                        None => return false,
                    }
                    continue;
                }
                Piece::AnyLevel => {
                    rest = &rest[rest.find('/').unwrap_or(rest.len())..];
                    continue;
                }
                Piece::Below => return rest.is_empty() || rest.starts_with('/'),
                Piece::Everything => return true,
                Piece::User => values.user.as_ref(),
                Piece::ClientId => Some(&values.client_id),
            };
            let fit = |value: &&Value| self.effect == Effect::Deny || value.is_one_level;
            match value
                .filter(fit)
                .and_then(|value| rest.strip_prefix(&*value.text))
            {
                Some(after) => rest = after,
                None => return false,
            }
        }
        rest.is_empty()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    Character(char),
    User,
    ClientId,
}

fn tokens(text: &str) -> Result<Vec<Token>, Vec<FilterProblem>> {
    let mut tokens = Vec::with_capacity(text.len());
    let mut unknown = Vec::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        if character != '%' {
            tokens.push(Token::Character(character));
            continue;
        }
        match characters.next() {
            Some((_, 'u')) => tokens.push(Token::User),
            Some((_, 'c')) => tokens.push(Token::ClientId),
            Some((_, '%')) => tokens.push(Token::Character('%')),
            other => {
                let end = other.map_or(text.len(), |(at, other)| at + other.len_utf8());
                unknown.push(FilterProblem::UnknownPlaceholder(at..end));
            }
        }
    }
    match unknown.is_empty() {
        true => Ok(tokens),
        false => Err(unknown),
    }
}

/// The pieces of a legal filter. A level with a user name that is missing stands for any level if `is_user_any`.
fn pieces(levels: &[&[Token]], is_user_any: bool) -> Box<[Piece]> {
    let mut pieces = Vec::new();
    let mut text = String::new();
    let mut push = |text: &mut String, piece: Option<Piece>| {
        if !text.is_empty() {
            pieces.push(Piece::Text(std::mem::take(text).into()));
        }
        pieces.extend(piece);
    };
    for (number, level) in levels.iter().enumerate() {
        match level {
            [Token::Character('#')] if number == 0 => {
                push(&mut text, Some(Piece::Everything));
                continue;
            }
            [Token::Character('#')] => {
                push(&mut text, Some(Piece::Below));
                continue;
            }
            _ => {}
        }
        if number > 0 {
            text.push('/');
        }
        if **level == [Token::Character('+')] || is_user_any && level.contains(&Token::User) {
            push(&mut text, Some(Piece::AnyLevel));
            continue;
        }
        for token in *level {
            match token {
                Token::Character(character) => text.push(*character),
                Token::User => push(&mut text, Some(Piece::User)),
                Token::ClientId => push(&mut text, Some(Piece::ClientId)),
            }
        }
    }
    push(&mut text, None);
    pieces.into()
}
