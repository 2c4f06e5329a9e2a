//! Alternation, and what can be said of repeated figures.
//!
//! Always holds: in each round every subject is measured once, in the same order, so a machine that becomes slower or faster
//! meets all of them; ratios are formed within a round and only then summed up; a subject's ratio to itself in the round
//! before is the noise below which a ratio says nothing.

use serde::Serialize;

/// Measures `subjects` in turn, `rounds` times, after one round that is thrown away. Row R of the result holds what each
/// subject gave in round R.
///
/// # Errors
/// The first error of a subject.
pub(crate) fn alternate<T, E>(
    rounds: usize,
    subjects: &mut [&mut dyn FnMut() -> Result<T, E>],
) -> Result<Vec<Vec<T>>, E> {
    let mut rows = Vec::with_capacity(rounds);
    for round in 0..=rounds {
        let mut row = Vec::with_capacity(subjects.len());
        for measure in subjects.iter_mut() {
            row.push(measure()?);
        }
        if round > 0 {
            rows.push(row);
        }
    }
    Ok(rows)
}

/// The smallest, the middle and the largest of some figures.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Spread {
    /// The smallest.
    pub(crate) min: f64,
    /// The middle one; the mean of the two in the middle when their number is even.
    pub(crate) median: f64,
    /// The largest.
    pub(crate) max: f64,
}

impl Spread {
    /// Of `figures`; nothing when there are none.
    pub(crate) fn of(figures: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = figures.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let half = sorted.len() / 2;
        let upper = *sorted.get(half)?;
        let median = match sorted.len() % 2 {
            0 => f64::midpoint(*sorted.get(half - 1)?, upper),
            _ => upper,
        };
        Some(Self {
            min: *sorted.first()?,
            median,
            max: *sorted.last()?,
        })
    }

    /// Of the ratios of `figures` to `base`, round by round.
    pub(crate) fn of_ratios(figures: &[f64], base: &[f64]) -> Option<Self> {
        Self::of(
            figures
                .iter()
                .zip(base)
                .map(|(figure, base)| figure / base)
                .filter(|ratio| ratio.is_finite()),
        )
    }

    /// Of the ratios of each of `figures` to the one of the round before.
    pub(crate) fn of_repeats(figures: &[f64]) -> Option<Self> {
        Self::of_ratios(figures.get(1..)?, figures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn subjects_take_turns_and_the_first_round_is_thrown_away() {
        let order = RefCell::new(String::new());
        let count = RefCell::new(0);
        let measure = |name: char| {
            order.borrow_mut().push(name);
            *count.borrow_mut() += 1;
            Ok::<_, ()>(*count.borrow())
        };
        let rows = alternate(2, &mut [&mut || measure('A'), &mut || measure('B')]).unwrap();
        assert_eq!(order.into_inner(), "ABABAB");
        assert_eq!(rows, [[3, 4], [5, 6]]);
    }

    #[test]
    fn an_error_ends_the_alternation() {
        let mut calls = 0;
        let result = alternate::<(), _>(
            5,
            &mut [&mut || {
                calls += 1;
                Err("broken")
            }],
        );
        assert_eq!((result, calls), (Err("broken"), 1));
    }

    #[test]
    fn the_median_is_the_middle_of_the_sorted_figures() {
        let spread = |min, median, max| Some(Spread { min, median, max });
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), spread(1.0, 2.0, 3.0));
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]), spread(1.0, 2.5, 4.0));
        assert_eq!(Spread::of([7.0]), spread(7.0, 7.0, 7.0));
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn ratios_are_of_the_same_round_and_repeats_of_neighbouring_rounds() {
        let spread = |min, median, max| Some(Spread { min, median, max });
        assert_eq!(
            Spread::of_ratios(&[2.0, 40.0, 12.0], &[1.0, 10.0, 4.0]),
            spread(2.0, 3.0, 4.0)
        );
        assert_eq!(
            Spread::of_ratios(&[2.0, 1.0], &[1.0, 0.0]),
            spread(2.0, 2.0, 2.0)
        );
        assert_eq!(Spread::of_repeats(&[1.0, 2.0, 1.0]), spread(0.5, 1.25, 2.0));
        assert_eq!(Spread::of_repeats(&[1.0]), None);
        assert_eq!(Spread::of_repeats(&[]), None);
    }
}
