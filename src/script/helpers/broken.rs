//! A helper that does not load: said once in each run, and again by whoever calls one of its functions.

use std::fmt;

use rhai::{Dynamic, EvalAltResult, Module, NativeCallContext, Position};

use crate::script::context::with_context;
use crate::script::error::Thrown;
use crate::wire::{Fault, FaultCode};

/// Why a module does not load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// What errors call it.
    origin: String,
    line: Option<u64>,
    column: Option<u64>,
    message: String,
}

impl Broken {
    /// Broken as a whole.
    pub fn new(origin: &str, message: impl Into<String>) -> Self {
        Self { origin: origin.to_owned(), line: None, column: None, message: message.into() }
    }

    /// Broken at one place.
    pub fn at(origin: &str, position: Position, message: impl Into<String>) -> Self {
        let number = |number: Option<usize>| number.map(|number| number as u64);
        let (line, column) = (number(position.line()), number(position.position()));
        Self { line, column, ..Self::new(origin, message) }
    }

    /// The thrown error for whoever needs the module.
    pub fn thrown(&self, what: &str) -> Thrown {
        Thrown::new(FaultCode::ScriptError, format!("{what}: {self}"))
            .hint("mend it; it is loaded again by the next call")
    }
}

impl From<&Fault> for Broken {
    fn from(fault: &Fault) -> Self {
        let number = |name: &str| fault.context.get(name).and_then(serde_json::Value::as_u64);
        let origin = fault.context.get("source").and_then(serde_json::Value::as_str).unwrap_or_default();
        let (line, column) = (number("line"), number("column"));
        Self { line, column, ..Self::new(origin, fault.message.clone()) }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.origin)?;
        for number in [self.line, self.column].into_iter().flatten() {
            write!(f, ":{number}")?;
        }
        write!(f, ": {}", self.message)
    }
}

/// Registers a function that says why the module does not load, for each that its text seems to define.
pub fn stand_in(module: &mut Module, broken: &Broken, text: &str) {
    for name in function_names(text) {
        let error = broken.thrown(&format!("`{name}` cannot be called, its helper does not load"));
        for_each_count(module, name, &error);
    }
}

/// The names after `fn`, wherever they stand: a text that does not parse has no better.
fn function_names(text: &str) -> Vec<&str> {
    let is_part = |character: char| character.is_alphanumeric() || character == '_';
    let mut names = Vec::new();
    for (start, _) in text.match_indices("fn ") {
        let is_word = !text[..start].ends_with(is_part);
        let rest = text[start + 3..].trim_start();
        let name = &rest[..rest.find(|character| !is_part(character)).unwrap_or(rest.len())];
        if is_word && !name.is_empty() && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// One function for each number of arguments that is likely.
fn for_each_count(module: &mut Module, name: &str, error: &Thrown) {
    macro_rules! taking {
        ($($argument:ident),*) => {{
            let error = error.clone();
            module.set_native_fn(name, move |call: NativeCallContext, $($argument: Dynamic),*| fail(&call, &error, [$($argument),*]));
        }};
    }
    taking!();
    taking!(a);
    taking!(a, b);
    taking!(a, b, c);
    taking!(a, b, c, d);
    taking!(a, b, c, d, e);
}

fn fail<const N: usize>(
    call: &NativeCallContext,
    error: &Thrown,
    _arguments: [Dynamic; N],
) -> Result<Dynamic, Box<EvalAltResult>> {
    with_context(call, |_| Err(error.clone().into()))
}
