//! A client whose CONNECT is not accepted: what it is answered, what is counted and what is said.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use super::gate::Refused;
use super::{Context, writer};
use crate::observe::Counters;
use crate::recent::{Kind, Origin};
use crate::wire::{ConnectReturnCode, encode};

/// Answers what is to be answered, within `limit`, and closes.
pub(super) async fn turn_away<R, W>(
    refused: Refused,
    context: &Context,
    read: R,
    mut write: W,
    origin: Origin,
    limit: Duration,
) where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let counters = &context.counters;
    match &refused {
        // Probes and scanners do this all the time: nobody has to act.
        Refused::Unfinished { .. } => {
            counters.connects_unfinished.increment();
            tracing::debug!(
                peer = origin.peer.map(display), listener = origin.listener.map(display), connection = origin.connection.map(|id| id.0),
                reason = %refused, "closed"
            );
        }
        _ => {
            counters.connects_refused.increment();
            if let Refused::Denied { .. } = &refused {
                counters.connects_unauthenticated.increment();
            }
            let lines = &context.lines.refused;
            context.recent.note(
                lines,
                Kind::Connect,
                origin.into(),
                None,
                "CONNECT refused",
                || &refused,
            );
        }
    }
    if !matches!(refused, Refused::Unfinished { .. }) {
        count_refused(counters, refused.answer());
    }
    if let Some(code) = refused.answer() {
        let mut answer = bytes::BytesMut::new();
        encode::connack(code, &mut answer);
        let _ = timeout(limit, write.write_all(&answer)).await;
    }
    writer::close(read, write, limit).await;
}

fn count_refused(counters: &Counters, code: Option<ConnectReturnCode>) {
    let counter = match code {
        None => &counters.connects_refused_silently,
        // It is no refusal.
        Some(ConnectReturnCode::Accepted) => return,
        Some(ConnectReturnCode::UnacceptableProtocolVersion) => &counters.connects_refused_0x01,
        Some(ConnectReturnCode::IdentifierRejected) => &counters.connects_refused_0x02,
        Some(ConnectReturnCode::ServerUnavailable) => &counters.connects_refused_0x03,
        Some(ConnectReturnCode::BadUserNameOrPassword) => &counters.connects_refused_0x04,
        Some(ConnectReturnCode::NotAuthorized) => &counters.connects_refused_0x05,
    };
    counter.increment();
}
