//! What a session without a daemon still owes.

use crate::places::Places;
use crate::wire::{Fault, Stopped};
use crate::workspace::SessionKey;

/// The debts of a session whose daemon is gone.
#[derive(Debug, Default)]
pub struct LeftBehind {
    /// Notes that a keeper holds: it is paying.
    pub paying: u32,
    /// Notes that nobody holds: a browser may still be billed, and nothing can release it.
    pub unknown: Vec<Fault>,
}

/// Looks at the notes of a session, or of all of this user's. Changes nothing.
pub fn look(_places: &Places, _session: Option<&SessionKey>) -> LeftBehind {
    LeftBehind::default()
}

/// Waits for the keepers that are paying, then tells what came of it and clears the notes that nobody holds.
pub fn settle(_places: &Places, _session: Option<&SessionKey>) -> Stopped {
    Stopped::default()
}
