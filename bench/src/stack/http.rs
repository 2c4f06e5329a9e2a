//! The few lines of HTTP/1.1 that are needed to ask a host for its connectors, an older Iggy for topics and a gateway for its
//! metrics.
//!
//! Always holds: one request, one reply, one connection; a reply that does not come in time is an error.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

const DEADLINE: Duration = Duration::from_secs(20);
/// The longest reply that is read.
const LONGEST: u64 = 1024 * 1024;

/// A reply.
#[derive(Debug)]
pub(crate) struct Reply {
    /// The status code, such as 200.
    pub(crate) status: u16,
    /// The body as text.
    pub(crate) body: String,
}

impl Reply {
    /// The body as JSON, `Null` when it is none.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or(Value::Null)
    }
}

/// Sends a request with an optional bearer token and an optional JSON body.
///
/// # Errors
/// When the server cannot be reached or its reply is not HTTP.
pub(crate) fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    token: Option<&str>,
    body: Option<&Value>,
) -> io::Result<Reply> {
    let mut stream = TcpStream::connect_timeout(&address, DEADLINE)?;
    stream.set_read_timeout(Some(DEADLINE))?;
    let body = body.map(Value::to_string).unwrap_or_default();
    let authorization = token
        .map(|token| format!("Authorization: Bearer {token}\r\n"))
        .unwrap_or_default();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{authorization}\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes())?;
    let mut reply = String::new();
    stream.take(LONGEST).read_to_string(&mut reply)?;
    parse(&reply).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the reply is not HTTP"))
}

fn parse(reply: &str) -> Option<Reply> {
    let (head, body) = reply.split_once("\r\n\r\n")?;
    let status = head.split_whitespace().nth(1)?.parse().ok()?;
    Some(Reply {
        status,
        body: body.to_owned(),
    })
}
