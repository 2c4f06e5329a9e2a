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
        let known = all.get_mut(name);
        let is_news = match known {
            Some(alarm) if alarm.text == text => {
                let is_due = now.duration_since(alarm.said) >= REPEAT;
                if is_due {
                    alarm.said = now;
                }
                is_due
            }
            Some(alarm) => {
                alarm.text.clone_from(&text);
                alarm.said = now;
                true
            }
            None => {
                let alarm = Alarm {
                    text: text.clone(),
                    since: now,
                    said: now,
                };
                all.insert(name.to_owned(), alarm);
                true
            }
        };
        drop(all);
        if is_news {
            tracing::error!(alarm = name, "{text}");
        }
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
        alarms.clear("users_file");
        alarms.clear("never raised");
        assert_eq!(alarms.standing().len(), 1);
    }
}
