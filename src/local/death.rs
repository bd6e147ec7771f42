//! Why a Chromium ended by itself, in words.

use std::fmt;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::Signal;

use super::log::Tail;

/// How long the last lines are waited for: crash handlers may hold the log open.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Chromium's exit code for a profile that another one has locked.
const PROFILE_IN_USE: i32 = 21;

/// What a dead Chromium left to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Death {
    end: End,
    /// The last lines of its log that tell something.
    pub last_lines: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Exited(i32),
    Killed(i32),
}

impl Death {
    /// Looks whether `leader`, a child of ours, has ended; it stays to be waited for.
    pub(super) fn of(leader: i32, tail: Option<&Tail>) -> Option<Self> {
        let end = end_of(leader)?;
        let last_lines = tail.map(|tail| tail.lines(LAST_WORDS)).unwrap_or_default();
        Some(Self { end, last_lines })
    }

    /// What to type next, where the end tells.
    pub fn hint(&self) -> Option<&'static str> {
        let says = |text: &str| self.last_lines.iter().any(|line| line.contains(text));
        if self.end == End::Exited(PROFILE_IN_USE) {
            return Some(
                "close the browser that uses this profile, or give another GHOST_BROWSER_PROFILE; \
                 where none does, remove `SingletonLock` from it",
            );
        }
        if says("No usable sandbox") || says("Failed to move to new namespace") || says("without --no-sandbox") {
            return Some("this machine gives Chromium no sandbox: GHOST_BROWSER_CHROMIUM_ARGS=--no-sandbox");
        }
        if says("Missing X server") || says("platform failed to initialize") {
            return Some("there is no display: unset GHOST_BROWSER_HEADED");
        }
        says("error while loading shared libraries").then_some("install the library that it names")
    }
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.end {
            End::Exited(PROFILE_IN_USE) => f.write_str("chromium ended with exit code 21: its profile is in use")?,
            End::Exited(code) => write!(f, "chromium ended with exit code {code}")?,
            End::Killed(number) => match Signal::try_from(number) {
                Ok(signal) => write!(f, "chromium was ended by {signal}")?,
                Err(_) => write!(f, "chromium was ended by signal {number}")?,
            },
        }
        self.last_lines.iter().try_for_each(|line| write!(f, "\n  {line}"))
    }
}

fn end_of(leader: i32) -> Option<End> {
    // SAFETY: all bytes zero is a valid `siginfo_t`.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: `info` is ours and lives through the call.
    let asked = unsafe { libc::waitid(libc::P_PID, leader as libc::id_t, &mut info, options) };
    Errno::result(asked).ok()?;
    // SAFETY: `waitid` filled these fields, or left them zero for a child that lives.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    (pid == leader).then_some(match info.si_code {
        libc::CLD_EXITED => End::Exited(status),
        _ => End::Killed(status),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn death(end: End, line: &str) -> Death {
        Death { end, last_lines: vec![line.to_owned()] }
    }

    #[test]
    fn each_known_end_says_what_to_type() {
        for (end, line, hint) in [
            (End::Exited(21), "", "GHOST_BROWSER_PROFILE"),
            (End::Killed(5), "[1:1:FATAL:zygote] No usable sandbox! If", "ARGS=--no-sandbox"),
            (End::Exited(1), "Missing X server or $DISPLAY", "GHOST_BROWSER_HEADED"),
            (End::Exited(127), "error while loading shared libraries: libx.so", "library"),
        ] {
            assert!(death(end, line).hint().unwrap().contains(hint), "{line}");
        }
        assert_eq!(death(End::Exited(1), "other").hint(), None);
    }

    #[test]
    fn it_names_the_signal_and_the_last_lines() {
        let text = death(End::Killed(11), "last words").to_string();

        assert_eq!(text, "chromium was ended by SIGSEGV\n  last words");
    }
}
