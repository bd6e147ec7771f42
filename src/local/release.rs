//! Ending a Chromium: all that has to be known for it, by the daemon or by the keeper.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use super::death::Death;
use super::folder::{self, Layout};
use super::gone::{self, Group, Remains};
use super::launch::Launched;
use super::log::Tail;
use super::profile::Profile;
use crate::gateway::ReleaseError;
use crate::raw_path::RawPath;
use crate::wire::{Fault, FaultCode};

/// How long a browser that was asked to close is given before it is ended.
const GRACE: Duration = Duration::from_secs(5);

/// How long it is given between being asked by SIGTERM and being ended by SIGKILL.
const TERM_GRACE: Duration = Duration::from_secs(1);

/// One Chromium, running or about to be started, and its folder.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Release {
    folder: RawPath,
    /// `None` before the launch; if one happened all the same, the folder leads to it.
    group: Option<Group>,
    /// What only the daemon has: the log's end, and the lock of a kept profile.
    #[serde(skip)]
    held: Option<Arc<Held>>,
}

#[derive(Debug)]
struct Held {
    tail: Arc<Tail>,
    _profile: Option<Profile>,
}

impl Release {
    /// Of a browser that will live in `folder`.
    pub(super) fn prepared(folder: PathBuf) -> Self {
        Self { folder: folder.into(), group: None, held: None }
    }

    /// Of the browser that was started there.
    pub(super) fn running(folder: PathBuf, launched: &Launched, profile: Option<Profile>) -> Self {
        let held = Held { tail: launched.tail.clone(), _profile: profile };
        Self { folder: folder.into(), group: Some(launched.group.clone()), held: Some(Arc::new(held)) }
    }

    /// The folder that is wiped.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The first process, whose number is the group's, once there is one.
    pub fn leader(&self) -> Option<i32> {
        self.group.as_ref().map(|group| group.leader)
    }

    /// Waits up to five seconds for a browser that was asked to close, ends what is left of it, and wipes its folder.
    /// The leader stays a zombie, for [`Release::reap`].
    ///
    /// # Errors
    /// [`ReleaseError::Failed`]: something of it is alive at `deadline`, or a file is left.
    pub fn release(&self, deadline: Instant) -> Result<(), ReleaseError> {
        self.release_after(GRACE, deadline)
    }

    /// The same with another grace: the keeper's browser was not asked, but lost its pipe.
    ///
    /// # Errors
    /// See [`Release::release`].
    pub fn release_after(&self, grace: Duration, deadline: Instant) -> Result<(), ReleaseError> {
        let failed = |error: io::Error| self.failed(&error.to_string());
        let group = self.find_group().map_err(failed)?;
        let remains = Remains { group: group.as_ref(), folder: &self.folder };
        if !end(&remains, grace, deadline).map_err(failed)? {
            return Err(self.failed(&still_alive(&remains)));
        }
        folder::wipe(&self.folder).map_err(failed)
    }

    /// Waits for the dead leader, so that its number may be used again. Only its parent can; others do nothing.
    pub fn reap(&self) {
        if let Some(leader) = self.leader() {
            // ECHILD: somebody else's child, or waited for already.
            let _ = waitpid(Pid::from_raw(leader), Some(WaitPidFlag::WNOHANG));
        }
    }

    /// Why it ended, if it does within `patience` (its pipe breaks a moment before), and how it said so. Only its parent can tell;
    /// the leader stays to be reaped.
    pub fn post_mortem(&self, patience: Duration) -> Option<Death> {
        let tail = self.held.as_ref().map(|held| &*held.tail);
        gone::wait_for_end(self.leader()?, patience);
        Death::of(self.leader()?, tail)
    }

    fn find_group(&self) -> io::Result<Option<Group>> {
        if self.group.is_some() || !self.folder.exists() {
            return Ok(self.group.clone());
        }
        drop(folder::lock_for_launch(&self.folder)?);
        Group::with_argument(&Layout(&self.folder).marker())
    }

    fn failed(&self, why: &str) -> ReleaseError {
        let message = format!("local chromium in {} is not released: {why}", self.folder.display());
        ReleaseError::Failed(Fault::new(FaultCode::ReleaseUnconfirmed, message))
    }
}

/// True once nothing is alive.
fn end(remains: &Remains<'_>, grace: Duration, deadline: Instant) -> io::Result<bool> {
    let steps = [(grace, Signal::SIGTERM), (TERM_GRACE, Signal::SIGKILL)];
    for (patience, signal) in steps {
        // A short deadline is shared, so that the strongest step is always reached.
        let half = deadline.saturating_duration_since(Instant::now()) / 2;
        if remains.are_gone_by(Instant::now() + patience.min(half))? {
            return Ok(true);
        }
        remains.signal(signal)?;
    }
    remains.are_gone_by(deadline)
}

fn still_alive(remains: &Remains<'_>) -> String {
    let alive = remains.alive().unwrap_or_default();
    let numbers: Vec<String> = alive.iter().map(|process| process.pid.to_string()).collect();
    format!("still running as process {}", numbers.join(", "))
}
