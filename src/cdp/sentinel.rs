//! The kernel's side of the lead: a switch that says whether the sentinel thread is woken by the socket.
//!
//! Two implementations of one small thing: `epoll` on Linux, `kqueue` on macOS.

use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::time::Duration;

use super::kick::Kick;

pub(super) use imp::Sentinel;

#[cfg(any(target_os = "linux", target_os = "android"))]
mod imp {
    use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

    use super::*;

    /// Wakes its thread when the armed descriptor turns readable.
    pub(in crate::cdp) struct Sentinel {
        epoll: Epoll,
        watched: RawFd,
        poked: Kick,
    }

    impl Sentinel {
        pub(in crate::cdp) fn new(watched: RawFd) -> io::Result<Self> {
            let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
            // SAFETY: the descriptor is the transport's, which lives as long as the connection.
            let fd = unsafe { BorrowedFd::borrow_raw(watched) };
            epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLONESHOT, 0))?;
            let poked = Kick::new()?;
            epoll.add(poked.fd(), EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
            Ok(Self { epoll, watched, poked })
        }

        pub(in crate::cdp) fn arm(&self) {
            self.set(EpollFlags::EPOLLIN | EpollFlags::EPOLLONESHOT);
        }

        pub(in crate::cdp) fn disarm(&self) {
            self.set(EpollFlags::EPOLLONESHOT);
        }

        /// Wakes the sentinel thread, armed or not.
        pub(in crate::cdp) fn poke(&self) {
            self.poked.kick();
        }

        fn set(&self, flags: EpollFlags) {
            // SAFETY: as in `new`.
            let fd = unsafe { BorrowedFd::borrow_raw(self.watched) };
            // It fails only for a descriptor that is not watched, which `new` made sure of.
            let _ = self.epoll.modify(fd, &mut EpollEvent::new(flags, 0));
        }

        /// Waits until poked or until the armed descriptor is readable, at most for `within`.
        pub(in crate::cdp) fn wait(&self, within: Duration) -> bool {
            let timeout = EpollTimeout::try_from(within).unwrap_or(EpollTimeout::NONE);
            let mut events = [EpollEvent::empty(); 2];
            let woken = matches!(self.epoll.wait(&mut events, timeout), Ok(1..));
            self.poked.clear();
            woken
        }
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod imp {
    use std::os::fd::AsRawFd;

    use nix::sys::event::{EvFlags, EventFilter, FilterFlag, KEvent, Kqueue};

    use super::*;

    /// Wakes its thread when the armed descriptor turns readable.
    pub(in crate::cdp) struct Sentinel {
        queue: Kqueue,
        watched: RawFd,
        poked: Kick,
    }

    impl Sentinel {
        pub(in crate::cdp) fn new(watched: RawFd) -> io::Result<Self> {
            let sentinel = Self { queue: Kqueue::new()?, watched, poked: Kick::new()? };
            sentinel.change(sentinel.poked.fd().as_raw_fd(), EvFlags::EV_ADD);
            sentinel.change(watched, EvFlags::EV_ADD | EvFlags::EV_DISPATCH);
            Ok(sentinel)
        }

        pub(in crate::cdp) fn arm(&self) {
            self.change(self.watched, EvFlags::EV_ENABLE | EvFlags::EV_DISPATCH);
        }

        pub(in crate::cdp) fn disarm(&self) {
            self.change(self.watched, EvFlags::EV_DISABLE);
        }

        /// Wakes the sentinel thread, armed or not.
        pub(in crate::cdp) fn poke(&self) {
            self.poked.kick();
        }

        fn change(&self, fd: RawFd, flags: EvFlags) {
            let change = KEvent::new(fd as usize, EventFilter::EVFILT_READ, flags, FilterFlag::empty(), 0, 0);
            // It fails only for a descriptor that is not watched, which `new` made sure of.
            let _ = self.queue.kevent(&[change], &mut [], None);
        }

        /// Waits until poked or until the armed descriptor is readable, at most for `within`.
        pub(in crate::cdp) fn wait(&self, within: Duration) -> bool {
            let none = KEvent::new(0, EventFilter::EVFILT_READ, EvFlags::empty(), FilterFlag::empty(), 0, 0);
            let timeout = nix::libc::timespec { tv_sec: within.as_secs() as _, tv_nsec: within.subsec_nanos() as _ };
            let woken = matches!(self.queue.kevent(&[], &mut [none; 2], Some(timeout)), Ok(1..));
            self.poked.clear();
            woken
        }
    }
}
