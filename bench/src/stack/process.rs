//! A child process with its output in a file.
//!
//! Always holds: a process never outlives its handle.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::StackError;

/// How much of the output an error shows.
const SHOWN_LINES: usize = 30;

/// See the module.
#[derive(Debug)]
pub(super) struct Process {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command`, with both outputs in the file `log`.
    ///
    /// # Errors
    /// [`StackError::Start`], [`StackError::File`].
    pub(super) fn start(
        name: &'static str,
        mut command: Command,
        log: &Path,
    ) -> Result<Self, StackError> {
        let unwritable = |source| StackError::File {
            path: log.to_owned(),
            source,
        };
        let output = File::create(log).map_err(unwritable)?;
        let errors = output.try_clone().map_err(unwritable)?;
        let spawned: io::Result<Child> = command
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .spawn();
        let child = spawned.map_err(|source| StackError::Start {
            name,
            program: command.get_program().into(),
            source,
        })?;
        Ok(Self {
            name,
            child,
            log: log.to_owned(),
        })
    }

    /// Its number.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Makes sure that it has not ended.
    ///
    /// # Errors
    /// [`StackError::Ended`].
    pub(super) fn alive(&mut self) -> Result<(), StackError> {
        match self.child.try_wait() {
            Ok(Some(status)) => Err(StackError::Ended {
                name: self.name,
                status,
                output: self.output_end(),
            }),
            _ => Ok(()),
        }
    }

    /// That it does not serve in time.
    pub(super) fn late(&self) -> StackError {
        StackError::Late {
            name: self.name,
            output: self.output_end(),
        }
    }

    /// The last lines that it printed.
    pub(super) fn output_end(&self) -> String {
        let output = fs::read(&self.log).unwrap_or_default();
        let output = String::from_utf8_lossy(&output);
        let lines: Vec<&str> = output.lines().collect();
        let from = lines.len().saturating_sub(SHOWN_LINES);
        lines.get(from..).unwrap_or_default().join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
