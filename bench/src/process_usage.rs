//! Processor time and memory of other processes, from /proc.
//!
//! Always holds: a process is counted with all that it has started and that still run; what has ended is forgotten, so an
//! interval during which a part ended gives less than was used. Memory that several processes share counts for each.

use std::fs;
use std::time::Duration;

use serde::Serialize;

/// One hundredth of a second, on every Linux that there is (USER_HZ).
const TICK: Duration = Duration::from_millis(10);

/// What processes have used since they began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Usage {
    /// Processor time.
    pub(crate) processor: Duration,
    /// Memory that is resident now, in bytes.
    pub(crate) resident: u64,
    /// The sum of the most that each had resident at some time, in bytes.
    pub(crate) peak: u64,
}

/// Of the processes `roots` and all below them; nothing when none of them is there.
pub(crate) fn of_trees(roots: &[u32]) -> Option<Usage> {
    let mut whole: Option<Usage> = None;
    for pid in trees(&parents(), roots) {
        let Some(one) = of_process(pid) else { continue };
        let sum = whole.get_or_insert(Usage {
            processor: Duration::ZERO,
            resident: 0,
            peak: 0,
        });
        sum.processor += one.processor;
        sum.resident += one.resident;
        sum.peak += one.peak;
    }
    whole
}

/// How much memory a process has resident, in bytes.
pub(crate) fn resident_bytes(pid: u32) -> Option<u64> {
    memory(&read(pid, "status")?, "VmRSS:")
}

/// How much processor time a process has used.
pub(crate) fn processor_time(pid: u32) -> Option<Duration> {
    Some(stat(&read(pid, "stat")?)?.processor)
}

fn of_process(pid: u32) -> Option<Usage> {
    let status = read(pid, "status")?;
    Some(Usage {
        processor: processor_time(pid)?,
        resident: memory(&status, "VmRSS:")?,
        peak: memory(&status, "VmHWM:")?,
    })
}

fn read(pid: u32, file: &str) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/{file}")).ok()
}

/// Every process with its parent.
fn parents() -> Vec<(u32, u32)> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, stat(&read(pid, "stat")?)?.parent)))
        .collect()
}

/// `roots` and what is below them, each once.
fn trees(parents: &[(u32, u32)], roots: &[u32]) -> Vec<u32> {
    let mut found = roots.to_vec();
    let mut at = 0;
    while let Some(&parent) = found.get(at) {
        at += 1;
        for &(pid, its_parent) in parents {
            if its_parent == parent && !found.contains(&pid) {
                found.push(pid);
            }
        }
    }
    found
}

#[derive(Debug, PartialEq, Eq)]
struct Stat {
    parent: u32,
    processor: Duration,
}

/// What a file `stat` says.
fn stat(text: &str) -> Option<Stat> {
    // The name stands in parentheses and may hold anything; state, parent, ... follow it, and utime and stime are the 12th
    // and 13th fields behind it.
    let (_, fields) = text.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(1);
    let parent = fields.next()?.parse().ok()?;
    let mut times = fields.skip(9);
    let ticks: u32 = times.next()?.parse::<u32>().ok()? + times.next()?.parse::<u32>().ok()?;
    Some(Stat {
        parent,
        processor: TICK * ticks,
    })
}

/// A line of a file `status` that ends in kB, in bytes.
fn memory(status: &str, key: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1_024)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn the_figures_of_this_process_are_found() {
        let pid = std::process::id();
        assert!(resident_bytes(pid).unwrap() > 100_000);
        let before = processor_time(pid).unwrap();
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(200) {
            std::hint::spin_loop();
        }
        assert!(processor_time(pid).unwrap() > before);
        assert_eq!(resident_bytes(u32::MAX), None);
        let usage = of_trees(&[pid]).unwrap();
        assert!(usage.peak >= usage.resident && usage.processor > before);
        assert_eq!(of_trees(&[u32::MAX]), None);
    }

    #[test]
    fn a_name_with_parentheses_and_spaces_is_no_field() {
        let text = "12 (a) b (c) S 7 12 12 0 -1 4194304 1 2 3 4 150 50 9 9 20 0 1 0 100 1 1";
        assert_eq!(
            stat(text),
            Some(Stat {
                parent: 7,
                processor: Duration::from_secs(2)
            })
        );
        assert_eq!(stat("12 (a) S"), None);
    }

    #[test]
    fn memory_is_given_in_bytes() {
        let status = "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t 1 kB\n";
        assert_eq!(memory(status, "VmHWM:"), Some(2 * 1_024 * 1_024));
        assert_eq!(memory(status, "VmSwap:"), None);
    }

    #[test]
    fn a_tree_is_the_root_and_all_that_came_from_it_and_nobody_twice() {
        let parents = [(1, 0), (2, 1), (3, 2), (4, 1), (5, 3), (6, 4)];
        assert_eq!(trees(&parents, &[2]), [2, 3, 5]);
        assert_eq!(trees(&parents, &[2, 3, 4]), [2, 3, 4, 5, 6]);
        assert_eq!(trees(&parents, &[9]), [9]);
        // Process numbers are used again; a loop must not hang.
        assert_eq!(trees(&[(1, 2), (2, 1)], &[1]), [1, 2]);
    }
}
