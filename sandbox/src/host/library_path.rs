//! Where a connector's shared library is.
//!
//! Always holds: the places are searched in the order of the connectors runtime 0.5.0.

use std::path::{Path, PathBuf};

use thiserror::Error;

/// The system folders that are searched last.
const SYSTEM_FOLDERS: [&str; 6] = [
    "/usr/lib",
    "/usr/lib64",
    "/lib",
    "/lib64",
    "/usr/local/lib",
    "/usr/local/lib64",
];

/// No library was found.
#[derive(Debug, Error)]
#[error("no plugin library at any of: {}", shown(.searched))]
pub(super) struct NotFound {
    searched: Vec<PathBuf>,
}

fn shown(paths: &[PathBuf]) -> String {
    let paths: Vec<_> = paths
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    paths.join(", ")
}

/// Finds the library that `path` of a connector file means: the path itself, and when it is relative its file name in
/// the folder of the running executable, in the working directory, and in the system's library folders. The platform's
/// extension is added when there is none.
///
/// # Errors
/// Lists the places that were searched.
pub(super) fn find(path: &str) -> Result<PathBuf, NotFound> {
    let mut folders = Vec::new();
    if let Ok(executable) = std::env::current_exe()
        && let Some(folder) = executable.parent()
    {
        folders.push(folder.to_owned());
    }
    folders.extend(std::env::current_dir());
    folders.extend(SYSTEM_FOLDERS.map(PathBuf::from));
    find_in(path, &folders)
}

fn find_in(path: &str, folders: &[PathBuf]) -> Result<PathBuf, NotFound> {
    let path = with_extension(path);
    let mut candidates = vec![path.clone()];
    if path.is_relative()
        && let Some(name) = path.file_name()
    {
        candidates.extend(folders.iter().map(|folder| folder.join(name)));
    }
    match candidates.iter().find(|candidate| candidate.exists()) {
        Some(found) => Ok(found.clone()),
        None => Err(NotFound {
            searched: candidates,
        }),
    }
}

fn with_extension(path: &str) -> PathBuf {
    let extension = Path::new(path).extension().and_then(|it| it.to_str());
    match extension {
        Some("so" | "dylib" | "dll") => PathBuf::from(path),
        _ => PathBuf::from(format!("{path}.{}", std::env::consts::DLL_EXTENSION)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(path: &Path) {
        std::fs::write(path, b"").unwrap();
    }

    #[test]
    fn the_path_itself_comes_before_the_folders_and_they_in_their_order() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two, far) = (
            folder.path().join("one"),
            folder.path().join("two"),
            folder.path().join("far"),
        );
        for path in [&one, &two, &far] {
            std::fs::create_dir(path).unwrap();
        }
        let folders = [one.clone(), two.clone()];
        touch(&two.join("plugin.so"));
        assert_eq!(
            find_in("lib/plugin", &folders).unwrap(),
            two.join("plugin.so")
        );
        touch(&one.join("plugin.so"));
        assert_eq!(
            find_in("lib/plugin.so", &folders).unwrap(),
            one.join("plugin.so")
        );
        touch(&far.join("plugin.so"));
        let absolute = far.join("plugin");
        assert_eq!(
            find_in(absolute.to_str().unwrap(), &folders).unwrap(),
            far.join("plugin.so")
        );
    }

    #[test]
    fn an_absolute_path_is_looked_for_nowhere_else() {
        let folder = tempfile::tempdir().unwrap();
        touch(&folder.path().join("plugin.so"));
        let error = find_in("/nowhere/plugin.so", &[folder.path().to_owned()])
            .unwrap_err()
            .to_string();
        assert_eq!(error, "no plugin library at any of: /nowhere/plugin.so");
    }

    #[test]
    fn the_error_lists_every_place_that_was_searched() {
        let error = find_in("plugin", &[PathBuf::from("/nowhere")])
            .unwrap_err()
            .to_string();
        assert!(error.contains("plugin.so, /nowhere/plugin.so"), "{error}");
    }
}
