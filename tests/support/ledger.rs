//! A list that several threads write and a test reads, or waits on.

use std::fmt::Debug;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a test waits for a fact before it fails: far more than any fact here takes.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// What happened, in order.
pub struct Ledger<T> {
    entries: Mutex<Vec<T>>,
    written: Condvar,
}

impl<T> Default for Ledger<T> {
    fn default() -> Self {
        Self { entries: Mutex::default(), written: Condvar::new() }
    }
}

impl<T: Clone + Debug> Ledger<T> {
    pub fn write(&self, entry: T) {
        lock(&self.entries).push(entry);
        self.written.notify_all();
    }

    pub fn all(&self) -> Vec<T> {
        lock(&self.entries).clone()
    }

    /// Waits until `holds` is true of the entries; `what` names the fact in the failure.
    #[track_caller]
    pub fn wait_until(&self, what: &str, holds: impl Fn(&[T]) -> bool) {
        let end = Instant::now() + PATIENCE;
        let mut entries = lock(&self.entries);
        while !holds(&entries) {
            let left = end.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "waited in vain for {what}; the ledger:\n{entries:#?}");
            entries = self.written.wait_timeout(entries, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// A test that panicked has said what it had to say: the others go on.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
