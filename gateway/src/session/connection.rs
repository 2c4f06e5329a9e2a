//! The connection loop: serves one client from its CONNECT to its end.
//!
//! What always holds: packets are processed in the order in which they came; while the client has `receive_window`
//! publishes unacknowledged, or takes no answers, nothing more is read from it, and its keep-alive clock stands still;
//! however the connection ends, by a panic too, everything it held is released once.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::gate::{self, Admitted};
use super::incoming::{Incoming, Read};
use super::peer::Peer;
use super::subscriptions::Subscriptions;
use super::turned_away::turn_away;
use super::writer::{self, Writer};
use super::{Context, End, EndSignal, Live};
use crate::access::{Action, Grant};
use crate::delivery::Outbox;
use crate::host::Host;
use crate::ingest::{AckWriter, Publisher, Reason, Received, Why};
use crate::limited::Limited;
use crate::listener::door::Visit;
use crate::mqtt::{ClientId, PacketId, QoS, TopicName};
use crate::observe::Counters;
use crate::rates::Publishing;
use crate::recent::{Kind, Origin, Whom};
use crate::wire::{
    ConnectReturnCode, Packet, Publish, Subscribe, SubscribeReturnCode, Unsubscribe, Violation,
    encode,
};

mod ended;

use ended::Ended;

/// More bytes of answers than this, not taken by the client, stop reading from it.
const MAX_CONTROL_BYTES: usize = 16_384;
/// How long a close waits for the client to take the last bytes.
const CLOSE_LIMIT: Duration = Duration::from_millis(500);

/// Serves the client at the other end of `read` and `write`. What is known of the peer is needed at the beginning only: in
/// the task itself it would be kept for as long as the connection lives.
pub async fn serve<R, W>(context: Arc<Context>, read: R, write: W, peer: Box<Peer>)
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let counters = context.counters.clone();
    let stall = context.config.limits.ack_timeout;
    let (address, closing) = (peer.address, peer.door().closing());
    let origin = peer.origin();
    let mut incoming = Incoming::new(read, &context.config.limits, counters.clone());
    let admitted = tokio::select! {
        biased;
        () = closing.cancelled() => return,
        // On the heap while it lasts: what only the beginning or the end of a connection needs is not kept by all that idle.
        admitted = Box::pin(gate::admit(&context, &mut incoming, peer)) => admitted,
    };
    let admitted = match admitted {
        Ok(admitted) => admitted,
        Err(refused) => {
            let turn_away = turn_away(
                refused,
                &context,
                incoming.into_stream(),
                write,
                origin,
                CLOSE_LIMIT,
            );
            return Box::pin(turn_away).await;
        }
    };
    let mut connection = Connection::enter(&context, admitted, address, origin);
    let outbox = connection.outbox.clone();
    let end = connection.end.clone();
    // Whoever closes the door looks through those who are connected; this one may have come in after.
    if closing.is_cancelled() {
        end.end(End::Stopping);
    }
    // Whoever changes the users looks through those who are connected; this one may have come in by the old file, after.
    if !context.access.still_holds(connection.grant.identity()) {
        end.end(End::Revoked);
    }
    outbox.control(|out| encode::connack(ConnectReturnCode::Accepted, out));
    counters.connects_accepted.increment();
    tracing::debug!(
        client = %connection.client, peer = %address, listener = %connection.visit.door().address, connection = outbox.id().0,
        who = %connection.grant.identity(), "connected"
    );

    let mut writer = Writer::new(write, outbox, stall, counters);
    let ended = tokio::select! {
        biased;
        end = end.ended() => Ended::Told(end),
        () = expiry(connection.grant.identity().expires) => Ended::Told(End::Expired),
        error = writer.run() => Ended::Write(error),
        ended = connection.read(&mut incoming) => ended,
    };
    connection.count(&ended, incoming.is_broken_by_publish());
    match ended {
        Ended::Write(_) | Ended::Lost => {}
        // It is not the client's doing: what it has sent is finished and acknowledged, what waits for it is sent.
        Ended::Told(End::Stopping | End::Draining | End::DeliveryEnded) => {
            let finish = async {
                tokio::select! {
                    biased;
                    () = connection.publisher.below(1) => {}
                    _ = writer.run() => {}
                }
                writer.flush(true).await
            };
            let _ = timeout(context.config.shutdown_grace, Box::pin(finish)).await;
        }
        // What was answered before the end still goes out.
        _ => {
            let _ = timeout(CLOSE_LIMIT, Box::pin(writer.flush(false))).await;
        }
    }
    drop(connection);
    if !matches!(ended, Ended::Write(_)) {
        let (read, write) = (incoming.into_stream(), writer.into_stream());
        Box::pin(writer::close(read, write, CLOSE_LIMIT)).await;
    }
}

/// Waits until then; for ever if it is never. A timer is made only for those who need one.
async fn expiry(at: Option<Instant>) {
    match at {
        Some(at) => Box::pin(sleep_until(at)).await,
        None => std::future::pending().await,
    }
}

/// A client that is being served. Dropping it releases all that it holds.
struct Connection {
    context: Arc<Context>,
    client: ClientId,
    peer: SocketAddr,
    max_silence: Option<Duration>,
    /// What it may.
    grant: Grant,
    outbox: Arc<Outbox>,
    publisher: Arc<Publisher>,
    end: Arc<EndSignal>,
    subscriptions: Subscriptions,
    /// How fast it may publish, if there is a limit.
    pace: Option<Box<Publishing>>,
    /// Counted at its listener until the end.
    visit: Visit,
}

/// Where the publisher's acknowledgements go.
struct Answers {
    outbox: Arc<Outbox>,
    end: Arc<EndSignal>,
    counters: Arc<Counters>,
}

impl AckWriter for Answers {
    fn puback(&self, id: PacketId) {
        if self.outbox.control(|out| encode::puback(id, out)) {
            self.counters.pubacks_sent.increment();
        }
    }

    fn close(&self, why: Why) {
        self.end.end(End::PublishNotStored(why));
    }
}

impl Connection {
    fn enter(context: &Arc<Context>, admitted: Admitted, peer: SocketAddr, origin: Origin) -> Self {
        let Admitted {
            client,
            identity,
            id,
            visit,
            max_silence,
        } = admitted;
        let identity = Arc::new(identity);
        let grant = context.access.grant(identity.clone(), &client);
        let counters = context.counters.clone();
        let outbox = Arc::new(Outbox::new(
            id,
            &context.config.limits,
            context.outbox_total.clone(),
            counters.clone(),
            Instant::now(),
        ));
        let end = Arc::new(EndSignal::default());
        let answers = Answers {
            outbox: outbox.clone(),
            end: end.clone(),
            counters: counters.clone(),
        };
        let publisher = Publisher::new(
            client.clone(),
            origin,
            counters.clone(),
            context.histories.enter(&client),
            Box::new(answers),
        );
        let live = Live {
            outbox: outbox.clone(),
            end: end.clone(),
            subscribed: Arc::default(),
            identity,
            publisher: publisher.clone(),
            door: visit.door().clone(),
        };
        let subscriptions =
            Subscriptions::new(context.clone(), outbox.clone(), live.subscribed.clone());
        if context.sessions.enter(&client, live, Instant::now()) {
            counters.takeovers.increment();
        }
        let pace = context
            .rates
            .publishing(&client, Host::from(peer.ip()), Instant::now());
        Self {
            context: context.clone(),
            pace: pace.map(Box::new),
            visit,
            client,
            peer,
            max_silence,
            grant,
            outbox,
            publisher,
            end,
            subscriptions,
        }
    }

    async fn read<R: AsyncRead + Unpin>(&mut self, incoming: &mut Incoming<R>) -> Ended {
        let window = self.context.config.limits.receive_window;
        let mut heard = Instant::now();
        let mut has_listened = true;
        loop {
            let packet = match incoming.packet() {
                Ok(packet) => packet,
                Err(violation) => return Ended::Violation(violation),
            };
            let Some(packet) = packet else {
                // The end of a time in which we did not listen: the client's clock begins anew.
                if !std::mem::replace(&mut has_listened, true) {
                    heard = Instant::now();
                }
                let more = incoming.more();
                let read = match self.max_silence {
                    Some(max_silence) => match timeout_at(heard + max_silence, more).await {
                        Ok(read) => read,
                        Err(_) => return Ended::KeepAlive,
                    },
                    None => more.await,
                };
                match read {
                    Read::Bytes => continue,
                    Read::End => return Ended::Lost,
                    Read::Unreadable(error) => return Ended::Unreadable(error),
                }
            };
            match packet {
                Packet::Publish(publish) => {
                    if let Some(pace) = &self.pace
                        && let Some(place) = pace.enter(Instant::now())
                    {
                        self.context.counters.publishes_slowed.increment();
                        Box::pin(place.turn()).await;
                    }
                    if let Err(violation) = self.publish(publish).await {
                        self.context.counters.publishes_received.increment();
                        self.context.counters.publishes_protocol_error.increment();
                        return Ended::Violation(violation);
                    }
                }
                Packet::PubAck(id) => self.outbox.acknowledge(id, Instant::now()),
                // Rare, and its future large.
                Packet::Subscribe(subscribe) => Box::pin(self.subscribe(subscribe)).await,
                Packet::Unsubscribe(unsubscribe) => self.unsubscribe(&unsubscribe),
                Packet::PingReq => {
                    self.outbox.control(encode::pingresp);
                }
                Packet::Disconnect => return Ended::Disconnected,
                // The decoder lets only the first packet be a CONNECT.
                Packet::Connect(_) => return Ended::Violation(Violation::SecondConnect),
            }
            self.publisher.below(window).await;
            self.outbox.control_below(MAX_CONTROL_BYTES).await;
            has_listened = false;
        }
    }

    async fn publish(&mut self, publish: Publish) -> Result<(), Violation> {
        let ticket = match self.publisher.receive(&publish) {
            Received::New(ticket) => ticket,
            Received::Known => return Ok(()),
            Received::Conflict(id) => return Err(Violation::PacketIdInUse(id)),
        };
        let (access, client) = (&self.context.access, &self.client);
        if !self
            .grant
            .allows(access, client, Action::Publish, &publish.topic)
        {
            self.note(
                &self.context.denials,
                Kind::Publish,
                Some(publish.topic.as_str()),
                "publish refused",
                || {
                    let who = self.grant.identity();
                    format!(
                        "{}: the permissions of {who} do not allow it",
                        Reason::NotAllowed.name()
                    )
                },
            );
            ticket.denied(Reason::NotAllowed, self.context.config.ingest.on_denied);
            return Ok(());
        }
        let ingest = match publish.qos {
            // Dropping is what QoS 0 is for; waiting would hold up what comes behind it.
            QoS::AtMostOnce => self.context.ingest.load_full(),
            _ => self.context.role(&self.context.ingest).await,
        };
        match ingest {
            Some(ingest) => ingest.submit(publish, ticket).await,
            None => {
                let reason = Reason::NoIngestRole;
                self.note(
                    &self.context.denials,
                    Kind::Publish,
                    Some(publish.topic.as_str()),
                    "publish refused",
                    || {
                        format!(
                            "{}: no source connector is attached to this gateway",
                            reason.name()
                        )
                    },
                );
                ticket.denied(reason, self.context.config.ingest.on_denied);
            }
        }
        Ok(())
    }

    async fn subscribe(&mut self, subscribe: Subscribe) {
        let began = self.grant.generation();
        let mut codes = Vec::with_capacity(subscribe.filters.len());
        for (filter, asked) in subscribe.filters {
            // 3.8.4-6: a lower QoS than asked may be granted.
            let qos = asked.min(QoS::AtLeastOnce);
            let (grant, access, client) = (&mut self.grant, &self.context.access, &self.client);
            let allowed =
                |topic: &TopicName| grant.allows(access, client, Action::Subscribe, topic);
            codes.push(match self.subscriptions.add(&filter, qos, allowed).await {
                Ok(()) => {
                    self.context.counters.subscriptions_granted.increment();
                    SubscribeReturnCode::Granted(qos)
                }
                Err(reason) => {
                    self.context.counters.subscriptions_refused.increment();
                    let lines = &self.context.lines.subscriptions;
                    self.note(
                        lines,
                        Kind::Subscribe,
                        Some(filter.as_str()),
                        "subscription refused",
                        || &reason,
                    );
                    SubscribeReturnCode::Failure
                }
            });
        }
        if self.subscriptions.are_orphaned() {
            self.end.end(End::DeliveryEnded);
        }
        // Whoever changes the permissions looks through the subscriptions that there are; one of these may have been allowed
        // before and have come after.
        if self.context.access.generation() != began && !self.may_keep_subscriptions() {
            self.end.end(End::SubscriptionNotAllowed);
        }
        self.outbox
            .control(|out| encode::suback(subscribe.packet_id, &codes, out));
    }

    fn may_keep_subscriptions(&mut self) -> bool {
        let (grant, access, client) = (&mut self.grant, &self.context.access, &self.client);
        self.subscriptions
            .all(|topic| grant.allows(access, client, Action::Subscribe, topic))
    }

    fn unsubscribe(&mut self, unsubscribe: &Unsubscribe) {
        for filter in &unsubscribe.filters {
            self.subscriptions.remove(filter);
        }
        // 3.10.4-5: also if there was no such subscription.
        self.outbox
            .control(|out| encode::unsuback(unsubscribe.packet_id, out));
    }

    fn whom(&self) -> Whom<'_> {
        self.publisher.origin.of(&self.client)
    }

    fn note<R: ToString>(
        &self,
        lines: &Limited,
        kind: Kind,
        topic: Option<&str>,
        what: &str,
        reason: impl FnOnce() -> R,
    ) {
        self.context
            .recent
            .note(lines, kind, self.whom(), topic, what, reason);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let now = Instant::now();
        self.outbox.close();
        // Before anyone can find that it has left.
        self.publisher.leave(now);
        self.context.histories.leave(&self.client, now);
        self.context.sessions.leave(&self.client, self.outbox.id());
    }
}
