//! What one client may do.
//!
//! What always holds: the first rule for the client that matches decides (A1), and if none does, it is denied (A2); what
//! [`Permissions::decide`] names is what [`Permissions::allows`] goes by (A5). Deciding neither allocates nor locks.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use super::filter::Values;
use super::who::Who;
use super::{Effect, Rule, Rules};
use crate::mqtt::TopicName;

/// What a client wants to do with a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Publish to it.
    Publish,
    /// Subscribe to it.
    Subscribe,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Publish => "publish",
            Self::Subscribe => "subscribe",
        })
    }
}

/// Whether a client may, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision<'a> {
    /// There are no permissions to go by, and everything is allowed.
    Everything,
    /// A rule decides.
    Rule {
        /// Its number in the file, counted from 1.
        number: usize,
        /// Its line, counted from 1.
        line: usize,
        /// What it says.
        effect: Effect,
        /// Which of its filters matches, as written.
        filter: &'a str,
    },
    /// No rule matches, and so it is denied.
    NoRule,
}

impl Decision<'_> {
    /// Whether the client may.
    pub fn is_allowed(&self) -> bool {
        match self {
            Self::Everything => true,
            Self::Rule { effect, .. } => *effect == Effect::Allow,
            Self::NoRule => false,
        }
    }
}

/// What one client may do. Made once for a connection, and asked for each PUBLISH and each topic of a SUBSCRIBE.
#[derive(Clone)]
pub struct Permissions(Option<Box<OfClient>>);

#[derive(Clone)]
struct OfClient {
    /// Shared by all clients.
    rules: Arc<Rules>,
    has_user: bool,
    /// The rules that are for this client and not for all, in order: positions in `rules`.
    own: Box<[u32]>,
    values: Values,
}

impl fmt::Debug for Permissions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            None => f.write_str("Permissions::everything"),
            Some(client) => f
                .debug_struct("Permissions")
                .field("own_rules", &client.own.len())
                .finish_non_exhaustive(),
        }
    }
}

impl Permissions {
    /// Everything is allowed: for when there is no file with permissions.
    pub fn everything() -> Self {
        Self(None)
    }

    pub(super) fn new(rules: &Arc<Rules>, who: &Who<'_>) -> Self {
        let user = who.user.filter(|user| !user.is_empty());
        let who = Who { user, ..*who };
        let mut own = rules.index.candidates(&who);
        own.retain(|at| {
            rules
                .get(*at)
                .is_some_and(|rule| rule.clients.matches(&who))
        });
        Self(Some(Box::new(OfClient {
            rules: Arc::clone(rules),
            has_user: user.is_some(),
            own: own.into(),
            values: Values::new(user, who.client_id),
        })))
    }

    /// Whether the client may do that with `topic`. The cost grows with the number of rules for the client.
    pub fn allows(&self, action: Action, topic: &TopicName) -> bool {
        self.decide(action, topic).is_allowed()
    }

    /// The same with the reason.
    pub fn decide(&self, action: Action, topic: &TopicName) -> Decision<'_> {
        let Some(client) = &self.0 else {
            return Decision::Everything;
        };
        for rule in client.rules() {
            let filters = rule.filters(action);
            let found = filters
                .iter()
                .find(|filter| filter.matches(topic.as_str(), &client.values));
            if let Some(filter) = found {
                return Decision::Rule {
                    number: rule.number,
                    line: rule.line,
                    effect: rule.effect,
                    filter: filter.written(),
                };
            }
        }
        Decision::NoRule
    }
}

impl OfClient {
    /// The rules for the client, in the order of the file: two ordered lists become one.
    fn rules(&self) -> impl Iterator<Item = &Rule> {
        let (mut common, mut own) = (self.rules.index.common(self.has_user), &*self.own);
        std::iter::from_fn(move || {
            let next = match (common.split_first(), own.split_first()) {
                (None, None) => return None,
                (Some((next, rest)), None) => {
                    common = rest;
                    next
                }
                (None, Some((next, rest))) => {
                    own = rest;
                    next
                }
                (Some((of_all, rest)), Some((of_own, own_rest))) => match of_all.cmp(of_own) {
                    Ordering::Less | Ordering::Equal => {
                        common = rest;
                        of_all
                    }
                    Ordering::Greater => {
                        own = own_rest;
                        of_own
                    }
                },
            };
            self.rules.get(*next)
        })
    }
}
