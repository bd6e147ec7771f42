//! Arguments in, an exit code out. Two hidden ones make this program a daemon or a keeper.

use std::process::ExitCode;

use ghost_browser::{cli, daemon};

fn main() -> ExitCode {
    let first = std::env::args_os().nth(1);
    match first.as_deref().and_then(|argument| argument.to_str()) {
        // Before anything else: a keeper is to stay small.
        Some(daemon::keeper::ARGUMENT) => daemon::keeper::main(),
        Some(daemon::ARGUMENT) => daemon::main(),
        _ => cli::main(),
    }
}
