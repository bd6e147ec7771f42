//! How the value of one variable is read: text, seconds, a path, a flag, words.

use std::ffi::OsString;
use std::path::{Path, absolute};
use std::time::Duration;

use super::{Lookup, bad};
use crate::raw_path::RawPath;
use crate::secret::Secret;
use crate::wire::Fault;

const YEAR: f64 = 365.0 * 24.0 * 3600.0;

/// The variables, where an empty one is unset.
pub(super) struct Variables<'a>(pub(super) Lookup<'a>);

impl Variables<'_> {
    pub(super) fn raw(&self, name: &str) -> Option<OsString> {
        (self.0)(name).filter(|value| !value.is_empty())
    }

    pub(super) fn text(&self, name: &str) -> Result<Option<String>, Fault> {
        match self.raw(name).map(OsString::into_string) {
            Some(Ok(text)) => Ok(Some(text)),
            Some(Err(_)) => Err(bad(name, "it is not UTF-8")),
            None => Ok(None),
        }
    }

    pub(super) fn secret(&self, name: &str) -> Result<Option<Secret>, Fault> {
        Ok(self.text(name)?.map(Secret::new))
    }

    pub(super) fn seconds(&self, name: &str, default: u64) -> Result<Duration, Fault> {
        match self.text(name)? {
            Some(text) => seconds(&text).map_err(|expected| bad(name, expected)),
            None => Ok(Duration::from_secs(default)),
        }
    }

    pub(super) fn flag(&self, name: &str) -> Result<bool, Fault> {
        match self.text(name)?.as_deref() {
            None | Some("0" | "false" | "no") => Ok(false),
            Some("1" | "true" | "yes") => Ok(true),
            Some(_) => Err(bad(name, "expected 1 or 0")),
        }
    }

    pub(super) fn words(&self, name: &str) -> Result<Vec<String>, Fault> {
        let text = self.text(name)?.unwrap_or_default();
        shell_words(&text).ok_or_else(|| bad(name, "a quote is not closed"))
    }

    /// A path, made absolute: the daemon has another working directory than its starter.
    pub(super) fn path(&self, name: &str) -> Result<Option<RawPath>, Fault> {
        match self.raw(name) {
            Some(value) => match absolute(Path::new(&value)) {
                Ok(path) => Ok(Some(path.into())),
                Err(_) => Err(bad(name, "the working directory it is relative to is gone")),
            },
            None => Ok(None),
        }
    }

    /// A program: a bare name is left to `PATH`.
    pub(super) fn program(&self, name: &str) -> Result<Option<RawPath>, Fault> {
        match self.raw(name) {
            Some(value) if !value.as_encoded_bytes().contains(&b'/') => Ok(Some(value.into())),
            _ => self.path(name),
        }
    }
}

/// Reads a length of time as every setting and option takes it.
///
/// # Errors
/// What was expected instead.
pub fn seconds(text: &str) -> Result<Duration, &'static str> {
    const EXPECTED: &str = "expected a number of seconds, more than 0 and at most 31536000 (one year)";
    match text.trim().parse::<f64>() {
        Ok(number) if number > 0.0 && number <= YEAR => Ok(Duration::from_secs_f64(number)),
        _ => Err(EXPECTED),
    }
}

/// Reads a session's name as its variable and its option take it.
///
/// # Errors
/// What was expected instead.
pub fn session_name(text: &str) -> Result<String, &'static str> {
    match text.len() > 100 || text.chars().any(char::is_control) {
        true => Err("expected at most 100 bytes without control characters"),
        false => Ok(text.to_owned()),
    }
}

/// Splits as a shell does: white space outside quotes, `'…'` as it stands, `"…"` and `\` with escapes.
fn shell_words(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            c if c.is_whitespace() => words.extend(word.take()),
            '\'' => quoted(&mut characters, word.get_or_insert_default())?,
            '"' => double_quoted(&mut characters, word.get_or_insert_default())?,
            '\\' => word.get_or_insert_default().push(characters.next()?),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Some(words)
}

fn quoted(characters: &mut impl Iterator<Item = char>, word: &mut String) -> Option<()> {
    loop {
        match characters.next()? {
            '\'' => return Some(()),
            c => word.push(c),
        }
    }
}

fn double_quoted(characters: &mut impl Iterator<Item = char>, word: &mut String) -> Option<()> {
    loop {
        match characters.next()? {
            '"' => return Some(()),
            '\\' => match characters.next()? {
                c @ ('"' | '\\' | '$' | '`') => word.push(c),
                c => word.extend(['\\', c]),
            },
            c => word.push(c),
        }
    }
}
