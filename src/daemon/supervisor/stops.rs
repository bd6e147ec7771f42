//! Whoever wants everything released, and what it has come to so far.

use std::collections::BTreeSet;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use super::Supervisor;
use super::holding::Holding;
use crate::cancel::CancelReason;
use crate::daemon::desk::{After, LeaseId, StopAnswer, VisitorId};
use crate::lease::{Event, Lease, News};
use crate::wire::{Fault, FaultCode, Stopped};

/// How long releasing what is held may take: the normal close and then the gateway's answer.
const RELEASE_WITHIN: Duration = Duration::from_secs(20);

/// Every `stop` that is under way. Each has what was there when it came.
#[derive(Default)]
pub(super) struct Stops(Vec<Stop>);

struct Stop {
    answer: Sender<StopAnswer>,
    awaited: BTreeSet<LeaseId>,
    /// Scripts that it ended: they have the last word to their clients first.
    scripts: BTreeSet<VisitorId>,
    outcome: Stopped,
    after: After,
    /// When a gateway that has not answered counts as one that never will.
    answer_by: Instant,
    /// When a release that has not come to an end counts as unconfirmed.
    release_by: Instant,
}

impl Stop {
    /// Takes in what became of a lease.
    fn report(&mut self, id: LeaseId, news: &News) {
        // That callers gave up is not the end: the answer is still awaited.
        if matches!(news, News::Late(_)) || !self.awaited.remove(&id) {
            return;
        }
        match news {
            News::Released => self.outcome.released += 1,
            News::Unpaid(fault) | News::Owed(fault) => self.outcome.unconfirmed.push(fault.clone()),
            News::Refused(_) | News::Late(_) => {}
        }
    }
}

impl Stops {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// When a patience ends next.
    pub(super) fn due(&self) -> Option<Instant> {
        let now = Instant::now();
        self.0.iter().flat_map(|stop| [stop.answer_by, stop.release_by]).filter(|end| *end > now).min()
    }

    /// Takes in what became of a lease.
    pub(super) fn report(&mut self, id: LeaseId, news: &News) {
        self.0.iter_mut().for_each(|stop| stop.report(id, news));
    }
}

impl Supervisor {
    /// Ends every script and releases every browser; `answer` is told what it came to.
    pub(super) fn stop(&mut self, answer: Sender<StopAnswer>, after: After) {
        let all: Vec<_> = self.leases.keys().copied().collect();
        let answer_by = Instant::now() + self.means.allocation_timeout;
        // An answer that comes at the last moment brings something to release.
        let release_from = match self.leases.values().any(Holding::is_unanswered) {
            true => answer_by,
            false => Instant::now(),
        };
        self.stops.0.push(Stop {
            answer,
            awaited: all.iter().copied().collect(),
            scripts: self.callers.running().collect(),
            outcome: Stopped::default(),
            after,
            answer_by,
            release_by: release_from + RELEASE_WITHIN,
        });
        let fault = Fault::new(FaultCode::Cancelled, "ended by `ghost-browser stop`");
        self.callers.end_all(CancelReason::Stopped, &fault);
        self.current = None;
        self.since = Instant::now();
        // Whoever stops knows that the next call begins anew.
        self.warnings.clear();
        all.into_iter().for_each(|id| self.step(id, Event::Stop));
    }

    /// Whether a stop is at work on something that will have ended in a moment, so that the next browser can wait for it.
    /// A gateway that has not answered may take for ever: nobody waits for that but who stops.
    pub(super) fn is_stopping(&self) -> bool {
        let is_ending = |id: &LeaseId| self.leases.get(id).is_some_and(|holding| !holding.is_unanswered());
        self.stops.0.iter().any(|stop| self.has_scripts(stop) || stop.awaited.iter().any(is_ending))
    }

    fn has_scripts(&self, stop: &Stop) -> bool {
        stop.scripts.iter().any(|visitor| self.callers.is_running(*visitor))
    }

    /// Answers the stops whose releases have all come to something, or have taken too long.
    pub(super) fn finish_stops(&mut self, now: Instant) {
        let is_done = |stop: &Stop| {
            let is_over = |id: &LeaseId| match self.leases.get(id) {
                Some(holding) if holding.is_unanswered() => now >= stop.answer_by,
                _ => now >= stop.release_by,
            };
            stop.awaited.iter().all(is_over) && (!self.has_scripts(stop) || now >= stop.release_by)
        };
        let Some(place) = self.stops.0.iter().position(is_done) else { return };
        let stop = self.stops.0.remove(place);
        if stop.after == After::Nothing {
            self.guests.show_out();
        }
        let Stop { answer, awaited, mut outcome, .. } = stop;
        let left = awaited.iter().filter_map(|id| self.leases.get(id));
        outcome.unconfirmed.extend(left.map(|holding| unanswered(holding.lease())));
        let ends = self.leases.is_empty() && self.callers.is_empty() && self.guests.is_empty();
        // Whoever asked may have gone.
        let _ = answer.send(StopAnswer { stopped: outcome, ends });
        self.serve();
        self.finish_stops(now);
    }
}

fn unanswered(lease: &Lease) -> Fault {
    let message = match lease {
        Lease::Abandoning => "the gateway has not answered the allocation: it may still bring a browser",
        _ => "the release has not been confirmed",
    };
    Fault::new(FaultCode::ReleaseUnconfirmed, message).hint(
        "the daemon stays and releases what comes; `ghost-browser status` tells, `ghost-browser stop` waits again",
    )
}
