//! How a connection that was served came to its end: what is counted, and what is said.
//!
//! What always holds: each end is told once, with the words that the log and the status page share; an end that the same bytes
//! would bring again counts as flapping.

use tokio::time::Instant;

use super::Connection;
use crate::ingest::Why;
use crate::recent::Kind;
use crate::session::End;
use crate::wire::Violation;

/// How a connection came to its end.
#[derive(Debug)]
pub(super) enum Ended {
    /// DISCONNECT.
    Disconnected,
    /// The client closed without one, or the connection broke.
    Lost,
    /// Nothing was heard for 1.5 times the keep-alive.
    KeepAlive,
    /// A packet broke the protocol.
    Violation(Violation),
    /// What came broke the rules of the stream that carries packets.
    Unreadable(std::io::Error),
    /// Writing failed or stalled.
    Write(std::io::Error),
    /// The gateway ended it.
    Told(End),
}

impl Connection {
    /// Counts `ended`, and says it. `broken_publish` is whether it was a PUBLISH that broke the protocol.
    pub(super) fn count(&self, ended: &Ended, broken_publish: bool) {
        let (counters, lines) = (&self.context.counters, &self.context.lines);
        let closed = |kind, lines, what, reason: &dyn Fn() -> String| {
            self.note(lines, kind, None, what, reason);
        };
        match ended {
            Ended::Disconnected => self.debug("disconnected"),
            Ended::Lost => self.debug("connection lost"),
            Ended::KeepAlive => {
                counters.keep_alive_timeouts.increment();
                closed(Kind::Closed, &lines.closed, "closed", &|| {
                    "nothing was heard for 1.5 times the keep-alive".to_owned()
                });
            }
            Ended::Violation(violation) => {
                counters.violations.increment();
                if broken_publish {
                    counters.publishes_received.increment();
                    counters.publishes_received_invalid.increment();
                    counters.publishes_protocol_error.increment();
                }
                // It will send the same bytes again.
                self.flaps(violation.reason());
                let reason = || violation.to_string();
                closed(
                    Kind::Protocol,
                    &lines.violations,
                    "closed: protocol error",
                    &reason,
                );
            }
            Ended::Unreadable(error) => {
                counters.violations.increment();
                let reason = || error.to_string();
                closed(
                    Kind::Protocol,
                    &lines.violations,
                    "closed: protocol error",
                    &reason,
                );
            }
            Ended::Write(error) => {
                let reason = || format!("writing failed: {error}");
                closed(Kind::Closed, &lines.closed, "closed", &reason);
            }
            Ended::Told(end) => {
                let mut kind = Kind::Closed;
                match end {
                    End::Evicted(eviction) => {
                        eviction.count(counters);
                        kind = Kind::Evicted;
                    }
                    End::Revoked
                    | End::Expired
                    | End::SubscriptionNotAllowed
                    | End::SubscriptionNotMapped => {
                        counters.connections_revoked.increment();
                    }
                    End::PublishNotStored(why @ Why::Refused(_)) => self.flaps(why.name()),
                    _ => {}
                }
                closed(kind, &lines.closed, "closed", &|| end.reason().to_owned());
            }
        }
    }

    fn flaps(&self, reason: &'static str) {
        self.context
            .flaps
            .closed(&self.client, reason, Instant::now());
    }

    fn debug(&self, what: &str) {
        tracing::debug!(
            client = %self.client, peer = %self.peer, listener = %self.visit.door().address, connection = self.outbox.id().0,
            "{what}"
        );
    }
}
