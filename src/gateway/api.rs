//! The seam: what a source of browsers is, for everything above it.
//!
//! A gateway is asked once and answers once, with an [`Allocation`]; what it gives is a [`Grant`]: an endpoint to
//! dial and the [`Capability`] to end the browser. The hosted Gateway and the local Chromium are two of the kind.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::cancel::Cancel;
use crate::secret::Secret;
use crate::wire::{Fault, FaultCode};
use crate::{gateway::hosted, local};

/// A source of browsers.
pub trait Gateway: Send + Sync {
    /// What `status` calls it: the host, or `local`.
    fn name(&self) -> &str;

    /// What can be known about the next browser before it is asked for, so that the keeper knows it too
    /// (local: the folder to wipe). `None` where only the answer tells.
    ///
    /// # Errors
    /// A fault when the browser cannot be had; nothing was allocated.
    fn prepare(&self) -> Result<Option<Capability>, Fault>;

    /// Asks for one browser and waits for the answer, for as long as it takes (see [`Ask`]).
    fn allocate(&self, ask: &Ask) -> Allocation;
}

/// How long an allocation is wanted.
pub struct Ask {
    /// Until when the callers wait: nothing is retried after it.
    pub deadline: Instant,
    /// Until when an answer is still read, since it may bring a browser that has to be released.
    pub last_word: Instant,
    /// Raised when nobody wants the browser any more: nothing is retried after it.
    pub abandoned: Cancel,
    /// What [`Gateway::prepare`] gave.
    pub prepared: Option<Capability>,
    /// Raised by the gateway before anything leaves that may bring a browser into being.
    pub left: RequestLeft,
    /// Is told why the gateway is asked once more, each time.
    pub on_retry: OnRetry,
}

/// Who is told why something is tried again.
pub type OnRetry = Arc<dyn Fn(String) + Send + Sync>;

impl Ask {
    /// Whether a request may still be made: somebody waits, and has time.
    pub fn is_wanted(&self) -> bool {
        !self.abandoned.is_cancelled() && Instant::now() < self.deadline
    }

    /// Waits before a retry, unless the browser is abandoned meanwhile or the wait would outlast the deadline, which is then
    /// known at once. Returns whether to retry.
    pub fn pause(&self, wait: Duration) -> bool {
        let end = Instant::now() + wait;
        if end >= self.deadline {
            return false;
        }
        let bell = Arc::new((Mutex::new(()), Condvar::new()));
        let rung = bell.clone();
        let _registration = self.abandoned.on_cancel(move || {
            let _held = rung.0.lock().unwrap_or_else(PoisonError::into_inner);
            rung.1.notify_all();
        });
        let mut held = bell.0.lock().unwrap_or_else(PoisonError::into_inner);
        while self.is_wanted() && Instant::now() < end {
            let left = end.saturating_duration_since(Instant::now());
            held = match bell.1.wait_timeout(held, left) {
                Ok((held, _)) => held,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
        self.is_wanted()
    }
}

/// Whether a request that may allocate has left: until then, giving up costs nothing.
#[derive(Debug, Clone, Default)]
pub struct RequestLeft(Arc<AtomicBool>);

impl RequestLeft {
    /// Not yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Says that the next byte may allocate.
    pub fn raise(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Takes that back: the byte was not written after all.
    pub fn lower(&self) {
        self.0.store(false, Ordering::SeqCst);
    }

    /// Whether it may have left.
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// The answer.
#[derive(Debug)]
pub enum Allocation {
    /// A browser.
    Granted(Grant),
    /// No browser, and none can have been allocated.
    Refused(Fault),
    /// A browser that cannot be used but can be released.
    Unusable(Capability, Fault),
    /// A browser that can be reached but not released by name: it is opened and closed normally, as the best that can be done,
    /// and the debt stays unconfirmed whatever comes of it.
    Stray(Endpoint, Fault),
    /// A browser may exist, and nothing we hold can release it.
    Lost(Fault),
}

/// A browser: where it answers, and how it is ended.
#[derive(Debug)]
pub struct Grant {
    /// Where it answers.
    pub endpoint: Endpoint,
    /// How it is ended.
    pub capability: Capability,
    /// Something the first caller should read, once (local: that the sandbox is off).
    pub notice: Option<String>,
}

/// Where a browser answers.
#[derive(Debug)]
pub enum Endpoint {
    /// A WebSocket URL, which is a bearer secret.
    WebSocket(Secret),
    /// Chromium's debugging pipe: NUL-terminated JSON both ways.
    Pipe {
        /// The browser's end writes here; we read.
        reader: OwnedFd,
        /// We write; closing every copy of it ends the browser.
        writer: OwnedFd,
    },
}

/// All that is needed to release one browser, by whichever process holds it. In memory only; it crosses to the keeper over a socketpair.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Capability {
    /// A browser of the hosted Gateway.
    Hosted(hosted::Release),
    /// A Chromium of this machine.
    Local(local::Release),
}

impl Capability {
    /// Ends the browser and waits for the proof, until `deadline`. `closed` says that its WebSocket was closed
    /// normally by both sides, which is a proof in itself; the rest is then still done, as a backstop.
    ///
    /// # Errors
    /// [`ReleaseError`], when it is not proven.
    pub fn release(&self, closed: bool, deadline: Instant) -> Result<(), ReleaseError> {
        match self {
            Self::Hosted(release) => release.release(closed, deadline),
            Self::Local(release) => release.release(deadline),
        }
    }

    /// What must not be seen of it: the browser's id, its URL, each credential in that URL's query, as they are.
    pub fn secrets(&self) -> Vec<Secret> {
        match self {
            Self::Hosted(release) => release.secrets().to_vec(),
            Self::Local(_) => Vec::new(),
        }
    }

    /// Why the browser ended by itself, if that can be told (local: within `patience`), and what to do about it.
    pub fn post_mortem(&self, patience: Duration) -> Option<Fault> {
        match self {
            Self::Hosted(_) => None,
            Self::Local(release) => release.post_mortem(patience).map(|death| {
                let fault = Fault::new(FaultCode::NoBrowser, death.to_string());
                fault.hint(death.hint().unwrap_or(
                    "see whether that Chromium starts by hand, or name another one with GHOST_BROWSER_CHROMIUM",
                ))
            }),
        }
    }

    /// Gives back what the release had to keep until the keeper knew of it (local: the zombie whose number must not be reused).
    pub fn settle(&self) {
        if let Self::Local(release) = self {
            release.reap();
        }
    }
}

/// Why a release is not proven.
#[derive(Debug)]
pub enum ReleaseError {
    /// It may succeed when it is tried again.
    Failed(Fault),
    /// Nothing that we hold can ever prove it.
    Unprovable(Fault),
}
