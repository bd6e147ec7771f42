//! Ending work that somebody no longer wants: a flag that whoever waits is woken by.
//!
//! A wait registers what wakes it with [`Cancel::on_cancel`], looks at the flag, and only then parks;
//! so a cancel between the two is never missed. The first reason given is the one that stays.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Why work is ended before its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelReason {
    /// The client said so: Ctrl-C.
    Interrupted,
    /// The client is gone, or reads no more.
    ClientGone,
    /// `stop` ended the session.
    Stopped,
    /// The daemon ends: it was told to by a signal, or its state folder is gone.
    DaemonEnds,
    /// The whole call's `--timeout` ran out.
    Deadline,
}

/// A shared flag. Clones are the same flag.
#[derive(Clone, Default)]
pub struct Cancel(Arc<Shared>);

#[derive(Default)]
struct Shared {
    reason: OnceLock<CancelReason>,
    wakers: Mutex<Wakers>,
}

#[derive(Default)]
struct Wakers {
    next: u64,
    list: Vec<(u64, Arc<dyn Fn() + Send + Sync>)>,
}

impl Cancel {
    /// A flag that is down.
    pub fn new() -> Self {
        Self::default()
    }

    /// Raises the flag and wakes everything registered; later reasons are ignored.
    pub fn cancel(&self, reason: CancelReason) {
        if self.0.reason.set(reason).is_ok() {
            let wakers: Vec<_> = self.0.wakers().list.iter().map(|(_, wake)| wake.clone()).collect();
            wakers.iter().for_each(|wake| wake());
        }
    }

    /// Why, once it is raised.
    pub fn reason(&self) -> Option<CancelReason> {
        self.0.reason.get().copied()
    }

    /// Whether it is raised.
    pub fn is_cancelled(&self) -> bool {
        self.reason().is_some()
    }

    /// Has `wake` called once when the flag is raised, until the registration is dropped. At once if it is up already.
    pub fn on_cancel(&self, wake: impl Fn() + Send + Sync + 'static) -> Registration {
        let wake = Arc::new(wake);
        let key = {
            let mut wakers = self.0.wakers();
            wakers.next += 1;
            let key = wakers.next;
            wakers.list.push((key, wake.clone()));
            key
        };
        // `cancel` sets the reason before it reads the list: seen by it or seen here, never by neither.
        if self.is_cancelled() {
            wake();
        }
        Registration { key, shared: self.0.clone() }
    }
}

impl Shared {
    fn wakers(&self) -> MutexGuard<'_, Wakers> {
        self.wakers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Cancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cancel").field(&self.reason()).finish()
    }
}

/// Keeps a waker registered while it lives.
pub struct Registration {
    key: u64,
    shared: Arc<Shared>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.shared.wakers().list.retain(|(key, _)| *key != self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn the_first_reason_stays_and_every_waker_is_called_once() {
        let cancel = Cancel::new();
        let woken = Arc::new(AtomicU32::new(0));
        let count = |woken: &Arc<AtomicU32>| {
            let woken = woken.clone();
            move || {
                woken.fetch_add(1, Ordering::SeqCst);
            }
        };
        let _kept = cancel.on_cancel(count(&woken));
        drop(cancel.on_cancel(count(&woken)));

        cancel.cancel(CancelReason::Interrupted);
        cancel.cancel(CancelReason::Stopped);
        let _late = cancel.on_cancel(count(&woken));

        assert_eq!(cancel.reason(), Some(CancelReason::Interrupted));
        assert_eq!(woken.load(Ordering::SeqCst), 2);
    }
}
