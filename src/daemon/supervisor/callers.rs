//! Who waits for the browser, and who has it.

use std::collections::HashMap;
use std::sync::mpsc::Sender;
use std::time::Instant;

use crate::cancel::{Cancel, CancelReason};
use crate::cdp::Connection;
use crate::daemon::desk::{Answer, VisitorId};
use crate::wire::{Fault, Phase};

/// The callers of one session.
pub(super) struct Callers {
    waiting: Vec<Waiting>,
    running: HashMap<VisitorId, Cancel>,
    /// When the last of them left.
    idle_since: Instant,
}

struct Waiting {
    visitor: VisitorId,
    cancel: Cancel,
    answer: Sender<Answer>,
}

impl Default for Callers {
    fn default() -> Self {
        Self { waiting: Vec::new(), running: HashMap::new(), idle_since: Instant::now() }
    }
}

impl Callers {
    pub(super) fn wait(&mut self, visitor: VisitorId, cancel: Cancel, answer: Sender<Answer>) {
        // One that was cancelled on its way here has left before it came.
        if !cancel.is_cancelled() {
            self.waiting.push(Waiting { visitor, cancel, answer });
        }
    }

    /// A caller has gone. True when it was waiting; one that runs ends by its cancel.
    pub(super) fn leave(&mut self, visitor: VisitorId) -> bool {
        let Some(place) = self.waiting.iter().position(|waiting| waiting.visitor == visitor) else { return false };
        self.waiting.remove(place);
        self.idle_since = Instant::now();
        true
    }

    /// A script has ended.
    pub(super) fn finish(&mut self, visitor: VisitorId) {
        self.running.remove(&visitor);
        self.idle_since = Instant::now();
    }

    /// Gives the browser to everyone who waits; the first is told the warnings.
    pub(super) fn give(&mut self, connection: &Connection, warnings: &mut Vec<String>) {
        for Waiting { visitor, cancel, answer } in self.waiting.drain(..) {
            let ready = Answer::Ready { connection: connection.clone(), warnings: std::mem::take(warnings) };
            // One that left in this moment takes nothing.
            if answer.send(ready).is_ok() {
                self.running.insert(visitor, cancel);
            }
        }
    }

    /// Tells everyone who waits that there is no browser; the first is told the warnings.
    pub(super) fn refuse(&mut self, fault: &Fault, warnings: &mut Vec<String>) {
        for Waiting { answer, .. } in self.waiting.drain(..) {
            // One that left in this moment needs no reason.
            let _ = answer.send(Answer::Refused { fault: fault.clone(), warnings: std::mem::take(warnings) });
        }
        self.idle_since = Instant::now();
    }

    pub(super) fn tell_progress(&self, phase: Phase) {
        self.tell_why(phase, None);
    }

    /// [`Callers::tell_progress`], with what holds it up.
    pub(super) fn tell_why(&self, phase: Phase, why: Option<&str>) {
        for waiting in &self.waiting {
            let _ = waiting.answer.send(Answer::Progress(phase, why.map(str::to_owned)));
        }
    }

    /// Ends every script, and refuses everyone who waits.
    pub(super) fn end_all(&mut self, reason: CancelReason, fault: &Fault) {
        self.running.values().for_each(|cancel| cancel.cancel(reason));
        self.refuse(fault, &mut Vec::new());
    }

    /// Whose scripts run.
    pub(super) fn running(&self) -> impl ExactSizeIterator<Item = VisitorId> {
        self.running.keys().copied()
    }

    pub(super) fn is_running(&self, visitor: VisitorId) -> bool {
        self.running.contains_key(&visitor)
    }

    pub(super) fn is_nobody_waiting(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }

    /// Since when there has been nobody; `None` while there is somebody.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        self.is_empty().then_some(self.idle_since)
    }
}
