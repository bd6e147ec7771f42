//! The pages of one `parallel`: one for each worker, all closed at its end.
//!
//! They are opened before any item is touched, so that a browser which has no room for them costs no work. A page
//! that an item left unusable is closed, and another takes its place before the next item.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rhai::Dynamic;

use crate::cancel::Cancel;
use crate::cdp::{Call, CallError, Caller, Page, PageChoice};
use crate::ids::TargetId;
use crate::script::browser::{Browser, PAGE_WITHIN, failure, page_map};
use crate::script::context::Context;
use crate::script::error::Failure;
use crate::script::memory::uncounted;

/// How long pages may take to close. One whose thread hangs takes a second or more.
const CLOSE_WITHIN: Duration = Duration::from_secs(5);

/// What an opening may take beyond the script's own deadline: a page that nobody knows of is never closed.
const BEYOND_DEADLINE: Duration = Duration::from_secs(2);

/// Every page that was opened, until they are closed; also when this is dropped.
pub struct LentPages {
    /// A caller that no cancel stops; none where the script has no browser.
    caller: Option<Caller>,
    opened: Mutex<Vec<TargetId>>,
    /// Pages that are attached and not taken.
    free: Mutex<Vec<Page>>,
}

impl LentPages {
    /// Opens a page for each of `count` workers.
    ///
    /// # Errors
    /// What opening one of them failed with; none is left open then.
    pub fn open(context: &Context, count: usize) -> Result<Self, Failure> {
        let browser = context.browser.as_ref();
        let caller = browser.map(|browser| uncounted(|| browser.caller.beside(&Cancel::new())));
        let pages = Self { caller, opened: Mutex::default(), free: Mutex::default() };
        if let Some(browser) = browser {
            let opened = pages.open_more(context, browser, count)?;
            lock(&pages.free).extend(opened);
        }
        Ok(pages)
    }

    /// Opens and attaches to pages, by the caller of `browser`.
    fn open_more(&self, context: &Context, browser: &Browser, count: usize) -> Result<Vec<Page>, Failure> {
        let deadline = context.until(PAGE_WITHIN);
        let failure = |error| failure(context, error);
        let outcomes = uncounted(|| browser.caller.open(count, deadline + BEYOND_DEADLINE));
        let (opened, refused): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
        // All that were opened are known before the first refusal is told.
        let opened: Vec<TargetId> = opened.into_iter().flatten().collect();
        lock(&self.opened).extend(opened.iter().cloned());
        if let Some(error) = refused.into_iter().find_map(Result::err) {
            return Err(failure(error));
        }
        let attach = |target| browser.caller.attach(PageChoice::Target(target), deadline);
        let attached: Result<Vec<Page>, CallError> = uncounted(|| opened.into_iter().map(attach).collect());
        attached.map_err(failure)
    }

    /// A worker's first page.
    pub fn take(&self) -> LentPage {
        match lock(&self.free).pop() {
            Some(page) => LentPage::Good(page),
            None => LentPage::Missing,
        }
    }

    /// Closes all pages, and tells the caller of those that would not.
    pub fn close(self, context: &Context) {
        for target in self.close_all() {
            context.warn(format!("parallel: the page {target} does not close"));
        }
    }

    fn close_all(&self) -> Vec<TargetId> {
        let opened = std::mem::take(&mut *lock(&self.opened));
        match &self.caller {
            Some(caller) if !opened.is_empty() => uncounted(|| caller.close(&opened, Instant::now() + CLOSE_WITHIN)),
            _ => Vec::new(),
        }
    }
}

impl Drop for LentPages {
    fn drop(&mut self) {
        // Closed with a word to the caller before, unless the script's thread panics or the opening failed.
        self.close_all();
    }
}

/// The page of one worker.
pub enum LentPage {
    /// It can be worked on, or could when it was last looked at.
    Good(Page),
    /// An item left it unusable.
    Spoiled(Page),
    /// There is none.
    Missing,
}

impl LentPage {
    /// The page for the next item, as its function takes it, and made the page of the worker's script.
    ///
    /// # Errors
    /// What opening another failed with.
    pub fn ready(&mut self, context: &Context, pages: &LentPages) -> Result<Dynamic, Failure> {
        let Some(browser) = &context.browser else { return Ok(Dynamic::UNIT) };
        let page = match self {
            Self::Good(page) if browser.caller.is_usable(page) => page.clone(),
            _ => self.replace(context, browser, pages)?,
        };
        browser.work_on(&page);
        Ok(page_map(&page).into())
    }

    fn replace(&mut self, context: &Context, browser: &Browser, pages: &LentPages) -> Result<Page, Failure> {
        if let Self::Good(spoiled) | Self::Spoiled(spoiled) = std::mem::replace(self, Self::Missing) {
            let params = serde_json::json!({ "targetId": spoiled.target.as_str() }).to_string();
            // At the end it is looked at whether it is gone.
            let _ = browser.caller.post(&Call { method: "Target.closeTarget", params: &params, session: None });
        }
        let opened = pages.open_more(context, browser, 1)?;
        let page = opened.into_iter().next().ok_or_else(|| failure(context, CallError::Cancelled))?;
        *self = Self::Good(page.clone());
        Ok(page)
    }

    /// Has the next item work on another page.
    pub fn give_up(&mut self) {
        if let Self::Good(page) = std::mem::replace(self, Self::Missing) {
            *self = Self::Spoiled(page);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
