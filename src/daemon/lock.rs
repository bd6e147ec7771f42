//! Being the one daemon of a session: a kernel lock that ends with its process, whatever ends that.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

/// A held lock. Its file is never removed while it is held: two daemons could then hold one each.
pub(super) struct Lock {
    _file: Flock<File>,
    name: Name,
}

impl Lock {
    /// Takes the lock at `path`; `None` when another process holds it for longer than `patience`: a daemon that ends lets go of
    /// its socket a moment before.
    ///
    /// # Errors
    /// The operating system's.
    pub(super) fn take(path: &Path, patience: Duration) -> io::Result<Option<Self>> {
        let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)?;
        let file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(file) => Some(file),
            Err((file, Errno::EWOULDBLOCK)) => wait_for(file, patience)?,
            Err((_, error)) => return Err(error.into()),
        };
        file.map(|file| Ok(Self { name: Name::of(path, &file.metadata()?), _file: file })).transpose()
    }

    /// Whether the path still leads to this file. Where it does not, the folder was swept away, and nobody can find us.
    pub(super) fn is_findable(&self) -> bool {
        self.name.is_still_there()
    }
}

/// A file by its name and by what the name led to.
pub(super) struct Name {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Name {
    /// What `path` leads to now.
    ///
    /// # Errors
    /// The operating system's.
    pub(super) fn now(path: &Path) -> io::Result<Self> {
        Ok(Self::of(path, &fs::symlink_metadata(path)?))
    }

    fn of(path: &Path, data: &Metadata) -> Self {
        Self { path: path.to_owned(), device: data.dev(), inode: data.ino() }
    }

    /// Whether the path still leads there.
    pub(super) fn is_still_there(&self) -> bool {
        fs::symlink_metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == (self.device, self.inode))
    }
}

/// The kernel's wait for a lock has no end, so it is a thread's; one that waits for ever ends with the process.
fn wait_for(file: File, patience: Duration) -> io::Result<Option<Flock<File>>> {
    let (tell, told) = mpsc::channel();
    thread::Builder::new().name("lock".to_owned()).spawn(move || {
        // Nobody may listen any more: then the lock is let go again.
        let _ = tell.send(Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, error)| error));
    })?;
    match told.recv_timeout(patience) {
        Ok(lock) => Ok(Some(lock?)),
        Err(_) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_one_process_s_until_it_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.lock");

        let held = Lock::take(&path, Duration::ZERO).unwrap().expect("nobody holds it");
        assert!(Lock::take(&path, Duration::from_millis(10)).unwrap().is_none());
        let waiting = thread::spawn(move || Lock::take(&path, Duration::from_secs(20)).unwrap().is_some());
        drop(held);
        assert!(waiting.join().unwrap());
    }

    #[test]
    fn a_swept_folder_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.lock");
        let held = Lock::take(&path, Duration::ZERO).unwrap().unwrap();
        assert!(held.is_findable());

        fs::remove_file(&path).unwrap();
        assert!(!held.is_findable());
        fs::write(&path, "").unwrap();
        assert!(!held.is_findable());
    }
}
