//! `passwd`: adds a user to a users file, changes a password, or removes a user.
//!
//! What always holds: the file is replaced in one step or stays as it is; nobody else can read it at any moment; a file
//! with mistakes is not touched; several at once wait for each other, so that no change is lost. The password is in no
//! argument, and is not shown.

mod edit;
mod password;
mod store;

use std::io;
use std::path::PathBuf;

use mqtt_gateway::access::files::FileError;
use mqtt_gateway::access::users::{self, BadName, UsersError};

use crate::args::PasswdArgs;
use crate::file::shown;
use crate::output::Output;
use crate::text::plain;
use crate::{Failure, Verdict};

use store::Store;

/// Why the users file stays as it is.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PasswdError {
    /// The name cannot be a user's.
    #[error("{0}; choose another name")]
    Name(#[from] BadName),
    /// The file is not read.
    #[error("{0}")]
    File(#[from] FileError),
    /// The file is wrong.
    #[error("{} is not changed: {reason}", shown(file))]
    Mistakes {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        reason: UsersError,
    },
    /// There is nobody to remove.
    #[error("there is no user {} in {}", plain(user), shown(file))]
    NoUser {
        /// The name.
        user: String,
        /// The file.
        file: PathBuf,
    },
    /// No password.
    #[error("the password is empty; give one")]
    EmptyPassword,
    /// Longer than MQTT allows.
    #[error("the password is longer than the {max} bytes that MQTT allows; choose a shorter one")]
    LongPassword {
        /// The limit.
        max: usize,
    },
    /// The two passwords differ.
    #[error("the two passwords are not the same; nothing is changed")]
    Different,
    /// The password cannot be read.
    #[error("cannot read the password: {0}")]
    Unreadable(io::Error),
    /// The hash cannot be computed.
    #[error("cannot hash the password: {0}")]
    Hash(String),
    /// The file cannot be replaced.
    #[error("cannot {what} {}: {error}", shown(file))]
    Store {
        /// What was tried.
        what: &'static str,
        /// With what.
        file: PathBuf,
        /// What the system said.
        error: io::Error,
    },
}

/// Changes the file.
pub(crate) fn run(arguments: &PasswdArgs, output: &mut Output) -> Result<Verdict, Failure> {
    let (user, file) = (arguments.user.as_str(), arguments.file.as_path());
    users::check_name(user).map_err(PasswdError::Name)?;
    // Before the lock: while somebody types, others go on.
    let hash = match arguments.remove {
        true => None,
        false => Some(hash(&password::read(arguments.stdin)?)?),
    };
    let store = Store::lock(file)?;
    let text = store.read()?;
    let said = match hash {
        Some(hash) => {
            let (changed, is_new) = edit::set(&text, user, &hash);
            store.replace(&changed)?;
            if is_new { "added to" } else { "changed in" }
        }
        None => {
            let changed = edit::remove(&text, user).ok_or_else(|| PasswdError::NoUser {
                user: user.to_owned(),
                file: file.to_owned(),
            })?;
            store.replace(&changed)?;
            "removed from"
        }
    };
    output.line(format_args!("{} {said} {}", plain(user), shown(file)))?;
    Ok(Verdict::Fine)
}

fn hash(password: &[u8]) -> Result<String, PasswdError> {
    users::hash(password).map_err(|error| PasswdError::Hash(error.to_string()))
}
