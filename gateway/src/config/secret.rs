//! A text that must not be shown.
//!
//! What always holds: neither `Debug` nor `Display` shows it; only a call of [`Secret::expose`] does, which is easy to
//! find in the code.

use std::fmt;

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
