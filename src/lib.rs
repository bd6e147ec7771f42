//! One Chromium, driven by small Rhai scripts over raw Chrome DevTools Protocol (CDP).

#[cfg(not(unix))]
compile_error!("ghost-browser runs on Linux and macOS only: it rests on Unix sockets, kernel locks and process groups");

// 3 script
pub mod script;

// 2 browser
pub mod cdp;

// 1 words
pub mod cancel;
pub mod ids;
pub mod secret;
pub mod wire;
