//! Rules that never decide anything, because earlier ones always do.
//!
//! What always holds: what is reported is certain: an earlier rule for the same or more clients has the same filter, or
//! `#`. What is not certain, or would take too long to find out, is not reported.

use std::collections::HashMap;
use std::ops::Range;

use super::filter::Filter;
use super::permissions::Action;
use super::problem::AclProblem;
use super::who::{Key, Name};
use super::{Effect, Rule};

/// How many pairs of rules are compared at most. Files of some thousand rules need far fewer: pairs whose names or filters
/// differ are not even looked at.
const MAX_COMPARISONS: usize = 2_000_000;

const EVERYTHING: &str = "#";

/// A rule and where it and its filters stand.
pub(super) struct Placed {
    pub(super) rule: Rule,
    pub(super) span: Range<usize>,
    pub(super) publish: Vec<Range<usize>>,
    pub(super) subscribe: Vec<Range<usize>>,
}

impl Placed {
    fn filters(&self) -> impl Iterator<Item = (Action, &Filter, &Range<usize>)> {
        let of = |action, spans| {
            let filters = self.rule.filters(action).iter();
            filters
                .zip(spans)
                .map(move |(filter, span)| (action, filter, span))
        };
        of(Action::Publish, &self.publish).chain(of(Action::Subscribe, &self.subscribe))
    }
}

/// Something that never decides.
pub(super) struct Dead {
    /// The number of the rule, counted from 1.
    pub(super) number: usize,
    pub(super) span: Range<usize>,
    /// The key that it is about; `None` for the rule.
    pub(super) action: Option<Action>,
    pub(super) problem: AclProblem,
}

/// What never decides in `rules`, which are in the order of the file.
pub(super) fn dead(rules: &[Placed]) -> Vec<Dead> {
    let mut earlier = Earlier::default();
    let mut dead = Vec::new();
    for (at, placed) in rules.iter().enumerate() {
        let covered: Vec<_> = placed
            .filters()
            .filter_map(|(action, filter, span)| {
                let by = earlier.covering(rules, placed, action, filter)?;
                Some((action, span, &rules[by].rule))
            })
            .collect();
        let all = covered.len() == placed.filters().count();
        match covered.first() {
            Some((_, _, by)) if all => dead.push(Dead {
                number: placed.rule.number,
                span: placed.span.clone(),
                action: None,
                problem: AclProblem::NeverReached { earlier: by.number },
            }),
            _ => {
                let opposite = covered
                    .into_iter()
                    .filter(|(_, _, by)| by.effect != placed.rule.effect);
                dead.extend(opposite.map(|(action, span, by)| Dead {
                    number: placed.rule.number,
                    span: span.clone(),
                    action: Some(action),
                    problem: AclProblem::Overruled {
                        earlier: by.number,
                        effect: by.effect,
                    },
                }));
            }
        }
        earlier.add(at, placed);
    }
    dead
}

/// The rules before the one that is looked at, by action and filter.
#[derive(Default)]
struct Earlier<'r> {
    /// The first with that name.
    named: HashMap<(Action, &'r str, Key, &'r str), usize>,
    /// Those that are for all clients, or for names that are not all written out.
    wide: HashMap<(Action, &'r str), Vec<usize>>,
    comparisons: usize,
}

impl<'r> Earlier<'r> {
    fn add(&mut self, at: usize, placed: &'r Placed) {
        let clients = &placed.rule.clients;
        let is_wide = clients
            .lists()
            .all(|(_, names)| names.iter().any(|name| matches!(name, Name::Prefix(_))));
        for (action, filter, _) in placed.filters() {
            let filter = filter.written();
            if is_wide {
                self.wide.entry((action, filter)).or_default().push(at);
            }
            for (key, names) in clients.lists() {
                for name in names {
                    if let Name::Exact(name) = name {
                        self.named.entry((action, filter, key, name)).or_insert(at);
                    }
                }
            }
        }
    }

    /// An earlier rule that always decides before `filter` of `placed`.
    fn covering(
        &mut self,
        rules: &[Placed],
        placed: &Placed,
        action: Action,
        filter: &Filter,
    ) -> Option<usize> {
        let (clients, effect) = (&placed.rule.clients, placed.rule.effect);
        let mut compared = 0;
        let mut covers = |at: usize| {
            compared += 1;
            let by = &rules[at].rule;
            // An allow filter with a placeholder matches nothing for some values, the same deny filter does.
            let is_weaker =
                filter.has_placeholder() && by.effect == Effect::Allow && effect == Effect::Deny;
            let has_same = by
                .filters(action)
                .iter()
                .any(|earlier| earlier.written() == filter.written());
            let matches_more = has_same && !is_weaker
                || filter.is_without_dollar()
                    && by
                        .filters(action)
                        .iter()
                        .any(|earlier| earlier.written() == EVERYTHING);
            matches_more && by.clients.covers(clients)
        };
        let mut found = None;
        for text in [filter.written(), EVERYTHING] {
            let wide = self.wide.get(&(action, text)).into_iter().flatten();
            let room = MAX_COMPARISONS.saturating_sub(self.comparisons);
            found = wide.copied().take(room).find(|at| covers(*at));
            for (key, names) in clients.lists() {
                for name in names {
                    if found.is_none()
                        && let Name::Exact(name) = name
                        && let Some(at) = self.named.get(&(action, text, key, name))
                        && covers(*at)
                    {
                        found = Some(*at);
                    }
                }
            }
            if found.is_some() {
                break;
            }
        }
        self.comparisons += compared;
        found
    }
}
