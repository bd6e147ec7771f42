//! Starting a daemon: under a lock that starters serialise on, out of everything that belongs to the caller.
//!
//! The daemon gets what it needs over its standard input and says over its standard output when it listens. It
//! keeps no descriptor, session, environment or working directory of ours, and is nobody's child, so that a
//! pipeline ends when its script is done and no zombie stays.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::fcntl::{Flock, FlockArg};
use nix::unistd::{ForkResult, fork, setsid};

use crate::launch::Launch;
use crate::wire::{Fault, FaultCode, Ready, read_frame, write_frame};

/// What is run as the daemon.
#[derive(Debug, Clone)]
pub struct Program {
    /// The executable.
    pub path: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
}

impl Program {
    /// This executable, as the daemon.
    ///
    /// # Errors
    /// [`FaultCode::NoBrowser`] where the system cannot tell which it is.
    pub fn own() -> Result<Self, Fault> {
        Ok(Self { path: own_executable().map_err(|error| cannot_start(&error))?, args: vec!["--daemon".into()] })
    }
}

/// The link of the kernel: it works after the file was replaced, which the path would not.
#[cfg(target_os = "linux")]
fn own_executable() -> io::Result<PathBuf> {
    Ok(PathBuf::from("/proc/self/exe"))
}

#[cfg(not(target_os = "linux"))]
fn own_executable() -> io::Result<PathBuf> {
    std::env::current_exe()
}

/// Starts a daemon and waits until it listens.
///
/// # Errors
/// What it refused to start with; [`FaultCode::NoBrowser`] when it could not be run or ended without a word.
pub(super) fn start(program: &Program, launch: &Launch) -> Result<(), Fault> {
    let mut child = spawn(program).map_err(|error| cannot_start(&error))?;
    let ready = converse(&mut child, launch);
    // The process that we started only made the daemon and ended.
    let _ = child.wait();
    match ready {
        Ok(Some(Ready::Listening)) => Ok(()),
        Ok(Some(Ready::Refused(fault))) => Err(fault),
        Ok(None) => Err(ended_unready(launch)),
        Err(error) => Err(ended_unready(launch).caused_by(&error)),
    }
}

fn converse(child: &mut Child, launch: &Launch) -> io::Result<Option<Ready>> {
    let mut stdin = child.stdin.take().expect("stdin is a pipe");
    let mut stdout = child.stdout.take().expect("stdout is a pipe");
    // A daemon that ended before it read everything may still have said why.
    let sent = write_frame(&mut stdin, launch);
    drop(stdin);
    let ready = read_frame(&mut stdout)?;
    match (sent, ready) {
        (Err(error), None) => Err(error),
        (_, ready) => Ok(ready),
    }
}

fn spawn(program: &Program) -> io::Result<Child> {
    let mut command = Command::new(&program.path);
    command
        .arg0("ghost-browser")
        .args(&program.args)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    // SAFETY: `detach` runs between fork and exec and makes system calls only.
    unsafe { command.pre_exec(detach) };
    command.spawn()
}

/// Leaves the caller's session and descriptors, and lets the parent end, so that the daemon is nobody's child.
fn detach() -> io::Result<()> {
    setsid()?;
    close_on_exec();
    // SAFETY: this process is itself a fresh fork with one thread.
    match unsafe { fork() }? {
        // SAFETY: `_exit` is async-signal-safe and runs nothing of ours.
        ForkResult::Parent { .. } => unsafe { libc::_exit(0) },
        ForkResult::Child => Ok(()),
    }
}

/// Has every descriptor but the three standard ones closed by exec. Where the kernel cannot, the daemon closes them itself.
fn close_on_exec() {
    #[cfg(target_os = "linux")]
    // SAFETY: a system call on numbers; nothing in this process uses the descriptors before exec.
    unsafe {
        libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
    }
}

/// The lock that starters serialise on. Its file lives as long as somebody holds it.
pub(super) struct StartLock {
    path: PathBuf,
    _lock: Flock<File>,
}

impl StartLock {
    /// Waits for the lock.
    ///
    /// # Errors
    /// [`FaultCode::NoBrowser`] when the file cannot be made.
    pub(super) fn take(path: &Path) -> Result<Self, Fault> {
        loop {
            let file = open(path).map_err(|error| cannot_lock(path, &error))?;
            let lock = lock(file).map_err(|error| cannot_lock(path, &error))?;
            // Whoever held it removed the file: then somebody else may hold another one of that name.
            if is_at(&lock, path) {
                return Ok(Self { path: path.to_owned(), _lock: lock });
            }
        }
    }
}

impl Drop for StartLock {
    fn drop(&mut self) {
        // A file that stays costs nothing: the next starter locks it.
        let _ = fs::remove_file(&self.path);
    }
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    options.custom_flags(libc::O_NOFOLLOW).open(path)
}

fn lock(mut file: File) -> io::Result<Flock<File>> {
    loop {
        match Flock::lock(file, FlockArg::LockExclusive) {
            Ok(lock) => return Ok(lock),
            Err((back, nix::errno::Errno::EINTR)) => file = back,
            Err((_, error)) => return Err(error.into()),
        }
    }
}

fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(held), Ok(there)) => (held.dev(), held.ino()) == (there.dev(), there.ino()),
        _ => false,
    }
}

fn cannot_start(error: &io::Error) -> Fault {
    Fault::new(FaultCode::NoBrowser, "cannot start the daemon").caused_by(error)
}

fn cannot_lock(path: &Path, error: &io::Error) -> Fault {
    let message = format!("cannot lock {}", path.display());
    Fault::new(FaultCode::NoBrowser, message).caused_by(error)
}

fn ended_unready(launch: &Launch) -> Fault {
    let log = launch.files.log.display();
    Fault::new(FaultCode::NoBrowser, "the daemon ended before it was ready").hint(format!("its log may say why: {log}"))
}
