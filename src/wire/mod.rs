//! What crosses the socket between a door and the daemon.
//!
//! One [`Request`], one [`Reply`], one [`Fault`]: every door (command line, REPL) is made from
//! these, so none has an operation of its own. `Hello`, `Status` and `Stop` are frozen for all
//! builds: whatever else changes, an old client can see and end a new daemon and the reverse, so an
//! upgrade never strands a browser.
//!
//! Nothing here opens a socket. Read `request` and `reply` first, `fault` for the table of error
//! codes, `frame` for the bytes.

mod fault;
mod frame;
mod reply;
mod request;

pub use fault::{Fault, FaultCode};
pub use frame::{FRAME_LIMIT, read_frame, write_frame};
pub use reply::{Aftermath, Done, Phase, Ready, Reply, Status, StatusState, Stopped, Stream};
pub use request::{Granted, Request, Run, SecretAnswer};

/// The version of this protocol. Another number on the other side means: only the frozen requests.
pub const PROTOCOL: u32 = 1;

/// The build that speaks: the crate's version.
pub const BUILD: &str = env!("CARGO_PKG_VERSION");
