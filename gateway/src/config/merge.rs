//! Lays the sources over each other and checks what comes out.
//!
//! What always holds: sources are applied from the weakest to the strongest, so the last value of a key counts; every
//! value is checked, also one that is overridden; a check of how values go together is left out where it could only
//! repeat a problem that was already reported.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::keys::{self, CONFIG, PASSWORD, PASSWORD_FILE};
use super::problem::{ConfigError, Place, Problem};
use super::sources::{self, Entry, Layer, Origin};
use super::value::{self, Fault, MAX_CREDENTIAL};
use super::{Config, Secret};

pub(super) fn load<K, V>(
    plugin_config: &serde_json::Value,
    environment: impl IntoIterator<Item = (K, V)>,
) -> Result<Config, ConfigError>
where
    K: Into<OsString>,
    V: Into<OsString>,
{
    let mut draft = Draft {
        config: Config::with_defaults(),
        places: BTreeMap::new(),
        password: None,
        complete: true,
        problems: Vec::new(),
    };
    let (environment, mut environment_problems) = sources::environment(environment);
    let (inline, inline_problem) = match sources::inline(plugin_config) {
        Ok(inline) => (Some(inline), None),
        Err(problem) => (None, Some(problem)),
    };
    let named = [Some(&environment), inline.as_ref()]
        .into_iter()
        .flatten()
        .find_map(file_of);
    if let Some((path, place)) = named {
        match sources::file(&path, &place) {
            Ok(file) => draft.apply_file(&file),
            Err(problems) => draft.incomplete(problems),
        }
    }
    match &inline {
        Some(inline) => draft.apply(inline),
        None => draft.incomplete(inline_problem),
    }
    if !environment_problems.is_empty() {
        draft.incomplete(environment_problems.drain(..));
    }
    draft.apply(&environment);
    draft.finish()
}

/// The gateway file that the layer names, if it names one properly.
fn file_of(layer: &Layer) -> Option<(PathBuf, Place)> {
    let entry = layer.entries.iter().find(|entry| entry.key == CONFIG)?;
    Some((
        value::file(&entry.raw, &layer.base).ok()?,
        entry.place.clone(),
    ))
}

/// Where the password comes from, as far as is known.
enum Password {
    Text(Secret),
    File(PathBuf, Place),
    /// It was given, but wrongly, which has been reported.
    Faulty,
}

/// A configuration in the making.
struct Draft {
    config: Config,
    /// Where the value of each key came from, for those that were given; the strongest source.
    places: BTreeMap<&'static str, Place>,
    password: Option<Password>,
    /// Whether every source and every value could be used: only then do relations and missing keys mean anything.
    complete: bool,
    problems: Vec<Problem>,
}

impl Draft {
    fn incomplete(&mut self, problems: impl IntoIterator<Item = Problem>) {
        self.complete = false;
        self.problems.extend(problems);
    }

    fn apply_file(&mut self, file: &Layer) {
        // The topic map is looked for beside the file, also when the file leaves the key away.
        self.config.topic_map = file.base.join(&self.config.topic_map);
        self.apply(file);
    }

    fn apply(&mut self, layer: &Layer) {
        for entry in &layer.entries {
            let outcome = match entry.key.as_str() {
                CONFIG if layer.origin != Origin::File => value::file(&entry.raw, &layer.base)
                    .map(drop)
                    .map_err(|fault| problem(fault, entry)),
                PASSWORD | PASSWORD_FILE => self.apply_password(layer, entry),
                _ => self.apply_value(layer, entry),
            };
            if let Err(problem) = outcome {
                self.incomplete([problem]);
            }
        }
    }

    fn apply_value(&mut self, layer: &Layer, entry: &Entry) -> Result<(), Problem> {
        let slots = keys::slots(&mut self.config);
        let Some((key, mut slot)) = slots.into_iter().find(|(key, _)| *key == entry.key) else {
            return Err(unknown(layer.origin, entry));
        };
        slot.set(&entry.raw, &layer.base)
            .map_err(|fault| problem(fault, entry))?;
        self.places.insert(key, entry.place.clone());
        Ok(())
    }

    fn apply_password(&mut self, layer: &Layer, entry: &Entry) -> Result<(), Problem> {
        // Whatever goes wrong below, a password was meant to be given.
        self.password = Some(Password::Faulty);
        if entry.key == PASSWORD && layer.origin == Origin::Inline {
            return Err(Problem::InlinePassword {
                place: entry.place.clone(),
            });
        }
        let given = if entry.key == PASSWORD {
            value::credential(&entry.raw).map(|text| Password::Text(Secret::new(text)))
        } else {
            let path = value::file(&entry.raw, &layer.base);
            path.map(|path| Password::File(path, entry.place.clone()))
        };
        let given = given.map_err(|fault| problem(fault, entry))?;
        let gives = |key| layer.entries.iter().any(|other| other.key == key);
        if !(gives(PASSWORD) && gives(PASSWORD_FILE)) {
            self.password = Some(given);
        } else if entry.key == PASSWORD_FILE {
            // Reported at one of the two is enough.
            return Err(Problem::TwoPasswords {
                place: entry.place.clone(),
            });
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Config, ConfigError> {
        match self.password.take() {
            Some(Password::Text(secret)) => self.config.iggy.password = secret,
            Some(Password::File(path, place)) => match password_in(&path) {
                Ok(secret) => self.config.iggy.password = secret,
                Err(reason) => self.problems.push(Problem::PasswordFile {
                    place,
                    file: path,
                    reason,
                }),
            },
            Some(Password::Faulty) => {}
            // In a source that could not be read it may well have been given.
            None if !self.complete => {}
            None => self.problems.push(Problem::NoPassword {
                place: Place::Missing { key: PASSWORD },
            }),
        }
        if self.complete {
            let broken = self.config.limits.broken_relations();
            let placed = broken.into_iter().map(|broken| {
                let place = self
                    .places
                    .get(broken.lesser)
                    .or_else(|| self.places.get(broken.greater));
                Problem::Relation {
                    place: place
                        .cloned()
                        .unwrap_or(Place::Missing { key: broken.lesser }),
                    broken: Box::new(broken),
                }
            });
            self.problems.extend(placed);
        }
        match self.problems.is_empty() {
            true => Ok(self.config),
            false => Err(ConfigError {
                problems: self.problems,
            }),
        }
    }
}

fn unknown(origin: Origin, entry: &Entry) -> Problem {
    let hint = match (origin, entry.key.as_str(), &entry.raw) {
        (Origin::Environment, ..) => keys::variable_hint(&entry.key),
        (_, keys::TABLE, raw) => {
            let expected = "a table, for example [limits] with max_connections = 500 below it,";
            return Problem::WrongType {
                place: entry.place.clone(),
                expected,
                found: raw.kind(),
            };
        }
        (Origin::File, CONFIG, _) => {
            "it names this file and stands in plugin_config; remove it here".to_owned()
        }
        (Origin::File | Origin::Inline, key, _) => keys::key_hint(key),
    };
    Problem::UnknownKey {
        place: entry.key_place.clone(),
        hint,
    }
}

fn problem(fault: Fault, entry: &Entry) -> Problem {
    let place = entry.place.clone();
    match fault {
        Fault::Type(expected) => Problem::WrongType {
            place,
            expected,
            found: entry.raw.kind(),
        },
        Fault::Value(reason) => Problem::BadValue { place, reason },
    }
}

/// The password in a file, without the end of the line that editors and `echo` put behind it.
fn password_in(path: &Path) -> Result<Secret, String> {
    const MAX_FILE_BYTES: u64 = 4_096;
    let bytes = sources::read_regular(path, MAX_FILE_BYTES)?;
    let text = String::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())?;
    let text = text.trim_end_matches(['\r', '\n']);
    match text.len() {
        0 => Err("it is empty".to_owned()),
        1..=MAX_CREDENTIAL => Ok(Secret::new(text)),
        bytes => Err(format!(
            "it has {bytes} bytes; Iggy takes at most {MAX_CREDENTIAL}"
        )),
    }
}
