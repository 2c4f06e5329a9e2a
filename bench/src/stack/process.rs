//! A child process with its output in a file.
//!
//! Always holds: a process never outlives its handle, and neither does what it has started, as long as that stays in the
//! process's group. It is ended without being asked, as by `kill -9`.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};

use super::StackError;

/// How much of the output an error shows.
const SHOWN_LINES: usize = 30;

/// See the module.
#[derive(Debug)]
pub(crate) struct Process {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command`, with both outputs in the file `log`.
    ///
    /// # Errors
    /// [`StackError::Start`], [`StackError::File`].
    pub(crate) fn start(
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
            // A group of its own, which also keeps the terminal's Ctrl-C away from it.
            .process_group(0)
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
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Makes sure that it has not ended.
    ///
    /// # Errors
    /// [`StackError::Ended`].
    pub(crate) fn alive(&mut self) -> Result<(), StackError> {
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
    pub(crate) fn late(&self) -> StackError {
        StackError::Late {
            name: self.name,
            output: self.output_end(),
        }
    }

    /// The last lines that it printed.
    pub(crate) fn output_end(&self) -> String {
        let output = fs::read(&self.log).unwrap_or_default();
        let output = String::from_utf8_lossy(&output);
        let lines: Vec<&str> = output.lines().collect();
        let from = lines.len().saturating_sub(SHOWN_LINES);
        lines.get(from..).unwrap_or_default().join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    /// Waits until `is_so`, at most ten seconds.
    fn wait_until(is_so: impl Fn() -> bool) -> bool {
        let end = Instant::now() + Duration::from_secs(10);
        while !is_so() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        is_so()
    }

    /// Whether a process is there and is more than an entry that nobody has taken note of.
    fn runs(pid: u32) -> bool {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let state = stat
            .rsplit_once(") ")
            .and_then(|(_, rest)| rest.chars().next());
        state.is_some_and(|state| state != 'Z' && state != 'X')
    }

    #[test]
    fn what_a_process_has_started_ends_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 600 & echo $!; wait"]);
        let process = Process::start("a shell", command, &log).unwrap();
        let child = || process.output_end().parse::<u32>().ok();
        assert!(wait_until(|| child().is_some()));
        let (child, shell) = (child().unwrap(), process.id());
        assert!(runs(child) && runs(shell));
        drop(process);
        assert!(wait_until(|| !runs(child) && !runs(shell)));
    }
}
