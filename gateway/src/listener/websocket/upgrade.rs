//! The HTTP request that becomes a WebSocket (RFC 6455, section 4; MQTT 3.1.1, section 6).
//!
//! What always holds: at most [`MAX_REQUEST`] bytes are buffered, and the request is parsed once, when it is complete;
//! who does not begin like a request is refused at the first byte that is wrong. `mqtt` is chosen or the upgrade is refused
//! (MQTT-6.0.0-3, -4). The key, the answer to it and the syntax are the library's.

use std::fmt::Write;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio_tungstenite::tungstenite::error::{Error, ProtocolError};
use tokio_tungstenite::tungstenite::handshake::machine::TryParse;
use tokio_tungstenite::tungstenite::handshake::server::{
    Request, Response, create_response, write_response,
};
use tokio_tungstenite::tungstenite::http::HeaderValue;

/// The longest request, in bytes: browsers with cookies stay below it.
pub(super) const MAX_REQUEST: usize = 8_192;
/// How much of a wrong path is quoted, in characters.
const MAX_QUOTED: usize = 100;
/// How much room the first read gets; most requests fit.
const FIRST_READ: usize = 1_024;
/// The sub-protocol (MQTT 3.1.1, section 6).
const SUBPROTOCOL: &str = "mqtt";
const PROTOCOL_HEADER: &str = "Sec-WebSocket-Protocol";
/// How a request begins.
const METHOD: &[u8] = b"GET ";
const END: &[u8] = b"\r\n\r\n";
/// Headers that a request must not repeat: which of two is meant, two programs on its way may see differently.
const ONCE: [&str; 5] = [
    "host",
    "connection",
    "upgrade",
    "sec-websocket-key",
    "sec-websocket-version",
];

/// Why a socket does not become a WebSocket.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// It closed, or broke, before the request was complete.
    #[error("no whole HTTP request came")]
    Unfinished,
    /// No HTTP/1.1 request, or one that is against the rules.
    #[error("not a WebSocket request: {0}; is this a plain MQTT client on the WebSocket port?")]
    Malformed(String),
    /// More than 8 KiB.
    #[error("the HTTP request has more than {MAX_REQUEST} bytes")]
    TooLong,
    /// It asks for something else.
    #[error("the path {asked:?} is not served; WebSocket clients must use {path}")]
    Path {
        /// What it asks for.
        asked: String,
        /// What there is.
        path: String,
    },
    /// It does not ask for an upgrade to a version of WebSocket that is served.
    #[error("no upgrade to WebSocket version 13 is asked for: {0}")]
    NoUpgrade(String),
    /// It does not offer `mqtt`.
    #[error("the WebSocket sub-protocol mqtt is not offered; the client must ask for it")]
    Subprotocol,
}

impl Refused {
    /// The status line, without the version; nothing for who has left.
    fn status(&self) -> Option<&'static str> {
        match self {
            Self::Unfinished => None,
            Self::Malformed(_) | Self::Subprotocol => Some("400 Bad Request"),
            Self::TooLong => Some("431 Request Header Fields Too Large"),
            Self::Path { .. } => Some("404 Not Found"),
            Self::NoUpgrade(_) => Some("426 Upgrade Required"),
        }
    }

    /// The whole response.
    pub(super) fn response(&self) -> Option<String> {
        let status = self.status()?;
        // Nothing of what the client has sent is sent back.
        let body = match self {
            Self::Path { path, .. } => format!("MQTT is at {path}\n"),
            Self::Subprotocol => format!("offer the sub-protocol {SUBPROTOCOL}\n"),
            Self::TooLong => format!("at most {MAX_REQUEST} bytes\n"),
            Self::NoUpgrade(_) => "upgrade to websocket, version 13\n".to_owned(),
            _ => "not a WebSocket request\n".to_owned(),
        };
        let mut response = format!("HTTP/1.1 {status}\r\n");
        if matches!(self, Self::NoUpgrade(_)) {
            response.push_str("Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n");
        }
        let length = body.len();
        let _ = write!(
            response,
            "Connection: close\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        Some(response)
    }
}

/// Reads the request from `stream` and checks it. Gives the response that makes it a WebSocket.
pub(super) async fn read<S: AsyncRead + Unpin>(
    stream: &mut S,
    path: &str,
) -> Result<Vec<u8>, Refused> {
    let mut request = Vec::with_capacity(FIRST_READ);
    let mut searched = 0;
    loop {
        if request.len() == MAX_REQUEST {
            return Err(Refused::TooLong);
        }
        let room = (MAX_REQUEST - request.len()).min(FIRST_READ) as u64;
        match (&mut *stream).take(room).read_buf(&mut request).await {
            Ok(0) | Err(_) => return Err(Refused::Unfinished),
            Ok(_) => {}
        }
        if !request.iter().zip(METHOD).all(|(got, want)| got == want) {
            return Err(Refused::Malformed("it does not begin with GET".to_owned()));
        }
        let rest = request.get(searched..).unwrap_or_default();
        if let Some(at) = rest.windows(END.len()).position(|window| window == END) {
            if searched + at + END.len() < request.len() {
                let reason = "bytes came behind it before it was answered";
                return Err(Refused::Malformed(reason.to_owned()));
            }
            return respond(&request, path);
        }
        searched = request.len().saturating_sub(END.len() - 1);
    }
}

fn respond(request: &[u8], path: &str) -> Result<Vec<u8>, Refused> {
    let malformed = |error: Error| Refused::Malformed(error.to_string());
    let Some((_, request)) = Request::try_parse(request).map_err(malformed)? else {
        return Err(Refused::Malformed("it is not complete".to_owned()));
    };
    let headers = request.headers();
    for name in ONCE {
        if headers.get_all(name).iter().nth(1).is_some() {
            return Err(Refused::Malformed(format!("{name} comes twice")));
        }
    }
    if !headers.contains_key("host") {
        return Err(Refused::Malformed("it has no host".to_owned()));
    }
    if request.uri().path() != path {
        return Err(Refused::Path {
            asked: request.uri().path().chars().take(MAX_QUOTED).collect(),
            path: path.to_owned(),
        });
    }
    let mut response = create_response(&request).map_err(|error| match error {
        Error::Protocol(
            ProtocolError::MissingConnectionUpgradeHeader
            | ProtocolError::MissingUpgradeWebSocketHeader
            | ProtocolError::MissingSecWebSocketVersionHeader,
        ) => Refused::NoUpgrade(error.to_string()),
        error => malformed(error),
    })?;
    if !offers_mqtt(&request) {
        return Err(Refused::Subprotocol);
    }
    let chosen = HeaderValue::from_static(SUBPROTOCOL);
    response.headers_mut().insert(PROTOCOL_HEADER, chosen);
    written(&response).map_err(malformed)
}

/// The header may come more than once, and list several (RFC 6455, 11.3.4).
fn offers_mqtt(request: &Request) -> bool {
    let mut offers = request.headers().get_all(PROTOCOL_HEADER).into_iter();
    offers.any(|offer| {
        let offer = offer.to_str().unwrap_or_default();
        offer.split(',').any(|name| name.trim() == SUBPROTOCOL)
    })
}

fn written(response: &Response) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::with_capacity(256);
    write_response(&mut bytes, response)?;
    Ok(bytes)
}
