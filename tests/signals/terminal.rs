//! A terminal of the test's own.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::openpty;

use crate::support::PATIENCE;

/// The test's end of a terminal, and the end that a command gets.
pub(crate) struct Terminal {
    master: File,
    slave: OwnedFd,
    seen: String,
}

/// A command that runs in it.
pub(crate) struct Call(Child);

impl Terminal {
    pub(crate) fn open() -> Self {
        let pair = openpty(None, None).expect("open a terminal");
        // A copy of the master in some child would keep the terminal open.
        for end in [&pair.master, &pair.slave] {
            fcntl(end, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).expect("close it on exec");
        }
        Self { master: File::from(pair.master), slave: pair.slave, seen: String::new() }
    }

    /// Starts `command` as the leader of the terminal's session, with the terminal as its three standard files.
    pub(crate) fn run(&self, mut command: Command) -> Call {
        let end = || self.slave.try_clone().expect("the terminal again");
        command.stdin(end()).stdout(end()).stderr(end());
        // SAFETY: system calls only, between fork and exec.
        unsafe {
            command.pre_exec(|| {
                nix::unistd::setsid()?;
                match nix::libc::ioctl(0, nix::libc::TIOCSCTTY as _, 0) {
                    -1 => Err(std::io::Error::last_os_error()),
                    _ => Ok(()),
                }
            });
        }
        Call(command.spawn().expect("start the binary"))
    }

    pub(crate) fn types(&mut self, bytes: &[u8]) {
        self.master.write_all(bytes).expect("type into the terminal");
    }

    /// Waits until `text` has been shown.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, text: &str) {
        let mut buffer = [0; 4096];
        while !self.seen.contains(text) {
            let mut shown = [PollFd::new(self.master.as_fd(), PollFlags::POLLIN)];
            let is_shown = poll(&mut shown, PollTimeout::try_from(PATIENCE).expect("a short time"));
            assert_eq!(is_shown, Ok(1), "waited in vain for {text:?}: {:?}", self.seen);
            let length = self.master.read(&mut buffer).expect("read the terminal");
            self.seen.push_str(&String::from_utf8_lossy(&buffer[..length]));
        }
    }

    /// Closes it as a window is closed: the kernel hangs up on whoever is in it.
    pub(crate) fn close(self) {}
}

impl Call {
    /// Waits for its end; `None` when a signal ended it.
    #[track_caller]
    pub(crate) fn exit_code(mut self) -> Option<i32> {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.0.try_wait().expect("our own child") {
                return status.code();
            }
            assert!(Instant::now() < end, "the call still runs");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        // It has ended, unless the test failed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
