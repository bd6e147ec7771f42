//! What is done with one input: a command of the prompt, or a line for the daemon.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use super::{Frame, Means, commands, pretty};
use crate::client::notes::both;
use crate::client::{Conversation, Outcome, Start, interrupt, unwritable};
use crate::script;
use crate::script::reading::{self, Kind};
use crate::wire::{Fault, FaultCode, Run, Stream};

/// One session, from its first input to its last.
pub(super) struct Session<'m> {
    pub(super) means: &'m Means,
    pub(super) frame: &'m mut dyn Frame,
    conversation: Conversation,
    /// What the inputs so far have defined, for completion.
    pub(super) defined: Vec<String>,
    /// The last input that failed.
    pub(super) failure: Option<FaultCode>,
}

/// Whether there is another input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    GoOn,
    Leave,
}

impl<'m> Session<'m> {
    pub(super) fn new(means: &'m Means, frame: &'m mut dyn Frame) -> Self {
        interrupt::rest();
        Self { means, frame, conversation: Conversation::default(), defined: Vec::new(), failure: None }
    }

    /// Does what an input says. `number` is that of its first line.
    pub(super) fn take(&mut self, input: &str, number: u32) -> Next {
        if let Some(command) = input.trim().strip_prefix(':') {
            interrupt::resume();
            commands::obey(self, command, number);
            interrupt::rest();
        } else if !is_empty(input) {
            self.run(input, number);
        }
        let has_no_reader = self.failure == Some(FaultCode::Output);
        if has_no_reader || interrupt::must_leave() { Next::Leave } else { Next::GoOn }
    }

    /// Runs an input and says what came of it.
    pub(super) fn run(&mut self, source: &str, number: u32) {
        let run = Run { source: source.to_owned(), line: Some(number), ..self.means.template.clone() };
        let check = || script::check(&run.source, &run.origin);
        let deadline = self.means.timeout.and_then(|limit| Instant::now().checked_add(limit));
        let begin = Start { settings: &self.means.settings, program: &self.means.program, deadline, check: &check };
        let timeout_ms = self.means.timeout.map(milliseconds);
        let make = || Run { timeout_ms, ..run.clone() };
        interrupt::resume();
        let result = self.conversation.run(&self.means.door, &begin, &make, self.frame);
        interrupt::rest();
        self.frame.settle();
        match result {
            Ok(outcome) => self.tell(&outcome, source),
            Err(fault) => self.fail(&fault),
        }
    }

    fn tell(&mut self, outcome: &Outcome, source: &str) {
        outcome.done.warnings.iter().for_each(|sentence| self.frame.warning(sentence));
        if let Some(fault) = &outcome.done.fault {
            return self.fail(fault);
        }
        self.defined.extend(reading::defined(source));
        if let Some(value) = &outcome.done.value {
            self.print(&(pretty::json(value) + "\n"));
        }
    }

    pub(super) fn fail(&mut self, fault: &Fault) {
        self.failure = Some(fault.code);
        if fault.code == FaultCode::Cancelled && interrupt::is_raised() && io::stdin().is_terminal() {
            // The person at the terminal knows who did it.
            let _ = self.frame.output(Stream::Stderr, "cancelled\n");
        } else {
            self.frame.error(fault);
        }
    }

    /// The last act: that a line was interrupted before is forgotten, so that this is waited for.
    pub(super) fn stop_on_leaving(&mut self) -> Option<FaultCode> {
        interrupt::resume();
        self.stop()
    }

    /// Releases every browser; what the lines defined stays.
    pub(super) fn stop(&mut self) -> Option<FaultCode> {
        let failure = match self.conversation.release() {
            // The daemon tells of its own; an earlier one's keeper may still be paying.
            Ok(Some(stopped)) => self.frame.stopped(&both(stopped, self.means.door.settle())),
            Ok(None) => self.frame.stop(),
            Err(fault) => {
                self.frame.error(&fault);
                Some(fault.code)
            }
        };
        self.failure = failure.or(self.failure);
        failure
    }

    /// Writes to standard output.
    pub(super) fn print(&mut self, text: &str) {
        if let Err(error) = self.frame.output(Stream::Stdout, text) {
            self.fail(&unwritable(&error));
        }
    }
}

/// Whether there is nothing to run in it.
fn is_empty(input: &str) -> bool {
    reading::pieces(input).iter().all(|piece| piece.kind == Kind::Comment)
}

fn milliseconds(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX).max(1)
}
