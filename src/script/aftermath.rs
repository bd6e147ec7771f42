//! What a script's caller is told of the browser afterwards: where the page was and is, and what happened meanwhile.
//!
//! It is what has been heard by then, without asking the browser anything. Figures are of the whole connection:
//! scripts that run at once share them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::cdp::{Caller, Page, Tally};
use crate::wire::Aftermath;

/// How things stood when a script began.
pub struct Before {
    tally: Tally,
    url: Mutex<Option<String>>,
    has_enabled_runtime: AtomicBool,
}

impl Before {
    /// Looks at things as they are, and at the page that the script inherits.
    pub fn new(caller: &Caller, page: Option<&Page>) -> Self {
        let url = page.and_then(|page| caller.url(&page.target));
        Self { tally: caller.tally(), url: Mutex::new(url), has_enabled_runtime: AtomicBool::new(false) }
    }

    /// The script has chosen a page: its first one is where it began.
    pub fn chosen(&self, caller: &Caller, page: &Page) {
        let mut url = self.url.lock().unwrap_or_else(PoisonError::into_inner);
        if url.is_none() {
            *url = caller.url(&page.target);
        }
    }

    /// The script sends a command.
    pub fn sent(&self, method: &str) {
        if method == "Runtime.enable" {
            self.has_enabled_runtime.store(true, Ordering::Relaxed);
        }
    }

    /// What has changed since.
    pub fn aftermath(&self, caller: &Caller, page: Option<&Page>) -> Aftermath {
        let Tally { navigations, dialogs, page_errors, console_errors, events_dropped } =
            caller.tally().since(&self.tally);
        // Another call may have enabled it, and the page may tell still: what is seen is told.
        let is_told = self.has_enabled_runtime.load(Ordering::Relaxed) || page_errors + console_errors > 0;
        Aftermath {
            start_url: self.url.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            end_url: page.and_then(|page| caller.url(&page.target)),
            navigations,
            dialogs,
            events_dropped,
            page_errors: is_told.then_some(page_errors),
            console_errors: is_told.then_some(console_errors),
        }
    }
}
