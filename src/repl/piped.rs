//! Inputs from a pipe or a file: each statement runs as soon as it is complete, without a prompt.

use std::io::{self, BufRead};

use super::session::{Next, Session};
use crate::client::interrupt;
use crate::script::reading;
use crate::wire::{Fault, FaultCode};

/// A statement that is longer than any script may be is not waited for.
const LONGEST: usize = 128 << 10;

/// Runs everything that comes. Gives the last failure.
pub(super) fn run(session: &mut Session, mut input: impl BufRead) -> Option<FaultCode> {
    let mut open = Open::default();
    let mut number = 0;
    loop {
        number += 1;
        match next_line(&mut input, number) {
            Ok(Some(line)) => {
                if let Some((text, first)) = open.add(&line, number)
                    && goes_on(session, &text, first) == Next::Leave
                {
                    return session.failure;
                }
            }
            Ok(None) => break,
            Err(fault) => {
                session.fail(&fault);
                return session.failure;
            }
        }
    }
    // What is not complete says so itself.
    if !open.text.is_empty() {
        session.take(&open.text, open.first);
    }
    session.failure
}

/// Whoever interrupts a list of lines means all of them.
fn goes_on(session: &mut Session, text: &str, first: u32) -> Next {
    match session.take(text, first) {
        Next::GoOn if !interrupt::is_raised() => Next::GoOn,
        _ => Next::Leave,
    }
}

/// A statement that is not complete yet.
#[derive(Default)]
struct Open {
    text: String,
    /// The number of its first line.
    first: u32,
}

impl Open {
    /// Adds a line, and gives the statement that it completes.
    fn add(&mut self, line: &str, number: u32) -> Option<(String, u32)> {
        if self.text.is_empty() {
            self.first = number;
        }
        self.text.push_str(line);
        let is_command = self.text.trim_start().starts_with(':');
        let is_over = is_command || self.text.len() > LONGEST || reading::is_complete(&self.text);
        is_over.then(|| (std::mem::take(&mut self.text), self.first))
    }
}

fn next_line(input: &mut impl BufRead, number: u32) -> Result<Option<String>, Fault> {
    let mut bytes = Vec::new();
    let read = input.read_until(b'\n', &mut bytes);
    let read = read.map_err(|error| unreadable(&error))?;
    let line = String::from_utf8(bytes).map_err(|_| not_text(number))?;
    if line.contains('\0') { Err(not_text(number)) } else { Ok((read > 0).then_some(line)) }
}

fn unreadable(error: &io::Error) -> Fault {
    Fault::new(FaultCode::Usage, "cannot read standard input").caused_by(error)
}

fn not_text(number: u32) -> Fault {
    Fault::new(FaultCode::Usage, format!("line {number} of standard input is not text")).hint("send UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_taken_whole_with_the_number_of_its_first_line() {
        let mut open = Open::default();
        let mut taken = Vec::new();
        for (index, line) in ["1\n", "fn f(x) {\n", "\n", "  x }\n", ":help\n", "f(\n", "2)"].iter().enumerate() {
            taken.extend(open.add(line, index as u32 + 1));
        }

        let expected = [("1\n", 1), ("fn f(x) {\n\n  x }\n", 2), (":help\n", 5), ("f(\n2)", 6)];
        assert_eq!(taken, expected.map(|(text, first)| (text.to_owned(), first)));
    }
}
