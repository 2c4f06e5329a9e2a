//! From a command's number to the function that serves it.
//!
//! Before the login only a ping and the login itself are served. A command that Iggy knows and this server does not serve is
//! answered with `FeatureUnavailable`, an unknown number with `InvalidCommand`: every request gets an answer.

use bytes::Bytes;
use iggy_binary_protocol::codes::{
    ATTACH_CONSUMER_SESSION_CODE, CREATE_CONSUMER_GROUP_CODE, CREATE_PARTITIONS_CODE,
    CREATE_STREAM_CODE, CREATE_TOPIC_CODE, DELETE_CONSUMER_GROUP_CODE, DELETE_CONSUMER_OFFSET_CODE,
    DELETE_PARTITIONS_CODE, DELETE_STREAM_CODE, DELETE_TOPIC_CODE, FLUSH_UNSAVED_BUFFER_CODE,
    GET_CLIENT_CODE, GET_CLIENTS_CODE, GET_CLUSTER_METADATA_CODE, GET_CONSUMER_GROUP_CODE,
    GET_CONSUMER_GROUPS_CODE, GET_CONSUMER_OFFSET_CODE, GET_CONSUMER_OFFSET_ROUTING_CODE,
    GET_ME_CODE, GET_POLL_ROUTING_CODE, GET_STATS_CODE, GET_STREAM_CODE, GET_STREAMS_CODE,
    GET_TOPIC_CODE, GET_TOPICS_CODE, JOIN_CONSUMER_GROUP_CODE, LEAVE_CONSUMER_GROUP_CODE,
    LOGIN_REGISTER_CODE, LOGIN_USER_CODE, LOGIN_WITH_PERSONAL_ACCESS_TOKEN_CODE, LOGOUT_USER_CODE,
    PING_CODE, POLL_MESSAGES_CODE, POLL_MESSAGES_ON_PRIMARY_CODE, PURGE_STREAM_CODE,
    PURGE_TOPIC_CODE, SEND_MESSAGES_CODE, STORE_CONSUMER_OFFSET_CODE, SYNC_CONSUMER_GROUP_CODE,
    UPDATE_STREAM_CODE, UPDATE_TOPIC_CODE,
};
use iggy_binary_protocol::{EvictionReason, WireDecode, lookup_command};
use iggy_common::IggyError;

use super::frame::{Answer, RequestHead};
use super::session::Session;
use super::{Shared, groups, login, messages, offsets, streams, system, topics};

/// Serves one request.
pub(crate) async fn dispatch(
    shared: &Shared,
    session: &mut Session,
    head: &RequestHead,
    body: Bytes,
) -> Answer {
    if let Err(error) = head.verify(&body) {
        return Answer::Refuse(error);
    }
    match head.code {
        PING_CODE => return Answer::Reply(Bytes::new()),
        LOGIN_REGISTER_CODE if head.is_replicated() => {
            return login::log_in(shared, session, head.client(), &body);
        }
        LOGOUT_USER_CODE if head.is_replicated() => return login::log_out(shared, session),
        // The logins of older protocols: their session could not be used here.
        LOGIN_USER_CODE | LOGIN_WITH_PERSONAL_ACCESS_TOKEN_CODE => {
            return Answer::Evict(EvictionReason::MalformedLogin);
        }
        _ => {}
    }
    if session.login().is_none() {
        return match head.is_replicated() {
            // The client believes that it has a session.
            true => Answer::Evict(EvictionReason::NoSession),
            false => Answer::Refuse(IggyError::Unauthenticated),
        };
    }
    match serve(shared, session, head.code, body).await {
        Ok(body) => Answer::Reply(body),
        Err(error) => Answer::Refuse(error),
    }
}

async fn serve(
    shared: &Shared,
    session: &mut Session,
    code: u32,
    body: Bytes,
) -> Result<Bytes, IggyError> {
    match code {
        GET_CLUSTER_METADATA_CODE => Ok(system::cluster_metadata(session)),
        ATTACH_CONSUMER_SESSION_CODE => system::attach(shared, session, &body),
        GET_POLL_ROUTING_CODE => system::poll_routing(session, &body),
        GET_CONSUMER_OFFSET_ROUTING_CODE => system::offset_routing(session, &body),
        GET_ME_CODE => system::client(shared, session.id),
        GET_CLIENT_CODE => system::get_client(shared, &body),
        GET_CLIENTS_CODE => Ok(system::get_clients(shared)),
        GET_STATS_CODE => Ok(system::get_stats(shared)),

        GET_STREAM_CODE => streams::get(shared, &body),
        GET_STREAMS_CODE => streams::list(shared),
        CREATE_STREAM_CODE => streams::create(shared, &body).await,
        UPDATE_STREAM_CODE => streams::update(shared, &body).await,
        DELETE_STREAM_CODE => streams::delete(shared, &body).await,
        PURGE_STREAM_CODE => streams::purge(shared, &body).await,

        GET_TOPIC_CODE => topics::get(shared, &body),
        GET_TOPICS_CODE => topics::list(shared, &body),
        CREATE_TOPIC_CODE => topics::create(shared, &body).await,
        UPDATE_TOPIC_CODE => topics::update(shared, &body).await,
        DELETE_TOPIC_CODE => topics::delete(shared, &body).await,
        PURGE_TOPIC_CODE => topics::purge(shared, &body).await,
        CREATE_PARTITIONS_CODE => topics::create_partitions(shared, &body).await,
        DELETE_PARTITIONS_CODE => topics::delete_partitions(shared, &body).await,

        SEND_MESSAGES_CODE => messages::send(shared, body).await,
        POLL_MESSAGES_CODE | POLL_MESSAGES_ON_PRIMARY_CODE => {
            messages::poll(shared, session, &body).await
        }
        FLUSH_UNSAVED_BUFFER_CODE => messages::flush(shared, &body).await,

        GET_CONSUMER_OFFSET_CODE => offsets::get(shared, &body),
        STORE_CONSUMER_OFFSET_CODE => offsets::store(shared, session, &body).await,
        DELETE_CONSUMER_OFFSET_CODE => offsets::delete(shared, session, &body).await,

        GET_CONSUMER_GROUP_CODE => groups::get(shared, &body),
        GET_CONSUMER_GROUPS_CODE => groups::list(shared, &body),
        CREATE_CONSUMER_GROUP_CODE => groups::create(shared, &body).await,
        DELETE_CONSUMER_GROUP_CODE => groups::delete(shared, &body).await,
        JOIN_CONSUMER_GROUP_CODE => groups::join(shared, session, &body),
        LEAVE_CONSUMER_GROUP_CODE => groups::leave(shared, session, &body),
        SYNC_CONSUMER_GROUP_CODE => Ok(groups::sync(shared, session, &body)),

        code if lookup_command(code).is_some() => Err(IggyError::FeatureUnavailable),
        _ => Err(IggyError::InvalidCommand),
    }
}

/// Decodes a request's body.
///
/// # Errors
/// `InvalidCommand`.
pub(crate) fn decode<T: WireDecode>(body: &[u8]) -> Result<T, IggyError> {
    T::decode_from(body).map_err(|_| IggyError::InvalidCommand)
}
