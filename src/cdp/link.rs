//! The outgoing side: frames go to the transport one after the other, and wait here while it is full.
//!
//! What waits here has not been written, and a connection that ends can say so truthfully.

use std::collections::VecDeque;
use std::os::fd::RawFd;

use super::CloseReason;
use super::transport::{Incoming, Transport};
use crate::ids::CallId;

/// Frames that one look at the transport takes out, so that whoever leads gets to see its own reply.
const BATCH: usize = 64;

/// How many bytes are written at once: one system call for many small frames.
const PORTION: usize = 64 << 10;

/// A transport and what it has no room for.
pub(super) struct Link {
    transport: Box<dyn Transport>,
    backlog: VecDeque<(CallId, String)>,
    busy: bool,
}

/// What one look at the transport brought.
pub(super) struct Batch {
    pub(super) frames: Vec<Incoming>,
    /// Whether more may be here already.
    pub(super) more: bool,
    /// Why the stream ended, if it did.
    pub(super) ended: Option<CloseReason>,
}

impl Link {
    pub(super) fn new(transport: Box<dyn Transport>) -> Self {
        Self { transport, backlog: VecDeque::new(), busy: false }
    }

    /// Hands `frames` over, many in one write, or lets them wait; `written` is told each call whose frame the transport
    /// has.
    ///
    /// # Errors
    /// The reason, when the stream has ended. What `written` was not told of has not been sent then.
    pub(super) fn send(
        &mut self,
        frames: impl IntoIterator<Item = (CallId, String)>,
        written: impl FnMut(CallId),
    ) -> Result<(), CloseReason> {
        self.backlog.extend(frames);
        self.flush(written)
    }

    /// Gets on with what waits.
    ///
    /// # Errors
    /// As [`Link::send`].
    pub(super) fn flush(&mut self, mut written: impl FnMut(CallId)) -> Result<(), CloseReason> {
        if self.busy {
            self.busy = !self.transport.flush()?;
        }
        while !self.busy && !self.backlog.is_empty() {
            self.write_portion(&mut written)?;
        }
        Ok(())
    }

    /// Writes what waits, up to a portion.
    fn write_portion(&mut self, written: &mut impl FnMut(CallId)) -> Result<(), CloseReason> {
        let mut last = None;
        while self.transport.unwritten() < PORTION
            && let Some((id, frame)) = self.backlog.pop_front()
        {
            self.transport.queue(frame);
            // A stream that ends here may have taken every frame but the last, whose end it did not.
            last.replace(id).into_iter().for_each(&mut *written);
        }
        self.busy = !self.transport.flush()?;
        last.into_iter().for_each(written);
        Ok(())
    }

    /// Takes back a frame that still waits here.
    pub(super) fn withdraw(&mut self, id: CallId) {
        self.backlog.retain(|(waiting, _)| *waiting != id);
    }

    /// Whether something waits to be written.
    pub(super) fn is_busy(&self) -> bool {
        self.busy
    }

    /// The descriptor to poll for room to write.
    pub(super) fn writer(&self) -> RawFd {
        self.transport.writer()
    }

    /// Takes what has arrived.
    pub(super) fn receive(&mut self) -> Batch {
        let mut batch = Batch { frames: Vec::new(), more: true, ended: None };
        while batch.frames.len() < BATCH {
            match self.transport.receive() {
                Ok(Some(frame)) => batch.frames.push(frame),
                Ok(None) => {
                    batch.more = false;
                    break;
                }
                Err(reason) => {
                    batch.more = false;
                    batch.ended = Some(reason);
                    break;
                }
            }
        }
        batch
    }

    pub(super) fn ping(&mut self) -> Result<(), CloseReason> {
        self.busy |= !self.transport.ping()?;
        Ok(())
    }

    pub(super) fn close(&mut self) -> Result<(), CloseReason> {
        self.busy |= !self.transport.close()?;
        Ok(())
    }

    pub(super) fn terminate(&mut self) {
        self.backlog.clear();
        self.busy = false;
        self.transport.terminate();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// What a transport did, and what it is still good for.
    #[derive(Default)]
    struct Ledger {
        writes: Vec<usize>,
        /// Bytes that it still takes; the stream ends at the next one where `ends`.
        room: usize,
        ends: bool,
    }

    struct Fake {
        ledger: Arc<Mutex<Ledger>>,
        queued: usize,
    }

    impl Transport for Fake {
        fn reader(&self) -> RawFd {
            -1
        }

        fn writer(&self) -> RawFd {
            -1
        }

        fn queue(&mut self, text: String) {
            self.queued += text.len();
        }

        fn unwritten(&self) -> usize {
            self.queued
        }

        fn flush(&mut self) -> Result<bool, CloseReason> {
            let mut ledger = self.ledger.lock().unwrap();
            let wrote = self.queued.min(ledger.room);
            ledger.writes.push(wrote);
            ledger.room -= wrote;
            self.queued -= wrote;
            if self.queued > 0 && ledger.ends { Err(CloseReason::HungUp) } else { Ok(self.queued == 0) }
        }

        fn receive(&mut self) -> Result<Option<Incoming>, CloseReason> {
            Ok(None)
        }

        fn ping(&mut self) -> Result<bool, CloseReason> {
            Ok(true)
        }

        fn close(&mut self) -> Result<bool, CloseReason> {
            Ok(true)
        }

        fn terminate(&mut self) {}
    }

    fn link(room: usize, ends: bool) -> (Link, Arc<Mutex<Ledger>>) {
        let ledger = Arc::new(Mutex::new(Ledger { room, ends, ..Ledger::default() }));
        (Link::new(Box::new(Fake { ledger: ledger.clone(), queued: 0 })), ledger)
    }

    fn frames(count: u64, size: usize) -> impl Iterator<Item = (CallId, String)> {
        (1..=count).map(move |id| (CallId(id), "x".repeat(size)))
    }

    #[test]
    fn many_small_frames_are_one_write_and_large_ones_their_own() {
        let (mut link, ledger) = link(usize::MAX, false);
        let mut written = Vec::new();

        link.send(frames(100, 10), |id| written.push(id.0)).unwrap();
        link.send(frames(3, PORTION), |_| ()).unwrap();

        assert_eq!(written, (1..=100).collect::<Vec<_>>());
        assert_eq!(ledger.lock().unwrap().writes, [1000, PORTION, PORTION, PORTION]);
    }

    #[test]
    fn what_finds_no_room_waits_in_order_and_can_be_taken_back() {
        let (mut link, ledger) = link(PORTION + 1, false);
        let mut written = Vec::new();

        link.send(frames(4, PORTION), |id| written.push(id.0)).unwrap();
        assert!(link.is_busy());
        assert_eq!(written, [1, 2], "the second is the transport's, however much of it is out");
        link.withdraw(CallId(3));
        ledger.lock().unwrap().room = usize::MAX;
        link.flush(|id| written.push(id.0)).unwrap();

        assert_eq!(written, [1, 2, 4]);
        assert!(!link.is_busy());
    }

    #[test]
    fn when_the_stream_ends_only_what_cannot_have_arrived_counts_as_unwritten() {
        let (mut link, _) = link(25, true);
        let mut written = Vec::new();

        let ended = link.send(frames(3, 10), |id| written.push(id.0));

        assert_eq!(ended, Err(CloseReason::HungUp));
        assert_eq!(written, [1, 2], "the last is cut short: nothing ran it");
    }
}
