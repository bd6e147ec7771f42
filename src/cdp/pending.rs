//! The calls that wait for a reply. A closed connection is a state of this table, not a flag beside it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::CloseReason;
use super::error::Refusal;
use super::frame::Answer;
use super::lead::Parker;
use crate::ids::{CallId, SessionId, TargetId};

/// Every call that waits, or the reason why none can.
pub(super) enum Pending {
    /// Calls can be made.
    Open(HashMap<CallId, Entry>),
    /// The connection has ended.
    Closed(CloseReason),
}

/// One call that waits.
pub(super) struct Entry {
    /// Whose call it is.
    pub(super) caller: CallerKind,
    /// The session it was sent on.
    pub(super) session: Option<SessionId>,
    /// Whether the frame was handed to the transport.
    pub(super) written: bool,
}

/// Who waits for a reply.
pub(super) enum CallerKind {
    /// A thread.
    Thread(Arc<Inbox>),
    /// The watch over a page: its `Page.enable`.
    Watch(TargetId),
}

impl CallerKind {
    fn inbox(&self) -> Option<&Arc<Inbox>> {
        match self {
            Self::Thread(inbox) => Some(inbox),
            Self::Watch(_) => None,
        }
    }
}

/// What became of a call.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The browser answered.
    Replied(Result<Answer, Refusal>),
    /// The connection ended.
    Closed { written: bool, reason: CloseReason },
    /// The session ended while the call was pending.
    Detached,
    /// The page's renderer crashed.
    Crashed,
}

/// The outcomes of one thread's calls, and how to wake it.
pub(super) struct Inbox {
    outcomes: Mutex<VecDeque<(CallId, Outcome)>>,
    pub(super) parker: Arc<Parker>,
}

impl Inbox {
    pub(super) fn new(parker: Arc<Parker>) -> Self {
        Self { outcomes: Mutex::default(), parker }
    }

    fn put(&self, id: CallId, outcome: Outcome) {
        self.outcomes().push_back((id, outcome));
        self.parker.notify();
    }

    /// Takes the outcome of `id`, once it is there.
    pub(super) fn take(&self, id: CallId) -> Option<Outcome> {
        let mut outcomes = self.outcomes();
        let at = outcomes.iter().position(|(of, _)| *of == id)?;
        outcomes.remove(at).map(|(_, outcome)| outcome)
    }

    fn outcomes(&self) -> MutexGuard<'_, VecDeque<(CallId, Outcome)>> {
        self.outcomes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pending {
    /// Notes a call before its frame is handed over, so that its reply is never early.
    pub(super) fn register(&mut self, id: CallId, entry: Entry) -> Result<(), CloseReason> {
        match self {
            Self::Open(calls) => {
                calls.insert(id, entry);
                Ok(())
            }
            Self::Closed(reason) => Err(reason.clone()),
        }
    }

    /// The frame of `id` is in the transport's hands: from here on its outcome is the browser's.
    pub(super) fn mark_written(&mut self, id: CallId) {
        if let Self::Open(calls) = self
            && let Some(entry) = calls.get_mut(&id)
        {
            entry.written = true;
        }
    }

    /// Forgets a call; a later reply to it is late.
    pub(super) fn forget(&mut self, id: CallId) -> Option<Entry> {
        match self {
            Self::Open(calls) => calls.remove(&id),
            Self::Closed(_) => None,
        }
    }

    /// Hands a reply over, and tells whose it was; `None` when nobody waits for it.
    pub(super) fn reply(&mut self, id: CallId, reply: Result<Answer, Refusal>) -> Option<CallerKind> {
        let entry = self.forget(id)?;
        if let Some(inbox) = entry.caller.inbox() {
            inbox.put(id, Outcome::Replied(reply));
        }
        Some(entry.caller)
    }

    /// Ends every call on one of `sessions`: no reply will come.
    pub(super) fn fail_sessions(&mut self, sessions: &[SessionId], outcome: impl Fn() -> Outcome) {
        let Self::Open(calls) = self else { return };
        let on_them = |entry: &Entry| entry.session.as_ref().is_some_and(|session| sessions.contains(session));
        for (id, entry) in calls.extract_if(|_, entry| on_them(entry)) {
            if let Some(inbox) = entry.caller.inbox() {
                inbox.put(id, outcome());
            }
        }
    }

    /// Wakes the threads whose calls on one of `sessions` wait, so that they look at the page again.
    pub(super) fn wake_sessions(&self, sessions: &[SessionId]) {
        let Self::Open(calls) = self else { return };
        for entry in calls.values() {
            if entry.session.as_ref().is_some_and(|session| sessions.contains(session))
                && let Some(inbox) = entry.caller.inbox()
            {
                inbox.parker.notify();
            }
        }
    }

    /// Ends every call; later ones are refused with `reason`. False when it had ended already.
    pub(super) fn close(&mut self, reason: &CloseReason) -> bool {
        let Self::Open(calls) = std::mem::replace(self, Self::Closed(reason.clone())) else {
            return false;
        };
        for (id, entry) in calls {
            if let Some(inbox) = entry.caller.inbox() {
                inbox.put(id, Outcome::Closed { written: entry.written, reason: reason.clone() });
            }
        }
        true
    }

    /// Why the connection has ended, once it has.
    pub(super) fn closed(&self) -> Option<&CloseReason> {
        match self {
            Self::Open(_) => None,
            Self::Closed(reason) => Some(reason),
        }
    }

    /// Whether a thread waits for a reply.
    pub(super) fn is_anyone_waiting(&self) -> bool {
        match self {
            Self::Open(calls) => calls.values().any(|entry| entry.caller.inbox().is_some()),
            Self::Closed(_) => false,
        }
    }
}
