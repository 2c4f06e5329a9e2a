//! User names and passwords of the command line.
//!
//! Always holds: a password comes from a file or an environment variable.

use std::path::{Path, PathBuf};

use clap::Args;

use sandbox::host::config::{IggyConfig, Secret};

use super::Failure;

/// The user and the password of whoever has not chosen others.
const DEFAULT: &str = "iggy";

/// How to log in to Iggy.
#[derive(Debug, Args)]
pub(super) struct Login {
    /// The Iggy server, as host:port.
    #[arg(long, env = "IGGY_ADDRESS", default_value = "127.0.0.1:8090")]
    address: String,
    /// The Iggy user.
    #[arg(long, env = "IGGY_USERNAME", default_value = DEFAULT)]
    username: String,
    /// A file with the user's password; otherwise it is taken from IGGY_PASSWORD, otherwise it is "iggy".
    #[arg(long)]
    password_file: Option<PathBuf>,
}

impl Login {
    pub(super) fn config(&self) -> Result<IggyConfig, Failure> {
        let password = password(self.password_file.as_deref(), "IGGY_PASSWORD")?;
        Ok(IggyConfig {
            address: self.address.clone(),
            username: self.username.clone(),
            password,
            ..IggyConfig::default()
        })
    }
}

/// The password in the file, or in the variable, or the default.
pub(super) fn password(file: Option<&Path>, variable: &str) -> Result<Secret, Failure> {
    if let Some(path) = file {
        let text = std::fs::read_to_string(path).map_err(|reason| {
            format!("cannot read the password file {}: {reason}", path.display())
        })?;
        return match text.trim_end_matches(['\r', '\n']) {
            "" => Err(format!("the password file {} is empty", path.display()).into()),
            password => Ok(Secret::new(password)),
        };
    }
    match std::env::var(variable) {
        Ok(password) if !password.is_empty() => Ok(Secret::new(password)),
        _ => Ok(Secret::new(DEFAULT)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_file_is_used_without_its_line_end_and_must_not_be_empty() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        std::fs::write(&path, "with space \n").unwrap();
        let found = password(Some(&path), "SANDBOX_TEST_UNSET").unwrap();
        assert_eq!(found.expose(), "with space ");
        std::fs::write(&path, "\n").unwrap();
        assert!(password(Some(&path), "SANDBOX_TEST_UNSET").is_err());
    }

    #[test]
    fn without_a_file_and_a_variable_the_default_is_used() {
        assert_eq!(
            password(None, "SANDBOX_TEST_UNSET").unwrap().expose(),
            "iggy"
        );
    }
}
