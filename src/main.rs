//! Arguments in, an exit code out.

use std::process::ExitCode;

fn main() -> ExitCode {
    ghost_browser::cli::main()
}
