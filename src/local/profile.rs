//! A profile that the user keeps: locked, so that two browsers never write into it.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::wire::{Fault, FaultCode};

/// A locked profile folder, until it is dropped.
#[derive(Debug)]
pub(super) struct Profile {
    pub(super) folder: PathBuf,
    _lock: Flock<File>,
}

impl Profile {
    /// Locks `folder`, which is made if it is not there.
    ///
    /// # Errors
    /// `setting` when it cannot be opened; `no_browser` when it is in use.
    pub(super) fn lock(folder: &OsStr) -> Result<Self, Fault> {
        let folder = PathBuf::from(folder);
        let unusable = |error: std::io::Error| {
            let why = if folder.is_file() { "it is a file".to_owned() } else { error.to_string() };
            let message = format!("GHOST_BROWSER_PROFILE={} cannot be used: {why}", folder.display());
            Fault::new(FaultCode::Setting, message).hint("name a folder of yours; one that is not there yet is made")
        };
        DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(unusable)?;
        let opened = File::open(&folder).map_err(unusable)?;
        match Flock::lock(opened, FlockArg::LockExclusiveNonblock) {
            Ok(_lock) => Ok(Self { folder, _lock }),
            Err((_, Errno::EWOULDBLOCK)) => Err(in_use(&folder.display().to_string())),
            Err((_, errno)) => Err(unusable(errno.into())),
        }
    }
}

fn in_use(folder: &str) -> Fault {
    let message = format!("the profile {folder} is in use by another session");
    Fault::new(FaultCode::NoBrowser, message)
        .hint("`ghost-browser stop --all` ends it, or give another GHOST_BROWSER_PROFILE")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_in_use_is_refused_until_it_is_free() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("kept");
        let first = Profile::lock(folder.as_os_str()).unwrap();

        let fault = Profile::lock(folder.as_os_str()).unwrap_err();
        assert_eq!(fault.code, FaultCode::NoBrowser);

        drop(first);
        Profile::lock(folder.as_os_str()).unwrap();
    }

    #[test]
    fn a_profile_that_is_a_file_is_told_to_be_one() {
        let file = tempfile::NamedTempFile::new().unwrap();

        let fault = Profile::lock(file.path().as_os_str()).unwrap_err();

        assert!(fault.message.ends_with("cannot be used: it is a file"), "{fault}");
        assert!(fault.hint.unwrap().contains("a folder of yours"));
    }
}
