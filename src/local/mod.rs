//! The Chromium of this machine, for whoever has no token, and for the tests.
//!
//! It is found, started with a debugging pipe and a folder of its own, and ended so that neither a
//! process nor a file of it stays. It speaks no CDP: the pipe is handed up, and so is the question
//! whether the browser ever answered. Nothing of the user's own profile is read or written.
//!
//! Read `chromium` first, then `launch` and `release`; `gone` says when a browser really is no more.

mod arguments;
mod chromium;
mod death;
mod find;
mod folder;
mod gone;
mod launch;
mod litter;
mod log;
mod processes;
mod profile;
mod release;
mod settings;

pub use chromium::Local;
pub use death::Death;
pub use release::Release;
pub use settings::Settings;
