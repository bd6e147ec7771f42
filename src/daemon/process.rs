//! What daemon and keeper do to themselves before they learn a secret: own files only, no inherited descriptor, not readable by others.

use std::io;
use std::os::fd::RawFd;
use std::sync::mpsc::Sender;
use std::thread;

use nix::sys::signal::{SigHandler, SigSet, Signal, signal};
use nix::sys::stat::{Mode, umask};

/// Signals that end a daemon in an orderly way.
const ENDING: [Signal; 3] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];

/// What a daemon does first, while there is one thread.
pub(super) fn prepare() -> io::Result<()> {
    umask(Mode::from_bits_truncate(0o077));
    withdraw()?;
    std::env::set_current_dir("/")?;
    block_signals();
    refuse_instead_of_killing()
}

/// A file over the limit (`ulimit -f`) is then an error like a full disk, and not the daemon's death.
fn refuse_instead_of_killing() -> io::Result<()> {
    // SAFETY: ignoring installs no handler.
    unsafe { signal(Signal::SIGXFSZ, SigHandler::SigIgn) }?;
    Ok(())
}

/// Lets go of every descriptor but the standard three, and cannot be looked into from here on.
pub(super) fn withdraw() -> io::Result<()> {
    close_inherited(3);
    make_undumpable()
}

/// Closes every descriptor from `first` on: what a caller left open is none of ours to hold.
fn close_inherited(first: RawFd) {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: one thread, and nothing of ours is open beyond the standard three.
        let closed = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) };
        if closed == 0 {
            return;
        }
    }
    let limit = nix::unistd::sysconf(nix::unistd::SysconfVar::OPEN_MAX).ok().flatten().unwrap_or(1024);
    for fd in first..limit.min(65_536) as RawFd {
        // SAFETY: as above; a number that is not open is refused.
        unsafe { libc::close(fd) };
    }
}

/// From here on other processes of the same user are refused our memory, environment and descriptors.
fn make_undumpable() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    nix::sys::prctl::set_dumpable(false)?;
    Ok(())
}

/// Lets go of the starter: it waits for the end of these.
pub(super) fn close_standard() {
    // Without /dev/null they stay open, and a starter that waits for their end waits for ours.
    if let Ok(null) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null") {
        let _ = nix::unistd::dup2_stdin(&null);
        let _ = nix::unistd::dup2_stdout(&null);
        let _ = nix::unistd::dup2_stderr(&null);
    }
}

fn ending_signals() -> SigSet {
    ENDING.into_iter().collect()
}

/// Blocks the ending signals for this thread and all that it starts.
fn block_signals() {
    ending_signals().thread_block().expect("a valid set of signals");
}

/// Sends `news` for every ending signal, from a thread of its own.
pub(super) fn tell_signals<T: Send + 'static>(to: Sender<T>, news: fn() -> T) -> io::Result<()> {
    let wait = move || {
        while ending_signals().wait().is_ok() {
            if to.send(news()).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("signals".to_owned()).stack_size(64 << 10).spawn(wait).map(drop)
}
