//! What the figures depend on besides the subjects: the machine, its kernel, the file system of the data, and what else
//! the machine does meanwhile.
//!
//! Always holds: what cannot be found out is `unknown`, never guessed.

use std::fs;
use std::path::Path;
use std::thread;

use serde::Serialize;

/// See the module.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Machine {
    /// Cores that this process may use.
    pub(crate) cores: usize,
    /// The processor, as the kernel names it.
    pub(crate) processor: String,
    /// The kernel's release.
    pub(crate) kernel: String,
    /// The kind of file system in which Iggy's data is.
    pub(crate) file_system: String,
    /// The load averages before the run.
    pub(crate) load_before: String,
    /// The load averages after it, which include the run itself.
    pub(crate) load_after: String,
}

impl Machine {
    /// This machine, whose Iggy will have its data below `folder`.
    pub(crate) fn here(folder: &Path) -> Self {
        let first_line = |path| fs::read_to_string(path).ok().map(|text| line(&text));
        Self {
            cores: thread::available_parallelism().map_or(0, usize::from),
            processor: fs::read_to_string("/proc/cpuinfo")
                .ok()
                .and_then(|text| model_name(&text))
                .unwrap_or_else(unknown),
            kernel: first_line("/proc/sys/kernel/osrelease").unwrap_or_else(unknown),
            file_system: fs::read_to_string("/proc/mounts")
                .ok()
                .and_then(|mounts| file_system(&mounts, folder))
                .unwrap_or_else(unknown),
            load_before: load(),
            load_after: String::new(),
        }
    }

    /// What stands below the tables of a run that ended on `date`.
    pub(crate) fn line(&self, date: &str) -> String {
        format!(
            "{date}, {} cores, {}, Linux {}, data on {}; load {} before, {} after",
            self.cores,
            self.processor,
            self.kernel,
            self.file_system,
            self.load_before,
            self.load_after,
        )
    }
}

/// The load averages of the last 1, 5 and 15 minutes.
pub(crate) fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let averages: Vec<&str> = text.split_whitespace().take(3).collect();
    match averages.is_empty() {
        true => unknown(),
        false => averages.join(" "),
    }
}

fn unknown() -> String {
    "unknown".to_owned()
}

fn line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

fn model_name(cpuinfo: &str) -> Option<String> {
    let (_, name) = cpuinfo.lines().find_map(|line| {
        line.split_once(':')
            .filter(|(key, _)| key.trim() == "model name")
    })?;
    Some(name.trim().to_owned())
}

/// The kind of the file system with the longest mount point above `folder`, which must be absolute.
fn file_system(mounts: &str, folder: &Path) -> Option<String> {
    mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split_whitespace().skip(1);
            let (point, kind) = (fields.next()?, fields.next()?);
            folder.starts_with(point).then_some((point.len(), kind))
        })
        // Of two at the same place the later one covers the earlier.
        .max_by_key(|&(length, _)| length)
        .map(|(_, kind)| kind.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_system_is_that_of_the_longest_mount_point_above_the_folder() {
        let mounts =
            "/dev/vda / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\nnone /tmp/a overlay rw 0 0\n";
        let kind = |folder| file_system(mounts, Path::new(folder));
        assert_eq!(kind("/home/me").as_deref(), Some("ext4"));
        assert_eq!(kind("/tmp/data").as_deref(), Some("tmpfs"));
        assert_eq!(kind("/tmp/a/b").as_deref(), Some("overlay"));
        assert_eq!(kind("/tmp/ab").as_deref(), Some("tmpfs"));
        assert_eq!(file_system("", Path::new("/")), None);
    }

    #[test]
    fn the_processor_is_the_kernels_model_name() {
        let cpuinfo = "processor\t: 0\nmodel name\t: Some CPU @ 2: fast\nflags\t: a b\n";
        assert_eq!(model_name(cpuinfo).as_deref(), Some("Some CPU @ 2: fast"));
        assert_eq!(model_name("processor\t: 0\n"), None);
    }
}
