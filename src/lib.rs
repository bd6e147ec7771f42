//! One Chromium, driven by small Rhai scripts over raw Chrome DevTools Protocol (CDP).
//!
//! # Layers
//! The modules below stand in layers, the top one first; a file imports only from lower layers, which
//! `tests/layering.rs` checks. [`client`] starts a daemon by running its own executable and never imports [`daemon`]; [`lease`] and
//! [`cdp`] do not know each other. The one place where lease, connection and scripts meet is `daemon::supervisor`.
//!
//! # The life of a call
//! [`cli`] reads the script. [`client`] finds this workspace's daemon or starts it, after the script's syntax was checked, and sends
//! `Run` ([`wire`]). In the [`daemon`] a visitor accepts it, and the supervisor makes sure of a browser. [`script`] gives it a
//! thread and an engine. Each `cdp()` writes one frame and waits for its reply by reading the socket itself ([`cdp`]). Output goes
//! back while the script runs; at the end its value or fault decides the exit code.
//!
//! # The life of a browser
//! A [`gateway`] is asked once: the hosted one, or [`local`] Chromium. From before the question until the release is confirmed there
//! is a [`lease`], which decides what is owed, a note on disk, which marks the debt, and a keeper process, which pays it if
//! the daemon is killed ([`daemon::keeper`]). The connection is made by `daemon::connector` and watched by [`cdp`]; the browser is
//! released by `stop`, when it is idle, or when the last caller leaves before it was used.
//!
//! # Where a thing belongs
//! What crosses a socket: [`wire`]. A setting: [`config`]. A path in the state folder: [`places`], [`workspace`]. A function that
//! scripts call: `script::api`. A command of the command line: one file in [`cli`]. An error's exit code: [`wire::FaultCode`].

#[cfg(not(unix))]
compile_error!("ghost-browser runs on Linux and macOS only: it rests on Unix sockets, kernel locks and process groups");

// 6 doors
pub mod cli;
pub mod repl;

// 5 client
pub mod client;

// 4 daemon
pub mod daemon;

// 3 script
pub mod script;

// 2 browser
pub mod cdp;
pub mod gateway;
pub mod lease;
pub mod local;

// 1 words
pub mod cancel;
pub mod config;
pub mod ids;
pub mod launch;
pub mod places;
pub mod proxy;
pub mod raw_path;
pub mod redact;
pub mod secret;
pub mod wire;
pub mod workspace;

#[cfg(test)]
mod testing;
