//! Counting requests, so that a daemon does not end before they have been answered.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::LAST_WORDS;

/// How many requests have not been answered to their last word yet.
#[derive(Clone, Default)]
pub(in crate::daemon) struct Visits(Arc<(Mutex<usize>, Condvar)>);

/// One of them.
pub(super) struct Here(Visits);

impl Visits {
    pub(super) fn enter(&self) -> Here {
        *self.count() += 1;
        Here(self.clone())
    }

    /// Waits until every request has had its last word, but not for a client that does not read it.
    pub(in crate::daemon) fn wait_for_last_words(&self) {
        let count = self.count();
        let waited = self.0.1.wait_timeout_while(count, LAST_WORDS, |count| *count > 0);
        drop(waited);
    }

    fn count(&self) -> MutexGuard<'_, usize> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        *self.0.count() -= 1;
        self.0.0.1.notify_all();
    }
}
