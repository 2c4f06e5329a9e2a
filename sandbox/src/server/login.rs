//! Login and logout.

use bytes::Bytes;
use iggy_binary_protocol::requests::users::LoginRegisterRequest;
use iggy_binary_protocol::responses::users::LoginRegisterResponse;
use iggy_binary_protocol::{
    ClientVersionInfo, EvictionReason, IGGY_PROTOCOL_VERSION, WireDecode, WireEncode, WireName,
    is_protocol_compatible,
};
use secrecy::ExposeSecret;
use tracing::{debug, warn};

use super::Shared;
use super::frame::Answer;
use super::session::{Session, USER_ID};

/// What the server calls itself, so that nobody takes it for Iggy.
pub(crate) const SERVER_VERSION: &str = concat!("sandbox-", env!("CARGO_PKG_VERSION"));

/// Opens a session for the client that calls itself `client`; an open one on this connection ends first.
pub(crate) fn log_in(shared: &Shared, session: &mut Session, client: u128, body: &[u8]) -> Answer {
    let Ok((version, prefix)) = ClientVersionInfo::decode(body) else {
        return Answer::Evict(EvictionReason::MalformedLogin);
    };
    if !is_protocol_compatible(version.protocol_version) {
        warn!(
            "client {} {} speaks another version of the protocol",
            version.sdk_name, version.sdk_version
        );
        return Answer::Evict(EvictionReason::IncompatibleProtocol);
    }
    let rest = body.get(prefix..).unwrap_or_default();
    let Ok((login, _)) = LoginRegisterRequest::decode_after_prefix(version, rest) else {
        return Answer::Evict(EvictionReason::MalformedLogin);
    };
    let known = same(login.username.as_str(), &shared.username)
        & same(
            login.password.expose_secret(),
            shared.password.expose_secret(),
        );
    if !known {
        warn!("a login with a wrong user name or password was refused");
        return Answer::Evict(EvictionReason::InvalidCredentials);
    }
    let Ok(server_version) = WireName::new(SERVER_VERSION) else {
        return Answer::Evict(EvictionReason::SessionError);
    };
    shared.membership.lock().drop_member(session.id);
    let login = shared.sessions.log_in(session, client);
    debug!("connection {} logged in", session.id);
    Answer::Reply(
        LoginRegisterResponse {
            user_id: USER_ID,
            session: login.number,
            server_protocol_version: IGGY_PROTOCOL_VERSION,
            server_version,
        }
        .to_bytes(),
    )
}

/// Ends the session, if there is one.
pub(crate) fn log_out(shared: &Shared, session: &mut Session) -> Answer {
    shared.membership.lock().drop_member(session.id);
    shared.sessions.log_out(session);
    Answer::Reply(Bytes::new())
}

/// Compares in a time that tells no more than the lengths.
fn same(given: &str, expected: &str) -> bool {
    let differing = given
        .bytes()
        .zip(expected.bytes())
        .fold(0, |differing, (a, b)| differing | (a ^ b));
    given.len() == expected.len() && differing == 0
}
