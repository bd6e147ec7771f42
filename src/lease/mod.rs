//! Holding a browser: from asking the gateway for one to knowing that it is gone.
//!
//! Whatever was asked for is owed back, and only the gateway's word, or a connection closed normally by both sides, pays
//! the debt. `state` decides, with no socket and no clock; `driver` carries out what concerns the gateway; `note` marks the
//! debt in the state folder, without a secret, before the request leaves.
//!
//! Nothing here speaks CDP, dials an endpoint or starts a keeper: those actions are the supervisor's, which owns the
//! [`Lease`] and joins the two. Read `state` first.

mod driver;
mod note;
mod state;

#[cfg(test)]
mod tests;

pub use driver::{Driver, Entrust, Sink};
pub use note::{FoundNote, Note, NotePlace, Settled, clear_drafts, find, find_all};
pub use state::{Action, Event, Lease, News, join};
