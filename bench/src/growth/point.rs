//! What grows, and what is measured at each of its values.
//!
//! Always holds: the points of one dimension differ in nothing but the dimension's own number and what must follow from it;
//! each point has a topic in Iggy and a gateway of its own, so none meets what another has left in memory.

use std::fmt::Write as _;

use serde::Serialize;

use crate::stack::STREAM;
use crate::stack::topics::Topic;

/// Publishers where their number is not what grows.
const CLIENTS: u16 = 50;
/// MQTT topics where their number is not what grows.
const TOPICS: u32 = 1_000;
/// The rules that take what is published, one for each last digit of a publisher's number.
pub(super) const MATCHING_RULES: u32 = 10;

/// What grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Dimension {
    /// Publishers, with as many messages on the way of all together.
    Connections,
    /// Rules of the topic map.
    Rules,
    /// MQTT topics that are published to.
    Topics,
    /// Partitions of the topic in Iggy.
    Partitions,
    /// Subscribers of one topic.
    Subscribers,
}

impl Dimension {
    /// As it is written in the names of topics and files.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::Rules => "rules",
            Self::Topics => "topics",
            Self::Partitions => "partitions",
            Self::Subscribers => "subscribers",
        }
    }

    /// What its numbers count.
    pub(super) fn axis(self) -> &'static str {
        match self {
            Self::Connections => "publishers",
            Self::Rules => "rules in the topic map",
            Self::Topics => "MQTT topics",
            Self::Partitions => "partitions",
            Self::Subscribers => "subscribers",
        }
    }

    /// What is counted at each point.
    pub(super) fn counted(self) -> &'static str {
        match self {
            Self::Subscribers => "copy",
            _ => "message",
        }
    }

    /// The plural of [`Dimension::counted`].
    pub(super) fn counted_many(self) -> &'static str {
        match self {
            Self::Subscribers => "copies",
            _ => "messages",
        }
    }
}

/// How much is on the way at a time.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct OnTheWay {
    /// Messages of all publishers together.
    pub(crate) published: u16,
    /// Messages to the subscribers.
    pub(crate) delivered: u16,
}

/// One value of one dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Point {
    /// What grows.
    pub(crate) dimension: Dimension,
    /// How far.
    pub(crate) value: u16,
}

/// What the clients do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Load {
    /// They publish.
    Publish {
        /// How many there are.
        clients: u16,
        /// Messages on the way of each.
        window: u16,
        /// MQTT topics of each.
        topics: u32,
    },
    /// They are subscribers of one topic, and there is one publisher.
    Deliver {
        /// How many there are.
        subscribers: u16,
        /// Messages on the way.
        window: u16,
    },
}

impl Point {
    /// Of its topic in Iggy, and the first level of its MQTT topics.
    pub(super) fn name(self) -> String {
        format!("{}-{}", self.dimension.name(), self.value)
    }

    /// Its topic in Iggy. Nothing waits for a disk: what grows is to be seen, not what the disk does meanwhile.
    pub(super) fn topic(self) -> Topic {
        Topic {
            name: self.name(),
            partitions: match self.dimension {
                Dimension::Partitions => u32::from(self.value),
                _ => 1,
            },
            persisted: false,
        }
    }

    /// What its clients do.
    pub(super) fn load(self, on_the_way: OnTheWay) -> Load {
        let clients = match self.dimension {
            Dimension::Connections => self.value.max(1),
            Dimension::Subscribers => {
                return Load::Deliver {
                    subscribers: self.value,
                    window: on_the_way.delivered,
                };
            }
            _ => CLIENTS,
        };
        let topics = match self.dimension {
            Dimension::Topics => u32::from(self.value),
            _ => TOPICS,
        };
        Load::Publish {
            clients,
            window: (on_the_way.published / clients).max(1),
            topics: (topics / u32::from(clients)).max(1),
        }
    }

    /// The topic map. A message goes to the partition of its MQTT topic. Rules that take nothing stand before those that
    /// do, so that whoever tried them in turn would try all of them.
    pub(super) fn topic_map(self) -> String {
        let name = self.name();
        let topic = self.topic();
        let patterns: Vec<String> = match self.dimension {
            Dimension::Rules => {
                let matching = MATCHING_RULES.min(self.value.into());
                let idle = (matching..self.value.into())
                    .map(|number| format!("{name}/site-{number}/([^/]+)/([0-9]+)"));
                let used = (0..matching).map(|digit| format!("{name}/[0-9]*{digit}(/[0-9]+)?"));
                idle.chain(used).collect()
            }
            _ => vec![format!("{name}/.*")],
        };
        let mut map = "on_unmatched = 'refuse'\n".to_owned();
        for pattern in patterns {
            // Writing to text cannot fail.
            let _ = write!(
                map,
                "\n[[rule]]\n\
                 mqtt_topic = '{pattern}'\n\
                 stream = '{STREAM}'\n\
                 topic = '{name}'\n\
                 partition_key = '$0'\n\
                 partitions = {partitions}\n\
                 durability = 'commit'\n",
                partitions = topic.partitions,
            );
        }
        map
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ON_THE_WAY: OnTheWay = OnTheWay {
        published: 1_000,
        delivered: 64,
    };

    fn load(dimension: Dimension, value: u16) -> Load {
        Point { dimension, value }.load(ON_THE_WAY)
    }

    #[test]
    fn connections_share_what_is_on_the_way_and_the_topics() {
        for (clients, window, topics) in [(1, 1_000, 1_000), (50, 20, 20), (1_000, 1, 1)] {
            let expected = Load::Publish {
                clients,
                window,
                topics,
            };
            assert_eq!(load(Dimension::Connections, clients), expected);
        }
        // More publishers than messages on the way: one each is the least.
        let expected = Load::Publish {
            clients: 2_000,
            window: 1,
            topics: 1,
        };
        assert_eq!(load(Dimension::Connections, 2_000), expected);
    }

    #[test]
    fn nothing_but_the_topics_grows_with_topics_and_nothing_at_all_with_rules_and_partitions() {
        let base = load(Dimension::Rules, 10);
        assert_eq!(load(Dimension::Rules, 1_000), base);
        assert_eq!(load(Dimension::Partitions, 16), base);
        assert_eq!(load(Dimension::Topics, 1_000), base);
        let expected = Load::Publish {
            clients: CLIENTS,
            window: 20,
            topics: 200,
        };
        assert_eq!(load(Dimension::Topics, 10_000), expected);
    }

    #[test]
    fn subscribers_are_the_only_ones_who_get_something() {
        let expected = Load::Deliver {
            subscribers: 200,
            window: 64,
        };
        assert_eq!(load(Dimension::Subscribers, 200), expected);
    }

    #[test]
    fn a_map_has_as_many_rules_as_its_point_and_ten_of_them_at_the_end_take_what_is_published() {
        let rules = |dimension, value| -> Vec<String> {
            Point { dimension, value }
                .topic_map()
                .lines()
                .filter(|line| line.starts_with("mqtt_topic"))
                .map(str::to_owned)
                .collect()
        };
        let few = rules(Dimension::Rules, 10);
        let many = rules(Dimension::Rules, 100);
        assert_eq!((few.len(), many.len()), (10, 100));
        let last = |rule: &str| rule.rsplit_once("[0-9]*").map(|(_, end)| end.to_owned());
        let ends: Vec<_> = few.iter().map(|rule| last(rule)).collect();
        assert!(ends.iter().all(Option::is_some));
        assert_eq!(
            many[90..].iter().map(|rule| last(rule)).collect::<Vec<_>>(),
            ends
        );
        assert!(many[..90].iter().all(|rule| rule.contains("/site-")));
        assert_eq!(rules(Dimension::Partitions, 16).len(), 1);
    }

    #[test]
    fn only_the_dimension_of_partitions_has_more_than_one() {
        let partitions = |dimension| {
            let point = Point {
                dimension,
                value: 16,
            };
            point.topic().partitions
        };
        assert_eq!(partitions(Dimension::Partitions), 16);
        assert_eq!(partitions(Dimension::Rules), 1);
    }
}
