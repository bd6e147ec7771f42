//! Threads with a script's stack.
//!
//! It is reserved large and committed lazily, because values nest as deep as memory allows and Rust drops them
//! recursively.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Scope, ScopedJoinHandle};

/// Stacks to try, largest first. Memory is counted to half of it, so a small one lowers what a script may hold.
const STACKS: [usize; 2] = [1 << 30, 256 << 20];

/// The least that a thread must get, in MiB.
pub const LEAST_MIB: usize = STACKS[STACKS.len() - 1] >> 20;

/// What to do where there is no room for it.
pub const HINT: &str = "raise the limit on virtual memory (`ulimit -v`) or on threads (`ulimit -u`)";

/// A thread that was started.
pub struct Running<'scope, T>(ScopedJoinHandle<'scope, Option<T>>);

/// Starts `work` on a thread of its own, told the size of its stack. `None` where no thread can be started.
pub fn spawn<'scope, T: Send + 'scope>(
    threads: &'scope Scope<'scope, '_>,
    name: &str,
    work: impl FnOnce(usize) -> T + Send + 'scope,
) -> Option<Running<'scope, T>> {
    // A thread that cannot be started drops its closure, so the work waits outside of it.
    let waiting = Arc::new(Mutex::new(Some(work)));
    STACKS.iter().find_map(|&stack| {
        let run = taking(&waiting, stack);
        thread::Builder::new().name(name.to_owned()).stack_size(stack).spawn_scoped(threads, run).ok().map(Running)
    })
}

/// Starts `work` on a thread that nobody waits for. False where no thread can be started.
pub fn spawn_alone(name: &str, work: impl FnOnce(usize) + Send + 'static) -> bool {
    let waiting = Arc::new(Mutex::new(Some(work)));
    STACKS.iter().any(|&stack| {
        let run = taking(&waiting, stack);
        thread::Builder::new().name(name.to_owned()).stack_size(stack).spawn(run).is_ok()
    })
}

/// The work of a thread: what waits, if no other thread has taken it.
fn taking<T, W: FnOnce(usize) -> T>(
    waiting: &Arc<Mutex<Option<W>>>,
    stack: usize,
) -> impl FnOnce() -> Option<T> + use<T, W> {
    let waiting = waiting.clone();
    move || {
        let work = waiting.lock().unwrap_or_else(PoisonError::into_inner).take();
        work.map(|work| work(stack))
    }
}

impl<T> Running<'_, T> {
    /// Waits for its end.
    ///
    /// # Errors
    /// What it panicked with.
    pub fn join(self) -> Result<T, Box<dyn Any + Send>> {
        // The one thread that was started found the work.
        self.0.join()?.ok_or_else(|| Box::new("nothing to do") as _)
    }
}
