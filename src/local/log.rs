//! What Chromium writes to its standard error: the last lines in memory, and a bounded file for people.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, PipeReader, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

const FILE_LIMIT: u64 = 256 << 10;
const LINES: usize = 10;
const LINE_LIMIT: usize = 400;
const STACK: usize = 64 << 10;

/// The last lines that tell something.
#[derive(Debug, Default)]
pub(super) struct Tail {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    lines: VecDeque<String>,
    unfinished: Vec<u8>,
    has_ended: bool,
}

/// Keeps what `source` brings, on a thread of its own, until every writer is gone.
///
/// # Errors
/// When the file or the thread cannot be made.
pub(super) fn keep(source: PipeReader, path: &Path) -> io::Result<Arc<Tail>> {
    let file = BoundedFile::create(path)?;
    let tail = Arc::new(Tail::default());
    let kept = tail.clone();
    thread::Builder::new()
        .name("chromium-log".to_owned())
        .stack_size(STACK)
        .spawn(move || drain(source, file, &kept))?;
    Ok(tail)
}

fn drain(mut source: PipeReader, mut file: BoundedFile, tail: &Tail) {
    let mut chunk = [0; 4096];
    loop {
        match source.read(&mut chunk) {
            Ok(0) => break,
            Ok(length) => {
                file.append(&chunk[..length]);
                tail.append(&chunk[..length]);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    tail.state().has_ended = true;
    tail.ended.notify_all();
}

impl Tail {
    /// The last lines, once every writer is gone; after `longest` whatever there is.
    pub(super) fn lines(&self, longest: Duration) -> Vec<String> {
        let waited = self.ended.wait_timeout_while(self.state(), longest, |state| !state.has_ended);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let unfinished = readable(&state.unfinished);
        state.lines.iter().cloned().chain(unfinished).collect()
    }

    fn append(&self, bytes: &[u8]) {
        let mut state = self.state();
        for part in bytes.split_inclusive(|&byte| byte == b'\n') {
            let room = LINE_LIMIT.saturating_sub(state.unfinished.len()).min(part.len());
            state.unfinished.extend_from_slice(&part[..room]);
            if part.ends_with(b"\n") {
                state.end_line();
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn end_line(&mut self) {
        self.lines.extend(readable(&self.unfinished));
        self.unfinished.clear();
        while self.lines.len() > LINES {
            self.lines.pop_front();
        }
    }
}

/// A line without its end; nothing for one that says nothing about the browser: the missing desktop bus, a stack.
fn readable(line: &[u8]) -> Option<String> {
    let line = String::from_utf8_lossy(line).trim().to_owned();
    let is_noise = line.is_empty() || line.contains(":ERROR:dbus/") || line.starts_with("#");
    (!is_noise).then_some(line)
}

/// A file that starts over where it would grow past its limit: the end is what is asked for.
struct BoundedFile {
    file: File,
    length: u64,
}

impl BoundedFile {
    fn create(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(path)?;
        Ok(Self { file, length: 0 })
    }

    /// A full disk costs the lines and nothing else.
    fn append(&mut self, bytes: &[u8]) {
        if self.length + bytes.len() as u64 > FILE_LIMIT {
            self.length = 0;
            let _ = self.file.set_len(0);
            let _ = self.file.rewind();
        }
        if self.file.write_all(bytes).is_ok() {
            self.length += bytes.len() as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept_without_noise_and_the_file_is_bounded() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("log");
        let (reader, mut writer) = io::pipe().unwrap();

        let tail = keep(reader, &path).unwrap();
        for number in 0..20_000 {
            writeln!(writer, "line {number} {}", "x".repeat(20)).unwrap();
        }
        write!(writer, "[1:1:ERROR:dbus/bus.cc] no bus\n{}\nlast", "y".repeat(5000)).unwrap();
        drop(writer);
        let lines = tail.lines(Duration::from_secs(10));

        assert_eq!(lines.len(), LINES + 1);
        assert_eq!(lines[LINES - 1], "y".repeat(LINE_LIMIT));
        assert_eq!(lines[LINES], "last");
        assert!(path.metadata().unwrap().len() <= FILE_LIMIT);
        assert!(std::fs::read_to_string(path).unwrap().ends_with("last"));
    }
}
