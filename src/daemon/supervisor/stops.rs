//! Whoever wants everything released, and what it has come to so far.

use std::collections::BTreeSet;
use std::sync::mpsc::Sender;
use std::time::Instant;

use super::Supervisor;
use crate::cancel::CancelReason;
use crate::daemon::desk::{After, LeaseId, StopAnswer};
use crate::lease::{Event, Lease, News};
use crate::wire::{Fault, FaultCode, Stopped};

/// Every `stop` that is under way. They all get the same answer.
#[derive(Default)]
pub(super) struct Stops(Option<Stop>);

struct Stop {
    answers: Vec<Sender<StopAnswer>>,
    awaited: BTreeSet<LeaseId>,
    outcome: Stopped,
    after: After,
    /// When what is still awaited counts as unconfirmed.
    until: Instant,
}

impl Stops {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.0.as_ref().map(|stop| stop.until)
    }

    /// Takes in what became of a lease.
    pub(super) fn report(&mut self, id: LeaseId, news: &News) {
        let Some(stop) = &mut self.0 else { return };
        // That callers gave up is not the end: the answer is still awaited.
        if matches!(news, News::Late(_)) || !stop.awaited.remove(&id) {
            return;
        }
        match news {
            News::Released => stop.outcome.released += 1,
            News::Unpaid(fault) | News::Owed(fault) => stop.outcome.unconfirmed.push(fault.clone()),
            News::Refused(_) | News::Late(_) => {}
        }
    }
}

impl Supervisor {
    /// Ends every script and releases every browser; `answer` is told what it came to.
    pub(super) fn stop(&mut self, answer: Sender<StopAnswer>, after: After) {
        if let Some(stop) = &mut self.stops.0 {
            stop.answers.push(answer);
            if after == After::Nothing {
                stop.after = after;
            }
            return;
        }
        self.stops.0 = Some(Stop {
            answers: vec![answer],
            awaited: self.leases.keys().copied().collect(),
            outcome: Stopped::default(),
            after,
            until: Instant::now() + self.means.allocation_timeout,
        });
        let fault = Fault::new(FaultCode::Cancelled, "ended by `ghost-browser stop`");
        self.callers.end_all(CancelReason::Stopped, &fault);
        self.current = None;
        self.since = Instant::now();
        // Whoever stops knows that the next call begins anew.
        self.warnings.clear();
        let all: Vec<_> = self.leases.keys().copied().collect();
        all.into_iter().for_each(|id| self.step(id, Event::Stop));
    }

    /// Answers a stop whose releases have all come to something, or have taken too long.
    pub(super) fn finish_stops(&mut self, now: Instant) {
        // Scripts end by their cancel within moments, and have the last word to their clients first.
        let has_scripts = self.callers.running() > 0;
        let is_done = |stop: &Stop| stop.awaited.is_empty() && !has_scripts || now >= stop.until;
        if !self.stops.0.as_ref().is_some_and(is_done) {
            return;
        }
        let Some(mut stop) = self.stops.0.take() else { return };
        if stop.after == After::Nothing {
            self.guests.show_out();
        }
        let ends = self.leases.is_empty() && self.callers.is_empty() && self.guests.is_empty();
        let left = stop.awaited.iter().filter_map(|id| self.leases.get(id));
        stop.outcome.unconfirmed.extend(left.map(|holding| unanswered(holding.lease())));
        for answer in stop.answers {
            // Whoever asked may have gone.
            let _ = answer.send(StopAnswer { stopped: stop.outcome.clone(), ends });
        }
        self.serve();
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
