//! The one place where lease, connection and scripts meet: a thread that takes one piece of news after the other.
//!
//! Decisions about money are the lease's (`crate::lease`); the supervisor carries them out, keeps who waits and who runs
//! (`callers`), who wants everything released (`stops`), and says what is going on (`status`). It never waits for anything but
//! news: whatever takes time happens on another thread, which tells of it at the desk.

mod callers;
mod guests;
mod holding;
mod status;
mod stops;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use self::callers::Callers;
use self::guests::Guests;
use self::holding::Holding;
use self::stops::Stops;
use super::connector::Connector;
use super::desk::{Desk, LeaseId, News};
use crate::cancel::CancelReason;
use crate::cdp::Connection;
use crate::gateway::{Allocation, Gateway};
use crate::lease::{self, Action, Event, Lease, NotePlace};
use crate::redact::Redactor;
use crate::script::Host;
use crate::wire::{Fault, FaultCode, Phase};

/// How often lock and socket are looked for: a swept folder is rare and costs a browser.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// How long a daemon that nobody has asked anything waits for its starter.
const GRACE: Duration = Duration::from_secs(10);

/// What a supervisor works with, for its whole life.
pub(super) struct Means {
    pub(super) gateway: Arc<dyn Gateway>,
    pub(super) connector: Connector,
    pub(super) notes: NotePlace,
    pub(super) redactor: Redactor,
    pub(super) host: Arc<Host>,
    pub(super) desk: Desk,
    pub(super) idle: Duration,
    pub(super) allocation_timeout: Duration,
    pub(super) workspace: PathBuf,
    pub(super) name: String,
}

/// The state of one session.
pub(super) struct Supervisor {
    means: Means,
    news: Receiver<News>,
    leases: BTreeMap<LeaseId, Holding>,
    next_lease: u64,
    /// The lease that callers are served from: asking, connecting or connected.
    current: Option<LeaseId>,
    /// Releases that are awaited before the next browser is asked for.
    clearing: BTreeSet<LeaseId>,
    callers: Callers,
    guests: Guests,
    stops: Stops,
    /// What the next run should be told.
    warnings: Vec<String>,
    /// When the state that `status` tells began.
    since: Instant,
    born: Instant,
    has_served: bool,
    /// The process is to end as soon as nothing is under way.
    is_leaving: bool,
}

impl Supervisor {
    pub(super) fn new(means: Means, news: Receiver<News>) -> Self {
        let now = Instant::now();
        Self {
            means,
            news,
            leases: BTreeMap::new(),
            next_lease: 0,
            current: None,
            clearing: BTreeSet::new(),
            callers: Callers::default(),
            guests: Guests::default(),
            stops: Stops::default(),
            warnings: Vec::new(),
            since: now,
            born: now,
            has_served: false,
            is_leaving: false,
        }
    }

    /// Runs until there is neither a browser nor a debt nor anybody who wants one or has variables here, or until nobody
    /// could find us any more.
    pub(super) fn run(&mut self, is_findable: impl Fn() -> bool) {
        let mut look_at = Instant::now() + LOOK_EVERY;
        while !self.is_over() {
            let due = self.next_due().map_or(look_at, |due| due.min(look_at));
            match self.news.recv_timeout(due.saturating_duration_since(Instant::now())) {
                Ok(news) => self.take(news),
                Err(RecvTimeoutError::Timeout) => {}
                // The desk is ours, too: it cannot close.
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.pass_time(Instant::now());
            self.means.desk.set_has_browser(self.is_connected());
            if Instant::now() >= look_at {
                look_at = Instant::now() + LOOK_EVERY;
                if !is_findable() {
                    tracing::error!("the state folder was swept away: releasing and ending");
                    self.leave();
                }
            }
        }
    }

    fn is_over(&self) -> bool {
        let idle = self.callers.is_empty() && self.guests.is_empty() && self.stops.is_empty();
        let settled = match self.is_leaving {
            // What cannot be paid now is the keeper's from here on.
            true => self.leases.values().all(|holding| holding.is_at_rest()),
            false => self.leases.is_empty(),
        };
        settled
            && (self.is_leaving
                || idle && self.has_nothing_to_say() && (self.has_served || self.born.elapsed() >= GRACE))
    }

    /// A browser that was lost between two calls is told to the second one, if that comes before the idle limit.
    fn has_nothing_to_say(&self) -> bool {
        self.warnings.is_empty() || self.since.elapsed() >= self.means.idle
    }

    fn take(&mut self, news: News) {
        match news {
            News::Wanted { visitor, cancel, answer } => {
                self.has_served = true;
                // Who waits for a daemon to end goes to the next one. Where that may take as long as a gateway likes, this
                // one goes on instead.
                self.is_leaving &= !self.leases.values().any(Holding::is_unanswered);
                self.callers.wait(visitor, cancel, answer);
                self.serve();
            }
            News::Finished { visitor, given_up } => {
                self.callers.finish(visitor);
                if given_up {
                    self.let_go_if_unwanted();
                }
            }
            News::Gone(visitor) => {
                if self.callers.leave(visitor) {
                    self.let_go_if_unwanted();
                }
            }
            News::Status(answer) => {
                // Whoever asked may have gone.
                let _ = answer.send(self.status());
            }
            News::Stop(answer, after) => {
                self.has_served = true;
                self.stop(answer, after);
            }
            News::Stays(visitor, way_out) => self.guests.welcome(visitor, way_out),
            News::Left(visitor) => self.guests.leave(visitor),
            News::Lease(id, event) => self.step(id, event),
            News::Retrying(id, why) if self.current == Some(id) => {
                self.callers.tell_why(Phase::Allocating, Some(&why));
            }
            // Nobody waits for that one any more.
            News::Retrying(..) => {}
            News::Connected(id, outcome) => self.connected(id, outcome),
            News::Lost(id, why) => self.lost(id, &why),
            News::Closed(id, normally) => self.step(id, Event::Closed { normally }),
            News::KeeperDied(id) => self.replace_keeper(id),
            News::Signal => self.leave(),
        }
    }

    /// Gives the browser to whoever waits, or sees to it that there will be one.
    fn serve(&mut self) {
        if self.callers.is_nobody_waiting() || self.is_leaving {
            return;
        }
        if self.is_stopping() || !self.clearing.is_empty() {
            return self.callers.tell_progress(Phase::Releasing);
        }
        match self.current {
            Some(id) => match self.leases[&id].connection() {
                Some(connection) => {
                    let connection = connection.clone();
                    match self.keep(id) {
                        Ok(()) => self.callers.give(&connection, &mut self.warnings),
                        Err(fault) => self.callers.refuse(&fault, &mut self.warnings),
                    }
                }
                None => self.callers.tell_progress(self.leases[&id].phase()),
            },
            None => self.prepare_to_ask(),
        }
    }

    /// No script works on a browser that would be lost with this process.
    fn keep(&mut self, id: LeaseId) -> Result<(), Fault> {
        match self.leases.get_mut(&id) {
            Some(holding) if holding.is_unkept() => holding.renew_keeper(),
            _ => Ok(()),
        }
    }

    /// Releases that are under way are awaited, and failed ones tried once more, before the next browser is asked for.
    fn prepare_to_ask(&mut self) {
        let unpaid: Vec<_> =
            self.leases.iter().filter(|(_, holding)| holding.is_releasing()).map(|(id, _)| *id).collect();
        if unpaid.is_empty() {
            return self.ask();
        }
        self.callers.tell_progress(Phase::Releasing);
        self.clearing = unpaid.iter().copied().collect();
        unpaid.into_iter().for_each(|id| self.step(id, Event::Retry));
    }

    fn ask(&mut self) {
        self.warnings.extend(self.leases.values().filter_map(Holding::debt_warning));
        self.warnings.extend(self.left_behind());
        let id = self.new_lease(Lease::Vacant);
        self.current = Some(id);
        self.since = Instant::now();
        self.callers.tell_progress(Phase::Allocating);
        self.step(id, Event::Wanted);
    }

    /// What earlier daemons of this session left, whether their keepers pay for it or nobody.
    fn left_behind(&self) -> Vec<String> {
        let notes = lease::find(&self.means.notes.folder, &self.means.notes.key).unwrap_or_default();
        let warning = |note: &lease::FoundNote| match note.is_locked() {
            true => {
                "the browser of an earlier daemon is still being released by its keeper; `ghost-browser status` tells"
                    .to_owned()
            }
            false => {
                format!("{}, left by an earlier call: `ghost-browser stop` tells and forgets it", note.what_is_left())
            }
        };
        notes.iter().filter(|note| note.writer() != Some(std::process::id())).map(warning).collect()
    }

    fn new_lease(&mut self, lease: Lease) -> LeaseId {
        self.next_lease += 1;
        let id = LeaseId(self.next_lease);
        self.leases.insert(id, Holding::new(id, lease, &self.means));
        id
    }

    /// Feeds one event to one lease and carries out what follows.
    fn step(&mut self, id: LeaseId, event: Event) {
        let Some(holding) = self.leases.get_mut(&id) else { return };
        let actions = holding.step(event, Instant::now());
        for action in actions {
            self.act(id, action);
        }
        if self.leases.get(&id).is_some_and(|holding| matches!(holding.lease(), Lease::Vacant)) {
            self.leases.remove(&id);
        }
    }

    fn act(&mut self, id: LeaseId, action: Action) {
        let means = &self.means;
        let Some(holding) = self.leases.get_mut(&id) else { return };
        match action {
            Action::Ask => holding.ask(Instant::now() + means.allocation_timeout),
            Action::Abandon => holding.abandon(),
            Action::Entrust(capability) => {
                capability.secrets().iter().for_each(|secret| means.redactor.learn(secret));
                // Without a keeper the browser is not used: it is released as if it could not be reached.
                if let Err(fault) = holding.entrust(&capability) {
                    holding.set_cause(fault.clone());
                    means.desk.tell(News::Connected(id, Err(fault)));
                }
            }
            Action::Connect(endpoint) => {
                holding.connect(endpoint, means);
                self.callers.tell_progress(Phase::Connecting);
            }
            Action::Disconnect => holding.disconnect(means),
            Action::CloseStray(endpoint) => holding::close_stray(endpoint, means),
            Action::Release { capability, attempt, closed } => holding.release(capability, attempt, closed),
            Action::Settle(capability) => holding.settle(capability),
            Action::Notice(notice) => self.warnings.push(notice),
            Action::Report(news) => self.report(id, news),
            Action::Unasked(allocation) => self.take_in(allocation),
        }
    }

    /// A browser that nobody asked for is a debt all the same.
    fn take_in(&mut self, allocation: Allocation) {
        let id = self.new_lease(Lease::Abandoning);
        self.step(id, Event::Answered(allocation));
    }

    fn report(&mut self, id: LeaseId, news: lease::News) {
        tracing::info!(lease = id.0, %news, "lease");
        let holding = self.leases.get_mut(&id);
        let cause = holding.and_then(Holding::take_cause);
        self.stops.report(id, &news);
        if self.current == Some(id) {
            self.current = None;
            self.since = Instant::now();
            if let Some(fault) = refusal(news, cause) {
                self.callers.refuse(&fault, &mut self.warnings);
            }
        }
        self.clear(id);
    }

    /// A release that was awaited has come to something: with the last one the next browser is asked for, paid or not.
    fn clear(&mut self, id: LeaseId) {
        let was_awaited = self.clearing.remove(&id);
        let is_wanted = !self.callers.is_nobody_waiting() && !self.is_stopping() && !self.is_leaving;
        if was_awaited && self.clearing.is_empty() && self.current.is_none() && is_wanted {
            self.ask();
        } else {
            self.serve();
        }
    }

    fn connected(&mut self, id: LeaseId, outcome: Result<Connection, Fault>) {
        let Some(holding) = self.leases.get_mut(&id) else { return };
        match outcome {
            // It ended with the last word of its set-up, and the news of that came before this.
            Ok(connection) if let Some(reason) = connection.closed() => {
                holding.set_cause(
                    Fault::new(FaultCode::NoBrowser, "the browser's connection ended as soon as it stood")
                        .caused_by(&reason),
                );
                self.step(id, Event::ConnectionLost);
            }
            Ok(connection) => {
                if holding.take_connection(connection) {
                    self.means.host.forget_page();
                    self.since = Instant::now();
                    self.serve();
                }
            }
            Err(fault) => {
                holding.set_cause(fault);
                self.step(id, Event::ConnectionLost);
            }
        }
    }

    /// The connection ended. When we ended it ourselves, that is told by [`News::Closed`].
    fn lost(&mut self, id: LeaseId, why: &str) {
        let Some(holding) = self.leases.get_mut(&id) else { return };
        if !holding.is_connected() {
            return;
        }
        tracing::error!(lease = id.0, why, "the browser was lost");
        self.warnings.push(format!("the browser that was here is lost: {why}"));
        if self.current == Some(id) {
            self.current = None;
            self.since = Instant::now();
        }
        self.step(id, Event::ConnectionLost);
    }

    fn replace_keeper(&mut self, id: LeaseId) {
        let Some(holding) = self.leases.get_mut(&id) else { return };
        tracing::error!(lease = id.0, "the keeper is gone: starting another");
        if let Err(fault) = holding.renew_keeper() {
            tracing::error!(%fault, "no keeper");
        }
    }

    fn is_connected(&self) -> bool {
        self.current.is_some_and(|id| self.leases[&id].is_connected())
    }

    /// Whether the browser was never sent a command by a script.
    fn is_unused(&self) -> bool {
        self.current.is_some_and(|id| self.leases[&id].is_unused())
    }

    /// A browser that the last caller left before any script had sent it a command is not worth holding.
    fn let_go_if_unwanted(&mut self) {
        if self.callers.is_empty() && (!self.is_connected() || self.is_unused()) {
            self.let_go();
        }
    }

    fn let_go(&mut self) {
        if let Some(id) = self.current.take() {
            self.since = Instant::now();
            // What was to be told of it is nobody's news any more.
            self.warnings.clear();
            self.step(id, Event::Unwanted);
        }
    }

    fn pass_time(&mut self, now: Instant) {
        for id in self.due(now, Holding::due) {
            if let Some(event) = self.leases.get_mut(&id).map(|holding| holding.time_event(now)) {
                self.step(id, event);
            }
        }
        for id in self.due(now, Holding::keeper_due) {
            self.replace_keeper(id);
        }
        if self.idle_until().is_some_and(|until| now >= until) {
            tracing::info!("idle: releasing the browser");
            self.let_go();
        }
        self.finish_stops(now);
    }

    /// The leases whose time has come.
    fn due(&self, now: Instant, due: fn(&Holding) -> Option<Instant>) -> Vec<LeaseId> {
        let is_due = |holding: &Holding| due(holding).is_some_and(|due| now >= due);
        self.leases.iter().filter(|(_, holding)| is_due(holding)).map(|(id, _)| *id).collect()
    }

    /// When an idle browser is released; `None` while it is not idle.
    fn idle_until(&self) -> Option<Instant> {
        let idle_since = self.callers.idle_since()?;
        self.is_connected().then(|| idle_since.max(self.since) + self.means.idle)
    }

    fn next_due(&self) -> Option<Instant> {
        let leases = self.leases.values().flat_map(|holding| holding.due().into_iter().chain(holding.keeper_due()));
        let grace = (!self.has_served).then(|| self.born + GRACE);
        let is_waiting_to_say = self.leases.is_empty() && self.callers.is_empty() && !self.warnings.is_empty();
        let silence = is_waiting_to_say.then(|| self.since + self.means.idle);
        leases.chain(self.idle_until()).chain(self.stops.due()).chain(grace).chain(silence).min()
    }

    /// Ends in an orderly way: what can be released is; the rest is the keepers'.
    fn leave(&mut self) {
        self.is_leaving = true;
        self.callers.end_all(CancelReason::DaemonEnds, &ended_by_signal());
        self.guests.show_out();
        self.current = None;
        let all: Vec<_> = self.leases.keys().copied().collect();
        all.into_iter().for_each(|id| self.step(id, Event::Unwanted));
    }
}

/// What callers that waited for this lease are told.
fn refusal(news: lease::News, cause: Option<Fault>) -> Option<Fault> {
    match (news, cause) {
        (lease::News::Refused(fault) | lease::News::Late(fault), _) => Some(fault),
        (lease::News::Released, cause) => cause,
        (lease::News::Unpaid(fault) | lease::News::Owed(fault), None) => Some(fault),
        // The connection failed, and then the release: the release is what costs.
        (lease::News::Unpaid(fault) | lease::News::Owed(fault), Some(cause)) => Some(lease::join(Some(cause), fault)),
    }
}

fn ended_by_signal() -> Fault {
    Fault::new(FaultCode::Cancelled, "the daemon was told to end")
}
