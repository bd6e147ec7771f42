//! Errors of a script: what `catch (e)` sees, what cannot be caught, and what the caller is told.
//!
//! A [`Thrown`] becomes a map in the script; an [`End`] passes every `catch`. What reaches the top becomes
//! one [`Fault`] with file, line, column, source line and call stack. The hints are in `hints`.

use rhai::{Dynamic, EvalAltResult, Map, ParseError, Position};

use super::engine::Source;
use super::hints;
use super::value::{Form, ParseFailure, Refusal, write};
use crate::cancel::CancelReason;
use crate::wire::{Fault, FaultCode};

/// An error that a script may catch.
#[derive(Debug, Clone)]
pub struct Thrown {
    code: FaultCode,
    message: String,
    hint: Option<String>,
    facts: Map,
}

impl Thrown {
    /// An error with a message and nothing else.
    pub fn new(code: FaultCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None, facts: Map::new() }
    }

    /// Adds what to type next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds one named fact.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Dynamic>) -> Self {
        self.facts.insert(name.into(), value.into());
        self
    }

    /// The map that a script catches. Facts that are there already stay: a page error has a line of its own.
    pub fn into_map(self, position: Position) -> Map {
        let mut map = self.facts;
        map.insert("code".into(), self.code.name().into());
        map.insert("message".into(), self.message.into());
        if let Some(hint) = self.hint {
            map.insert("hint".into(), hint.into());
        }
        if let (Some(line), column) = (position.line(), position.position()) {
            map.entry("line".into()).or_insert_with(|| (line as i64).into());
            map.entry("column".into()).or_insert_with(|| (column.unwrap_or(1) as i64).into());
        }
        map
    }
}

/// The end of a script that it cannot stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// Nobody wants it any more.
    Cancelled(CancelReason),
    /// The call's deadline passed while this command was written and unanswered.
    Unanswered {
        /// The command.
        method: String,
    },
    /// It holds more memory than a script may.
    Memory,
    /// Nobody can read its output.
    Output,
}

impl From<CancelReason> for End {
    fn from(reason: CancelReason) -> Self {
        Self::Cancelled(reason)
    }
}

impl End {
    fn fault(&self) -> Fault {
        match self {
            Self::Cancelled(CancelReason::Deadline) => {
                Fault::new(FaultCode::Deadline, "the call's time is over (`--timeout`)")
                    .hint("give it more with `--timeout SECONDS`")
            }
            Self::Cancelled(CancelReason::Interrupted) => {
                Fault::new(FaultCode::Cancelled, "the script was interrupted")
            }
            Self::Cancelled(CancelReason::ClientGone) => {
                Fault::new(FaultCode::Cancelled, "the script's caller is gone")
            }
            Self::Cancelled(CancelReason::Stopped) => {
                Fault::new(FaultCode::Cancelled, "the script was ended by `stop`")
            }
            Self::Cancelled(CancelReason::DaemonEnds) => Fault::new(
                FaultCode::Cancelled,
                "the daemon ended under the script: a signal told it to, or its state folder is gone",
            )
            .hint("`ghost-browser status` tells what is left; the next call starts another"),
            Self::Unanswered { method } => Fault::new(
                FaultCode::OutcomeUnknown,
                format!("the call's time is over, and {method} was sent and not answered"),
            )
            .hint("it may have run: look at the page before sending it again")
            .with("method", method.as_str()),
            Self::Memory => Fault::new(FaultCode::Limit, "the script holds more memory than a script may")
                .hint("work on smaller pieces, and let go of what is done: `x = ();`"),
            Self::Output => Fault::new(FaultCode::Output, "the script's output cannot be written"),
        }
    }
}

/// Why a function that a script called gave no value.
#[derive(Debug, Clone)]
pub enum Failure {
    /// The script may catch it.
    Thrown(Box<Thrown>),
    /// It may not.
    Ended(End),
}

impl From<Thrown> for Failure {
    fn from(thrown: Thrown) -> Self {
        Self::Thrown(Box::new(thrown))
    }
}

impl From<End> for Failure {
    fn from(end: End) -> Self {
        Self::Ended(end)
    }
}

impl From<ParseFailure> for Failure {
    fn from(failure: ParseFailure) -> Self {
        match failure {
            ParseFailure::NoRoom => End::Memory.into(),
            _ => Thrown::new(FaultCode::BadParams, failure.to_string()).into(),
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NoRoom => End::Memory.into(),
            Refusal::TooDeep => Thrown::new(FaultCode::Limit, refusal.to_string()).into(),
            Refusal::Unsayable { .. } => Thrown::new(FaultCode::BadParams, refusal.to_string()).into(),
        }
    }
}

impl Failure {
    /// As the engine takes it, thrown at `position`.
    pub fn at(self, position: Position) -> Box<EvalAltResult> {
        Box::new(match self {
            Self::Thrown(thrown) => EvalAltResult::ErrorRuntime(thrown.into_map(position).into(), position),
            Self::Ended(end) => EvalAltResult::ErrorTerminated(Dynamic::from(end), position),
        })
    }
}

/// What the caller is told of a source that does not parse.
pub fn syntax(error: &ParseError, source: &Source) -> Fault {
    let line = source.line(error.position());
    let message = lowercase_first(&error.err_type().to_string());
    let fault = place(Fault::new(FaultCode::Syntax, message), error.position(), source);
    match hints::for_syntax(error.err_type(), line, source) {
        Some(hint) => fault.hint(hint),
        None => fault,
    }
}

/// What a script may know of an error that was caught for it: as `catch (e)` has it, but always a map.
pub fn caught(error: EvalAltResult) -> Map {
    match unwrapped(error) {
        EvalAltResult::ErrorRuntime(value, position) => match value.try_cast_result::<Map>() {
            Ok(map) => map,
            Err(value) => Thrown::new(FaultCode::ScriptError, shown(&value)).with("value", value).into_map(position),
        },
        mut error => {
            let position = error.take_position();
            Thrown::new(code_of(&error), told(&error)).into_map(position)
        }
    }
}

/// The error itself, without the calls that it came through.
fn unwrapped(error: EvalAltResult) -> EvalAltResult {
    match error {
        EvalAltResult::ErrorInFunctionCall(_, _, inner, _) | EvalAltResult::ErrorInModule(_, inner, _) => {
            unwrapped(*inner)
        }
        error => error,
    }
}

/// What the caller is told of a script that failed while it ran. `module` gives the source of a helper module.
pub fn uncaught(error: EvalAltResult, source: &Source, module: &dyn Fn(&str) -> Option<Source>) -> Fault {
    let mut calls = Vec::new();
    let mut error = error;
    let mut within = source.origin.clone();
    let mut called = (within.clone(), Position::NONE);
    loop {
        match error {
            EvalAltResult::ErrorInFunctionCall(name, file, inner, position) => {
                calls.push(format!("{name} called at {}", at(&within, position)));
                called = (within.clone(), position);
                // A native has no file: the call is in the one that we are in.
                if !file.is_empty() {
                    within = file;
                }
                error = *inner;
            }
            EvalAltResult::ErrorInModule(_, inner, _) => error = *inner,
            _ => break,
        }
    }
    calls.reverse();
    let elsewhere = |origin: &str| if origin == source.origin { None } else { module(origin) };
    let here = elsewhere(&within);
    let here = here.as_ref().unwrap_or(source);
    let caller = elsewhere(&called.0);
    let (at, position) = match error.position() {
        // Some errors know no place: what the source tells of them, or else the innermost call, is the nearest.
        Position::NONE => match hints::place(&error, here) {
            Some(position) => (here, position),
            None => (caller.as_ref().unwrap_or(source), called.1),
        },
        position => (here, position),
    };
    let mut fault = place(innermost(error, here), position, at);
    if !calls.is_empty() {
        fault = fault.with("trace", calls);
    }
    fault
}

fn innermost(error: EvalAltResult, source: &Source) -> Fault {
    match error {
        EvalAltResult::ErrorTerminated(token, _) => match token.try_cast::<End>() {
            Some(end) => end.fault(),
            None => Fault::new(FaultCode::Internal, "the script was ended for no known reason"),
        },
        EvalAltResult::ErrorRuntime(value, _) => thrown_value(value),
        error => of_the_language(error, source),
    }
}

/// A value that the script, or a function it called, threw.
fn thrown_value(value: Dynamic) -> Fault {
    if value.is_unit() {
        return Fault::new(FaultCode::ScriptError, "the script threw `()`");
    }
    let Some(mut map) = value.clone().try_cast::<Map>() else {
        return Fault::new(FaultCode::ScriptError, shown(&value));
    };
    let code = map.get("code").map(shown).unwrap_or_default();
    let known = FaultCode::ALL.iter().find(|known| known.name() == code && is_a_scripts(**known));
    if known.is_some() {
        map.remove("code");
    }
    let message = map.remove("message").map_or_else(|| shown(&value), |text| shown(&text));
    let mut fault = Fault::new(known.copied().unwrap_or(FaultCode::ScriptError), message);
    fault.hint = map.remove("hint").map(|hint| shown(&hint));
    let is_page_error = fault.code == FaultCode::JsError;
    for (name, fact) in map {
        let name = match name.as_str() {
            // The script's own place comes from the engine; the page's keeps another name.
            "line" | "column" if is_page_error => format!("page_{name}"),
            "line" | "column" => continue,
            other => other.to_owned(),
        };
        if let Some(json) = json(&fact) {
            fault.context.insert(name, json);
        }
    }
    fault
}

/// Whether a script may end with this code: those that it can catch. It cannot claim to be a lost browser or a debt.
fn is_a_scripts(code: FaultCode) -> bool {
    use FaultCode as C;
    matches!(
        code,
        C::ScriptError
            | C::CdpError
            | C::JsError
            | C::BadParams
            | C::Denied
            | C::Limit
            | C::Timeout
            | C::Disconnected
            | C::DialogOpen
            | C::TargetGone
            | C::PageCrashed
            | C::PageUnresponsive
            | C::StaleRef
            | C::OutcomeUnknown
    )
}

/// An error of the engine's own.
fn of_the_language(mut error: EvalAltResult, source: &Source) -> Fault {
    let position = error.take_position();
    let fault = Fault::new(code_of(&error), told(&error));
    match hints::for_error(&error, source.line(position), source) {
        Some(hint) => fault.hint(hint),
        None => fault,
    }
}

fn code_of(error: &EvalAltResult) -> FaultCode {
    match error {
        EvalAltResult::ErrorStackOverflow(_)
        | EvalAltResult::ErrorTooManyModules(_)
        | EvalAltResult::ErrorTooManyVariables(_)
        | EvalAltResult::ErrorTooManyOperations(_)
        | EvalAltResult::ErrorDataTooLarge(..) => FaultCode::Limit,
        EvalAltResult::ErrorParsing(..) => FaultCode::Syntax,
        EvalAltResult::ErrorSystem(..) => FaultCode::Internal,
        _ => FaultCode::ScriptError,
    }
}

/// The message of an error of the engine's own, whose place was taken.
fn told(error: &EvalAltResult) -> String {
    hints::message(error).unwrap_or_else(|| lowercase_first(&error.to_string()))
}

/// Adds where in the source it is.
fn place(mut fault: Fault, position: Position, source: &Source) -> Fault {
    fault = fault.with("source", source.origin.as_str());
    let Some(line) = position.line() else {
        return fault;
    };
    fault = fault.with("line", line).with("column", position.position().unwrap_or(1));
    match source.line(position) {
        "" => fault,
        text => fault.with("source_line", text),
    }
}

fn at(origin: &str, position: Position) -> String {
    match (position.line(), position.position()) {
        (Some(line), column) => format!("{origin}:{line}:{}", column.unwrap_or(1)),
        (None, _) => origin.to_owned(),
    }
}

fn shown(value: &Dynamic) -> String {
    super::value::show(value).unwrap_or_else(|refusal| refusal.to_string())
}

fn json(value: &Dynamic) -> Option<serde_json::Value> {
    let text = write(value, Form::Json).ok()?;
    serde_json::from_str(&text).ok()
}

fn lowercase_first(text: &str) -> String {
    let mut characters = text.chars();
    match characters.next() {
        // `OK` and the like stay.
        Some(first) if !characters.as_str().starts_with(char::is_uppercase) => {
            first.to_lowercase().chain(characters).collect()
        }
        _ => text.to_owned(),
    }
}
