//! Reading what a script passed: maps of options, sessions, numbers, each refused by name when it is wrong.

use std::time::Duration;

use rhai::{Dynamic, FnPtr, ImmutableString, Map};

use crate::script::error::{Failure, Thrown};
use crate::script::hints;
use crate::wire::FaultCode;

/// How long a command may take when nothing is said.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// The longest wait that can be asked for, in milliseconds: a day.
const LONGEST_MS: f64 = 86_400_000.0;

/// The error for an argument of the wrong kind.
pub fn wrong(what: &str, expected: &str, seen: &Dynamic) -> Failure {
    let seen = hints::kind(seen.type_name());
    Thrown::new(FaultCode::BadParams, format!("{what} must be {expected}, not {seen}")).into()
}

/// A text argument.
///
/// # Errors
/// `bad_params` for anything else.
pub fn text(what: &str, value: &Dynamic) -> Result<ImmutableString, Failure> {
    match value.as_immutable_string_ref() {
        Ok(text) => Ok(text.clone()),
        Err(_) => Err(wrong(what, "a string", value)),
    }
}

/// The options of one call: every one that is asked for is taken, and what is left over is refused.
pub struct Options {
    of: &'static str,
    map: Map,
    known: Vec<&'static str>,
}

impl Options {
    /// Reads the options of `of`; `()` has none.
    ///
    /// # Errors
    /// `bad_params` for anything but a map.
    pub fn new(of: &'static str, value: Dynamic) -> Result<Self, Failure> {
        let map = match value.flatten().try_cast_result::<Map>() {
            Ok(map) => map,
            Err(unit) if unit.is_unit() => Map::new(),
            Err(other) => return Err(wrong(&format!("{of}: the options"), "a map `#{…}`", &other)),
        };
        Ok(Self { of, map, known: Vec::new() })
    }

    fn take(&mut self, name: &'static str) -> Option<Dynamic> {
        self.known.push(name);
        self.map.remove(name).map(Dynamic::flatten).filter(|value| !value.is_unit())
    }

    /// A flag, `default` when it is not there.
    ///
    /// # Errors
    /// `bad_params` for anything but a boolean.
    pub fn flag(&mut self, name: &'static str, default: bool) -> Result<bool, Failure> {
        match self.take(name) {
            None => Ok(default),
            Some(value) => value.as_bool().map_err(|_| self.wrong(name, "true or false", &value)),
        }
    }

    /// A text.
    ///
    /// # Errors
    /// `bad_params` for anything else.
    pub fn text(&mut self, name: &'static str) -> Result<Option<ImmutableString>, Failure> {
        let Some(value) = self.take(name) else { return Ok(None) };
        match value.as_immutable_string_ref() {
            Ok(text) => Ok(Some(text.clone())),
            Err(_) => Err(self.wrong(name, "a string", &value)),
        }
    }

    /// An integer.
    ///
    /// # Errors
    /// `bad_params` for anything else.
    pub fn integer(&mut self, name: &'static str) -> Result<Option<i64>, Failure> {
        let Some(value) = self.take(name) else { return Ok(None) };
        value.as_int().map(Some).map_err(|_| self.wrong(name, "an integer", &value))
    }

    /// A map.
    ///
    /// # Errors
    /// `bad_params` for anything else.
    pub fn map(&mut self, name: &'static str) -> Result<Option<Map>, Failure> {
        let Some(value) = self.take(name) else { return Ok(None) };
        match value.try_cast_result::<Map>() {
            Ok(map) => Ok(Some(map)),
            Err(other) => Err(self.wrong(name, "a map", &other)),
        }
    }

    /// A function.
    ///
    /// # Errors
    /// `bad_params` for anything else.
    pub fn function(&mut self, name: &'static str) -> Result<Option<FnPtr>, Failure> {
        let Some(value) = self.take(name) else { return Ok(None) };
        match value.try_cast_result::<FnPtr>() {
            Ok(function) => Ok(Some(function)),
            Err(other) => Err(self.wrong(name, "a function `|params| …`", &other)),
        }
    }

    /// Any value.
    pub fn value(&mut self, name: &'static str) -> Option<Dynamic> {
        self.take(name)
    }

    /// `timeout_ms`, thirty seconds when it is not there.
    ///
    /// # Errors
    /// `bad_params` for what is no length of time.
    pub fn timeout(&mut self) -> Result<Duration, Failure> {
        let Some(value) = self.take("timeout_ms") else { return Ok(DEFAULT_TIMEOUT) };
        let length = value.as_float().or_else(|_| value.as_int().map(|length| length as f64));
        match length {
            Ok(length) if (0.0..=LONGEST_MS).contains(&length) => Ok(Duration::from_secs_f64(length / 1000.0)),
            _ => Err(self.wrong("timeout_ms", "0 to 86400000 milliseconds", &value)),
        }
    }

    /// Ends the reading.
    ///
    /// # Errors
    /// `bad_params` for an option that nobody asked for.
    pub fn finish(self) -> Result<(), Failure> {
        let Some(name) = self.map.keys().next() else { return Ok(()) };
        let thrown = Thrown::new(FaultCode::BadParams, format!("{} has no option `{name}`", self.of));
        let known = self.known.join(", ");
        Err(match hints::nearest(name, self.known.iter().copied()) {
            Some(near) => thrown.hint(format!("did you mean `{near}`? It takes {known}")),
            None => thrown.hint(format!("it takes {known}")),
        }
        .into())
    }

    fn wrong(&self, name: &str, expected: &str, seen: &Dynamic) -> Failure {
        let seen = match hints::kind(seen.type_name()) {
            "a number" | "an integer" | "a float" => seen.to_string(),
            kind => kind.to_owned(),
        };
        let message = format!("{}: `{name}` must be {expected}, not {seen}", self.of);
        Thrown::new(FaultCode::BadParams, message).into()
    }
}
