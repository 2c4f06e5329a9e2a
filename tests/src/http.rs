//! The few lines of HTTP/1.1 that the suite needs: one request, one reply, one connection.
//!
//! Always holds: a request that gets no reply within its deadline is an error, never a hang.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

const DEADLINE: Duration = Duration::from_secs(60);

/// A reply: the status code and the body.
#[derive(Debug)]
pub struct Reply {
    /// The status code, such as 200.
    pub status: u16,
    /// The body as text.
    pub body: String,
}

impl Reply {
    /// The body as JSON, `Null` when it is none.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or(Value::Null)
    }
}

/// Sends a request with an optional bearer token and an optional JSON body.
///
/// # Errors
/// When the server cannot be reached or its reply is not HTTP.
pub fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    token: Option<&str>,
    body: Option<&Value>,
) -> io::Result<Reply> {
    let authorization = token.map(|token| format!("Bearer {token}"));
    send(address, method, path, authorization, body)
}

/// Who asks, by name and password.
#[derive(Debug, Clone, Copy)]
pub struct Login<'a> {
    /// The name.
    pub user: &'a str,
    /// The password.
    pub password: &'a str,
}

/// Sends a GET request as this user.
///
/// # Errors
/// As [`request`].
pub fn get_as(address: SocketAddr, path: &str, login: Login<'_>) -> io::Result<Reply> {
    let Login { user, password } = login;
    let login = STANDARD.encode(format!("{user}:{password}"));
    send(address, "GET", path, Some(format!("Basic {login}")), None)
}

fn send(
    address: SocketAddr,
    method: &str,
    path: &str,
    authorization: Option<String>,
    body: Option<&Value>,
) -> io::Result<Reply> {
    let mut stream = TcpStream::connect_timeout(&address, DEADLINE)?;
    stream.set_read_timeout(Some(DEADLINE))?;
    let body = body.map(Value::to_string).unwrap_or_default();
    let authorization = authorization
        .map(|value| format!("Authorization: {value}\r\n"))
        .unwrap_or_default();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{authorization}\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    let reply = read_reply(&mut stream)?;
    parse(&String::from_utf8_lossy(&reply))
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the reply is not HTTP"))
}

/// Sends a GET request.
///
/// # Errors
/// As [`request`].
pub fn get(address: SocketAddr, path: &str) -> io::Result<Reply> {
    request(address, "GET", path, None, None)
}

/// Reads until the end, or until the announced length has come: not every server closes when it is asked to.
fn read_reply(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut reply = Vec::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let length = stream.read(&mut buffer)?;
        reply.extend_from_slice(&buffer[..length]);
        if length == 0 || whole_length(&reply).is_some_and(|whole| reply.len() >= whole) {
            return Ok(reply);
        }
    }
}

/// How long the reply is, if its head has come and says so.
fn whole_length(reply: &[u8]) -> Option<usize> {
    let end = reply.windows(4).position(|bytes| bytes == b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&reply[..end]).to_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"))?;
    Some(end + length.trim().parse::<usize>().ok()?)
}

fn parse(reply: &str) -> Option<Reply> {
    let (head, body) = reply.split_once("\r\n\r\n")?;
    let status = head.split_whitespace().nth(1)?.parse().ok()?;
    Some(Reply {
        status,
        body: body.to_owned(),
    })
}
