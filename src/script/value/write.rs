//! A script value to JSON text, or to what `print` shows.
//!
//! [`Form`] says who reads the text. For the browser nothing is guessed: what JSON cannot hold is
//! refused with its path, before anything is sent. For a person it is shown as it is.

use std::fmt::{self, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rhai::{Array, Dynamic, Map};

use super::DEPTH_LIMIT;
use crate::script::memory;
use crate::script::secret::{Part, Veiled};

/// How much of a text is written between two looks at the memory.
const PIECE: usize = 64 << 10;

/// Who reads the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The browser: integral floats as integers; what JSON cannot hold is refused.
    Params,
    /// A program that asked for exact JSON: what JSON cannot hold is refused.
    Exact,
    /// A program that takes what it gets: `NaN` and infinities are null, functions and the like their text.
    Json,
    /// A person: compact JSON, with `NaN`, `inf`, `-inf` and `-0.0` as such.
    Shown,
}

/// Why a value has no text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// JSON has no such value: where it is (`.clip.x`, empty for the whole), and what.
    Unsayable {
        /// The way to it from the outermost value.
        path: String,
        /// What is there.
        what: String,
    },
    /// Nested deeper than [`DEPTH_LIMIT`]: a value that holds itself, most likely.
    TooDeep,
    /// The text has no room in the script's memory.
    NoRoom,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsayable { path, what } if path.is_empty() => {
                write!(f, "{what} cannot be JSON")
            }
            Self::Unsayable { path, what } => write!(f, "{path}: {what} cannot be JSON"),
            Self::TooDeep => write!(f, "a value nested deeper than {DEPTH_LIMIT} levels"),
            Self::NoRoom => f.write_str("the text does not fit in the script's memory"),
        }
    }
}

impl std::error::Error for Refusal {}

/// The text of `value`, strings in quotes.
///
/// # Errors
/// [`Refusal`]: JSON has no such value (never for [`Form::Json`] and [`Form::Shown`]), too deep, or more
/// than the script's memory.
pub fn write(value: &Dynamic, form: Form) -> Result<String, Refusal> {
    let mut writer = Writer::new(form);
    writer.value(value)?;
    Ok(writer.out)
}

/// The parameters of a command, secrets in them as what they are.
pub struct Params {
    /// The text of the object.
    pub text: String,
    /// The secrets that not every page may see.
    pub bound: Vec<Bound>,
}

/// A secret, and the only origin whose pages it is given to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// Its name.
    pub name: String,
    /// The origin.
    pub origin: String,
}

/// The text of a command's parameters: the one text that holds secrets.
///
/// # Errors
/// As [`write`] with [`Form::Params`].
pub fn write_params(value: &Dynamic) -> Result<Params, Refusal> {
    let mut writer = Writer::new(Form::Params);
    writer.bound = Some(Vec::new());
    writer.value(value)?;
    Ok(Params { text: writer.out, bound: writer.bound.unwrap_or_default() })
}

/// What `print` shows: a string or character bare, all else as [`Form::Shown`].
///
/// # Errors
/// [`Refusal::TooDeep`] and [`Refusal::NoRoom`].
pub fn show(value: &Dynamic) -> Result<String, Refusal> {
    if let Ok(text) = value.as_immutable_string_ref() {
        return Ok(text.to_string());
    }
    match value.as_char() {
        Ok(character) => Ok(character.to_string()),
        Err(_) => write(value, Form::Shown),
    }
}

/// One step of a path, made text only when something is refused.
enum Segment {
    Index(usize),
    Key(String),
}

struct Writer {
    out: String,
    form: Form,
    depth: usize,
    /// Filled on the way out of a refusal, innermost first.
    path: Vec<Segment>,
    /// `None` where the text is not one that secrets go into.
    bound: Option<Vec<Bound>>,
}

impl Writer {
    fn new(form: Form) -> Self {
        Self { out: String::new(), form, depth: 0, path: Vec::new(), bound: None }
    }

    fn value(&mut self, value: &Dynamic) -> Result<(), Refusal> {
        if value.is_shared() {
            return self.value(&value.flatten_clone());
        }
        if let Ok(text) = value.as_immutable_string_ref() {
            return self.string(&text);
        }
        if let Ok(map) = value.as_map_ref() {
            return self.nested(|writer| writer.map(&map));
        }
        if let Ok(array) = value.as_array_ref() {
            return self.nested(|writer| writer.array(&array));
        }
        self.scalar(value)
    }

    fn scalar(&mut self, value: &Dynamic) -> Result<(), Refusal> {
        if let Ok(number) = value.as_int() {
            self.put(format_args!("{number}"));
        } else if let Ok(number) = value.as_float() {
            return self.float(number);
        } else if let Ok(flag) = value.as_bool() {
            self.out.push_str(if flag { "true" } else { "false" });
        } else if value.is_unit() {
            self.out.push_str("null");
        } else if let Ok(character) = value.as_char() {
            return self.string(character.encode_utf8(&mut [0; 4]));
        } else if let Ok(blob) = value.as_blob_ref() {
            return self.blob(&blob);
        } else {
            return self.other(value);
        }
        Ok(())
    }

    /// Goes one level in, and gives up where the level, or the text so far, is too much.
    fn nested(&mut self, write: impl FnOnce(&mut Self) -> Result<(), Refusal>) -> Result<(), Refusal> {
        if self.depth >= DEPTH_LIMIT {
            return Err(Refusal::TooDeep);
        }
        // Shared values can make a text exponentially longer than the values it comes from.
        if memory::is_over() {
            return Err(Refusal::NoRoom);
        }
        self.depth += 1;
        let outcome = write(self);
        self.depth -= 1;
        outcome
    }

    fn map(&mut self, map: &Map) -> Result<(), Refusal> {
        self.out.push('{');
        for (index, (key, value)) in map.iter().enumerate() {
            if index > 0 {
                self.out.push(',');
            }
            self.string(key)?;
            self.out.push(':');
            self.value(value).map_err(|refusal| self.inside(Segment::Key(key.to_string()), refusal))?;
        }
        self.out.push('}');
        Ok(())
    }

    fn array(&mut self, array: &Array) -> Result<(), Refusal> {
        self.out.push('[');
        for (index, value) in array.iter().enumerate() {
            if index > 0 {
                self.out.push(',');
            }
            self.value(value).map_err(|refusal| self.inside(Segment::Index(index), refusal))?;
        }
        self.out.push(']');
        Ok(())
    }

    /// Adds the step that led to a refusal; the outermost level turns them into the path.
    fn inside(&mut self, segment: Segment, refusal: Refusal) -> Refusal {
        let Refusal::Unsayable { what, .. } = refusal else {
            return refusal;
        };
        self.path.push(segment);
        let path = if self.depth == 1 { self.path_text() } else { String::new() };
        Refusal::Unsayable { path, what }
    }

    fn path_text(&self) -> String {
        let steps = self.path.iter().rev();
        steps.fold(String::new(), |mut path, step| {
            match step {
                Segment::Index(index) => path.push_str(&format!("[{index}]")),
                Segment::Key(key) if path.is_empty() => path.push_str(key),
                Segment::Key(key) => path.extend([".", key]),
            }
            path
        })
    }

    fn float(&mut self, number: f64) -> Result<(), Refusal> {
        match self.form {
            Form::Shown => self.put(format_args!("{number:?}")),
            Form::Json if !number.is_finite() => self.out.push_str("null"),
            _ if !number.is_finite() => return Err(self.unsayable(&format!("{number:?}"))),
            Form::Params if is_integral(number) => self.put(format_args!("{}", number as i64)),
            _ => self.put(format_args!("{number:?}")),
        }
        Ok(())
    }

    fn blob(&mut self, blob: &[u8]) -> Result<(), Refusal> {
        if !memory::has_room(blob.len() / 3 * 4) {
            return Err(Refusal::NoRoom);
        }
        self.out.push('"');
        BASE64.encode_string(blob, &mut self.out);
        self.out.push('"');
        Ok(())
    }

    /// Functions, ranges, timestamps, values of the host's own.
    fn other(&mut self, value: &Dynamic) -> Result<(), Refusal> {
        let veiled = value.read_lock::<Veiled>();
        if let (Some(veiled), true) = (&veiled, self.bound.is_some()) {
            return self.unveiled(veiled);
        }
        let shown = || veiled.as_ref().map_or_else(|| value.to_string(), |veiled| veiled.to_string());
        match self.form {
            Form::Params | Form::Exact => Err(self.unsayable(kind(value))),
            Form::Json => self.string(&shown()),
            Form::Shown if self.depth == 0 => {
                self.out.push_str(&shown());
                Ok(())
            }
            Form::Shown => self.string(&shown()),
        }
    }

    /// A text with the values of its secrets, and a note of whom they may be given to.
    fn unveiled(&mut self, veiled: &Veiled) -> Result<(), Refusal> {
        self.out.push('"');
        for part in veiled.parts() {
            match part {
                Part::Plain(text) => self.characters(text)?,
                Part::Hidden(hidden) => {
                    self.characters(hidden.value.expose())?;
                    let name = hidden.name.clone();
                    let bound = hidden.origin.clone().map(|origin| Bound { name, origin });
                    self.bound.iter_mut().for_each(|all| all.extend(bound.clone()));
                }
            }
            if memory::is_over() {
                return Err(Refusal::NoRoom);
            }
        }
        self.out.push('"');
        Ok(())
    }

    fn string(&mut self, text: &str) -> Result<(), Refusal> {
        self.out.push('"');
        self.characters(text)?;
        self.out.push('"');
        Ok(())
    }

    fn characters(&mut self, text: &str) -> Result<(), Refusal> {
        if text.len() > PIECE && !memory::has_room(text.len()) {
            return Err(Refusal::NoRoom);
        }
        let mut rest = text;
        while rest.len() > PIECE {
            let end = (0..=PIECE).rev().find(|&at| rest.is_char_boundary(at)).unwrap_or(PIECE);
            self.piece(&rest[..end]);
            rest = &rest[end..];
            // Escaped, a text may be six times as long.
            if memory::is_over() {
                return Err(Refusal::NoRoom);
            }
        }
        self.piece(rest);
        Ok(())
    }

    fn piece(&mut self, text: &str) {
        let mut from = 0;
        for (index, byte) in text.bytes().enumerate() {
            if byte >= 0x20 && byte != b'"' && byte != b'\\' {
                continue;
            }
            self.out.push_str(&text[from..index]);
            self.escaped(byte);
            from = index + 1;
        }
        self.out.push_str(&text[from..]);
    }

    fn escaped(&mut self, byte: u8) {
        match byte {
            b'"' => self.out.push_str("\\\""),
            b'\\' => self.out.push_str("\\\\"),
            b'\n' => self.out.push_str("\\n"),
            b'\r' => self.out.push_str("\\r"),
            b'\t' => self.out.push_str("\\t"),
            8 => self.out.push_str("\\b"),
            12 => self.out.push_str("\\f"),
            _ => self.put(format_args!("\\u{byte:04x}")),
        }
    }

    fn put(&mut self, text: fmt::Arguments<'_>) {
        // Writing to a `String` cannot fail.
        let _ = self.out.write_fmt(text);
    }

    fn unsayable(&self, what: &str) -> Refusal {
        Refusal::Unsayable { path: String::new(), what: what.to_owned() }
    }
}

/// Whether a float is a whole number that 53 bits tell exactly. Minus zero is not: an integer has none.
fn is_integral(number: f64) -> bool {
    number.fract() == 0.0 && number.abs() <= 9_007_199_254_740_992.0 && !(number == 0.0 && number.is_sign_negative())
}

/// What a person calls a value that JSON has no place for.
fn kind(value: &Dynamic) -> &'static str {
    match value.type_name() {
        "Fn" => "a function",
        "timestamp" => "a timestamp",
        name if name.ends_with("::Veiled") => "a secret",
        name if name.contains("Range") || name == "range" || name == "range=" => "a range",
        name => name,
    }
}
