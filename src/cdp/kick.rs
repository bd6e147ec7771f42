//! Waking a thread out of its poll.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// Wakes a thread out of its poll.
pub(super) struct Kick {
    woken: UnixStream,
    waker: UnixStream,
}

impl Kick {
    pub(super) fn new() -> io::Result<Self> {
        let (woken, waker) = UnixStream::pair()?;
        woken.set_nonblocking(true)?;
        waker.set_nonblocking(true)?;
        Ok(Self { woken, waker })
    }

    pub(super) fn kick(&self) {
        // When it is full, a kick is on its way already.
        let _ = (&self.waker).write(&[0]);
    }

    pub(super) fn clear(&self) {
        let mut bytes = [0; 64];
        while matches!((&self.woken).read(&mut bytes), Ok(64)) {}
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.woken.as_fd()
    }
}
