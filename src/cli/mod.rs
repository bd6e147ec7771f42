//! The command line: arguments in, an exit code out.
//!
//! It decides nothing about browsers: it reads what was typed, asks the client, and says what came of it. Standard
//! output carries what was asked for, standard error everything else.
//!
//! `args` is what can be typed, and the help; each command has a file; `render` is how an error reads, `exit` which
//! code wins.

mod args;
mod call;
mod envelope;
mod exit;
mod helpers;
mod others;
mod output;
mod progress;
mod render;
mod repl;
mod run;
mod skill;
mod source;
mod status;
mod stop;
mod timely;
mod workspace;

use std::process::ExitCode;

use args::Command;

/// Does what the command line says.
pub fn main() -> ExitCode {
    let (call, command) = match args::parse(std::env::args_os()) {
        Ok(parsed) => parsed,
        Err(told) => return told.into(),
    };
    let code = match command {
        Command::Script(options) => run::stdin(&call, &options),
        Command::Run(script) => run::named(&call, &script),
        Command::Repl(options) => repl::repl(&call, &options),
        Command::Status(options) => status::status(&call, &options),
        Command::Stop(options) => stop::stop(&call, &options),
        Command::Helpers(what) => helpers::helpers(&call, &what),
        Command::Workspace => workspace::workspace(&call),
        Command::Skill(options) => skill::skill(&options),
    };
    code.into()
}
