//! What the tests stand on: the other ends of the real protocols, and a place to run the binary in.
//!
//! [`FakeGateway`] speaks HTTP and WebSocket on one port and keeps a ledger of what it saw and what it is owed;
//! [`FakeCdp`] is the browser behind it; [`Sandbox`] runs the built binary with a home, a state folder and an
//! environment of its own, and looks for leaks when it ends. Nothing here sleeps to wait: every wait is for a fact.
//!
//! Read `sandbox` first, then `gateway`. Each test file says `mod support;` and uses what it needs.

#![allow(dead_code, unused_imports, missing_docs)]

mod cdp;
mod gateway;
mod http;
mod ledger;
mod processes;
mod sandbox;
mod site;

pub use cdp::{CloseReply, Closing, Command, FakeCdp, Reaction};
pub use gateway::{Answer, FakeGateway, Gate, Handshake, Minted, ReleaseAnswer, Seen, TOKEN};
pub use http::Delivery;
pub use ledger::{Ledger, PATIENCE};
pub use processes::Process;
pub use sandbox::{Running, Said, Sandbox};
pub use site::Site;

/// Milliseconds, briefly.
pub fn ms(count: u64) -> std::time::Duration {
    std::time::Duration::from_millis(count)
}
