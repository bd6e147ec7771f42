//! Arguments in, exit code out.

use std::process::ExitCode;

use ghost_browser::daemon::keeper;

fn main() -> ExitCode {
    // Before anything else: a keeper is to stay small.
    if std::env::args_os().nth(1).is_some_and(|argument| argument == keeper::ARGUMENT) {
        return keeper::main();
    }
    ExitCode::SUCCESS
}
