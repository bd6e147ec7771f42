//! Ctrl-C, and being told to end: the first time the running script is cancelled, the second time we leave at once.
//! A session of lines begins anew with each of them, and between two it only leaves.
//!
//! The signal handler writes the `Cancel` frame to the daemon itself: so it arrives even while this process is
//! blocked writing to a reader that does not read, and an ordinary wait needs no second descriptor to watch.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use crate::wire::{Request, write_frame};

/// How often we were told.
static TOLD: AtomicU32 = AtomicU32::new(0);
/// Whether it was by anything but Ctrl-C.
static LEAVING: AtomicBool = AtomicBool::new(false);
/// Whether a session waits for its next line.
static RESTING: AtomicBool = AtomicBool::new(false);
/// Whom to tell, while a script runs; else -1.
static SOCKET: AtomicI32 = AtomicI32::new(-1);
static FRAME: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
static FRAME_LENGTH: AtomicUsize = AtomicUsize::new(0);

/// Exit code of a call that was interrupted.
const INTERRUPTED: i32 = 130;

/// Takes over SIGINT, SIGTERM and SIGHUP for the rest of this process. One that is ignored (`nohup`) stays so.
pub fn watch() {
    let frame = cancel_frame();
    FRAME_LENGTH.store(frame.len(), Ordering::SeqCst);
    FRAME.store(Box::leak(frame).as_mut_ptr(), Ordering::SeqCst);
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let action = SigAction::new(SigHandler::Handler(on_signal), SaFlags::SA_RESTART, SigSet::empty());
        // SAFETY: the handler only touches atomics and calls `send` and `_exit`, which are async-signal-safe.
        let before = unsafe { sigaction(signal, &action) };
        if let Ok(before) = before
            && matches!(before.handler(), SigHandler::SigIgn)
        {
            // SAFETY: this puts back what was there. It cannot fail where setting it did not.
            let _ = unsafe { sigaction(signal, &before) };
        }
    }
}

/// Whether we were told to end.
pub fn is_raised() -> bool {
    TOLD.load(Ordering::SeqCst) > 0
}

/// Whether we were told by more than Ctrl-C: then a session is over with its line.
pub fn must_leave() -> bool {
    LEAVING.load(Ordering::SeqCst)
}

/// A session waits for its next line: Ctrl-C is nothing to it, and whatever else would end a process does.
pub fn rest() {
    RESTING.store(true, Ordering::SeqCst);
}

/// A session's next line runs: what was told before is forgotten.
pub fn resume() {
    TOLD.store(0, Ordering::SeqCst);
    RESTING.store(false, Ordering::SeqCst);
}

/// While this lives, the daemon at the other end of a socket is told to cancel when we are told to end.
pub(super) struct Forwarding;

impl Forwarding {
    /// Starts it; being told before counts.
    pub(super) fn to(socket: &impl AsFd) -> Self {
        SOCKET.store(socket.as_fd().as_raw_fd(), Ordering::SeqCst);
        if is_raised() {
            send_cancel();
        }
        Self
    }
}

impl Drop for Forwarding {
    fn drop(&mut self) {
        SOCKET.store(-1, Ordering::SeqCst);
    }
}

fn cancel_frame() -> Box<[u8]> {
    let mut frame = Vec::new();
    write_frame(&mut frame, &Request::Cancel).expect("a vector takes every byte");
    frame.into_boxed_slice()
}

extern "C" fn on_signal(signal: libc::c_int) {
    let is_interrupt = signal == libc::SIGINT;
    if RESTING.load(Ordering::SeqCst) {
        if is_interrupt {
            return;
        }
        // SAFETY: `_exit` is async-signal-safe; nothing runs that would have to be cancelled.
        unsafe { libc::_exit(128 + signal) }
    }
    LEAVING.fetch_or(!is_interrupt, Ordering::SeqCst);
    if TOLD.fetch_add(1, Ordering::SeqCst) > 0 {
        // SAFETY: `_exit` is async-signal-safe; the daemon sees our end of the socket close and cancels.
        unsafe { libc::_exit(INTERRUPTED) }
    }
    let errno = errno();
    send_cancel();
    // SAFETY: it is this thread's own `errno`, put back for whatever the signal interrupted.
    unsafe { *errno.0 = errno.1 };
}

fn send_cancel() {
    let socket = SOCKET.load(Ordering::SeqCst);
    let frame = FRAME.load(Ordering::SeqCst);
    if socket < 0 || frame.is_null() {
        return;
    }
    let length = FRAME_LENGTH.load(Ordering::SeqCst);
    // SAFETY: the frame was leaked, so it lives for ever; a socket that is closed by now answers with an error,
    // which means that there is nobody left to tell.
    unsafe { libc::send(socket, frame.cast(), length, libc::MSG_DONTWAIT) };
}

fn errno() -> (*mut libc::c_int, libc::c_int) {
    // SAFETY: the address is valid for the life of the thread.
    #[cfg(target_os = "linux")]
    let address = unsafe { libc::__errno_location() };
    #[cfg(not(target_os = "linux"))]
    let address = unsafe { libc::__error() };
    // SAFETY: as above.
    (address, unsafe { *address })
}
