//! The commands on streams.

use bytes::Bytes;
use iggy_binary_protocol::requests::streams::{
    CreateStreamRequest, DeleteStreamRequest, GetStreamRequest, PurgeStreamRequest,
    UpdateStreamRequest,
};
use iggy_binary_protocol::responses::streams::{
    GetStreamResponse, GetStreamsResponse, StreamResponse,
};
use iggy_binary_protocol::{WireEncode, WireIdentifier, WireName, WireOptions};
use iggy_common::IggyError;

use super::Shared;
use super::catalog::Stream;
use super::change::Change;
use super::dispatch::decode;
use super::topics;

pub(crate) fn get(shared: &Shared, body: &[u8]) -> Result<Bytes, IggyError> {
    let request: GetStreamRequest = decode(body)?;
    // An empty answer is how Iggy says that there is none.
    shared
        .store
        .catalog()
        .stream(&request.stream_id)
        .map_or_else(|_| Ok(Bytes::new()), |stream| details(stream))
}

pub(crate) fn list(shared: &Shared) -> Result<Bytes, IggyError> {
    let streams = shared
        .store
        .catalog()
        .streams
        .values()
        .map(|stream| response(stream))
        .collect::<Result<_, _>>()?;
    Ok(GetStreamsResponse { streams }.to_bytes())
}

pub(crate) async fn create(shared: &Shared, body: &[u8]) -> Result<Bytes, IggyError> {
    let request: CreateStreamRequest = decode(body)?;
    no_options(&request.options)?;
    let changed = shared
        .change(Change::CreateStream {
            name: request.name.to_string(),
        })
        .await?;
    details(
        changed
            .catalog
            .stream(&WireIdentifier::Numeric(changed.id))?,
    )
}

pub(crate) async fn update(shared: &Shared, body: &[u8]) -> Result<Bytes, IggyError> {
    let request: UpdateStreamRequest = decode(body)?;
    no_options(&request.options)?;
    shared
        .change(Change::UpdateStream {
            stream: request.stream_id,
            name: request.name.to_string(),
        })
        .await?;
    Ok(Bytes::new())
}

pub(crate) async fn delete(shared: &Shared, body: &[u8]) -> Result<Bytes, IggyError> {
    let request: DeleteStreamRequest = decode(body)?;
    shared
        .change(Change::DeleteStream {
            stream: request.stream_id,
        })
        .await?;
    Ok(Bytes::new())
}

pub(crate) async fn purge(shared: &Shared, body: &[u8]) -> Result<Bytes, IggyError> {
    let request: PurgeStreamRequest = decode(body)?;
    shared
        .change(Change::PurgeStream {
            stream: request.stream_id,
        })
        .await?;
    Ok(Bytes::new())
}

/// Streams have no options; one that is sent all the same must not look as if it were heeded.
fn no_options(options: &WireOptions) -> Result<(), IggyError> {
    match options.iter().next() {
        Some(option) => Err(IggyError::UnsupportedOptionKey(
            String::from_utf8_lossy(option.key).into_owned(),
        )),
        None => Ok(()),
    }
}

fn details(stream: &Stream) -> Result<Bytes, IggyError> {
    let topics = stream
        .topics
        .values()
        .map(|topic| topics::header(topic))
        .collect::<Result<_, _>>()?;
    Ok(GetStreamResponse {
        stream: response(stream)?,
        topics,
    }
    .to_bytes())
}

fn response(stream: &Stream) -> Result<StreamResponse, IggyError> {
    let (messages_count, size_bytes) =
        stream
            .topics
            .values()
            .fold((0, 0), |(messages, bytes), topic| {
                let (more_messages, more_bytes) = topics::totals(topic);
                (messages + more_messages, bytes + more_bytes)
            });
    Ok(StreamResponse {
        id: stream.id,
        created_at: stream.created_at,
        topics_count: u32::try_from(stream.topics.len()).unwrap_or(u32::MAX),
        size_bytes,
        messages_count,
        name: WireName::new(stream.name.as_str()).map_err(|_| IggyError::InvalidStreamName)?,
        options: WireOptions::empty(),
    })
}
