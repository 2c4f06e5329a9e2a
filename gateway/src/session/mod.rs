//! Sessions: a client's connection from its CONNECT to its end.
//!
//! [`gate`] decides who comes in, [`connection`] is the loop that serves a client, [`incoming`] turns bytes into packets,
//! [`writer`] turns an outbox into bytes, [`subscriptions`] keeps what a client wants. This file holds what connections share ([`Context`]) and who is connected
//! ([`Sessions`]). What always holds: of one client id one connection is served, the newest (3.1.4-2); the end of an
//! older one cannot touch it, because both are told apart by their [`ConnectionId`].

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::access::{Access, Identity};
use crate::alarms::Alarms;
use crate::config::Config;
use crate::delivery::{ConnectionId, Delivery, Eviction, Outbox, OutboxTotal};
use crate::health::Health;
use crate::ingest::{Histories, Ingest, Publisher, Why};
use crate::limited::Limited;
use crate::listener::door::Door;
use crate::mapping::LiveMap;
use crate::mqtt::ClientId;
use crate::observe::Counters;
use crate::rates::Rates;
use crate::recent::Recent;
use crate::targets::Targets;

use flaps::Flaps;
use subscriptions::Subscribed;

pub mod connection;
pub mod flaps;
pub mod gate;
pub mod incoming;
pub mod peer;
pub mod subscriptions;
mod turned_away;
pub mod writer;

/// What all connections of a gateway share.
pub struct Context {
    /// The gateway's configuration.
    pub config: Config,
    /// Where outcomes are counted.
    pub counters: Arc<Counters>,
    /// Whether Iggy is reachable.
    pub health: Arc<Health>,
    /// The topic map in force, with a memory.
    pub map: Arc<LiveMap>,
    /// Which topics exist.
    pub targets: Arc<Targets>,
    /// The ingest role, while a source is attached.
    pub ingest: ArcSwapOption<Ingest>,
    /// The delivery role, while a sink is attached.
    pub delivery: ArcSwapOption<Delivery>,
    /// Tells that a role was added.
    pub role_added: Notify,
    /// Who may come in, and what they may.
    pub access: Access,
    /// What somebody has to see to.
    pub alarms: Alarms,
    /// Where clients connect.
    pub doors: Vec<Arc<Door>>,
    /// Who is connected.
    pub sessions: Sessions,
    /// What clients have published on earlier connections.
    pub histories: Histories,
    /// What was refused or closed lately.
    pub recent: Arc<Recent>,
    /// Log lines about publishes that are not allowed.
    pub denials: Limited,
    /// Log lines about connections.
    pub lines: Lines,
    /// How often clients may connect and publish.
    pub rates: Rates,
    /// Who is closed again and again.
    pub flaps: Flaps,
    /// Bytes queued in all outboxes.
    pub outbox_total: Arc<OutboxTotal>,
    /// Cancelled when the gateway stops: nobody comes in any more.
    pub stopping: CancellationToken,
}

/// Log lines about connections, each kind limited for itself: a stranger can cause them.
#[derive(Debug)]
pub struct Lines {
    /// Accepting has failed.
    pub accept: Limited,
    /// A handshake of TLS or WebSocket has failed.
    pub handshakes: Limited,
    /// A CONNECT is refused.
    pub refused: Limited,
    /// A connection breaks the protocol.
    pub violations: Limited,
    /// A connection is closed for another reason.
    pub closed: Limited,
    /// A subscription is refused.
    pub subscriptions: Limited,
}

impl Default for Lines {
    fn default() -> Self {
        // Enough at once that a handful of devices is seen as a whole.
        let lines = || Limited::with_burst(20);
        Self {
            accept: Limited::default(),
            handshakes: lines(),
            refused: lines(),
            violations: lines(),
            closed: lines(),
            subscriptions: lines(),
        }
    }
}

/// How long a packet waits for the role that serves it.
const ROLE_PATIENCE: Duration = Duration::from_secs(3);

impl Context {
    /// The role in `place`. It comes a moment after the listener when the runtime starts, and goes and comes when its
    /// connector is restarted; many clients do not ask again after a refusal, so it is waited for.
    async fn role<T>(&self, place: &ArcSwapOption<T>) -> Option<Arc<T>> {
        // Nearly always, and for each PUBLISH.
        if let Some(role) = place.load_full() {
            return Some(role);
        }
        let wait = async {
            loop {
                let added = self.role_added.notified();
                if let Some(role) = place.load_full() {
                    return role;
                }
                added.await;
            }
        };
        timeout(ROLE_PATIENCE, wait).await.ok()
    }
}

/// Why the gateway ends a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The same client id has connected again.
    TakenOver,
    /// A QoS 1 PUBLISH of its cannot be acknowledged.
    PublishNotStored(Why),
    /// It cost the others too much.
    Evicted(Eviction),
    /// The delivery role ended, and its subscriptions with it.
    DeliveryEnded,
    /// What had let it in no longer holds.
    Revoked,
    /// Its token has expired.
    Expired,
    /// It may no longer subscribe to what it has subscribed to.
    SubscriptionNotAllowed,
    /// The topic map has no place any more for what it has subscribed to.
    SubscriptionNotMapped,
    /// The gateway stops.
    Stopping,
    /// Its listener is drained.
    Draining,
}

impl End {
    /// For log lines.
    pub fn reason(self) -> &'static str {
        match self {
            Self::PublishNotStored(Why::Refused(_)) => "a QoS 1 publish was refused",
            Self::TakenOver => "the same client id has connected again",
            Self::PublishNotStored(Why::Failed) => "a QoS 1 publish could not be stored",
            Self::Evicted(eviction) => eviction.reason(),
            Self::DeliveryEnded => "the delivery role has ended, and its subscriptions with it",
            Self::Revoked => "its user was removed or has another password",
            Self::Expired => "its token has expired",
            Self::SubscriptionNotAllowed => {
                "it may no longer subscribe to what it has subscribed to"
            }
            Self::SubscriptionNotMapped => {
                "the topic map, read anew, has no place for what it has subscribed to"
            }
            Self::Stopping => "the gateway stops",
            Self::Draining => "its listener is drained",
        }
    }
}

/// How a connection is told to end. The first reason counts.
#[derive(Debug, Default)]
pub struct EndSignal {
    reason: Mutex<Option<End>>,
    ended: CancellationToken,
}

impl EndSignal {
    /// Ends the connection at its next step.
    pub fn end(&self, reason: End) {
        self.reason.lock().get_or_insert(reason);
        self.ended.cancel();
    }

    /// Waits until the connection is to end.
    pub async fn ended(&self) -> End {
        self.ended.cancelled().await;
        self.reason.lock().unwrap_or(End::Stopping)
    }
}

/// A connection that is being served.
#[derive(Clone)]
pub struct Live {
    /// What it is to get; also gives its id.
    pub outbox: Arc<Outbox>,
    /// How it is told to end.
    pub end: Arc<EndSignal>,
    /// What it has subscribed to.
    pub subscribed: Arc<Subscribed>,
    /// Who it is.
    pub identity: Arc<Identity>,
    /// What it publishes.
    pub publisher: Arc<Publisher>,
    /// The listener that it came by.
    pub door: Arc<Door>,
}

impl Live {
    /// Whether it has subscriptions.
    pub fn has_subscriptions(&self) -> bool {
        !self.subscribed.lock().is_empty()
    }
}

/// Who is connected.
#[derive(Default)]
pub struct Sessions {
    live: Mutex<HashMap<ClientId, Live>>,
    last: AtomicU64,
}

impl Sessions {
    /// An id for a new connection.
    pub fn next_id(&self) -> ConnectionId {
        ConnectionId(self.last.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Makes `live` the connection of `client`; an older one is told to end. Says whether there was one.
    pub fn enter(&self, client: &ClientId, live: Live, now: Instant) -> bool {
        let mut all = self.live.lock();
        // Under the lock: of two that come at the same time the same one is the newest for both.
        live.publisher.begin(now);
        let older = all.insert(client.clone(), live);
        drop(all);
        if let Some(older) = &older {
            older.end.end(End::TakenOver);
        }
        older.is_some()
    }

    /// The connection has ended. A newer one of its client is left alone.
    pub fn leave(&self, client: &ClientId, connection: ConnectionId) {
        let mut live = self.live.lock();
        let is_newest = live
            .get(client)
            .is_some_and(|current| current.outbox.id() == connection);
        if is_newest {
            live.remove(client);
        }
    }

    /// How many clients are connected.
    pub fn len(&self) -> usize {
        self.live.lock().len()
    }

    /// Whether no client is connected.
    pub fn is_empty(&self) -> bool {
        self.live.lock().is_empty()
    }

    /// All connections now.
    pub fn all(&self) -> Vec<(ClientId, Live)> {
        let live = self.live.lock();
        let all = live.iter();
        all.map(|(client, live)| (client.clone(), live.clone()))
            .collect()
    }

    /// Calls `act` for each connection; it must not call back.
    pub fn for_each(&self, mut act: impl FnMut(&ClientId, &Live)) {
        self.live
            .lock()
            .iter()
            .for_each(|(client, live)| act(client, live));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Limits;

    fn live(id: ConnectionId) -> Live {
        let outbox = Outbox::new(
            id,
            &Limits::default(),
            Arc::default(),
            Arc::default(),
            Instant::now(),
        );
        Live {
            outbox: Arc::new(outbox),
            end: Arc::default(),
            subscribed: Arc::default(),
            identity: Arc::default(),
            publisher: Publisher::for_tests(),
            door: Arc::new(Door::for_tests()),
        }
    }

    #[tokio::test]
    async fn a_newer_connection_ends_the_older_and_outlives_its_clean_up() {
        let sessions = Sessions::default();
        let client = ClientId::new("x").unwrap();
        let (old, new) = (live(sessions.next_id()), live(sessions.next_id()));
        assert!(!sessions.enter(&client, old.clone(), Instant::now()));
        assert!(sessions.enter(&client, new.clone(), Instant::now()));
        assert_eq!(old.end.ended().await, End::TakenOver);
        sessions.leave(&client, old.outbox.id());
        assert_eq!(sessions.len(), 1);
        sessions.leave(&client, new.outbox.id());
        assert!(sessions.is_empty());
    }
}
