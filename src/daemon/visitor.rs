//! One client: its hello, its request, and for a script two threads: this one listens for a cancel or the client's
//! death, the other runs the script and writes. A session of lines is one client with many scripts, one after the
//! other, whose variables are kept until it leaves.

use std::borrow::Cow;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::desk::{After, Answer, Desk, News, VisitorId};
use super::heap::HeapUse;
use crate::cancel::{Cancel, CancelReason, Registration};
use crate::cdp::Connection;
use crate::redact::Redactor;
use crate::script::{self, Answering, Ended, Host, Kept, Line, Script};
use crate::wire::{
    BUILD, Done, Fault, FaultCode, PROTOCOL, Phase, Reply, Request, Run, SecretAnswer, Stream, read_frame, write_frame,
};

/// How long a client may take to read what is left for it, when the daemon or its script ends.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// The most output in one frame.
const OUTPUT_PIECE: usize = 1 << 20;

/// The longest value that is told beside the output. In a frame, its quotes escaped, it may take twice the room.
const VALUE_LIMIT: usize = 24 << 20;

/// What every visit needs.
pub(super) struct House {
    pub(super) desk: Desk,
    pub(super) host: Arc<Host>,
    pub(super) redactor: Redactor,
    pub(super) visits: Visits,
    /// The digest of the token that this daemon's browsers belong to; `None` where none is needed.
    pub(super) credential: Option<String>,
    /// The digest of the settings that this daemon keeps.
    pub(super) settings: String,
    /// How long a client may read nothing.
    pub(super) patience: Duration,
}

/// How many requests have not been answered to their last word yet.
#[derive(Clone, Default)]
pub(super) struct Visits(Arc<(Mutex<usize>, Condvar)>);

/// One of them.
struct Here(Visits);

impl Visits {
    fn enter(&self) -> Here {
        *self.count() += 1;
        Here(self.clone())
    }

    /// Waits until every request has had its last word, but not for a client that does not read it.
    pub(super) fn wait_for_last_words(&self) {
        let count = self.count();
        let waited = self.0.1.wait_timeout_while(count, LAST_WORDS, |count| *count > 0);
        drop(waited);
    }

    fn count(&self) -> MutexGuard<'_, usize> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        *self.0.count() -= 1;
        self.0.0.1.notify_all();
    }
}

/// Serves one client until it or its request is done.
pub(super) fn receive(stream: UnixStream, id: VisitorId, house: &Arc<House>) {
    let mut visit = Visit { reader: stream, id, house, session: None };
    // A client that hangs up needs no answer.
    let _ = visit.serve();
    visit.leave();
}

struct Visit<'a> {
    reader: UnixStream,
    id: VisitorId,
    house: &'a Arc<House>,
    session: Option<Session>,
}

/// A client that sends one line after the other.
struct Session {
    kept: Arc<Kept>,
    /// The line that runs, or ran last.
    last: Option<Running>,
    /// Whether its client has been told that it is done.
    is_done: Arc<AtomicBool>,
}

/// A script on a thread of its own.
struct Running {
    cancel: Cancel,
    asking: Arc<Asking>,
    thread: JoinHandle<()>,
}

impl Visit<'_> {
    fn serve(&mut self) -> io::Result<()> {
        while let Some(request) = read_frame(&mut self.reader)? {
            let here = self.house.visits.enter();
            match request {
                Request::Run(run) if run.credential != self.house.credential => {
                    self.answer(&Reply::Refused(other_credential()))?;
                }
                Request::Run(run) if run.line.is_some() => self.run_line(*run, here)?,
                Request::Run(run) => self.run(*run, here)?,
                Request::Stop => {
                    let Some(answer) = self.house.desk.stop(self.after_stop()) else { return Ok(()) };
                    self.answer(&Reply::Stopped(Box::new(answer.stopped)))?;
                    // Whoever stops waits for our end: the process's where that comes, else this connection's. A session goes on.
                    if !answer.ends && self.session.is_none() {
                        return Ok(());
                    }
                }
                Request::Status => match self.house.desk.status() {
                    Some(status) => self.answer(&Reply::Status(Box::new(status)))?,
                    None => return Ok(()),
                },
                Request::Hello { .. } => self.answer(&hello())?,
                Request::Cancel => self.cancel_line(CancelReason::Interrupted),
                Request::Secret { name, answer } => {
                    self.line().into_iter().for_each(|line| line.asking.hear(&name, answer.clone()));
                }
                Request::Unknown => self.answer(&Reply::Refused(unknown_request()))?,
            }
        }
        Ok(())
    }

    fn answer(&mut self, reply: &Reply) -> io::Result<()> {
        write_frame(&mut self.reader, reply)
    }

    /// Has the script run on another thread, and listens to the client meanwhile.
    fn run(&mut self, run: Run, here: Here) -> io::Result<()> {
        let Running { cancel, asking, .. } = self.start(run, here, Lifetime::Script)?;
        loop {
            match read_frame(&mut self.reader) {
                Ok(Some(Request::Cancel)) => self.cancel(&cancel, CancelReason::Interrupted),
                Ok(Some(Request::Secret { name, answer })) => asking.hear(&name, answer),
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => {
                    self.cancel(&cancel, CancelReason::ClientGone);
                    return Ok(());
                }
            }
        }
    }

    /// Has a line run on another thread, and goes on listening.
    fn run_line(&mut self, run: Run, here: Here) -> io::Result<()> {
        let mut session = match self.session.take().map_or_else(|| self.settle(), |session| Ok(Ok(session)))? {
            Ok(session) => session,
            Err(fault) => return self.answer(&Reply::Refused(fault)),
        };
        let outcome = if session.is_done.swap(false, Ordering::AcqRel) {
            // The last one has had its last word: what is left of it takes moments.
            let last = session.last.take().map(|last| last.thread.join());
            drop(last);
            let lifetime = Lifetime::Session { kept: session.kept.clone(), is_done: session.is_done.clone() };
            self.start(run, here, lifetime).map(|running| session.last = Some(running))
        } else {
            self.answer(&Reply::Refused(one_at_a_time()))
        };
        self.session = Some(session);
        outcome
    }

    /// Becomes a client with variables here.
    fn settle(&self) -> io::Result<Result<Session, Fault>> {
        let way_out = self.reader.try_clone()?;
        Ok(Kept::new(self.house.host.clone()).map(|kept| {
            self.house.desk.tell(News::Stays(self.id, way_out));
            Session { kept: Arc::new(kept), last: None, is_done: Arc::new(AtomicBool::new(true)) }
        }))
    }

    /// The line that runs, or ran last.
    fn line(&self) -> Option<&Running> {
        self.session.as_ref()?.last.as_ref()
    }

    /// Nothing is left to end where no line runs.
    fn cancel_line(&self, reason: CancelReason) {
        self.line().into_iter().for_each(|line| self.cancel(&line.cancel, reason));
    }

    /// Whoever has variables here wants them kept.
    fn after_stop(&self) -> After {
        if self.session.is_some() { After::Guests } else { After::Nothing }
    }

    fn leave(self) {
        self.cancel_line(CancelReason::ClientGone);
        if self.session.is_some() {
            self.house.desk.tell(News::Left(self.id));
        }
    }

    /// Starts a script on a thread of its own.
    fn start(&self, run: Run, here: Here, lifetime: Lifetime) -> io::Result<Running> {
        let cancel = Cancel::new();
        let writer = Arc::new(Writer::new(self.reader.try_clone()?, self.house)?);
        let asking = Arc::new(Asking { writer: writer.clone(), waiting: Mutex::default() });
        let errand = Errand {
            writer,
            asking: asking.clone(),
            cancel: cancel.clone(),
            id: self.id,
            house: self.house.clone(),
            lifetime,
        };
        let work = move || {
            errand.carry_out(run);
            drop(here);
        };
        let thread = thread::Builder::new().name("errand".to_owned()).stack_size(256 << 10).spawn(work)?;
        Ok(Running { cancel, asking, thread })
    }

    fn cancel(&self, cancel: &Cancel, reason: CancelReason) {
        cancel.cancel(reason);
        self.house.desk.tell(News::Gone(self.id));
    }
}

/// One script, from its arrival to its last word.
struct Errand {
    writer: Arc<Writer>,
    asking: Arc<Asking>,
    cancel: Cancel,
    id: VisitorId,
    house: Arc<House>,
    lifetime: Lifetime,
}

/// How long what a script defines lives.
enum Lifetime {
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
    fn carry_out(self, run: Run) {
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
        let mut answer = self.next(&answers, deadline)?;
        // A client that is gone is noticed by whoever listens to it.
        self.tell(&Reply::Accepted);
        let mut has_waited = false;
        loop {
            match answer {
                Answer::Progress(phase) => self.tell(&Reply::Progress { phase, elapsed_ms: 0 }),
                Answer::Ready { connection, warnings } => {
                    if has_waited {
                        self.tell(&Reply::Progress { phase: Phase::Running, elapsed_ms: 0 });
                    }
                    return Ok((connection, warnings));
                }
                Answer::Refused { fault, warnings } => {
                    return Err(NotBegun::with(fault, warnings));
                }
            }
            has_waited = true;
            answer = self.next(&answers, deadline)?;
        }
    }

    fn next(&self, answers: &Receiver<Answer>, deadline: Option<Instant>) -> Result<Answer, NotBegun> {
        let answer = match deadline {
            Some(deadline) => answers.recv_timeout(deadline.saturating_duration_since(Instant::now())),
            None => answers.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        answer.map_err(|error| match error {
            RecvTimeoutError::Timeout => {
                self.house.desk.tell(News::Gone(self.id));
                NotBegun::with(no_time(), Vec::new())
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

/// The client's side of the socket. Blocks while the client is slow, but not for ever.
struct Writer {
    stream: UnixStream,
    turn: Mutex<()>,
    redactor: Redactor,
}

impl Writer {
    fn new(stream: UnixStream, house: &House) -> io::Result<Self> {
        stream.set_write_timeout(Some(house.patience))?;
        Ok(Self { stream, turn: Mutex::default(), redactor: house.redactor.clone() })
    }

    fn send(&self, reply: &Reply) -> io::Result<()> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        write_frame(&mut &self.stream, reply)
    }

    /// Ends the connection, and with it the thread that listens to the client and a write that the client does not read.
    fn hang_up(&self) {
        // The client may have hung up first.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }

    /// Once `cancel` is raised the client has a moment to read its last words: nobody who wants the script's end waits for
    /// a client that does not read.
    fn cut_off_after(self: &Arc<Self>, cancel: &Cancel) -> Registration {
        let writer = Arc::downgrade(self);
        cancel.on_cancel(move || {
            let writer = writer.clone();
            let cut_off = move || {
                thread::sleep(LAST_WORDS);
                writer.upgrade().iter().for_each(|writer| writer.hang_up());
            };
            // Without a thread the client's patience is what ends the wait.
            let _ = thread::Builder::new().name("cut-off".to_owned()).stack_size(64 << 10).spawn(cut_off);
        })
    }
}

impl script::Output for Writer {
    fn write(&self, stream: Stream, text: &str) -> Result<(), script::Closed> {
        let text = self.redactor.output(text);
        let mut rest: &str = &text;
        while !rest.is_empty() {
            let end =
                (0..=rest.len().min(OUTPUT_PIECE)).rev().find(|&at| rest.is_char_boundary(at)).unwrap_or(rest.len());
            let piece = rest[..end].to_owned();
            self.send(&Reply::Output { stream, text: piece }).map_err(|_| script::Closed)?;
            rest = &rest[end..];
        }
        Ok(())
    }
}

/// The client's secrets: asked for over its socket, and answered whenever it likes.
struct Asking {
    writer: Arc<Writer>,
    waiting: Mutex<Vec<(String, Answering)>>,
}

impl Asking {
    /// Takes the client's answer. From here on no text that leaves the process holds the secret.
    fn hear(&self, name: &str, answer: SecretAnswer) {
        let waiting = self.waiting().extract_if(.., |(asked, _)| asked == name).collect::<Vec<_>>();
        if let SecretAnswer::Granted(granted) = &answer {
            self.writer.redactor.learn(&granted.value);
        }
        for (_, tell) in waiting {
            tell(match answer.clone() {
                SecretAnswer::Granted(granted) => Ok(granted),
                SecretAnswer::Refused(fault) => Err(fault),
            });
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<(String, Answering)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl script::Secrets for Asking {
    fn ask(&self, name: &str, answer: Answering) {
        self.waiting().push((name.to_owned(), answer));
        // A client that is gone answers nothing: its script is cancelled.
        let _ = self.writer.send(&Reply::NeedSecret { name: name.to_owned() });
    }

    fn hide<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.writer.redactor.output(text)
    }
}

/// The most of a line's value that is told: more than a terminal shows of it.
const SHOWN_LIMIT: usize = 64 << 10;

const OTHER_SETTINGS: &str = "this session's daemon was started with other settings and keeps them; \
    `ghost-browser stop` makes the next call start one with yours";

fn hello() -> Reply {
    Reply::Hello { protocol: PROTOCOL, build: BUILD.to_owned(), pid: std::process::id() }
}

fn unknown_request() -> Fault {
    Fault::new(FaultCode::Usage, format!("a request that build {BUILD} does not know"))
        .hint("`ghost-browser stop` ends this daemon; the next call starts one of your build")
}

fn one_at_a_time() -> Fault {
    Fault::new(FaultCode::Usage, "a line of this session still runs")
}

fn other_credential() -> Fault {
    Fault::new(FaultCode::OtherCredential, "another credential owns this session")
        .hint("`ghost-browser stop` releases its browser; or `--name` starts a session beside it")
}

fn no_time() -> Fault {
    Fault::new(FaultCode::NoBrowser, "no browser within --timeout")
        .hint("a longer --timeout leaves time for a cold start")
}
