//! Tokens (JWT, RFC 7519) as passwords: which keys verify them, and what one says about its bearer.
//!
//! What always holds: the algorithm is the configured one, whatever a token's header says, and a key is only ever used
//! with the algorithm that it was made for; a token without an end is refused; the user is a name that is not empty;
//! neither a token nor what is in it is in a message.

use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode};
use serde_json::{Map, Value};

use super::files::FileError;
use super::users::MAX_NAME_BYTES;
use crate::config::Choice;
pub use crate::config::JwtAlgorithm;

pub use keys::KeyProblem;

use keys::load_key;

mod keys;

/// How far the clocks of the issuer and of this machine may be apart.
pub const LEEWAY: Duration = Duration::from_secs(30);
/// The largest key file, in bytes.
pub const MAX_KEY_FILE_BYTES: u64 = 64 << 10;
/// The shortest HS256 key, in bytes: as long as the hash (RFC 7518, 3.2).
pub const MIN_SHARED_KEY_BYTES: usize = 32;
/// The shortest RSA key, in bits (RFC 7518, 3.3).
pub const MIN_RSA_BITS: usize = 2048;
/// The most keys: each is tried with a token that the others do not verify.
pub const MAX_KEYS: usize = 16;

fn of_the_library(algorithm: JwtAlgorithm) -> Algorithm {
    match algorithm {
        JwtAlgorithm::Hs256 => Algorithm::HS256,
        JwtAlgorithm::Rs256 => Algorithm::RS256,
        JwtAlgorithm::Es256 => Algorithm::ES256,
    }
}

/// Which tokens are accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JwtConfig {
    /// How they are signed.
    pub algorithm: JwtAlgorithm,
    /// The keys, each in a file of its own; a token that any of them verifies is good, so that keys can be replaced.
    pub key_files: Vec<PathBuf>,
    /// The claim with the user's name.
    pub user_claim: String,
    /// The claim with the client id that the bearer may use; every token must have it then.
    pub client_id_claim: Option<String>,
    /// Who must have issued them (`iss`).
    pub issuer: Option<String>,
    /// Whom they must be for (`aud`).
    pub audience: Option<String>,
}

impl JwtConfig {
    /// What is usual, with these keys: the user in `sub`, and no word about client id, issuer and audience.
    pub fn new(algorithm: JwtAlgorithm, key_files: Vec<PathBuf>) -> Self {
        Self {
            algorithm,
            key_files,
            user_claim: "sub".to_owned(),
            client_id_claim: None,
            issuer: None,
            audience: None,
        }
    }
}

/// Why no tokens can be verified.
#[derive(Debug, thiserror::Error)]
pub enum JwtError {
    /// No file is named.
    #[error("no key to verify tokens with; name at least one key file")]
    NoKeys,
    /// Too many files are named.
    #[error(
        "{count} keys to verify tokens with, but {MAX_KEYS} are the most; remove those that no longer sign"
    )]
    TooManyKeys {
        /// How many.
        count: usize,
    },
    /// A claim without a name.
    #[error("the name of a claim is empty; name a claim, for example sub")]
    EmptyClaim,
    /// A file is not read.
    #[error("key file {0}")]
    File(#[from] FileError),
    /// A file has the wrong content.
    #[error("key file {}: {what}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: KeyProblem,
    },
}

/// Why a token is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JwtRefusal {
    /// Not a token.
    #[error("not a well-formed token")]
    Malformed,
    /// Signed in another way than is configured, or not at all.
    #[error("the token's algorithm is not {}", .0.word())]
    Algorithm(JwtAlgorithm),
    /// None of the keys verifies it.
    #[error("no key verifies the token's signature")]
    Signature,
    /// A claim is not there.
    #[error("the token has no claim {claim}")]
    Missing {
        /// The claim.
        claim: String,
    },
    /// A claim means nothing.
    #[error("the token's claim {claim} is not {expected}")]
    Claim {
        /// The claim.
        claim: String,
        /// What it should be.
        expected: &'static str,
    },
    /// Its time is over.
    #[error("the token has expired")]
    Expired,
    /// Its time has not begun.
    #[error("the token is not valid yet; if it should be, compare the clocks")]
    NotYet,
    /// From somebody else.
    #[error("the token is from another issuer")]
    Issuer,
    /// For somebody else.
    #[error("the token is for another audience")]
    Audience,
}

impl JwtRefusal {
    /// A short name that stays the same, for counters.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Algorithm(_) => "algorithm",
            Self::Signature => "signature",
            Self::Missing { .. } => "claim_missing",
            Self::Claim { .. } => "claim_unusable",
            Self::Expired => "expired",
            Self::NotYet => "not_yet_valid",
            Self::Issuer => "issuer",
            Self::Audience => "audience",
        }
    }
}

/// What a good token says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claims {
    /// The user: 1 to 255 bytes without control characters.
    pub user: String,
    /// The client id that the bearer may use; `None` if no claim for it is configured.
    pub client_id: Option<String>,
    /// When the token ends (`exp`, without [`LEEWAY`]).
    pub expires: SystemTime,
}

/// The keys, and what else a token must have.
pub struct JwtKeys {
    algorithm: JwtAlgorithm,
    keys: Vec<DecodingKey>,
    validation: Validation,
    user_claim: String,
    client_id_claim: Option<String>,
}

impl fmt::Debug for JwtKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JwtKeys")
            .field("algorithm", &self.algorithm)
            .field("keys", &self.keys.len())
            .finish_non_exhaustive()
    }
}

/// Whether `password` has the form of a token: three parts of base64url between points, the first of which begins as JSON
/// objects do. No password that a person would choose has it.
pub fn looks_like_token(password: &[u8]) -> bool {
    let mut parts = password.split(|byte| *byte == b'.');
    let is_base64url = |part: &[u8]| {
        part.iter()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(header), Some(claims), Some(signature), None) => {
            // `{` in base64; without a signature it is still a token, though not a good one.
            header.len() > 4
                && header.starts_with(b"e")
                && !claims.is_empty()
                && [header, claims, signature].into_iter().all(is_base64url)
        }
        _ => false,
    }
}

impl JwtKeys {
    /// Reads the keys. Blocks.
    ///
    /// # Errors
    /// What is wrong with the first key that cannot be used, and what to do.
    pub fn load(config: &JwtConfig) -> Result<Self, JwtError> {
        let claims = [Some(&config.user_claim), config.client_id_claim.as_ref()];
        if claims.into_iter().flatten().any(String::is_empty) {
            return Err(JwtError::EmptyClaim);
        }
        match config.key_files.len() {
            0 => return Err(JwtError::NoKeys),
            count if count > MAX_KEYS => return Err(JwtError::TooManyKeys { count }),
            _ => {}
        }
        let keys = config
            .key_files
            .iter()
            .map(|path| load_key(config.algorithm, path));
        let keys = keys.collect::<Result<_, _>>()?;
        let mut validation = Validation::new(of_the_library(config.algorithm));
        // Times are compared below, with the time that is given.
        validation.validate_exp = false;
        validation.validate_nbf = false;
        validation.validate_aud = config.audience.is_some();
        let mut required = Vec::new();
        if let Some(issuer) = &config.issuer {
            validation.set_issuer(&[issuer]);
            required.push("iss");
        }
        if let Some(audience) = &config.audience {
            validation.set_audience(&[audience]);
            required.push("aud");
        }
        validation.set_required_spec_claims(&required);
        Ok(Self {
            algorithm: config.algorithm,
            keys,
            validation,
            user_claim: config.user_claim.clone(),
            client_id_claim: config.client_id_claim.clone(),
        })
    }

    /// What `token` says, if it is good at `now`. Takes some tens of microseconds, with each key that does not verify it.
    ///
    /// # Errors
    /// Why it is not accepted.
    pub fn verify(&self, token: &[u8], now: SystemTime) -> Result<Claims, JwtRefusal> {
        let mut refusal = JwtRefusal::Signature;
        for key in &self.keys {
            match decode::<Map<String, Value>>(token, key, &self.validation) {
                Ok(decoded) => return self.claims(&decoded.claims, now),
                Err(error) => match self.refusal(error.kind()) {
                    // Perhaps another key.
                    JwtRefusal::Signature => {}
                    other => {
                        refusal = other;
                        break;
                    }
                },
            }
        }
        Err(refusal)
    }

    fn refusal(&self, kind: &ErrorKind) -> JwtRefusal {
        match kind {
            ErrorKind::InvalidAlgorithm
            | ErrorKind::MissingAlgorithm
            | ErrorKind::UnsupportedAlgorithm => JwtRefusal::Algorithm(self.algorithm),
            ErrorKind::InvalidSignature => JwtRefusal::Signature,
            ErrorKind::MissingRequiredClaim(claim) => JwtRefusal::Missing {
                claim: claim.clone(),
            },
            ErrorKind::InvalidIssuer => JwtRefusal::Issuer,
            ErrorKind::InvalidAudience => JwtRefusal::Audience,
            ErrorKind::InvalidClaimFormat(claim) => JwtRefusal::Claim {
                claim: claim.clone(),
                expected: "a text or a list of texts",
            },
            _ => JwtRefusal::Malformed,
        }
    }

    fn claims(&self, claims: &Map<String, Value>, now: SystemTime) -> Result<Claims, JwtRefusal> {
        let expires = time(claims, "exp")?.ok_or_else(|| missing("exp"))?;
        // Sums that no clock can show are far away.
        let over = expires.checked_add(LEEWAY);
        if over.is_some_and(|over| over <= now) {
            return Err(JwtRefusal::Expired);
        }
        let latest = now.checked_add(LEEWAY);
        if let Some(begins) = time(claims, "nbf")?
            && latest.is_none_or(|latest| latest < begins)
        {
            return Err(JwtRefusal::NotYet);
        }
        let client_id = self.client_id_claim.as_ref();
        Ok(Claims {
            user: name(claims, &self.user_claim)?,
            client_id: client_id.map(|claim| name(claims, claim)).transpose()?,
            expires,
        })
    }
}

fn missing(claim: &str) -> JwtRefusal {
    JwtRefusal::Missing {
        claim: claim.to_owned(),
    }
}

fn name(claims: &Map<String, Value>, claim: &str) -> Result<String, JwtRefusal> {
    match claims.get(claim) {
        None | Some(Value::Null) => Err(missing(claim)),
        Some(Value::String(text))
            if (1..=MAX_NAME_BYTES).contains(&text.len())
                && !text.chars().any(char::is_control) =>
        {
            Ok(text.clone())
        }
        Some(_) => Err(JwtRefusal::Claim {
            claim: claim.to_owned(),
            expected: "a text of 1 to 255 bytes without control characters",
        }),
    }
}

/// Seconds since 1970, perhaps with a fraction (RFC 7519, 2: NumericDate).
fn time(claims: &Map<String, Value>, claim: &str) -> Result<Option<SystemTime>, JwtRefusal> {
    let unusable = || JwtRefusal::Claim {
        claim: claim.to_owned(),
        expected: "a time in seconds since 1970",
    };
    let Some(value) = claims.get(claim) else {
        return Ok(None);
    };
    let since = match (value.as_u64(), value.as_f64()) {
        (Some(seconds), _) => Duration::from_secs(seconds),
        // Neither negative, nor infinite, nor no number.
        (None, Some(seconds)) => Duration::try_from_secs_f64(seconds).map_err(|_| unusable())?,
        (None, None) => return Err(unusable()),
    };
    let time = SystemTime::UNIX_EPOCH.checked_add(since);
    time.map(Some).ok_or_else(unusable)
}

#[cfg(test)]
mod tests;
