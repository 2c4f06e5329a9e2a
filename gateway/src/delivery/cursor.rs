//! Where a subscriber stands in a partition: with the reader, or behind it.
//!
//! What always holds: a cursor that is behind has one turn, from when it left the reader until it has met it again; what
//! was read for another turn, or for another offset than it needs now, is not for it. Pure.

use std::time::Duration;

use super::outbox::ConnectionId;

/// See the module.
#[derive(Debug)]
pub(super) enum Cursor {
    /// It gets what the reader reads.
    Live,
    /// It does not.
    Behind(Behind),
}

impl Cursor {
    /// The next offset it needs, if the reader stands at `position`.
    pub(super) fn next(&self, position: u64) -> u64 {
        self.behind().map_or(position, |behind| behind.next)
    }

    /// How it is behind, if it is.
    pub(super) fn behind(&self) -> Option<&Behind> {
        match self {
            Self::Live => None,
            Self::Behind(behind) => Some(behind),
        }
    }
}

/// A cursor that is behind.
#[derive(Debug)]
pub(super) struct Behind {
    /// The next offset it needs.
    pub(super) next: u64,
    /// About when the record there was stored.
    stored_micros: u64,
    turn: u64,
}

/// Names the time in which a cursor is behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// Whose cursor.
    pub connection: ConnectionId,
    turn: u64,
}

impl Behind {
    pub(super) fn new(next: u64, stored_micros: u64, turn: u64) -> Self {
        Self {
            next,
            stored_micros,
            turn,
        }
    }

    pub(super) fn turn(&self, connection: ConnectionId) -> Turn {
        Turn {
            connection,
            turn: self.turn,
        }
    }

    pub(super) fn is(&self, turn: &Turn) -> bool {
        self.turn == turn.turn
    }

    /// It needs more than it did.
    pub(super) fn go_back(&mut self, next: u64) {
        self.next = next;
    }

    /// It has got what lies before `next`.
    pub(super) fn go_on(&mut self, next: u64, stored_micros: u64) {
        self.next = next;
        self.stored_micros = stored_micros;
    }

    /// How many records it is behind.
    pub(super) fn lag(&self, position: u64) -> u64 {
        position.saturating_sub(self.next)
    }

    /// How much older what it needs is than the newest record. Both times are the server's.
    pub(super) fn lag_time(&self, newest_micros: u64) -> Duration {
        Duration::from_micros(newest_micros.saturating_sub(self.stored_micros))
    }
}
