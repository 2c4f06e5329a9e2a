//! The patterns of all rules in one automaton: which rule is the first to match a whole topic.
//!
//! What always holds: the answer is that of asking each pattern in file order; a topic that no rule matches costs about
//! as much with a thousand rules as with ten, because the automaton reads the topic once; time is linear in the topic
//! even when the automaton's cache is too small for it; memory is capped.

use regex_automata::meta::Regex;
use regex_automata::nfa::thompson::WhichCaptures;
use regex_automata::{Anchored, Input};
use regex_syntax::hir::Hir;

/// The largest compiled form of all patterns together, in bytes. A usual rule takes 3 KiB, one with `\w` or `\d` 60 KiB.
pub(super) const SIZE_LIMIT: usize = 128 << 20;
/// The cap of the lazily built automaton, in bytes per thread: the default of the crate `regex` (2 MiB) is little for a
/// thousand rules, of which one state alone can take tens of KiB.
const CACHE_LIMIT: usize = 8 << 20;

/// Finds the first matching rule.
#[derive(Debug)]
pub(super) struct Matcher {
    regex: Regex,
    /// The rule of each pattern of the automaton, in file order.
    rules: Vec<usize>,
}

/// The patterns together are larger than [`SIZE_LIMIT`].
#[derive(Debug)]
pub(super) struct TooLarge;

impl Matcher {
    /// Compiles `patterns`, each with its rule, in file order. Each must match whole topics only.
    pub(super) fn new(patterns: Vec<(usize, Hir)>) -> Result<Self, TooLarge> {
        let (rules, patterns): (Vec<usize>, Vec<Hir>) = patterns.into_iter().unzip();
        let config = Regex::config()
            .which_captures(WhichCaptures::Implicit)
            .nfa_size_limit(Some(SIZE_LIMIT))
            .hybrid_cache_capacity(CACHE_LIMIT)
            .onepass(false)
            .dfa(false);
        let regex = Regex::builder()
            .configure(config)
            .build_many_from_hir(&patterns)
            .map_err(|_| TooLarge)?;
        Ok(Self { regex, rules })
    }

    /// The first rule whose pattern matches the whole of `topic`.
    pub(super) fn first(&self, topic: &str) -> Option<usize> {
        // All patterns match from the beginning to the end or not at all, so of those that match the automaton prefers
        // the one that comes first.
        let input = Input::new(topic).anchored(Anchored::Yes);
        let found = self.regex.search_half(&input)?;
        self.rules.get(found.pattern().as_usize()).copied()
    }
}
