//! Where one lease's keeper stands: started when there is something to keep, replaced when it dies.

use std::io;
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::desk::{Desk, LeaseId, News};
use super::keeper::Keeper;
use crate::gateway::Capability;
use crate::lease::Note;
use crate::wire::{Fault, FaultCode};

/// The post of one lease. Used by its driver's threads and by the supervisor.
pub(super) struct Post {
    lease: LeaseId,
    desk: Desk,
    keeper: Mutex<Option<Keeper>>,
}

impl Post {
    pub(super) fn new(lease: LeaseId, desk: Desk) -> Self {
        Self { lease, desk, keeper: Mutex::default() }
    }

    /// Hands `capability` to the keeper, a new one where there is none or it does not answer; returns once it has it.
    pub(super) fn entrust(&self, capability: &Capability, note: &Note) -> Result<(), Fault> {
        let mut keeper = self.keeper();
        if let Some(keeper) = keeper.as_mut()
            && keeper.hold(capability).is_ok()
        {
            return Ok(());
        }
        *keeper = None;
        *keeper = Some(self.start(capability, note).map_err(|error| no_keeper(&error))?);
        Ok(())
    }

    fn start(&self, capability: &Capability, note: &Note) -> io::Result<Keeper> {
        let file = note.share()?;
        let mut keeper = Keeper::start(file.as_fd(), note.path())?;
        keeper.hold(capability)?;
        let (desk, lease) = (self.desk.clone(), self.lease);
        keeper.watch(move || desk.tell(News::KeeperDied(lease)))?;
        Ok(keeper)
    }

    /// Says that nothing is owed any more, and waits for the keeper's end.
    pub(super) fn dismiss(&self) {
        let keeper = self.keeper().take();
        if let Some(keeper) = keeper {
            keeper.released();
        }
    }

    /// The keeper's process, once it has something to keep.
    pub(super) fn pid(&self) -> Option<u32> {
        self.keeper().as_ref().map(Keeper::pid)
    }

    fn keeper(&self) -> MutexGuard<'_, Option<Keeper>> {
        self.keeper.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn no_keeper(error: &io::Error) -> Fault {
    Fault::new(FaultCode::NoBrowser, "no keeper process could be started, and without one no browser is used")
        .caused_by(error)
        .hint("see that processes and descriptors are left for you (`ulimit -u`, `ulimit -n`)")
}
