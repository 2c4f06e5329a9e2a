//! What a value may be: how each kind of key reads what the operator wrote, checks it, and shows it again.
//!
//! What always holds: [`Slot::set`] changes the slot only if the value is good; what [`Slot::show`] writes,
//! [`Slot::set`] reads back as the same value.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use bytesize::ByteSize;

use super::choice::Choice;
use super::methods::{Method, Methods, NotAdded};
use super::problem::quoted;
use crate::log::{MAX_NAME_BYTES, Name};
use crate::mapping::envelope::HeaderSet;

mod address;

use address::{address, any_listen, listen, one_address, url_path};

pub(super) const KIB: usize = 1_024;
pub(super) const MIB: usize = 1_024 * KIB;
/// No size above this is meant seriously, and none below overflows anything.
pub(super) const TIB: u64 = 1 << 40;
/// No time above this is meant seriously, and a clock plus this never overflows.
pub(super) const DAY: Duration = Duration::from_secs(86_400);
pub(super) const MILLISECOND: Duration = Duration::from_millis(1);

/// `name` and `node`: with the prefix `mqtt-gateway.` it still is a name for Iggy (at most 255 bytes).
const MAX_NAME: usize = 200;
/// Iggy's login carries the lengths of user name and password in one byte each.
pub(super) const MAX_CREDENTIAL: usize = 255;
/// No path and no name of a claim is longer.
const MAX_TEXT: usize = 255;

/// A value as a source gave it, before anyone knows what it is for.
#[derive(Debug, Clone)]
pub(super) enum Raw {
    /// A text, quoted in TOML or JSON.
    Text(String),
    /// The value of an environment variable, in which everything is text.
    Variable(String),
    /// A number as it was written, integer or not.
    Number(String),
    /// A truth value.
    Bool(bool),
    /// A list.
    List(Vec<Raw>),
    /// Anything else, by its name with an article.
    Other(&'static str),
}

impl Raw {
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) | Self::Variable(_) => "a text",
            Self::Number(_) => "a number",
            Self::Bool(_) => "true or false",
            Self::List(_) => "a list",
            Self::Other(kind) => kind,
        }
    }

    /// As a text. The runtime turns what looks like a number or a truth value into one when it comes from its own
    /// environment overrides, so those are texts too.
    pub(super) fn as_text(&self) -> Option<String> {
        match self {
            Self::Text(text) | Self::Variable(text) | Self::Number(text) => Some(text.clone()),
            Self::Bool(value) => Some(value.to_string()),
            Self::List(_) | Self::Other(_) => None,
        }
    }
}

/// Why a value was not taken.
#[derive(Debug)]
pub(super) enum Fault {
    /// It has the wrong type; this is what is needed.
    Type(&'static str),
    /// It cannot be used, for this reason.
    Value(String),
}

/// A place in the configuration that a key fills, by its kind.
#[derive(Debug)]
pub(super) enum Slot<'a> {
    /// A name: 1 to 200 bytes of `[A-Za-z0-9._-]`.
    Name(&'a mut String),
    /// A user name.
    Credential(&'a mut String),
    /// Socket addresses to listen at.
    Listen(&'a mut Vec<SocketAddr>),
    /// Socket addresses to listen at, or none.
    AnyListen(&'a mut Vec<SocketAddr>),
    /// `host:port`.
    Address(&'a mut String),
    /// A file, relative to the folder that the source counts from.
    File(&'a mut PathBuf),
    /// A file, or none.
    OptionalFile(&'a mut Option<PathBuf>),
    /// Any number of files.
    Files(&'a mut Vec<PathBuf>),
    /// A socket address to listen at.
    OneAddress(&'a mut Option<SocketAddr>),
    /// The path of an HTTP request.
    UrlPath(&'a mut Option<String>),
    /// A text, or none.
    OptionalText(&'a mut Option<String>),
    /// Names of users, or none.
    Users(&'a mut Vec<String>),
    /// Ways to authenticate.
    Methods(&'a mut Methods),
    /// One of a few words.
    Choice(&'a mut dyn Choice),
    /// The name of a stream or topic of Iggy.
    IggyName(&'a mut Name),
    /// Names of headers.
    Headers(&'a mut HeaderSet),
    /// A number of things.
    Count(&'a mut usize, RangeInclusive<u64>),
    /// A number of things, narrower.
    Count32(&'a mut u32, RangeInclusive<u64>),
    /// A number of bytes.
    Size(&'a mut usize, RangeInclusive<u64>),
    /// A length of time.
    Time(&'a mut Duration, RangeInclusive<Duration>),
}

impl Slot<'_> {
    /// Takes the value, or says why not. `base` is the folder that relative paths of this source count from.
    pub(super) fn set(&mut self, raw: &Raw, base: &Path) -> Result<(), Fault> {
        match self {
            Self::Name(slot) => **slot = name(raw)?,
            Self::Credential(slot) => **slot = credential(raw)?,
            Self::Listen(slot) => **slot = listen(raw)?,
            Self::AnyListen(slot) => **slot = any_listen(raw)?,
            Self::Users(slot) => **slot = users(raw)?,
            Self::Address(slot) => **slot = address(raw)?,
            Self::File(slot) => **slot = file(raw, base)?,
            Self::OptionalFile(slot) => **slot = Some(file(raw, base)?),
            Self::Files(slot) => **slot = files(raw, base)?,
            Self::OneAddress(slot) => **slot = Some(one_address(raw)?),
            Self::UrlPath(slot) => **slot = Some(url_path(raw)?),
            Self::OptionalText(slot) => **slot = Some(short_text(raw)?),
            Self::Methods(slot) => **slot = methods(raw)?,
            Self::Choice(slot) => choose(*slot, raw)?,
            Self::IggyName(slot) => **slot = iggy_name(raw)?,
            Self::Headers(slot) => **slot = headers(raw)?,
            Self::Count(slot, range) => {
                let count = within(count(raw)?, range, &ToString::to_string)?;
                **slot = usize::try_from(count).map_err(|_| too_large_for_this_machine())?;
            }
            Self::Count32(slot, range) => {
                let count = within(count(raw)?, range, &ToString::to_string)?;
                **slot = u32::try_from(count).map_err(|_| too_large_for_this_machine())?;
            }
            Self::Size(slot, range) => {
                let size = within(size(raw)?, range, &|size| size_text(*size))?;
                **slot = usize::try_from(size).map_err(|_| too_large_for_this_machine())?;
            }
            Self::Time(slot, range) => {
                **slot = within(time(raw)?, range, &|time| duration_text(*time))?
            }
        }
        Ok(())
    }

    /// The value as the operator would write it, without quotes.
    pub(super) fn show(&self) -> String {
        match self {
            Self::Name(text) | Self::Credential(text) | Self::Address(text) => (*text).clone(),
            Self::Listen(addresses) | Self::AnyListen(addresses) => addresses
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(","),
            Self::File(path) => path.display().to_string(),
            Self::OptionalFile(path) => path
                .as_ref()
                .map(|path| path.display().to_string())
                .unwrap_or_default(),
            Self::Files(paths) => {
                let paths: Vec<_> = paths.iter().map(|path| in_a_list(path)).collect();
                paths.join(",")
            }
            Self::OneAddress(address) => address
                .map(|address| address.to_string())
                .unwrap_or_default(),
            Self::UrlPath(text) | Self::OptionalText(text) => (*text).clone().unwrap_or_default(),
            Self::Users(names) => names.join(","),
            Self::Methods(methods) => methods.to_string(),
            Self::Choice(choice) => choice.word().to_owned(),
            Self::IggyName(name) => name.to_string(),
            Self::Headers(set) => set.names().collect::<Vec<_>>().join(","),
            Self::Count(count, _) => count.to_string(),
            Self::Count32(count, _) => count.to_string(),
            Self::Size(size, _) => size_text(**size as u64),
            Self::Time(time, _) => duration_text(**time),
        }
    }

    /// What may stand there, for the documentation.
    #[cfg(test)]
    pub(super) fn allowed(&self) -> String {
        fn range<T: Copy>(range: &RangeInclusive<T>, show: impl Fn(T) -> String) -> String {
            format!("{} to {}", show(*range.start()), show(*range.end()))
        }
        match self {
            Self::Name(_) => format!("1 to {MAX_NAME} of `A-Z a-z 0-9 . _ -`"),
            Self::Credential(_) => format!("1 to {MAX_CREDENTIAL} bytes"),
            Self::Listen(_) => "one or more `IP:port`".to_owned(),
            Self::AnyListen(_) => "any number of `IP:port`".to_owned(),
            Self::Users(_) => "any number of names".to_owned(),
            Self::Address(_) => "`host:port`".to_owned(),
            Self::File(_) => "a file".to_owned(),
            Self::OptionalFile(_) => "a file".to_owned(),
            Self::Files(_) => "one or more files".to_owned(),
            Self::OneAddress(_) => "`IP:port`".to_owned(),
            Self::UrlPath(_) => "a path".to_owned(),
            Self::OptionalText(_) => format!("1 to {MAX_TEXT} bytes"),
            Self::Methods(_) => {
                let names: Vec<_> = Method::ALL.iter().map(|(name, _)| *name).collect();
                format!("any of `{}`", names.join(" "))
            }
            Self::Choice(choice) => format!("`{}`", choice.words().join("` or `")),
            Self::IggyName(_) => format!("1 to {MAX_NAME_BYTES} bytes"),
            Self::Headers(_) => format!("any of `{}`", HeaderSet::NAMES.join(" ")),
            Self::Count(_, r) | Self::Count32(_, r) => range(r, |n| n.to_string()),
            Self::Size(_, r) => range(r, size_text),
            Self::Time(_, r) => range(r, duration_text),
        }
    }
}

/// A path as it can stand between commas, around which spaces mean nothing.
fn in_a_list(path: &Path) -> String {
    let mut path = path.display().to_string();
    if path.starts_with(char::is_whitespace) {
        path.insert_str(0, "./");
    }
    if path.ends_with(char::is_whitespace) {
        path.push('/');
    }
    path
}

fn too_large_for_this_machine() -> Fault {
    Fault::Value("the number is too large for this machine; use a smaller one".to_owned())
}

fn within<T: PartialOrd>(
    value: T,
    range: &RangeInclusive<T>,
    show: &dyn Fn(&T) -> String,
) -> Result<T, Fault> {
    if range.contains(&value) {
        return Ok(value);
    }
    let (low, high) = (show(range.start()), show(range.end()));
    Err(Fault::Value(format!(
        "{} is out of range; use {low} to {high}",
        show(&value)
    )))
}

fn name(raw: &Raw) -> Result<String, Fault> {
    let text = raw.as_text().ok_or(Fault::Type("a text"))?;
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if text.is_empty() || text.len() > MAX_NAME || !text.bytes().all(legal) {
        let text = quoted(&text);
        return Err(Fault::Value(format!(
            "{text} is no name; use 1 to {MAX_NAME} of the characters A-Z a-z 0-9 . _ -"
        )));
    }
    Ok(text)
}

pub(super) fn credential(raw: &Raw) -> Result<String, Fault> {
    let text = raw.as_text().ok_or(Fault::Type("a text"))?;
    credential_length(&text)?;
    Ok(text)
}

/// Says nothing of the text itself: it may be a password.
pub(super) fn credential_length(text: &str) -> Result<(), Fault> {
    match text.len() {
        0 => Err(Fault::Value(
            "is empty; give a value, or leave the key away".to_owned(),
        )),
        1..=MAX_CREDENTIAL => Ok(()),
        bytes => Err(Fault::Value(format!(
            "has {bytes} bytes; Iggy takes at most {MAX_CREDENTIAL}"
        ))),
    }
}

/// A list of texts, which a single text is too; parts between commas in a variable.
fn texts(raw: &Raw) -> Option<Vec<String>> {
    match raw {
        Raw::Variable(text) => Some(text.split(',').map(|part| part.trim().to_owned()).collect()),
        Raw::List(items) => items.iter().map(Raw::as_text).collect(),
        single => single.as_text().map(|text| vec![text]),
    }
}

/// Names of users; an empty text is none.
fn users(raw: &Raw) -> Result<Vec<String>, Fault> {
    let mut names: Vec<String> = Vec::new();
    for name in texts(raw).ok_or(Fault::Type("a user name or a list of them"))? {
        if name.is_empty() {
            continue;
        }
        credential_length(&name)?;
        if !names.contains(&name) {
            names.push(name);
        }
    }
    Ok(names)
}

fn files(raw: &Raw, base: &Path) -> Result<Vec<PathBuf>, Fault> {
    let texts = texts(raw).ok_or(Fault::Type("the path of a file or a list of them"))?;
    if texts.is_empty() {
        return Err(Fault::Value(
            "no file; give at least one, or leave the key away".to_owned(),
        ));
    }
    texts
        .into_iter()
        .map(|text| file(&Raw::Text(text), base))
        .collect()
}

fn short_text(raw: &Raw) -> Result<String, Fault> {
    let text = raw.as_text().ok_or(Fault::Type("a text"))?;
    match text.len() {
        0 => Err(Fault::Value(
            "is empty; give a text, or leave the key away".to_owned(),
        )),
        1..=MAX_TEXT => Ok(text),
        bytes => Err(Fault::Value(format!(
            "has {bytes} bytes; use at most {MAX_TEXT}"
        ))),
    }
}

fn methods(raw: &Raw) -> Result<Methods, Fault> {
    let texts = texts(raw).ok_or(Fault::Type("a list of names such as [\"users\"]"))?;
    let mut methods = Methods::default();
    for text in &texts {
        methods.add(text).map_err(|why| {
            let text = quoted(text);
            Fault::Value(match why {
                NotAdded::Unknown => format!(
                    "{text} is no way to authenticate; use any of {}",
                    Method::ALL.map(|(name, _)| name).join(", ")
                ),
                NotAdded::Twice => format!("{text} is listed twice; remove one"),
            })
        })?;
    }
    if methods.is_empty() {
        return Err(Fault::Value(format!(
            "nobody could come in; use any of {}",
            Method::ALL.map(|(name, _)| name).join(", ")
        )));
    }
    Ok(methods)
}

fn choose(choice: &mut dyn Choice, raw: &Raw) -> Result<(), Fault> {
    let text = raw.as_text().ok_or(Fault::Type("a text"))?;
    if choice.choose(&text) {
        return Ok(());
    }
    let (text, words) = (quoted(&text), choice.words().join("\" or \""));
    Err(Fault::Value(format!(
        "{text} means nothing here; use \"{words}\""
    )))
}

fn iggy_name(raw: &Raw) -> Result<Name, Fault> {
    let text = raw.as_text().ok_or(Fault::Type("a text"))?;
    Name::new(&text).ok_or_else(|| {
        let bytes = text.len();
        Fault::Value(format!(
            "has {bytes} bytes; names in Iggy have 1 to {MAX_NAME_BYTES}"
        ))
    })
}

/// A list, which may be empty; names divided by commas in a variable.
fn headers(raw: &Raw) -> Result<HeaderSet, Fault> {
    const NEEDED: Fault = Fault::Type("a list of names such as [\"client_id\", \"qos\"]");
    let names: Vec<String> = match raw {
        Raw::Variable(text) => {
            let parts = text.split(',').map(|part| part.trim().to_owned());
            parts.filter(|part| !part.is_empty()).collect()
        }
        Raw::List(items) => items
            .iter()
            .map(Raw::as_text)
            .collect::<Option<_>>()
            .ok_or(NEEDED)?,
        _ => return Err(NEEDED),
    };
    names.iter().try_fold(HeaderSet::NONE, |set, name| {
        set.with(name).ok_or_else(|| {
            let (name, known) = (quoted(name), HeaderSet::NAMES.join(", "));
            Fault::Value(format!(
                "{name} is no header that can be left out; use any of {known}"
            ))
        })
    })
}

/// A path, counted from `base` unless it is absolute, and without `.` parts so that two spellings compare equal.
pub(super) fn file(raw: &Raw, base: &Path) -> Result<PathBuf, Fault> {
    let text = match raw {
        Raw::Text(text) | Raw::Variable(text) | Raw::Number(text) => text,
        Raw::Bool(_) | Raw::List(_) | Raw::Other(_) => {
            return Err(Fault::Type("a text with the path of a file"));
        }
    };
    let path: PathBuf = base
        .join(text)
        .components()
        .filter(|part| *part != Component::CurDir)
        .collect();
    if text.is_empty() || text.contains('\0') || path.as_os_str().is_empty() {
        return Err(Fault::Value(
            "is no path; give the path of a file".to_owned(),
        ));
    }
    Ok(path)
}

fn count(raw: &Raw) -> Result<u64, Fault> {
    match raw {
        Raw::Number(text) | Raw::Variable(text) => {
            let text = text.trim();
            text.parse().map_err(|_| {
                Fault::Value(format!(
                    "{} is not a whole number of 0 or more",
                    quoted(text)
                ))
            })
        }
        Raw::Text(_) | Raw::Bool(_) | Raw::List(_) | Raw::Other(_) => {
            Err(Fault::Type("a whole number, without quotes,"))
        }
    }
}

fn size(raw: &Raw) -> Result<u64, Fault> {
    let (Raw::Number(text) | Raw::Variable(text) | Raw::Text(text)) = raw else {
        return Err(Fault::Type("a size in bytes, 65536 or \"64KiB\","));
    };
    let parsed = text.trim().parse::<ByteSize>();
    let bad = |_| {
        Fault::Value(format!(
            "{} is no size; write bytes as a number or for example \"64KiB\"",
            quoted(text)
        ))
    };
    parsed.map(|size| size.as_u64()).map_err(bad)
}

/// A number alone is refused: the keys range from a millisecond to a day, so nobody would know what was meant.
fn time(raw: &Raw) -> Result<Duration, Fault> {
    let (Raw::Number(text) | Raw::Variable(text) | Raw::Text(text)) = raw else {
        return Err(Fault::Type("a time with its unit, for example \"30s\","));
    };
    let text = text.trim();
    if text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.' || byte == b'-')
    {
        let text = quoted(text);
        return Err(Fault::Value(format!(
            "{text} has no unit; write for example \"30s\", \"500ms\" or \"0s\""
        )));
    }
    let bad = |_| {
        Fault::Value(format!(
            "{} is no time; write for example \"30s\", \"500ms\" or \"1h 30m\"",
            quoted(text)
        ))
    };
    humantime::parse_duration(text).map_err(bad)
}

/// A size in the largest unit in which it is a whole number that people would recognise.
pub(super) fn size_text(size: u64) -> String {
    const UNITS: [(u64, &str); 5] = [
        (1 << 40, "TiB"),
        (1 << 30, "GiB"),
        (1 << 20, "MiB"),
        (1_000_000, "MB"),
        (1 << 10, "KiB"),
    ];
    for (unit, unit_name) in UNITS {
        if size >= unit && size.is_multiple_of(unit) {
            return format!("{}{unit_name}", size / unit);
        }
    }
    size.to_string()
}

/// A time as it is written in the configuration.
pub(super) fn duration_text(time: Duration) -> String {
    humantime::format_duration(time).to_string()
}
