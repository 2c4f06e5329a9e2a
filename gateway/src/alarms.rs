//! What somebody has to see to: conditions that last until they are mended, each under a name.
//!
//! What always holds: an alarm is in the log when it is raised, when its text changes, again now and then while it stands,
//! and when it is over; which alarms stand can be asked at any time.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tokio::time::{Duration, Instant};

/// How often the log repeats an alarm that stands.
const REPEAT: Duration = Duration::from_secs(600);

/// See the module.
#[derive(Debug, Default)]
pub struct Alarms(Mutex<BTreeMap<String, Alarm>>);

/// An alarm that stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alarm {
    /// What is wrong, and what to do.
    pub text: String,
    /// Since when.
    pub since: Instant,
    said: Instant,
}

impl Alarms {
    /// `name` is not as it should be.
    pub fn raise(&self, name: &str, text: String, now: Instant) {
        let mut all = self.0.lock();
        if all.get(name).is_some_and(|alarm| alarm.text == text) {
            return;
        }
        tracing::error!(alarm = name, "{text}");
        let since = all.get(name).map_or(now, |alarm| alarm.since);
        let alarm = Alarm {
            text,
            since,
            said: now,
        };
        all.insert(name.to_owned(), alarm);
    }

    /// Says again which alarms stand, those of which nothing was said for ten minutes. To be called now and then; gives how
    /// many were said.
    pub fn repeat(&self, now: Instant) -> usize {
        let mut all = self.0.lock();
        let due = all
            .iter_mut()
            .filter(|(_, alarm)| now.duration_since(alarm.said) >= REPEAT);
        let mut count = 0;
        for (name, alarm) in due {
            tracing::error!(alarm = name, "still: {}", alarm.text);
            alarm.said = now;
            count += 1;
        }
        count
    }

    /// `name` is as it should be.
    pub fn clear(&self, name: &str) {
        if self.0.lock().remove(name).is_some() {
            tracing::info!(alarm = name, "the alarm is over");
        }
    }

    /// Those that stand, by their names.
    pub fn standing(&self) -> Vec<(String, Alarm)> {
        let all = self.0.lock();
        all.iter()
            .map(|(name, alarm)| (name.clone(), alarm.clone()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_alarm_stands_from_when_it_was_first_raised_until_it_is_cleared() {
        let (alarms, start) = (Alarms::default(), Instant::now());
        alarms.raise("users_file", "line 3".to_owned(), start);
        alarms.raise("users_file", "line 4".to_owned(), start + REPEAT);
        alarms.raise("acl_file", "empty".to_owned(), start);
        let standing = alarms.standing();
        let texts: Vec<_> = standing
            .iter()
            .map(|(name, alarm)| (name.as_str(), alarm.text.as_str()))
            .collect();
        assert_eq!(texts, [("acl_file", "empty"), ("users_file", "line 4")]);
        assert!(standing.iter().all(|(_, alarm)| alarm.since == start));
        let half = REPEAT / 2;
        assert_eq!(alarms.repeat(start + half), 0);
        assert_eq!(
            alarms.repeat(start + REPEAT),
            1,
            "of the other something was said just now"
        );
        assert_eq!(alarms.repeat(start + REPEAT + half), 0);
        assert_eq!(alarms.repeat(start + 2 * REPEAT), 2);
        alarms.clear("users_file");
        alarms.clear("never raised");
        assert_eq!(alarms.standing().len(), 1);
    }
}
