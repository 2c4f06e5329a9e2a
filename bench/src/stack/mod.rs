//! What is measured, as processes: an Iggy server, and a connector host with the plugin.
//!
//! Always holds: everything that is started here listens on loopback only, on ports that were free, keeps its data in one
//! temporary folder, and is ended, and the folder removed, when its handle is dropped.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::thread;
use std::time::{Duration, Instant};

use iggy::prelude::IggyError;

use crate::interrupt;

pub(crate) mod host;
pub(crate) mod http;
pub(crate) mod ports;
pub(crate) mod process;
pub(crate) mod server;
pub(crate) mod topics;

/// User and password of every server and client here.
pub(crate) const USER: &str = "iggy";
/// See [`USER`].
pub(crate) const PASSWORD: &str = "iggy";

/// The stream of all topics.
pub(crate) const STREAM: &str = "bench";

/// How long a part may take to start.
const START_DEADLINE: Duration = Duration::from_secs(90);
/// How often it is asked whether it has.
const PAUSE: Duration = Duration::from_millis(20);

/// The programs that are started.
#[derive(Debug, Clone)]
pub(crate) struct Programs {
    /// The sandbox.
    pub(crate) sandbox: PathBuf,
    /// The plugin.
    pub(crate) plugin: PathBuf,
    /// A real Iggy server.
    pub(crate) iggy_server: Option<PathBuf>,
    /// The official connectors runtime.
    pub(crate) iggy_connectors: Option<PathBuf>,
}

impl Programs {
    /// The server and the host, for the table.
    pub(crate) fn describe(&self) -> String {
        match (&self.iggy_server, &self.iggy_connectors) {
            (None, _) => "sandbox",
            (Some(_), None) => "Iggy, sandbox host",
            (Some(_), Some(_)) => "Iggy, official runtime",
        }
        .to_owned()
    }
}

/// Why a part does not run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StackError {
    /// The program cannot be started.
    #[error("cannot start {} ({}): {source}", name, program.display())]
    Start {
        /// What it is.
        name: &'static str,
        /// Its file.
        program: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// It ended by itself.
    #[error("{name} ended with {status}; the end of what it printed:\n{output}")]
    Ended {
        /// What it is.
        name: &'static str,
        /// How.
        status: ExitStatus,
        /// The end of its output.
        output: String,
    },
    /// It does not serve in time.
    #[error(
        "{name} does not serve after {START_DEADLINE:?}; the end of what it printed:\n{output}"
    )]
    Late {
        /// What it is.
        name: &'static str,
        /// The end of its output.
        output: String,
    },
    /// A connector has failed.
    #[error(
        "the connector {key} is {status} and not running; the end of what the host printed:\n{output}"
    )]
    Connector {
        /// The connector's key.
        key: String,
        /// Its status.
        status: String,
        /// The end of the host's output.
        output: String,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// No free port.
    #[error("no free loopback port between {} and {}", ports::FIRST, ports::LAST)]
    NoPort,
    /// Iggy's answer to a request.
    #[error("Iggy refuses to {what}: {source}")]
    Iggy {
        /// What was asked.
        what: String,
        /// The answer.
        source: IggyError,
    },
    /// Iggy's HTTP API.
    #[error("Iggy's HTTP API does not {what}: {reason}")]
    Http {
        /// What was asked.
        what: String,
        /// What came instead.
        reason: String,
    },
    /// The user wants this to stop.
    #[error("interrupted")]
    Interrupted,
}

/// Asks again and again until there is an answer; nothing when there is none in time.
///
/// # Errors
/// What `ask` says, and [`StackError::Interrupted`].
pub(crate) fn wait<T>(
    mut ask: impl FnMut() -> Result<Option<T>, StackError>,
) -> Result<Option<T>, StackError> {
    let end = Instant::now() + START_DEADLINE;
    loop {
        if let Some(answer) = ask()? {
            return Ok(Some(answer));
        }
        if interrupt::asked() {
            return Err(StackError::Interrupted);
        }
        if Instant::now() > end {
            return Ok(None);
        }
        thread::sleep(PAUSE);
    }
}

/// Writes a file.
///
/// # Errors
/// [`StackError::File`].
pub(crate) fn write(path: &Path, text: &str) -> Result<(), StackError> {
    std::fs::write(path, text).map_err(|source| StackError::File {
        path: path.to_owned(),
        source,
    })
}

/// Makes a folder, and those above it.
///
/// # Errors
/// [`StackError::File`].
pub(crate) fn make_folder(path: &Path) -> Result<(), StackError> {
    std::fs::create_dir_all(path).map_err(|source| StackError::File {
        path: path.to_owned(),
        source,
    })
}
