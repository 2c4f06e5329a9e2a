//! The topic map's file: from its path to a compiled map.
//!
//! What always holds: no more than [`MAX_FILE_BYTES`] are read, whatever the path leads to; what is not text is said with
//! its place.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::{MapReport, TopicMap};

/// The largest file that is read, in bytes: ten thousand rules of 800 bytes each.
pub const MAX_FILE_BYTES: u64 = 8 << 20;

/// Why there is no map.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("topic map {}: {error}; correct the path, or create the file", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The file is not what it should be.
    #[error("topic map {}: larger than {MAX_FILE_BYTES} bytes; is this the right file? If so, use groups in the templates, so that one rule serves many topics", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// The file is not text.
    #[error("{}:{line}:{column}: not UTF-8 here; save the file as UTF-8", path.display())]
    NotUtf8 {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The column in characters, counted from 1.
        column: usize,
    },
    /// The map does not compile.
    #[error("the topic map has {}:\n{}", .0.counted(), crate::report::render::problems(.0, false))]
    Map(MapReport),
}

/// Reads and compiles the topic map in the file `path`. Blocks on reading.
///
/// # Errors
/// Why there is no map, with everything that is wrong in it.
pub fn load(path: &Path) -> Result<TopicMap, LoadError> {
    let unreadable = |error| LoadError::Unreadable {
        path: path.to_owned(),
        error,
    };
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes))
        .map_err(unreadable)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(LoadError::TooLarge {
            path: path.to_owned(),
        });
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        let before = String::from_utf8_lossy(error.as_bytes().get(..good).unwrap_or_default());
        let line = before.rsplit('\n').next().unwrap_or_default();
        LoadError::NotUtf8 {
            path: path.to_owned(),
            line: before.matches('\n').count() + 1,
            column: line.chars().count() + 1,
        }
    })?;
    TopicMap::compile(&path.display().to_string(), &text).map_err(LoadError::Map)
}
