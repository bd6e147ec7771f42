//! `repl`: one line after the other, in one scope.
//!
//! It is made from the client and the words of `wire`, like every door: a line is a `Run` whose variables the daemon
//! keeps for as long as the connection stands. How an error or a state reads is not decided here: the [`Frame`] says
//! things as the command line does. What is offered while somebody types comes from tables and from the text itself;
//! neither the daemon nor a script is asked.
//!
//! `session` is what is done with an input; `piped` and `prompt` are where inputs come from. Read `session` first.

mod commands;
mod complete;
mod highlight;
mod piped;
mod pretty;
mod prompt;
mod session;

use std::io::{self, IsTerminal};
use std::time::Duration;

use session::Session;

use crate::client::{Door, Listener, Program};
use crate::config::Settings;
use crate::wire::{Fault, FaultCode, Run, Stopped};

/// What a session works with.
pub struct Means {
    /// The way to the daemon.
    pub door: Door,
    /// What a daemon is started with.
    pub settings: Settings,
    /// What is run as the daemon.
    pub program: Program,
    /// What every line's `Run` has in common.
    pub template: Run,
    /// How long one line may take.
    pub timeout: Option<Duration>,
}

/// How things are said: the same as on the command line.
pub trait Frame: Listener {
    /// Tells a fault.
    fn error(&mut self, fault: &Fault);

    /// Tells what is worth knowing whatever the outcome.
    fn warning(&mut self, sentence: &str);

    /// A line has ended: what is said next stands on a clean line.
    fn settle(&mut self);

    /// Tells the state of the session.
    fn status(&mut self);

    /// Releases what is held where no line has run yet, and tells what came of it.
    fn stop(&mut self) -> Option<FaultCode>;

    /// Tells what a stop came to.
    fn stopped(&mut self, stopped: &Stopped) -> Option<FaultCode>;
}

/// Takes lines from standard input until it ends. Gives the last failure of lines that no person typed.
pub fn run(means: &Means, stop: bool, frame: &mut dyn Frame) -> Option<FaultCode> {
    let mut session = Session::new(means, frame);
    let failure = match io::stdin().is_terminal() {
        true => prompt::talk(&mut session),
        false => piped::run(&mut session, io::stdin().lock()),
    };
    // What is not released costs money, whatever the lines said.
    stop.then(|| session.stop_on_leaving()).flatten().or(failure)
}
