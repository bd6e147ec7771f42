//! One script over one connection: from `Run` to the last word on it.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use super::connection::{Connection, SUSPENDED, Woken};
use super::interrupt::{self, Forwarding};
use super::vault::{Errand, Found, Vault};
use crate::wire::{Done, Fault, FaultCode, Phase, Reply, Request, Run, SecretAnswer, Stopped, Stream};

/// How long beyond the deadline a daemon may take to tell how a script ended: it looks into a busy page before.
const GRACE: Duration = Duration::from_secs(10);

/// How long a daemon that was told to cancel may say nothing: the script's thread hears of it within moments.
const LAST_WORD: Duration = Duration::from_secs(5);

/// Who hears what a run says while it lasts.
pub trait Listener {
    /// Takes output. An error cancels the script, and the run ends with `output`.
    ///
    /// # Errors
    /// When it cannot be written.
    fn output(&mut self, stream: Stream, text: &str) -> io::Result<()>;

    /// Is told what the run waits for, and what holds that up where it is known.
    fn progress(&mut self, phase: Phase, elapsed_ms: u64, why: Option<String>);

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
    Ended(Box<Outcome>),
    /// The daemon is still there and says nothing, now or ever: what comes later over this connection is nobody's.
    Unanswered(Box<Outcome>),
}

/// Sends `run` and sees it through.
///
/// # Errors
/// What the daemon refused it with.
pub(super) fn run(
    connection: &mut Connection,
    run: Run,
    vault: &Vault<'_>,
    listener: &mut dyn Listener,
) -> Result<Sent, Fault> {
    let mut hearing = Hearing::new(listener, vault, &run);
    if connection.send(&Request::Run(Box::new(run))).is_err() {
        return Ok(Sent::NotTaken);
    }
    let _forwarding = Forwarding::to(connection);
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
    vault: &'l Vault<'l>,
    /// Programs that were asked for secrets. One at a time is listened to.
    errands: VecDeque<Errand>,
    stop: bool,
    /// When a daemon that keeps to the script's deadline has told how it ended, whatever happens.
    deadline: Option<Instant>,
    accepted: bool,
    /// Why the daemon was not waited for any longer.
    unanswered: Option<Fault>,
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
    fn new(listener: &'l mut dyn Listener, vault: &'l Vault<'l>, run: &Run) -> Self {
        Self {
            listener,
            vault,
            errands: VecDeque::new(),
            stop: run.stop,
            deadline: run.timeout_ms.and_then(|limit| Instant::now().checked_add(Duration::from_millis(limit))),
            accepted: false,
            unanswered: None,
            unwritable: None,
            done: None,
            stopped: None,
        }
    }

    /// The next reply; `None` when none will come.
    fn next(&mut self, connection: &mut Connection) -> io::Result<Option<Reply>> {
        // Counted anew for each: where our own reader is slow, so is the daemon.
        let silence = self.silence();
        let mut last_word = None;
        loop {
            let tick = self.listener.next_tick();
            last_word = last_word.or_else(|| self.last_word());
            let errand = self.errands.front().map(AsFd::as_fd);
            let until = [tick, silence, last_word].into_iter().flatten().min();
            match connection.wait(until, errand) {
                Woken::Reply => return connection.receive(),
                Woken::Other => self.go_on_with_errand(connection),
                Woken::Time if is_past(last_word) => return Ok(self.give_up(interrupted())),
                Woken::Time if is_past(silence) => return Ok(self.give_up(unanswered())),
                Woken::Time if is_past(tick) => self.listener.tick(),
                Woken::Time => {}
            }
        }
    }

    fn give_up(&mut self, why: Fault) -> Option<Reply> {
        self.unanswered = Some(why);
        None
    }

    /// When a daemon that has said nothing more is suspended or stuck.
    fn silence(&self) -> Option<Instant> {
        let deadline = self.deadline.filter(|_| self.done.is_none())?;
        deadline.max(Instant::now()).checked_add(GRACE)
    }

    /// The same once we are told to end. A release, which comes after the script, may take its time.
    fn last_word(&self) -> Option<Instant> {
        (interrupt::is_raised() && self.done.is_none()).then(|| Instant::now() + LAST_WORD)
    }

    fn take(&mut self, reply: Reply, connection: &mut Connection) -> Heard {
        match reply {
            Reply::Accepted => self.accepted = true,
            Reply::Progress { phase, elapsed_ms, why } => self.listener.progress(phase, elapsed_ms, why),
            Reply::Output { stream, text } => self.write(stream, &text, connection),
            Reply::NeedSecret { name } => match self.vault.look(&name) {
                Found::Answer(answer) => tell(connection, &name, answer),
                Found::Asked(errand) => self.errands.push_back(errand),
            },
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

    fn go_on_with_errand(&mut self, connection: &mut Connection) {
        let Some(errand) = self.errands.front_mut() else { return };
        if let Some(answer) = errand.go_on(self.vault) {
            tell(connection, errand.name(), answer);
            self.errands.pop_front();
        }
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
        // A silent one may take it yet.
        if !self.accepted && self.done.is_none() && self.unanswered.is_none() {
            return Sent::NotTaken;
        }
        let is_silent = self.unanswered.is_some();
        let fault = self.unanswered.unwrap_or_else(unknown_outcome);
        let mut done = self.done.unwrap_or_else(|| Done { fault: Some(fault), ..Done::default() });
        if let Some(error) = &self.unwritable {
            done.fault = Some(unwritable(error));
        }
        if !is_silent {
            return Sent::Ended(Box::new(Outcome { done, stopped: self.stopped }));
        }
        let stopped = self.stop.then(|| Stopped { released: 0, unconfirmed: vec![unreleased()] });
        Sent::Unanswered(Box::new(Outcome { done, stopped }))
    }
}

fn tell(connection: &mut Connection, name: &str, answer: SecretAnswer) {
    // A daemon that is gone is noticed by whoever reads from it.
    let _ = connection.send(&Request::Secret { name: name.to_owned(), answer });
}

fn unknown_outcome() -> Fault {
    Fault::new(FaultCode::OutcomeUnknown, "the daemon ended while the script ran: what the script did is unknown")
        .hint("look before you run it again; `ghost-browser status` tells what is left")
}

fn unanswered() -> Fault {
    let message = format!("the daemon still does not answer {} s after the deadline", GRACE.as_secs());
    Fault::new(FaultCode::OutcomeUnknown, format!("{message}: what the script did is unknown")).hint(SUSPENDED)
}

fn interrupted() -> Fault {
    Fault::new(FaultCode::Cancelled, "interrupted, and the daemon does not answer: what the script did is unknown")
        .hint(SUSPENDED)
}

fn unreleased() -> Fault {
    Fault::new(FaultCode::ReleaseUnconfirmed, "the browser is not released, since the daemon does not answer")
        .hint("`ghost-browser stop` tries again")
}

fn is_past(moment: Option<Instant>) -> bool {
    moment.is_some_and(|moment| Instant::now() >= moment)
}

/// The fault of a standard output that takes no more.
pub fn unwritable(error: &io::Error) -> Fault {
    Fault::new(FaultCode::Output, "cannot write to standard output").caused_by(error)
}
