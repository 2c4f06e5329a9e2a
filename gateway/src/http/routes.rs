//! Which request gets which answer.
//!
//! What always holds: nothing changes by a GET; every answer says that it is not to be kept, and by whom it may be shown; what
//! is wrong with a request is said in JSON.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use futures_util::stream;
use serde::Deserialize;
use serde_json::json;
use tokio::time::{Instant, sleep_until};

use super::guard::Unwelcome;
use super::{App, explain, page};
use crate::status::readiness;

/// How often those who watch live get a picture.
const EVENT_INTERVAL: Duration = Duration::from_secs(1);

/// All paths.
pub(super) fn router(app: Arc<App>) -> Router {
    let guarded = Router::new()
        .route("/", get(page::page))
        .route("/metrics", get(metrics))
        .route("/api/status", get(status))
        .route("/api/events", get(events))
        .route("/api/explain", get(explained))
        .route("/api/reload", post(reload))
        .route("/api/listeners/{address}/drain", post(drain))
        .route("/api/listeners/{address}/open", post(open))
        .fallback(nothing_there)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn_with_state(app.clone(), guard));
    Router::new()
        // For those who start and stop containers: they cannot log in, and learn no more than this.
        .route("/health", get(health))
        .route("/ready", get(ready))
        .merge(guarded)
        .layer(middleware::from_fn(head))
        .with_state(app)
}

fn failure(status: StatusCode, text: impl Into<String>) -> Response {
    (status, Json(json!({ "error": text.into() }))).into_response()
}

async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    match app.guard.admit(request.method(), request.headers()).await {
        Ok(()) => next.run(request).await,
        Err(unwelcome) => {
            let status = match unwelcome {
                Unwelcome::Unauthenticated => StatusCode::UNAUTHORIZED,
                Unwelcome::WrongHost | Unwelcome::CrossSite => StatusCode::FORBIDDEN,
            };
            let mut answer = failure(status, unwelcome.text());
            if unwelcome == Unwelcome::Unauthenticated {
                let challenge =
                    HeaderValue::from_static("Basic realm=\"MQTT gateway\", charset=\"UTF-8\"");
                answer
                    .headers_mut()
                    .insert(header::WWW_AUTHENTICATE, challenge);
            }
            answer
        }
    }
}

/// What every answer says of itself.
async fn head(request: Request, next: Next) -> Response {
    let mut answer = next.run(request).await;
    let headers = answer.headers_mut();
    for (name, value) in [
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers
        .entry(header::CONTENT_SECURITY_POLICY)
        .or_insert(HeaderValue::from_static(
            "default-src 'none'; frame-ancestors 'none'",
        ));
    answer
}

async fn nothing_there() -> Response {
    failure(
        StatusCode::NOT_FOUND,
        "there is nothing here; the status page is at /, and what there is beside it is in docs/monitoring.md",
    )
}

async fn wrong_method() -> Response {
    failure(
        StatusCode::METHOD_NOT_ALLOWED,
        "this path is asked in another way (GET or POST); see docs/monitoring.md",
    )
}

/// The process answers: that is all this says.
async fn health() -> Response {
    Json(json!({ "status": "alive" })).into_response()
}

async fn ready(State(app): State<Arc<App>>) -> Response {
    let readiness = readiness::check(app.observer.context());
    let status = match readiness.ready {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, Json(readiness)).into_response()
}

async fn metrics(State(app): State<Arc<App>>) -> Response {
    let media_type =
        HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    match app.metrics.text().await {
        Some(text) => ([(header::CONTENT_TYPE, media_type)], text).into_response(),
        None => stops(),
    }
}

fn stops() -> Response {
    failure(StatusCode::SERVICE_UNAVAILABLE, "the gateway stops")
}

async fn status(State(app): State<Arc<App>>) -> Response {
    let media_type = HeaderValue::from_static("application/json");
    match app.observer.picture().await {
        Some(picture) => {
            ([(header::CONTENT_TYPE, media_type)], picture.json.clone()).into_response()
        }
        None => stops(),
    }
}

/// A picture a second. The picture of one second is made once, whoever watches.
async fn events(State(app): State<Arc<App>>) -> Response {
    let Ok(place) = app.viewers.clone().try_acquire_owned() else {
        return failure(
            StatusCode::SERVICE_UNAVAILABLE,
            "too many watch this gateway already; close another page, or ask /api/status now and then",
        );
    };
    let first = (app, place, Instant::now());
    let pictures = stream::unfold(first, |(app, place, due)| async move {
        sleep_until(due).await;
        let picture = app.observer.picture().await?;
        let mut event = Vec::with_capacity(picture.json.len() + 32);
        event.extend_from_slice(b"event: status\ndata: ");
        event.extend_from_slice(&picture.json);
        event.extend_from_slice(b"\n\n");
        let next = Instant::now() + EVENT_INTERVAL;
        Some((
            Ok::<_, std::convert::Infallible>(Bytes::from(event)),
            (app, place, next),
        ))
    });
    let media_type = HeaderValue::from_static("text/event-stream");
    (
        [(header::CONTENT_TYPE, media_type)],
        Body::from_stream(pictures),
    )
        .into_response()
}

#[derive(Debug, Deserialize)]
struct Topic {
    topic: String,
}

async fn explained(
    State(app): State<Arc<App>>,
    query: Result<Query<Topic>, QueryRejection>,
) -> Response {
    let Ok(Query(Topic { topic })) = query else {
        return failure(
            StatusCode::BAD_REQUEST,
            "name the topic: /api/explain?topic=building/north/room/42/temp",
        );
    };
    match explain::explain(app.observer.context(), &topic) {
        Ok(explained) => Json(explained).into_response(),
        Err(error) => failure(StatusCode::BAD_REQUEST, error.to_string()),
    }
}

async fn reload(State(app): State<Arc<App>>) -> Response {
    Json(app.actions.reload().await).into_response()
}

async fn drain(state: State<Arc<App>>, address: Path<String>) -> Response {
    set_open(state, address, false).await
}

async fn open(state: State<Arc<App>>, address: Path<String>) -> Response {
    set_open(state, address, true).await
}

async fn set_open(
    State(app): State<Arc<App>>,
    Path(address): Path<String>,
    open: bool,
) -> Response {
    let Ok(address) = address.parse::<SocketAddr>() else {
        return failure(
            StatusCode::BAD_REQUEST,
            "name the listener as IP:port, as the status page does",
        );
    };
    match app.actions.set_open(address, open).await {
        Ok(()) => Json(json!({ "listener": address.to_string(), "open": open })).into_response(),
        Err(reason) => failure(StatusCode::CONFLICT, reason),
    }
}
