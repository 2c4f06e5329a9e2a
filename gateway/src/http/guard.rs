//! Who may ask.
//!
//! What always holds: where a token or users are configured, nothing but health is shown without one of them, also on
//! loopback; where none are, which only loopback may be, requests must name this machine, so that no page in a browser
//! here can be led to read or to act under another name. Tokens are compared in a time that does not depend on them.

use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, Method, header};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytestring::ByteString;
use tokio::time::timeout;

use crate::config::{HttpConfig, ListenerConfig, Secret, read_secret_file};
use crate::session::Context;
use crate::wire::{Connect, Password};

/// A shorter token could be guessed.
const MIN_TOKEN: usize = 16;
/// The longest.
const MAX_TOKEN: usize = 255;
/// The user name that goes with the token where a user name has to be given.
const TOKEN_USER: &str = "token";
/// How long checking a password may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why a token cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file does not give one.
    #[error("{0}")]
    Unreadable(String),
    /// It is too short or too long.
    #[error("the token has {0} bytes; use {MIN_TOKEN} to {MAX_TOKEN}")]
    Length(usize),
    /// It could not be sent in a header.
    #[error("the token has characters that are not printable ASCII; use letters and digits")]
    Characters,
}

/// Reads a token; blocks on that.
///
/// # Errors
/// What is wrong with it; never the token itself.
pub fn load_token(file: &Path) -> Result<Secret, TokenError> {
    let secret = read_secret_file(file).map_err(TokenError::Unreadable)?;
    let token = secret.expose();
    if !(MIN_TOKEN..=MAX_TOKEN).contains(&token.len()) {
        return Err(TokenError::Length(token.len()));
    }
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(TokenError::Characters);
    }
    Ok(secret)
}

/// Why somebody is not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unwelcome {
    /// Has to show a token or a password.
    Unauthenticated,
    /// Asks under a name that is not this machine's.
    WrongHost,
    /// Another web site lets a browser ask.
    CrossSite,
}

impl Unwelcome {
    /// For the answer.
    pub fn text(self) -> &'static str {
        match self {
            Self::Unauthenticated => {
                "a token is needed (Authorization: Bearer …), or user name and password; user \"token\" takes the token as its password"
            }
            Self::WrongHost => {
                "this address is open to this machine only: ask for it as 127.0.0.1, [::1] or localhost, or give it a token (http_token_file)"
            }
            Self::CrossSite => "another web site may not ask this of the gateway",
        }
    }
}

/// See the module.
pub struct Guard {
    /// A hash: two of them are compared in constant time.
    token: Option<blake3::Hash>,
    users: Vec<String>,
    /// How users are told apart.
    chain: ListenerConfig,
    context: Arc<Context>,
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").finish_non_exhaustive()
    }
}

impl Guard {
    /// Lets those in that `config` names.
    pub fn new(config: &HttpConfig, token: Option<Secret>, context: Arc<Context>) -> Self {
        let nowhere = ([127, 0, 0, 1], 0).into();
        let methods = context.config.access.authentication.clone();
        Self {
            token: token.map(|token| blake3::hash(token.expose().as_bytes())),
            users: config.users.clone(),
            chain: ListenerConfig::plain(nowhere, methods),
            context,
        }
    }

    /// Whether a request with these headers is answered.
    pub async fn admit(&self, method: &Method, headers: &HeaderMap) -> Result<(), Unwelcome> {
        let acts = !matches!(*method, Method::GET | Method::HEAD);
        if acts && is_cross_site(headers) {
            return Err(Unwelcome::CrossSite);
        }
        if self.token.is_none() && self.users.is_empty() {
            return match names_this_machine(headers) {
                true => Ok(()),
                false => Err(Unwelcome::WrongHost),
            };
        }
        let given = headers.get(header::AUTHORIZATION);
        let given = given.and_then(|given| given.to_str().ok());
        let Some((scheme, rest)) = given.and_then(|given| given.split_once(' ')) else {
            return Err(Unwelcome::Unauthenticated);
        };
        let is_welcome = if scheme.eq_ignore_ascii_case("bearer") {
            self.is_token(rest.trim())
        } else if scheme.eq_ignore_ascii_case("basic") {
            self.is_user(rest.trim()).await
        } else {
            false
        };
        match is_welcome {
            true => Ok(()),
            false => Err(Unwelcome::Unauthenticated),
        }
    }

    fn is_token(&self, given: &str) -> bool {
        self.token
            .is_some_and(|token| token == blake3::hash(given.as_bytes()))
    }

    async fn is_user(&self, given: &str) -> bool {
        let decoded = STANDARD.decode(given).ok();
        let Some(text) = decoded.and_then(|bytes| String::from_utf8(bytes).ok()) else {
            return false;
        };
        let Some((user, password)) = text.split_once(':') else {
            return false;
        };
        if user == TOKEN_USER && self.is_token(password) {
            return true;
        }
        if !self.users.iter().any(|known| known == user) {
            return false;
        }
        let connect = Connect {
            client_id: None,
            clean_session: true,
            keep_alive: 0,
            will: false,
            username: Some(ByteString::from(user)),
            password: Some(Password::new(password.as_bytes().to_vec())),
        };
        let asked = self
            .context
            .access
            .authenticate(&self.chain, None, &connect);
        let identity = timeout(PATIENCE, asked).await;
        // Whoever a token of a user names counts, not what was typed.
        let is_known = |name: &str| self.users.iter().any(|known| known == name);
        matches!(identity, Ok(Ok(identity)) if identity.user.as_deref().is_some_and(is_known))
    }
}

/// Whether a browser asks for another site. Programs that are no browsers send neither header.
fn is_cross_site(headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    if text("sec-fetch-site").is_some_and(|site| site != "same-origin" && site != "none") {
        return true;
    }
    let host = text("host").unwrap_or_default();
    text("origin").is_some_and(|origin| {
        let of_origin = origin.split_once("://").map(|(_, host)| host);
        of_origin != Some(host)
    })
}

/// Whether the request is for an address of this machine, by number or as `localhost`. A name of somebody else's could be made
/// to lead here.
fn names_this_machine(headers: &HeaderMap) -> bool {
    let Some(host) = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok())
    else {
        return false;
    };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let number = name.trim_start_matches('[').trim_end_matches(']');
    let is_loopback = number.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    is_loopback || name.eq_ignore_ascii_case("localhost")
}

#[cfg(test)]
mod tests;
