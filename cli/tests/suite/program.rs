//! Runs the built program in a folder of its own.
//!
//! What always holds: nothing of the environment of the tests reaches the program but what a test gives it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// The map that the design of the gateway was explained with.
pub(crate) const SEED_MAP: &str = r"default_stream = 'sensors'
default_topic  = 'messages_default'

[[rule]]
mqtt_topic    = 'building/(\w+)/room/(\d+)/.*'
stream        = 'building_$1'
topic         = 'telemetry'
partition_key = 'room_$2'

[[rule]]
mqtt_topic    = 'sensors/([^/]+)/data'
stream        = 'sensors'
topic         = 'sensor_data'
partition_key = 'sensor_$1'
";

/// A folder with files, in which the program runs.
pub(crate) struct Folder {
    folder: TempDir,
    variables: Vec<(OsString, OsString)>,
}

/// What the program did.
#[derive(Debug)]
pub(crate) struct Ran {
    /// The exit code.
    pub(crate) code: i32,
    /// Standard output.
    pub(crate) stdout: String,
    /// Standard error.
    pub(crate) stderr: String,
}

impl Folder {
    /// An empty one.
    pub(crate) fn new() -> Self {
        Self {
            folder: TempDir::new().unwrap(),
            variables: Vec::new(),
        }
    }

    /// One with the map `topic-map.toml`.
    pub(crate) fn with_map(map: &str) -> Self {
        Self::new().file("topic-map.toml", map)
    }

    /// Adds a file, and its folder if need be.
    pub(crate) fn file(self, name: &str, content: impl AsRef<[u8]>) -> Self {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self
    }

    /// Adds a file that only its owner may read.
    pub(crate) fn secret(self, name: &str, content: impl AsRef<[u8]>) -> Self {
        use std::os::unix::fs::PermissionsExt;
        let folder = self.file(name, content);
        let mode = fs::Permissions::from_mode(0o600);
        fs::set_permissions(folder.path().join(name), mode).unwrap();
        folder
    }

    /// Adds a variable to the program's environment.
    pub(crate) fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.into(), value.into()));
        self
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The program with these arguments, not started.
    pub(crate) fn command<S: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = S>,
    ) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mqtt-gateway"));
        command
            .args(arguments)
            .current_dir(self.path())
            .env_clear()
            .envs(self.variables.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs the program.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Ran {
        self.command(arguments).output().unwrap().into()
    }

    /// Runs the program with that text as its standard input.
    pub(crate) fn run_with<S: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = S>,
        input: impl Into<Vec<u8>>,
    ) -> Ran {
        let mut command = self.command(arguments);
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.into();
        // Beside reading, since both sides may have to wait for each other.
        let writing = std::thread::spawn(move || stdin.write_all(&input));
        let ran = child.wait_with_output().unwrap().into();
        let _ = writing.join().unwrap();
        ran
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().expect("ended by a signal"),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Ran {
    /// Checks the exit code, and that a panic is not the reason of it.
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:#?}");
        assert!(!self.stderr.contains("panicked"), "{self:#?}");
        self
    }

    /// Checks that standard output contains each of the texts.
    #[track_caller]
    pub(crate) fn prints<const N: usize>(self, texts: [&str; N]) -> Self {
        for text in texts {
            assert!(self.stdout.contains(text), "no {text:?} in {self:#?}");
        }
        self
    }

    /// Checks that standard error contains each of the texts, and standard output nothing.
    #[track_caller]
    pub(crate) fn complains<const N: usize>(self, texts: [&str; N]) -> Self {
        assert_eq!(self.stdout, "");
        for text in texts {
            assert!(self.stderr.contains(text), "no {text:?} in {self:#?}");
        }
        self
    }

    /// Standard output as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }

    /// The text after a label, with the lines that belong to it.
    #[track_caller]
    pub(crate) fn labelled(&self, label: &str) -> String {
        let mut lines = self.stdout.lines().skip_while(|line| {
            line.strip_prefix("  ")
                .is_none_or(|line| !line.starts_with(&format!("{label} ")))
        });
        let Some(first) = lines.next() else {
            panic!("no {label:?} in {self:#?}");
        };
        let rest = lines.take_while(|line| line.starts_with("     "));
        let texts = std::iter::once(first).chain(rest).map(|line| &line[14..]);
        texts.collect::<Vec<_>>().join("\n")
    }
}
