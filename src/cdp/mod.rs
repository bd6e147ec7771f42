//! The Chrome DevTools Protocol: one connection, many threads that wait on it.
//!
//! There is no reader thread in the way: the thread that waits for a reply reads the socket itself
//! and deals out what it finds to the others (`lead` says how they take turns; a wake-up between threads costs
//! more than the rest of a call). A closed connection is a state of the table of pending calls, so a
//! call made afterwards is refused at once. A command is written once and never again.
//!
//! Nothing here knows of gateways or leases: [`Connection::open`] is given a [`Transport`]. Read `connection`
//! first, then `lead`, `pages` (which targets there are, and their dialogs), `events` and `error`.

mod caller;
mod connection;
mod error;
mod events;
mod frame;
mod kick;
mod lead;
mod lent;
mod link;
mod pages;
mod pending;
mod pipe;
mod sentinel;
mod tally;
mod transport;
mod websocket;

pub use caller::{Caller, PageChoice, PageInfo};
pub use connection::{Closing, Connection, KeepAlive, Statistics};
pub use error::{CallError, CloseReason, DialError};
pub use events::{CdpEvent, Cursor, Subscription};
pub use frame::{Answer, Call};
pub use pages::{Dialog, Page};
pub use pipe::Pipe;
pub use tally::Tally;
pub use transport::{Incoming, Transport};
pub use websocket::{WebSocket, dial};
