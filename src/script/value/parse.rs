//! JSON text to a script value: one pass, no recursion, no copy of a string but its own.
//!
//! It is lenient where a reply must never be lost: lone surrogates and raw control characters are taken.
//! It never accepts what has two readings: trailing text, missing commas, bad literals.

use std::fmt;

use memchr::{memchr, memchr2};
use rhai::{Array, Dynamic, Identifier, ImmutableString, Map};

use super::DEPTH_LIMIT;
use crate::script::memory;

/// Why a text is no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParseFailure {
    /// Not JSON: what was expected at which byte.
    Expected(&'static str, usize),
    /// Nested deeper than [`DEPTH_LIMIT`].
    TooDeep,
    /// The value has no room in the script's memory.
    NoRoom,
}

impl fmt::Display for ParseFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expected(what, at) => write!(f, "not JSON: expected {what} at byte {at}"),
            Self::TooDeep => write!(f, "JSON nested deeper than {DEPTH_LIMIT} levels"),
            Self::NoRoom => f.write_str("the value does not fit in the script's memory"),
        }
    }
}

impl std::error::Error for ParseFailure {}

/// Reads one JSON value; white space around it is fine, anything else is not.
///
/// # Errors
/// [`ParseFailure`]: not JSON, too deep, or more than the script's memory.
pub fn parse(text: &str) -> Result<Dynamic, ParseFailure> {
    let mut parser = Parser { text, at: 0 };
    let value = parser.value()?;
    parser.skip_space();
    match parser.peek() {
        None => Ok(value),
        Some(_) => Err(parser.expected("the end")),
    }
}

/// A container that is still open. A map waits for the value of `key`.
enum Open {
    Array(Array),
    Map(Map, Identifier),
}

/// What one step came to.
enum Step {
    /// A whole value.
    Value(Dynamic),
    /// A container was opened and is not empty.
    Opened(Open),
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn value(&mut self) -> Result<Dynamic, ParseFailure> {
        let mut open: Vec<Open> = Vec::new();
        loop {
            match self.step()? {
                Step::Opened(_) if open.len() >= DEPTH_LIMIT => return Err(ParseFailure::TooDeep),
                Step::Opened(container) => open.push(container),
                Step::Value(value) => {
                    if let Some(whole) = self.close(&mut open, value)? {
                        return Ok(whole);
                    }
                }
            }
        }
    }

    /// Puts a value where it belongs and closes what ends with it; the outermost value is handed back.
    fn close(&mut self, open: &mut Vec<Open>, mut value: Dynamic) -> Result<Option<Dynamic>, ParseFailure> {
        loop {
            let Some(container) = open.last_mut() else {
                return Ok(Some(value));
            };
            let ended = match container {
                Open::Array(array) => {
                    array.push(value);
                    self.array_ends()?
                }
                Open::Map(map, key) => {
                    map.insert(std::mem::take(key), value);
                    self.map_ends(key)?
                }
            };
            if !ended {
                return Ok(None);
            }
            if memory::is_over() {
                return Err(ParseFailure::NoRoom);
            }
            value = match open.pop() {
                Some(Open::Array(array)) => Dynamic::from_array(array),
                Some(Open::Map(map, _)) => Dynamic::from_map(map),
                None => return Ok(None),
            };
        }
    }

    fn array_ends(&mut self) -> Result<bool, ParseFailure> {
        self.skip_space();
        match self.take() {
            Some(b',') => Ok(false),
            Some(b']') => Ok(true),
            _ => Err(self.back().expected("`,` or `]`")),
        }
    }

    fn map_ends(&mut self, key: &mut Identifier) -> Result<bool, ParseFailure> {
        self.skip_space();
        match self.take() {
            Some(b',') => {
                *key = self.key()?;
                Ok(false)
            }
            Some(b'}') => Ok(true),
            _ => Err(self.back().expected("`,` or `}`")),
        }
    }

    fn step(&mut self) -> Result<Step, ParseFailure> {
        self.skip_space();
        let value = match self.peek() {
            Some(b'"') => Dynamic::from(self.string()?),
            Some(b'{') => return self.map(),
            Some(b'[') => return Ok(self.array()),
            Some(b't') => self.literal("true", Dynamic::TRUE)?,
            Some(b'f') => self.literal("false", Dynamic::FALSE)?,
            Some(b'n') => self.literal("null", Dynamic::UNIT)?,
            Some(b'-' | b'0'..=b'9') => self.number()?,
            _ => return Err(self.expected("a value")),
        };
        Ok(Step::Value(value))
    }

    fn array(&mut self) -> Step {
        self.at += 1;
        self.skip_space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Step::Value(Dynamic::from_array(Array::new()));
        }
        Step::Opened(Open::Array(Array::new()))
    }

    fn map(&mut self) -> Result<Step, ParseFailure> {
        self.at += 1;
        self.skip_space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Step::Value(Dynamic::from_map(Map::new())));
        }
        let key = self.key()?;
        Ok(Step::Opened(Open::Map(Map::new(), key)))
    }

    fn key(&mut self) -> Result<Identifier, ParseFailure> {
        self.skip_space();
        if self.peek() != Some(b'"') {
            return Err(self.expected("a key in quotes"));
        }
        let key = match self.raw_string()? {
            Text::Plain(text) => Identifier::from(text),
            Text::Unescaped(text) => Identifier::from(text),
        };
        self.skip_space();
        match self.take() {
            Some(b':') => Ok(key),
            _ => Err(self.back().expected("`:`")),
        }
    }

    fn string(&mut self) -> Result<ImmutableString, ParseFailure> {
        Ok(match self.raw_string()? {
            Text::Plain(text) => text.into(),
            Text::Unescaped(text) => text.into(),
        })
    }

    /// The string whose opening quote is next.
    fn raw_string(&mut self) -> Result<Text<'a>, ParseFailure> {
        self.at += 1;
        let rest = &self.text[self.at..];
        match memchr2(b'"', b'\\', rest.as_bytes()) {
            Some(end) if rest.as_bytes()[end] == b'"' => {
                self.at += end + 1;
                self.room(end)?;
                Ok(Text::Plain(&rest[..end]))
            }
            Some(_) => self.unescape().map(Text::Unescaped),
            None => Err(self.expected("a closing quote")),
        }
    }

    fn unescape(&mut self) -> Result<String, ParseFailure> {
        let mut out = String::with_capacity(self.string_length()?);
        loop {
            let rest = &self.text[self.at..];
            let Some(end) = memchr2(b'"', b'\\', rest.as_bytes()) else {
                return Err(self.expected("a closing quote"));
            };
            out.push_str(&rest[..end]);
            self.at += end + 1;
            if rest.as_bytes()[end] == b'"' {
                return Ok(out);
            }
            out.push(self.escape()?);
        }
    }

    /// The length of the text up to the closing quote, escapes and all: enough for what it means.
    fn string_length(&self) -> Result<usize, ParseFailure> {
        let bytes = &self.text.as_bytes()[self.at..];
        let mut from = 0;
        while let Some(quote) = memchr(b'"', &bytes[from..]).map(|found| from + found) {
            let slashes = bytes[from..quote].iter().rev().take_while(|&&byte| byte == b'\\');
            if slashes.count() % 2 == 0 {
                self.room(quote)?;
                return Ok(quote);
            }
            from = quote + 1;
        }
        Err(self.expected("a closing quote"))
    }

    /// The character behind the backslash just read.
    fn escape(&mut self) -> Result<char, ParseFailure> {
        Ok(match self.take() {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode(),
            _ => return Err(self.back().expected("an escape")),
        })
    }

    /// `\uXXXX`, with its second half where there is one; half a pair is U+FFFD.
    fn unicode(&mut self) -> Result<char, ParseFailure> {
        let first = self.hex()?;
        if !(0xd800..0xdc00).contains(&first) {
            return Ok(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        if !self.text.as_bytes()[self.at..].starts_with(b"\\u") {
            return Ok(char::REPLACEMENT_CHARACTER);
        }
        let before = self.at;
        self.at += 2;
        let second = self.hex()?;
        if (0xdc00..0xe000).contains(&second) {
            let code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
            return Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        self.at = before;
        Ok(char::REPLACEMENT_CHARACTER)
    }

    fn hex(&mut self) -> Result<u32, ParseFailure> {
        let digits = self.text.as_bytes().get(self.at..self.at + 4);
        let code = digits.and_then(|digits| {
            digits.iter().try_fold(0, |code, &digit| char::from(digit).to_digit(16).map(|value| code * 16 + value))
        });
        let code = code.ok_or_else(|| self.expected("four hex digits"))?;
        self.at += 4;
        Ok(code)
    }

    fn number(&mut self) -> Result<Dynamic, ParseFailure> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        let first = self.at;
        self.digits()?;
        if self.at - first > 1 && self.text.as_bytes()[first] == b'0' {
            self.at = first + 1;
            return Err(self.expected("no digit after a leading zero"));
        }
        let is_integer = !self.fraction()?;
        let text = &self.text[start..self.at];
        Ok(if is_integer { integer(text) } else { float(text) })
    }

    /// Skips `.5` and `e+3`; whether there was either.
    fn fraction(&mut self) -> Result<bool, ParseFailure> {
        let before = self.at;
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(self.at > before)
    }

    fn digits(&mut self) -> Result<(), ParseFailure> {
        let rest = &self.text.as_bytes()[self.at..];
        let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if count == 0 {
            return Err(self.expected("a digit"));
        }
        self.at += count;
        Ok(())
    }

    fn literal(&mut self, word: &'static str, value: Dynamic) -> Result<Dynamic, ParseFailure> {
        if !self.text[self.at..].starts_with(word) {
            return Err(self.expected(word));
        }
        self.at += word.len();
        Ok(value)
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn take(&mut self) -> Option<u8> {
        let byte = self.peek();
        self.at += 1;
        byte
    }

    fn back(&mut self) -> &Self {
        self.at -= 1;
        self
    }

    fn expected(&self, what: &'static str) -> ParseFailure {
        ParseFailure::Expected(what, self.at)
    }

    fn room(&self, bytes: usize) -> Result<(), ParseFailure> {
        // Only a large string can overshoot by itself; small ones are seen when their container closes.
        if bytes > 1 << 16 && !memory::has_room(bytes) {
            return Err(ParseFailure::NoRoom);
        }
        Ok(())
    }
}

/// A string of the text: as it stands, or with its escapes resolved.
enum Text<'a> {
    Plain(&'a str),
    Unescaped(String),
}

fn integer(text: &str) -> Dynamic {
    match text.parse::<i64>() {
        // JSON can tell the two zeros apart, and an integer cannot.
        Ok(0) if text.starts_with('-') => Dynamic::from_float(-0.0),
        Ok(number) => Dynamic::from_int(number),
        Err(_) => Dynamic::from(ImmutableString::from(text)),
    }
}

fn float(text: &str) -> Dynamic {
    // What was just scanned is a number by Rust's grammar too.
    Dynamic::from_float(text.parse().unwrap_or(f64::NAN))
}
