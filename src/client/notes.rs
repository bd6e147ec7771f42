//! What killed daemons left behind: notes of browsers that a keeper is paying for, and of those that nobody can.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::lease::{self, FoundNote, Settled};
use crate::places::Places;
use crate::wire::{Fault, FaultCode, Stopped};
use crate::workspace::SessionKey;

/// How long `stop` waits for keepers that are paying.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Whose notes are meant.
pub enum Whose<'a> {
    /// One session's.
    Session(&'a SessionKey),
    /// Everyone's but those of these sessions.
    AllBut(&'a [String]),
}

/// A daemon that lives. It speaks for the notes that it wrote, and for no others.
#[derive(Debug, PartialEq)]
pub struct Living {
    /// Its session's key.
    pub key: String,
    /// Its process.
    pub pid: u32,
}

/// Notes that were found, for whoever settles them.
#[derive(Debug)]
pub struct Unsettled(Vec<FoundNote>);

/// The debts of sessions whose daemons are gone.
#[derive(Debug, Default)]
pub struct LeftBehind {
    /// The writers of notes that somebody holds: a keeper that is paying, or a daemon that lives.
    pub held: Vec<Option<u32>>,
    /// Notes that nobody holds: a browser may still be billed, and nothing can release it.
    pub unknown: Vec<Fault>,
}

impl LeftBehind {
    fn of(notes: Vec<FoundNote>) -> Self {
        let (held, free): (Vec<_>, Vec<_>) = notes.into_iter().partition(FoundNote::is_locked);
        Self { held: held.iter().map(FoundNote::writer).collect(), unknown: free.iter().map(unknown).collect() }
    }

    /// How many are paid for by keepers of other daemons than `living`.
    pub fn paid_beside(&self, living: Option<u32>) -> usize {
        self.held.iter().filter(|writer| **writer != living).count()
    }
}

/// One session's notes, and what they say of it.
#[derive(Debug)]
pub struct Noted {
    /// The gateway's host, or `local`.
    pub gateway: String,
    /// The workspace root as text.
    pub workspace: String,
    /// Its name.
    pub name: String,
    /// What is owed.
    pub left: LeftBehind,
}

/// Looks at notes. Changes nothing.
pub fn look(places: &Places, whose: &Whose<'_>) -> LeftBehind {
    LeftBehind::of(notes(places, whose))
}

/// Looks at everyone's notes, by the session's key. Changes nothing.
pub fn by_session(places: &Places) -> BTreeMap<String, Noted> {
    let mut sessions = BTreeMap::<String, Vec<FoundNote>>::new();
    for note in notes(places, &Whose::AllBut(&[])) {
        sessions.entry(note.key().to_owned()).or_default().push(note);
    }
    sessions.into_iter().map(|(key, notes)| (key, Noted::of(notes))).collect()
}

impl Noted {
    fn of(notes: Vec<FoundNote>) -> Self {
        let told = |what: fn(&FoundNote) -> &str| notes.first().map(what).unwrap_or_default().to_owned();
        let (gateway, workspace, name) = (told(gateway), told(FoundNote::workspace), told(FoundNote::name));
        Self { gateway, workspace, name, left: LeftBehind::of(notes) }
    }
}

/// Finds what is to be settled.
pub fn find(places: &Places, whose: &Whose<'_>) -> Unsettled {
    Unsettled(notes(places, whose))
}

impl Unsettled {
    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Waits for the keepers that are paying, then tells what came of it and clears the notes that nobody holds. Those of
    /// `living` daemons are left alone. They are to be looked for after the notes: one that starts later has none of these.
    pub fn settle_beside(self, living: &[Living]) -> Stopped {
        let deadline = Instant::now() + PATIENCE;
        let mut stopped = Stopped::default();
        for note in self.0.into_iter().filter(|note| !living.iter().any(|daemon| daemon.has_written(note))) {
            let (held, lost) = (held(&note), unknown(&note));
            match note.settle(deadline) {
                Settled::Paid => stopped.released += 1,
                Settled::Abandoned => stopped.unconfirmed.push(lost),
                Settled::Held => stopped.unconfirmed.push(held),
            }
        }
        stopped
    }
}

impl Living {
    fn has_written(&self, note: &FoundNote) -> bool {
        (note.key(), note.writer()) == (self.key.as_str(), Some(self.pid))
    }
}

/// What two of them told.
#[must_use]
pub fn both(mut stopped: Stopped, left: Stopped) -> Stopped {
    stopped.released += left.released;
    stopped.unconfirmed.extend(left.unconfirmed);
    stopped
}

/// A daemon that does not answer may hold a browser: for whoever stops that is no lack of one.
#[must_use]
pub fn unconfirmed(fault: Fault) -> Fault {
    match fault.code {
        FaultCode::NoBrowser => Fault { code: FaultCode::ReleaseUnconfirmed, ..fault },
        _ => fault,
    }
}

fn notes(places: &Places, whose: &Whose<'_>) -> Vec<FoundNote> {
    let folders: Vec<PathBuf> = places.find().folders;
    // A folder that cannot be read holds no note that could be acted on.
    let all = folders.iter().flat_map(|folder| lease::find_all(folder).unwrap_or_default());
    let is_meant = |note: &FoundNote| match whose {
        Whose::Session(key) => note.key() == key.as_str(),
        Whose::AllBut(living) => !living.iter().any(|key| key == note.key()),
    };
    all.filter(is_meant).collect()
}

fn unknown(note: &FoundNote) -> Fault {
    let message = format!("{}: its daemon and keeper are gone{}", note.what_is_left(), ago(note));
    Fault::new(FaultCode::ReleaseUnconfirmed, message).hint(if note.is_local() {
        "a Chromium ends by itself when its daemon is gone; `pgrep -f remote-debugging-pipe` finds one that does not"
    } else {
        "nothing here can release it; look at the gateway, where an unused browser ends by its own time limit"
    })
}

fn held(note: &FoundNote) -> Fault {
    let message = format!("the keeper has not released the browser of {} in {PATIENCE:?}", gateway(note));
    Fault::new(FaultCode::ReleaseUnconfirmed, message)
        .hint("it goes on trying; `ghost-browser status` tells, `ghost-browser stop` waits again")
}

fn gateway(note: &FoundNote) -> &str {
    match note.gateway() {
        "" => "an unknown gateway",
        gateway => gateway,
    }
}

fn ago(note: &FoundNote) -> String {
    let minutes = note.when().elapsed().unwrap_or_default().as_secs() / 60;
    match minutes {
        0 => String::new(),
        minutes => format!(" (it was asked for {minutes} min ago)"),
    }
}
