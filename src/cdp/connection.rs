//! One connection to one browser, shared by every thread that has business with it.
//!
//! [`Connection::open`] starts the sentinel thread, which reads when nobody else does, keeps the stream alive and
//! notices when it is dead. Everything else happens on the threads that wait (see `lead`). Locks are taken in the
//! order link, pending; the others are taken alone.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::events::{CdpEvent, Events};
use super::frame::{self, Call, Message, UNAWAITED};
use super::kick::Kick;
use super::lead::{Lead, Parker};
use super::link::Link;
use super::pages::{Effect, Pages};
use super::pending::{CallerKind, Entry, Outcome, Pending};
use super::sentinel::Sentinel;
use super::transport::{Incoming, Transport};
use super::{CallError, Caller, CloseReason};
use crate::cancel::Cancel;
use crate::ids::CallId;

/// When a quiet connection is pinged, and when it counts as lost.
#[derive(Debug, Clone, Copy)]
pub struct KeepAlive {
    /// How often the peer is pinged: what sits between may close a stream that is quiet for a minute.
    pub ping_every: Duration,
    /// How long a connection may be silent, with nobody waiting for a reply, before the browser is asked something.
    pub silence: Duration,
    /// How long a browser that was asked may stay silent before it counts as lost.
    pub last_word: Duration,
}

impl Default for KeepAlive {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { ping_every: seconds(20), silence: seconds(60), last_word: seconds(30) }
    }
}

/// A connection. Clones are the same one; when the last is dropped the stream ends.
#[derive(Clone)]
pub struct Connection {
    pub(super) shared: Arc<Shared>,
    _owner: Arc<Owner>,
}

/// Ends the stream when nobody can use it any more.
struct Owner(Arc<Shared>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.end(&CloseReason::Normal);
    }
}

/// How an orderly end went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closing {
    /// Both sides closed normally: the peer's 1000 answered ours.
    Normal,
    /// It ended in another way, or not in time.
    Abnormal,
}

/// What `status` tells of a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Commands that were sent for scripts.
    pub calls: u64,
    /// Events in the ring.
    pub events_buffered: u64,
    /// Events that there was no room for.
    pub events_dropped: u64,
    /// Frames that made no sense, and replies that nobody waited for.
    pub odd_frames: u64,
}

type OnClose = Box<dyn FnOnce(CloseReason) + Send>;

pub(super) struct Shared {
    link: Mutex<Link>,
    lead: Lead,
    kick: Kick,
    pending: Mutex<Pending>,
    pub(super) events: Mutex<Events>,
    pub(super) pages: Mutex<Pages>,
    /// Whether any page is crashed or has a dialog open.
    pub(super) blocked: AtomicBool,
    /// Whether frames are here that were not dealt out yet.
    more: AtomicBool,
    next_id: AtomicU64,
    calls: AtomicU64,
    odd: AtomicU64,
    keep_alive: KeepAlive,
    born: Instant,
    /// When the last byte arrived, in milliseconds since `born`.
    heard_ms: AtomicU64,
    on_close: Mutex<Option<OnClose>>,
    reader: i32,
}

/// A thread's turn at the connection: it leads while this lives, unless somebody else does. A call takes it before its
/// command is written, because a reply that finds nobody leading wakes the sentinel.
pub(super) struct Turn<'a> {
    shared: &'a Shared,
    leads: bool,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.leads {
            self.shared.leave();
        }
    }
}

/// What a look at the state of things comes to.
pub(super) enum Look<T> {
    /// The wait is over.
    Ready(T),
    /// Look again when something happens, at the latest then.
    Until(Instant),
}

impl Connection {
    /// Takes over a transport; `on_close` is told once why the connection ended.
    ///
    /// # Errors
    /// The operating system's, when it has no descriptors or threads left.
    pub fn open(
        transport: Box<dyn Transport>,
        keep_alive: KeepAlive,
        on_close: impl FnOnce(CloseReason) + Send + 'static,
    ) -> io::Result<Self> {
        let reader = transport.reader();
        let shared = Arc::new(Shared {
            lead: Lead::new(Sentinel::new(reader)?),
            link: Mutex::new(Link::new(transport)),
            kick: Kick::new()?,
            pending: Mutex::new(Pending::Open(Default::default())),
            events: Mutex::default(),
            pages: Mutex::default(),
            blocked: AtomicBool::new(false),
            more: AtomicBool::new(false),
            next_id: AtomicU64::new(1),
            calls: AtomicU64::new(0),
            odd: AtomicU64::new(0),
            keep_alive,
            born: Instant::now(),
            heard_ms: AtomicU64::new(0),
            on_close: Mutex::new(Some(Box::new(on_close))),
            reader,
        });
        let watched = shared.clone();
        std::thread::Builder::new().name("cdp".to_owned()).stack_size(256 << 10).spawn(move || watched.keep_watch())?;
        Ok(Self { _owner: Arc::new(Owner(shared.clone())), shared })
    }

    /// A caller for the current thread, whose waits end when `cancel` is raised.
    pub fn caller(&self, cancel: &Cancel) -> Caller {
        Caller::new(self.shared.clone(), cancel.clone())
    }

    /// Sets up the watch over all pages (see `pages`). Where the browser has no such thing, scripts do without.
    ///
    /// # Errors
    /// [`CallError`], when the browser does not answer at all.
    pub fn watch(&self, cancel: &Cancel, deadline: Instant) -> Result<(), CallError> {
        self.caller(cancel).set_up_watch(deadline)
    }

    /// Closes the stream in an orderly way and waits for the peer to agree.
    pub fn close(&self, within: Duration) -> Closing {
        let deadline = Instant::now() + within;
        if let Err(reason) = self.shared.link().close() {
            self.shared.end(&reason);
        }
        self.shared.kick.kick();
        let parker = Arc::new(Parker::default());
        let closed =
            self.shared.wait(&mut self.shared.turn(), &parker, &Cancel::new(), || match self.shared.closed() {
                Some(reason) => Look::Ready(Some(reason)),
                None if Instant::now() >= deadline => Look::Ready(None),
                None => Look::Until(deadline),
            });
        self.shared.end(&CloseReason::Normal);
        match closed {
            Some(Some(CloseReason::Normal)) => Closing::Normal,
            _ => Closing::Abnormal,
        }
    }

    /// Why it has ended, once it has.
    pub fn closed(&self) -> Option<CloseReason> {
        self.shared.closed()
    }

    /// Figures for `status`.
    pub fn statistics(&self) -> Statistics {
        let (events_buffered, events_dropped) = {
            let events = self.shared.events();
            (events.buffered(), events.dropped())
        };
        Statistics {
            calls: self.shared.calls.load(Ordering::Relaxed),
            events_buffered,
            events_dropped,
            odd_frames: self.shared.odd.load(Ordering::Relaxed),
        }
    }
}

impl Shared {
    /// Sends `call` once, for nobody: its reply is let go.
    pub(super) fn post(&self, call: &Call<'_>) -> Result<(), CallError> {
        let sent = match self.closed() {
            Some(reason) => Err(reason),
            None => self.write([(UNAWAITED, call.frame(UNAWAITED))]),
        };
        sent.map_err(|reason| unwritten(call, reason))
    }

    /// Sends `call` once. Its outcome goes to `caller`, also that it could not be written.
    pub(super) fn send(&self, call: &Call<'_>, caller: CallerKind) -> Result<CallId, CallError> {
        let id = self.register(call, caller)?;
        // Who waits is told by the end of the connection.
        let _ = self.write([(id, call.frame(id))]);
        Ok(id)
    }

    /// Makes sure that the outcome of `call`, which is about to be written, finds `caller`.
    pub(super) fn register(&self, call: &Call<'_>, caller: CallerKind) -> Result<CallId, CallError> {
        let id = CallId(self.next_id.fetch_add(1, Ordering::Relaxed));
        let entry = Entry { caller, session: call.session.cloned(), written: false };
        let registered = self.pending().register(id, entry);
        registered.map(|()| id).map_err(|reason| unwritten(call, reason))
    }

    /// Writes frames in their order. When it fails, the connection has ended, and every call that was registered has its
    /// outcome.
    pub(super) fn write(&self, frames: impl IntoIterator<Item = (CallId, String)>) -> Result<(), CloseReason> {
        let (sent, busy) = {
            let mut link = self.link();
            let sent = link.send(frames, |id| self.pending().mark_written(id));
            (sent, link.is_busy())
        };
        if let Err(reason) = sent {
            self.end(&reason);
            return Err(reason);
        }
        if busy {
            // Whoever leads polls for room to write from now on.
            self.kick.kick();
        }
        Ok(())
    }

    pub(super) fn count_call(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    /// Gives a call up. True when its frame had been handed over.
    pub(super) fn give_up(&self, id: CallId) -> bool {
        self.link().withdraw(id);
        self.pending().forget(id).is_some_and(|entry| entry.written)
    }

    /// Leads from now on, unless somebody does already.
    pub(super) fn turn(&self) -> Turn<'_> {
        Turn { shared: self, leads: self.lead.take() }
    }

    /// Waits until `look` is ready; `None` when cancelled. The thread reads the socket itself whenever nobody else does.
    pub(super) fn wait<T>(
        &self,
        turn: &mut Turn<'_>,
        parker: &Arc<Parker>,
        cancel: &Cancel,
        mut look: impl FnMut() -> Look<T>,
    ) -> Option<T> {
        loop {
            let until = match look() {
                Look::Ready(outcome) => return Some(outcome),
                Look::Until(until) => until,
            };
            if cancel.is_cancelled() {
                return None;
            }
            match turn.leads {
                true => self.read(until),
                false => turn.leads = self.lead.follow(parker, until),
            }
        }
    }

    /// Gives up the lead; what has arrived and was not dealt out is somebody else's from here on.
    fn leave(&self) {
        self.lead.leave();
        if self.more.load(Ordering::Acquire) {
            self.lead.sentinel.poke();
        }
    }

    /// As leader: waits for the socket, until then or until kicked, and deals out what it brings.
    fn read(&self, until: Instant) {
        if !self.more.swap(false, Ordering::AcqRel) {
            if !self.poll(until) {
                return;
            }
            // Any byte is a sign of life: one frame may take minutes.
            self.heard();
        }
        let batch = self.link().receive();
        self.more.store(batch.more, Ordering::Release);
        for incoming in batch.frames {
            match incoming {
                Incoming::Text(text) => match frame::read(text) {
                    Some(message) => self.deal(message),
                    None => self.count_odd("text that is no CDP message"),
                },
                Incoming::Odd => self.count_odd("a frame that is no text"),
                Incoming::Life => {}
            }
        }
        if let Some(reason) = batch.ended {
            self.end(&reason);
        }
    }

    /// Waits for something to read; writes what waits to be written meanwhile.
    fn poll(&self, until: Instant) -> bool {
        let writer = {
            let link = self.link();
            link.is_busy().then(|| link.writer()).filter(|fd| *fd >= 0)
        };
        // SAFETY: the reader is open as long as the link lives. The writer may be closed in this moment: then the
        // poll ends at once, and the flush says so.
        let borrow = |fd| unsafe { BorrowedFd::borrow_raw(fd) };
        let mut fds = [
            PollFd::new(borrow(self.reader), PollFlags::POLLIN),
            PollFd::new(self.kick.fd(), PollFlags::POLLIN),
            PollFd::new(borrow(writer.unwrap_or(self.reader)), PollFlags::POLLOUT),
        ];
        let watched = if writer.is_some() { 3 } else { 2 };
        let left = until.saturating_duration_since(Instant::now());
        // Rounded up: a wait that ends a moment early would spin through its last millisecond.
        let timeout = PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
        if poll(&mut fds[..watched], timeout).is_err() {
            return false;
        }
        let ready = |fd: &PollFd<'_>| fd.revents().is_some_and(|events| !events.is_empty());
        if ready(&fds[1]) {
            self.kick.clear();
        }
        let readable = ready(&fds[0]);
        if fds[..watched].get(2).is_some_and(ready) {
            self.flush();
        }
        readable
    }

    fn flush(&self) {
        let flushed = self.link().flush(|id| self.pending().mark_written(id));
        if let Err(reason) = flushed {
            self.end(&reason);
        }
    }

    fn deal(&self, message: Message) {
        match message {
            Message::Reply(id, reply) => {
                let caller = self.pending().reply(id, reply);
                match caller {
                    Some(CallerKind::Watch(target)) => self.pages().enabled(&target),
                    Some(CallerKind::Thread(_)) => {}
                    None if id == UNAWAITED => {}
                    None => self.count_odd("a reply that nobody waits for"),
                }
            }
            Message::Event { method, session, params } => self.deal_event(CdpEvent::new(method, session, params)),
        }
    }

    fn deal_event(&self, event: CdpEvent) {
        let (hidden, effects) = {
            let mut pages = self.pages();
            // Asked first: a session that ends with this event is hidden for the last time.
            let hidden = pages.is_private(&event);
            let effects = pages.observe(&event, Instant::now());
            if !effects.is_empty()
                || event.method.starts_with("Page.javascriptDialog")
                || event.method.starts_with("Inspector.")
            {
                self.blocked.store(pages.is_any_blocked(), Ordering::Release);
            }
            (hidden, effects)
        };
        if !hidden {
            self.events().push(event);
        }
        effects.into_iter().for_each(|effect| self.carry_out(effect));
    }

    fn carry_out(&self, effect: Effect) {
        match effect {
            // A connection that ended meanwhile has no page to look after: here and below.
            Effect::Post { session, method, params } => {
                let _ = self.post(&Call { method, params, session: Some(&session) });
            }
            Effect::Enable { session, target } => {
                let enable = Call { method: "Page.enable", params: "{}", session: Some(&session) };
                let _ = self.send(&enable, CallerKind::Watch(target));
            }
            Effect::Detach(session) => {
                self.pending().fail_sessions(&[session], || Outcome::Detached);
                // Some of them may wait for just this end.
                self.lead.wake_followers();
            }
            Effect::Crash(sessions) => self.pending().fail_sessions(&sessions, || Outcome::Crashed),
            Effect::Look(sessions) => self.pending().wake_sessions(&sessions),
        }
    }

    /// Ends the connection, once: every pending call fails, later ones are refused.
    pub(super) fn end(&self, reason: &CloseReason) {
        if !self.pending().close(reason) {
            return;
        }
        self.link().terminate();
        self.kick.kick();
        self.lead.wake_followers();
        self.lead.sentinel.poke();
        let on_close = self.on_close.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(on_close) = on_close {
            on_close(reason.clone());
        }
    }

    /// The sentinel thread: reads when nobody else does, and keeps the stream alive.
    fn keep_watch(&self) {
        let mut next_ping = self.born + self.keep_alive.ping_every;
        let mut asked = None;
        while self.closed().is_none() {
            let due = next_ping.saturating_duration_since(Instant::now());
            let woken = self.lead.sentinel.wait(due);
            if woken {
                let turn = self.turn();
                if turn.leads {
                    self.read(Instant::now());
                }
            }
            if Instant::now() >= next_ping {
                next_ping = Instant::now() + self.keep_alive.ping_every;
                self.look_for_life(&mut asked);
            }
        }
    }

    /// Pings; asks a browser that is silent; gives one up that was asked and stays silent.
    fn look_for_life(&self, asked: &mut Option<Instant>) {
        let now = Instant::now();
        let silent = self.silent_for();
        let KeepAlive { silence, last_word, .. } = self.keep_alive;
        match *asked {
            _ if silent < silence => *asked = None,
            // Whoever waits has a deadline, and until then the browser may take its time.
            _ if self.pending().is_anyone_waiting() => {}
            None => {
                *asked = Some(now);
                // Any byte is an answer; a connection that has ended meanwhile needs none.
                let _ = self.post(&Call::browser("Browser.getVersion", "{}"));
            }
            Some(since) if now.duration_since(since) >= last_word => return self.end(&CloseReason::Silent(silent)),
            Some(_) => {}
        }
        let pinged = self.link().ping();
        if let Err(reason) = pinged {
            self.end(&reason);
        }
        self.kick.kick();
    }

    fn heard(&self) {
        self.heard_ms.store(self.born.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    fn silent_for(&self) -> Duration {
        self.born.elapsed().saturating_sub(Duration::from_millis(self.heard_ms.load(Ordering::Relaxed)))
    }

    pub(super) fn closed(&self) -> Option<CloseReason> {
        self.pending().closed().cloned()
    }

    /// Wakes whoever leads.
    pub(super) fn kick(&self) {
        self.kick.kick();
    }

    fn count_odd(&self, what: &str) {
        tracing::debug!(what, "dropped");
        self.odd.fetch_add(1, Ordering::Relaxed);
    }

    fn link(&self) -> MutexGuard<'_, Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn events(&self) -> MutexGuard<'_, Events> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unwritten(call: &Call<'_>, reason: CloseReason) -> CallError {
    CallError::Closed { method: call.method.to_owned(), written: false, reason }
}

#[cfg(test)]
mod tests;
