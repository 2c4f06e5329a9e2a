//! A text that must not be shown.
//!
//! What always holds: neither `Debug` nor `Display` shows it; only a call of [`Secret::expose`] does, which is easy to
//! find in the code.

use std::fmt;
use std::path::Path;

use super::sources::read_regular;

/// A password. Comparing two is for telling configurations apart, not for checking what a client sent: it takes a time
/// that depends on the content.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Takes the text into custody.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for the one place that has to send it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

/// The secret in a file, without the end of the line that editors and `echo` put behind it. Blocks on reading.
///
/// # Errors
/// Why there is none, without a word of what is in the file.
pub fn read_secret_file(path: &Path) -> Result<Secret, String> {
    const MAX_FILE_BYTES: u64 = 4_096;
    let bytes = read_regular(path, MAX_FILE_BYTES)?;
    let text = String::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())?;
    match text.trim_end_matches(['\r', '\n']) {
        "" => Err("it is empty".to_owned()),
        text => Ok(Secret::new(text)),
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}
