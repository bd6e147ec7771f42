//! Sockets and unfinished notes of daemons that were killed: taken away under the lock, which nobody then holds.

use std::fs::{self, File};

use nix::fcntl::{Flock, FlockArg};

use crate::lease;
use crate::places::Places;
use crate::workspace::{SessionFiles, SessionKey};

/// Takes away the stale sockets of one session, or of all of this user's. One that cannot be taken away costs nothing: the next
/// daemon replaces it.
pub fn clear(places: &Places, session: Option<&SessionKey>) {
    let folders = places.find().folders;
    let files = folders.iter().flat_map(|folder| SessionFiles::all_in(folder));
    let is_meant = |files: &SessionFiles| session.is_none_or(|key| files.key().as_deref() == Some(key.as_str()));
    files.filter(is_meant).for_each(|files| clear_one(&files));
}

fn clear_one(files: &SessionFiles) {
    let Ok(lock) = File::open(&files.lock) else { return };
    if let Ok(_held) = Flock::lock(lock, FlockArg::LockExclusiveNonblock) {
        if let Some(key) = files.key() {
            lease::clear_drafts(&files.folder, &key);
        }
        let _ = fs::remove_file(&files.socket);
    }
}
