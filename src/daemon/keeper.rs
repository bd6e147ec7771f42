//! A second, tiny process that owes the release too: whatever kills the daemon, the browser is paid for.
//!
//! The daemon's half is [`Keeper`], the process is [`main`]. They talk over a socketpair that is the keeper's standard
//! input; its standard output is the browser's note, whose lock both hold. The keeper knows the capability
//! in memory only, does nothing while the daemon lives, and never speaks to the browser: it ends by the
//! word `released`, or pays when the daemon's end closes without it.

use std::fs;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigHandler, Signal, signal};
use serde::{Deserialize, Serialize};

use super::process;
use crate::gateway::{Capability, ReleaseError};
use crate::wire::{read_frame, write_frame};

/// The hidden argument that makes this program a keeper.
pub const ARGUMENT: &str = "--keeper";

/// How long a living keeper may take to answer, or to end: it has nothing else to do.
const PATIENCE: Duration = Duration::from_secs(5);

/// One attempt to pay.
const ATTEMPT: Duration = Duration::from_secs(10);

/// A local browser has lost its pipe with the daemon, and ends by itself in a fraction of this.
const LOCAL_GRACE: Duration = Duration::from_secs(2);

/// The longest pause between two attempts, in seconds.
const LONGEST_PAUSE: u64 = 30;

const ACKNOWLEDGED: u8 = b'k';

const WATCH_STACK: usize = 64 << 10;

/// What the daemon says.
#[derive(Serialize, Deserialize)]
enum Word {
    /// From now on this is owed, and noted in the file of that name.
    Hold { capability: Capability, note: std::ffi::OsString },
    /// Nothing is owed any more.
    Released,
}

/// The daemon's half. Dropping it without [`Keeper::released`] makes the keeper pay.
pub struct Keeper {
    process: Child,
    words: UnixStream,
    note: PathBuf,
    is_dismissed: Arc<AtomicBool>,
}

impl Keeper {
    /// Starts a keeper for the browser of `note`, whose lock it shares, and which it removes when it has paid.
    ///
    /// # Errors
    /// When the process cannot be started.
    pub fn start(note: BorrowedFd<'_>, path: &Path) -> io::Result<Self> {
        Self::start_program(&own_program()?, note, path)
    }

    /// The same with a program that is not the running one: for tests.
    ///
    /// # Errors
    /// See [`Keeper::start`].
    pub fn start_program(program: &Path, note: BorrowedFd<'_>, path: &Path) -> io::Result<Self> {
        let (words, theirs) = UnixStream::pair()?;
        words.set_read_timeout(Some(PATIENCE))?;
        words.set_write_timeout(Some(PATIENCE))?;
        let process = Command::new(program)
            .arg0("ghost-browser")
            .arg(ARGUMENT)
            .env_clear()
            .current_dir("/")
            .stdin(OwnedFd::from(theirs))
            .stdout(note.try_clone_to_owned()?)
            .stderr(Stdio::null())
            .spawn()?;
        let is_dismissed = Arc::default();
        Ok(Self { process, words, note: path.to_owned(), is_dismissed })
    }

    /// Its process number.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Hands over what is owed, in place of what was; returns once the keeper has it.
    ///
    /// # Errors
    /// When it does not acknowledge in time. It was killed then, so that it cannot pay for a browser in use: start another.
    pub fn hold(&mut self, capability: &Capability) -> io::Result<()> {
        let note = self.note.clone().into_os_string();
        let word = Word::Hold { capability: capability.clone(), note };
        self.say_and_wait(&word).inspect_err(|_| self.kill())
    }

    /// Calls `sink` once when the process has ended without having been dismissed by [`Keeper::released`].
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn watch(&self, sink: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let words = self.words.try_clone()?;
        let is_dismissed = self.is_dismissed.clone();
        thread::Builder::new().name("keeper-watch".to_owned()).stack_size(WATCH_STACK).spawn(move || {
            wait_for_hangup(&words);
            if !is_dismissed.load(Ordering::Acquire) {
                sink();
            }
        })?;
        Ok(())
    }

    /// Says that nothing is owed any more, and waits until the process is gone.
    pub fn released(mut self) {
        self.is_dismissed.store(true, Ordering::Release);
        // A keeper that does not listen is dead or hangs; `kill` serves both.
        let is_gone =
            write_frame(&mut self.words, &Word::Released).is_ok() && matches!(self.words.read(&mut [0]), Ok(0));
        if is_gone {
            let _ = self.process.wait();
        } else {
            self.kill();
        }
    }

    /// Waits for one that has died, so that no zombie stays; a living one is killed. The debt is the caller's.
    pub fn bury(mut self) {
        self.is_dismissed.store(true, Ordering::Release);
        self.kill();
    }

    fn say_and_wait(&mut self, word: &Word) -> io::Result<()> {
        write_frame(&mut self.words, word)?;
        let mut answer = [0];
        self.words.read_exact(&mut answer)?;
        if answer == [ACKNOWLEDGED] { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
    }

    /// Both fail only where it is dead and waited for.
    fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The watch holds a copy of the socket, so that closing ours would not be seen.
impl Drop for Keeper {
    fn drop(&mut self) {
        // Fails only where the keeper is gone.
        let _ = self.words.shutdown(Shutdown::Both);
        // A dead one is not left a zombie; a paying one is not waited for.
        let _ = self.process.try_wait();
    }
}

/// On Linux the running file itself, even after an upgrade has replaced it.
fn own_program() -> io::Result<PathBuf> {
    if cfg!(target_os = "linux") { Ok(PathBuf::from("/proc/self/exe")) } else { std::env::current_exe() }
}

fn wait_for_hangup(words: &UnixStream) {
    // Asking for nothing leaves the hang-up, which is always told.
    let mut hangup = [PollFd::new(words.as_fd(), PollFlags::empty())];
    while let Ok(0) | Err(nix::errno::Errno::EINTR) = poll(&mut hangup, PollTimeout::NONE) {}
}

/// The keeper process. Standard input is the daemon, standard output the note.
pub fn main() -> ExitCode {
    let daemon = match withdraw() {
        Ok(daemon) => daemon,
        Err(_) => return ExitCode::FAILURE,
    };
    match listen(daemon) {
        Ok(Some(debt)) => debt.pay(),
        Ok(None) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Leaves everything of the starter but the two descriptors, before the first word is read.
fn withdraw() -> io::Result<UnixStream> {
    // Refused to the leader of a session: then it has one.
    let _ = nix::unistd::setsid();
    for meant_for_the_daemon in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        // SAFETY: ignoring installs no handler.
        unsafe { signal(meant_for_the_daemon, SigHandler::SigIgn) }?;
    }
    process::withdraw()?;
    Ok(UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?))
}

/// Listens until the daemon says `released` (then nothing is owed) or is gone (then what it said last is).
fn listen(mut daemon: UnixStream) -> io::Result<Option<Debt>> {
    let mut debt = None;
    loop {
        match read_frame(&mut daemon) {
            Ok(Some(Word::Hold { capability, note })) => {
                debt = Some(Debt { capability, note: PathBuf::from(note) });
                // A daemon that is gone by now is seen by the next read.
                let _ = daemon.write_all(&[ACKNOWLEDGED]);
            }
            Ok(Some(Word::Released)) => return Ok(None),
            // The daemon lives, and says what no build of this says: the debt stays its own.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(error),
            Ok(None) | Err(_) => return Ok(debt),
        }
    }
}

struct Debt {
    capability: Capability,
    note: PathBuf,
}

impl Debt {
    /// Tries until the release is proven, or until nothing can prove it. The note stays locked meanwhile.
    fn pay(self) -> ExitCode {
        let mut pause = 1;
        loop {
            match self.release() {
                Ok(()) => break,
                Err(ReleaseError::Unprovable(_)) => return ExitCode::FAILURE,
                Err(ReleaseError::Failed(_)) => thread::sleep(Duration::from_secs(pause)),
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        self.remove_note();
        ExitCode::SUCCESS
    }

    fn release(&self) -> Result<(), ReleaseError> {
        let deadline = Instant::now() + ATTEMPT;
        match &self.capability {
            Capability::Local(release) => release.release_after(LOCAL_GRACE, deadline),
            hosted @ Capability::Hosted(_) => hosted.release(false, deadline),
        }
    }

    /// Removes the note, if that name is still the file we hold. A note that stays is read as unlocked: told, never lost.
    fn remove_note(&self) {
        let ours = io::stdout().as_fd().try_clone_to_owned().map(fs::File::from).and_then(|note| note.metadata());
        let named = fs::symlink_metadata(&self.note);
        if let (Ok(ours), Ok(named)) = (ours, named)
            && (ours.dev(), ours.ino()) == (named.dev(), named.ino())
        {
            let _ = fs::remove_file(&self.note);
        }
    }
}
