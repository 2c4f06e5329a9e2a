//! Lays the sources over each other and checks what comes out.
//!
//! What always holds: sources are applied from the weakest to the strongest, so the last value of a key counts; every
//! value is checked, also one that is overridden; a check of how values go together is left out where it could only
//! repeat a problem that was already reported.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::keys::{self, CONFIG, LISTENER, PASSWORD, PASSWORD_FILE};
use super::listeners;
use super::methods::Method;
use super::problem::{ConfigError, Place, Problem};
use super::secret::read_secret_file;
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
        listeners: BTreeMap::new(),
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
    /// The listeners of the strongest source that has any, by their numbers, each with its place.
    listeners: BTreeMap<usize, (Place, listeners::Draft)>,
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
        let is_listener = |entry: &Entry| sources::of_listener(&entry.key).is_some();
        if layer.entries.iter().any(is_listener) {
            self.listeners.clear();
        }
        for entry in &layer.entries {
            let outcome = match entry.key.as_str() {
                CONFIG if layer.origin != Origin::File => value::file(&entry.raw, &layer.base)
                    .map(drop)
                    .map_err(|fault| problem(fault, entry)),
                PASSWORD | PASSWORD_FILE => self.apply_password(layer, entry),
                key => match sources::of_listener(key) {
                    Some((number, key)) => self.apply_listener(layer, entry, number, key),
                    None => self.apply_value(layer, entry),
                },
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

    fn apply_listener(
        &mut self,
        layer: &Layer,
        entry: &Entry,
        number: usize,
        key: &str,
    ) -> Result<(), Problem> {
        let listener = self.listeners.entry(number);
        let (_, draft) = listener.or_insert_with(|| (entry.key_place.clone(), Default::default()));
        let slots = draft.slots();
        let Some((key, mut slot)) = slots.into_iter().find(|(known, _)| *known == key) else {
            return Err(Problem::UnknownKey {
                place: entry.key_place.clone(),
                hint: keys::listener_hint(key),
            });
        };
        slot.set(&entry.raw, &layer.base)
            .map_err(|fault| problem(fault, entry))?;
        draft.given.push((key, entry.place.clone()));
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
            self.finish_access();
            self.finish_http();
        }
        match self.problems.is_empty() {
            true => Ok(self.config),
            false => Err(ConfigError {
                problems: self.problems,
            }),
        }
    }
}

impl Draft {
    /// The listeners, and whether everything that they need to know who may come in is there. For complete sources.
    fn finish_access(&mut self) {
        // The default address serves those who configure no listener at all.
        if !self.listeners.is_empty() && !self.places.contains_key("listen") {
            self.config.listen.clear();
        }
        let mut wrong = Vec::new();
        for (place, draft) in std::mem::take(&mut self.listeners).into_values() {
            let places = draft.given.clone();
            match draft.finish(&self.config.access.authentication) {
                Ok(listener) => self.config.listener.push(listener),
                Err((key, reason)) => {
                    let given = places.iter().find(|(given, _)| *given == key);
                    let place = given.map_or(place, |(_, place)| place.clone());
                    wrong.push(Problem::BadValue { place, reason });
                }
            }
        }
        let is_whole = wrong.is_empty();
        self.problems.append(&mut wrong);
        if !is_whole {
            return;
        }
        let listeners = self.config.listeners();
        for (index, listener) in listeners.iter().enumerate() {
            let address = listener.address;
            let same = |other: &&listeners::ListenerConfig| other.address == address;
            if address.port() != 0 && listeners.iter().take(index).any(|other| same(&other)) {
                self.contradiction(
                    LISTENER,
                    format!("{address} is listened at twice; give one of the two another port"),
                );
            }
        }
        if listeners
            .iter()
            .any(|listener| listener.authentication.is_empty())
        {
            self.problems.push(Problem::NoAuthentication {
                place: Place::Missing {
                    key: "authentication",
                },
            });
            return;
        }
        if let Some(listener) = listeners.iter().find(|listener| {
            listener.tls.is_none() && listener.authentication.has(Method::Certificate)
        }) {
            let address = listener.address;
            self.contradiction("authentication", format!(
                "\"certificate\" is for listeners with client_ca, and {address} has no TLS; give the listener that has an authentication of its own"
            ));
        }
        let access = self.config.access.clone();
        let needs = [
            (Method::Users, "users_file", access.users_file.is_some()),
            (
                Method::Jwt,
                "jwt_key_files",
                !access.jwt.key_files.is_empty(),
            ),
        ];
        for (method, key, is_given) in needs {
            let name = method.name();
            let is_used = listeners
                .iter()
                .any(|listener| listener.authentication.has(method));
            match (is_used, is_given) {
                (true, false) => self.contradiction(
                    "authentication",
                    format!("\"{name}\" needs {key}; give it, or remove \"{name}\""),
                ),
                (false, true) => self.contradiction(
                    key,
                    format!("no listener uses it; add \"{name}\" to authentication, or remove it"),
                ),
                _ => {}
            }
        }
        if access.jwt.key_files.is_empty() {
            let keys = [
                "jwt_algorithm",
                "jwt_user_claim",
                "jwt_client_id_claim",
                "jwt_issuer",
                "jwt_audience",
            ];
            for key in keys {
                if !self.places.contains_key(key) {
                    continue;
                }
                self.contradiction(
                    key,
                    "there are no keys to check tokens with; give jwt_key_files, or remove this"
                        .to_owned(),
                );
            }
        }
    }

    /// Whether those who may look at the gateway can show who they are. For complete sources.
    fn finish_http(&mut self) {
        let (http, methods) = (&self.config.http, &self.config.access.authentication);
        let open = http
            .listen
            .iter()
            .find(|address| !address.ip().is_loopback());
        if let Some(address) = open
            && !http.is_protected()
        {
            let reason = format!(
                "everyone who reaches {address} could read what the gateway does, and drain its listeners; give http_token_file or http_users, or listen at 127.0.0.1 only"
            );
            self.contradiction("http_listen", reason);
        } else if !http.users.is_empty() && !methods.take_passwords() {
            let reason = "nobody could show who they are, because authentication asks no listener's clients for passwords; add \"users\", \"iggy\" or \"jwt\" to it, or give http_token_file instead";
            self.contradiction("http_users", reason.to_owned());
        }
    }

    /// Reports what is wrong at the place where `key` was given.
    fn contradiction(&mut self, key: &'static str, reason: String) {
        let place = self.places.get(key).cloned();
        self.problems.push(Problem::BadValue {
            place: place.unwrap_or(Place::Missing { key }),
            reason,
        });
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
        (_, LISTENER, raw) => {
            let expected = "a list of tables, each below a line [[listener]],";
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

/// The password in a file.
fn password_in(path: &Path) -> Result<Secret, String> {
    let secret = read_secret_file(path)?;
    match secret.expose().len() {
        0..=MAX_CREDENTIAL => Ok(secret),
        bytes => Err(format!(
            "it has {bytes} bytes; Iggy takes at most {MAX_CREDENTIAL}"
        )),
    }
}
