//! Finding out who a client is: the ways to authenticate of its listener, one after the other.
//!
//! What always holds (A6): an unknown user and a wrong password take the same way to the same answer; what costs processor
//! time or a connection to Iggy is done for few at a time, the others wait, and no longer than their connect timeout; a
//! client that shows credentials is never let in as anonymous because they are wrong.

use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use super::certificate::PeerCertificate;
use super::jwt::{self, JwtKeys};
use super::users::Users;
use super::verified::Verified;
use super::{Access, Identity};
use crate::config::{CertificateClientId, Limits, ListenerConfig, Method};
use crate::log::{Log, LogError};
use crate::mqtt::ClientId;
use crate::wire::{Connect, Password};

/// How many logins to Iggy are tried at a time: each is a connection.
const MAX_LOGINS: usize = 4;
/// How long what the users file said is remembered; it is forgotten when the file changes.
const USERS_MEMORY: Duration = Duration::from_secs(24 * 3_600);

/// Why nobody is let in.
#[derive(Debug, thiserror::Error)]
pub enum Denied {
    /// It says nothing about who it is, and has to.
    #[error("no user name, certificate or token, one of which is needed on this listener")]
    NoCredentials,
    /// What it says is not believed.
    #[error("the user name is not known, or the password or token is wrong or has expired")]
    Wrong,
    /// It is somebody, but not under this client id.
    #[error("its certificate or token is for another client id")]
    NotItsClientId,
    /// Iggy could not be asked.
    #[error("its user name and password cannot be checked: {0}")]
    Unavailable(LogError),
    /// It was not done within the time that a client may take to come in.
    #[error(
        "its user name and password could not be checked within connect_timeout; too many want to come in at once"
    )]
    TooLate,
}

/// What is needed to check credentials, and what was checked a moment ago.
pub(super) struct Proofs {
    /// What the users file said.
    users: Mutex<Verified>,
    /// What Iggy said.
    iggy: Mutex<Verified>,
    /// Hashing takes a whole core.
    hashing: Arc<Semaphore>,
    logins: Semaphore,
    log: Arc<dyn Log>,
}

impl Proofs {
    pub(super) fn new(limits: &Limits, log: Arc<dyn Log>) -> Self {
        let cores = available_parallelism().map_or(1, usize::from);
        Self {
            users: Mutex::new(Verified::new(limits.max_connections, USERS_MEMORY)),
            iggy: Mutex::new(Verified::new(limits.max_connections, limits.login_cache)),
            // One core is left to those who are in.
            hashing: Arc::new(Semaphore::new(cores.saturating_sub(1).max(1))),
            logins: Semaphore::new(MAX_LOGINS),
            log,
        }
    }

    pub(super) fn forget(&self) {
        self.users.lock().forget_all();
    }
}

/// What one way to authenticate says.
enum Answer {
    /// It is this one.
    Is(Identity),
    /// It has nothing to say: the next one is asked.
    NotMine,
    /// It had something to look at, and does not believe it; the next one is asked all the same.
    Wrong,
}

impl Access {
    /// Finds out who the client is that has sent `connect` on `listener`. Whoever calls sets it a time limit.
    pub async fn authenticate(
        &self,
        listener: &ListenerConfig,
        certificate: Option<&PeerCertificate>,
        connect: &Connect,
    ) -> Result<Identity, Denied> {
        let common_name: Option<Arc<str>> = certificate
            .and_then(|certificate| certificate.common_name.as_deref())
            .map(Arc::from);
        let mut has_shown_something = false;
        for method in listener.authentication.iter() {
            let answer = match method {
                Method::Anonymous => anonymous(listener, connect),
                Method::Certificate => by_certificate(listener, certificate, connect)?,
                Method::Users => self.by_users_file(connect).await,
                Method::Jwt => self.by_token(connect)?,
                Method::Iggy => self.by_iggy(connect).await?,
            };
            match answer {
                Answer::Is(identity) => {
                    return Ok(Identity {
                        certificate: common_name,
                        ..identity
                    });
                }
                Answer::NotMine => {}
                Answer::Wrong => has_shown_something = true,
            }
        }
        Err(match has_shown_something {
            true => Denied::Wrong,
            false => Denied::NoCredentials,
        })
    }

    async fn by_users_file(&self, connect: &Connect) -> Answer {
        let (Some((user, password)), Some(users)) =
            (credentials(connect), self.state.load().users.clone())
        else {
            return Answer::NotMine;
        };
        let identity = |users: &Users| Identity {
            user: Some(Arc::from(user)),
            method: Method::Users,
            entry: users.fingerprint(user),
            ..Identity::default()
        };
        let begun = {
            let known = self.proofs.users.lock();
            if known.recognises(Method::Users, user, password, Instant::now()) {
                return Answer::Is(identity(&users));
            }
            known.era()
        };
        // Given up together with whoever waits for it; one that has begun ends by itself.
        let Ok(permit) = self.proofs.hashing.clone().acquire_owned().await else {
            return Answer::Wrong;
        };
        let (name, given, table) = (user.to_owned(), password.to_vec(), users.clone());
        let is_right = spawn_blocking(move || {
            let _permit = permit;
            table.verify(&name, &given)
        });
        match is_right.await {
            Ok(true) => {
                let mut known = self.proofs.users.lock();
                known.remember(Method::Users, user, password, begun, Instant::now());
                Answer::Is(identity(&users))
            }
            _ => Answer::Wrong,
        }
    }

    fn by_token(&self, connect: &Connect) -> Result<Answer, Denied> {
        let Some(keys) = self.state.load().jwt.clone() else {
            return Ok(Answer::NotMine);
        };
        let Some((_, password)) = credentials(connect) else {
            return Ok(Answer::NotMine);
        };
        if !jwt::looks_like_token(password) {
            return Ok(Answer::Wrong);
        }
        token(
            &keys,
            password,
            connect.client_id.as_ref(),
            SystemTime::now(),
        )
    }

    async fn by_iggy(&self, connect: &Connect) -> Result<Answer, Denied> {
        let Some((user, password)) = credentials(connect) else {
            return Ok(Answer::NotMine);
        };
        let Ok(text) = std::str::from_utf8(password) else {
            return Ok(Answer::Wrong);
        };
        let (is_known, begun) = {
            let known = self.proofs.iggy.lock();
            (
                known.recognises(Method::Iggy, user, password, Instant::now()),
                known.era(),
            )
        };
        if !is_known {
            let Ok(_permit) = self.proofs.logins.acquire().await else {
                return Ok(Answer::Wrong);
            };
            match self.proofs.log.login(user, text).await {
                Ok(()) => {
                    let mut known = self.proofs.iggy.lock();
                    known.remember(Method::Iggy, user, password, begun, Instant::now());
                }
                Err(LogError::BadCredentials { .. }) => return Ok(Answer::Wrong),
                Err(error) => return Err(Denied::Unavailable(error)),
            }
        }
        Ok(Answer::Is(Identity {
            user: Some(Arc::from(user)),
            method: Method::Iggy,
            ..Identity::default()
        }))
    }
}

/// User name and password, if a user name was given. One without a password has an empty one, which may be wrong.
fn credentials(connect: &Connect) -> Option<(&str, &[u8])> {
    let user = connect.username.as_ref()?;
    let password = connect.password.as_ref();
    Some((user, password.map_or(&[][..], Password::as_bytes)))
}

/// Where no way looks at passwords, those who send them all the same come in too, as nobody: many devices cannot help it.
fn anonymous(listener: &ListenerConfig, connect: &Connect) -> Answer {
    if connect.username.is_some() && listener.authentication.take_passwords() {
        return Answer::NotMine;
    }
    Answer::Is(Identity::default())
}

fn by_certificate(
    listener: &ListenerConfig,
    certificate: Option<&PeerCertificate>,
    connect: &Connect,
) -> Result<Answer, Denied> {
    let Some(certificate) = certificate else {
        return Ok(Answer::NotMine);
    };
    let clients = listener.tls.as_ref().and_then(|tls| tls.clients.as_ref());
    let (Some(user), Some(clients)) = (certificate.user.as_deref(), clients) else {
        return Ok(Answer::NotMine);
    };
    let client_id = connect.client_id.as_ref().map_or("", ClientId::as_str);
    let is_its = match clients.client_id {
        CertificateClientId::Any => true,
        CertificateClientId::Equal => client_id == user,
        CertificateClientId::Prefix => client_id.starts_with(user),
    };
    match is_its {
        true => Ok(Answer::Is(Identity {
            user: Some(Arc::from(user)),
            method: Method::Certificate,
            ..Identity::default()
        })),
        false => Err(Denied::NotItsClientId),
    }
}

fn token(
    keys: &JwtKeys,
    password: &[u8],
    client_id: Option<&ClientId>,
    now: SystemTime,
) -> Result<Answer, Denied> {
    let Ok(claims) = keys.verify(password, now) else {
        return Ok(Answer::Wrong);
    };
    if let Some(claimed) = &claims.client_id
        && client_id.map(ClientId::as_str) != Some(claimed.as_str())
    {
        return Err(Denied::NotItsClientId);
    }
    let remaining = claims.expires.duration_since(now).unwrap_or_default();
    Ok(Answer::Is(Identity {
        user: Some(Arc::from(claims.user.as_str())),
        method: Method::Jwt,
        // A clock that is set later does not matter any more; a time that no clock reaches is never.
        expires: Instant::now().checked_add(remaining),
        ..Identity::default()
    }))
}
