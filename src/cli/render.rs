//! How an error reads: `error:`, where it is with its line and a caret, `caused by:`, `hint:`.

use std::env;
use std::fmt::Write;
use std::io::{self, IsTerminal};

use serde_json::Value;

use super::output;
use crate::wire::Fault;

/// The most of a source line that is shown on either side of the caret.
const AROUND: usize = 80;

/// Tells a fault on standard error.
pub(super) fn error(fault: &Fault) {
    output::complain(&text(fault, Paint::for_stderr()));
}

/// Tells what the caller should know whatever the outcome.
pub(super) fn warning(sentence: &str) {
    let label = Paint::for_stderr().label("warning", Colour::Yellow);
    output::complain(&format!("{label} {}\n", printable(sentence)));
}

/// Tells what to type next.
pub(super) fn hint(sentence: &str) {
    let label = Paint::for_stderr().label("hint", Colour::Cyan);
    output::complain(&format!("{label} {}\n", printable(sentence)));
}

/// Whether words are coloured.
#[derive(Clone, Copy)]
enum Paint {
    Plain,
    Coloured,
}

#[derive(Clone, Copy)]
enum Colour {
    Red = 31,
    Yellow = 33,
    Cyan = 36,
}

impl Paint {
    fn for_stderr() -> Self {
        if io::stderr().is_terminal() && env::var_os("NO_COLOR").is_none() { Self::Coloured } else { Self::Plain }
    }

    fn label(self, word: &str, colour: Colour) -> String {
        self.colour(&format!("{word}:"), colour)
    }

    fn colour(self, text: &str, colour: Colour) -> String {
        match self {
            Self::Plain => text.to_owned(),
            Self::Coloured => format!("\x1b[1;{}m{text}\x1b[0m", colour as u8),
        }
    }
}

fn text(fault: &Fault, paint: Paint) -> String {
    let mut text = String::new();
    line(&mut text, &paint.label("error", Colour::Red), &fault.message);
    if let Some(place) = Place::of(fault) {
        place.write(&mut text, paint);
    }
    for call in sentences(fault, "trace") {
        line(&mut text, "  in", &call);
    }
    for call in sentences(fault, "stack") {
        line(&mut text, "  page:", &call);
    }
    for cause in sentences(fault, "caused_by") {
        line(&mut text, "caused by:", &cause);
    }
    if let Some(hint) = &fault.hint {
        line(&mut text, &paint.label("hint", Colour::Cyan), hint);
    }
    text
}

fn line(text: &mut String, label: &str, rest: &str) {
    let rest = printable(rest);
    writeln!(text, "{label} {}", rest.trim_end()).expect("a string takes every line");
}

/// The lines of a fact that is a text or a list of texts.
fn sentences(fault: &Fault, name: &str) -> Vec<String> {
    match fault.context.get(name) {
        Some(Value::String(text)) => text.lines().map(str::to_owned).collect(),
        Some(Value::Array(items)) => {
            items.iter().map(|item| item.as_str().map_or_else(|| item.to_string(), str::to_owned)).collect()
        }
        _ => Vec::new(),
    }
}

/// What a page or a script says must not drive the terminal.
fn printable(text: &str) -> String {
    let is_control = |c: char| c.is_control() && c != '\n' && c != '\t';
    let plain = text.chars().filter(|&c| c != '\r');
    plain.map(|c| if is_control(c) { '\u{fffd}' } else { c }).collect()
}

/// Where in a script a fault is.
struct Place<'f> {
    origin: &'f str,
    line: u64,
    column: Option<u64>,
    source: Option<&'f str>,
}

impl<'f> Place<'f> {
    fn of(fault: &'f Fault) -> Option<Self> {
        let fact = |name: &str| fault.context.get(name);
        Some(Self {
            origin: fact("source")?.as_str()?,
            line: fact("line")?.as_u64()?,
            column: fact("column").and_then(Value::as_u64).filter(|&column| column > 0),
            source: fact("source_line").and_then(Value::as_str),
        })
    }

    fn write(&self, text: &mut String, paint: Paint) {
        let column = self.column.map(|column| format!(":{column}")).unwrap_or_default();
        let place = format!("{}:{}{column}", self.origin, self.line);
        line(text, " -->", &place);
        let Some(source) = self.source else { return };
        let number = self.line.to_string();
        let gutter = " ".repeat(number.len());
        let (shown, caret) = window(&printable(source), self.column);
        line(text, &gutter, "|");
        line(text, &number, &format!("| {shown}"));
        if let Some(caret) = caret {
            let mark = paint.colour("^", Colour::Red);
            writeln!(text, "{gutter} | {caret}{mark}").expect("a string takes every line");
        }
    }
}

/// The part of a line that is shown, and what stands before the caret under it. Tabs stay, so that both align.
fn window(source: &str, column: Option<u64>) -> (String, Option<String>) {
    let characters: Vec<char> = source.trim_end().chars().collect();
    let at = column.map_or(0, |column| column as usize - 1).min(characters.len());
    let (start, end) = (at.saturating_sub(AROUND), characters.len().min(at + AROUND));
    let before = if start > 0 { "…" } else { "" };
    let after = if end < characters.len() { "…" } else { "" };
    let shown = characters[start..end].iter().collect::<String>();
    let blank = |c: &char| if *c == '\t' { '\t' } else { ' ' };
    let indent = characters[start..at].iter().map(blank).collect::<String>();
    let caret = column.map(|_| " ".repeat(before.chars().count()) + indent.as_str());
    (format!("{before}{shown}{after}"), caret)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::FaultCode;

    fn script_error(line: u64, column: u64, source_line: &str) -> Fault {
        Fault::new(FaultCode::JsError, "ReferenceError: nope is not defined")
            .with("source", "stdin")
            .with("line", line)
            .with("column", column)
            .with("source_line", source_line)
    }

    #[test]
    fn an_error_tells_its_causes_and_what_to_type() {
        let fault = Fault::new(FaultCode::NoBrowser, "cannot start the daemon")
            .with("caused_by", vec!["no such file", "really"])
            .hint("install it");

        assert_eq!(
            text(&fault, Paint::Plain),
            "error: cannot start the daemon\ncaused by: no such file\ncaused by: really\nhint: install it\n"
        );
    }

    #[test]
    fn a_script_error_shows_its_line_with_a_caret() {
        let fault = script_error(12, 4, "\tx + js(\"nope.x\")\r").with("trace", vec!["go (stdin:20:1)"]);

        assert_eq!(
            text(&fault, Paint::Plain),
            "error: ReferenceError: nope is not defined\n --> stdin:12:4\n   |\n12 | \tx + js(\"nope.x\")\n   | \t  ^\n  in go (stdin:20:1)\n"
        );
    }

    #[test]
    fn a_long_line_is_cut_around_the_caret() {
        let long = format!("{}!{}", "a".repeat(1000), "b".repeat(1000));

        let text = text(&script_error(1, 1001, &long), Paint::Plain);

        let lines: Vec<_> = text.lines().collect();
        let column = |line: &str, c: char| line.chars().position(|other| other == c);
        assert!(lines[3].chars().count() < 2 * AROUND + 10);
        assert_eq!(column(lines[3], '!'), column(lines[4], '^'));
    }

    #[test]
    fn a_column_past_the_line_still_has_a_caret() {
        for line in ["", "é"] {
            assert!(text(&script_error(1, 99, line), Paint::Plain).ends_with("^\n"));
        }
    }

    #[test]
    fn a_page_cannot_drive_the_terminal() {
        let fault = Fault::new(FaultCode::JsError, "\x1b]0;owned\x07\r");

        assert_eq!(text(&fault, Paint::Plain), "error: \u{fffd}]0;owned\u{fffd}\n");
    }
}
