//! What was refused lately, and which connections the gateway closed: in the log, and kept for whoever shows it.
//!
//! What always holds: a line of the log and an entry here are made together or not at all, under one limit, so that a flood
//! costs nothing and both say the same; at most `MOST` entries of `LONGEST` bytes a text are kept. No payload, password or
//! token is in them.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::SystemTime;

use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::field::display;

use crate::delivery::ConnectionId;
use crate::limited::Limited;
use crate::mqtt::ClientId;

/// The most entries.
const MOST: usize = 200;
/// The most bytes of a text of somebody else's.
const LONGEST: usize = 200;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A CONNECT was refused, or a handshake before it.
    Connect,
    /// A PUBLISH was refused.
    Publish,
    /// A SUBSCRIBE was refused.
    Subscribe,
    /// A client broke the protocol.
    Protocol,
    /// A connection was closed for another reason.
    Closed,
    /// A subscriber was closed because it cost the others too much.
    Evicted,
}

impl Kind {
    /// For the status page.
    pub fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Publish => "publish",
            Self::Subscribe => "subscribe",
            Self::Protocol => "protocol",
            Self::Closed => "closed",
            Self::Evicted => "evicted",
        }
    }

    /// Whether somebody should look at it: a message or a device is not served as it wants to be. Otherwise it is part of the
    /// life of a gateway on a network.
    fn is_warning(self) -> bool {
        matches!(self, Self::Publish | Self::Protocol | Self::Evicted)
    }
}

/// Which connection, as far as that is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Origin {
    /// Where it connects from.
    pub peer: Option<SocketAddr>,
    /// The listener that it came by.
    pub listener: Option<SocketAddr>,
    /// The number of its connection.
    pub connection: Option<ConnectionId>,
}

impl Origin {
    /// As this one, of a client that is known.
    pub fn of<'a>(self, client: &'a ClientId) -> Whom<'a> {
        Whom {
            client: Some(client.as_str()),
            origin: self,
        }
    }
}

impl From<Origin> for Whom<'_> {
    fn from(origin: Origin) -> Self {
        Self {
            client: None,
            origin,
        }
    }
}

/// Whom it happened to.
#[derive(Debug, Clone, Copy, Default)]
pub struct Whom<'a> {
    /// The client id, if it is known.
    pub client: Option<&'a str>,
    /// Its connection.
    pub origin: Origin,
}

/// Something that was refused, or a connection that was closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// When.
    pub at: SystemTime,
    /// What.
    pub kind: Kind,
    /// The client id, if it is known.
    pub client: Option<String>,
    /// Its connection.
    pub origin: Origin,
    /// The MQTT topic or filter.
    pub topic: Option<String>,
    /// Why.
    pub reason: String,
    /// How many like it were left out since the one before.
    pub left_out: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Recent(Mutex<VecDeque<Entry>>);

impl Recent {
    /// Says in the log that `what` happened, and keeps it, if `limited` allows a line now. The texts are made only then.
    pub fn note<R: ToString>(
        &self,
        limited: &Limited,
        kind: Kind,
        whom: Whom<'_>,
        topic: Option<&str>,
        what: &str,
        reason: impl FnOnce() -> R,
    ) {
        let Some(left_out) = limited.allow(Instant::now()) else {
            return;
        };
        let Whom { client, origin } = whom;
        let Origin {
            peer,
            listener,
            connection,
        } = origin;
        let reason = reason().to_string();
        let (shown_peer, shown_listener) = (peer.map(display), listener.map(display));
        let id = connection.map(|connection| connection.0);
        if kind.is_warning() {
            tracing::warn!(
                client,
                peer = shown_peer,
                listener = shown_listener,
                connection = id,
                mqtt_topic = topic,
                reason,
                left_out,
                "{what}"
            );
        } else {
            tracing::info!(
                client,
                peer = shown_peer,
                listener = shown_listener,
                connection = id,
                mqtt_topic = topic,
                reason,
                left_out,
                "{what}"
            );
        }
        let entry = Entry {
            at: SystemTime::now(),
            kind,
            client: client.map(cut),
            origin,
            topic: topic.map(cut),
            reason,
            left_out,
        };
        let mut entries = self.0.lock();
        if entries.len() == MOST {
            entries.pop_back();
        }
        entries.push_front(entry);
    }

    /// All that are kept, the newest first.
    pub fn entries(&self) -> Vec<Entry> {
        self.0.lock().iter().cloned().collect()
    }
}

/// As much of a text of somebody else's as is kept.
fn cut(text: &str) -> String {
    match text.len() {
        0..=LONGEST => text.to_owned(),
        _ => format!("{}…", &text[..text.floor_char_boundary(LONGEST)]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(recent: &Recent, limited: &Limited, client: &str) {
        let whom = Whom {
            client: Some(client),
            ..Whom::default()
        };
        recent.note(limited, Kind::Closed, whom, None, "closed", || "test");
    }

    #[tokio::test(start_paused = true)]
    async fn the_newest_are_kept_and_long_texts_are_cut_between_characters() {
        let (recent, limited) = (Recent::default(), Limited::with_burst(1_000));
        for number in 0..MOST + 5 {
            note(&recent, &limited, &number.to_string());
        }
        note(&recent, &limited, &"ä".repeat(LONGEST));
        let entries = recent.entries();
        assert_eq!(entries.len(), MOST);
        let longest = entries[0].client.as_ref().unwrap();
        assert_eq!(longest.chars().count(), LONGEST / 2 + 1);
        assert_eq!(entries[1].client.as_deref(), Some("204"));
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_log_leaves_out_is_counted_and_not_kept() {
        let (recent, limited) = (Recent::default(), Limited::default());
        for _ in 0..5 {
            note(&recent, &limited, "flood");
        }
        assert_eq!(recent.entries().len(), 1);
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
        note(&recent, &limited, "flood");
        assert_eq!(recent.entries()[0].left_out, 4);
    }
}
