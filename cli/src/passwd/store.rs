//! A users file that is replaced in one step.
//!
//! What always holds: whoever holds a [`Store`] is the only one who changes files of that folder through one; the new file
//! has the owner and the mode of the old one, or is the caller's alone (0600); after [`Store::replace`] it is on disk.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use mqtt_gateway::access::files;
use mqtt_gateway::access::users::{MAX_FILE_BYTES, Users, UsersError};

use super::PasswdError;
use crate::file::shown;

/// The mode of a new file.
const MODE: u32 = 0o600;

/// A users file, there or not, that nobody else changes meanwhile.
pub(super) struct Store {
    /// The file itself, behind all links.
    file: PathBuf,
    folder: PathBuf,
    /// Locked. The file's own lock would end with the file, which is replaced.
    lock: File,
}

fn failed(what: &'static str, file: &Path) -> impl FnOnce(io::Error) -> PasswdError {
    let file = file.to_owned();
    move |error| PasswdError::Store { what, file, error }
}

impl Store {
    /// Waits until nobody else changes the file.
    pub(super) fn lock(file: &Path) -> Result<Self, PasswdError> {
        // A link stays a link.
        let file = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
        let folder = match file.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
            _ => PathBuf::from("."),
        };
        let lock = File::open(&folder).map_err(failed("open the folder", &folder))?;
        lock.lock().map_err(failed("lock the folder", &folder))?;
        Ok(Self { file, folder, lock })
    }

    /// The text, without mistakes; empty if there is no file yet.
    pub(super) fn read(&self) -> Result<String, PasswdError> {
        if !self
            .file
            .try_exists()
            .map_err(failed("look for", &self.file))?
        {
            return Ok(String::new());
        }
        let bytes = files::read_secret(&self.file, MAX_FILE_BYTES)?;
        let text = files::text(&self.file, bytes)?;
        match Users::parse(&shown(&self.file), &text) {
            // One without users gets its first.
            Ok(_) | Err(UsersError::Empty { .. }) => Ok(text),
            Err(reason) => Err(PasswdError::Mistakes {
                file: self.file.clone(),
                reason,
            }),
        }
    }

    /// Puts `text` in the file's place.
    pub(super) fn replace(&self, text: &str) -> Result<(), PasswdError> {
        let mut name = std::ffi::OsString::from(".");
        name.push(self.file.file_name().unwrap_or_default());
        name.push(".new");
        let new = self.folder.join(name);
        let outcome = self
            .write(&new, text)
            .and_then(|()| fs::rename(&new, &self.file).map_err(failed("replace", &self.file)));
        if outcome.is_err() {
            // What is left over is only in the way; the error says what matters.
            let _ = fs::remove_file(&new);
        }
        outcome?;
        self.lock
            .sync_all()
            .map_err(failed("sync the folder", &self.folder))
    }

    fn write(&self, new: &Path, text: &str) -> Result<(), PasswdError> {
        // Left by one that was killed; under the lock it is nobody's.
        match fs::remove_file(new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed("remove", new)(error));
            }
            _ => {}
        }
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(MODE)
            .open(new)
            .map_err(failed("create", new))?;
        match fs::metadata(&self.file) {
            Ok(old) => {
                let own = file.metadata().map_err(failed("look at", new))?;
                if (old.uid(), old.gid()) != (own.uid(), own.gid()) {
                    // Otherwise the gateway could no longer read it.
                    fchown(&file, Some(old.uid()), Some(old.gid()))
                        .map_err(failed("keep the owner of", &self.file))?;
                }
                let mode = Permissions::from_mode(old.mode() & 0o7777);
                file.set_permissions(mode)
                    .map_err(failed("keep the mode of", &self.file))?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed("look at", &self.file)(error)),
        }
        file.write_all(text.as_bytes())
            .and_then(|()| file.sync_all())
            .map_err(failed("write", new))
    }
}
