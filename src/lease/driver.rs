//! Carrying out what concerns the gateway: each request on a thread of its own, each answer as an event.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::note::{Note, NotePlace};
use super::state::Event;
use crate::cancel::{Cancel, CancelReason};
use crate::gateway::{Allocation, Ask, Capability, Gateway, OnRetry, ReleaseError, RequestLeft};
use crate::wire::{Fault, FaultCode};

/// For how long an answer is still read after the callers' time is over.
const LAST_WORD: Duration = Duration::from_secs(600);
/// For how long one attempt to release may take.
const RELEASE_LIMIT: Duration = Duration::from_secs(10);

/// Where events go. Called from the driver's threads.
pub type Sink = Arc<dyn Fn(Event) + Send + Sync>;

/// Hands a capability, and a share of the note's lock, to the keeper, and returns when the keeper has it.
pub type Entrust = Arc<dyn Fn(&Capability, &Note) -> Result<(), Fault> + Send + Sync>;

/// What one lease does at the gateway.
///
/// The supervisor owns the lease and calls [`Driver::ask`], [`Driver::abandon`], [`Driver::release`] and [`Driver::settle`] for the
/// actions of those names; the others are its own.
pub struct Driver {
    gateway: Arc<dyn Gateway>,
    sink: Sink,
    place: NotePlace,
    entrust: Entrust,
    abandoned: Cancel,
    left: RequestLeft,
    on_retry: OnRetry,
    note: Arc<Mutex<Option<Note>>>,
}

impl Driver {
    /// A driver for one lease. `entrust` is used for what is known before the browser is asked for; a grant's capability is an action.
    pub fn new(gateway: Arc<dyn Gateway>, place: NotePlace, entrust: Entrust, sink: Sink, on_retry: OnRetry) -> Self {
        let (abandoned, left) = (Cancel::new(), RequestLeft::new());
        Self { gateway, sink, place, entrust, abandoned, left, on_retry, note: Arc::default() }
    }

    /// Writes the note and asks for the browser. Callers wait until `deadline`; an answer is read for longer.
    pub fn ask(&self, deadline: Instant) {
        let before = Before {
            gateway: self.gateway.clone(),
            place: self.place.clone(),
            entrust: self.entrust.clone(),
            note: self.note.clone(),
        };
        let ask = Ask {
            deadline,
            last_word: deadline + LAST_WORD,
            abandoned: self.abandoned.clone(),
            prepared: None,
            left: self.left.clone(),
            on_retry: self.on_retry.clone(),
        };
        let asking = Asking { before, ask };
        let sink = self.sink.clone();
        let started =
            thread::Builder::new().name("allocate".into()).spawn(move || sink(Event::Answered(asking.answer())));
        if let Err(error) = started {
            let fault = no_thread(FaultCode::NoBrowser, &error);
            (self.sink)(Event::Answered(Allocation::Refused(fault)));
        }
    }

    /// Lets nothing leave that has not left. The answer still comes.
    pub fn abandon(&self) {
        self.abandoned.cancel(CancelReason::Stopped);
    }

    /// What to tell the lease when the callers' time is over.
    pub fn expired(&self) -> Event {
        let message = "gateway allocation failed: timed out";
        Event::Expired(match self.left.is_raised() {
            true => Fault::new(FaultCode::ReleaseUnconfirmed, message).hint(
                "the gateway may still bring a browser: it is awaited, and released at once; `ghost-browser status` tells",
            ),
            false => Fault::new(FaultCode::NoBrowser, message)
                .hint("nothing was allocated; GHOST_BROWSER_ALLOCATION_TIMEOUT=SECONDS waits longer"),
        })
    }

    /// Tries to release, once.
    pub fn release(&self, capability: Capability, attempt: u32, closed: bool) {
        let sink = self.sink.clone();
        let started = thread::Builder::new().name("release".into()).spawn(move || {
            let outcome = attempt_release(&capability, closed);
            sink(Event::Released { attempt, outcome });
        });
        if let Err(error) = started {
            let fault = no_thread(FaultCode::ReleaseUnconfirmed, &error);
            let outcome = Err(ReleaseError::Failed(fault));
            (self.sink)(Event::Released { attempt, outcome });
        }
    }

    /// Removes the note: the debt is over.
    ///
    /// # Errors
    /// The note could not be removed; it will be taken for a debt.
    pub fn settle(&self) -> io::Result<()> {
        match held(&self.note).take() {
            Some(note) => note.paid(),
            None => Ok(()),
        }
    }

    /// Hands a capability to the keeper, as it is done for what is known before the browser is asked for.
    ///
    /// # Errors
    /// See [`Entrust`]; `internal` for a lease that has asked for nothing.
    pub fn entrust(&self, capability: &Capability) -> Result<(), Fault> {
        match held(&self.note).as_ref() {
            Some(note) => (self.entrust)(capability, note),
            None => Err(Fault::new(FaultCode::Internal, "a browser without a note")),
        }
    }
}

/// All that the allocation's thread needs.
struct Asking {
    before: Before,
    ask: Ask,
}

/// What has to be in place before a request leaves, and whom it goes to.
struct Before {
    gateway: Arc<dyn Gateway>,
    place: NotePlace,
    entrust: Entrust,
    note: Arc<Mutex<Option<Note>>>,
}

impl Asking {
    /// The one answer, whatever happens: without it, the lease would wait for ever.
    fn answer(self) -> Allocation {
        let (left, mut ask) = (self.ask.left.clone(), self.ask);
        let asked = AssertUnwindSafe(|| self.before.allocate(&mut ask).unwrap_or_else(Allocation::Refused));
        catch_unwind(asked).unwrap_or_else(|_| match (ask.prepared.take(), left.is_raised()) {
            (Some(capability), _) => Allocation::Unusable(capability, panicked(FaultCode::Internal)),
            (None, true) => Allocation::Lost(panicked(FaultCode::ReleaseUnconfirmed)),
            (None, false) => Allocation::Refused(panicked(FaultCode::Internal)),
        })
    }
}

impl Before {
    /// # Errors
    /// A fault before anything was asked for.
    fn allocate(self, ask: &mut Ask) -> Result<Allocation, Fault> {
        let note = Note::create(&self.place).map_err(|error| no_note(&error))?;
        let prepared = self.gateway.prepare();
        let entrusted = prepared.and_then(|prepared| {
            prepared.as_ref().map_or(Ok(()), |capability| (self.entrust)(capability, &note))?;
            Ok(prepared)
        });
        *held(&self.note) = Some(note);
        ask.prepared = entrusted?;
        Ok(self.gateway.allocate(ask))
    }
}

fn attempt_release(capability: &Capability, closed: bool) -> Result<(), ReleaseError> {
    let deadline = Instant::now() + RELEASE_LIMIT;
    catch_unwind(AssertUnwindSafe(|| capability.release(closed, deadline))).unwrap_or_else(|_| {
        let fault = panicked(FaultCode::ReleaseUnconfirmed);
        Err(ReleaseError::Failed(fault))
    })
}

fn held(note: &Mutex<Option<Note>>) -> MutexGuard<'_, Option<Note>> {
    note.lock().unwrap_or_else(PoisonError::into_inner)
}

fn no_note(error: &io::Error) -> Fault {
    Fault::new(FaultCode::NoBrowser, "no browser was asked for: its note could not be written to the state folder")
        .caused_by(error)
        .hint("make room on the disk, or set GHOST_BROWSER_RUNTIME_DIR to another folder of yours")
}

fn no_thread(code: FaultCode, error: &io::Error) -> Fault {
    Fault::new(code, "no thread could be started").caused_by(error)
}

fn panicked(code: FaultCode) -> Fault {
    Fault::new(code, "the gateway's code panicked")
}
