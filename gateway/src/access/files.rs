//! Reading the files that decide who may do what: private keys, users, permissions.
//!
//! What always holds: what is checked is what is read (one open file); only a regular file is read, never more than the
//! limit; a file that others could have changed is not believed, and a secret that everybody on the machine can read is
//! none. Nothing of a file's content is in an error.
//!
//! The rule for a secret: its owner may do anything, its group may read it (so that a service can read a file of root's,
//! and so that mounted secrets of Kubernetes and Docker can be used), nobody else may do anything. Whether the owner is
//! trustworthy is not asked: in a container the file belongs to whoever mounted it.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Why a file is not used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The system does not give it.
    #[error("{}: cannot be read: {error}; correct the path or the permissions", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// A folder, a pipe or a device.
    #[error("{}: not a regular file; name a regular file", path.display())]
    NotRegular {
        /// The file.
        path: PathBuf,
    },
    /// Larger than any file of its kind.
    #[error("{}: larger than {max_bytes} bytes; is this the right file?", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The limit in bytes.
        max_bytes: u64,
    },
    /// A secret that its group or anybody may change.
    #[error(
        "{}: its mode is {mode:04o}, so not only its owner can change it; chmod go-w {}",
        path.display(),
        path.display()
    )]
    WritableByGroup {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// A file that anybody may change.
    #[error(
        "{}: its mode is {mode:04o}, so everybody on this machine can change it; chmod o-w {}",
        path.display(),
        path.display()
    )]
    WritableByOthers {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// A secret that anybody may read.
    #[error(
        "{}: its mode is {mode:04o}, so everybody on this machine can read it, and it holds secrets; chmod o-r {} (for a mounted secret: defaultMode: 0440 in Kubernetes, mode: 0440 in Docker)",
        path.display(),
        path.display()
    )]
    ReadableByOthers {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
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
}

/// Reads a file with secrets: a private key, a shared key, the hashes of passwords. Its group may read it; if its group may
/// write it, or others may do anything with it, it is refused. Blocks on reading.
///
/// # Errors
/// Why it is not used. What was read is not in it.
pub fn read_secret(path: &Path, max_bytes: u64) -> Result<Vec<u8>, FileError> {
    read(path, max_bytes, |path, mode| {
        if mode & 0o022 != 0 {
            Err(FileError::WritableByGroup { path, mode })
        } else if mode & 0o004 != 0 {
            Err(FileError::ReadableByOthers { path, mode })
        } else {
            Ok(())
        }
    })
}

/// Reads a file that is no secret, but decides: permissions, a public key. If others may write it, it is refused. Blocks
/// on reading.
///
/// # Errors
/// Why it is not used.
pub fn read_public(path: &Path, max_bytes: u64) -> Result<Vec<u8>, FileError> {
    read(path, max_bytes, |path, mode| match mode & 0o002 {
        0 => Ok(()),
        _ => Err(FileError::WritableByOthers { path, mode }),
    })
}

/// The text in `bytes`, which were read from `path`.
///
/// # Errors
/// Where the first byte stands that is no part of a character.
pub fn text(path: &Path, bytes: Vec<u8>) -> Result<String, FileError> {
    String::from_utf8(bytes).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        let before = String::from_utf8_lossy(error.as_bytes().get(..good).unwrap_or_default());
        let line = before.rsplit('\n').next().unwrap_or_default();
        FileError::NotUtf8 {
            path: path.to_owned(),
            line: before.matches('\n').count() + 1,
            column: line.chars().count() + 1,
        }
    })
}

fn read(
    path: &Path,
    max_bytes: u64,
    permitted: impl Fn(PathBuf, u32) -> Result<(), FileError>,
) -> Result<Vec<u8>, FileError> {
    let unreadable = |error| FileError::Unreadable {
        path: path.to_owned(),
        error,
    };
    let regular = |metadata: Metadata| match metadata.is_file() {
        true => Ok(metadata),
        false => Err(FileError::NotRegular {
            path: path.to_owned(),
        }),
    };
    // Before it is opened, because opening a pipe waits for somebody who writes; after it, because only then is it the
    // file that is read.
    regular(fs::metadata(path).map_err(unreadable)?)?;
    let file = File::open(path).map_err(unreadable)?;
    let metadata = regular(file.metadata().map_err(unreadable)?)?;
    permitted(path.to_owned(), metadata.permissions().mode() & 0o7777)?;
    // Room for all of it at once, so that no copies of a secret are left behind by a buffer that grows.
    let mut bytes = Vec::with_capacity(metadata.len().min(max_bytes) as usize + 1);
    file.take(max_bytes.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    match bytes.len() as u64 > max_bytes {
        false => Ok(bytes),
        true => Err(FileError::TooLarge {
            path: path.to_owned(),
            max_bytes,
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn file(content: &[u8], mode: u32) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), content).unwrap();
        chmod(file.path(), mode);
        file
    }

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_secret_is_read_if_its_owner_alone_writes_it_and_its_group_at_most_reads_it() {
        for mode in [0o400, 0o600, 0o440, 0o640, 0o700, 0o650, 0o641] {
            let file = file(b"key", mode);
            assert_eq!(read_secret(file.path(), 3).unwrap(), b"key", "{mode:o}");
        }
        for (mode, remedy) in [
            (0o644, "chmod o-r "),
            (0o444, "chmod o-r "),
            (0o660, "chmod go-w "),
            (0o620, "chmod go-w "),
            (0o602, "chmod go-w "),
            (0o666, "chmod go-w "),
        ] {
            let file = file(b"key", mode);
            let message = read_secret(file.path(), 3).unwrap_err().to_string();
            let name = file.path().display().to_string();
            assert!(message.starts_with(&name), "{message}");
            assert!(
                message.contains(&format!("mode is {mode:04o}")),
                "{message}"
            );
            assert!(message.contains(&format!("{remedy}{name}")), "{message}");
            // What the message says helps.
            let strip = if remedy.contains("go-w") {
                0o026
            } else {
                0o004
            };
            chmod(file.path(), mode & !strip);
            assert!(read_secret(file.path(), 3).is_ok(), "{mode:o}");
        }
    }

    #[test]
    fn a_file_that_only_decides_may_be_read_by_all_and_not_be_written_by_others() {
        for mode in [0o600, 0o644, 0o664, 0o444] {
            let file = file(b"rules", mode);
            assert_eq!(read_public(file.path(), 5).unwrap(), b"rules", "{mode:o}");
        }
        for mode in [0o646, 0o666, 0o602] {
            let file = file(b"rules", mode);
            let message = read_public(file.path(), 5).unwrap_err().to_string();
            assert!(message.contains("chmod o-w "), "{message}");
        }
    }

    #[test]
    fn a_link_is_followed_and_the_permissions_are_those_of_the_file_behind_it() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        let file = file(b"key", 0o600);
        symlink(file.path(), &link).unwrap();
        assert_eq!(read_secret(&link, 3).unwrap(), b"key");
        chmod(file.path(), 0o604);
        let error = read_secret(&link, 3).unwrap_err();
        assert!(matches!(error, FileError::ReadableByOthers { .. }));
    }

    #[test]
    fn what_is_no_regular_file_or_too_large_or_not_there_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let error = read_secret(folder.path(), 10).unwrap_err();
        assert!(matches!(error, FileError::NotRegular { .. }), "{error}");
        let error = read_public(Path::new("/dev/zero"), 10).unwrap_err();
        assert!(matches!(error, FileError::NotRegular { .. }), "{error}");
        let error = read_public(&folder.path().join("none"), 10).unwrap_err();
        assert!(matches!(error, FileError::Unreadable { .. }), "{error}");

        let file = file(b"12345", 0o600);
        let error = read_secret(file.path(), 4).unwrap_err();
        assert!(matches!(error, FileError::TooLarge { max_bytes: 4, .. }));
        assert!(!error.to_string().contains("1234"));
        assert!(read_secret(file.path(), 5).is_ok());
    }

    #[test]
    fn a_file_that_is_not_text_is_refused_with_the_place_and_without_the_content() {
        let path = Path::new("users");
        let error = text(path, b"anna:x\nb\xc3\xa4n\xff:secret\n".to_vec()).unwrap_err();
        assert!(
            matches!(
                error,
                FileError::NotUtf8 {
                    line: 2,
                    column: 4,
                    ..
                }
            ),
            "{error}"
        );
        assert_eq!(
            error.to_string(),
            "users:2:4: not UTF-8 here; save the file as UTF-8"
        );
        assert_eq!(text(path, b"a".to_vec()).unwrap(), "a");
    }
}
