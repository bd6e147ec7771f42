//! One accepted WebSocket: frames written by hand, so that broken ones are possible, and an end that a test chooses.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::support::http::reset_on_close;
use crate::support::ledger::lock;

/// The server's end. Shared by the reader's thread and by whoever writes.
pub(in crate::support) struct Wire {
    socket: TcpStream,
    writing: Mutex<()>,
    mood: Mutex<Mood>,
    wake: (UnixStream, UnixStream),
}

#[derive(Clone, Copy, PartialEq)]
enum Mood {
    Reading,
    /// Reads nothing more and stays open.
    Deaf,
    /// The reader's thread lets go of the socket.
    Ended,
}

impl Wire {
    pub(in crate::support) fn new(socket: TcpStream) -> io::Result<Arc<Self>> {
        socket.set_nodelay(true)?;
        Ok(Arc::new(Self {
            socket,
            writing: Mutex::default(),
            mood: Mutex::new(Mood::Reading),
            wake: UnixStream::pair()?,
        }))
    }

    pub(super) fn text(&self, text: &str) {
        self.frame(0x81, text.as_bytes());
    }

    /// One frame with `first` as its first byte (FIN and opcode). A peer that is gone is no fault here.
    pub(super) fn frame(&self, first: u8, payload: &[u8]) {
        self.raw(&frame(first, payload));
    }

    pub(super) fn raw(&self, bytes: &[u8]) {
        let _one_at_a_time = lock(&self.writing);
        // The ledger and the client under test tell what the loss means.
        let _ = (&self.socket).write_all(bytes);
    }

    pub(super) fn close(&self, code: u16) {
        self.frame(0x88, &code.to_be_bytes());
    }

    pub(super) fn reset(&self) {
        reset_on_close(&self.socket).expect("set SO_LINGER");
        self.become_(Mood::Ended);
    }

    pub(super) fn end(&self) {
        self.become_(Mood::Ended);
    }

    pub(super) fn go_deaf(&self) {
        self.become_(Mood::Deaf);
    }

    /// Bytes that have come and were not read.
    pub(super) fn unread(&self) -> usize {
        let mut bytes: nix::libc::c_int = 0;
        // SAFETY: a descriptor that lives and a number to write to.
        let told = unsafe { nix::libc::ioctl(self.socket.as_raw_fd(), nix::libc::FIONREAD as _, &mut bytes) };
        assert_eq!(told, 0, "ask the kernel: {}", io::Error::last_os_error());
        bytes as usize
    }

    fn become_(&self, mood: Mood) {
        *lock(&self.mood) = mood;
        (&self.wake.1).write_all(b"!").expect("wake the reader");
    }

    /// Waits until the socket can be read or the mood changed; true for the socket.
    fn readable(&self, mood: Mood) -> io::Result<bool> {
        let wake = PollFd::new(self.wake.0.as_fd(), PollFlags::POLLIN);
        let socket = PollFd::new(self.socket.as_fd(), PollFlags::POLLIN);
        let mut watched = if mood == Mood::Deaf { vec![wake] } else { vec![wake, socket] };
        poll(&mut watched, PollTimeout::NONE)?;
        if watched[0].any() == Some(true) {
            (&self.wake.0).read_exact(&mut [0])?;
            return Ok(false);
        }
        Ok(true)
    }
}

/// What `tungstenite` reads from, and writes its pongs to.
pub(super) struct Ear(pub(super) Arc<Wire>);

impl Read for Ear {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let mood = *lock(&self.0.mood);
            if mood == Mood::Ended {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            if self.0.readable(mood)? {
                return (&self.0.socket).read(buffer);
            }
        }
    }
}

impl Write for Ear {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.raw(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The bytes of a frame with `first` as its first one.
pub(super) fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    match payload.len() {
        short @ 0..126 => bytes.push(short as u8),
        medium @ 126..=0xffff => {
            bytes.push(126);
            bytes.extend((medium as u16).to_be_bytes());
        }
        long => {
            bytes.push(127);
            bytes.extend((long as u64).to_be_bytes());
        }
    }
    bytes.extend(payload);
    bytes
}
