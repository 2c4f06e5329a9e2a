//! The users file: one user a line, `name:hash`, and the check of a password against it.
//!
//! What always holds: a password is only ever compared through argon2id; a user that is not there costs the same work as
//! one with a wrong password (A6); no line of the file can ask for more work than [`MAX_MEMORY_KIB`] and [`MAX_WORK_KIB`]
//! allow; neither names nor hashes are in a message or in `Debug`.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;

use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use argon2::{Algorithm, Argon2, Params, Version};

use super::files::{self, FileError};

/// The largest users file, in bytes: some seventy thousand users.
pub const MAX_FILE_BYTES: u64 = 8 << 20;
/// The longest name of a user, in bytes.
pub const MAX_NAME_BYTES: usize = 255;
/// The most memory that checking one password may take, in KiB.
pub const MAX_MEMORY_KIB: u32 = 256 << 10;
/// The most memory times passes that checking one password may take, in KiB: about a second of one core.
pub const MAX_WORK_KIB: u64 = 1 << 20;
/// The most lanes: each is computed after the other here, so that more of them gain nothing.
const MAX_LANES: u32 = 64;
/// What `hash` uses: the first choice of OWASP's Password Storage Cheat Sheet for argon2id. 19 MiB, two passes, one lane.
const COST: (u32, u32, u32) = (19 << 10, 2, 1);
/// Neither salt nor output is anybody's; what matters is how long it takes to compute.
const NOBODY_SALT: [u8; 16] = *b"nobody, nowhere.";

/// The users and the hashes of their passwords.
pub struct Users {
    /// PHC strings, which take a third of the memory of what they are parsed to.
    hashes: HashMap<Box<str>, Box<str>>,
    /// Checked for names that are not there.
    nobody: Box<str>,
}

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Users")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

/// Why there are no users.
#[derive(Debug, thiserror::Error)]
pub enum UsersError {
    /// The file is not read.
    #[error("users file {0}")]
    File(#[from] FileError),
    /// Some lines are wrong.
    #[error("the users file has {}:\n{}", count(.0.len()), lines(.0))]
    Lines(Vec<UserProblem>),
    /// Nobody could connect.
    #[error("{file}: no users; add one with: mqtt-gateway passwd {file} NAME")]
    Empty {
        /// The file.
        file: String,
    },
    /// The dummy hash cannot be computed; the parameters of the file are too large for this machine.
    #[error("{file}: cannot compute a hash as expensive as those in the file: {reason}")]
    Uncomputable {
        /// The file.
        file: String,
        /// What argon2 says.
        reason: String,
    },
}

/// What is wrong with one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserProblem {
    file: String,
    line: usize,
    what: UserReason,
}

/// Why a line is no user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UserReason {
    /// No colon.
    #[error("not of the form name:hash; make the line with: mqtt-gateway passwd FILE NAME")]
    NoColon,
    /// The name cannot be a user's.
    #[error("{0}; correct the name, or remove the line")]
    Name(#[from] BadName),
    /// Two lines for one name.
    #[error("line {earlier} is for the same user; remove one of the two")]
    Duplicate {
        /// The earlier line, counted from 1.
        earlier: usize,
    },
    /// No hash.
    #[error("no hash after the colon; set a password with: mqtt-gateway passwd FILE NAME")]
    NoHash,
    /// The hash of another algorithm, or no hash at all.
    #[error(
        "not an argon2id hash ($argon2id$v=19$m=…,t=…,p=…$salt$hash); hashes of other programs cannot be taken over, set the password anew with: mqtt-gateway passwd FILE NAME"
    )]
    NotArgon2id,
    /// An argon2id hash that is damaged.
    #[error(
        "the argon2id hash is damaged; set the password anew with: mqtt-gateway passwd FILE NAME"
    )]
    Damaged,
    /// Checking a password would take too much.
    #[error(
        "checking this password would take {memory_kib} KiB in {passes} passes and {lanes} lanes, but the most are {MAX_MEMORY_KIB} KiB, {MAX_LANES} lanes, and {MAX_WORK_KIB} KiB times passes; set the password anew with: mqtt-gateway passwd FILE NAME"
    )]
    TooExpensive {
        /// The memory.
        memory_kib: u32,
        /// The passes over it.
        passes: u32,
        /// The lanes.
        lanes: u32,
    },
}

/// Why a text cannot be the name of a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    /// No characters.
    #[error("a user's name must not be empty")]
    Empty,
    /// Too long.
    #[error("a user's name has at most {MAX_NAME_BYTES} bytes")]
    TooLong,
    /// The separator, or what would end or hide the line.
    #[error("a user's name must not contain colons or control characters")]
    Character,
    /// The line would be a comment.
    #[error("a user's name must not begin with #")]
    Comment,
    /// What nobody sees.
    #[error("a user's name must not begin or end with white space")]
    Space,
}

impl UserProblem {
    /// The line, counted from 1.
    pub fn line(&self) -> usize {
        self.line
    }

    /// What is wrong with it.
    pub fn what(&self) -> &UserReason {
        &self.what
    }
}

impl fmt::Display for UserProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.what)
    }
}

fn count(problems: usize) -> String {
    match problems {
        1 => "an error".to_owned(),
        more => format!("{more} errors"),
    }
}

/// How many are shown; whoever has more mends these first.
const MAX_SHOWN: usize = 100;

fn lines(problems: &[UserProblem]) -> String {
    let mut shown: Vec<String> = problems
        .iter()
        .take(MAX_SHOWN)
        .map(UserProblem::to_string)
        .collect();
    if problems.len() > MAX_SHOWN {
        shown.push(format!("… and {} more", problems.len() - MAX_SHOWN));
    }
    shown.join("\n")
}

/// What a line of the file is.
#[derive(Debug, PartialEq, Eq)]
pub enum Line<'t> {
    /// Empty, or a comment.
    Nothing,
    /// A user, as far as there is a colon.
    User {
        /// What stands before the colon.
        name: &'t str,
        /// What stands after it.
        hash: &'t str,
    },
    /// Something else.
    Other,
}

/// What `line` is; nothing is checked but its form.
pub fn line(line: &str) -> Line<'_> {
    if line.trim().is_empty() || line.starts_with('#') {
        return Line::Nothing;
    }
    match line.split_once(':') {
        Some((name, hash)) => Line::User {
            name,
            hash: hash.trim_end(),
        },
        None => Line::Other,
    }
}

/// Whether `name` can be a user's.
///
/// # Errors
/// Why not.
pub fn check_name(name: &str) -> Result<(), BadName> {
    if name.is_empty() {
        Err(BadName::Empty)
    } else if name.len() > MAX_NAME_BYTES {
        Err(BadName::TooLong)
    } else if name.chars().any(|c| c == ':' || c.is_control()) {
        Err(BadName::Character)
    } else if name.starts_with('#') {
        Err(BadName::Comment)
    } else if name.trim() != name {
        Err(BadName::Space)
    } else {
        Ok(())
    }
}

/// The hash of `password` as a PHC string with a new random salt. Takes 19 MiB and some tens of milliseconds.
///
/// # Errors
/// The system has no random numbers or no memory.
pub fn hash(password: &[u8]) -> Result<String, argon2::password_hash::Error> {
    let (memory, passes, lanes) = COST;
    Ok(argon2id(memory, passes, lanes)?
        .hash_password(password)?
        .to_string())
}

fn argon2id(
    memory: u32,
    passes: u32,
    lanes: u32,
) -> Result<Argon2<'static>, argon2::password_hash::Error> {
    let params = Params::new(memory, passes, lanes, None)?;
    Ok(Argon2::new(Algorithm::Argon2id, Version::V0x13, params))
}

/// What checking a password costs: memory in KiB, passes, lanes.
type Cost = (u32, u32, u32);

impl Users {
    /// Reads users from `text`; `file` is its name in messages. Computes one hash, so it takes as long as a check of a
    /// password.
    ///
    /// # Errors
    /// Everything that is wrong, at once.
    pub fn parse(file: &str, text: &str) -> Result<Self, UsersError> {
        let mut problems = Vec::new();
        let mut hashes = HashMap::new();
        let mut lines = HashMap::new();
        let mut costs: HashMap<Cost, usize> = HashMap::new();
        for (number, text) in (1..).zip(text.lines()) {
            let user = match line(text) {
                Line::Nothing => continue,
                Line::Other => Err(UserReason::NoColon),
                Line::User { name, hash } => check_name(name)
                    .map_err(UserReason::Name)
                    .and_then(|()| Ok((name, hash, cost(hash)?))),
            };
            let what = match user {
                Ok((name, hash, cost)) => match lines.insert(name, number) {
                    None => {
                        *costs.entry(cost).or_default() += 1;
                        hashes.insert(name.into(), hash.into());
                        continue;
                    }
                    Some(earlier) => UserReason::Duplicate { earlier },
                },
                Err(what) => what,
            };
            problems.push(UserProblem {
                file: file.to_owned(),
                line: number,
                what,
            });
        }
        if !problems.is_empty() {
            return Err(UsersError::Lines(problems));
        }
        // As most lines cost; of two that are as common, the one that costs more.
        let (memory, passes, lanes) = costs
            .into_iter()
            .max_by_key(|((memory, passes, lanes), count)| {
                let work = u64::from(*memory) * u64::from(*passes);
                (*count, work, *lanes)
            })
            .map(|(cost, _)| cost)
            .ok_or_else(|| UsersError::Empty {
                file: file.to_owned(),
            })?;
        // A password that nobody can know, so that the dummy is no way in even by luck.
        let password: [u8; 32] = rand::random();
        let nobody = argon2id(memory, passes, lanes)
            .and_then(|argon2| argon2.hash_password_with_salt(&password, &NOBODY_SALT))
            .map_err(|error| UsersError::Uncomputable {
                file: file.to_owned(),
                reason: error.to_string(),
            })?;
        Ok(Self {
            hashes,
            nobody: nobody.to_string().into(),
        })
    }

    /// Reads the users in the file `path`, which must be no one else's to read. Blocks.
    ///
    /// # Errors
    /// Why there are none, with everything that is wrong in the file.
    pub fn load(path: &Path) -> Result<Self, UsersError> {
        let bytes = files::read_secret(path, MAX_FILE_BYTES)?;
        let text = files::text(path, bytes)?;
        Self::parse(&path.display().to_string(), &text)
    }

    /// Whether the user has that password. Computes for some tens of milliseconds and takes the memory that the hash says
    /// (19 MiB with those of [`hash`]), so it is for a thread that may block, and for few at once.
    ///
    /// A name that is not there takes as long as one whose hash costs what most of the file's do; where lines cost
    /// differently, time tells which of them it was.
    pub fn verify(&self, name: &str, password: &[u8]) -> bool {
        self.verify_by(name, password, verify)
    }

    /// Calls `check` with a hash exactly once, whether there is such a user or not (A6).
    fn verify_by(
        &self,
        name: &str,
        password: &[u8],
        check: impl FnOnce(&str, &[u8]) -> bool,
    ) -> bool {
        let known = self.hashes.get(name);
        let fits = check(known.unwrap_or(&self.nobody), password);
        known.is_some() && fits
    }

    /// Changes whenever the password of the user is set anew, even to the same one; `None` if there is no such user. The
    /// connections of a user whose fingerprint changed were let in by a password that no longer counts.
    pub fn fingerprint(&self, name: &str) -> Option<u64> {
        let hash = blake3::hash(self.hashes.get(name)?.as_bytes());
        let mut first = [0; 8];
        first.copy_from_slice(&hash.as_bytes()[..8]);
        Some(u64::from_le_bytes(first))
    }

    /// How many users there are; at least one.
    #[allow(clippy::len_without_is_empty)] // There is always one.
    pub fn len(&self) -> usize {
        self.hashes.len()
    }
}

fn verify(phc: &str, password: &[u8]) -> bool {
    // The outputs are compared in constant time (phc::Output).
    PasswordHash::new(phc)
        .is_ok_and(|hash| Argon2::default().verify_password(password, &hash).is_ok())
}

/// What checking a password against `phc` costs, if it is a hash that can be checked.
fn cost(phc: &str) -> Result<Cost, UserReason> {
    if phc.is_empty() {
        return Err(UserReason::NoHash);
    }
    if !phc.starts_with("$argon2id$") {
        return Err(UserReason::NotArgon2id);
    }
    let hash = PasswordHash::new(phc).map_err(|_| UserReason::Damaged)?;
    // 19 is version 1.3, the only one with which argon2id is used.
    if hash.salt.is_none() || hash.hash.is_none() || hash.version != Some(19) {
        return Err(UserReason::Damaged);
    }
    let params = Params::try_from(&hash).map_err(|_| UserReason::Damaged)?;
    let (memory, passes, lanes) = (params.m_cost(), params.t_cost(), params.p_cost());
    let work = u64::from(memory) * u64::from(passes);
    if memory > MAX_MEMORY_KIB || work > MAX_WORK_KIB || lanes > MAX_LANES {
        return Err(UserReason::TooExpensive {
            memory_kib: memory,
            passes,
            lanes,
        });
    }
    Ok((memory, passes, lanes))
}

#[cfg(test)]
mod tests;
