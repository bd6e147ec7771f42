//! One thread's way to the browser: calls, waits for events, and the pages that a script works on.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::connection::{Look, Shared, Turn};
use super::error::{self, CallError};
use super::events::{CdpEvent, Cursor, Subscription};
use super::frame::{Answer, Call, mend_surrogates};
use super::lead::Parker;
use super::pages::{Dialog, Page};
use super::pending::{CallerKind, Inbox, Outcome};
use super::tally::Tally;
use crate::cancel::{Cancel, Registration};
use crate::ids::{CallId, SessionId, TargetId};

/// How long a call may be unanswered while a dialog is open on its page.
const BEHIND_DIALOG: Duration = Duration::from_millis(300);

/// How long a page, or the browser, that was told to close may take to be gone before the script goes on.
const GONE_WITHIN: Duration = Duration::from_secs(5);

/// Which page to work on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PageChoice {
    /// The first that is a web page; a new one where there is none.
    First,
    /// A new one.
    New,
    /// This one and no other.
    Target(TargetId),
}

/// A page as the browser lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageInfo {
    /// The page.
    pub target: TargetId,
    /// Where it is.
    pub url: String,
    /// Its title.
    pub title: String,
}

/// One thread's calls. Its waits end when the thread's `Cancel` is raised.
pub struct Caller {
    shared: Arc<Shared>,
    inbox: Arc<Inbox>,
    cancel: Cancel,
    _wakes: Registration,
}

/// What a command has ended.
enum Ended {
    Page(TargetId),
    Browser,
}

/// A call on its way.
pub(super) struct InFlight<'a> {
    id: CallId,
    call: Call<'a>,
    sent: Instant,
}

impl Caller {
    pub(super) fn new(shared: Arc<Shared>, cancel: Cancel) -> Self {
        let inbox = Arc::new(Inbox::new(Arc::new(Parker::default())));
        let wakes = {
            let (shared, parker) = (shared.clone(), inbox.parker.clone());
            cancel.on_cancel(move || {
                parker.notify();
                shared.kick();
            })
        };
        Self { shared, inbox, cancel, _wakes: wakes }
    }

    /// The same way to the browser, for what is still to be done after this caller was cancelled.
    pub fn uncancelled(&self) -> Self {
        Self::new(self.shared.clone(), Cancel::new())
    }

    /// Another thread's calls on the same connection.
    pub fn beside(&self, cancel: &Cancel) -> Self {
        Self::new(self.shared.clone(), cancel.clone())
    }

    /// Sends one command, once, and waits for its reply.
    ///
    /// # Errors
    /// [`CallError`]: the browser's refusal, or why no reply came and whether the command was handed over.
    pub fn call(&self, call: &Call<'_>, deadline: Instant) -> Result<Answer, CallError> {
        self.shared.count_call();
        let answer = self.command(call, deadline)?;
        if let Some(ended) = self.ended_by(call) {
            self.see_off(&ended, deadline);
        }
        Ok(answer)
    }

    /// What `call` has ended, where something will tell when it is gone.
    fn ended_by(&self, call: &Call<'_>) -> Option<Ended> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Named {
            target_id: String,
        }
        let target = match call.method {
            "Browser.close" => return Some(Ended::Browser),
            "Target.closeTarget" => serde_json::from_str::<Named>(call.params).ok()?.target_id.as_str().into(),
            "Page.close" => self.shared.pages().page_of(call.session?)?.clone(),
            _ => return None,
        };
        self.shared.pages().has_sessions(&target).then_some(Ended::Page(target))
    }

    /// A page or a browser answers first and goes a moment later: what a script calls next must find it gone.
    fn see_off(&self, ended: &Ended, deadline: Instant) {
        let until = deadline.min(Instant::now() + GONE_WITHIN);
        let is_there = || match ended {
            Ended::Page(target) => self.shared.pages().has_sessions(target),
            Ended::Browser => self.shared.closed().is_none(),
        };
        // Nothing depends on how it ends: what stays can be seen.
        let _ = self.shared.wait(&mut self.shared.turn(), &self.inbox.parker, &self.cancel, || {
            if is_there() && Instant::now() < until { Look::Until(until) } else { Look::Ready(()) }
        });
    }

    /// Sends all commands before it waits for any reply; the outcomes are in the order of `calls`.
    pub fn call_all(&self, calls: &[Call<'_>], deadline: Instant) -> Vec<Result<Answer, CallError>> {
        calls.iter().for_each(|_| self.shared.count_call());
        let sent = self.send_all(calls);
        // Not before: while this thread writes, the sentinel reads what is answered already.
        let mut turn = self.shared.turn();
        sent.into_iter().map(|sent| self.outcome(&mut turn, sent?, deadline)).collect()
    }

    /// Sends one command whose reply nobody needs.
    ///
    /// # Errors
    /// [`CallError::Closed`], when it could not be handed over.
    pub fn post(&self, call: &Call<'_>) -> Result<(), CallError> {
        self.shared.count_call();
        self.tell(call)
    }

    /// Like [`Caller::post`], for what no script asked for: it is not counted.
    pub(super) fn tell(&self, call: &Call<'_>) -> Result<(), CallError> {
        self.shared.post(call)
    }

    /// Like [`Caller::call`], for what no script asked for: it is not counted.
    fn command(&self, call: &Call<'_>, deadline: Instant) -> Result<Answer, CallError> {
        let mut turn = self.shared.turn();
        self.outcome(&mut turn, self.send(*call)?, deadline)
    }

    fn send<'a>(&self, call: Call<'a>) -> Result<InFlight<'a>, CallError> {
        let watch = self.admit(&call)?;
        let id = self.shared.send(&routed(&call, &watch), CallerKind::Thread(self.inbox.clone()))?;
        Ok(InFlight { id, call, sent: Instant::now() })
    }

    /// Sends all in one go.
    pub(super) fn send_all<'a>(&self, calls: &[Call<'a>]) -> Vec<Result<InFlight<'a>, CallError>> {
        let mut frames = Vec::with_capacity(calls.len());
        let mut register = |call: &Call<'a>| {
            let watch = self.admit(call)?;
            let routed = routed(call, &watch);
            let id = self.shared.register(&routed, CallerKind::Thread(self.inbox.clone()))?;
            frames.push((id, routed.frame(id)));
            Ok(InFlight { id, call: *call, sent: Instant::now() })
        };
        let sent = calls.iter().map(&mut register).collect();
        // Each of them is told by the end of the connection.
        let _ = self.shared.write(frames);
        sent
    }

    /// Refuses what must not be sent; tells the session that a call goes out on where that is not its own.
    fn admit(&self, call: &Call<'_>) -> Result<Option<SessionId>, CallError> {
        if self.cancel.is_cancelled() {
            return Err(CallError::Cancelled);
        }
        self.refuse_on_crashed(call)?;
        // Only a session with Page enabled can answer a dialog.
        let answers_dialog = call.method == "Page.handleJavaScriptDialog";
        Ok(if answers_dialog { self.watch_of(call.session) } else { None })
    }

    /// A crashed renderer answers nothing but what revives it.
    fn refuse_on_crashed(&self, call: &Call<'_>) -> Result<(), CallError> {
        let Some(session) = call.session else { return Ok(()) };
        let revives = matches!(call.method, "Page.navigate" | "Page.reload" | "Page.close")
            || call.method.starts_with("Target.")
            || call.method.starts_with("Inspector.");
        if revives || !self.shared.blocked.load(Ordering::Acquire) || !self.shared.pages().is_crashed(session) {
            return Ok(());
        }
        Err(CallError::PageCrashed { method: call.method.to_owned() })
    }

    fn watch_of(&self, session: Option<&SessionId>) -> Option<SessionId> {
        self.shared.pages().watch_of(session?).cloned()
    }

    fn outcome(&self, turn: &mut Turn<'_>, flight: InFlight<'_>, deadline: Instant) -> Result<Answer, CallError> {
        self.wait_for(turn, &flight, &self.cancel, deadline).unwrap_or_else(|| {
            self.shared.give_up(flight.id);
            Err(CallError::Cancelled)
        })
    }

    /// Like [`Caller::outcome`], but a cancel leaves it `grace` to come.
    pub(super) fn late_outcome(
        &self,
        flight: InFlight<'_>,
        deadline: Instant,
        grace: Duration,
    ) -> Result<Answer, CallError> {
        let turn = &mut self.shared.turn();
        let in_time = self.wait_for(turn, &flight, &self.cancel, deadline);
        let late = || self.wait_for(turn, &flight, &Cancel::new(), deadline.min(Instant::now() + grace));
        in_time.or_else(late).unwrap_or(Err(CallError::Cancelled))
    }

    /// Waits for the outcome; `None` when cancelled.
    fn wait_for(
        &self,
        turn: &mut Turn<'_>,
        flight: &InFlight<'_>,
        cancel: &Cancel,
        deadline: Instant,
    ) -> Option<Result<Answer, CallError>> {
        self.shared.wait(turn, &self.inbox.parker, cancel, || match self.inbox.take(flight.id) {
            Some(outcome) => Look::Ready(flight.understand(outcome)),
            None => self.look_at_clock(flight, deadline),
        })
    }

    fn look_at_clock(&self, flight: &InFlight<'_>, deadline: Instant) -> Look<Result<Answer, CallError>> {
        let now = Instant::now();
        if now >= deadline {
            return Look::Ready(Err(self.too_late(flight, now)));
        }
        let Some(dialog) = self.dialog_behind(flight.call.session) else { return Look::Until(deadline) };
        let patience = flight.sent + BEHIND_DIALOG;
        if now < patience {
            return Look::Until(patience.min(deadline));
        }
        self.shared.give_up(flight.id);
        let Dialog { kind, message } = dialog;
        Look::Ready(Err(CallError::DialogOpen { method: flight.call.method.to_owned(), kind, message }))
    }

    fn dialog_behind(&self, session: Option<&SessionId>) -> Option<Dialog> {
        if !self.shared.blocked.load(Ordering::Acquire) {
            return None;
        }
        self.shared.pages().dialog_on(session?).cloned()
    }

    fn too_late(&self, flight: &InFlight<'_>, now: Instant) -> CallError {
        let method = flight.call.method.to_owned();
        let waited = now.duration_since(flight.sent);
        match self.shared.give_up(flight.id) {
            true => CallError::NoReply { method, waited },
            false => CallError::NotWritten { method, waited },
        }
    }

    /// The events that `cursor` has not seen, oldest first: all, or those of one method.
    pub fn drain(&self, cursor: &mut Cursor, method: Option<&str>) -> Vec<Arc<CdpEvent>> {
        self.shared.events().drain(cursor, method)
    }

    /// Queues the events of `method` from now on, on `session` or on any.
    pub fn subscribe(&self, method: &str, session: Option<SessionId>) -> Subscription {
        self.shared.events().subscribe(method, session)
    }

    /// Waits for the next event of a subscription; any caller of the connection may.
    ///
    /// # Errors
    /// [`CallError::TimedOut`] at the deadline, [`CallError::Closed`] when no event can come any more.
    pub fn next(&self, subscription: &Subscription, deadline: Instant) -> Result<Arc<CdpEvent>, CallError> {
        let began = Instant::now();
        let _attention = subscription.wake(&self.inbox.parker);
        let event = self.shared.wait(&mut self.shared.turn(), &self.inbox.parker, &self.cancel, || {
            if let Some(event) = subscription.take() {
                return Look::Ready(Ok(event));
            }
            let what = || subscription.method().to_owned();
            if let Some(reason) = self.shared.closed() {
                return Look::Ready(Err(CallError::Closed { method: what(), written: false, reason }));
            }
            match Instant::now() {
                now if now >= deadline => {
                    Look::Ready(Err(CallError::TimedOut { what: what(), waited: now.duration_since(began) }))
                }
                _ => Look::Until(deadline),
            }
        });
        event.unwrap_or(Err(CallError::Cancelled))
    }

    /// Attaches to a page, once for all scripts. Never waits for the page's own thread.
    ///
    /// # Errors
    /// [`CallError::TargetGone`] for a target that is no more, [`CallError::PageUnresponsive`] for a page that
    /// has left the watch without an answer.
    pub fn attach(&self, choice: PageChoice, deadline: Instant) -> Result<Page, CallError> {
        let target = match choice {
            PageChoice::Target(target) => {
                self.refuse_gone(&target, deadline)?;
                target
            }
            PageChoice::New => self.create(deadline)?,
            PageChoice::First => match self.pages(deadline)?.into_iter().find(PageInfo::is_web) {
                Some(page) => page.target,
                None => self.create(deadline)?,
            },
        };
        self.refuse_hung(&target)?;
        let shared = self.shared.pages().shared(&target);
        shared.map_or_else(|| self.attach_to(target, deadline), Ok)
    }

    /// Drops a session that the browser says is not there, so that its page is attached to anew.
    pub fn forget(&self, session: &SessionId) {
        self.shared.pages().forget(session);
    }

    /// Has what waits for events of a session that is gone wait for those of the one that its page has now.
    pub fn follow(&self, gone: &SessionId, newer: &SessionId) {
        self.shared.events().follow(gone, newer);
    }

    /// Where there is a session already, no attaching would tell that the page is gone.
    fn refuse_gone(&self, target: &TargetId, deadline: Instant) -> Result<(), CallError> {
        let is_known = self.shared.pages().shared(target).is_some();
        if is_known && !self.pages(deadline)?.iter().any(|page| page.target == *target) {
            return Err(CallError::TargetGone(target.clone()));
        }
        Ok(())
    }

    /// Whether a page's session has not ended as far as is known.
    ///
    /// # Errors
    /// [`CallError::PageUnresponsive`], as [`Caller::attach`].
    pub fn is_attached(&self, page: &Page) -> Result<bool, CallError> {
        self.refuse_hung(&page.target)?;
        Ok(self.shared.pages().is_attached(&page.session))
    }

    fn refuse_hung(&self, target: &TargetId) -> Result<(), CallError> {
        match self.shared.pages().is_hung(target, Instant::now()) {
            true => Err(CallError::PageUnresponsive { what: format!("page {target}") }),
            false => Ok(()),
        }
    }

    fn attach_to(&self, target: TargetId, deadline: Instant) -> Result<Page, CallError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Attached {
            session_id: String,
        }
        let params = serde_json::json!({ "targetId": target.as_str(), "flatten": true }).to_string();
        let attached: Attached = match self.ask("Target.attachToTarget", &params, None, deadline) {
            // The one refusal that this command has for a target that is not there.
            Err(CallError::Refused { code: -32602 | -32000, .. }) => return Err(CallError::TargetGone(target)),
            other => other?,
        };
        let page = Page { target, session: attached.session_id.as_str().into() };
        self.shared.pages().remember(&page);
        Ok(page)
    }

    fn create(&self, deadline: Instant) -> Result<TargetId, CallError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Created {
            target_id: String,
        }
        let created: Created = self.ask("Target.createTarget", "{\"url\":\"about:blank\"}", None, deadline)?;
        Ok(created.target_id.as_str().into())
    }

    /// Whether a page can be worked on, as far as is known without asking: it is there, and neither has it crashed
    /// nor is a dialog open on it.
    pub fn is_usable(&self, page: &Page) -> bool {
        self.shared.pages().is_usable(&page.session)
    }

    /// The page targets, as the browser lists them.
    ///
    /// # Errors
    /// [`CallError`], when the browser does not answer.
    pub fn pages(&self, deadline: Instant) -> Result<Vec<PageInfo>, CallError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Listed {
            target_infos: Vec<Info>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Info {
            target_id: String,
            #[serde(rename = "type")]
            kind: String,
            #[serde(default)]
            url: String,
            #[serde(default)]
            title: String,
        }
        let listed: Listed = self.ask("Target.getTargets", "{}", None, deadline)?;
        let pages = listed.target_infos.into_iter().filter(|info| info.kind == "page");
        Ok(pages
            .map(|Info { target_id, url, title, .. }| PageInfo { target: target_id.as_str().into(), url, title })
            .collect())
    }

    /// The dialog that is open on a page.
    pub fn dialog(&self, target: &TargetId) -> Option<Dialog> {
        self.shared.pages().dialog(target).cloned()
    }

    /// A dialog that may hold up the page behind a session, and the page that it is open on: itself or a relative.
    pub fn dialog_near(&self, session: &SessionId) -> Option<(TargetId, Dialog)> {
        let pages = self.shared.pages();
        pages.dialog_near(session).map(|(target, dialog)| (target.clone(), dialog.clone()))
    }

    /// Where a page is, as its watch has heard; `None` without one.
    pub fn url(&self, target: &TargetId) -> Option<String> {
        self.shared.pages().url(target).map(str::to_owned)
    }

    /// What has happened on this connection so far.
    pub fn tally(&self) -> Tally {
        let tally = self.shared.pages().tally();
        Tally { events_dropped: self.shared.events().dropped(), ..tally }
    }

    /// What was accepted for pages since the last look, one sentence each.
    pub fn take_accepted_dialogs(&self) -> Vec<String> {
        self.shared.pages().take_accepted()
    }

    pub(super) fn set_up_watch(&self, deadline: Instant) -> Result<(), CallError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Attached {
            session_id: String,
        }
        self.shared.pages().expect_watch();
        let attached: Attached = match self.ask("Target.attachToBrowserTarget", "{}", None, deadline) {
            // A browser that has no such session is used without a watch.
            Err(CallError::Refused { .. }) => {
                self.shared.pages().watch_from(None);
                return Ok(());
            }
            other => other?,
        };
        let watch = SessionId::from(attached.session_id.as_str());
        self.shared.pages().watch_from(Some(watch.clone()));
        let params = r#"{"autoAttach":true,"waitForDebuggerOnStart":true,"flatten":true,"filter":[{"type":"page"}]}"#;
        match self.command(&Call { method: "Target.setAutoAttach", params, session: Some(&watch) }, deadline) {
            Err(CallError::Refused { .. }) => Ok(()),
            other => other.map(drop),
        }
    }

    /// Calls for ourselves and reads the result.
    fn ask<T: DeserializeOwned>(
        &self,
        method: &str,
        params: &str,
        session: Option<&SessionId>,
        deadline: Instant,
    ) -> Result<T, CallError> {
        read(method, &self.command(&Call { method, params, session }, deadline)?)
    }
}

/// Reads the result of `method`.
pub(super) fn read<T: DeserializeOwned>(method: &str, answer: &Answer) -> Result<T, CallError> {
    let mended = mend_surrogates(answer.result());
    serde_json::from_str(mended.as_deref().unwrap_or(answer.result())).map_err(|error| CallError::Refused {
        method: method.to_owned(),
        session: None,
        code: 0,
        message: "the browser's answer makes no sense".to_owned(),
        data: Some(error.to_string()),
    })
}

impl PageInfo {
    /// Whether it is a web page, not a part of the browser.
    fn is_web(&self) -> bool {
        !["devtools://", "chrome://", "chrome-extension://"].iter().any(|scheme| self.url.starts_with(scheme))
    }
}

/// `call` on the session that it goes out on.
fn routed<'a>(call: &Call<'a>, watch: &'a Option<SessionId>) -> Call<'a> {
    Call { session: watch.as_ref().or(call.session), ..*call }
}

impl InFlight<'_> {
    fn understand(&self, outcome: Outcome) -> Result<Answer, CallError> {
        let method = || self.call.method.to_owned();
        match outcome {
            Outcome::Replied(Ok(answer)) => Ok(answer),
            Outcome::Replied(Err(refusal)) => Err(error::refused(self.call.method, self.call.session, refusal)),
            Outcome::Closed { written, reason } => Err(CallError::Closed { method: method(), written, reason }),
            Outcome::Detached => Err(CallError::Detached { method: method() }),
            Outcome::Crashed => Err(CallError::PageCrashed { method: method() }),
        }
    }
}
