//! What goes back to a client while its script runs: output, and questions for its secrets.

use std::borrow::Cow;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::{House, LAST_WORDS};
use crate::cancel::{Cancel, Registration};
use crate::redact::Redactor;
use crate::script::{self, Answering};
use crate::wire::{Reply, SecretAnswer, Stream, write_frame};

/// The most output in one frame.
const OUTPUT_PIECE: usize = 1 << 20;

/// The client's side of the socket. Blocks while the client is slow, but not for ever.
pub(super) struct Writer {
    stream: UnixStream,
    turn: Mutex<()>,
    redactor: Redactor,
}

impl Writer {
    pub(super) fn new(stream: UnixStream, house: &House) -> io::Result<Self> {
        stream.set_write_timeout(Some(house.patience))?;
        Ok(Self { stream, turn: Mutex::default(), redactor: house.redactor.clone() })
    }

    pub(super) fn send(&self, reply: &Reply) -> io::Result<()> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        write_frame(&mut &self.stream, reply)
    }

    /// Ends the connection, and with it the thread that listens to the client and a write that the client does not read.
    pub(super) fn hang_up(&self) {
        // The client may have hung up first.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }

    /// Once `cancel` is raised the client has a moment to read its last words: nobody who wants the script's end waits for
    /// a client that does not read. Over when what this returns is dropped: then the last words are said.
    pub(super) fn cut_off_after(self: &Arc<Self>, cancel: &Cancel) -> CutOff {
        let (writer, said) = (Arc::downgrade(self), Arc::new(AtomicBool::new(false)));
        let is_said = said.clone();
        let cancelled = cancel.on_cancel(move || {
            let (writer, is_said) = (writer.clone(), is_said.clone());
            let cut_off = move || {
                thread::sleep(LAST_WORDS);
                if !is_said.load(Ordering::Acquire) {
                    writer.upgrade().iter().for_each(|writer| writer.hang_up());
                }
            };
            // Without a thread the client's patience is what ends the wait.
            let _ = thread::Builder::new().name("cut-off".to_owned()).stack_size(64 << 10).spawn(cut_off);
        });
        CutOff { said, _cancelled: cancelled }
    }
}

/// A script whose client is cut off if it takes too long over the last words.
pub(super) struct CutOff {
    said: Arc<AtomicBool>,
    _cancelled: Registration,
}

impl Drop for CutOff {
    fn drop(&mut self) {
        self.said.store(true, Ordering::Release);
    }
}

impl script::Output for Writer {
    fn write(&self, stream: Stream, text: &str) -> Result<(), script::Closed> {
        let text = self.redactor.output(text);
        let mut rest: &str = &text;
        while !rest.is_empty() {
            let end =
                (0..=rest.len().min(OUTPUT_PIECE)).rev().find(|&at| rest.is_char_boundary(at)).unwrap_or(rest.len());
            let piece = rest[..end].to_owned();
            self.send(&Reply::Output { stream, text: piece }).map_err(|_| script::Closed)?;
            rest = &rest[end..];
        }
        Ok(())
    }
}

/// The client's secrets: asked for over its socket, and answered whenever it likes.
pub(super) struct Asking {
    writer: Arc<Writer>,
    waiting: Mutex<Vec<(String, Answering)>>,
}

impl Asking {
    pub(super) fn new(writer: Arc<Writer>) -> Self {
        Self { writer, waiting: Mutex::default() }
    }

    /// Takes the client's answer. From here on no text that leaves the process holds the secret.
    pub(super) fn hear(&self, name: &str, answer: SecretAnswer) {
        let waiting = self.waiting().extract_if(.., |(asked, _)| asked == name).collect::<Vec<_>>();
        if let SecretAnswer::Granted(granted) = &answer {
            self.writer.redactor.learn(&granted.value);
        }
        for (_, tell) in waiting {
            tell(match answer.clone() {
                SecretAnswer::Granted(granted) => Ok(granted),
                SecretAnswer::Refused(fault) => Err(fault),
            });
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<(String, Answering)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl script::Secrets for Asking {
    fn ask(&self, name: &str, answer: Answering) {
        self.waiting().push((name.to_owned(), answer));
        // A client that is gone answers nothing: its script is cancelled.
        let _ = self.writer.send(&Reply::NeedSecret { name: name.to_owned() });
    }

    fn hide<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.writer.redactor.output(text)
    }
}
