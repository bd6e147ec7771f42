//! When a browser is gone: no process of its group is alive, and none of its crash handlers.
//!
//! Asking the kernel with a signal would not do: a group counts as there while it holds a zombie, and
//! two crash handlers leave the group on purpose. So the processes are looked at.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use super::processes::{self, Process};

/// Longest wait for one process before all are looked at anew: its number may be another's by then.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A browser's process group. Its numbers may be used again once all of it is gone; session and start tell them apart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Group {
    /// The first process, whose number is the group's.
    pub(super) leader: i32,
    session: i32,
    started: u64,
}

impl Group {
    /// The group that `leader` leads.
    ///
    /// # Errors
    /// When there is no such process.
    pub(super) fn led_by(leader: i32) -> io::Result<Self> {
        processes::one(leader).map(|process| Self::of(&process))
    }

    /// The group whose leader was started with `marker` among its arguments.
    pub(super) fn with_argument(marker: &str) -> io::Result<Option<Self>> {
        let leaders = processes::all()?.into_iter().filter(|process| process.pid == process.group);
        let ours = leaders.into_iter().find(|leader| {
            let arguments = processes::arguments(leader.pid);
            arguments.split(|&byte| byte == 0).any(|argument| argument == marker.as_bytes())
        });
        Ok(ours.as_ref().map(Self::of))
    }

    fn of(leader: &Process) -> Self {
        Self { leader: leader.pid, session: leader.session, started: leader.started }
    }

    fn has(&self, process: &Process) -> bool {
        let is_other_leader = process.pid == self.leader && process.started != self.started;
        process.group == self.leader
            && process.session == self.session
            && process.started >= self.started
            && !is_other_leader
    }
}

/// What can still be alive of one browser.
pub(super) struct Remains<'a> {
    pub(super) group: Option<&'a Group>,
    pub(super) folder: &'a Path,
}

impl Remains<'_> {
    /// The processes that are alive.
    ///
    /// # Errors
    /// When the system does not list its processes.
    pub(super) fn alive(&self) -> io::Result<Vec<Process>> {
        let all = processes::all()?.into_iter().filter(|process| !process.is_zombie);
        Ok(all.filter(|process| self.is_member(process) || self.is_crash_handler(process)).collect())
    }

    /// Waits until none is alive; false if some is at `deadline`.
    ///
    /// # Errors
    /// See [`Remains::alive`].
    pub(super) fn are_gone_by(&self, deadline: Instant) -> io::Result<bool> {
        loop {
            let alive = self.alive()?;
            let Some(first) = alive.first() else {
                return Ok(true);
            };
            let now = Instant::now();
            if now >= deadline {
                return Ok(false);
            }
            wait_for_end(first.pid, (deadline - now).min(LOOK_AGAIN));
        }
    }

    /// Signals the group, so that no process born meanwhile is missed, and each crash handler.
    ///
    /// # Errors
    /// See [`Remains::alive`].
    pub(super) fn signal(&self, signal: Signal) -> io::Result<()> {
        let alive = self.alive()?;
        let (members, handlers): (Vec<_>, Vec<_>) = alive.into_iter().partition(|process| self.is_member(process));
        // A refusal or a process that ended meanwhile: what is alive afterwards tells.
        if let (Some(group), false) = (self.group, members.is_empty()) {
            let _ = killpg(Pid::from_raw(group.leader), signal);
        }
        for handler in handlers {
            let _ = kill(Pid::from_raw(handler.pid), signal);
        }
        Ok(())
    }

    fn is_member(&self, process: &Process) -> bool {
        self.group.is_some_and(|group| group.has(process))
    }

    /// `chrome_crashpad_handler` and its brands: they keep their database below our folder, and say so.
    fn is_crash_handler(&self, process: &Process) -> bool {
        let folder = self.folder.as_os_str().as_encoded_bytes();
        process.name.contains("crashpad")
            && processes::arguments(process.pid)
                .windows(folder.len() + 1)
                .any(|text| text[..folder.len()] == *folder && text[folder.len()] == b'/')
    }
}

/// Waits until the process ended, at most for `longest`.
#[cfg(target_os = "linux")]
pub(super) fn wait_for_end(pid: i32, longest: Duration) {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use std::os::fd::AsFd;

    match open_process(pid) {
        Ok(process) => {
            let mut ended = [PollFd::new(process.as_fd(), PollFlags::POLLIN)];
            let longest = PollTimeout::try_from(longest).unwrap_or(PollTimeout::MAX);
            // Interrupted or not, the caller looks again.
            let _ = poll(&mut ended, longest);
        }
        Err(Errno::ESRCH) => {}
        // Kernels before 5.3.
        Err(_) => look_again_soon(longest),
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn wait_for_end(_pid: i32, longest: Duration) {
    look_again_soon(longest);
}

/// Where the system cannot wait for the end of a process that is not our child.
fn look_again_soon(longest: Duration) {
    std::thread::sleep(longest.min(Duration::from_millis(20)));
}

#[cfg(target_os = "linux")]
fn open_process(pid: i32) -> Result<std::os::fd::OwnedFd, Errno> {
    use std::os::fd::{FromRawFd, OwnedFd};

    // SAFETY: two integers in, a new descriptor (close-on-exec by definition) or -1 out.
    let opened = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let descriptor = Errno::result(opened)?;
    // SAFETY: the kernel just made it, and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as i32) })
}
