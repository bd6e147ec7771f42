//! A script's side of the connection: its page, its place among the events, its handles.
//!
//! Everything that may wait goes through [`Browser::call`], which bounds it by the script's deadline and keeps
//! the connection's buffers out of the script's memory count. A command is repeated only where the browser
//! proved that it did not run, and only on the same target.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rhai::{Dynamic, Map};

use super::aftermath::Before;
use super::context::Context;
use super::error::{End, Failure, Thrown};
use super::memory::{Uncounted, uncounted};
use super::protocol;
use super::value::parse;
use crate::cancel::{Cancel, CancelReason};
use crate::cdp::{Answer, Call, CallError, Caller, Cursor, Page, PageChoice, PageInfo};
use crate::ids::{SessionId, TargetId};
use crate::wire::Aftermath;

/// CDP's code for a command that the target does not know.
const UNKNOWN_COMMAND: i64 = -32601;

/// CDP's code for parameters that the command does not take.
const BAD_PARAMETERS: i64 = -32602;

/// Scripts that have begun in this process.
static SCRIPTS: AtomicU64 = AtomicU64::new(1);

/// How long finding or opening a page may take.
pub const PAGE_WITHIN: Duration = Duration::from_secs(30);

/// What scripts of one session leave to the next.
#[derive(Default)]
pub struct Memo {
    /// The page of the last script that ended.
    page: Mutex<Option<Page>>,
    /// Where the last ended script was among the events.
    cursor: Mutex<Option<Cursor>>,
    /// The last known inner size of pages, for when they cannot be asked.
    sizes: Mutex<HashMap<TargetId, (i64, i64)>>,
}

impl Memo {
    /// Another browser has neither the pages nor the events of the last one.
    pub fn forget(&self) {
        *lock(&self.page) = None;
        *lock(&self.cursor) = None;
        lock(&self.sizes).clear();
    }
}

/// A script's page.
enum Chosen {
    /// What the last script left; `None` before the first has chosen.
    Inherited(Option<Page>),
    /// What this script chose.
    Own(Page),
}

impl Chosen {
    fn page(&self) -> Option<&Page> {
        match self {
            Self::Inherited(page) => page.as_ref(),
            Self::Own(page) => Some(page),
        }
    }

    /// The same page, on another session.
    fn renew(&mut self, newer: &Page) {
        let (Self::Inherited(Some(page)) | Self::Own(page)) = self else { return };
        if page.target == newer.target {
            *page = newer.clone();
        }
    }
}

/// One script's browser.
pub struct Browser {
    /// The connection, waited on by this script's thread.
    pub caller: Caller,
    /// The object group that the page's handles of this script belong to.
    pub object_group: String,
    /// How things stood when it began.
    pub before: Arc<Before>,
    memo: Arc<Memo>,
    page: Mutex<Chosen>,
    cursor: Mutex<Cursor>,
    /// Sessions that hold handles for this script.
    handles: Mutex<BTreeSet<SessionId>>,
    /// Sessions that were lost, and the page attached anew for each.
    moved: Mutex<HashMap<SessionId, Page>>,
}

/// Of each script and each worker its own: what ends with one must not take another's handles, which share the page's session.
fn object_group() -> String {
    format!("ghost-browser-{}", SCRIPTS.fetch_add(1, Ordering::Relaxed))
}

impl Browser {
    /// Goes on where the last script of the session ended.
    pub fn new(caller: Caller, memo: Arc<Memo>) -> Self {
        let cursor = lock(&memo.cursor).clone();
        let page = lock(&memo.page).clone();
        Self {
            before: Arc::new(Before::new(&caller, page.as_ref())),
            // The first script sees all that came before it.
            cursor: Mutex::new(cursor.unwrap_or_default()),
            page: Mutex::new(Chosen::Inherited(page)),
            object_group: object_group(),
            handles: Mutex::default(),
            moved: Mutex::default(),
            caller,
            memo,
        }
    }

    /// Leaves page and place to the next script, and lets go of the page's handles. Returns what the caller should
    /// know: the dialogs that were answered meanwhile, and the events that it came too late for.
    pub fn finish(&self) -> Vec<String> {
        if let Chosen::Own(page) = &*lock(&self.page) {
            *lock(&self.memo.page) = Some(page.clone());
        }
        let mut cursor = lock(&self.cursor).clone();
        let missed = cursor.take_missed();
        *lock(&self.memo.cursor) = Some(cursor);
        self.release_handles();
        let mut told = self.caller.take_accepted_dialogs();
        if !lock(&self.moved).is_empty() {
            told.push("a page's session was lost and attached anew: what was enabled on it is off".to_owned());
        }
        if missed > 0 {
            told.push(format!("{missed} events were dropped before `drain_events` came to them: call it more often"));
        }
        told
    }

    /// What has happened since the script began.
    pub fn aftermath(&self) -> Aftermath {
        self.before.aftermath(&self.caller, self.chosen().as_ref())
    }

    /// Lets go of the page's handles.
    pub fn release_handles(&self) {
        let params = format!("{{\"objectGroup\":\"{}\"}}", self.object_group);
        for session in std::mem::take(&mut *lock(&self.handles)) {
            // Nobody waits for it: a page that is gone has no handles.
            let _ = self.caller.post(&Call {
                method: "Runtime.releaseObjectGroup",
                params: &params,
                session: Some(&session),
            });
        }
    }

    /// The browser of another thread of the script: the same connection, a place among the events that starts where the
    /// script's is, and no page yet. It leaves nothing to the next script.
    pub fn for_worker(&self, cancel: &Cancel) -> Self {
        Self {
            before: self.before.clone(),
            cursor: Mutex::new(lock(&self.cursor).clone()),
            page: Mutex::new(Chosen::Inherited(None)),
            object_group: object_group(),
            handles: Mutex::default(),
            moved: Mutex::default(),
            caller: self.caller.beside(cancel),
            memo: self.memo.clone(),
        }
    }

    /// Makes a page that is attached this script's own.
    pub fn work_on(&self, page: &Page) {
        *lock(&self.page) = Chosen::Own(page.clone());
    }

    /// Sends one command and waits for its reply.
    ///
    /// # Errors
    /// What the call failed with; the end of the script where it was cancelled or its own deadline passed.
    pub fn call(&self, context: &Context, call: &Call<'_>, within: Duration) -> Result<Uncounted<Answer>, Failure> {
        self.try_call(call, context.until(within)).map_err(|error| failure(context, error))
    }

    /// [`Browser::call`] without a judgement on the error.
    pub fn try_call(&self, call: &Call<'_>, deadline: Instant) -> Result<Uncounted<Answer>, CallError> {
        let outcome = uncounted(|| self.caller.call(call, deadline));
        outcome.map(|answer| Uncounted::new(|| answer))
    }

    /// Sends a command to a page; where its session is gone, once more on a new one of the same target.
    ///
    /// # Errors
    /// As [`Browser::call`].
    pub fn call_page(
        &self,
        context: &Context,
        page: &Page,
        method: &str,
        params: &str,
        within: Duration,
    ) -> Result<Uncounted<Answer>, Failure> {
        let deadline = context.until(within);
        self.on_page(page, deadline, |session| {
            self.try_call(&Call { method, params, session: Some(session) }, deadline)
        })
        .map_err(|error| failure(context, error))
    }

    /// Does `work` on the page's session, and once more on a new session where the browser says that the
    /// old one is gone, which proves that nothing ran.
    ///
    /// # Errors
    /// What `work`, or the attaching, failed with.
    pub fn on_page<T>(
        &self,
        page: &Page,
        deadline: Instant,
        work: impl Fn(&SessionId) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let page = self.present(page);
        match work(&page.session) {
            Err(CallError::SessionGone { .. }) => work(&self.reattach(&page, deadline)?.session),
            outcome => outcome,
        }
    }

    /// The page as it is attached now.
    pub fn present(&self, page: &Page) -> Page {
        let moved = lock(&self.moved);
        let mut page = page;
        while let Some(newer) = moved.get(&page.session) {
            page = newer;
        }
        page.clone()
    }

    fn reattach(&self, page: &Page, deadline: Instant) -> Result<Page, CallError> {
        let same = PageChoice::Target(page.target.clone());
        let newer = uncounted(|| {
            self.caller.forget(&page.session);
            let newer = self.caller.attach(same, deadline)?;
            self.caller.follow(&page.session, &newer.session);
            Ok(newer)
        })?;
        lock(&self.moved).insert(page.session.clone(), newer.clone());
        lock(&self.page).renew(&newer);
        if let Some(left) = lock(&self.memo.page).as_mut().filter(|left| left.target == newer.target) {
            *left = newer.clone();
        }
        Ok(newer)
    }

    /// This script's page, found or opened when it has none.
    ///
    /// # Errors
    /// What attaching failed with.
    pub fn page(&self, context: &Context) -> Result<Page, Failure> {
        match self.chosen() {
            Some(page) => Ok(page),
            None => self.choose(context, PageChoice::First),
        }
    }

    fn chosen(&self) -> Option<Page> {
        lock(&self.page).page().cloned()
    }

    /// Makes a page this script's own.
    ///
    /// # Errors
    /// What attaching failed with.
    pub fn choose(&self, context: &Context, choice: PageChoice) -> Result<Page, Failure> {
        let deadline = context.until(PAGE_WITHIN);
        let page = uncounted(|| self.caller.attach(choice, deadline)).map_err(|error| failure(context, error))?;
        uncounted(|| self.before.chosen(&self.caller, &page));
        *lock(&self.page) = Chosen::Own(page.clone());
        Ok(page)
    }

    /// This script's page, asked for by the script: it is there, or `target_gone` is said.
    ///
    /// # Errors
    /// `target_gone`, or what attaching failed with.
    pub fn page_that_is_there(&self, context: &Context) -> Result<Page, Failure> {
        let Some(page) = self.chosen() else {
            return self.choose(context, PageChoice::First);
        };
        if !self.pages(context)?.iter().any(|info| info.target == page.target) {
            return Err(failure(context, CallError::TargetGone(page.target)));
        }
        let page = self.present(&page);
        let attached = match self.caller.is_attached(&page) {
            Ok(true) => Ok(page),
            Ok(false) => self.reattach(&page, context.until(PAGE_WITHIN)),
            Err(error) => Err(error),
        };
        attached.map_err(|error| failure(context, error))
    }

    /// All pages, as the browser lists them.
    ///
    /// # Errors
    /// What the call failed with.
    pub fn pages(&self, context: &Context) -> Result<Vec<PageInfo>, Failure> {
        let deadline = context.until(PAGE_WITHIN);
        uncounted(|| self.caller.pages(deadline)).map_err(|error| failure(context, error))
    }

    /// Remembers that `session` holds handles for this script.
    pub fn holds_handles(&self, session: &SessionId) {
        lock(&self.handles).insert(session.clone());
    }

    /// This script's place among the events.
    pub fn cursor(&self) -> MutexGuard<'_, Cursor> {
        lock(&self.cursor)
    }

    /// Remembers the size of a page.
    pub fn set_size(&self, target: &TargetId, size: (i64, i64)) {
        lock(&self.memo.sizes).insert(target.clone(), size);
    }

    /// The size of a page when it could last be asked.
    pub fn last_size(&self, target: &TargetId) -> Option<(i64, i64)> {
        lock(&self.memo.sizes).get(target).copied()
    }
}

/// A reply's result as a script value.
///
/// # Errors
/// The end of the script where the value does not fit in its memory.
pub fn value(answer: &Answer) -> Result<Dynamic, Failure> {
    Ok(parse(answer.result())?)
}

/// A reply's result, which CDP says is an object, as a map.
///
/// # Errors
/// As [`value`].
pub fn map(answer: &Answer) -> Result<Map, Failure> {
    Ok(value(answer)?.try_cast::<Map>().unwrap_or_default())
}

/// What a failed call is to the script: its end where it must end, else an error it may catch.
pub fn failure(context: &Context, error: CallError) -> Failure {
    if let Some(reason) = context.cancel.reason() {
        return End::from(reason).into();
    }
    if context.is_late() {
        return late(&error).into();
    }
    thrown(&error).into()
}

/// The script's own deadline passed: whether something it sent is unanswered decides what is said.
fn late(error: &CallError) -> End {
    match error {
        CallError::NoReply { method, .. } => End::Unanswered { method: method.clone() },
        _ => CancelReason::Deadline.into(),
    }
}

/// The error that a script may catch.
pub fn thrown(error: &CallError) -> Thrown {
    let thrown = Thrown::new(error.code(), error.to_string());
    let thrown = match error.hint().map(str::to_owned).or_else(|| meant(error)) {
        Some(hint) => thrown.hint(hint),
        None => thrown,
    };
    let thrown = match method(error) {
        Some(method) => thrown.with("method", method.to_owned()),
        None => thrown,
    };
    match error {
        CallError::Refused { code, data: Some(data), .. } => thrown.with("cdp_code", *code).with("data", data.clone()),
        CallError::Refused { code, data: None, .. } => thrown.with("cdp_code", *code),
        _ => thrown,
    }
}

/// What was probably meant by a command that the browser refused.
fn meant(error: &CallError) -> Option<String> {
    match error {
        CallError::Refused { method, session, code: UNKNOWN_COMMAND, .. } => {
            protocol::command_hint(method, session.is_none())
        }
        CallError::Refused { method, code: BAD_PARAMETERS, .. } => protocol::parameters_hint(method),
        CallError::Refused { message, .. } if message.contains("stack limit exceeded") => Some(
            "the value is nested too deeply for one reply: pick a part, or ask for it with `JSON.stringify`".to_owned(),
        ),
        _ => None,
    }
}

fn method(error: &CallError) -> Option<&str> {
    match error {
        CallError::Refused { method, .. }
        | CallError::SessionGone { method, .. }
        | CallError::NoReply { method, .. }
        | CallError::NotWritten { method, .. }
        | CallError::Closed { method, .. }
        | CallError::Detached { method }
        | CallError::PageCrashed { method }
        | CallError::DialogOpen { method, .. } => Some(method),
        CallError::TimedOut { .. }
        | CallError::TargetGone(_)
        | CallError::PageUnresponsive { .. }
        | CallError::Cancelled => None,
    }
}

/// A page as scripts hold it.
pub fn page_map(page: &Page) -> Map {
    let mut map = Map::new();
    map.insert("target_id".into(), page.target.as_str().into());
    map.insert("session_id".into(), page.session.as_str().into());
    map
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
