//! What carries frames: the seam between the protocol and a WebSocket or a pipe.

use std::os::fd::RawFd;

use tungstenite::Utf8Bytes;

use super::CloseReason;

/// The largest message that is taken, in bytes: over it, the stream ends and the browser counts as lost.
pub(super) const MESSAGE_LIMIT: usize = 512 << 20;

/// Why a stream with a larger message ends.
pub(super) fn over_the_limit() -> CloseReason {
    CloseReason::Protocol(format!("a message over {} MiB", MESSAGE_LIMIT >> 20))
}

/// A two-way stream of text frames that never blocks; who waits polls its descriptors.
pub trait Transport: Send {
    /// Readable when frames may have arrived.
    fn reader(&self) -> RawFd;

    /// Writable when [`Transport::flush`] may get on.
    fn writer(&self) -> RawFd;

    /// Takes `text` over as one frame, which [`Transport::flush`] writes.
    fn queue(&mut self, text: String);

    /// How many bytes were taken over and not written yet.
    fn unwritten(&self) -> usize;

    /// Writes what goes without waiting; true when nothing is left to write.
    ///
    /// # Errors
    /// The reason, when the stream has ended.
    fn flush(&mut self) -> Result<bool, CloseReason>;

    /// The next frame that is here already; `None` when there is none.
    ///
    /// # Errors
    /// The reason, when the stream has ended. Frames before the end are given first.
    fn receive(&mut self) -> Result<Option<Incoming>, CloseReason>;

    /// Asks the peer for a sign of life; nothing where the kernel tells of a dead peer by itself.
    ///
    /// # Errors
    /// The reason, when the stream has ended.
    fn ping(&mut self) -> Result<bool, CloseReason>;

    /// Starts a normal end; [`Transport::receive`] tells when it has come about. True when nothing is left to write.
    ///
    /// # Errors
    /// The reason, when the stream has ended already.
    fn close(&mut self) -> Result<bool, CloseReason>;

    /// Ends the stream at once, without a word. Its reader stays valid until it is dropped.
    fn terminate(&mut self);
}

/// One frame, or something else that shows that the peer lives.
#[derive(Debug)]
pub enum Incoming {
    /// A text frame.
    Text(Utf8Bytes),
    /// A frame that CDP has no use for: binary or empty.
    Odd,
    /// A ping or a pong.
    Life,
}
