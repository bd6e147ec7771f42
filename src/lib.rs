//! One Chromium, driven by small Rhai scripts over raw Chrome DevTools Protocol (CDP).

#[cfg(not(unix))]
compile_error!("ghost-browser runs on Linux and macOS only: it rests on Unix sockets, kernel locks and process groups");

// 4 daemon
pub mod daemon;

// 2 browser
pub mod cdp;
pub mod gateway;
pub mod local;

// 1 words
pub mod cancel;
pub mod ids;
pub mod secret;
pub mod wire;
