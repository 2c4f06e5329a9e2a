//! Who a client is, and what it may.
//!
//! [`authenticate`] finds out who somebody is, with [`users`], [`jwt`], [`certificate`] or Iggy's own users; [`acl`] says what
//! they may. [`files`] reads what both are made of. This file holds what is in force now ([`Access`]) and what one
//! connection was granted ([`Grant`]).
//!
//! What always holds: everything that is loaded together is in force together; a decision is made by what is in force, never
//! by what was when the connection began, but for certificates, which TLS checks once.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use tokio::time::Instant;

use crate::config::{AccessConfig, Limits, Method};
use crate::log::Log;
use crate::mqtt::{ClientId, TopicName};

pub mod acl;
pub mod authenticate;
pub mod certificate;
pub mod files;
pub mod jwt;
pub mod users;
pub mod verified;

pub use acl::Action;
pub use authenticate::Denied;

use acl::{Acl, AclError, Permissions, Who};
use authenticate::Proofs;
use jwt::{JwtConfig, JwtError, JwtKeys};
use users::{Users, UsersError};

/// Who a client is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Its user name; `None` if it came in without one.
    pub user: Option<Arc<str>>,
    /// The common name of its certificate.
    pub certificate: Option<Arc<str>>,
    /// How that was found out.
    pub method: Method,
    /// What the users file said about it then.
    pub entry: Option<u64>,
    /// When that ends to be true.
    pub expires: Option<Instant>,
}

impl Default for Identity {
    fn default() -> Self {
        Self {
            user: None,
            certificate: None,
            method: Method::Anonymous,
            entry: None,
            expires: None,
        }
    }
}

/// For log lines: the user name, which anyone can choose, in quotes and without control characters.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.user {
            Some(user) => write!(f, "{user:?} ({})", self.method.name()),
            None => f.write_str(self.method.name()),
        }
    }
}

/// Why a file of users, permissions or keys is not used.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// The users file.
    #[error("users_file: {0}")]
    Users(#[from] UsersError),
    /// The permissions.
    #[error("acl_file: {0}")]
    Acl(#[from] AclError),
    /// The keys of tokens.
    #[error("jwt_key_files: {0}")]
    Jwt(#[from] JwtError),
    /// Reading was broken off.
    #[error("reading the files of users and permissions was broken off: {0}")]
    Interrupted(String),
}

/// What the files say now.
struct State {
    users: Option<Arc<Users>>,
    acl: Option<Arc<Acl>>,
    jwt: Option<Arc<JwtKeys>>,
}

/// Which of the files was read anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The users file.
    Users,
    /// The permissions.
    Acl,
    /// The keys of tokens.
    Jwt,
}

/// Who may come in and what they may, now.
pub struct Access {
    config: AccessConfig,
    state: ArcSwap<State>,
    /// Grows whenever permissions change.
    generation: AtomicU64,
    proofs: Proofs,
}

impl Access {
    /// Reads the files that `config` names; blocks on that. `log` is asked for the users of Iggy.
    ///
    /// # Errors
    /// Everything that is wrong with any of them.
    pub fn load(
        config: &AccessConfig,
        limits: &Limits,
        log: Arc<dyn Log>,
    ) -> Result<Self, Vec<AccessError>> {
        let (users, acl, jwt) = (load_users(config), load_acl(config), load_jwt(config));
        match (users, acl, jwt) {
            (Ok(users), Ok(acl), Ok(jwt)) => Ok(Self {
                config: config.clone(),
                state: ArcSwap::from_pointee(State { users, acl, jwt }),
                generation: AtomicU64::new(0),
                proofs: Proofs::new(limits, log),
            }),
            (users, acl, jwt) => {
                let errors = [users.err(), acl.err(), jwt.err()];
                Err(errors.into_iter().flatten().collect())
            }
        }
    }

    /// Reads the files of `part` again; blocks. What they say counts from now on.
    ///
    /// # Errors
    /// What is wrong with them; what was read before stays in force.
    pub fn reload(&self, part: Part) -> Result<(), AccessError> {
        let old = self.state.load_full();
        let mut new = State {
            users: old.users.clone(),
            acl: old.acl.clone(),
            jwt: old.jwt.clone(),
        };
        match part {
            Part::Users => new.users = load_users(&self.config)?,
            Part::Acl => new.acl = load_acl(&self.config)?,
            Part::Jwt => new.jwt = load_jwt(&self.config)?,
        }
        self.state.store(Arc::new(new));
        match part {
            // Before anyone can be let in by what is remembered of the old file: it is asked with the new one's entry.
            Part::Users => self.proofs.forget(),
            Part::Acl => {
                self.generation.fetch_add(1, Ordering::Release);
            }
            Part::Jwt => {}
        }
        Ok(())
    }

    /// Whether `identity` would be let in by what the users file says now.
    pub fn still_holds(&self, identity: &Identity) -> bool {
        let state = self.state.load();
        match (identity.method, &identity.user, &state.users) {
            (Method::Users, Some(user), Some(users)) => users.fingerprint(user) == identity.entry,
            _ => true,
        }
    }

    /// A number that grows whenever permissions change.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// What `identity` may as `client`.
    pub fn grant(&self, identity: Arc<Identity>, client: &ClientId) -> Grant {
        // Before the permissions: if they change in between, they are asked again.
        let generation = self.generation();
        let permissions = self.permissions(&identity, client);
        Grant {
            identity,
            permissions,
            generation,
        }
    }

    fn permissions(&self, identity: &Identity, client: &ClientId) -> Permissions {
        match &self.state.load().acl {
            None => Permissions::everything(),
            Some(acl) => acl.permissions(&Who {
                user: identity.user.as_deref(),
                client_id: client.as_str(),
                certificate: identity.certificate.as_deref(),
            }),
        }
    }
}

/// What one connection may.
pub struct Grant {
    identity: Arc<Identity>,
    permissions: Permissions,
    generation: u64,
}

impl Grant {
    /// Who it is for.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Which permissions it was made from; see [`Access::generation`].
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether `client` may do `action` with `topic`, by what is in force in `access` now. Each PUBLISH asks: one atomic load
    /// and the client's own rules; no lock, no allocation.
    pub fn allows(
        &mut self,
        access: &Access,
        client: &ClientId,
        action: Action,
        topic: &TopicName,
    ) -> bool {
        if access.generation() != self.generation {
            *self = access.grant(self.identity.clone(), client);
        }
        self.permissions.allows(action, topic)
    }
}

fn load_users(config: &AccessConfig) -> Result<Option<Arc<Users>>, AccessError> {
    let path = config.users_file.as_ref();
    Ok(path
        .map(|path| Users::load(path))
        .transpose()?
        .map(Arc::new))
}

fn load_acl(config: &AccessConfig) -> Result<Option<Arc<Acl>>, AccessError> {
    let path = config.acl_file.as_ref();
    Ok(path.map(|path| Acl::load(path)).transpose()?.map(Arc::new))
}

/// Reads the keys of tokens, if there are any; blocks on that.
///
/// # Errors
/// What is wrong with them.
pub fn load_jwt(config: &AccessConfig) -> Result<Option<Arc<JwtKeys>>, AccessError> {
    let keys = &config.jwt;
    if keys.key_files.is_empty() {
        return Ok(None);
    }
    let config = JwtConfig {
        algorithm: keys.algorithm,
        key_files: keys.key_files.clone(),
        user_claim: keys.user_claim.clone().unwrap_or_else(|| "sub".to_owned()),
        client_id_claim: keys.client_id_claim.clone(),
        issuer: keys.issuer.clone(),
        audience: keys.audience.clone(),
    };
    Ok(Some(Arc::new(JwtKeys::load(&config)?)))
}
