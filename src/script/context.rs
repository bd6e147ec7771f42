//! What one script may reach: its output, its deadline, its folder, and (in `browser`) its browser.
//!
//! The functions that scripts call are shared by all engines, so they hold nothing of a script: each finds
//! its [`Context`] through the engine's tag. A context dies with its script.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rhai::{Dynamic, EvalAltResult, NativeCallContext};

use super::browser::Browser;
use super::error::{End, Failure, Thrown};
use super::helpers::{Helpers, Library};
use super::host::Output;
use super::memory;
use super::secret::{NoSecrets, Secrets};
use super::state::State;
use crate::cancel::{Cancel, CancelReason};
use crate::wire::{FaultCode, Stream};

/// The clock is read once in so many operations: it costs more than most of them.
const OPERATIONS_PER_CLOCK: u32 = 256;

/// One running script, seen from the functions it calls.
pub struct Context {
    /// Raised when nobody wants the script any more.
    pub cancel: Cancel,
    /// When the whole call must have ended.
    pub deadline: Option<Instant>,
    /// Where relative paths start.
    pub cwd: PathBuf,
    /// Files that the script writes get `0666` minus this.
    pub umask: u32,
    /// The script's `args`.
    pub args: Vec<String>,
    /// The workspace's folder; `None` where there is none.
    pub root: Option<PathBuf>,
    /// The helper modules.
    pub library: Arc<Library>,
    /// What scripts of the session leave to each other.
    pub state: Arc<State>,
    /// Where secrets come from.
    pub secrets: Arc<dyn Secrets>,
    /// Where `print` and `debug` go.
    pub output: Arc<dyn Output>,
    /// `None` where a script runs without one: then only what needs it fails.
    pub browser: Option<Browser>,
    /// Whether it is one of several threads of a script.
    pub is_worker: bool,
    warnings: Arc<Mutex<Vec<String>>>,
    operations: AtomicU32,
    exited: AtomicBool,
}

/// The engine's tag: the way from a call to its context.
#[derive(Clone)]
pub struct Handle(pub Arc<Context>);

impl Context {
    /// A context with nothing said yet.
    pub fn new(cancel: Cancel, output: Arc<dyn Output>, browser: Option<Browser>) -> Self {
        Self {
            cancel,
            deadline: None,
            cwd: PathBuf::from("/"),
            umask: 0o077,
            args: Vec::new(),
            exited: AtomicBool::new(false),
            root: None,
            library: Helpers::new(None).current(),
            state: Arc::default(),
            secrets: Arc::new(NoSecrets),
            output,
            browser,
            is_worker: false,
            warnings: Arc::default(),
            operations: AtomicU32::new(0),
        }
    }

    /// The context of another thread of the same script: the same output, deadline, warnings, helpers, state and secrets.
    pub fn for_worker(&self, cancel: Cancel, browser: Option<Browser>) -> Self {
        Self {
            deadline: self.deadline,
            cwd: self.cwd.clone(),
            umask: self.umask,
            args: self.args.clone(),
            root: self.root.clone(),
            library: self.library.clone(),
            state: self.state.clone(),
            secrets: self.secrets.clone(),
            is_worker: true,
            warnings: self.warnings.clone(),
            output: self.output.clone(),
            cancel,
            browser,
            operations: AtomicU32::new(0),
            exited: AtomicBool::new(false),
        }
    }

    /// The browser, for what cannot do without.
    ///
    /// # Errors
    /// `disconnected` where there is none.
    pub fn browser(&self) -> Result<&Browser, Failure> {
        self.browser
            .as_ref()
            .ok_or_else(|| Thrown::new(FaultCode::Disconnected, "no browser is connected to this script").into())
    }

    /// The end of a wait that may take `length`: never later than the script's own deadline.
    pub fn until(&self, length: Duration) -> Instant {
        let end = Instant::now() + length;
        self.deadline.map_or(end, |deadline| deadline.min(end))
    }

    /// Whether the script's own deadline has passed.
    pub fn is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Why the script must end between two operations, if it must.
    pub fn must_end(&self) -> Option<End> {
        if let Some(reason) = self.cancel.reason() {
            return Some(End::from(reason));
        }
        if memory::is_over() {
            return Some(End::Memory);
        }
        let count = self.operations.fetch_add(1, Ordering::Relaxed);
        if count.is_multiple_of(OPERATIONS_PER_CLOCK) && self.is_late() {
            return Some(End::from(CancelReason::Deadline));
        }
        None
    }

    /// Writes a line of output; blocks while the reader is slow.
    ///
    /// # Errors
    /// The end of the script, when nobody can read it.
    pub fn say(&self, stream: Stream, mut line: String) -> Result<(), Failure> {
        line.push('\n');
        let written = memory::uncounted(|| self.output.write(stream, &line));
        written.map_err(|_| Failure::from(self.cancel.reason().map_or(End::Output, End::from)))
    }

    /// Keeps a sentence for the caller, once.
    pub fn warn(&self, sentence: String) {
        let mut warnings = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        if !warnings.contains(&sentence) {
            warnings.push(sentence);
        }
    }

    /// The sentences kept.
    pub fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut self.warnings.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Notes that the script gives its value by `exit`.
    pub fn exit(&self) {
        self.exited.store(true, Ordering::Relaxed);
    }

    /// Whether the script's value was given by `exit`.
    pub fn has_exited(&self) -> bool {
        self.exited.load(Ordering::Relaxed)
    }

    /// Where a path that the script named is.
    pub fn path(&self, named: &str) -> PathBuf {
        // Collecting the components drops `.` and doubled slashes.
        self.cwd.join(Path::new(named)).components().collect()
    }
}

/// The context of the script that made this call.
///
/// # Errors
/// An internal one, where there is none.
pub fn context_of(call: &NativeCallContext) -> Result<Arc<Context>, Failure> {
    let handle = call.tag().and_then(Dynamic::read_lock::<Handle>);
    handle.map(|handle| handle.0.clone()).ok_or_else(no_context)
}

fn no_context() -> Failure {
    Thrown::new(FaultCode::Internal, "a script without a context").into()
}

/// Runs a function of a script with its context; a failure gets the place of the call.
///
/// # Errors
/// What `work` failed with, as the engine takes it.
pub fn with_context<T>(
    call: &NativeCallContext,
    work: impl FnOnce(&Context) -> Result<T, Failure>,
) -> Result<T, Box<EvalAltResult>> {
    let handle = call.tag().and_then(Dynamic::read_lock::<Handle>);
    let outcome = match handle {
        Some(handle) => work(&handle.0),
        None => Err(no_context()),
    };
    outcome.map_err(|failure| failure.at(call.call_position()))
}
