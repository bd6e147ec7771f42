//! One lease and all that belongs to it: its driver at the gateway, its keeper, its connection.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::Means;
use crate::cancel::{Cancel, CancelReason};
use crate::cdp::{Call, CloseReason, Closing, Connection};
use crate::daemon::connector::Connector;
use crate::daemon::desk::{LeaseId, News};
use crate::daemon::post::Post;
use crate::gateway::{Capability, Endpoint};
use crate::lease::{Action, Driver, Event, Lease, Note};
use crate::wire::{Fault, FaultCode, Phase};

/// How long a connection's normal end may take.
const CLOSE_WITHIN: Duration = Duration::from_secs(5);

/// How long a local browser whose pipe broke may take to be dead.
const DEATH_WITHIN: Duration = Duration::from_millis(500);

/// How long a local browser may take to say that it will close.
const GOODBYE_WITHIN: Duration = Duration::from_secs(2);

/// How soon a keeper that could not be started is tried again.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The longest pause between two tries.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// One lease of the supervisor.
pub(super) struct Holding {
    id: LeaseId,
    lease: Lease,
    driver: Driver,
    post: Arc<Post>,
    link: Link,
    /// When the callers' wait for the gateway is over.
    expires: Option<Instant>,
    /// Why callers get no browser although one was allocated.
    cause: Option<Fault>,
    /// Set while its keeper died and could not be replaced.
    unkept: Option<Unkept>,
}

/// A browser whose keeper died and could not be replaced.
#[derive(Clone, Copy)]
struct Unkept {
    /// When the next one is tried.
    due: Instant,
    /// How long was waited for that.
    pause: Duration,
}

/// How far the connection is.
enum Link {
    None,
    /// Being made on another thread, which gives up when `given_up` is raised.
    Dialling {
        given_up: Cancel,
        ends_by_command: bool,
    },
    /// Made. `given_up` tells an end that we want from one that happens to us.
    Open {
        connection: Connection,
        given_up: Cancel,
        ends_by_command: bool,
    },
}

impl Holding {
    pub(super) fn new(id: LeaseId, lease: Lease, means: &Means) -> Self {
        let post = Arc::new(Post::new(id, means.desk.clone()));
        let entrusted = post.clone();
        let entrust = Arc::new(move |capability: &Capability, note: &Note| entrusted.entrust(capability, note));
        let desk = means.desk.clone();
        let on_retry = Arc::new(move |why| desk.tell(News::Retrying(id, why)));
        let sink = means.desk.lease_sink(id);
        let driver = Driver::new(means.gateway.clone(), means.notes.clone(), entrust, sink, on_retry);
        Self { id, lease, driver, post, link: Link::None, expires: None, cause: None, unkept: None }
    }

    pub(super) fn lease(&self) -> &Lease {
        &self.lease
    }

    pub(super) fn step(&mut self, event: Event, now: Instant) -> Vec<Action> {
        let lease = std::mem::replace(&mut self.lease, Lease::Vacant);
        let (lease, actions) = lease.step(event, now);
        self.lease = lease;
        actions
    }

    /// When time alone can move something.
    pub(super) fn due(&self) -> Option<Instant> {
        match self.lease {
            Lease::Asking => self.expires,
            _ => self.lease.due(),
        }
    }

    /// What the passing of time means to the lease.
    pub(super) fn time_event(&mut self, now: Instant) -> Event {
        match (&self.lease, self.expires) {
            (Lease::Asking, Some(expires)) if now >= expires => self.driver.expired(),
            _ => Event::Tick,
        }
    }

    pub(super) fn ask(&mut self, deadline: Instant) {
        self.expires = Some(deadline);
        self.driver.ask(deadline);
    }

    pub(super) fn abandon(&mut self) {
        self.driver.abandon();
    }

    /// Returns once a keeper has the capability.
    pub(super) fn entrust(&self, capability: &Capability) -> Result<(), Fault> {
        self.driver.entrust(capability)
    }

    /// Makes sure that a keeper has what there is to keep. One that could not be started is due again after a pause.
    pub(super) fn renew_keeper(&mut self) -> Result<(), Fault> {
        let Some(capability) = self.lease.capability().cloned() else { return Ok(()) };
        let kept = self.entrust(&capability);
        let pause = self.unkept.map_or(FIRST_PAUSE, |unkept| (unkept.pause * 2).min(LONGEST_PAUSE));
        self.unkept = kept.is_err().then(|| Unkept { due: Instant::now() + pause, pause });
        kept
    }

    /// Whether its keeper died and could not be replaced.
    pub(super) fn is_unkept(&self) -> bool {
        self.unkept.is_some()
    }

    /// When a keeper that could not be started is tried again.
    pub(super) fn keeper_due(&self) -> Option<Instant> {
        self.unkept.filter(|_| self.lease.capability().is_some()).map(|unkept| unkept.due)
    }

    /// Starts dialling; [`News::Connected`] is the answer, and [`News::Lost`] the end.
    pub(super) fn connect(&mut self, endpoint: Endpoint, means: &Means) {
        if self.cause.is_some() {
            return;
        }
        let given_up = Cancel::new();
        // A local browser is told to close; a hosted one is the gateway's to end.
        let ends_by_command = matches!(endpoint, Endpoint::Pipe { .. });
        self.link = Link::Dialling { given_up: given_up.clone(), ends_by_command };
        let (id, desk, connector) = (self.id, means.desk.clone(), means.connector.clone());
        let capability = self.lease.capability().cloned();
        // A browser that died by itself tells more than a broken pipe.
        let post_mortem = move || capability.as_ref()?.post_mortem(DEATH_WITHIN);
        let (lost, death) = (desk.clone(), post_mortem.clone());
        let is_ours = given_up.clone();
        let on_close = move |reason: CloseReason| {
            if is_ours.is_cancelled() {
                return;
            }
            let why = death().map_or_else(|| reason.to_string(), |death| death.message);
            lost.tell(News::Lost(id, why));
        };
        let dial = move || {
            let outcome = connector.connect(endpoint, &given_up, on_close);
            desk.tell(News::Connected(id, outcome.map_err(|fault| post_mortem().unwrap_or(fault))));
        };
        if let Err(error) = thread::Builder::new().name("connect".to_owned()).spawn(dial) {
            let fault = Fault::new(FaultCode::NoBrowser, "browser connection failed").caused_by(&error);
            means.desk.tell(News::Connected(id, Err(fault)));
        }
    }

    /// Takes the connection, if the browser is still wanted.
    pub(super) fn take_connection(&mut self, connection: Connection) -> bool {
        match (&self.lease, &self.link) {
            (Lease::Held { .. }, Link::Dialling { given_up, ends_by_command }) => {
                let (given_up, ends_by_command) = (given_up.clone(), *ends_by_command);
                self.link = Link::Open { connection, given_up, ends_by_command };
                true
            }
            _ => false,
        }
    }

    /// Closes the connection on another thread; [`News::Closed`] is the answer.
    pub(super) fn disconnect(&mut self, means: &Means) {
        let (id, desk) = (self.id, means.desk.clone());
        match std::mem::replace(&mut self.link, Link::None) {
            Link::Open { connection, given_up, ends_by_command } => {
                given_up.cancel(CancelReason::Stopped);
                let close = {
                    let desk = desk.clone();
                    move || desk.tell(News::Closed(id, close(&connection, ends_by_command)))
                };
                if thread::Builder::new().name("disconnect".to_owned()).spawn(close).is_err() {
                    desk.tell(News::Closed(id, false));
                }
            }
            Link::Dialling { given_up, .. } => {
                given_up.cancel(CancelReason::Stopped);
                desk.tell(News::Closed(id, false));
            }
            Link::None => desk.tell(News::Closed(id, false)),
        }
    }

    pub(super) fn release(&mut self, capability: Capability, attempt: u32, closed: bool) {
        // A local browser ends when its pipe is closed, so nothing of the link may be left.
        if let Link::Dialling { given_up, .. } = std::mem::replace(&mut self.link, Link::None) {
            given_up.cancel(CancelReason::Stopped);
        }
        self.driver.release(capability, attempt, closed);
    }

    /// The debt is over: the note goes, the keeper goes, and only then may the browser's process number be used again.
    pub(super) fn settle(&mut self, capability: Option<Capability>) {
        if let Err(error) = self.driver.settle() {
            tracing::error!(%error, "the note could not be removed");
        }
        self.post.dismiss();
        if let Some(capability) = capability {
            capability.settle();
        }
    }

    pub(super) fn connection(&self) -> Option<&Connection> {
        match (&self.lease, &self.link) {
            (Lease::Held { .. }, Link::Open { connection, .. }) => Some(connection),
            _ => None,
        }
    }

    pub(super) fn is_connected(&self) -> bool {
        self.connection().is_some()
    }

    /// Whether no script has sent it a command.
    pub(super) fn is_unused(&self) -> bool {
        self.connection().is_some_and(|connection| connection.statistics().calls == 0)
    }

    /// Whether a release is under way or has failed and can be tried again.
    pub(super) fn is_releasing(&self) -> bool {
        matches!(self.lease, Lease::Closing { .. } | Lease::Releasing { .. } | Lease::Unpaid { .. })
    }

    /// Whether the gateway has not said yet what there is to release.
    pub(super) fn is_unanswered(&self) -> bool {
        matches!(self.lease, Lease::Asking | Lease::Abandoning)
    }

    /// Whether nothing is under way: what is left is a keeper's, or nobody's.
    pub(super) fn is_at_rest(&self) -> bool {
        matches!(self.lease, Lease::Vacant | Lease::Unpaid { .. } | Lease::Owed { .. })
    }

    pub(super) fn phase(&self) -> Phase {
        match self.lease {
            Lease::Held { .. } => Phase::Connecting,
            _ => Phase::Allocating,
        }
    }

    /// What a run that allocates beside this debt is told.
    pub(super) fn debt_warning(&self) -> Option<String> {
        match &self.lease {
            Lease::Unpaid { why, .. } => {
                Some(format!("an earlier browser is not released yet, and may be billed: {why}"))
            }
            Lease::Owed { why } => Some(format!("an earlier browser may still be running and billed: {why}")),
            _ => None,
        }
    }

    pub(super) fn keeper_pid(&self) -> Option<u32> {
        self.post.pid()
    }

    pub(super) fn set_cause(&mut self, cause: Fault) {
        self.cause.get_or_insert(cause);
    }

    pub(super) fn take_cause(&mut self) -> Option<Fault> {
        self.cause.take()
    }
}

/// Ends a connection; true when both sides closed it normally.
fn close(connection: &Connection, ends_by_command: bool) -> bool {
    if ends_by_command {
        let caller = connection.caller(&Cancel::new());
        // It may be closing already, or hang: the release ends it either way.
        let _ = caller.call(&Call::browser("Browser.close", "{}"), Instant::now() + GOODBYE_WITHIN);
    }
    connection.close(CLOSE_WITHIN) == Closing::Normal
}

/// Opens and closes a browser that nothing can release by name: the best that can be done.
pub(super) fn close_stray(endpoint: Endpoint, means: &Means) {
    let connector: Connector = means.connector.clone();
    let visit = move || {
        if let Ok(connection) = connector.connect(endpoint, &Cancel::new(), |_| {}) {
            connection.close(CLOSE_WITHIN);
        }
    };
    // Its debt is told as unconfirmed whether this works or not.
    let _ = thread::Builder::new().name("stray".to_owned()).spawn(visit);
}
