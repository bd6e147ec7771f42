//! One script on a thread of its own: it waits for the browser, runs the script, and has the last word to the client.

use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::House;
use super::writer::{Asking, Writer};
use crate::cancel::{Cancel, CancelReason};
use crate::cdp::Connection;
use crate::daemon::desk::{After, Answer, News, VisitorId};
use crate::daemon::heap::HeapUse;
use crate::script::{self, Ended, Kept, Line, Script};
use crate::wire::{Done, Fault, FaultCode, Phase, Reply, Run};

/// The longest value that is told beside the output. In a frame, its quotes escaped, it may take twice the room.
const VALUE_LIMIT: usize = 24 << 20;

/// The most of a line's value that is told: more than a terminal shows of it.
const SHOWN_LIMIT: usize = 64 << 10;

const OTHER_SETTINGS: &str = "this session's daemon was started with other settings and keeps them; \
    `ghost-browser stop` makes the next call start one with yours";

/// One script, from its arrival to its last word.
pub(super) struct Errand {
    pub(super) writer: Arc<Writer>,
    pub(super) asking: Arc<Asking>,
    pub(super) cancel: Cancel,
    pub(super) id: VisitorId,
    pub(super) house: Arc<House>,
    pub(super) lifetime: Lifetime,
}

/// How long what a script defines lives.
pub(super) enum Lifetime {
    /// As long as the script; its connection ends with it.
    Script,
    /// As long as its connection.
    Session { kept: Arc<Kept>, is_done: Arc<AtomicBool> },
}

/// Why a script did not begin.
enum NotBegun {
    /// The daemon ends and took nothing: the client may go to the next one.
    NotTaken,
    /// There is no browser for it.
    Done(Box<Done>),
}

impl NotBegun {
    fn with(fault: Fault, warnings: Vec<String>) -> Self {
        Self::Done(Box::new(Done { fault: Some(fault), warnings, ..Done::default() }))
    }
}

impl Errand {
    pub(super) fn carry_out(self, run: Run) {
        // Dropped after the last word: the client does not wait for it.
        let _heap = HeapUse::begin();
        let _cut_off = self.writer.cut_off_after(&self.cancel);
        let stop = run.stop;
        let done = match self.done(run) {
            Ok(done) => done,
            Err(NotBegun::Done(done)) => *done,
            Err(NotBegun::NotTaken) => return self.writer.hang_up(),
        };
        // Asked before the client has its last word: afterwards every client leaves.
        let given_up = match (self.cancel.reason(), &self.lifetime) {
            (Some(CancelReason::ClientGone), _) | (Some(CancelReason::Interrupted), Lifetime::Script) => true,
            // Whoever interrupts a line types another one.
            _ => false,
        };
        if let Lifetime::Session { is_done, .. } = &self.lifetime {
            is_done.store(true, Ordering::Release);
        }
        // The client may be gone: what is to be stopped is stopped all the same.
        let _ = self.writer.send(&Reply::Done(Box::new(self.redacted(done))));
        self.house.desk.tell(News::Finished { visitor: self.id, given_up });
        if stop && let Some(answer) = self.house.desk.stop(After::Nothing) {
            let _ = self.writer.send(&Reply::Stopped(Box::new(answer.stopped)));
        }
        if matches!(self.lifetime, Lifetime::Script) {
            self.writer.hang_up();
        }
    }

    fn done(&self, run: Run) -> Result<Done, NotBegun> {
        let deadline = run.timeout_ms.map(|ms| Instant::now() + Duration::from_millis(ms));
        // A script that cannot run is not worth a browser. With one at hand, compiling it to run it tells as much.
        if !self.house.desk.has_browser()
            && let Err(fault) = self.check(&run)
        {
            return Ok(Done { fault: Some(fault), ..Done::default() });
        }
        let (connection, mut warnings) = self.browser(deadline)?;
        if run.settings != self.house.settings {
            warnings.push(OTHER_SETTINGS.to_owned());
        }
        let ended = self.run(run, deadline, &connection);
        warnings.extend(ended.warnings);
        Ok(Done {
            value: ended.value,
            fault: ended.fault,
            warnings,
            aftermath: ended.aftermath.map(Box::new),
            ..Done::default()
        })
    }

    fn check(&self, run: &Run) -> Result<(), Fault> {
        match &self.lifetime {
            Lifetime::Script => script::check(&run.source, &run.origin),
            Lifetime::Session { kept, .. } => kept.check(&line(run.clone(), None)),
        }
    }

    fn run(&self, run: Run, deadline: Option<Instant>, connection: &Connection) -> Ended {
        let (cancel, writer, asking) = (self.cancel.clone(), self.writer.clone(), self.asking.clone());
        match &self.lifetime {
            Lifetime::Script => self.house.host.run(script(run, deadline), connection, cancel, writer, asking),
            Lifetime::Session { kept, .. } => kept.run(line(run, deadline), connection, cancel, writer, asking),
        }
    }

    /// Waits for the browser, and tells the client what for. The script is accepted with the first answer: a daemon that
    /// ends without one has not taken it.
    fn browser(&self, deadline: Option<Instant>) -> Result<(Connection, Vec<String>), NotBegun> {
        let answers = self.house.desk.want(self.id, &self.cancel);
        let mut held_up = None;
        let mut answer = self.next(&answers, deadline, &held_up)?;
        // A client that is gone is noticed by whoever listens to it.
        self.tell(&Reply::Accepted);
        let mut has_waited = false;
        loop {
            match answer {
                Answer::Progress(phase, why) => {
                    held_up.clone_from(&why);
                    self.tell(&Reply::Progress { phase, elapsed_ms: 0, why });
                }
                Answer::Ready { connection, warnings } => {
                    if has_waited {
                        self.tell(&Reply::Progress { phase: Phase::Running, elapsed_ms: 0, why: None });
                    }
                    return Ok((connection, warnings));
                }
                Answer::Refused { fault, warnings } => {
                    return Err(NotBegun::with(fault, warnings));
                }
            }
            has_waited = true;
            answer = self.next(&answers, deadline, &held_up)?;
        }
    }

    /// The next answer; `held_up` is what the last one said of the wait.
    fn next(
        &self,
        answers: &Receiver<Answer>,
        deadline: Option<Instant>,
        held_up: &Option<String>,
    ) -> Result<Answer, NotBegun> {
        let answer = match deadline {
            Some(deadline) => answers.recv_timeout(deadline.saturating_duration_since(Instant::now())),
            None => answers.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        answer.map_err(|error| match error {
            RecvTimeoutError::Timeout => {
                self.house.desk.tell(News::Gone(self.id));
                NotBegun::with(no_time(held_up.as_deref()), Vec::new())
            }
            RecvTimeoutError::Disconnected if self.cancel.is_cancelled() => {
                let fault = Fault::new(FaultCode::Cancelled, "cancelled while waiting for a browser");
                NotBegun::with(fault, Vec::new())
            }
            RecvTimeoutError::Disconnected => NotBegun::NotTaken,
        })
    }

    fn tell(&self, reply: &Reply) {
        // As above: the reader's thread sees the end.
        let _ = self.writer.send(reply);
    }

    /// What leaves the process is searched for secrets; errors also for what looks like one.
    fn redacted(&self, mut done: Done) -> Done {
        let redactor = &self.house.redactor;
        let clean = |text: &mut String| *text = redactor.error(text).into_owned();
        done.value_is_left_out = done.value.as_ref().is_some_and(|value| value.len() > VALUE_LIMIT);
        done.value = done.value.filter(|_| !done.value_is_left_out).map(|value| redactor.output(&value).into_owned());
        if let (Some(value), Lifetime::Session { .. }) = (&mut done.value, &self.lifetime) {
            cut(value, SHOWN_LIMIT);
        }
        done.warnings.iter_mut().for_each(clean);
        let urls =
            done.aftermath.as_deref_mut().into_iter().flat_map(|after| [&mut after.start_url, &mut after.end_url]);
        urls.flatten().for_each(clean);
        done.fault = done.fault.map(|fault| redactor.fault(fault));
        done
    }
}

/// Keeps the first `most` bytes of a text, less what would be half a character.
fn cut(text: &mut String, most: usize) {
    let end = (0..=text.len().min(most)).rev().find(|&end| text.is_char_boundary(end));
    text.truncate(end.unwrap_or(0));
}

fn line(run: Run, deadline: Option<Instant>) -> Line {
    Line { number: run.line.unwrap_or(1), script: script(run, deadline) }
}

fn script(run: Run, deadline: Option<Instant>) -> Script {
    Script {
        source: run.source,
        origin: run.origin,
        args: run.args,
        cwd: PathBuf::from(std::ffi::OsString::from_vec(run.cwd)),
        umask: run.umask,
        deadline,
    }
}

fn no_time(held_up: Option<&str>) -> Fault {
    let message = match held_up {
        Some(why) => format!("no browser within --timeout: {why}"),
        None => "no browser within --timeout".to_owned(),
    };
    Fault::new(FaultCode::NoBrowser, message).hint(
        "a longer --timeout leaves time for a cold start; what the gateway still brings is released: \
         `ghost-browser status` tells",
    )
}
