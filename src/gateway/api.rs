//! The seam: what a source of browsers is, for everything above it.
//!
//! A gateway is asked once and answers once, with an [`Allocation`]; what it gives is a [`Grant`]: an endpoint to
//! dial and the [`Capability`] to end the browser. The hosted Gateway and the local Chromium are two of the kind.

use std::os::fd::OwnedFd;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::cancel::Cancel;
use crate::secret::Secret;
use crate::wire::Fault;
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
