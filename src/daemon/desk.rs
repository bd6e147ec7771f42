//! The supervisor's desk: what the daemon's other threads tell it and ask of it.
//!
//! Everything goes through one channel, so the supervisor sees one thing after the other and needs no lock. Whoever asks waits on
//! a channel of its own; an answer that nobody waits for any more is let go.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use crate::cancel::Cancel;
use crate::cdp::Connection;
use crate::lease;
use crate::wire::{Fault, Phase, Status, Stopped};

/// One client's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct VisitorId(pub(super) u64);

/// One browser's number, unique for the daemon's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct LeaseId(pub(super) u64);

/// What happens to a daemon.
pub(super) enum News {
    /// A caller wants the browser.
    Wanted { visitor: VisitorId, cancel: Cancel, answer: Sender<Answer> },
    /// A caller that was given the browser needs it no more; whether it gave its script up before that had ended.
    Finished { visitor: VisitorId, given_up: bool },
    /// A caller that still waits for the browser has gone, or has no more time.
    Gone(VisitorId),
    /// A client asks for the state.
    Status(Sender<Status>),
    /// A client wants everything released, and perhaps the daemon to end.
    Stop(Sender<StopAnswer>, After),
    /// A client has variables here, for as long as it is connected; it is asked to leave through the stream.
    Stays(VisitorId, UnixStream),
    /// It is no longer connected.
    Left(VisitorId),
    /// A lease's driver has something to tell.
    Lease(LeaseId, lease::Event),
    /// The gateway is asked for that browser once more, and why.
    Retrying(LeaseId, String),
    /// The connection to a browser stands, or could not be made.
    Connected(LeaseId, Result<Connection, Fault>),
    /// The connection to a browser ended, and why.
    Lost(LeaseId, String),
    /// A connection was closed by us; whether normally on both sides.
    Closed(LeaseId, bool),
    /// A keeper died.
    KeeperDied(LeaseId),
    /// The operating system wants the daemon to end.
    Signal,
}

/// What a stop is to leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    /// Nothing.
    Nothing,
    /// The daemon, where a client has variables in it.
    Guests,
}

/// What whoever stops is told.
pub(super) struct StopAnswer {
    pub(super) stopped: Stopped,
    /// Whether the daemon ends now: nothing is owed, and nobody else came meanwhile.
    pub(super) ends: bool,
}

/// What a caller that wants the browser is told.
pub(super) enum Answer {
    /// What it is waiting for now, and why that takes so long where it is known.
    Progress(Phase, Option<String>),
    /// The browser is there.
    Ready { connection: Connection, warnings: Vec<String> },
    /// There is none.
    Refused { fault: Fault, warnings: Vec<String> },
}

/// A way to the supervisor. Clones lead to the same one.
#[derive(Clone)]
pub(super) struct Desk {
    news: Sender<News>,
    has_browser: Arc<AtomicBool>,
}

impl Desk {
    /// The desk, and where its news arrives.
    pub(super) fn open() -> (Self, Receiver<News>) {
        let (sender, receiver) = mpsc::channel();
        (Self { news: sender, has_browser: Arc::default() }, receiver)
    }

    /// Tells the supervisor something. One that has ended has no use for it.
    pub(super) fn tell(&self, news: News) {
        let _ = self.news.send(news);
    }

    /// A sender for threads that know no desk.
    pub(super) fn sender(&self) -> Sender<News> {
        self.news.clone()
    }

    /// Whether a browser is connected at this moment: then a caller costs nothing but its script.
    pub(super) fn has_browser(&self) -> bool {
        self.has_browser.load(Ordering::Acquire)
    }

    /// The supervisor's word on that.
    pub(super) fn set_has_browser(&self, has_browser: bool) {
        self.has_browser.store(has_browser, Ordering::Release);
    }

    /// Asks for the browser.
    pub(super) fn want(&self, visitor: VisitorId, cancel: &Cancel) -> Receiver<Answer> {
        let (answer, answers) = mpsc::channel();
        self.tell(News::Wanted { visitor, cancel: cancel.clone(), answer });
        answers
    }

    /// Asks for the state; `None` when the supervisor has ended.
    pub(super) fn status(&self) -> Option<Status> {
        let (answer, answers) = mpsc::channel();
        self.tell(News::Status(answer));
        answers.recv_timeout(Duration::from_secs(5)).ok()
    }

    /// Has everything released and waits for what it comes to; `None` when the supervisor has ended.
    pub(super) fn stop(&self, after: After) -> Option<StopAnswer> {
        let (answer, answers) = mpsc::channel();
        self.tell(News::Stop(answer, after));
        answers.recv().ok()
    }

    /// A sink for what a lease's driver tells.
    pub(super) fn lease_sink(&self, id: LeaseId) -> Arc<dyn Fn(lease::Event) + Send + Sync> {
        let desk = self.clone();
        Arc::new(move |event| desk.tell(News::Lease(id, event)))
    }
}
