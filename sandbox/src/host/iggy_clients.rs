//! Connections to Iggy.
//!
//! Always holds: a connection is logged in before it is handed out, and no secret reaches a log line. `nodelay` is on,
//! which the official runtime leaves off: without it each request of a small batch waits 40 ms for Nagle's algorithm.

use std::path::PathBuf;

use iggy::prelude::{AutoLogin, Client, Credentials, IggyClient, IggyClientBuilder, IggyError};
use thiserror::Error;

use super::config::IggyConfig;

/// What a token starts with that stands in a file.
const TOKEN_FILE: &str = "file:";

/// Why Iggy cannot be used.
#[derive(Debug, Error)]
pub enum ClientError {
    /// Neither a token nor a user with a password.
    #[error("[iggy] needs a username and a password, or a token")]
    NoCredentials,
    /// The token's file cannot be used.
    #[error("the token file `{path}` cannot be used: {reason}")]
    TokenFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// TLS without an authority.
    #[error("[iggy.tls] needs ca_file when it is enabled")]
    NoCaFile,
    /// The server refuses.
    #[error(
        "Iggy at {address} refuses the connection: {reason}; check [iggy] address, username and password"
    )]
    Refused {
        /// The server.
        address: String,
        /// Its answer.
        reason: IggyError,
    },
}

/// Connects and logs in. As long as there is no server at the address it goes on trying, as the official runtime does.
///
/// # Errors
/// Says which setting is missing or wrong.
pub async fn connect(config: &IggyConfig) -> Result<IggyClient, ClientError> {
    let refused = |reason| ClientError::Refused {
        address: config.address.clone(),
        reason,
    };
    let mut builder = IggyClientBuilder::new()
        .with_tcp()
        .with_server_address(config.address.clone())
        .with_auto_sign_in(AutoLogin::Enabled(credentials(config)?))
        .with_no_delay();
    if config.tls.enabled {
        if config.tls.ca_file.is_empty() {
            return Err(ClientError::NoCaFile);
        }
        builder = builder
            .with_tls_enabled(true)
            .with_tls_ca_file(config.tls.ca_file.clone());
        if let Some(domain) = config.tls.domain.clone().filter(|it| !it.is_empty()) {
            builder = builder.with_tls_domain(domain);
        }
    }
    let client = builder.build().map_err(refused)?;
    client.connect().await.map_err(refused)?;
    Ok(client)
}

fn credentials(config: &IggyConfig) -> Result<Credentials, ClientError> {
    let token = config.token.expose();
    if token.is_empty() {
        if config.username.is_empty() || config.password.expose().is_empty() {
            return Err(ClientError::NoCredentials);
        }
        return Ok(Credentials::UsernamePassword(
            config.username.clone(),
            config.password.expose().into(),
        ));
    }
    let token = match token.strip_prefix(TOKEN_FILE) {
        Some(path) => token_from_file(path)?,
        None => token.to_owned(),
    };
    Ok(Credentials::PersonalAccessToken(token.into()))
}

fn token_from_file(path: &str) -> Result<String, ClientError> {
    let path = match (path.strip_prefix("~/"), std::env::home_dir()) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(path),
    };
    let unusable = |reason: String| ClientError::TokenFile {
        path: path.clone(),
        reason,
    };
    let token = std::fs::read_to_string(&path).map_err(|reason| unusable(reason.to_string()))?;
    match token.trim() {
        "" => Err(unusable("it is empty".to_owned())),
        token => Ok(token.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::Secret;
    use super::*;

    #[test]
    fn a_token_in_a_file_is_used_without_the_white_space_around_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "  secret\n").unwrap();
        let config = IggyConfig {
            token: Secret::new(format!("file:{}", path.display())),
            ..IggyConfig::default()
        };
        let Credentials::PersonalAccessToken(_) = credentials(&config).unwrap() else {
            panic!("not a token");
        };
        assert_eq!(token_from_file(path.to_str().unwrap()).unwrap(), "secret");
        std::fs::write(&path, "\n").unwrap();
        assert!(credentials(&config).is_err());
    }

    #[test]
    fn a_user_without_a_password_is_refused() {
        let config = IggyConfig {
            password: Secret::default(),
            ..IggyConfig::default()
        };
        assert!(matches!(
            credentials(&config),
            Err(ClientError::NoCredentials)
        ));
    }
}
