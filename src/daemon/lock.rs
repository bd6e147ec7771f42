//! Being the one daemon of a session: a kernel lock that ends with its process, whatever ends that.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

/// A held lock. Its file is never removed while it is held: two daemons could then hold one each.
pub(super) struct Lock {
    file: Flock<File>,
    path: PathBuf,
}

impl Lock {
    /// Takes the lock at `path`; `None` when another process holds it.
    ///
    /// # Errors
    /// The operating system's.
    pub(super) fn take(path: &Path) -> io::Result<Option<Self>> {
        let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(file) => Ok(Some(Self { file, path: path.to_owned() })),
            Err((_, Errno::EWOULDBLOCK)) => Ok(None),
            Err((_, error)) => Err(error.into()),
        }
    }

    /// Whether the path still leads to this file. Where it does not, the folder was swept away, and nobody can find us.
    pub(super) fn is_findable(&self) -> bool {
        match (fs::symlink_metadata(&self.path), self.file.metadata()) {
            (Ok(found), Ok(held)) => (found.dev(), found.ino()) == (held.dev(), held.ino()),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_one_process_s_until_it_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.lock");

        let held = Lock::take(&path).unwrap().expect("nobody holds it");
        assert!(Lock::take(&path).unwrap().is_none());
        drop(held);
        assert!(Lock::take(&path).unwrap().is_some());
    }

    #[test]
    fn a_swept_folder_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.lock");
        let held = Lock::take(&path).unwrap().unwrap();
        assert!(held.is_findable());

        fs::remove_file(&path).unwrap();
        assert!(!held.is_findable());
        fs::write(&path, "").unwrap();
        assert!(!held.is_findable());
    }
}
