//! Which processes belong to a folder: by what they were started with, where they stand, and what they hold open.
//!
//! Daemon and keeper start with a cleared environment and are not dumpable, so an unprivileged test can only read
//! their command lines; as root (as CI runs) their open files tell too. Without `/proc` nothing is found.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A process that runs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Process {
    pub pid: i32,
    pub command: String,
    /// Tells it from a later process of the same number.
    started: String,
}

impl Process {
    /// Looks at one process; `None` when it is gone or only waits to be reaped.
    pub fn find(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name, in parentheses, may hold anything: what counts comes after it.
        let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        if matches!(*fields.first()?, "Z" | "X") {
            return None;
        }
        Some(Self { pid, command: command_line(pid), started: (*fields.get(19)?).to_owned() })
    }

    pub fn is_alive(&self) -> bool {
        Self::find(self.pid).is_some_and(|now| now.started == self.started)
    }

    /// The memory that it holds now, in MiB.
    pub fn resident_mib(&self) -> u64 {
        self.status_mib("VmRSS:")
    }

    /// The most memory that it has held at once, in MiB.
    pub fn peak_mib(&self) -> u64 {
        self.status_mib("VmHWM:")
    }

    fn status_mib(&self, name: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) / 1024
    }

    /// Sends a signal; a process that is gone is no fault.
    pub fn signal(&self, signal: Signal) {
        if self.is_alive() {
            // It may end between the look and the signal.
            let _ = kill(Pid::from_raw(self.pid), signal);
        }
    }
}

/// Every process but this one that has to do with `folder`.
pub fn belonging_to(folder: &Path) -> Vec<Process> {
    let own = std::process::id() as i32;
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|&pid: &i32| pid != own && belongs(pid, folder))
        .filter_map(Process::find)
        .collect()
}

fn belongs(pid: i32, folder: &Path) -> bool {
    let of = PathBuf::from(format!("/proc/{pid}"));
    if is_unborn(&of) {
        return false;
    }
    let named = |file: &str| fs::read(of.join(file)).is_ok_and(|text| contains(&text, folder.as_os_str().as_bytes()));
    let stands = || fs::read_link(of.join("cwd")).is_ok_and(|cwd| cwd.starts_with(folder));
    named("cmdline") || named("environ") || stands() || holds(&of, folder)
}

/// Whether it is a child of this test program that does not run its own program yet. Until then it holds every file that
/// any thread of the test had open when it was forked, so it seems to belong to everyone.
fn is_unborn(of: &Path) -> bool {
    let own = fs::read_link("/proc/self/exe");
    fs::read_link(of.join("exe")).is_ok_and(|program| own.is_ok_and(|own| program == own))
}

/// Whether it has a file below `folder` open.
fn holds(of: &Path, folder: &Path) -> bool {
    let files = fs::read_dir(of.join("fd")).into_iter().flatten().flatten();
    files.filter_map(|file| fs::read_link(file.path()).ok()).any(|file| file.starts_with(folder))
}

fn command_line(pid: i32) -> String {
    let text = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&text).replace('\0', " ")
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}
