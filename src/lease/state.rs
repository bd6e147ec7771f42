//! One browser's debt, as a machine: what is owed, and what follows from each piece of news.

use std::fmt;
use std::time::{Duration, Instant};

use crate::gateway::{Allocation, Capability, Endpoint, Grant, ReleaseError};
use crate::wire::Fault;

/// How long a normal close of the connection may take before the release goes on without it.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// One browser's debt to the gateway. Opens no socket and reads no clock.
///
/// A lease is for one browser: it begins `Vacant`, asks once, and is `Vacant` again when nothing is owed.
#[derive(Debug)]
pub enum Lease {
    /// Nothing is owed.
    Vacant,
    /// Asked, not answered. A timeout here is not a refusal: the gateway may have launched.
    Asking,
    /// Asked, and no longer wanted: what the answer brings is released unseen.
    Abandoning,
    /// The browser is ours. Its endpoint went out with [`Action::Connect`], once: no code can dial a browser that we do not hold.
    Held {
        /// How it is ended.
        capability: Capability,
    },
    /// No longer wanted, and its connection is being closed: a normal close is a proof.
    Closing {
        /// How it is ended.
        capability: Capability,
        /// When the close has taken too long.
        until: Instant,
    },
    /// A release is under way. The debt stands until it is confirmed.
    Releasing {
        /// How it is ended.
        capability: Capability,
        /// Which attempt this is, from 1.
        attempt: u32,
        /// Why the allocation brought nothing to use, where that is not told yet.
        cause: Option<Fault>,
    },
    /// A release failed, and will be tried again.
    Unpaid {
        /// How it is ended.
        capability: Capability,
        /// How many attempts failed.
        attempts: u32,
        /// When the next one is due.
        retry_at: Instant,
        /// How the last one failed.
        why: Fault,
    },
    /// A debt that nothing we hold can confirm. Told once, and once more by `stop`, then forgotten.
    Owed {
        /// What is known of it.
        why: Fault,
    },
}

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// A caller needs the browser.
    Wanted,
    /// Nobody needs it any more: the last caller left, the idle limit, a signal.
    Unwanted,
    /// `stop`: as [`Event::Unwanted`]; a failed release is tried at once, an owed one told and forgotten.
    Stop,
    /// A failed release is to be tried at once.
    Retry,
    /// The callers' time is over while the gateway has not answered.
    Expired(Fault),
    /// The gateway's answer. It comes once, and comes even when it is late.
    Answered(Allocation),
    /// The connection was not to be had, or ended by itself.
    ConnectionLost,
    /// The end of what [`Action::Disconnect`] began; `normally` by both sides.
    Closed {
        /// Whether the other side answered the close, which proves that the browser is gone.
        normally: bool,
    },
    /// The outcome of a release.
    Released {
        /// Of which attempt.
        attempt: u32,
        /// Whether it is proven.
        outcome: Result<(), ReleaseError>,
    },
    /// Time passed: see [`Lease::due`].
    Tick,
}

/// What is to be done about it.
#[derive(Debug)]
pub enum Action {
    /// Ask the gateway.
    Ask,
    /// Ask no more: nothing that has not left may leave.
    Abandon,
    /// Hand a copy to the keeper.
    Entrust(Capability),
    /// Dial the browser.
    Connect(Endpoint),
    /// Close the connection normally, or end the dialling; [`Event::Closed`] is the answer.
    Disconnect,
    /// Open and close normally, as the best that can be done. No answer is waited for.
    CloseStray(Endpoint),
    /// Try to release.
    Release {
        /// How it is ended.
        capability: Capability,
        /// Which attempt this is.
        attempt: u32,
        /// Whether the connection was closed normally by both sides.
        closed: bool,
    },
    /// The debt is over: remove the note, dismiss the keeper, and then [`Capability::settle`].
    Settle(Option<Capability>),
    /// Tell the first caller, once.
    Notice(String),
    /// Tell whoever waits, and `status`.
    Report(News),
    /// An answer that this lease did not ask for: a debt all the same. It is the news of a new lease that is [`Lease::Abandoning`].
    Unasked(Allocation),
}

/// What whoever waits should know.
#[derive(Debug, Clone, PartialEq)]
pub enum News {
    /// No browser, and nothing is owed.
    Refused(Fault),
    /// No answer in time. It is still awaited, and what it brings released.
    Late(Fault),
    /// The browser is gone: that is proven.
    Released,
    /// A release failed. It is tried again.
    Unpaid(Fault),
    /// Nothing can confirm that the browser is gone.
    Owed(Fault),
}

impl fmt::Display for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(fault) => write!(f, "refused: {fault}"),
            Self::Late(fault) => write!(f, "no answer in time: {fault}"),
            Self::Released => f.write_str("released"),
            Self::Unpaid(fault) => write!(f, "release failed: {fault}"),
            Self::Owed(fault) => write!(f, "release unknown: {fault}"),
        }
    }
}

use Action as A;
use Event as E;
use Lease as L;

impl Lease {
    /// What `event` makes of the lease, and what is to be done. Late and duplicate news moves nothing.
    #[must_use]
    pub fn step(self, event: Event, now: Instant) -> (Lease, Vec<Action>) {
        match (self, event) {
            (L::Vacant, E::Wanted) => (L::Asking, vec![A::Ask]),
            (L::Asking, E::Unwanted | E::Stop) => (L::Abandoning, vec![A::Abandon]),
            (L::Asking, E::Expired(fault)) => (L::Abandoning, vec![A::Abandon, A::Report(News::Late(fault))]),
            (L::Asking, E::Answered(Allocation::Granted(grant))) => hold(grant),
            (L::Asking | L::Abandoning, E::Answered(answer)) => give_back(answer),
            (elsewhere, E::Answered(Allocation::Refused(_))) => (elsewhere, vec![]),
            (elsewhere, E::Answered(answer)) => (elsewhere, vec![A::Unasked(answer)]),

            (L::Held { capability }, E::Unwanted | E::Stop) => close(capability, now),
            (L::Held { capability } | L::Closing { capability, .. }, E::ConnectionLost) => {
                release(capability, 1, false, None)
            }
            (L::Closing { capability, .. }, E::Closed { normally }) => release(capability, 1, normally, None),
            (L::Closing { capability, until }, E::Tick) if now >= until => release(capability, 1, false, None),

            (L::Releasing { capability, attempt, cause }, news @ (E::Released { .. } | E::Closed { .. })) => {
                judge(capability, attempt, cause, news, now)
            }
            (L::Unpaid { capability, .. }, E::Closed { normally: true } | E::Released { outcome: Ok(()), .. }) => {
                paid(capability, None)
            }
            (L::Unpaid { capability, attempts, .. }, E::Stop | E::Retry) => {
                release(capability, attempts + 1, false, None)
            }
            (L::Unpaid { capability, attempts, retry_at, .. }, E::Tick) if now >= retry_at => {
                release(capability, attempts + 1, false, None)
            }
            (L::Owed { why }, E::Stop) => {
                let told = A::Report(News::Owed(why));
                (L::Vacant, vec![told, A::Settle(None)])
            }

            (unmoved, _) => (unmoved, vec![]),
        }
    }

    /// When the next [`Event::Tick`] can move something.
    pub fn due(&self) -> Option<Instant> {
        match self {
            L::Closing { until, .. } => Some(*until),
            L::Unpaid { retry_at, .. } => Some(*retry_at),
            _ => None,
        }
    }

    /// How the browser is ended, while that is known and needed.
    pub fn capability(&self) -> Option<&Capability> {
        match self {
            L::Held { capability }
            | L::Closing { capability, .. }
            | L::Releasing { capability, .. }
            | L::Unpaid { capability, .. } => Some(capability),
            L::Vacant | L::Asking | L::Abandoning | L::Owed { .. } => None,
        }
    }
}

fn hold(grant: Grant) -> (Lease, Vec<Action>) {
    let capability = grant.capability;
    let mut actions = vec![A::Entrust(capability.clone())];
    actions.extend(grant.notice.map(A::Notice));
    actions.push(A::Connect(grant.endpoint));
    (L::Held { capability }, actions)
}

/// What an answer leaves to do when its browser is not wanted, or is none.
fn give_back(answer: Allocation) -> (Lease, Vec<Action>) {
    match answer {
        Allocation::Granted(grant) => entrust_and_release(grant.capability, None),
        Allocation::Unusable(capability, fault) => entrust_and_release(capability, Some(fault)),
        Allocation::Refused(fault) => {
            let told = A::Report(News::Refused(fault));
            (L::Vacant, vec![A::Settle(None), told])
        }
        Allocation::Stray(endpoint, fault) => {
            let (lease, mut actions) = owe(fault);
            actions.insert(0, A::CloseStray(endpoint));
            (lease, actions)
        }
        Allocation::Lost(fault) => owe(fault),
    }
}

fn entrust_and_release(capability: Capability, cause: Option<Fault>) -> (Lease, Vec<Action>) {
    let entrusted = A::Entrust(capability.clone());
    let (lease, mut actions) = release(capability, 1, false, cause);
    actions.insert(0, entrusted);
    (lease, actions)
}

fn close(capability: Capability, now: Instant) -> (Lease, Vec<Action>) {
    let until = now + CLOSE_LIMIT;
    (L::Closing { capability, until }, vec![A::Disconnect])
}

fn release(capability: Capability, attempt: u32, closed: bool, cause: Option<Fault>) -> (Lease, Vec<Action>) {
    let action = A::Release { capability: capability.clone(), attempt, closed };
    let lease = L::Releasing { capability, attempt, cause };
    (lease, vec![action])
}

/// What news of a release or of the close before it means while `attempt` is under way. Proof is proof, however late;
/// a failure counts for the attempt that it belongs to.
fn judge(
    capability: Capability,
    attempt: u32,
    cause: Option<Fault>,
    news: Event,
    now: Instant,
) -> (Lease, Vec<Action>) {
    match news {
        E::Closed { normally: true } | E::Released { outcome: Ok(()), .. } => paid(capability, cause),
        E::Released { attempt: told, outcome: Err(error) } if told == attempt => match error {
            ReleaseError::Failed(fault) => retry_later(capability, attempt, join(cause, fault), now),
            ReleaseError::Unprovable(fault) => owe(join(cause, fault)),
        },
        _ => {
            let unmoved = L::Releasing { capability, attempt, cause };
            (unmoved, vec![])
        }
    }
}

fn paid(capability: Capability, cause: Option<Fault>) -> (Lease, Vec<Action>) {
    let news = cause.map_or(News::Released, News::Refused);
    let actions = vec![A::Settle(Some(capability)), A::Report(news)];
    (L::Vacant, actions)
}

fn retry_later(capability: Capability, attempts: u32, why: Fault, now: Instant) -> (Lease, Vec<Action>) {
    let told = A::Report(News::Unpaid(why.clone()));
    let lease = L::Unpaid { capability, attempts, retry_at: now + pause_after(attempts), why };
    (lease, vec![told])
}

fn owe(why: Fault) -> (Lease, Vec<Action>) {
    let told = A::Report(News::Owed(why.clone()));
    (L::Owed { why }, vec![told])
}

/// 1, 2, 4, … seconds.
fn pause_after(attempts: u32) -> Duration {
    let doublings = attempts.saturating_sub(1).min(16);
    Duration::from_secs(1 << doublings).min(LONGEST_PAUSE)
}

/// The fault of a release, told as the reason why a failed allocation is worse than that.
pub fn join(cause: Option<Fault>, release: Fault) -> Fault {
    match cause {
        Some(cause) => Fault { message: cause.message, ..release.clone() }.with("caused_by", vec![release.message]),
        None => release,
    }
}

#[cfg(test)]
mod tests;
