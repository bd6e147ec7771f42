//! Which pages there are, watched from birth through sessions of our own.
//!
//! A dialog that opens before `Page.enable` hangs its page for good, and only a session with Page enabled can
//! answer one. So one session on the browser target auto-attaches to every page and holds it until
//! `Page.enable` is on its way. Those watch sessions and their events are never shown to scripts, and nothing but
//! Page is enabled on them: a page can't tell that it is watched.
//!
//! This is a table without a socket: [`Pages::observe`] takes an event and says what is to be done about it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::events::CdpEvent;
use super::frame::mend_surrogates;
use super::tally::Tally;
use crate::ids::{SessionId, TargetId};

/// Alerts that a page may have accepted for it in one second; the next one stays open.
const ALERTS_PER_SECOND: u32 = 20;

/// Accepted dialogs that are told one by one between two looks; the rest is counted.
const ACCEPTED_TOLD: usize = 20;

/// How much of a dialog's text is told.
const TEXT_TOLD: usize = 200;

/// The most of an address that is kept.
const LONGEST_URL: usize = 2000;

/// How long a page may leave the watch's `Page.enable` unanswered before it counts as hung.
const ENABLE_WITHIN: Duration = Duration::from_secs(3);

/// One attachment to a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The page.
    pub target: TargetId,
    /// The flat session on it.
    pub session: SessionId,
}

/// An open JavaScript dialog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dialog {
    /// `alert`, `confirm`, `prompt` or `beforeunload`.
    pub kind: String,
    /// Its text.
    pub message: String,
}

/// What an event asks for.
#[derive(Debug, PartialEq)]
pub(super) enum Effect {
    /// Send this on that session; nobody waits for the reply.
    Post { session: SessionId, method: &'static str, params: &'static str },
    /// Send `Page.enable` for the watch over this page.
    Enable { session: SessionId, target: TargetId },
    /// No reply will come on this session.
    Detach(SessionId),
    /// The renderer behind these sessions crashed.
    Crash(Vec<SessionId>),
    /// Whoever waits on these sessions should look again.
    Look(Vec<SessionId>),
}

/// Where the watch over all pages stands.
#[derive(Default)]
enum Watch {
    /// There is none.
    #[default]
    Off,
    /// Its session is being made, and the event that names it may be here before the reply.
    Coming,
    /// It has this session on the browser target.
    On(SessionId),
}

/// The table of targets and sessions.
#[derive(Default)]
pub(super) struct Pages {
    watch: Watch,
    sessions: HashMap<SessionId, Attachment>,
    targets: HashMap<TargetId, Target>,
    /// The session that scripts share on a page: one, whoever asks and how often.
    shared: HashMap<TargetId, SessionId>,
    accepted: Accepted,
    tally: Tally,
}

/// Dialogs that were accepted for pages since the last look.
#[derive(Default)]
struct Accepted {
    told: Vec<String>,
    untold: usize,
}

impl Accepted {
    fn add(&mut self, kind: &str, message: &str) {
        if self.told.len() >= ACCEPTED_TOLD {
            self.untold += 1;
            return;
        }
        let cut = message.char_indices().nth(TEXT_TOLD).map_or(message, |(end, _)| &message[..end]);
        let rest = if cut.len() < message.len() { " …" } else { "" };
        self.told.push(format!("accepted a dialog of the page: {kind} {cut:?}{rest}"));
    }

    fn take(&mut self) -> Vec<String> {
        let Self { mut told, untold } = std::mem::take(self);
        if untold > 0 {
            told.push(format!("accepted {untold} more dialogs of pages"));
        }
        told
    }
}

struct Attachment {
    target: TargetId,
    watching: bool,
}

#[derive(Default)]
struct Target {
    /// Where its main frame is.
    url: String,
    watch: Option<SessionId>,
    /// The page that opened it: both may run on one thread.
    opener: Option<TargetId>,
    enabling: Option<Instant>,
    dialog: Option<Dialog>,
    crashed: bool,
    alerts: Alerts,
}

/// Counts the alerts of the running second.
#[derive(Default)]
struct Alerts {
    second: Option<Instant>,
    count: u32,
}

impl Alerts {
    fn within_rate(&mut self, now: Instant) -> bool {
        if self.second.is_none_or(|start| now.duration_since(start) >= Duration::from_secs(1)) {
            *self = Self { second: Some(now), count: 0 };
        }
        self.count += 1;
        self.count <= ALERTS_PER_SECOND
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AttachedToTarget {
    session_id: String,
    target_info: TargetInfo,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TargetInfo {
    target_id: String,
    #[serde(default, rename = "type")]
    kind: String,
    opener_id: Option<String>,
    #[serde(default)]
    url: String,
}

#[derive(Deserialize)]
struct FrameNavigated {
    frame: Frame,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Frame {
    parent_id: Option<String>,
    url: String,
    #[serde(default)]
    url_fragment: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NavigatedWithinDocument {
    frame_id: String,
    url: String,
}

#[derive(Deserialize)]
struct ConsoleCalled {
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DetachedFromTarget {
    session_id: String,
}

#[derive(Deserialize)]
struct DialogOpening {
    message: String,
    #[serde(rename = "type")]
    kind: String,
}

impl Pages {
    /// The watch's session on the browser target is about to be asked for.
    pub(super) fn expect_watch(&mut self) {
        self.watch = Watch::Coming;
    }

    /// The watch's session on the browser target: what comes on it is ours. `None` where the browser has no such thing.
    pub(super) fn watch_from(&mut self, session: Option<SessionId>) {
        self.watch = session.map_or(Watch::Off, Watch::On);
    }

    fn is_watch(&self, session: &SessionId) -> bool {
        matches!(&self.watch, Watch::On(watch) if watch == session)
    }

    /// Whether events of this session are kept from scripts.
    pub(super) fn is_hidden(&self, session: Option<&SessionId>) -> bool {
        session.is_some_and(|session| {
            self.is_watch(session) || self.sessions.get(session).is_some_and(|known| known.watching)
        })
    }

    /// Whether an event is kept from scripts: it comes on a session of ours, or names one.
    pub(super) fn is_private(&self, event: &CdpEvent) -> bool {
        let names_ours = || match event.method.as_str() {
            "Target.attachedToTarget" => params::<AttachedToTarget>(event).is_some_and(|attached| {
                let is_coming = matches!(self.watch, Watch::Coming) && attached.target_info.kind == "browser";
                is_coming || self.is_hidden(Some(&attached.session_id.as_str().into()))
            }),
            "Target.detachedFromTarget" => params::<DetachedFromTarget>(event)
                .is_some_and(|detached| self.is_hidden(Some(&detached.session_id.as_str().into()))),
            _ => false,
        };
        self.is_hidden(event.session.as_ref()) || names_ours()
    }

    /// Learns from one event.
    pub(super) fn observe(&mut self, event: &CdpEvent, now: Instant) -> Vec<Effect> {
        match (event.method.as_str(), event.session.as_ref()) {
            ("Target.attachedToTarget", _) => self.attached(event, now),
            ("Target.detachedFromTarget", _) => match params::<DetachedFromTarget>(event) {
                Some(detached) => self.detached(detached.session_id.as_str().into()),
                None => Vec::new(),
            },
            // The session's last word; it ends a moment later, with the event above.
            ("Inspector.detached", Some(session)) => vec![Effect::Detach(session.clone())],
            ("Inspector.targetCrashed", Some(session)) => self.crashed(session),
            ("Inspector.targetReloadedAfterCrash", Some(session)) => {
                self.with_target(session, |target| target.crashed = false);
                Vec::new()
            }
            ("Page.javascriptDialogOpening", Some(session)) if self.is_hidden(Some(session)) => {
                params(event).map(|dialog| self.dialog_opened(session, dialog, now)).unwrap_or_default()
            }
            ("Page.javascriptDialogClosed", Some(session)) if self.is_hidden(Some(session)) => {
                self.with_target(session, |target| target.dialog = None);
                Vec::new()
            }
            _ => {
                self.count(event);
                Vec::new()
            }
        }
    }

    /// Notes what asks for nothing: where pages are, and how often something went wrong on them.
    fn count(&mut self, event: &CdpEvent) {
        match (event.method.as_str(), event.session.as_ref()) {
            ("Page.frameNavigated", Some(session)) if self.is_hidden(Some(session)) => {
                params(event).into_iter().for_each(|navigated| self.navigated(session, navigated));
            }
            ("Page.navigatedWithinDocument", Some(session)) if self.is_hidden(Some(session)) => {
                params(event).into_iter().for_each(|moved| self.moved_within(session, moved));
            }
            ("Runtime.exceptionThrown", _) => self.tally.page_errors += 1,
            ("Runtime.consoleAPICalled", _) => {
                let called = params::<ConsoleCalled>(event);
                let is_error = called.is_some_and(|called| matches!(called.kind.as_str(), "error" | "assert"));
                self.tally.console_errors += u64::from(is_error);
            }
            _ => {}
        }
    }

    fn navigated(&mut self, session: &SessionId, FrameNavigated { frame }: FrameNavigated) {
        if frame.parent_id.is_some() {
            return;
        }
        self.tally.navigations += 1;
        self.with_target(session, |target| target.url = shortened(frame.url + frame.url_fragment.as_str()));
    }

    fn moved_within(&mut self, session: &SessionId, moved: NavigatedWithinDocument) {
        // The main frame of a page has its target's id.
        let is_main = self.sessions.get(session).is_some_and(|known| known.target.as_str() == moved.frame_id);
        if is_main {
            self.with_target(session, |target| target.url = shortened(moved.url));
        }
    }

    /// Where a page is; `None` for one that is not watched.
    pub(super) fn url(&self, target: &TargetId) -> Option<&str> {
        self.targets.get(target).map(|target| target.url.as_str())
    }

    /// The figures so far, without the events that were dropped.
    pub(super) fn tally(&self) -> Tally {
        self.tally
    }

    fn attached(&mut self, event: &CdpEvent, now: Instant) -> Vec<Effect> {
        let Some(attached) = params::<AttachedToTarget>(event) else { return Vec::new() };
        let session = SessionId::from(attached.session_id.as_str());
        let target = TargetId::from(attached.target_info.target_id.as_str());
        let watching = event.session.as_ref().is_some_and(|session| self.is_watch(session));
        self.sessions.insert(session.clone(), Attachment { target: target.clone(), watching });
        if !watching {
            return Vec::new();
        }
        let entry = self.targets.entry(target.clone()).or_default();
        entry.watch = Some(session.clone());
        entry.opener = attached.target_info.opener_id.as_deref().map(TargetId::from);
        entry.enabling = Some(now);
        entry.url = shortened(attached.target_info.url);
        // Back to back, awaiting neither: a page that waits for the debugger answers nothing until it is let go.
        vec![
            Effect::Enable { session: session.clone(), target },
            Effect::Post { session, method: "Runtime.runIfWaitingForDebugger", params: "{}" },
        ]
    }

    fn detached(&mut self, session: SessionId) -> Vec<Effect> {
        self.forget(&session);
        vec![Effect::Detach(session)]
    }

    /// Drops a session that is no more.
    pub(super) fn forget(&mut self, session: &SessionId) {
        let Some(gone) = self.sessions.remove(session) else { return };
        if gone.watching {
            self.targets.remove(&gone.target);
        }
        if self.shared.get(&gone.target) == Some(session) {
            self.shared.remove(&gone.target);
        }
    }

    fn crashed(&mut self, session: &SessionId) -> Vec<Effect> {
        self.with_target(session, |target| {
            target.crashed = true;
            target.dialog = None;
        });
        vec![Effect::Crash(self.sessions_beside(session))]
    }

    fn dialog_opened(&mut self, session: &SessionId, opening: DialogOpening, now: Instant) -> Vec<Effect> {
        let DialogOpening { message, kind } = opening;
        self.tally.dialogs += 1;
        let accept = matches!(kind.as_str(), "alert" | "beforeunload");
        let accept = self.with_target(session, |target| accept && target.alerts.within_rate(now)).unwrap_or(false);
        if accept {
            self.accepted.add(&kind, &message);
            let params = "{\"accept\":true}";
            return vec![Effect::Post { session: session.clone(), method: "Page.handleJavaScriptDialog", params }];
        }
        self.with_target(session, |target| target.dialog = Some(Dialog { kind, message }));
        vec![Effect::Look(self.sessions_beside(session))]
    }

    /// The page answered the watch.
    pub(super) fn enabled(&mut self, target: &TargetId) {
        if let Some(target) = self.targets.get_mut(target) {
            target.enabling = None;
        }
    }

    /// Whether the page has left the watch without an answer for too long.
    pub(super) fn is_hung(&self, target: &TargetId, now: Instant) -> bool {
        let since = self.targets.get(target).and_then(|target| target.enabling);
        since.is_some_and(|since| now.duration_since(since) >= ENABLE_WITHIN)
    }

    /// The page with the session that scripts have on it already.
    pub(super) fn shared(&self, target: &TargetId) -> Option<Page> {
        let session = self.shared.get(target)?.clone();
        Some(Page { target: target.clone(), session })
    }

    /// Remembers the scripts' session on a page. Its event may not have come.
    pub(super) fn remember(&mut self, page: &Page) {
        self.shared.insert(page.target.clone(), page.session.clone());
        let attachment = Attachment { target: page.target.clone(), watching: false };
        self.sessions.entry(page.session.clone()).or_insert(attachment);
    }

    /// The open dialog of a page.
    pub(super) fn dialog(&self, target: &TargetId) -> Option<&Dialog> {
        self.targets.get(target)?.dialog.as_ref()
    }

    /// The open dialog of the page behind a session.
    pub(super) fn dialog_on(&self, session: &SessionId) -> Option<&Dialog> {
        self.target_of(session)?.dialog.as_ref()
    }

    /// A dialog that may hold up the page behind a session: its own, or one of a page that opened it or was opened by it,
    /// however far apart. Chromium runs such pages on one thread when their sites are the same.
    pub(super) fn dialog_near(&self, session: &SessionId) -> Option<(&TargetId, &Dialog)> {
        let family = self.ancestor(self.page_of(session)?);
        let mut open = self.targets.iter().filter_map(|(page, target)| Some((page, target.dialog.as_ref()?)));
        open.find(|(page, _)| self.ancestor(page) == family)
    }

    fn ancestor<'a>(&'a self, page: &'a TargetId) -> &'a TargetId {
        let mut page = page;
        // A page never opens its own opener, so this ends; the bound is for a browser that says otherwise.
        for _ in 0..self.targets.len() {
            match self.targets.get(page).and_then(|target| target.opener.as_ref()) {
                Some(opener) => page = opener,
                None => break,
            }
        }
        page
    }

    /// Whether the page behind a session has crashed and was not reloaded.
    pub(super) fn is_crashed(&self, session: &SessionId) -> bool {
        self.target_of(session).is_some_and(|target| target.crashed)
    }

    /// Whether the session is on a page that has neither crashed nor a dialog open.
    pub(super) fn is_usable(&self, session: &SessionId) -> bool {
        let is_blocked = |target: &Target| target.crashed || target.dialog.is_some();
        self.sessions.contains_key(session) && !self.target_of(session).is_some_and(is_blocked)
    }

    /// Whether any page has crashed or has a dialog open: what a call has to look at.
    pub(super) fn is_any_blocked(&self) -> bool {
        self.targets.values().any(|target| target.crashed || target.dialog.is_some())
    }

    /// The watch session of the page behind `session`, which can answer its dialog.
    pub(super) fn watch_of(&self, session: &SessionId) -> Option<&SessionId> {
        self.target_of(session)?.watch.as_ref()
    }

    /// Takes what was accepted for pages, one sentence each.
    pub(super) fn take_accepted(&mut self) -> Vec<String> {
        self.accepted.take()
    }

    /// Whether any session is on this page: each learns of its end by itself.
    pub(super) fn has_sessions(&self, target: &TargetId) -> bool {
        self.sessions.values().any(|known| known.target == *target)
    }

    /// Whether a session has not ended as far as we know.
    pub(super) fn is_attached(&self, session: &SessionId) -> bool {
        self.sessions.contains_key(session)
    }

    /// The page behind a session.
    pub(super) fn page_of(&self, session: &SessionId) -> Option<&TargetId> {
        self.sessions.get(session).map(|known| &known.target)
    }

    fn target_of(&self, session: &SessionId) -> Option<&Target> {
        self.targets.get(&self.sessions.get(session)?.target)
    }

    fn with_target<T>(&mut self, session: &SessionId, change: impl FnOnce(&mut Target) -> T) -> Option<T> {
        let target = &self.sessions.get(session)?.target;
        self.targets.get_mut(target).map(change)
    }

    /// Every session on the page that `session` is on, itself included.
    fn sessions_beside(&self, session: &SessionId) -> Vec<SessionId> {
        let Some(known) = self.sessions.get(session) else { return vec![session.clone()] };
        let beside = self.sessions.iter().filter(|(_, other)| other.target == known.target);
        beside.map(|(session, _)| session.clone()).collect()
    }
}

/// An address of a length that can be told; `data:` holds whole documents.
fn shortened(mut url: String) -> String {
    if url.len() > LONGEST_URL {
        let end = (0..=LONGEST_URL).rev().find(|&at| url.is_char_boundary(at)).unwrap_or(0);
        url.truncate(end);
        url.push('…');
    }
    url
}

/// Reads an event's parameters, also where a page put half a character into them.
fn params<T: DeserializeOwned>(event: &CdpEvent) -> Option<T> {
    serde_json::from_str(event.params())
        .or_else(|error| mend_surrogates(event.params()).map_or(Err(error), |mended| serde_json::from_str(&mended)))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(session: Option<&str>, method: &str, params: &str) -> CdpEvent {
        CdpEvent::new(method.to_owned(), session.map(SessionId::from), params.into())
    }

    fn watched() -> Pages {
        let mut pages = Pages::default();
        pages.watch_from(Some("W".into()));
        let attached = r#"{"sessionId":"W1","targetInfo":{"targetId":"T","type":"page"},"waitingForDebugger":true}"#;
        pages.observe(&event(Some("W"), "Target.attachedToTarget", attached), Instant::now());
        let script = r#"{"sessionId":"S1","targetInfo":{"targetId":"T","type":"page"},"waitingForDebugger":false}"#;
        pages.observe(&event(None, "Target.attachedToTarget", script), Instant::now());
        pages
    }

    fn opening(kind: &str) -> CdpEvent {
        event(Some("W1"), "Page.javascriptDialogOpening", &format!(r#"{{"message":"\ud83c","type":"{kind}"}}"#))
    }

    #[test]
    fn a_page_is_watched_from_birth_and_let_go_at_once() {
        let mut pages = Pages::default();
        pages.watch_from(Some("W".into()));
        let attached = r#"{"sessionId":"W1","targetInfo":{"targetId":"T"},"waitingForDebugger":true}"#;

        let effects = pages.observe(&event(Some("W"), "Target.attachedToTarget", attached), Instant::now());

        let session = SessionId::from("W1");
        let release =
            Effect::Post { session: session.clone(), method: "Runtime.runIfWaitingForDebugger", params: "{}" };
        assert_eq!(effects, [Effect::Enable { session, target: "T".into() }, release]);
    }

    #[test]
    fn only_the_watch_is_hidden_from_scripts() {
        let pages = watched();

        assert!(pages.is_hidden(Some(&"W".into())) && pages.is_hidden(Some(&"W1".into())));
        assert!(!pages.is_hidden(Some(&"S1".into())) && !pages.is_hidden(None));
    }

    #[test]
    fn no_event_that_names_a_session_of_the_watch_is_for_scripts() {
        let attached = |session: &str, kind: &str| {
            let params = format!(r#"{{"sessionId":"{session}","targetInfo":{{"targetId":"X","type":"{kind}"}}}}"#);
            CdpEvent::new("Target.attachedToTarget".into(), None, params.into())
        };
        let detached = CdpEvent::new("Target.detachedFromTarget".into(), None, r#"{"sessionId":"W1"}"#.into());
        let mut new = Pages::default();
        new.expect_watch();

        assert!(new.is_private(&attached("W", "browser")), "before its session is known");
        assert!(!new.is_private(&attached("S", "page")));
        let pages = watched();
        assert!(pages.is_private(&attached("W", "browser")) && pages.is_private(&detached));
        assert!(!pages.is_private(&attached("S9", "browser")), "a script may have one of its own");
    }

    #[test]
    fn a_confirm_stays_open_and_an_alert_is_accepted_up_to_the_rate() {
        let (mut pages, now) = (watched(), Instant::now());
        for _ in 0..ALERTS_PER_SECOND {
            assert!(matches!(pages.observe(&opening("alert"), now)[..], [Effect::Post { .. }]));
        }
        assert!(matches!(pages.observe(&opening("alert"), now)[..], [Effect::Look(_)]));
        assert_eq!(pages.take_accepted().len(), ALERTS_PER_SECOND as usize);

        pages.observe(&opening("confirm"), now);
        assert_eq!(pages.dialog(&"T".into()).unwrap(), &Dialog { kind: "confirm".into(), message: "\u{FFFD}".into() });

        pages.observe(&event(Some("W1"), "Page.javascriptDialogClosed", "{}"), now);
        assert_eq!(pages.dialog_on(&"S1".into()), None);
    }

    #[test]
    fn a_crash_is_the_page_s_whichever_session_tells_it() {
        let (mut pages, now) = (watched(), Instant::now());

        let effects = pages.observe(&event(Some("W1"), "Inspector.targetCrashed", "{}"), now);

        let [Effect::Crash(mut sessions)] = <[Effect; 1]>::try_from(effects).unwrap() else { panic!("no crash") };
        sessions.sort();
        assert_eq!(sessions, ["S1".into(), "W1".into()]);
        assert!(pages.is_crashed(&"S1".into()));
        assert!(!pages.is_usable(&"S1".into()));
        pages.observe(&event(Some("S1"), "Inspector.targetReloadedAfterCrash", "{}"), now);
        assert!(!pages.is_crashed(&"S1".into()) && pages.is_usable(&"S1".into()));
        pages.observe(&event(None, "Target.detachedFromTarget", r#"{"sessionId":"S1"}"#), now);
        assert!(!pages.is_usable(&"S1".into()));
    }

    #[test]
    fn of_many_accepted_dialogs_some_are_told_and_the_rest_is_counted() {
        let mut accepted = Accepted::default();
        accepted.add("alert", &"é".repeat(1000));
        (1..50).for_each(|number| accepted.add("alert", &number.to_string()));

        let told = accepted.take();

        assert_eq!(told.len(), ACCEPTED_TOLD + 1);
        assert_eq!(told[0].matches('é').count(), TEXT_TOLD);
        assert!(told[ACCEPTED_TOLD].contains("30 more"), "{told:?}");
        assert!(accepted.take().is_empty());
    }

    #[test]
    fn a_dialog_holds_up_the_family_of_its_page_and_nobody_else() {
        let (mut pages, now) = (watched(), Instant::now());
        let born = |target: &str, session: &str, opener: &str| {
            let info = format!("{{\"targetId\":\"{target}\",\"openerId\":\"{opener}\"}}");
            event(
                Some("W"),
                "Target.attachedToTarget",
                &format!("{{\"sessionId\":\"{session}\",\"targetInfo\":{info}}}"),
            )
        };
        for (target, session, opener) in [("kid", "WK", "T"), ("grandkid", "WG", "kid"), ("other", "WO", "gone")] {
            pages.observe(&born(target, session, opener), now);
        }
        pages.observe(&event(Some("WG"), "Page.javascriptDialogOpening", r#"{"type":"confirm","message":"?"}"#), now);

        assert_eq!(pages.dialog_near(&"S1".into()).map(|(page, _)| page.as_str()), Some("grandkid"));
        assert!(pages.dialog_near(&"WO".into()).is_none());
        assert!(pages.dialog_on(&"S1".into()).is_none());
    }

    #[test]
    fn a_page_that_leaves_the_watch_unanswered_is_hung() {
        let (mut pages, target) = (watched(), TargetId::from("T"));

        assert!(!pages.is_hung(&target, Instant::now()));
        assert!(pages.is_hung(&target, Instant::now() + ENABLE_WITHIN));
        pages.enabled(&target);
        assert!(!pages.is_hung(&target, Instant::now() + ENABLE_WITHIN));
    }
}
