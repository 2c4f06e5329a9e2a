//! Asks a running gateway for its status over HTTP.
//!
//! What always holds: it takes at most [`PATIENCE`] and [`LONGEST`] bytes; the token is sent to the gateway and shown nowhere.

use std::path::PathBuf;
use std::time::Duration;

use mqtt_gateway::config::{Secret, read_secret_file};
use mqtt_gateway::status::Status;
use ureq::Agent;

use crate::args::GatewayArgs;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Far more than a status with all its rows has.
const LONGEST: u64 = 16 * 1024 * 1024;

/// Why there is no status.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    /// The token cannot be read.
    #[error("--token-file {file}: {reason}", file = .file.display())]
    Token {
        /// The file.
        file: PathBuf,
        /// Why not.
        reason: String,
    },
    /// Nobody answers.
    #[error("no gateway answers at {url}: {reason}; is it running, and is this its http_listen?")]
    Unreachable {
        /// Who was asked.
        url: String,
        /// Why not.
        reason: String,
    },
    /// It wants a token.
    #[error("the gateway at {url} wants a token; give --token-file")]
    Unauthenticated {
        /// Who was asked.
        url: String,
    },
    /// It does not answer as a gateway does.
    #[error("what answers at {url} is no MQTT gateway of this version: {reason}")]
    NotUnderstood {
        /// Who was asked.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// A gateway to ask.
pub(crate) struct Source {
    agent: Agent,
    url: String,
    token: Option<Secret>,
}

impl Source {
    /// The gateway that the arguments name. Reads the token.
    pub(crate) fn new(arguments: &GatewayArgs) -> Result<Self, FetchError> {
        let token = arguments.token_file.as_ref().map(|file| {
            read_secret_file(file).map_err(|reason| FetchError::Token {
                file: file.clone(),
                reason,
            })
        });
        let agent = Agent::config_builder()
            .timeout_global(Some(PATIENCE))
            .http_status_as_error(false)
            .max_redirects(0)
            .build();
        Ok(Self {
            agent: agent.into(),
            url: arguments.url.trim_end_matches('/').to_owned(),
            token: token.transpose()?,
        })
    }

    /// Who is asked.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// What it says now.
    pub(crate) fn fetch(&self) -> Result<Status, FetchError> {
        let url = || self.url.clone();
        let mut request = self.agent.get(format!("{}/api/status", self.url));
        if let Some(token) = &self.token {
            request = request.header("Authorization", format!("Bearer {}", token.expose()));
        }
        let unreachable = |error: ureq::Error| FetchError::Unreachable {
            url: url(),
            reason: error.to_string(),
        };
        let not_understood = |reason: String| FetchError::NotUnderstood { url: url(), reason };
        let mut reply = request.call().map_err(unreachable)?;
        match reply.status().as_u16() {
            200 => {}
            401 => return Err(FetchError::Unauthenticated { url: url() }),
            status => return Err(not_understood(format!("it answers {status}"))),
        }
        let body = reply.body_mut().with_config().limit(LONGEST).read_to_vec();
        let body = body.map_err(unreachable)?;
        serde_json::from_slice(&body).map_err(|error| not_understood(error.to_string()))
    }
}
