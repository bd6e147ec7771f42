//! One client: its hello, its request, and for a script two threads: this one listens for a cancel or the client's
//! death, the other runs the script and writes. A session of lines is one client with many scripts, one after the
//! other, whose variables are kept until it leaves.
//!
//! `errand` is the script's thread, `writer` what goes back meanwhile, `visits` how the daemon's end waits for answers.

mod errand;
mod visits;
mod writer;

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use self::errand::{Errand, Lifetime};
use self::visits::Here;
pub(super) use self::visits::Visits;
use self::writer::{Asking, Writer};
use super::desk::{After, Desk, News, VisitorId};
use crate::cancel::{Cancel, CancelReason};
use crate::redact::Redactor;
use crate::script::{Host, Kept};
use crate::wire::{BUILD, Fault, FaultCode, PROTOCOL, Reply, Request, Run, read_frame, write_frame};

/// How long a client may take to read what is left for it, when the daemon or its script ends.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// What every visit needs.
pub(super) struct House {
    pub(super) desk: Desk,
    pub(super) host: Arc<Host>,
    pub(super) redactor: Redactor,
    pub(super) visits: Visits,
    /// The digest of the token that this daemon's browsers belong to; `None` where none is needed.
    pub(super) credential: Option<String>,
    /// The digest of the settings that this daemon keeps.
    pub(super) settings: String,
    /// How long a client may read nothing.
    pub(super) patience: Duration,
}

/// Serves one client until it or its request is done.
pub(super) fn receive(stream: UnixStream, id: VisitorId, house: &Arc<House>) {
    let mut visit = Visit { reader: stream, id, house, session: None };
    // A client that hangs up needs no answer.
    let _ = visit.serve();
    visit.leave();
}

struct Visit<'a> {
    reader: UnixStream,
    id: VisitorId,
    house: &'a Arc<House>,
    session: Option<Session>,
}

/// A client that sends one line after the other.
struct Session {
    kept: Arc<Kept>,
    /// The line that runs, or ran last.
    last: Option<Running>,
    /// Whether its client has been told that it is done.
    is_done: Arc<AtomicBool>,
}

/// A script on a thread of its own.
struct Running {
    cancel: Cancel,
    asking: Arc<Asking>,
    thread: JoinHandle<()>,
}

impl Visit<'_> {
    fn serve(&mut self) -> io::Result<()> {
        while let Some(request) = read_frame(&mut self.reader)? {
            let here = self.house.visits.enter();
            match request {
                Request::Run(run) if run.credential != self.house.credential => {
                    self.answer(&Reply::Refused(other_credential()))?;
                }
                Request::Run(run) if run.line.is_some() => self.run_line(*run, here)?,
                Request::Run(run) => self.run(*run, here)?,
                Request::Stop => {
                    let Some(answer) = self.house.desk.stop(self.after_stop()) else { return Ok(()) };
                    self.answer(&Reply::Stopped(Box::new(answer.stopped)))?;
                    // Whoever stops waits for our end: the process's where that comes, else this connection's. A session goes on.
                    if !answer.ends && self.session.is_none() {
                        return Ok(());
                    }
                }
                Request::Status => match self.house.desk.status() {
                    Some(status) => self.answer(&Reply::Status(Box::new(status)))?,
                    None => return Ok(()),
                },
                Request::Hello { .. } => self.answer(&hello())?,
                Request::Cancel => self.cancel_line(CancelReason::Interrupted),
                Request::Secret { name, answer } => {
                    self.line().into_iter().for_each(|line| line.asking.hear(&name, answer.clone()));
                }
                Request::Unknown => self.answer(&Reply::Refused(unknown_request()))?,
            }
        }
        Ok(())
    }

    fn answer(&mut self, reply: &Reply) -> io::Result<()> {
        write_frame(&mut self.reader, reply)
    }

    /// Has the script run on another thread, and listens to the client meanwhile.
    fn run(&mut self, run: Run, here: Here) -> io::Result<()> {
        let Running { cancel, asking, .. } = self.start(run, here, Lifetime::Script)?;
        loop {
            match read_frame(&mut self.reader) {
                Ok(Some(Request::Cancel)) => self.cancel(&cancel, CancelReason::Interrupted),
                Ok(Some(Request::Secret { name, answer })) => asking.hear(&name, answer),
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => {
                    self.cancel(&cancel, CancelReason::ClientGone);
                    return Ok(());
                }
            }
        }
    }

    /// Has a line run on another thread, and goes on listening.
    fn run_line(&mut self, run: Run, here: Here) -> io::Result<()> {
        let mut session = match self.session.take().map_or_else(|| self.settle(), |session| Ok(Ok(session)))? {
            Ok(session) => session,
            Err(fault) => return self.answer(&Reply::Refused(fault)),
        };
        let outcome = if session.is_done.swap(false, Ordering::AcqRel) {
            // The last one has had its last word: what is left of it takes moments.
            let last = session.last.take().map(|last| last.thread.join());
            drop(last);
            let lifetime = Lifetime::Session { kept: session.kept.clone(), is_done: session.is_done.clone() };
            self.start(run, here, lifetime).map(|running| session.last = Some(running))
        } else {
            self.answer(&Reply::Refused(one_at_a_time()))
        };
        self.session = Some(session);
        outcome
    }

    /// Becomes a client with variables here.
    fn settle(&self) -> io::Result<Result<Session, Fault>> {
        let way_out = self.reader.try_clone()?;
        Ok(Kept::new(self.house.host.clone()).map(|kept| {
            self.house.desk.tell(News::Stays(self.id, way_out));
            Session { kept: Arc::new(kept), last: None, is_done: Arc::new(AtomicBool::new(true)) }
        }))
    }

    /// The line that runs, or ran last.
    fn line(&self) -> Option<&Running> {
        self.session.as_ref()?.last.as_ref()
    }

    /// Nothing is left to end where no line runs.
    fn cancel_line(&self, reason: CancelReason) {
        self.line().into_iter().for_each(|line| self.cancel(&line.cancel, reason));
    }

    /// Whoever has variables here wants them kept.
    fn after_stop(&self) -> After {
        if self.session.is_some() { After::Guests } else { After::Nothing }
    }

    fn leave(self) {
        self.cancel_line(CancelReason::ClientGone);
        if self.session.is_some() {
            self.house.desk.tell(News::Left(self.id));
        }
    }

    /// Starts a script on a thread of its own.
    fn start(&self, run: Run, here: Here, lifetime: Lifetime) -> io::Result<Running> {
        let cancel = Cancel::new();
        let writer = Arc::new(Writer::new(self.reader.try_clone()?, self.house)?);
        let asking = Arc::new(Asking::new(writer.clone()));
        let errand = Errand {
            writer,
            asking: asking.clone(),
            cancel: cancel.clone(),
            id: self.id,
            house: self.house.clone(),
            lifetime,
        };
        let work = move || {
            errand.carry_out(run);
            drop(here);
        };
        let thread = thread::Builder::new().name("errand".to_owned()).stack_size(256 << 10).spawn(work)?;
        Ok(Running { cancel, asking, thread })
    }

    fn cancel(&self, cancel: &Cancel, reason: CancelReason) {
        cancel.cancel(reason);
        self.house.desk.tell(News::Gone(self.id));
    }
}

fn hello() -> Reply {
    Reply::Hello { protocol: PROTOCOL, build: BUILD.to_owned(), pid: std::process::id() }
}

fn unknown_request() -> Fault {
    Fault::new(FaultCode::Usage, format!("a request that build {BUILD} does not know"))
        .hint("`ghost-browser stop` ends this daemon; the next call starts one of your build")
}

fn one_at_a_time() -> Fault {
    Fault::new(FaultCode::Usage, "a line of this session still runs")
}

fn other_credential() -> Fault {
    Fault::new(FaultCode::OtherCredential, "another credential owns this session")
        .hint("`ghost-browser stop` releases its browser; or `--name` starts a session beside it")
}
