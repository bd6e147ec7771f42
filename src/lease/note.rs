//! The mark that a debt leaves in the state folder, for whoever comes after a crash.
//!
//! A note says when, which gateway and whose, nothing secret. It is there before the request leaves and is removed only when nothing is
//! owed any more. Daemon and keeper hold one lock on it, through one open file: while either lives, the debt is being paid.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

const SUFFIX: &str = "note";
/// A note that has not got its name yet: nothing has been asked for.
const DRAFT: &str = "draft";
/// What stands for the gateway of a browser of this machine.
const LOCAL: &str = "local";
/// More than any note is long.
const SIZE_LIMIT: u64 = 4096;
/// The mode of a note that somebody told of and took away unpaid. Whoever still has it open must not take it for paid.
const TOLD: u32 = 0o400;
/// How long others may take to look at a note: while they do, it is locked.
const A_LOOK: Duration = Duration::from_millis(300);

/// Where a session's notes are, and what they say.
#[derive(Debug, Clone)]
pub struct NotePlace {
    /// The state folder.
    pub folder: PathBuf,
    /// The session's key: hexadecimal.
    pub key: String,
    /// The gateway's host, or `local`.
    pub gateway: String,
    /// The workspace root, as text for the eye.
    pub workspace: String,
    /// The session's name.
    pub name: String,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Text {
    /// Seconds since 1970.
    when: u64,
    gateway: String,
    workspace: String,
    name: String,
}

/// One's own note. Dropping it leaves the file: only [`Note::paid`] removes it.
#[derive(Debug)]
pub struct Note {
    path: PathBuf,
    file: File,
}

impl Note {
    /// Writes a new note, for its owner's eyes only, and locks it.
    ///
    /// # Errors
    /// The file system's own: then nothing may be asked for.
    pub fn create(place: &NotePlace) -> io::Result<Self> {
        let name = unique_name(&place.key);
        let draft = place.folder.join(format!("{name}.{DRAFT}"));
        let path = place.folder.join(format!("{name}.{SUFFIX}"));
        // Locked and whole before it has its name: nobody ever sees a note that looks abandoned and is not.
        let file =
            write_draft(&draft, place).and_then(|file| fs::rename(&draft, &path).map(|()| file)).inspect_err(|_| {
                // The failure itself is told; an empty draft costs nothing.
                let _ = fs::remove_file(&draft);
            })?;
        Ok(Self { path, file })
    }

    /// The same open file for another process: the lock lasts until the last copy is closed. Not inherited unless asked for.
    ///
    /// # Errors
    /// No descriptor to be had.
    pub fn share(&self) -> io::Result<OwnedFd> {
        self.file.try_clone().map(OwnedFd::from)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes it: nothing is owed any more.
    ///
    /// # Errors
    /// The file system's own; a note that is gone already is none.
    pub fn paid(self) -> io::Result<()> {
        remove(&self.path)
    }
}

/// What became of a note that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// Whoever held it has removed it: the browser is released.
    Paid,
    /// Nobody holds it, and nobody paid. It is removed now, by us or by another who settled it.
    Abandoned,
    /// Somebody still holds it.
    Held,
}

/// A note that was found, of whichever process.
#[derive(Debug)]
pub struct FoundNote {
    path: PathBuf,
    file: File,
    text: Text,
}

impl FoundNote {
    /// Whether somebody who can pay holds it.
    pub fn is_locked(&self) -> bool {
        // A shared probe, so that two who look at once do not take each other for the holder.
        match lock(&self.file, libc::LOCK_SH | libc::LOCK_NB) {
            Ok(()) => {
                // The lock also ends with the file.
                let _ = lock(&self.file, libc::LOCK_UN);
                false
            }
            Err(_) => true,
        }
    }

    /// Waits until nobody holds the note, at most until `deadline`; one that was left unpaid is then removed: whoever asked tells of it.
    pub fn settle(self, deadline: Instant) -> Settled {
        let deadline = deadline.max(Instant::now() + A_LOOK);
        match self.is_ours() || self.is_let_go(deadline) {
            false => Settled::Held,
            true if self.is_named() => {
                // One that stays is told of again; that it is unpaid is true in any case.
                let _ = self.take_away();
                Settled::Abandoned
            }
            true if self.is_told() => Settled::Abandoned,
            true => Settled::Paid,
        }
    }

    /// Takes the lock where nobody has it. Exclusive, so that of many who settle a note each sees what the one before did.
    fn is_ours(&self) -> bool {
        lock(&self.file, libc::LOCK_EX | libc::LOCK_NB).is_ok()
    }

    /// Waits for the lock on a thread of its own, since the kernel's wait has no end; one that stays behind ends with the process.
    fn is_let_go(&self, deadline: Instant) -> bool {
        let Ok(file) = self.file.try_clone() else { return false };
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            let is_ours = lock(&file, libc::LOCK_EX).is_ok();
            // Nobody may listen any more: then the lock ends with the file.
            let _ = tell.send(is_ours);
        });
        told.recv_timeout(deadline.saturating_duration_since(Instant::now())).unwrap_or(false)
    }

    /// Whether the path still leads to this note: whoever pays removes it before it lets go.
    fn is_named(&self) -> bool {
        match (fs::symlink_metadata(&self.path), self.file.metadata()) {
            (Ok(named), Ok(own)) => (named.dev(), named.ino()) == (own.dev(), own.ino()),
            _ => false,
        }
    }

    /// Whether somebody has told of it and taken it away unpaid.
    fn is_told(&self) -> bool {
        self.file.metadata().is_ok_and(|data| data.mode() & 0o777 == TOLD)
    }

    /// Removes a note that was left unpaid, marked first: its name alone says nothing to those who have it open.
    fn take_away(&self) -> io::Result<()> {
        self.file.set_permissions(Permissions::from_mode(TOLD))?;
        remove(&self.path)
    }

    /// The key of its session.
    pub fn key(&self) -> &str {
        let name = self.path.file_name().and_then(OsStr::to_str);
        name.and_then(|name| name.split('.').next()).unwrap_or_default()
    }

    /// The process that wrote it: the daemon that asked for the browser.
    pub fn writer(&self) -> Option<u32> {
        let name = self.path.file_name().and_then(OsStr::to_str)?;
        name.split('.').nth(1)?.split('-').next()?.parse().ok()
    }

    /// The gateway's host; empty when it cannot be read.
    pub fn gateway(&self) -> &str {
        &self.text.gateway
    }

    /// What may be left of it when nobody pays for it any more.
    pub fn what_is_left(&self) -> String {
        match self.gateway() {
            LOCAL => "a Chromium of this machine may still be running".to_owned(),
            "" => "a browser of an unknown gateway may still be running and billed".to_owned(),
            gateway => format!("a browser of {gateway} may still be running and billed"),
        }
    }

    /// Whether the browser is one of this machine, which nobody bills.
    pub fn is_local(&self) -> bool {
        self.gateway() == LOCAL
    }

    /// The workspace root as text; empty when it cannot be read.
    pub fn workspace(&self) -> &str {
        &self.text.workspace
    }

    /// The session's name; empty when it cannot be read.
    pub fn name(&self) -> &str {
        &self.text.name
    }

    /// When the browser was asked for.
    pub fn when(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(self.text.when)
    }
}

/// The notes of the session `key` in `folder`; none where there is no folder.
///
/// # Errors
/// A folder that cannot be read.
pub fn find(folder: &Path, key: &str) -> io::Result<Vec<FoundNote>> {
    let mut notes = find_all(folder)?;
    notes.retain(|note| note.key() == key);
    Ok(notes)
}

/// Every session's notes in `folder`; none where there is no folder.
///
/// # Errors
/// A folder that cannot be read.
pub fn find_all(folder: &Path) -> io::Result<Vec<FoundNote>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let paths = paths.collect::<io::Result<Vec<_>>>()?;
    let mut notes = Vec::new();
    for path in paths {
        if path.extension() == Some(OsStr::new(SUFFIX)) {
            notes.extend(open(path)?);
        }
    }
    Ok(notes)
}

/// Takes away what a daemon of the session `key` left that was killed over the writing of a note. Only for whoever has that
/// daemon's lock: a draft of one that lives is wanted.
pub fn clear_drafts(folder: &Path, key: &str) {
    let of_session = format!("{key}.");
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_draft = |path: &PathBuf| {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        name.starts_with(&of_session) && path.extension() == Some(OsStr::new(DRAFT))
    };
    // One that cannot be taken away costs nothing.
    entries.filter(is_draft).for_each(|path| drop(fs::remove_file(path)));
}

/// `None` for a note that was removed since its name was read.
fn open(path: PathBuf) -> io::Result<Option<FoundNote>> {
    let file = match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut bytes = Vec::new();
    (&file).take(SIZE_LIMIT).read_to_end(&mut bytes)?;
    // That there is a note is what counts; what it says is for the eye.
    let text = serde_json::from_slice(&bytes).unwrap_or_default();
    Ok(Some(FoundNote { path, file, text }))
}

fn write_draft(path: &Path, place: &NotePlace) -> io::Result<File> {
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
    lock(&file, libc::LOCK_EX | libc::LOCK_NB)?;
    let NotePlace { gateway, workspace, name, .. } = place.clone();
    let text = Text { when: since_1970().as_secs(), gateway, workspace, name };
    file.write_all(&serde_json::to_vec(&text)?)?;
    Ok(file)
}

fn unique_name(key: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    let moment = since_1970().as_nanos();
    format!("{key}.{}-{next}-{moment:x}", process::id())
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// `flock`. Not a guard that unlocks when it is dropped: that would end the lock for the keeper's copy too.
fn lock(file: &File, operation: i32) -> io::Result<()> {
    // SAFETY: takes a descriptor, which `file` keeps open, and touches no memory.
    match unsafe { libc::flock(file.as_raw_fd(), operation) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(folder: &tempfile::TempDir) -> NotePlace {
        NotePlace {
            folder: folder.path().to_owned(),
            key: "abc".into(),
            gateway: "gate.example".into(),
            workspace: "/w".into(),
            name: "n".into(),
        }
    }

    fn only(place: &NotePlace) -> FoundNote {
        let mut notes = find(&place.folder, &place.key).unwrap();
        assert_eq!(notes.len(), 1);
        notes.remove(0)
    }

    #[test]
    fn a_note_is_locked_while_any_copy_of_it_is_open() {
        let folder = tempfile::tempdir().unwrap();
        let place = place(&folder);
        let note = Note::create(&place).unwrap();
        let keepers = note.share().unwrap();

        drop(note);
        assert!(only(&place).is_locked());
        assert!(only(&place).is_locked());
        let held = only(&place).settle(Instant::now());
        drop(keepers);

        assert_eq!(held, Settled::Held);
        assert!(!only(&place).is_locked());
        assert_eq!(only(&place).settle(Instant::now()), Settled::Abandoned);
        assert!(fs::read_dir(folder.path()).unwrap().next().is_none());
    }

    #[test]
    fn two_who_look_at_once_do_not_take_each_other_for_the_holder() {
        let folder = tempfile::tempdir().unwrap();
        let place = place(&folder);
        drop(Note::create(&place).unwrap());
        let (one, other) = (only(&place), only(&place));
        lock(&one.file, libc::LOCK_SH).unwrap();

        assert!(!other.is_locked());
    }

    #[test]
    fn a_look_at_an_abandoned_note_does_not_make_it_somebodys() {
        let folder = tempfile::tempdir().unwrap();
        let place = place(&folder);
        drop(Note::create(&place).unwrap());
        let (one, other) = (only(&place), only(&place));
        lock(&one.file, libc::LOCK_SH).unwrap();
        let settling = thread::spawn(move || other.settle(Instant::now() + Duration::from_secs(60)));

        drop(one);

        assert_eq!(settling.join().unwrap(), Settled::Abandoned);
    }

    /// Four who have found the one note, and wait until nobody holds it.
    fn settled_by_four(place: &NotePlace) -> Vec<thread::JoinHandle<Settled>> {
        let later = Instant::now() + Duration::from_secs(60);
        let found: Vec<_> = (0..4).map(|_| only(place)).collect();
        found.into_iter().map(|note| thread::spawn(move || note.settle(later))).collect()
    }

    #[test]
    fn an_unpaid_note_that_another_took_away_is_not_paid() {
        let folder = tempfile::tempdir().unwrap();
        let place = place(&folder);
        let note = Note::create(&place).unwrap();
        let settling = settled_by_four(&place);

        drop(note);

        let settled: Vec<_> = settling.into_iter().map(|one| one.join().unwrap()).collect();
        assert_eq!(settled, [Settled::Abandoned; 4]);
    }

    #[test]
    fn a_note_that_its_holder_took_away_is_paid_to_everyone_who_waited() {
        let folder = tempfile::tempdir().unwrap();
        let place = place(&folder);
        let note = Note::create(&place).unwrap();
        let settling = settled_by_four(&place);

        note.paid().unwrap();

        let settled: Vec<_> = settling.into_iter().map(|one| one.join().unwrap()).collect();
        assert_eq!(settled, [Settled::Paid; 4]);
    }

    #[test]
    fn a_note_is_private_tells_its_gateway_and_goes_when_paid() {
        let folder = tempfile::tempdir().unwrap();
        let place = place(&folder);
        let (first, second) = (Note::create(&place).unwrap(), Note::create(&place).unwrap());
        let mode = fs::metadata(first.path()).unwrap().permissions().mode();

        second.paid().unwrap();

        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(only(&place).gateway(), "gate.example");
        assert_eq!(only(&place).writer(), Some(process::id()));
        assert!(only(&place).when().elapsed().unwrap().as_secs() < 60);
        assert!(find(folder.path(), "ab").unwrap().is_empty());
        first.paid().unwrap();
        assert!(find_all(folder.path()).unwrap().is_empty());
    }

    #[test]
    fn drafts_of_one_session_are_taken_away_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let note = Note::create(&place(&folder)).unwrap();
        for name in ["abc.1-0-f.draft", "abd.1-0-f.draft", "abc.log"] {
            fs::write(folder.path().join(name), "").unwrap();
        }

        clear_drafts(folder.path(), "abc");

        let mut left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        left.sort();
        let mut expected =
            vec![folder.path().join("abc.log"), folder.path().join("abd.1-0-f.draft"), note.path().to_owned()];
        expected.sort();
        assert_eq!(left, expected);
    }

    #[test]
    fn without_a_folder_there_are_no_notes_and_none_can_be_made() {
        let folder = tempfile::tempdir().unwrap();
        let place = NotePlace { folder: folder.path().join("none"), ..place(&folder) };

        assert!(find_all(&place.folder).unwrap().is_empty());
        assert!(Note::create(&place).is_err());
        assert!(!place.folder.exists());
    }
}
