//! What killed daemons left behind: notes of browsers that a keeper is paying for, and of those that nobody can.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::lease::{self, FoundNote, Settled};
use crate::places::Places;
use crate::wire::{Fault, FaultCode, Stopped};
use crate::workspace::SessionKey;

/// How long `stop` waits for keepers that are paying.
const PATIENCE: Duration = Duration::from_secs(10);

/// Whose notes are meant.
pub enum Whose<'a> {
    /// One session's.
    Session(&'a SessionKey),
    /// Everyone's but those of the sessions whose daemons live and speak for themselves.
    AllBut(&'a [String]),
}

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

/// Waits for the keepers that are paying, then tells what came of it and clears the notes that nobody holds.
pub fn settle(places: &Places, whose: &Whose<'_>) -> Stopped {
    let deadline = Instant::now() + PATIENCE;
    settle_until(places, whose, deadline)
}

/// Tells of the notes that nobody holds and clears them; waits for nothing.
pub fn clear(places: &Places, whose: &Whose<'_>) -> Stopped {
    settle_until(places, whose, Instant::now())
}

fn settle_until(places: &Places, whose: &Whose<'_>, deadline: Instant) -> Stopped {
    let waits = deadline > Instant::now();
    let mut stopped = Stopped::default();
    for note in notes(places, whose) {
        let (held, lost) = (held(&note), unknown(&note));
        match note.settle(deadline) {
            Settled::Paid => stopped.released += 1,
            Settled::Abandoned => stopped.unconfirmed.push(lost),
            Settled::Held if waits => stopped.unconfirmed.push(held),
            // Its daemon lives, and has told of it.
            Settled::Held => {}
        }
    }
    stopped
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
    let message = format!("{}: its daemon and keeper were killed{}", note.what_is_left(), ago(note));
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
