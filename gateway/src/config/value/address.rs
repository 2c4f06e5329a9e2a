//! Values that say where something is: addresses to listen at, the server to connect to, the path of a request.

use std::net::SocketAddr;

use super::{Fault, MAX_TEXT, Raw, texts};
use crate::config::problem::quoted;

pub(super) fn listen(raw: &Raw) -> Result<Vec<SocketAddr>, Fault> {
    let texts = texts(raw).ok_or(Fault::Type("a text \"IP:port\" or a list of them"))?;
    if texts.is_empty() {
        return Err(Fault::Value(
            "no address; use at least one, for example \"127.0.0.1:1883\"".to_owned(),
        ));
    }
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for text in texts {
        let address = socket_address(&text)?;
        if address.port() != 0 && addresses.contains(&address) {
            return Err(Fault::Value(format!(
                "{address} is listed twice; remove one"
            )));
        }
        addresses.push(address);
    }
    Ok(addresses)
}

/// Also none: an empty list, or an empty text.
pub(super) fn any_listen(raw: &Raw) -> Result<Vec<SocketAddr>, Fault> {
    match texts(raw) {
        Some(texts) if texts.iter().all(String::is_empty) => Ok(Vec::new()),
        _ => listen(raw),
    }
}

pub(super) fn one_address(raw: &Raw) -> Result<SocketAddr, Fault> {
    socket_address(&raw.as_text().ok_or(Fault::Type("a text \"IP:port\""))?)
}

fn socket_address(text: &str) -> Result<SocketAddr, Fault> {
    text.parse().map_err(|_| {
        let text = quoted(text);
        Fault::Value(format!(
            "{text} is not IP:port; write for example \"127.0.0.1:1883\" (this machine only), \"0.0.0.0:1883\" (every IPv4 address) or \"[::]:1883\""
        ))
    })
}

pub(super) fn url_path(raw: &Raw) -> Result<String, Fault> {
    let text = raw.as_text().ok_or(Fault::Type("a text \"/mqtt\""))?;
    let legal =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'-' | b'.' | b'_' | b'~');
    if text.starts_with('/') && text.len() <= MAX_TEXT && text.bytes().all(legal) {
        return Ok(text);
    }
    let text = quoted(&text);
    Err(Fault::Value(format!(
        "{text} is no path; it begins with / and has at most {MAX_TEXT} of the characters A-Z a-z 0-9 / . _ ~ -"
    )))
}

/// Never repeats the text: people paste connection strings with a password in them.
pub(super) fn address(raw: &Raw) -> Result<String, Fault> {
    let text = raw.as_text().ok_or(Fault::Type("a text \"host:port\""))?;
    if is_host_and_port(&text) {
        return Ok(text);
    }
    let reason = "is not host:port; write for example \"127.0.0.1:8090\" or \"iggy:8090\", without scheme, user, password or options";
    Err(Fault::Value(reason.to_owned()))
}

fn is_host_and_port(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else {
        return false;
    };
    let host_is_good = match host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
    {
        Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            let legal =
                |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
            (1..=253).contains(&host.len()) && host.bytes().all(legal)
        }
    };
    let port_is_good = port.bytes().all(|byte| byte.is_ascii_digit())
        && port.parse::<u16>().is_ok_and(|port| port != 0);
    host_is_good && port_is_good
}
