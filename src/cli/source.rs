//! The text of a script: read, checked to be text, and made into what the parser takes.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Instant;

use super::args;
use super::timely::Timely;
use crate::wire::{Fault, FaultCode};

/// The longest source: the parser's time grows with the square of it, and it cannot be interrupted.
const LIMIT: usize = 128 << 10;

/// A script and what errors call it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) text: String,
    pub(super) origin: String,
}

/// Reads the script on standard input.
///
/// # Errors
/// [`FaultCode::Usage`] for a terminal, for nothing, for what is no text, and for what is not there by the deadline.
pub(super) fn from_stdin(deadline: Option<Instant>) -> Result<Source, Fault> {
    let stdin = io::stdin();
    if stdin.is_terminal() {
        return Err(no_script("standard input is a terminal"));
    }
    // Past the standard library's buffer, which may hold what a wait for more would not see.
    let inner = stdin.as_fd().try_clone_to_owned().map_err(|error| unreadable("stdin", &error))?;
    read(Timely { inner: File::from(inner), deadline }, "stdin")
}

/// Reads the script in a file.
///
/// # Errors
/// [`FaultCode::Usage`] for a file that cannot be read, for what is no text, and for what is not there by the deadline.
pub(super) fn from_file(path: &OsStr, deadline: Option<Instant>) -> Result<Source, Fault> {
    let origin = Path::new(path).display().to_string();
    let inner = open(path, deadline).map_err(|error| unreadable(&origin, &error))?;
    read(Timely { inner, deadline }, &origin)
}

/// Opening a named pipe waits for its writer, which a deadline must be able to end.
fn open(path: &OsStr, deadline: Option<Instant>) -> io::Result<File> {
    let flags = if deadline.is_some() { libc::O_NONBLOCK } else { 0 };
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// Takes the script of an argument.
///
/// # Errors
/// [`FaultCode::Usage`] for what is no text.
pub(super) fn from_code(code: &str) -> Result<Source, Fault> {
    read(code.as_bytes(), "-e")
}

fn read(reader: impl Read, origin: &str) -> Result<Source, Fault> {
    let mut bytes = Vec::new();
    let result = reader.take(LIMIT as u64 + 1).read_to_end(&mut bytes);
    result.map_err(|error| unreadable(origin, &error))?;
    Ok(Source { text: text(bytes, origin)?, origin: origin.to_owned() })
}

/// What the parser gets: no byte order mark, and a `#!` line as a comment, so that lines keep their numbers.
fn text(bytes: Vec<u8>, origin: &str) -> Result<String, Fault> {
    if bytes.len() > LIMIT {
        let message = format!("the script {origin} is over the limit of {LIMIT} bytes");
        return Err(
            Fault::new(FaultCode::Usage, message).hint("move parts of it into helper modules, and data into files")
        );
    }
    if let Some(offset) = bytes.iter().position(|&byte| byte == 0) {
        return Err(not_text(origin, "a NUL", offset));
    }
    let mut text =
        String::from_utf8(bytes).map_err(|error| not_text(origin, "bad UTF-8", error.utf8_error().valid_up_to()))?;
    if text.starts_with('\u{feff}') {
        text.drain(..'\u{feff}'.len_utf8());
    }
    if text.starts_with("#!") {
        text.replace_range(..2, "//");
    }
    if text.trim().is_empty() {
        return Err(no_script(&format!("{origin} is empty")));
    }
    Ok(text)
}

fn unreadable(origin: &str, error: &io::Error) -> Fault {
    if error.kind() == io::ErrorKind::TimedOut {
        return Fault::new(FaultCode::Usage, format!("no script arrived within --timeout: {origin} has not ended"))
            .hint("give it more with `--timeout SECONDS`, and close what writes the script");
    }
    let fault = Fault::new(FaultCode::Usage, format!("cannot read the script {origin}")).caused_by(error);
    match error.kind() {
        io::ErrorKind::NotFound if origin == "-" => {
            fault.hint("a script on standard input is run by `ghost-browser` without `run`")
        }
        io::ErrorKind::NotFound if origin.starts_with('-') => {
            fault.hint("if an option was meant: `ghost-browser run --help` lists them")
        }
        io::ErrorKind::NotFound => fault.hint("check the path: it starts at the working directory"),
        io::ErrorKind::IsADirectory => fault.hint("name a file in it"),
        _ => fault,
    }
}

fn not_text(origin: &str, what: &str, offset: usize) -> Fault {
    let message = format!("the script {origin} is not text: {what} at byte {offset}");
    Fault::new(FaultCode::Usage, message).hint("save it as UTF-8")
}

fn no_script(why: &str) -> Fault {
    let hint = "pipe a script to it, or see `ghost-browser --help`";
    Fault::new(FaultCode::Usage, format!("no script to run: {why}\n{}", args::usage())).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_bytes(bytes: &[u8]) -> Result<String, Fault> {
        read(bytes, "stdin").map(|source| source.text)
    }

    #[test]
    fn text_is_taken_as_it_was_written() {
        for (bytes, expected) in [
            (&b"print(1)"[..], "print(1)"),
            (b"a\r\nb\r\n", "a\r\nb\r\n"),
            ("\u{feff}print(\"é\u{1f600}\")".as_bytes(), "print(\"é\u{1f600}\")"),
            (b"#!/usr/bin/env ghost-browser\n1", "///usr/bin/env ghost-browser\n1"),
            ("\u{feff}#!x\r\n1".as_bytes(), "//x\r\n1"),
        ] {
            assert_eq!(read_bytes(bytes).unwrap(), expected);
        }
    }

    #[test]
    fn what_is_no_text_is_refused_with_its_place() {
        for (bytes, expected) in [
            (&b"ab\xffc"[..], "the script stdin is not text: bad UTF-8 at byte 2"),
            (b"\xef\xbb\xbfa\xe2\x82", "the script stdin is not text: bad UTF-8 at byte 4"),
            (b"abc\0", "the script stdin is not text: a NUL at byte 3"),
        ] {
            let fault = read_bytes(bytes).unwrap_err();

            assert_eq!((fault.code, fault.message.as_str()), (FaultCode::Usage, expected));
        }
    }

    #[test]
    fn nothing_to_run_is_a_usage_error() {
        for bytes in [&b""[..], b" \r\n\t", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n"] {
            let fault = read_bytes(bytes).unwrap_err();

            assert_eq!(fault.code, FaultCode::Usage);
            assert!(fault.message.starts_with("no script to run: stdin is empty"));
        }
    }

    #[test]
    fn a_source_over_the_limit_is_refused_without_reading_on() {
        assert!(read_bytes(&vec![b'1'; LIMIT]).is_ok());

        let fault = read(io::repeat(b'1'), "stdin").unwrap_err();

        assert_eq!(fault.message, "the script stdin is over the limit of 131072 bytes");
    }

    #[test]
    fn a_character_across_a_read_edge_stays_whole() {
        struct Dripping<'b>(&'b [u8]);
        impl Read for Dripping<'_> {
            fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
                let length = self.0.len().min(1);
                into[..length].copy_from_slice(&self.0[..length]);
                self.0 = &self.0[length..];
                Ok(length)
            }
        }

        let source = read(Dripping("\u{1f600}".as_bytes()), "stdin").unwrap();

        assert_eq!(source.text, "\u{1f600}");
    }

    #[test]
    fn a_file_that_cannot_be_read_is_a_usage_error_that_names_it() {
        let fault = from_file(OsStr::new("/nonexistent/x.rhai"), None).unwrap_err();

        assert_eq!(fault.code, FaultCode::Usage);
        assert_eq!(fault.message, "cannot read the script /nonexistent/x.rhai");
    }

    #[test]
    fn what_cannot_be_read_comes_with_what_to_type_instead() {
        for (path, hint) in [
            ("/nonexistent/x.rhai", "check the path"),
            ("-", "without `run`"),
            ("--tmieout", "run --help"),
            ("/", "a file in it"),
        ] {
            let told = from_file(OsStr::new(path), None).unwrap_err().hint.unwrap_or_default();

            assert!(told.contains(hint), "{path}: {told}");
        }
    }
}
