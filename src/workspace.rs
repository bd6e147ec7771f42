//! Whose session a call is: the workspace root, the name and the gateway, made into one key.
//!
//! The token is no part of the key, so that `status` and `stop` find a session without it. Nothing here creates
//! anything: where the files of a session lie is for `places` to say.

use std::fmt;
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::config::{Identity, hex};
use crate::raw_path::RawPath;
use crate::wire::{Fault, FaultCode};

/// What a session's files are named by: hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SessionKey(String);

impl SessionKey {
    /// The digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One workspace under one name and one gateway: at most one daemon.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// The workspace root.
    pub root: RawPath,
    /// The name.
    pub name: String,
    /// What its files are named by.
    pub key: SessionKey,
}

impl Session {
    /// The session of a call that is made in `folder`, a real path.
    pub fn of(identity: &Identity, folder: &Path) -> Self {
        let root = root_of(folder, nix::unistd::getuid().as_raw());
        let mut hash = Sha256::new();
        for part in [root.as_os_str().as_bytes(), identity.name.as_bytes(), identity.gateway.as_bytes()] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Self { root: root.into(), name: identity.name.clone(), key: SessionKey(hex(&hash.finalize()[..16])) }
    }

    /// Where a person's lines of it are kept.
    pub fn history(&self, folder: &Path) -> PathBuf {
        folder.join(format!("{}.history", self.key))
    }

    /// Its files in one state folder.
    pub fn files(&self, folder: &Path) -> SessionFiles {
        SessionFiles::new(folder, self.key.as_str())
    }
}

/// The nearest ancestor with a `.ghost` folder that nobody else could have planted or can change, else `folder`.
fn root_of(folder: &Path, uid: u32) -> PathBuf {
    let root = folder.ancestors().find(|ancestor| is_private(&ancestor.join(".ghost"), uid));
    root.unwrap_or(folder).to_owned()
}

fn is_private(folder: &Path, uid: u32) -> bool {
    fs::symlink_metadata(folder).is_ok_and(|data| data.is_dir() && data.uid() == uid && data.mode() & 0o022 == 0)
}

/// Where the files of one session lie.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionFiles {
    /// The state folder.
    pub folder: RawPath,
    /// The daemon's socket.
    pub socket: RawPath,
    /// The lock that the daemon holds while it lives.
    pub lock: RawPath,
    /// The lock that starters serialise on.
    pub start: RawPath,
    /// The log.
    pub log: RawPath,
}

/// The ending of a socket's file name.
const SOCKET: &str = "sock";

impl SessionFiles {
    fn new(folder: &Path, key: &str) -> Self {
        let file = |ending: &str| folder.join(format!("{key}.{ending}")).into();
        Self { folder: folder.into(), socket: file(SOCKET), lock: file("lock"), start: file("start"), log: file("log") }
    }

    /// The files of every session that has a socket in `folder`, dead or alive, in order.
    pub fn all_in(folder: &Path) -> Vec<Self> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut keys: Vec<_> = entries.filter_map(|entry| key_of_socket(&entry.path())).collect();
        keys.sort();
        keys.iter().map(|key| Self::new(folder, key)).collect()
    }

    /// The key of their session.
    pub fn key(&self) -> Option<String> {
        key_of_socket(&self.socket)
    }

    /// An address for the socket that the kernel takes, however long the folder's path is.
    ///
    /// # Errors
    /// [`FaultCode::NoBrowser`] where there is no short way to a long path.
    pub fn socket_address(&self) -> Result<SocketAddress, Fault> {
        SocketAddress::of(&self.socket)
    }
}

fn key_of_socket(path: &Path) -> Option<String> {
    let key = path.file_stem()?.to_str()?;
    (path.extension()? == SOCKET).then(|| key.to_owned())
}

/// A path to bind or connect; good while this lives.
#[derive(Debug)]
pub struct SocketAddress {
    path: PathBuf,
    _folder: Option<OwnedFd>,
}

/// The longest path in a Unix socket address, with its final NUL.
const ADDRESS_LIMIT: usize = if cfg!(target_os = "linux") { 108 } else { 104 };

impl SocketAddress {
    /// The path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn of(socket: &Path) -> Result<Self, Fault> {
        if socket.as_os_str().len() < ADDRESS_LIMIT {
            return Ok(Self { path: socket.to_owned(), _folder: None });
        }
        if !cfg!(target_os = "linux") {
            return Err(too_long(socket));
        }
        Self::through_descriptor(socket).ok_or_else(|| too_long(socket))
    }

    fn through_descriptor(socket: &Path) -> Option<Self> {
        let flags = OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let folder = open(socket.parent()?, flags, Mode::empty()).ok()?;
        let way = format!("/proc/self/fd/{}", folder.as_raw_fd());
        Some(Self { path: Path::new(&way).join(socket.file_name()?), _folder: Some(folder) })
    }
}

fn too_long(socket: &Path) -> Fault {
    Fault::new(
        FaultCode::NoBrowser,
        format!("the socket path {} cannot be reached: over {} bytes", socket.display(), ADDRESS_LIMIT - 1),
    )
    .hint("set GHOST_BROWSER_RUNTIME_DIR to a folder with a shorter path")
}

#[cfg(test)]
mod tests;
