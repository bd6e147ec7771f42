//! Scripts: what one may do, what it may use up, and how it is told what went wrong.
//!
//! A script is text in and text out: it runs on a thread of its own, with an engine of its own, beside the
//! connection. It reaches nothing but what `api` gives it, and nothing that it does ends the process: that is
//! what `engine` (limits), `memory` (counting) and `host` (thread, panic) are for.
//!
//! Nothing here knows of leases, clients or sockets. Read `host` for the life of a script and `kept` for that of
//! a session's lines, then `api` for what it can call, `context` for how a call finds its script, `value` for what
//! crosses to the browser, and `error` with `hints` and `calls` for what a failure says. `reading` and `protocol` tell about a
//! text that is still being typed.

mod aftermath;
mod api;
mod browser;
mod calls;
mod context;
mod copy;
mod ending;
mod engine;
mod error;
mod files;
pub mod helpers;
mod hints;
mod host;
mod kept;
pub mod memory;
pub mod protocol;
pub mod reading;
mod secret;
mod stack;
mod state;
mod value;

pub use host::{Closed, Ended, Host, Output, Script, check};
pub use kept::{Kept, Line};
pub use secret::{Answering, Secrets};

#[cfg(test)]
mod soup;
#[cfg(test)]
mod tests;
