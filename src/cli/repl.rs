//! `repl`: the session's means, and how it says things.

use std::io;
use std::time::{Duration, Instant};

use super::args::{ReplOptions, StatusOptions, StopOptions};
use super::call::Call;
use super::exit::Exit;
use super::progress::Progress;
use super::{output, render, run, status, stop};
use crate::client::{Listener, Program, interrupt};
use crate::redact::Redactor;
use crate::repl::{self, Frame, Means};
use crate::wire::{Fault, FaultCode, Phase, Stopped, Stream};

pub(super) fn repl(call: &Call, options: &ReplOptions) -> Exit {
    let means = match means(call, options) {
        Ok(means) => means,
        Err(fault) => {
            render::error(&fault);
            return Exit::of(&fault);
        }
    };
    interrupt::watch();
    let redactor = run::redactor(&means.settings);
    let mut console = Console { call, redactor, progress: Progress::new(options.quiet) };
    repl::run(&means, options.stop, &mut console).map_or(Exit::OK, Exit::of_code)
}

fn means(call: &Call, options: &ReplOptions) -> Result<Means, Fault> {
    let (door, settings, program) = (call.door()?, call.settings()?, Program::own()?);
    let template = run::template(&settings, &door, "repl");
    Ok(Means { door, settings, program, template, timeout: options.timeout })
}

/// The terminal, or the pipes in its place.
struct Console<'c> {
    call: &'c Call,
    redactor: Redactor,
    progress: Progress,
}

impl Frame for Console<'_> {
    fn error(&mut self, fault: &Fault) {
        render::error(&self.redactor.fault(fault.clone()));
    }

    fn warning(&mut self, sentence: &str) {
        render::warning(sentence);
    }

    fn settle(&mut self) {
        self.progress.clear();
    }

    fn status(&mut self) {
        // The state is the answer; a standard output that takes none has been told of.
        status::status(self.call, &StatusOptions::default());
    }

    fn stop(&mut self) -> Option<FaultCode> {
        stop::stop(self.call, &StopOptions::default()).failure()
    }

    fn stopped(&mut self, stopped: &Stopped) -> Option<FaultCode> {
        match stop::report(stopped) {
            Ok(exit) => exit.failure(),
            Err(fault) => {
                render::error(&fault);
                Some(fault.code)
            }
        }
    }
}

impl Listener for Console<'_> {
    fn output(&mut self, stream: Stream, text: &str) -> io::Result<()> {
        self.progress.clear();
        match stream {
            Stream::Stdout => output::write_raw(text),
            Stream::Stderr => {
                output::complain(text);
                Ok(())
            }
        }
    }

    fn progress(&mut self, phase: Phase, elapsed_ms: u64, why: Option<String>) {
        self.progress.enter(phase, Duration::from_millis(elapsed_ms), why);
    }

    fn next_tick(&self) -> Option<Instant> {
        self.progress.next()
    }

    fn tick(&mut self) {
        self.progress.show();
    }
}
