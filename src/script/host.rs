//! Running a script: a thread of its own, from its source to its value as text.
//!
//! Everything a script makes lives and dies on that thread (`stack` says what it has); only text leaves it. A panic
//! ends the script, never the process.

use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use rhai::{AST, Dynamic, Engine, EvalAltResult, Position, Scope};

use super::browser::{Browser, Memo};
use super::context::Context;
use super::ending::is_silent;
use super::engine::{self, Source};
use super::error;
use super::helpers::{Helpers, Library};
use super::memory::{self, Meter, SCRIPT_LIMIT};
use super::secret::Secrets;
use super::stack;
use super::state::State;
use super::value::{Form, show, write};
use crate::cancel::Cancel;
use crate::cdp::Connection;
use crate::wire::{Aftermath, Fault, FaultCode, Stream};

/// Less than this is not told: texts of an error, a name that was kept.
const WORTH_A_WORD: usize = 1 << 20;

/// Where a script's output goes.
pub trait Output: Send + Sync {
    /// Writes `text`, newline and all; blocks while the reader is slow.
    ///
    /// # Errors
    /// [`Closed`]: nobody will read it; the script is ended.
    fn write(&self, stream: Stream, text: &str) -> Result<(), Closed>;
}

/// Nobody reads the output any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed;

/// One script and what it is given.
#[derive(Debug, Clone)]
pub struct Script {
    /// The source text, whole.
    pub source: String,
    /// What errors call it.
    pub origin: String,
    /// Its `args`.
    pub args: Vec<String>,
    /// Where its relative paths start.
    pub cwd: PathBuf,
    /// Files that it writes get `0666` minus this.
    pub umask: u32,
    /// When it must have ended.
    pub deadline: Option<Instant>,
}

/// How a script ended.
#[derive(Debug, Default)]
pub struct Ended {
    /// Its value as JSON text; `None` for `()` and for a script that ends with `;`. It was also written as output.
    pub value: Option<String>,
    /// Why it failed; `None` when it did not.
    pub fault: Option<Fault>,
    /// What the caller should know whatever the outcome.
    pub warnings: Vec<String>,
    /// What has happened in the browser meanwhile; `None` without one.
    pub aftermath: Option<Aftermath>,
}

/// Checks a script without running it: its syntax, and that every variable is known.
///
/// # Errors
/// `syntax` with the place, `usage` for a source that is too long.
pub fn check(source: &str, origin: &str) -> Result<(), Fault> {
    let source = Source::new(source, origin);
    on_own_thread(move |_| engine::compile(&engine::limited(), &source, &engine::scope(&[])).map(drop))?
}

/// Runs the scripts of one session, any number at once.
pub struct Host {
    root: PathBuf,
    memo: Arc<Memo>,
    pub(super) memory: Arc<Allowance>,
    helpers: Helpers,
    state: Arc<State>,
}

/// What a script gets from its session.
pub(super) struct Given {
    memory: Arc<Allowance>,
    root: Option<PathBuf>,
    library: Arc<Library>,
    state: Arc<State>,
    secrets: Arc<dyn Secrets>,
}

/// The memory that one script may hold: all of it, less what earlier scripts left behind for good.
///
/// Values that hold themselves are never freed. They are charged to the session, so that a script that makes
/// them in a loop ends its own session's room and not the machine's.
#[derive(Debug)]
pub(super) struct Allowance {
    limit: usize,
    lost: AtomicUsize,
}

impl Allowance {
    fn new(limit: usize) -> Self {
        Self { limit, lost: AtomicUsize::new(0) }
    }

    pub(super) fn left(&self) -> usize {
        self.limit.saturating_sub(self.lost.load(Ordering::Relaxed))
    }

    /// Charges what a script left behind, and says so where it is worth a word.
    pub(super) fn charge(&self, bytes: usize) -> Option<String> {
        if bytes < WORTH_A_WORD {
            return None;
        }
        self.lost.fetch_add(bytes, Ordering::Relaxed);
        let (lost, left) = (bytes.div_ceil(1 << 20), self.left() >> 20);
        Some(format!(
            "the script left {lost} MiB behind in values that hold themselves; scripts have {left} MiB until `ghost-browser stop`"
        ))
    }
}

impl Host {
    /// A host for the workspace at `root`.
    pub fn new(root: PathBuf) -> Self {
        engine::warm_up();
        let helpers = Helpers::new(Some(root.clone()));
        let memory = Arc::new(Allowance::new(SCRIPT_LIMIT));
        Self { root, memo: Arc::default(), memory, helpers, state: Arc::default() }
    }

    /// The workspace's folder.
    pub fn root(&self) -> &std::path::Path {
        &self.root
    }

    /// Forgets what belongs to a browser that is no more: the page, and the place among its events.
    pub fn forget_page(&self) {
        self.memo.forget();
    }

    /// Runs a script to its end.
    pub fn run(
        &self,
        script: Script,
        connection: &Connection,
        cancel: Cancel,
        output: Arc<dyn Output>,
        secrets: Arc<dyn Secrets>,
    ) -> Ended {
        let browser = self.browser(connection);
        run_with(script, self.given(secrets), |cancel| Some(browser(cancel)), cancel, output)
    }

    /// What a script gets from this session now.
    pub(super) fn given(&self, secrets: Arc<dyn Secrets>) -> Given {
        Given {
            memory: self.memory.clone(),
            root: Some(self.root.clone()),
            library: self.helpers.current(),
            state: self.state.clone(),
            secrets,
        }
    }

    /// A script's browser, once it is asked for on the script's thread: the caller belongs to that.
    pub(super) fn browser(&self, connection: &Connection) -> impl FnOnce(&Cancel) -> Browser + Send + use<> {
        let connection = connection.clone();
        let memo = self.memo.clone();
        move |cancel| Browser::new(connection.caller(cancel), memo)
    }
}

/// Runs a script that has no browser, no workspace and no caller, and `memory` bytes.
#[cfg(test)]
pub fn run_without_browser(script: Script, memory: usize, cancel: Cancel, output: Arc<dyn Output>) -> Ended {
    // As a host does: what all scripts share is none of one script's memory.
    engine::warm_up();
    let given = Given {
        memory: Arc::new(Allowance::new(memory)),
        root: None,
        library: Helpers::new(None).current(),
        state: Arc::default(),
        secrets: Arc::new(super::secret::NoSecrets),
    };
    run_with(script, given, |_| None, cancel, output)
}

fn run_with(
    script: Script,
    given: Given,
    browser: impl FnOnce(&Cancel) -> Option<Browser> + Send,
    cancel: Cancel,
    output: Arc<dyn Output>,
) -> Ended {
    let run = move |stack: usize| {
        let browser = browser(&cancel);
        let source = Source::new(&script.source, &script.origin);
        let memory = given.memory.clone();
        let context = Arc::new(context(script, given, cancel, output, browser));
        let (mut ended, lost) = run_here(&context, &source, memory.left().min(stack / 2));
        ended.warnings.extend(memory.charge(lost));
        ended
    };
    on_own_thread(run).unwrap_or_else(|fault| Ended { fault: Some(fault), ..Ended::default() })
}

/// The context of a script.
pub(super) fn context(
    script: Script,
    given: Given,
    cancel: Cancel,
    output: Arc<dyn Output>,
    browser: Option<Browser>,
) -> Context {
    let mut context = Context::new(cancel, output, browser);
    context.deadline = script.deadline;
    context.cwd = script.cwd;
    context.umask = script.umask;
    context.args = script.args;
    context.root = given.root;
    context.library = given.library;
    context.state = given.state;
    context.secrets = given.secrets;
    context
}

/// Runs a script on this thread. Returns also how many bytes of it cannot be freed.
fn run_here(context: &Arc<Context>, source: &Source, limit: usize) -> (Ended, usize) {
    let meter = Meter::start(limit);
    let outcome = {
        let engine = engine::build(context);
        let mut scope = engine::scope(&context.args);
        engine::compile(&engine, source, &scope).and_then(|ast| {
            let failed = |error| error::uncaught(error, source, &|origin| context.library.source(origin));
            evaluate(&engine, &mut scope, &ast, source, context).map_err(failed)
        })
    };
    let lost = memory::used().saturating_sub(length(&outcome));
    drop(meter);
    memory::settle();
    (ended(context, outcome), lost)
}

/// How a script ended, with what its caller should know.
pub(super) fn ended(context: &Context, outcome: Result<Option<String>, Fault>) -> Ended {
    let mut warnings = context.take_warnings();
    let aftermath = context.browser.as_ref().map(Browser::aftermath);
    warnings.extend(context.browser.iter().flat_map(Browser::finish));
    match outcome {
        Ok(value) => Ended { value, fault: None, warnings, aftermath },
        Err(fault) => Ended { value: None, fault: Some(fault), warnings, aftermath },
    }
}

/// What an outcome itself holds, about: a text that grew may have twice its length.
pub(super) fn length(outcome: &Result<Option<String>, Fault>) -> usize {
    match outcome {
        Ok(value) => value.as_ref().map_or(0, String::capacity),
        Err(fault) => 4 * fault.message.len(),
    }
}

/// Runs the compiled script and says its value.
fn evaluate(
    engine: &Engine,
    scope: &mut Scope<'_>,
    ast: &AST,
    source: &Source,
    context: &Context,
) -> Result<Option<String>, EvalAltResult> {
    let value = engine.eval_ast_with_scope::<Dynamic>(scope, ast).map_err(|error| *error)?;
    let is_asked_for = context.has_exited() || !is_silent(source.text());
    if value.is_unit() || !is_asked_for {
        return Ok(None);
    }
    say_value(&value, context).map(Some).map_err(|failure| *failure.at(Position::NONE))
}

fn say_value(value: &Dynamic, context: &Context) -> Result<String, error::Failure> {
    context.say(Stream::Stdout, show(value)?)?;
    Ok(write(value, Form::Json)?)
}

/// Runs `work` on a thread with a script's stack, told its size, and waits for it.
pub(super) fn on_own_thread<T: Send>(work: impl FnOnce(usize) -> T + Send) -> Result<T, Fault> {
    thread::scope(|threads| match stack::spawn(threads, "script", work) {
        Some(running) => running.join().map_err(|panic| panicked(&*panic)),
        None => Err(no_thread()),
    })
}

pub(super) fn no_thread() -> Fault {
    let message = format!("no thread can be started for the script ({} MiB of stack)", stack::LEAST_MIB);
    Fault::new(FaultCode::Internal, message).hint(stack::HINT)
}

pub(super) fn panicked(panic: &(dyn Any + Send)) -> Fault {
    let said = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let said = said.or_else(|| panic.downcast_ref::<String>().cloned());
    let message = format!("the script's thread panicked: {}", said.unwrap_or_default());
    Fault::new(FaultCode::Internal, message)
}
