//! One call's way to the daemon of its session.
//!
//! [`Door`] finds the daemon or starts it and has it run, tell its state or stop. A daemon is found by connecting
//! to its socket, never by a number in a file, and nothing here imports the daemon: it is our own executable, run
//! again. A script that the daemon accepted is never sent a second time.
//!
//! `connection` is one socket, `start` the starting, `run` one script, `conversation` a session of lines,
//! `vault` the secrets that they may ask for, `interrupt` Ctrl-C, `notes` what dead daemons owe, `stale` what else they left. Read `door` first.

mod connection;
mod conversation;
mod door;
pub mod interrupt;
pub mod notes;
mod run;
pub mod stale;
mod start;
mod vault;

pub use connection::{Connection, Peer};
pub use conversation::Conversation;
pub use door::{Door, Everyone, Live, Silent, Start};
pub use run::{Listener, Outcome, unwritable};
pub use start::Program;
