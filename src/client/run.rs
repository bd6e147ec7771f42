//! One script over one connection: from `Run` to the last word on it.

use std::io;
use std::time::Instant;

use super::connection::Connection;
use super::interrupt::Forwarding;
use crate::wire::{Done, Fault, FaultCode, Phase, Reply, Request, Run, Stopped, Stream};

/// Who hears what a run says while it lasts.
pub trait Listener {
    /// Takes output. An error cancels the script, and the run ends with `output`.
    ///
    /// # Errors
    /// When it cannot be written.
    fn output(&mut self, stream: Stream, text: &str) -> io::Result<()>;

    /// Is told what the run waits for.
    fn progress(&mut self, phase: Phase, elapsed_ms: u64);

    /// When [`Listener::tick`] is wanted next.
    fn next_tick(&self) -> Option<Instant>;

    /// Time has passed and nothing else has happened.
    fn tick(&mut self);
}

/// How a run ended.
#[derive(Debug)]
pub struct Outcome {
    /// The script's end.
    pub done: Done,
    /// What `--stop` came to; `None` without it, and where the daemon ended before it told.
    pub stopped: Option<Stopped>,
}

/// What became of a `Run` that was sent.
pub(super) enum Sent {
    /// The connection ended before the daemon took it: it never ran.
    NotTaken,
    /// It ended.
    Ended(Outcome),
}

/// Sends `run` and sees it through.
///
/// # Errors
/// What the daemon refused it with.
pub(super) fn run(connection: &mut Connection, run: Run, listener: &mut dyn Listener) -> Result<Sent, Fault> {
    let stop = run.stop;
    if connection.send(&Request::Run(Box::new(run))).is_err() {
        return Ok(Sent::NotTaken);
    }
    let _forwarding = Forwarding::to(connection);
    let mut hearing = Hearing::new(listener, stop);
    // An error ends a connection like its end does.
    while let Ok(Some(reply)) = hearing.next(connection) {
        match hearing.take(reply, connection) {
            Heard::Enough => break,
            Heard::More => {}
            Heard::Refused(fault) => return Err(fault),
        }
    }
    Ok(hearing.end())
}

/// What was heard so far.
struct Hearing<'l> {
    listener: &'l mut dyn Listener,
    stop: bool,
    accepted: bool,
    unwritable: Option<io::Error>,
    done: Option<Done>,
    stopped: Option<Stopped>,
}

enum Heard {
    More,
    Enough,
    Refused(Fault),
}

impl<'l> Hearing<'l> {
    fn new(listener: &'l mut dyn Listener, stop: bool) -> Self {
        Self { listener, stop, accepted: false, unwritable: None, done: None, stopped: None }
    }

    fn next(&mut self, connection: &mut Connection) -> io::Result<Option<Reply>> {
        while let Some(tick) = self.listener.next_tick() {
            if connection.is_readable_before(tick) {
                break;
            }
            if Instant::now() >= tick {
                self.listener.tick();
            }
        }
        connection.receive()
    }

    fn take(&mut self, reply: Reply, connection: &mut Connection) -> Heard {
        match reply {
            Reply::Accepted => self.accepted = true,
            Reply::Progress { phase, elapsed_ms } => self.listener.progress(phase, elapsed_ms),
            Reply::Output { stream, text } => self.write(stream, &text, connection),
            Reply::Done(done) => {
                self.done = Some(*done);
                if !self.stop {
                    return Heard::Enough;
                }
            }
            Reply::Stopped(stopped) => {
                self.stopped = Some(*stopped);
                return Heard::Enough;
            }
            Reply::Refused(fault) => return Heard::Refused(fault),
            Reply::Hello { .. } | Reply::Status(_) | Reply::Unknown => {}
        }
        Heard::More
    }

    fn write(&mut self, stream: Stream, text: &str, connection: &mut Connection) {
        if self.unwritable.is_some() {
            return;
        }
        if let Err(error) = self.listener.output(stream, text) {
            self.unwritable = Some(error);
            // Where the daemon cannot be told, it sees the connection end.
            let _ = connection.send(&Request::Cancel);
        }
    }

    fn end(self) -> Sent {
        if !self.accepted && self.done.is_none() {
            return Sent::NotTaken;
        }
        let mut done = self.done.unwrap_or_else(|| Done { fault: Some(unknown_outcome()), ..Done::default() });
        if let Some(error) = &self.unwritable {
            done.fault = Some(unwritable(error));
        }
        Sent::Ended(Outcome { done, stopped: self.stopped })
    }
}

fn unknown_outcome() -> Fault {
    Fault::new(FaultCode::OutcomeUnknown, "the daemon ended while the script ran: what the script did is unknown")
        .hint("look before you run it again; `ghost-browser status` tells what is left")
}

/// The fault of a standard output that takes no more.
pub fn unwritable(error: &io::Error) -> Fault {
    Fault::new(FaultCode::Output, "cannot write to standard output").caused_by(error)
}
