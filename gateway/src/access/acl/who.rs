//! Which clients a rule is for, and finding the rules for a client without looking at all of them.
//!
//! What always holds: whatever the index leaves out would not have matched.

use std::collections::{BTreeSet, HashMap};

/// A client, as the session knows it after it is let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Who<'a> {
    /// The user name that was verified; `None` for an anonymous client. An empty one counts as none.
    pub user: Option<&'a str>,
    /// The client id; not empty.
    pub client_id: &'a str,
    /// The common name in the client's certificate, if it showed one that was verified.
    pub certificate: Option<&'a str>,
}

/// A name, or what names begin with.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Name {
    /// This name.
    Exact(Box<str>),
    /// All that begin so: `sensor-*`, and `*` for all.
    Prefix(Box<str>),
}

impl Name {
    fn matches(&self, text: &str) -> bool {
        match self {
            Self::Exact(name) => **name == *text,
            Self::Prefix(prefix) => text.starts_with(&**prefix),
        }
    }

    /// Whether every name that `other` matches is matched.
    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Exact(name), Self::Exact(other)) => name == other,
            (Self::Exact(_), Self::Prefix(_)) => false,
            (Self::Prefix(prefix), Self::Exact(other) | Self::Prefix(other)) => {
                other.starts_with(&**prefix)
            }
        }
    }

    fn is_any(&self) -> bool {
        matches!(self, Self::Prefix(prefix) if prefix.is_empty())
    }

    /// How few names it may match, roughly.
    fn narrowness(&self) -> usize {
        match self {
            Self::Exact(_) => usize::MAX,
            Self::Prefix(prefix) => prefix.len(),
        }
    }
}

/// The clients of a rule: all that is given must match, and each list is matched by one of its names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Clients {
    pub(super) user: Option<Vec<Name>>,
    /// The users of the rule's groups, together.
    pub(super) members: Option<Vec<Name>>,
    pub(super) client_id: Option<Vec<Name>>,
    pub(super) certificate: Option<Vec<Name>>,
}

fn any_matches(names: &Option<Vec<Name>>, text: Option<&str>) -> bool {
    match (names, text) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(names), Some(text)) => names.iter().any(|name| name.matches(text)),
    }
}

/// `None` stands for all.
fn covers(names: &[Name], others: &Option<Vec<Name>>) -> bool {
    others.as_ref().is_some_and(|others| {
        others
            .iter()
            .all(|other| names.iter().any(|name| name.covers(other)))
    })
}

impl Clients {
    pub(super) fn matches(&self, who: &Who<'_>) -> bool {
        any_matches(&self.user, who.user)
            && any_matches(&self.members, who.user)
            && any_matches(&self.client_id, Some(who.client_id))
            && any_matches(&self.certificate, who.certificate)
    }

    /// Whether it is certain that every client of `other` is one of these.
    pub(super) fn covers(&self, other: &Self) -> bool {
        let users = [&self.user, &self.members];
        users
            .into_iter()
            .flatten()
            .all(|names| covers(names, &other.user) || covers(names, &other.members))
            && self.client_id.as_ref().is_none_or(|names| {
                names.iter().any(Name::is_any) || covers(names, &other.client_id)
            })
            && self
                .certificate
                .as_ref()
                .is_none_or(|names| covers(names, &other.certificate))
    }

    /// Its lists, with what they are compared with.
    pub(super) fn lists(&self) -> impl Iterator<Item = (Key, &[Name])> {
        [
            (Key::User, &self.user),
            (Key::User, &self.members),
            (Key::ClientId, &self.client_id),
            (Key::Certificate, &self.certificate),
        ]
        .into_iter()
        .filter_map(|(key, names)| Some((key, names.as_deref()?)))
    }

    fn reach(&self) -> Reach {
        let lists: Vec<(Key, &[Name])> = self
            .lists()
            // Every client has an id.
            .filter(|(key, names)| *key != Key::ClientId || !names.iter().any(Name::is_any))
            .collect();
        match lists.as_slice() {
            [] => Reach::Everyone,
            [(Key::User, names)] if names.iter().any(Name::is_any) => Reach::EveryUser,
            _ => Reach::Some,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    Everyone,
    EveryUser,
    Some,
}

/// What a list of names is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Key {
    User,
    ClientId,
    Certificate,
}

/// The rules of each client.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// Rules for all clients, in order.
    everyone: Vec<u32>,
    /// These, and those for all that have a user name, in order.
    every_user: Vec<u32>,
    /// All others, each under its narrowest list.
    exact: HashMap<(Key, Box<str>), Vec<u32>>,
    prefixes: HashMap<(Key, Box<str>), Vec<u32>>,
    /// How long prefixes are, in bytes.
    lengths: BTreeSet<usize>,
}

impl Index {
    pub(super) fn new<'a>(rules: impl Iterator<Item = &'a Clients>) -> Self {
        let mut index = Self::default();
        for (number, clients) in (0..).zip(rules) {
            match clients.reach() {
                Reach::Everyone => {
                    index.everyone.push(number);
                    index.every_user.push(number);
                }
                Reach::EveryUser => index.every_user.push(number),
                Reach::Some => index.insert(number, clients),
            }
        }
        index
    }

    fn insert(&mut self, number: u32, clients: &Clients) {
        let narrowness =
            |names: &[Name]| names.iter().map(Name::narrowness).min().unwrap_or_default();
        let narrowest = clients.lists().max_by_key(|(_, names)| narrowness(names));
        let Some((key, names)) = narrowest else {
            return;
        };
        for name in names {
            let (map, text) = match name {
                Name::Exact(text) => (&mut self.exact, text),
                Name::Prefix(text) => {
                    self.lengths.insert(text.len());
                    (&mut self.prefixes, text)
                }
            };
            map.entry((key, text.clone())).or_default().push(number);
        }
    }

    /// The rules that are for every client like this one, in order.
    pub(super) fn common(&self, has_user: bool) -> &[u32] {
        match has_user {
            true => &self.every_user,
            false => &self.everyone,
        }
    }

    /// The other rules that may be for the client, in order.
    pub(super) fn candidates(&self, who: &Who<'_>) -> Vec<u32> {
        let texts = [
            (Key::User, who.user),
            (Key::ClientId, Some(who.client_id)),
            (Key::Certificate, who.certificate),
        ];
        let mut found = Vec::new();
        for (key, text) in texts {
            let Some(text) = text else { continue };
            found.extend(self.exact.get(&(key, text.into())).into_iter().flatten());
            let lengths = self.lengths.range(..=text.len());
            // A prefix ends between characters, or it is none of this text.
            for prefix in lengths.filter_map(|length| text.get(..*length)) {
                found.extend(
                    self.prefixes
                        .get(&(key, prefix.into()))
                        .into_iter()
                        .flatten(),
                );
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}
