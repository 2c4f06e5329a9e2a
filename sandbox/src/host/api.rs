//! The HTTP API of the connectors runtime 0.5.0, as far as it looks at connectors and restarts them.
//!
//! Always holds: paths, fields, status codes and error codes are the official ones; with an API key, only `/` and
//! `/health` answer without it. The pages that write configurations are not served.

use std::sync::Arc;

use axum::extract::{Path, RawQuery, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::de::IntoDeserializer;
use serde::de::value::{Error as ValueError, StrDeserializer};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tracing::error;

use super::Shared;
use super::connector::{ConnectorError, Info};
use super::connector_files::{ConfigFormat, ConnectorConfig};
use super::statistics;

/// The header that carries the API key.
const API_KEY: &str = "api-key";

/// The paths that answer without the API key.
const PUBLIC: [&str; 2] = ["/", "/health"];

type AppState = State<Arc<Shared>>;

/// All paths. `metrics` is the path of the Prometheus page, if it is served.
pub(super) fn router(shared: Arc<Shared>, metrics: Option<&str>) -> Router {
    let mut router = Router::new()
        .route("/", get(|| async { "Connector Runtime API" }))
        .route(
            "/health",
            get(|| async { Json(json!({"status": "healthy"})) }),
        )
        .route(
            "/stats",
            get(async |State(shared): AppState| Json(statistics::stats(&shared))),
        )
        .route("/sources", get(sources))
        .route("/sources/{key}", get(source))
        .route("/sources/{key}/configs/plugin", get(source_plugin_config))
        .route("/sources/{key}/restart", post(restart_source))
        .route("/sinks", get(sinks))
        .route("/sinks/{key}", get(sink))
        .route("/sinks/{key}/configs/plugin", get(sink_plugin_config))
        .route("/sinks/{key}/restart", post(restart_sink));
    if let Some(path) = metrics {
        router = router.route(
            path,
            get(async |State(shared): AppState| statistics::metrics(&shared)),
        );
    }
    router
        .layer(middleware::from_fn_with_state(
            Arc::clone(&shared),
            check_api_key,
        ))
        .with_state(shared)
}

async fn check_api_key(State(shared): AppState, request: Request, next: Next) -> Response {
    let expected = shared.api_key.expose();
    let given = request.headers().get(API_KEY);
    let allowed = expected.is_empty()
        || PUBLIC.contains(&request.uri().path())
        || given.is_some_and(|given| given.as_bytes() == expected.as_bytes());
    if allowed {
        next.run(request).await
    } else {
        StatusCode::UNAUTHORIZED.into_response()
    }
}

/// An error as the API shows it.
enum ApiError {
    NoSource(String),
    NoSink(String),
    Connector(ConnectorError),
    Format,
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let (status, code, reason) = match self {
            Self::NoSource(key) => (
                StatusCode::NOT_FOUND,
                "source_not_found",
                format!("Source not found with key: {key}"),
            ),
            Self::NoSink(key) => (
                StatusCode::NOT_FOUND,
                "sink_not_found",
                format!("Sink not found with key: {key}"),
            ),
            Self::Connector(reason @ (ConnectorError::Iggy { .. } | ConnectorError::Call(_))) => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "error",
                reason.to_string(),
            ),
            Self::Connector(reason) => (
                StatusCode::BAD_REQUEST,
                "invalid_configuration",
                format!("Invalid configuration: {reason}"),
            ),
            Self::Format => (
                StatusCode::BAD_REQUEST,
                "error",
                "Cannot convert configuration".to_owned(),
            ),
        };
        error!("HTTP API: {reason}");
        (status, Json(json!({"code": code, "reason": reason}))).into_response()
    }
}

impl From<ConnectorError> for ApiError {
    fn from(reason: ConnectorError) -> Self {
        Self::Connector(reason)
    }
}

/// One connector: what the list shows of it, and its streams.
#[derive(Serialize)]
struct Details<S> {
    #[serde(flatten)]
    info: Info,
    streams: Vec<S>,
}

async fn sources(State(shared): AppState) -> Json<Vec<Info>> {
    Json(
        shared
            .sources
            .values()
            .map(|source| source.info())
            .collect(),
    )
}

async fn source(State(shared): AppState, Path(key): Path<String>) -> Result<Response, ApiError> {
    let source = shared.sources.get(&key).ok_or(ApiError::NoSource(key))?;
    let (info, streams) = (source.info(), source.config().streams);
    Ok(Json(Details { info, streams }).into_response())
}

async fn sinks(State(shared): AppState) -> Json<Vec<Info>> {
    Json(shared.sinks.values().map(|sink| sink.info()).collect())
}

async fn sink(State(shared): AppState, Path(key): Path<String>) -> Result<Response, ApiError> {
    let sink = shared.sinks.get(&key).ok_or(ApiError::NoSink(key))?;
    let (info, streams) = (sink.info(), sink.config().streams);
    Ok(Json(Details { info, streams }).into_response())
}

async fn restart_source(
    State(shared): AppState,
    Path(key): Path<String>,
) -> Result<StatusCode, ApiError> {
    let source = shared
        .sources
        .get(&key)
        .cloned()
        .ok_or(ApiError::NoSource(key))?;
    run_to_end(async move { shared.restart_source(&source).await }).await
}

async fn restart_sink(
    State(shared): AppState,
    Path(key): Path<String>,
) -> Result<StatusCode, ApiError> {
    let sink = shared
        .sinks
        .get(&key)
        .cloned()
        .ok_or(ApiError::NoSink(key))?;
    run_to_end(async move { shared.restart_sink(&sink).await }).await
}

/// Restarts in a task of its own: a caller that gives up must not leave a connector half restarted.
async fn run_to_end(
    restart: impl Future<Output = Result<(), ConnectorError>> + Send + 'static,
) -> Result<StatusCode, ApiError> {
    tokio::spawn(restart)
        .await
        .map_err(ConnectorError::Call)??;
    Ok(StatusCode::NO_CONTENT)
}

/// The format that the query names, if it names one.
fn asked_format(query: Option<&str>) -> Result<Option<ConfigFormat>, ApiError> {
    let pairs = query.unwrap_or_default().split('&');
    let Some(name) = pairs
        .filter_map(|pair| pair.strip_prefix("format="))
        .next_back()
    else {
        return Ok(None);
    };
    let name: StrDeserializer<'_, ValueError> = name.into_deserializer();
    match ConfigFormat::deserialize(name) {
        Ok(format) => Ok(Some(format)),
        Err(_) => Err(ApiError::Format),
    }
}

async fn source_plugin_config(
    State(shared): AppState,
    Path(key): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let source = shared.sources.get(&key).ok_or(ApiError::NoSource(key))?;
    plugin_config(source.config(), asked_format(query.as_deref())?)
}

async fn sink_plugin_config(
    State(shared): AppState,
    Path(key): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let sink = shared.sinks.get(&key).ok_or(ApiError::NoSink(key))?;
    plugin_config(sink.config(), asked_format(query.as_deref())?)
}

/// A connector's `plugin_config`, in the format of the request, of the file, or TOML.
fn plugin_config<S>(
    config: ConnectorConfig<S>,
    format: Option<ConfigFormat>,
) -> Result<Response, ApiError> {
    let Some(plugin_config) = config.plugin_config else {
        return Ok(StatusCode::NOT_FOUND.into_response());
    };
    let format = format.or(config.plugin_config_format);
    let (content_type, text) = write(&plugin_config, format.unwrap_or(ConfigFormat::Toml))?;
    let mut headers = HeaderMap::new();
    headers.insert(
        header::CONTENT_TYPE,
        header::HeaderValue::from_static(content_type),
    );
    Ok((headers, text).into_response())
}

fn write(plugin_config: &Value, format: ConfigFormat) -> Result<(&'static str, String), ApiError> {
    match format {
        ConfigFormat::Json => Ok(("application/json", plugin_config.to_string())),
        ConfigFormat::Text => Ok(("text/plain", plugin_config.to_string())),
        ConfigFormat::Toml => toml::to_string(plugin_config)
            .map(|text| ("application/toml", text))
            .map_err(|_| ApiError::Format),
        // The official runtime writes YAML too; no YAML library is worth it here.
        ConfigFormat::Yaml => Err(ApiError::Format),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_config_is_written_in_the_format_asked_for() {
        let config = json!({"config": "gateway.toml"});
        let toml = write(&config, ConfigFormat::Toml).ok().unwrap();
        assert_eq!(
            toml,
            ("application/toml", "config = \"gateway.toml\"\n".to_owned())
        );
        let json = write(&config, ConfigFormat::Json).ok().unwrap();
        assert_eq!(
            json,
            (
                "application/json",
                r#"{"config":"gateway.toml"}"#.to_owned()
            )
        );
        assert!(write(&config, ConfigFormat::Yaml).is_err());
    }

    #[test]
    fn the_format_is_taken_from_the_query() {
        assert_eq!(asked_format(None).ok(), Some(None));
        assert_eq!(
            asked_format(Some("a=b&format=json")).ok(),
            Some(Some(ConfigFormat::Json))
        );
        assert!(asked_format(Some("format=xml")).is_err());
    }
}
