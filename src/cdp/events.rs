//! What the browser told: one ring for all scripts, a cursor for each, and queues for those who wait.
//!
//! The ring has a budget in bytes; what it has no room for is dropped from its old end and counted. A wait's
//! candidates queue apart, so a flood of other events never costs it its own.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::lead::Parker;
use crate::ids::SessionId;

/// What the ring may hold, in bytes, each event counted with its overhead.
const RING_BYTES: usize = 8 << 20;

/// What one wait's queue may hold, in bytes.
const QUEUE_BYTES: usize = 16 << 20;

/// One event.
#[derive(Debug)]
pub struct CdpEvent {
    /// `Domain.event`.
    pub method: String,
    /// The flat session that it came on; `None` for the browser target.
    pub session: Option<SessionId>,
    params: Box<str>,
}

impl CdpEvent {
    pub(super) fn new(method: String, session: Option<SessionId>, params: Box<str>) -> Self {
        Self { method, session, params }
    }

    /// The JSON text of its parameters.
    pub fn params(&self) -> &str {
        &self.params
    }

    fn cost(&self) -> usize {
        self.params.len() + self.method.len() + std::mem::size_of::<Self>() + 64
    }
}

/// Where a script is in the ring. Taking events of one method leaves the others where they are.
#[derive(Debug, Clone, Default)]
pub struct Cursor {
    next: u64,
    by_method: HashMap<String, u64>,
    /// Events that were dropped before it came to them.
    missed: u64,
    /// The event up to which they were counted.
    counted: u64,
}

impl Cursor {
    /// Takes the number of events that were dropped before this cursor came to them.
    pub fn take_missed(&mut self) -> u64 {
        std::mem::take(&mut self.missed)
    }

    fn count_missed(&mut self, first: u64) {
        let from = self.next.max(self.counted);
        self.missed += first.saturating_sub(from);
        self.counted = from.max(first);
    }

    fn start_of(&self, method: &str) -> u64 {
        self.by_method.get(method).copied().unwrap_or(0).max(self.next)
    }
}

/// A wait for events of one method. Dropping it ends the queueing.
pub struct Subscription {
    queue: Arc<Queue>,
}

impl Subscription {
    pub(super) fn take(&self) -> Option<Arc<CdpEvent>> {
        let mut waiting = self.queue.waiting();
        let event = waiting.events.pop_front()?;
        waiting.bytes -= event.cost();
        Some(event)
    }

    /// Has this thread woken by what comes from now on; whichever thread looks first takes an event.
    pub(super) fn wake<'a>(&'a self, parker: &'a Arc<Parker>) -> Attention<'a> {
        self.queue.waiting().threads.push(parker.clone());
        Attention { queue: &self.queue, parker }
    }

    /// What it waits for.
    pub fn method(&self) -> &str {
        &self.queue.method
    }
}

struct Queue {
    method: String,
    /// The session whose events count; `None` for any.
    session: Mutex<Option<SessionId>>,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    events: VecDeque<Arc<CdpEvent>>,
    bytes: usize,
    /// The threads that wait now.
    threads: Vec<Arc<Parker>>,
}

/// Has one thread woken while it lives.
pub(super) struct Attention<'a> {
    queue: &'a Queue,
    parker: &'a Arc<Parker>,
}

impl Drop for Attention<'_> {
    fn drop(&mut self) {
        self.queue.waiting().threads.retain(|parker| !Arc::ptr_eq(parker, self.parker));
    }
}

impl Queue {
    fn wants(&self, event: &CdpEvent) -> bool {
        if self.method != event.method {
            return false;
        }
        let session = self.session();
        session.is_none() || *session == event.session
    }

    fn session(&self) -> MutexGuard<'_, Option<SessionId>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues `event`; false when there is no room for it.
    fn offer(&self, event: &Arc<CdpEvent>) -> bool {
        let mut waiting = self.waiting();
        let fits = waiting.bytes + event.cost() <= QUEUE_BYTES;
        if fits {
            waiting.bytes += event.cost();
            waiting.events.push_back(event.clone());
        }
        waiting.threads.iter().for_each(|parker| parker.notify());
        fits
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All events of one connection.
#[derive(Default)]
pub(super) struct Events {
    ring: VecDeque<Arc<CdpEvent>>,
    /// The number of the ring's first event.
    first: u64,
    bytes: usize,
    dropped: u64,
    queues: Vec<Weak<Queue>>,
}

impl Events {
    /// Takes in one event.
    pub(super) fn push(&mut self, event: CdpEvent) {
        let event = Arc::new(event);
        let mut dropped = 0;
        self.queues.retain(|queue| {
            let Some(queue) = queue.upgrade() else { return false };
            if queue.wants(&event) && !queue.offer(&event) {
                dropped += 1;
            }
            true
        });
        self.dropped += dropped;
        self.bytes += event.cost();
        self.ring.push_back(event);
        while self.bytes > RING_BYTES {
            let Some(oldest) = self.ring.pop_front() else { break };
            self.bytes -= oldest.cost();
            self.first += 1;
            self.dropped += 1;
        }
    }

    /// The events that `cursor` has not seen, oldest first, all or those of one method; moves it past them.
    pub(super) fn drain(&self, cursor: &mut Cursor, method: Option<&str>) -> Vec<Arc<CdpEvent>> {
        cursor.count_missed(self.first);
        let end = self.first + self.ring.len() as u64;
        let from = cursor.next.saturating_sub(self.first) as usize;
        let numbered = (self.first.max(cursor.next)..end).zip(self.ring.iter().skip(from));
        let fresh = numbered
            .filter(|(number, event)| {
                method.is_none_or(|method| method == event.method) && *number >= cursor.start_of(&event.method)
            })
            .map(|(_, event)| event.clone())
            .collect();
        match method {
            Some(method) => {
                cursor.by_method.insert(method.to_owned(), end);
            }
            None => {
                cursor.next = end;
                cursor.by_method.clear();
            }
        }
        fresh
    }

    /// Queues what comes from now on.
    pub(super) fn subscribe(&mut self, method: &str, session: Option<SessionId>) -> Subscription {
        let session = Mutex::new(session);
        let queue = Arc::new(Queue { method: method.to_owned(), session, waiting: Mutex::default() });
        self.queues.push(Arc::downgrade(&queue));
        Subscription { queue }
    }

    /// Has what waits for events of one session wait for those of another: its page is attached anew.
    pub(super) fn follow(&self, gone: &SessionId, newer: &SessionId) {
        for queue in self.queues.iter().filter_map(Weak::upgrade) {
            let mut session = queue.session();
            if session.as_ref() == Some(gone) {
                *session = Some(newer.clone());
            }
        }
    }

    pub(super) fn buffered(&self) -> u64 {
        self.ring.len() as u64
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(method: &str, params: &str) -> CdpEvent {
        CdpEvent::new(method.to_owned(), None, params.into())
    }

    fn seen(events: &Events, cursor: &mut Cursor, method: Option<&str>) -> Vec<String> {
        events.drain(cursor, method).iter().map(|event| event.params().to_owned()).collect()
    }

    #[test]
    fn each_cursor_sees_every_event_once_and_in_order() {
        let mut events = Events::default();
        let (mut one, mut other) = (Cursor::default(), Cursor::default());
        events.push(event("A.a", "1"));
        events.push(event("B.b", "2"));
        events.push(event("A.a", "3"));

        assert_eq!(seen(&events, &mut one, Some("A.a")), ["1", "3"]);
        assert_eq!(seen(&events, &mut one, None), ["2"]);
        assert_eq!(seen(&events, &mut one, None), [""; 0]);
        assert_eq!(seen(&events, &mut other, None), ["1", "2", "3"]);
    }

    #[test]
    fn a_flood_stays_within_the_budget_and_is_counted() {
        let mut events = Events::default();
        let mut cursor = Cursor::default();
        for _ in 0..100_000 {
            events.push(event("A.a", &"x".repeat(200)));
        }

        assert!(events.bytes <= RING_BYTES);
        assert_eq!(events.buffered() + events.dropped(), 100_000);
        assert_eq!(events.drain(&mut cursor, Some("B.b")).len(), 0);
        assert_eq!(events.drain(&mut cursor, None).len() as u64, events.buffered());
        assert_eq!((cursor.take_missed(), cursor.take_missed()), (events.dropped(), 0));
    }

    #[test]
    fn a_wait_that_is_not_taken_from_keeps_its_oldest_within_its_budget() {
        let mut events = Events::default();
        let subscription = events.subscribe("A.a", None);
        let text = "x".repeat(1 << 20);
        for _ in 0..40 {
            events.push(event("A.a", &text));
        }

        let mut taken = 0;
        while subscription.take().is_some() {
            taken += 1;
        }
        assert_eq!(taken, QUEUE_BYTES / (text.len() + 1000));
        assert!(events.dropped() >= 40 - taken as u64);
    }

    #[test]
    fn a_flood_of_others_costs_a_wait_nothing() {
        let mut events = Events::default();
        let subscription = events.subscribe("A.a", None);
        events.push(event("A.a", "mine"));
        for _ in 0..100_000 {
            events.push(event("B.b", &"x".repeat(200)));
        }

        assert_eq!(subscription.take().unwrap().params(), "mine");
        assert!(subscription.take().is_none());
    }
}
