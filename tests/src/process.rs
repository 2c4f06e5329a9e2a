//! A child process with its output in a file.
//!
//! Always holds: a process never outlives its handle, and when a test fails the end of each process's output is printed.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::wait;

/// How much of a process's output is shown when a test fails.
const SHOWN_LINES: usize = 80;

/// A running or ended child process.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command`, with standard output and standard error appended to the file `log`.
    ///
    /// # Panics
    /// When the program cannot be started.
    pub fn start(name: &str, mut command: Command, log: &Path) -> Self {
        let open = || {
            OpenOptions::new()
                .create(true)
                .append(true)
                .open(log)
                .unwrap_or_else(|error| panic!("cannot write {}: {error}", log.display()))
        };
        let child = command
            .stdin(Stdio::null())
            .stdout(open())
            .stderr(open())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {name} ({command:?}): {error}"));
        Self {
            name: name.to_owned(),
            child,
            log: log.to_owned(),
        }
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// How much memory the process has resident, in bytes.
    ///
    /// # Panics
    /// When the process has ended.
    pub fn resident_bytes(&self) -> u64 {
        self.memory("VmRSS:")
    }

    /// The most memory that the process has had resident, in bytes.
    ///
    /// # Panics
    /// When the process has ended.
    pub fn peak_resident_bytes(&self) -> u64 {
        self.memory("VmHWM:")
    }

    fn memory(&self, kind: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap_or_default();
        status
            .lines()
            .find_map(|line| line.strip_prefix(kind))
            .and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok())
            .map(|kilobytes| kilobytes * 1_024)
            .unwrap_or_else(|| panic!("{} has no {kind} {status:?}", self.name))
    }

    /// How many file descriptors the process has open.
    ///
    /// # Panics
    /// When the process has ended.
    pub fn descriptors(&self) -> usize {
        self.entries("fd")
    }

    /// How many threads the process has.
    ///
    /// # Panics
    /// When the process has ended.
    pub fn threads(&self) -> usize {
        self.entries("task")
    }

    fn entries(&self, folder: &str) -> usize {
        let folder = format!("/proc/{}/{folder}", self.id());
        fs::read_dir(&folder)
            .unwrap_or_else(|error| panic!("cannot read {folder} of {}: {error}", self.name))
            .count()
    }

    /// Everything that this process, and earlier ones with the same log file, have printed, without terminal colours.
    pub fn output(&self) -> String {
        plain(&String::from_utf8_lossy(&self.raw_output()))
    }

    /// The same, byte for byte.
    pub fn raw_output(&self) -> Vec<u8> {
        // A device may have no end.
        let is_file = fs::metadata(&self.log).is_ok_and(|metadata| metadata.is_file());
        let read = is_file.then(|| fs::read(&self.log).ok()).flatten();
        read.unwrap_or_default()
    }

    /// How long the output is now, for [`Process::output_since`].
    pub fn mark(&self) -> usize {
        self.output().len()
    }

    /// What was printed since `mark`.
    pub fn output_since(&self, mark: usize) -> String {
        self.output().split_off(mark)
    }

    /// The exit status, if the process has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Ends the process with SIGKILL and waits until it is gone. A process that has ended already is left alone.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends SIGHUP.
    ///
    /// # Panics
    /// When the process is gone.
    pub fn hang_up(&self) {
        self.signal(Signal::HUP);
    }

    /// From now on the process does nothing, and its sockets stay as they are.
    ///
    /// # Panics
    /// When the process is gone.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets a frozen process go on.
    ///
    /// # Panics
    /// When the process is gone.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(id.expect("a process"), signal).expect("the process runs");
    }

    /// Asks the process to end with SIGTERM and waits for it.
    ///
    /// # Panics
    /// When it has not ended by `deadline`.
    pub fn terminate(&mut self, deadline: Duration) -> ExitStatus {
        if let Some(id) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(id, Signal::TERM);
        }
        let name = self.name.clone();
        wait::value(&format!("{name} ends after SIGTERM"), deadline, || {
            self.ended()
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if thread::panicking() {
            let output = self.output();
            let lines: Vec<&str> = output.lines().collect();
            let first = lines.len().saturating_sub(SHOWN_LINES);
            println!(
                "---- the end of what {} printed ----\n{}\n----",
                self.name,
                lines[first..].join("\n")
            );
        }
    }
}

/// `text` without terminal escape sequences.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if character == '\u{1b}' {
            // A colour sequence ends with its first letter.
            for escaped in characters.by_ref() {
                if escaped.is_ascii_alphabetic() {
                    break;
                }
            }
        } else {
            plain.push(character);
        }
    }
    plain
}
