//! Clients that have variables here: sessions of lines. They keep the daemon, and never a browser.

use std::collections::HashMap;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use crate::daemon::desk::VisitorId;

/// Each of them, and how it is told to leave.
#[derive(Default)]
pub(super) struct Guests(HashMap<VisitorId, UnixStream>);

impl Guests {
    pub(super) fn welcome(&mut self, visitor: VisitorId, way_out: UnixStream) {
        self.0.insert(visitor, way_out);
    }

    pub(super) fn leave(&mut self, visitor: VisitorId) {
        self.0.remove(&visitor);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Has all of them leave: nothing more is read of them, and what is being said to them still arrives.
    pub(super) fn show_out(&mut self) {
        for (_, way_out) in self.0.drain() {
            // One that has hung up has left already.
            let _ = way_out.shutdown(Shutdown::Read);
        }
    }
}
