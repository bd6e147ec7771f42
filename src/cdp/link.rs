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

    /// Hands `frame` over, or lets it wait; `written` is told each call whose frame the transport has.
    pub(super) fn send(
        &mut self,
        id: CallId,
        frame: String,
        mut written: impl FnMut(CallId),
    ) -> Result<(), CloseReason> {
        if self.busy {
            self.backlog.push_back((id, frame));
            return self.flush(written);
        }
        self.busy = !self.transport.send(frame)?;
        written(id);
        Ok(())
    }

    /// Gets on with what waits.
    pub(super) fn flush(&mut self, mut written: impl FnMut(CallId)) -> Result<(), CloseReason> {
        self.busy = !self.transport.flush()?;
        while !self.busy
            && let Some((id, frame)) = self.backlog.pop_front()
        {
            self.busy = !self.transport.send(frame)?;
            written(id);
        }
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
