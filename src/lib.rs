//! One Chromium, driven by small Rhai scripts over raw Chrome DevTools Protocol (CDP).

#[cfg(not(unix))]
compile_error!("ghost-browser runs on Linux and macOS only: it rests on Unix sockets, kernel locks and process groups");

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
