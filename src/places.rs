//! The state folder of this user: where sockets, locks, notes and logs lie.
//!
//! It is trusted only when it is a real folder, ours, and closed to others; anything else is refused and left as it
//! is. Look-ups search every candidate and create nothing; creation takes the first. `TMPDIR` and `HOME` play no
//! part, so that a call with another environment finds the same folder.

use std::fs::{self, DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::config::RUNTIME_DIR;
use crate::wire::{Fault, FaultCode};

/// The folders that may hold this user's state, in the order that creation prefers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    candidates: Vec<PathBuf>,
    uid: u32,
}

/// What a look-up found.
#[derive(Debug, Default)]
pub struct Found {
    /// The folders that may be trusted.
    pub folders: Vec<PathBuf>,
    /// Why others, which exist, may not.
    pub refused: Vec<Fault>,
}

impl Places {
    /// The candidates: `only` where it is set, else the folders of the system.
    pub fn new(only: Option<&Path>) -> Self {
        let uid = nix::unistd::getuid().as_raw();
        let candidates = match only {
            Some(folder) => vec![folder.to_owned()],
            None => system_folders(uid),
        };
        Self { candidates, uid }
    }

    /// The folders that exist. Creates nothing.
    pub fn find(&self) -> Found {
        let mut found = Found::default();
        for folder in &self.candidates {
            match self.check(folder) {
                Ok(true) => found.folders.push(folder.clone()),
                Ok(false) => {}
                Err(refusal) => found.refused.push(refusal),
            }
        }
        found
    }

    /// The first candidate, created when it is missing.
    ///
    /// # Errors
    /// [`FaultCode::NoBrowser`] when it cannot be trusted or not be created; nothing was changed.
    pub fn create(&self) -> Result<PathBuf, Fault> {
        let folder = self.candidates.first().ok_or_else(no_candidate)?;
        if !self.check(folder)? {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
            made.map_err(|error| cannot_create(folder, &error))?;
            self.check(folder)?;
        }
        Ok(folder.clone())
    }

    /// Whether `folder` exists and may be trusted.
    fn check(&self, folder: &Path) -> Result<bool, Fault> {
        if !folder.is_absolute() {
            return Err(relative(folder));
        }
        match fs::symlink_metadata(folder) {
            Ok(data) => match distrust(&data, self.uid) {
                Some(reason) => Err(unsafe_folder(folder, &reason)),
                None => Ok(true),
            },
            Err(error) if is_absence(&error) => Ok(false),
            Err(error) => Err(cannot_create(folder, &error)),
        }
    }
}

fn is_absence(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

/// Why a folder is not to be trusted.
fn distrust(data: &Metadata, uid: u32) -> Option<String> {
    let mode = data.mode() & 0o777;
    if data.is_symlink() {
        Some("is a symbolic link".to_owned())
    } else if !data.is_dir() {
        Some("is not a folder".to_owned())
    } else if data.uid() != uid {
        Some(format!("belongs to user {}, not to {uid}", data.uid()))
    } else if mode != 0o700 {
        Some(format!("has mode {mode:04o}, not 0700"))
    } else {
        None
    }
}

#[cfg(not(target_os = "macos"))]
fn system_folders(uid: u32) -> Vec<PathBuf> {
    let login = PathBuf::from(format!("/run/user/{uid}"));
    let ours = fs::symlink_metadata(&login).is_ok_and(|data| data.is_dir() && data.uid() == uid);
    let shared = PathBuf::from(format!("/tmp/ghost-browser-{uid}"));
    ours.then(|| login.join("ghost-browser")).into_iter().chain([shared]).collect()
}

/// macOS gives each user a folder of its own, which no variable of the environment moves.
#[cfg(target_os = "macos")]
fn system_folders(_uid: u32) -> Vec<PathBuf> {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;

    let mut bytes = vec![0_u8; 1024];
    // SAFETY: the length is that of the buffer, which `confstr` fills with a C string at most.
    let length = unsafe { libc::confstr(libc::_CS_DARWIN_USER_DIR, bytes.as_mut_ptr().cast(), bytes.len()) };
    if length == 0 || length > bytes.len() {
        return Vec::new();
    }
    bytes.truncate(length - 1);
    vec![PathBuf::from(OsString::from_vec(bytes)).join("ghost-browser")]
}

fn unsafe_folder(folder: &Path, reason: &str) -> Fault {
    Fault::new(FaultCode::NoBrowser, format!("the state folder {} is not safe to use: it {reason}", folder.display()))
        .hint(format!("set {RUNTIME_DIR} to a folder of your own with mode 0700, or to one that is not there yet"))
}

fn cannot_create(folder: &Path, error: &io::Error) -> Fault {
    Fault::new(FaultCode::NoBrowser, format!("the state folder {} cannot be used", folder.display()))
        .caused_by(error)
        .hint(format!("set {RUNTIME_DIR} to a folder of your own that can be written"))
}

fn relative(folder: &Path) -> Fault {
    Fault::new(FaultCode::Setting, format!("{RUNTIME_DIR} is {}: expected an absolute path", folder.display()))
        .hint(format!("set {RUNTIME_DIR} to a path that starts with /"))
}

fn no_candidate() -> Fault {
    Fault::new(FaultCode::NoBrowser, "this user has no folder for state")
        .hint(format!("set {RUNTIME_DIR} to a folder of your own with mode 0700"))
}

#[cfg(test)]
mod tests;
