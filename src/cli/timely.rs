//! Reading what may never come: a pipe whose other end says nothing is given up at a deadline.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// A reader that fails with `TimedOut` once its deadline has passed.
pub(super) struct Timely<R> {
    pub(super) inner: R,
    /// `None`: it waits for as long as it takes.
    pub(super) deadline: Option<Instant>,
}

impl<R: Read + AsFd> Read for Timely<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            self.wait()?;
            match self.inner.read(into) {
                // Another reader of the same pipe was faster.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
        }
    }
}

impl<R: AsFd> Timely<R> {
    /// Waits until there is something to read, or the end.
    fn wait(&self) -> io::Result<()> {
        let Some(deadline) = self.deadline else { return Ok(()) };
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let mut wanted = [PollFd::new(self.inner.as_fd(), PollFlags::POLLIN)];
            match poll(&mut wanted, rounded_up(left)) {
                Ok(0) if left.is_zero() => return Err(io::ErrorKind::TimedOut.into()),
                Ok(0) | Err(Errno::EINTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// What is left, never less than that: a wait that ends too early would be repeated at once.
fn rounded_up(left: Duration) -> PollTimeout {
    match left.is_zero() {
        true => PollTimeout::ZERO,
        false => PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX),
    }
}
