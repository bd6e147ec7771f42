//! Finding or starting the daemon of one session.

use std::collections::HashSet;
use std::thread;
use std::time::{Duration, Instant};

use super::connection::{Connection, PATIENCE, Peer};
use super::interrupt;
use super::notes::{self, Living, Whose, both};
use super::run::{Listener, Outcome, Sent, run};
use super::start::{Program, StartLock, start};
use super::vault::Vault;
use crate::config::Settings;
use crate::launch::Launch;
use crate::places::Places;
use crate::wire::{Fault, FaultCode, Run, Status, StatusState, Stopped};
use crate::workspace::{Session, SessionFiles};

/// How often a script is brought to a daemon that ends just as we come. Where others stop and start all the time, twice is
/// easily too few.
const TRIES: usize = 5;

/// The way to one session's daemon.
pub struct Door {
    /// Whose daemon.
    pub session: Session,
    /// Where it may be.
    pub places: Places,
}

/// A daemon that told its state.
#[derive(Debug)]
pub struct Live {
    /// Its files.
    pub files: SessionFiles,
    /// What it told.
    pub status: Status,
}

/// A daemon that did not tell its state.
#[derive(Debug)]
pub struct Silent {
    /// Its session's key.
    pub key: String,
    /// Why: it may hold a browser.
    pub fault: Fault,
}

/// Every daemon of a user, whatever its session.
#[derive(Debug, Default)]
pub struct Everyone {
    /// Those that told their state.
    pub live: Vec<Live>,
    /// Those that did not, though there is somebody.
    pub silent: Vec<Silent>,
}

/// What a daemon is started from.
pub struct Start<'s> {
    /// What it keeps.
    pub settings: &'s Settings,
    /// What is run.
    pub program: &'s Program,
    /// When the caller wants to have its answer.
    pub deadline: Option<Instant>,
    /// Asked before anything is started.
    pub check: &'s dyn Fn() -> Result<(), Fault>,
}

impl Start<'_> {
    /// How long a daemon may take to answer.
    fn patience(&self) -> Duration {
        let left = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        left.map_or(PATIENCE, |left| left.min(PATIENCE))
    }

    /// Counts tries: a daemon that ends just as we come takes nothing, so that another one cannot run anything twice.
    pub(super) fn tries(&self) -> impl Iterator<Item = usize> {
        let is_over = || self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        (0..TRIES).take_while(move |&tried| tried == 0 || !is_over())
    }
}

impl Door {
    /// Connects to the daemon where one lives. Starts and creates nothing.
    ///
    /// # Errors
    /// [`FaultCode::NoBrowser`] for a socket that cannot be reached or is not of this user.
    pub fn find(&self) -> Result<Option<Connection>, Fault> {
        self.find_within(PATIENCE)
    }

    fn find_within(&self, patience: Duration) -> Result<Option<Connection>, Fault> {
        for folder in self.places.find().folders {
            if let Some(connection) = Connection::open_within(&self.session.files(&folder), patience)? {
                return Ok(Some(connection));
            }
        }
        Ok(None)
    }

    /// The state that the daemon tells; `None` where none lives.
    ///
    /// # Errors
    /// As [`Door::find`].
    pub fn status(&self) -> Result<Option<Status>, Fault> {
        match self.find()? {
            Some(connection) => connection.status(),
            None => Ok(None),
        }
    }

    /// Every daemon of this user, but those of the sessions `but`. All are asked at once: one that is suspended keeps nobody
    /// waiting for the others.
    pub fn all(places: &Places, but: &[String]) -> Everyone {
        let folders = places.find().folders;
        let mut seen = HashSet::new();
        let files = folders.iter().flat_map(|folder| SessionFiles::all_in(folder));
        let is_meant = |files: &SessionFiles| !files.key().is_some_and(|key| but.contains(&key));
        let files = files.filter(|files| is_meant(files) && seen.insert(files.socket.to_path_buf()));
        let asked: Vec<_> = files.map(|files| thread::spawn(|| ask(files))).collect();
        Everyone::of(asked.into_iter().filter_map(|asked| asked.join().ok().flatten()))
    }

    /// Runs a script: on the daemon that lives, else on one that is started. `make` tells what to run, each time it is
    /// sent, since the time that is left shrinks.
    ///
    /// # Errors
    /// A fault where the script never ran.
    pub fn run(&self, begin: &Start, make: &dyn Fn() -> Run, listener: &mut dyn Listener) -> Result<Outcome, Fault> {
        let vault = Vault::new(begin.settings, &|name| std::env::var_os(name));
        for _ in begin.tries() {
            let Some(mut connection) = self.reach(begin)? else { continue };
            if interrupt::is_raised() {
                return Err(interrupted());
            }
            let request = make();
            let stop = request.stop;
            match run(&mut connection, request, &vault, listener)? {
                Sent::Ended(outcome) if stop => return Ok(self.stopped(*outcome)),
                Sent::Ended(outcome) | Sent::Unanswered(outcome) => return Ok(*outcome),
                Sent::NotTaken => {}
            }
        }
        Err(never_taken("script"))
    }

    /// What the daemon told of our stop, and what it could not: an earlier one's debts, and everything where somebody else
    /// ended it first.
    fn stopped(&self, mut outcome: Outcome) -> Outcome {
        outcome.stopped = Some(both(outcome.stopped.unwrap_or_default(), self.settle()));
        outcome
    }

    /// Waits for the keepers of daemons that are gone, and tells what came of the debts. A daemon that lives tells of its own.
    pub fn settle(&self) -> Stopped {
        let left = notes::find(&self.places, &Whose::Session(&self.session.key));
        if left.is_empty() {
            return Stopped::default();
        }
        match self.find_within(notes::PATIENCE) {
            Ok(living) => {
                let living = living.map(|daemon| Living { key: self.session.key.to_string(), pid: daemon.peer().pid });
                left.settle_beside(living.as_slice())
            }
            Err(fault) => Stopped { released: 0, unconfirmed: vec![notes::unconfirmed(fault)] },
        }
    }

    /// `None` when the daemon ended as soon as it was started: somebody's `stop` was quicker.
    pub(super) fn reach(&self, begin: &Start) -> Result<Option<Connection>, Fault> {
        if let Some(connection) = self.find_ours(begin)? {
            return Ok(Some(connection));
        }
        (begin.check)()?;
        let folder = self.places.create()?;
        let files = self.session.files(&folder);
        let _lock = StartLock::take(&files.start)?;
        if let Some(connection) = self.find_ours(begin)? {
            return Ok(Some(connection));
        }
        self.start(begin, files)
    }

    fn start(&self, begin: &Start, files: SessionFiles) -> Result<Option<Connection>, Fault> {
        let launch = Launch { session: self.session.clone(), files, settings: begin.settings.clone() };
        start(begin.program, &launch)?;
        Connection::open_within(&launch.files, begin.patience())
    }

    /// The daemon that lives, when it is of this build; another build's makes room when it holds no browser.
    fn find_ours(&self, begin: &Start) -> Result<Option<Connection>, Fault> {
        let Some(connection) = self.find_within(begin.patience())? else {
            return Ok(None);
        };
        if connection.peer().is_ours() {
            return Ok(Some(connection));
        }
        let peer = connection.peer().clone();
        match connection.status()? {
            Some(status) if !is_free(&status) => Err(in_use(&peer)),
            Some(_) => self.replace(&peer).map(|()| None),
            None => Ok(None),
        }
    }

    fn replace(&self, peer: &Peer) -> Result<(), Fault> {
        let stopped = match self.find()? {
            Some(connection) => connection.stop()?,
            None => None,
        };
        match stopped {
            Some(stopped) if !stopped.unconfirmed.is_empty() => Err(in_use(peer)),
            _ => Ok(()),
        }
    }
}

impl Everyone {
    fn of(told: impl Iterator<Item = Result<Live, Silent>>) -> Self {
        let mut everyone = Self::default();
        for told in told {
            match told {
                Ok(live) => everyone.live.push(live),
                Err(silent) => everyone.silent.push(silent),
            }
        }
        everyone
    }
}

/// `None` where nobody is.
fn ask(files: SessionFiles) -> Option<Result<Live, Silent>> {
    let told = Connection::open(&files).and_then(|found| found.map_or(Ok(None), Connection::status));
    match told {
        Ok(status) => status.map(|status| Ok(Live { files, status })),
        Err(fault) => files.key().map(|key| Err(Silent { key, fault })),
    }
}

pub(super) fn interrupted() -> Fault {
    Fault::new(FaultCode::Cancelled, "interrupted before the script was sent")
}

pub(super) fn never_taken(what: &str) -> Fault {
    Fault::new(FaultCode::NoBrowser, format!("the daemon ended each time before it took the {what}: somebody stops it"))
        .hint(format!("the {what} did not run: run it again; `ghost-browser status` tells what is left"))
}

fn is_free(status: &Status) -> bool {
    status.state == StatusState::Stopped && status.debts.is_empty()
}

fn in_use(peer: &Peer) -> Fault {
    let Peer { build, pid, .. } = peer;
    Fault::new(
        FaultCode::NoBrowser,
        format!("this session's browser belongs to a daemon of another build ({build}, process {pid})"),
    )
    .hint("`ghost-browser stop` releases it; then run the script again")
}
