//! Files of an operator that change while the gateway runs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use tempfile::TempDir;

use crate::access::users;

/// A folder with the operator's files.
pub(crate) struct Files(TempDir);

impl Files {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Writes a file that only its owner may read, as one step, as editors and secret mounts do.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let (path, new) = (self.0.path().join(name), self.0.path().join("new"));
        fs::write(&new, text).unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(0o600)).unwrap();
        fs::rename(&new, &path).unwrap();
        path
    }

    pub(crate) fn users(&self, users: &[(&str, &str)]) -> PathBuf {
        let lines = users.iter().map(|(name, password)| {
            let hash = users::hash(password.as_bytes()).unwrap();
            format!("{name}:{hash}\n")
        });
        self.write("users", &lines.collect::<String>())
    }
}
