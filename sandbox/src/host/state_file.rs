//! The file that keeps a source's state between two runs.
//!
//! Always holds: the file is either the state saved last or the one before, never a part of one.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A source's state file; it may not exist yet.
#[derive(Debug, Clone)]
pub(super) struct StateFile {
    path: PathBuf,
}

impl StateFile {
    /// The state file of the source `key` in the folder `[state] path`.
    pub(super) fn of_source(folder: &Path, key: &str) -> Self {
        Self {
            path: folder.join(format!("source_{key}.state")),
        }
    }

    /// Reads the state; a missing or empty file is no state.
    ///
    /// # Errors
    /// Of the operating system, with the path.
    pub(super) fn load(&self) -> io::Result<Option<Vec<u8>>> {
        match std::fs::read(&self.path) {
            Ok(state) if state.is_empty() => Ok(None),
            Ok(state) => Ok(Some(state)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.named(&error)),
        }
    }

    /// Replaces the state; returns when it is on stable storage.
    ///
    /// # Errors
    /// Of the operating system, with the path. The state saved before is then still there.
    pub(super) fn save(&self, state: &[u8]) -> io::Result<()> {
        self.replace(state).map_err(|error| self.named(&error))
    }

    fn replace(&self, state: &[u8]) -> io::Result<()> {
        let unfinished = self.path.with_extension("state.tmp");
        let mut file = std::fs::File::create(&unfinished)?;
        file.write_all(state)?;
        file.sync_data()?;
        std::fs::rename(&unfinished, &self.path)?;
        if let Some(folder) = self.path.parent().filter(|it| !it.as_os_str().is_empty()) {
            // The new name is part of the folder and lost with a crash unless that is synced too.
            std::fs::File::open(folder)?.sync_all()?;
        }
        Ok(())
    }

    fn named(&self, error: &io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("{}: {error}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_found_again_and_replaced_whole() {
        let folder = tempfile::tempdir().unwrap();
        let file = StateFile::of_source(folder.path(), "mqtt");
        assert_eq!(file.load().unwrap(), None);
        file.save(&[1, 2, 3]).unwrap();
        file.save(&[4]).unwrap();
        let again = StateFile::of_source(folder.path(), "mqtt");
        assert_eq!(again.load().unwrap(), Some(vec![4]));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_empty_file_is_no_state() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("source_mqtt.state"), b"").unwrap();
        let file = StateFile::of_source(folder.path(), "mqtt");
        assert_eq!(file.load().unwrap(), None);
    }

    #[test]
    fn a_state_that_cannot_be_saved_names_the_file() {
        let file = StateFile::of_source(Path::new("/nowhere"), "mqtt");
        let error = file.save(&[1]).unwrap_err().to_string();
        assert!(error.contains("/nowhere/source_mqtt.state"), "{error}");
    }
}
