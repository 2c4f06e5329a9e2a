//! The commands about the server itself and its clients.

use bytes::Bytes;
use iggy_binary_protocol::requests::consumer_offsets::GetConsumerOffsetRequest;
use iggy_binary_protocol::requests::messages::PollMessagesRequest;
use iggy_binary_protocol::requests::system::{AttachConsumerSessionRequest, GetClientRequest};
use iggy_binary_protocol::responses::clients::{
    ClientDetailsResponse, ClientResponse, ConsumerGroupInfoResponse, GetClientsResponse,
};
use iggy_binary_protocol::responses::messages::PollRoutingResponse;
use iggy_binary_protocol::responses::system::get_cluster_metadata::{
    ClusterMetadataResponse, ClusterNodeResponse,
};
use iggy_binary_protocol::responses::system::get_stats::StatsResponse;
use iggy_binary_protocol::{IGGY_PROTOCOL_VERSION, WireEncode};
use iggy_common::{ClusterNodeRole, ClusterNodeStatus, IggyError, IggyTimestamp};

use super::Shared;
use super::dispatch::decode;
use super::login::SERVER_VERSION;
use super::session::{Login, Session};
use super::topics;

/// The name of the cluster and of its node.
const NAME: &str = "sandbox";

/// The cluster: one node, which leads.
pub(crate) fn cluster_metadata(session: &Session) -> Bytes {
    ClusterMetadataResponse {
        name: NAME.to_owned(),
        nodes: vec![node(session)],
    }
    .to_bytes()
}

/// Where to poll with a commit: here, as this session.
pub(crate) fn poll_routing(session: &Session, body: &[u8]) -> Result<Bytes, IggyError> {
    decode::<PollMessagesRequest>(body)?;
    route(session)
}

/// Where to change an offset: here, as this session.
pub(crate) fn offset_routing(session: &Session, body: &[u8]) -> Result<Bytes, IggyError> {
    decode::<GetConsumerOffsetRequest>(body)?;
    route(session)
}

/// Lets a connection poll and commit as the group member that another connection is.
pub(crate) fn attach(
    shared: &Shared,
    session: &mut Session,
    body: &[u8],
) -> Result<Bytes, IggyError> {
    let request: AttachConsumerSessionRequest = decode(body)?;
    let login = Login {
        client: request.client_id,
        number: request.session,
    };
    let member = shared
        .sessions
        .find(login)
        .ok_or(IggyError::Unauthenticated)?;
    session.attach(member);
    Ok(Bytes::new())
}

fn route(session: &Session) -> Result<Bytes, IggyError> {
    let login = session.login().ok_or(IggyError::Unauthenticated)?;
    let consumer_session = AttachConsumerSessionRequest {
        client_id: login.client,
        session: login.number,
        // Everything here is up to date at once.
        metadata_watermark: 0,
    };
    let primary = node(session);
    Ok(PollRoutingResponse {
        consumer_session,
        primary,
    }
    .to_bytes())
}

/// This server, at the address on which the client reached it.
fn node(session: &Session) -> ClusterNodeResponse {
    ClusterNodeResponse {
        name: NAME.to_owned(),
        ip: session.server.ip().to_string(),
        tcp_port: session.server.port(),
        quic_port: 0,
        http_port: 0,
        websocket_port: 0,
        role: ClusterNodeRole::Leader as u8,
        status: ClusterNodeStatus::Healthy as u8,
    }
}

pub(crate) fn get_client(shared: &Shared, body: &[u8]) -> Result<Bytes, IggyError> {
    let request: GetClientRequest = decode(body)?;
    match shared.sessions.get(request.client_id) {
        Some(_) => client(shared, request.client_id),
        // An empty answer is how Iggy says that there is none.
        None => Ok(Bytes::new()),
    }
}

/// One client with its consumer groups.
pub(crate) fn client(shared: &Shared, id: u32) -> Result<Bytes, IggyError> {
    let client = shared
        .sessions
        .get(id)
        .ok_or(IggyError::ClientNotFound(id))?;
    let groups = shared.membership.lock().groups_of(id);
    let consumer_groups = groups
        .iter()
        .map(|key| ConsumerGroupInfoResponse {
            stream_id: key.stream,
            topic_id: key.topic,
            group_id: key.group,
        })
        .collect();
    Ok(ClientDetailsResponse {
        client: with_groups(client, groups.len()),
        consumer_groups,
    }
    .to_bytes())
}

pub(crate) fn get_clients(shared: &Shared) -> Bytes {
    let clients = shared.sessions.list();
    let membership = shared.membership.lock();
    let clients = clients
        .into_iter()
        .map(|client| {
            let groups = membership.groups_of(client.client_id).len();
            with_groups(client, groups)
        })
        .collect();
    GetClientsResponse { clients }.to_bytes()
}

/// What is known about the data. The machine is not measured: those numbers are 0 and the names empty.
pub(crate) fn get_stats(shared: &Shared) -> Bytes {
    let catalog = shared.store.catalog();
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let topics = || {
        catalog
            .streams
            .values()
            .flat_map(|stream| stream.topics.values())
    };
    let partitions = count(catalog.partitions().count());
    let (messages_count, messages_size_bytes) = topics().map(|topic| topics::totals(topic)).fold(
        (0, 0),
        |(messages, bytes), (more_messages, more_bytes)| {
            (messages + more_messages, bytes + more_bytes)
        },
    );
    StatsResponse {
        process_id: std::process::id(),
        cpu_usage: 0.0,
        total_cpu_usage: 0.0,
        memory_usage: 0,
        total_memory: 0,
        available_memory: 0,
        run_time: IggyTimestamp::now()
            .as_micros()
            .saturating_sub(shared.started_at),
        start_time: shared.started_at,
        read_bytes: 0,
        written_bytes: 0,
        messages_size_bytes,
        streams_count: count(catalog.streams.len()),
        topics_count: count(topics().count()),
        partitions_count: partitions,
        segments_count: partitions,
        messages_count,
        clients_count: count(shared.sessions.list().len()),
        consumer_groups_count: count(topics().map(|topic| topic.groups.len()).sum()),
        hostname: String::new(),
        os_name: String::new(),
        os_version: String::new(),
        kernel_version: String::new(),
        iggy_server_version: SERVER_VERSION.to_owned(),
        iggy_server_semver: Some(IGGY_PROTOCOL_VERSION),
        cache_metrics: Vec::new(),
        threads_count: 0,
        free_disk_space: 0,
        total_disk_space: 0,
    }
    .to_bytes()
}

fn with_groups(client: ClientResponse, groups: usize) -> ClientResponse {
    ClientResponse {
        consumer_groups_count: u32::try_from(groups).unwrap_or(u32::MAX),
        ..client
    }
}
