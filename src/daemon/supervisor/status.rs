//! What is going on, in the words of `status`.

use std::time::Instant;

use super::Supervisor;
use super::holding::Holding;
use crate::lease::Lease;
use crate::wire::{BUILD, Status, StatusState};

impl Supervisor {
    pub(super) fn status(&self) -> Status {
        let current = self.current.map(|id| &self.leases[&id]);
        let shown = current.or_else(|| self.leases.values().max_by_key(|holding| rank(holding.lease())));
        let statistics =
            current.and_then(Holding::connection).map(|connection| connection.statistics()).unwrap_or_default();
        let idle_remaining = self.idle_until().map(|until| until.saturating_duration_since(Instant::now()));
        let debts = self.leases.iter().filter(|(id, _)| self.current != Some(**id));
        Status {
            state: shown.map_or(StatusState::Stopped, state),
            gateway: self.means.gateway.name().to_owned(),
            pid: Some(std::process::id()),
            keeper_pid: shown.and_then(Holding::keeper_pid),
            since_s: self.since.elapsed().as_secs_f64(),
            idle_remaining_s: idle_remaining.map(|left| left.as_secs_f64()),
            scripts: self.callers.running().len() as u32,
            calls: statistics.calls,
            events_buffered: statistics.events_buffered,
            events_dropped: statistics.events_dropped,
            workspace: self.means.workspace.to_string_lossy().into_owned(),
            name: self.means.name.clone(),
            version: BUILD.to_owned(),
            debts: debts.filter_map(|(_, holding)| self.debt(holding)).collect(),
        }
    }

    fn debt(&self, holding: &Holding) -> Option<String> {
        let why = match holding.lease() {
            Lease::Unpaid { why, .. } | Lease::Owed { why } => why.clone(),
            _ => return None,
        };
        Some(self.means.redactor.fault(why).message)
    }
}

fn state(holding: &Holding) -> StatusState {
    match holding.lease() {
        Lease::Vacant => StatusState::Stopped,
        Lease::Asking => StatusState::Starting,
        Lease::Held { .. } if holding.is_connected() => StatusState::Connected,
        Lease::Held { .. } => StatusState::Starting,
        Lease::Abandoning | Lease::Closing { .. } | Lease::Releasing { attempt: 1, .. } => StatusState::Stopping,
        Lease::Releasing { .. } | Lease::Unpaid { .. } => StatusState::ReleaseFailed,
        Lease::Owed { .. } => StatusState::ReleaseUnknown,
    }
}

/// Which of several debts is told first: the one that can still be paid.
fn rank(lease: &Lease) -> u8 {
    match lease {
        Lease::Vacant => 0,
        Lease::Owed { .. } => 1,
        Lease::Abandoning | Lease::Closing { .. } | Lease::Releasing { attempt: 1, .. } => 2,
        Lease::Releasing { .. } | Lease::Unpaid { .. } => 3,
        Lease::Asking | Lease::Held { .. } => 4,
    }
}
