//! Where the brokers' programs are, and which versions they have.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The program that `variable` names, or one of `names` in PATH or where servers are installed.
pub(super) fn find_program(variable: &str, names: &[&str]) -> Result<PathBuf, String> {
    if let Some(path) = env::var_os(variable).filter(|path| !path.is_empty()) {
        let path = PathBuf::from(path);
        return std::fs::canonicalize(&path)
            .map_err(|_| format!("{} of {variable} is missing", path.display()));
    }
    let path = env::var_os("PATH").unwrap_or_default();
    // Users' PATHs often lack these.
    let more = ["/usr/sbin", "/usr/local/sbin", "/usr/local/bin"].map(PathBuf::from);
    let folders: Vec<PathBuf> = env::split_paths(&path).chain(more).collect();
    names
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
        .find(|file| file.is_file())
        .ok_or_else(|| {
            let name = names.last().unwrap_or(&"");
            format!("without {name}: it is neither in PATH nor in {variable}")
        })
}

/// The first version number in what a program prints when it is called with `argument`.
pub(super) fn version(program: &Path, argument: &str) -> String {
    let output = Command::new(program).arg(argument).output();
    output
        .ok()
        .and_then(|output| {
            first_version(&String::from_utf8_lossy(&output.stdout))
                .or_else(|| first_version(&String::from_utf8_lossy(&output.stderr)))
        })
        .unwrap_or_else(|| "unknown".to_owned())
}

/// The first word that looks like a version.
pub(super) fn first_version(text: &str) -> Option<String> {
    text.split(|c: char| c.is_whitespace() || c == ',')
        .map(|word| word.trim_start_matches('v'))
        .find(|word| {
            word.starts_with(|c: char| c.is_ascii_digit()) && word.matches('.').count() >= 1
        })
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_the_first_word_that_begins_with_a_digit_and_has_a_dot() {
        for (text, version) in [
            ("nats-server: v2.9.10\n", Some("2.9.10")),
            ("mosquitto version 2.0.11\n\nUsage: 7", Some("2.0.11")),
            ("iggy-server 0.9.0-edge.5 (x)", Some("0.9.0-edge.5")),
            ("no version", None),
        ] {
            assert_eq!(first_version(text).as_deref(), version);
        }
    }

    #[test]
    fn a_program_that_is_nowhere_is_said_with_the_variable_that_may_name_it() {
        assert_eq!(
            find_program("BENCH_NO_SUCH_VARIABLE", &["bench-no-such-program"]),
            Err("without bench-no-such-program: it is neither in PATH nor in BENCH_NO_SUCH_VARIABLE".to_owned())
        );
        assert!(find_program("BENCH_NO_SUCH_VARIABLE", &["sh"]).is_ok());
    }
}
