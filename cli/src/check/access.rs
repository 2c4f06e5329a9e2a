//! The files of users, permissions, keys and certificates that a configuration names, checked with it.
//!
//! What always holds: the verdict is that of the code by which the gateway reads them; a file that is not on this machine is a
//! note, because the gateway may run on another.

use std::path::{Path, PathBuf};

use mqtt_gateway::access;
use mqtt_gateway::config::Config;
use mqtt_gateway::listener::tls::Tls;

use super::gather::{Gathering, Here, whole_file};
use super::report::{Level, Problem};
use crate::file::{self, Kind};

impl Gathering<'_> {
    /// The files that decide who may come in, and what they may, as far as they are on this machine.
    pub(super) fn access_of(&mut self, here: &Here<'_>, config: &Config) {
        let access = &config.access;
        if let Some(file) = &access.users_file
            && let Some(text) = self.text_of(here, "users_file", file)
        {
            self.users(file, &text);
        }
        if let Some(file) = &access.acl_file
            && let Some(text) = self.text_of(here, "acl_file", file)
        {
            self.acl(file, &text, Some(Kind::Acl));
        }
        let keys = &access.jwt.key_files;
        if !keys.is_empty()
            && self.are_here(here, "jwt_key_files", keys)
            && let Err(error) = access::load_jwt(access)
        {
            self.cannot_use(here, "jwt_key_files", error.to_string());
        }
        for listener in &config.listener {
            let Some(tls) = &listener.tls else { continue };
            if self.are_here(here, "listener", &tls.files())
                && let Err(error) = Tls::load(tls)
            {
                self.cannot_use(here, "listener", format!("{}: {error}", listener.address));
            }
        }
    }

    /// The text of a file that the configuration names under `key`. None of one that is not here, or not text; both are said.
    fn text_of(&mut self, here: &Here<'_>, key: &str, path: &Path) -> Option<String> {
        if !self.are_here(here, key, &[path.to_owned()]) {
            return None;
        }
        match file::read(path) {
            Ok(text) => Some(text),
            Err(reason) => {
                self.cannot_use(here, key, format!("{} {reason}", file::shown(path)));
                None
            }
        }
    }

    /// Whether the files are on this machine. It may not be that of the gateway, so one that is not is a note.
    fn are_here(&mut self, here: &Here<'_>, key: &str, files: &[PathBuf]) -> bool {
        let missing = files
            .iter()
            .find(|file| !file.try_exists().unwrap_or(false));
        if let Some(missing) = missing {
            let message = format!(
                "{} is not on this machine: not checked",
                file::shown(missing)
            );
            self.about(here, Level::Note, key, message);
        }
        missing.is_none()
    }

    fn cannot_use(&mut self, here: &Here<'_>, key: &str, message: String) {
        self.about(here, Level::Error, key, message);
    }

    fn about(&mut self, here: &Here<'_>, level: Level, key: &str, message: String) {
        let (path, kind, place) = here.file_with(key);
        self.entry(&path, Some(kind)).add(Problem {
            level,
            line: place.map(|(line, _)| line),
            column: place.map(|(_, column)| column),
            key: key.to_owned(),
            ..whole_file(message)
        });
    }
}
