//! Helper modules: functions that people read and change, beside the primitives that they cannot.
//!
//! The workspace's own, `.ghost/helpers/*.rhai`, are global in every script and loaded again when one changes. The shipped
//! ones are opt-in by `import`, which looks for the workspace's file of that name first. A module is read from that one
//! folder by a plain name or not at all, and a broken one costs a warning, not the scripts.
//!
//! `folder` is what lies on disk and whether it may be trusted, `shipped` what the program carries, `library` what becomes
//! of both: read it next. `resolver` is `import`.

mod broken;
mod folder;
mod library;
mod plain;
mod resolver;
mod shipped;

pub use folder::{PLACE, own};
pub use library::{Helpers, Library};
pub use shipped::{SHIPPED, Shipped, shipped};
