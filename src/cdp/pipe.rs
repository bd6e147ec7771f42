//! Chromium's debugging pipe: NUL-terminated JSON, no port that anybody else could find.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use tungstenite::Utf8Bytes;

use super::CloseReason;
use super::transport::{Incoming, MESSAGE_LIMIT, Transport, over_the_limit};

/// What one `read` asks for, and what the kernel is asked to hold.
const CHUNK: usize = 256 << 10;

/// Both directions of the pipe.
pub struct Pipe {
    reader: File,
    /// `None` once it was closed, which makes Chromium exit.
    writer: Option<File>,
    /// What one `read` fills.
    chunk: Box<[u8]>,
    /// Bytes that arrived; frames before `taken` were given out.
    arrived: Vec<u8>,
    taken: usize,
    /// Whether the last read has emptied the pipe, so that another one would only say so.
    drained: bool,
    /// Up to where no NUL was found.
    searched: usize,
    /// Bytes to be written; those before `written` were.
    outgoing: Vec<u8>,
    written: usize,
}

impl Pipe {
    /// Takes over both ends and makes them non-blocking.
    ///
    /// # Errors
    /// The operating system's.
    pub fn new(reader: OwnedFd, writer: OwnedFd) -> io::Result<Self> {
        for fd in [&reader, &writer] {
            fcntl(fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
            // Megabytes in fewer pieces. A refusal (too many pipes for this user) costs only speed.
            #[cfg(target_os = "linux")]
            let _ = fcntl(fd, FcntlArg::F_SETPIPE_SZ(CHUNK as i32));
        }
        Ok(Self {
            reader: reader.into(),
            writer: Some(writer.into()),
            chunk: vec![0; CHUNK].into(),
            arrived: Vec::new(),
            taken: 0,
            drained: false,
            searched: 0,
            outgoing: Vec::new(),
            written: 0,
        })
    }

    /// The next whole frame of what arrived.
    fn next_frame(&mut self) -> Option<Incoming> {
        let Some(found) = memchr::memchr(0, &self.arrived[self.searched..]) else {
            self.searched = self.arrived.len();
            return None;
        };
        let end = self.searched + found;
        let frame = self.take_frame(end);
        Some(frame)
    }

    /// Gives out the frame that ends before `end`. A large one that is alone in the buffer leaves with it: no copy, no memory kept.
    fn take_frame(&mut self, end: usize) -> Incoming {
        let start = self.taken;
        self.taken = end + 1;
        self.searched = self.taken;
        let alone = self.taken == self.arrived.len();
        let bytes = if alone && start == 0 && end > CHUNK {
            let mut bytes = std::mem::take(&mut self.arrived);
            bytes.truncate(end);
            bytes
        } else {
            self.arrived[start..end].to_vec()
        };
        if alone {
            self.arrived.clear();
            self.arrived.shrink_to(CHUNK);
            (self.taken, self.searched) = (0, 0);
        }
        match String::from_utf8(bytes) {
            Ok(text) if text.is_empty() => Incoming::Odd,
            Ok(text) => Incoming::Text(Utf8Bytes::from(text)),
            Err(error) => Incoming::Text(Utf8Bytes::from(String::from_utf8_lossy(error.as_bytes()).into_owned())),
        }
    }

    /// Reads once; false when nothing is there.
    fn fill(&mut self) -> Result<bool, CloseReason> {
        if std::mem::take(&mut self.drained) {
            return Ok(false);
        }
        if self.taken > 0 {
            self.arrived.drain(..self.taken);
            self.searched -= self.taken;
            self.taken = 0;
        }
        match self.reader.read(&mut self.chunk) {
            Ok(0) => Err(CloseReason::HungUp),
            Ok(read) => {
                // Whoever polls next learns of what comes after a short read.
                self.drained = read < CHUNK;
                self.arrived.extend_from_slice(&self.chunk[..read]);
                Ok(true)
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(false),
            Err(error) => Err(CloseReason::Broken(error.kind().to_string())),
        }
    }
}

impl Transport for Pipe {
    fn reader(&self) -> RawFd {
        self.reader.as_raw_fd()
    }

    fn writer(&self) -> RawFd {
        self.writer.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    fn queue(&mut self, text: String) {
        if self.outgoing.is_empty() {
            self.outgoing = text.into_bytes();
        } else {
            self.outgoing.extend_from_slice(text.as_bytes());
        }
        self.outgoing.push(0);
    }

    fn unwritten(&self) -> usize {
        self.outgoing.len() - self.written
    }

    fn flush(&mut self) -> Result<bool, CloseReason> {
        let Some(writer) = &mut self.writer else { return Err(CloseReason::Normal) };
        while self.written < self.outgoing.len() {
            match writer.write(&self.outgoing[self.written..]) {
                Ok(wrote) => self.written += wrote,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(CloseReason::Broken(error.kind().to_string())),
            }
        }
        self.outgoing = Vec::new();
        self.written = 0;
        Ok(true)
    }

    fn receive(&mut self) -> Result<Option<Incoming>, CloseReason> {
        loop {
            if let Some(frame) = self.next_frame() {
                return Ok(Some(frame));
            }
            if self.arrived.len() - self.taken > MESSAGE_LIMIT {
                return Err(over_the_limit());
            }
            // A frame may be larger than what one read brings; whoever polls learns of what is not here yet.
            if !self.fill()? {
                return Ok(None);
            }
        }
    }

    fn ping(&mut self) -> Result<bool, CloseReason> {
        Ok(true)
    }

    fn close(&mut self) -> Result<bool, CloseReason> {
        self.terminate();
        Ok(true)
    }

    fn terminate(&mut self) {
        self.writer = None;
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use super::*;

    /// A pipe and the browser's ends of it.
    fn pipe() -> (Pipe, File, File) {
        let (to_us, from_browser) = io::pipe().unwrap();
        let (to_browser, from_us) = io::pipe().unwrap();
        let pipe = Pipe::new(OwnedFd::from(to_us), OwnedFd::from(from_us)).unwrap();
        (pipe, OwnedFd::from(from_browser).into(), OwnedFd::from(to_browser).into())
    }

    fn text(pipe: &mut Pipe) -> Option<String> {
        match pipe.receive().unwrap()? {
            Incoming::Text(text) => Some(text.as_str().to_owned()),
            other => Some(format!("{other:?}")),
        }
    }

    #[test]
    fn frames_arrive_whole_however_they_were_cut() {
        let (mut pipe, mut browser, _) = pipe();
        browser.write_all(b"{\"id\":1}\0{\"id\"").unwrap();

        assert_eq!(text(&mut pipe).as_deref(), Some("{\"id\":1}"));
        assert_eq!(text(&mut pipe), None);
        browser.write_all(b":2}\0\0\xff\0").unwrap();
        assert_eq!(text(&mut pipe).as_deref(), Some("{\"id\":2}"));
        assert_eq!(text(&mut pipe).as_deref(), Some("Odd"));
        assert_eq!(text(&mut pipe).as_deref(), Some("\u{FFFD}"));
        drop(browser);
        assert_eq!(text(&mut pipe), None, "what a poll is for");
        assert_eq!(pipe.receive().unwrap_err(), CloseReason::HungUp);
    }

    #[test]
    fn a_large_frame_leaves_no_memory_behind() {
        let (mut pipe, mut browser, _) = pipe();
        let sent = "x".repeat(5 << 20);
        let frame = format!("{sent}\0");
        let writing = std::thread::spawn(move || browser.write_all(frame.as_bytes()).map(|()| browser));

        let received = loop {
            if let Some(text) = text(&mut pipe) {
                break text;
            }
            std::thread::yield_now();
        };

        assert_eq!(received, sent);
        assert!(pipe.arrived.capacity() <= CHUNK);
        drop(writing.join().unwrap().unwrap());
    }

    #[test]
    fn a_reader_that_stops_makes_us_wait_and_loses_nothing() {
        let (mut pipe, _browser, mut reads) = pipe();
        let sent = "y".repeat(1 << 20);
        pipe.queue(sent.clone());
        assert!(!pipe.flush().unwrap());
        let reading = std::thread::spawn(move || {
            let mut got = vec![0; (1 << 20) + 1];
            reads.read_exact(&mut got).map(|()| got)
        });

        while !pipe.flush().unwrap() {
            std::thread::yield_now();
        }

        assert_eq!(reading.join().unwrap().unwrap(), format!("{sent}\0").as_bytes());
    }
}
