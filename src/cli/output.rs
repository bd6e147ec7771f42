//! Writing: at once, and never with a panic where nobody reads.

use std::io::{self, Write};

use crate::client::unwritable;
use crate::wire::Fault;

/// Writes to standard output.
///
/// # Errors
/// `output`, when it cannot be written.
pub(super) fn write(text: impl AsRef<[u8]>) -> Result<(), Fault> {
    raw(io::stdout(), text.as_ref()).map_err(|error| unwritable(&error))
}

/// Writes to standard output, for whoever cancels on an error.
pub(super) fn write_raw(text: &str) -> io::Result<()> {
    raw(io::stdout(), text.as_bytes())
}

/// Writes to standard error.
pub(super) fn complain(text: &str) {
    // Where standard error is gone there is nobody left to tell.
    let _ = raw(io::stderr(), text.as_bytes());
}

fn raw(mut stream: impl Write, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes)?;
    stream.flush()
}
