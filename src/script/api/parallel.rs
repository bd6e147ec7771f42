//! `parallel`: a function of the script over many items, on several pages at once.
//!
//! Each worker is a thread with an engine, a page and copies of what the function captured: nothing that it writes
//! is seen outside. The script waits meanwhile. What a script may not catch (a cancel, the deadline, a limit, `exit`)
//! ends all workers and then the script; what it may catch is the outcome of one item.
//!
//! Read `parallel` first, then [`Worker`]. The pages are in `lent`, the copies in `copy`.

mod lent;

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use rhai::{
    Array, Dynamic, Engine, EvalAltResult, FnPtr, GlobalRuntimeState, Map, Module, NativeCallContext, Position,
};

use self::lent::{LentPage, LentPages};
use super::args::wrong;
use super::cdp::outcome;
use crate::cancel::{Cancel, CancelReason};
use crate::script::context::{Context, context_of};
use crate::script::copy::Copier;
use crate::script::engine;
use crate::script::error::{self, Failure, Thrown};
use crate::script::memory::{Meter, Pool, Sharing, uncounted};
use crate::script::stack;
use crate::wire::FaultCode;

type Native<T> = Result<T, Box<EvalAltResult>>;

/// The most pages that one call may open.
const MOST_WORKERS: i64 = 16;

pub fn register(module: &mut Module) {
    module.set_native_fn("parallel", |call: NativeCallContext, items: Dynamic, workers: Dynamic, function: Dynamic| {
        parallel(&call, items, &workers, function)
    });
}

fn parallel(call: &NativeCallContext, items: Dynamic, workers: &Dynamic, function: Dynamic) -> Native<Array> {
    let at = |failure: Failure| failure.at(call.call_position());
    let context = context_of(call).map_err(at)?;
    let task = Task::new(call, &context, items, workers, function).map_err(at)?;
    if task.items.is_empty() {
        return Ok(Array::new());
    }
    let pages = LentPages::open(&context, task.workers).map_err(at)?;
    let outcomes = Job::new(call, &context, task, &pages).run();
    pages.close(&context);
    outcomes
}

/// What is to be done, checked.
struct Task {
    items: Array,
    /// No more than there are items.
    workers: usize,
    function: FnPtr,
    takes_page: bool,
}

impl Task {
    fn new(
        call: &NativeCallContext,
        context: &Context,
        items: Dynamic,
        workers: &Dynamic,
        function: Dynamic,
    ) -> Result<Self, Failure> {
        if context.is_worker {
            return Err(nested());
        }
        let items = items.flatten().try_cast_result::<Array>();
        let items = items.map_err(|other| wrong("parallel: the items", "an array", &other))?;
        let workers = number_of_workers(workers)?.min(items.len());
        let function = function.flatten().try_cast_result::<FnPtr>();
        let function = function.map_err(|other| wrong("parallel: the function", "`|item, page| …`", &other))?;
        let takes_page = takes_page(call, &function)?;
        Ok(Self { items, workers, function, takes_page })
    }
}

fn number_of_workers(workers: &Dynamic) -> Result<usize, Failure> {
    match workers.as_int() {
        Ok(number @ 1..=MOST_WORKERS) => Ok(number as usize),
        Ok(number) => {
            Err(Thrown::new(FaultCode::BadParams, format!("parallel takes 1 to {MOST_WORKERS} workers, not {number}"))
                .hint("each worker has a page of its own; any number of items shares them")
                .into())
        }
        Err(_) => Err(wrong("parallel: the number of workers", "an integer", workers)),
    }
}

fn nested() -> Failure {
    Thrown::new(FaultCode::BadParams, "`parallel` inside a function that `parallel` runs")
        .hint("make one flat list of items, and give the one `parallel` more workers")
        .into()
}

/// Whether the function takes `(item, page)`, and not only `(item)`.
fn takes_page(call: &NativeCallContext, function: &FnPtr) -> Result<bool, Failure> {
    let given = function.curry().len();
    let scripts = call.iter_namespaces().flat_map(|module| module.iter_script_fn_info());
    let same_name = scripts.filter(|(_, _, name, _, _)| *name == function.fn_name());
    let takes: Vec<usize> = same_name.map(|(_, _, _, parameters, _)| parameters.saturating_sub(given)).collect();
    match takes.as_slice() {
        // A function of a module, or one of ours.
        [] => Ok(true),
        takes if takes.contains(&2) => Ok(true),
        takes if takes.contains(&1) => Ok(false),
        [takes, ..] => {
            let message = format!("parallel: the function must take (item, page), not {takes} parameters");
            Err(Thrown::new(FaultCode::BadParams, message).hint("`|item, page| …`, or `|item| …`").into())
        }
    }
}

/// One call of `parallel`, seen by its workers.
struct Job<'a> {
    context: &'a Context,
    /// The script's functions, imports and constants.
    global: &'a GlobalRuntimeState,
    position: Position,
    task: Task,
    pages: &'a LentPages,
    next: AtomicUsize,
    outcomes: Mutex<Vec<Dynamic>>,
    /// Why all must end: the first reason stays.
    end: Mutex<Option<Box<EvalAltResult>>>,
    cancel: Cancel,
}

impl<'a> Job<'a> {
    fn new(call: &'a NativeCallContext, context: &'a Context, task: Task, pages: &'a LentPages) -> Self {
        Self {
            context,
            global: call.global_runtime_state(),
            position: call.call_position(),
            outcomes: Mutex::new(vec![Dynamic::UNIT; task.items.len()]),
            task,
            pages,
            next: AtomicUsize::new(0),
            end: Mutex::default(),
            cancel: Cancel::new(),
        }
    }

    fn run(self) -> Native<Array> {
        let (script, all) = (self.context.cancel.clone(), self.cancel.clone());
        let _linked =
            self.context.cancel.on_cancel(move || script.reason().into_iter().for_each(|why| all.cancel(why)));
        let sharing = Sharing::start();
        // What starting and joining allocates is freed by other threads.
        let panicked = uncounted(|| self.run_workers(sharing.pool()));
        drop(sharing);
        if let Err(panic) = panicked {
            resume_unwind(panic);
        }
        match into_inner(self.end) {
            Some(end) => Err(end),
            None => Ok(into_inner(self.outcomes)),
        }
    }

    fn run_workers(&self, pool: &Arc<Pool>) -> thread::Result<()> {
        thread::scope(|threads| {
            let start = |_| stack::spawn(threads, "worker", move |stack| self.work(pool, stack));
            let running: Vec<_> = (0..self.task.workers).map_while(start).collect();
            self.judge_start(running.len());
            let joined: Vec<_> = running.into_iter().map(stack::Running::join).collect();
            joined.into_iter().collect()
        })
    }

    /// Fewer threads than asked for do all items, slower; none does nothing.
    fn judge_start(&self, started: usize) {
        let wanted = self.task.workers;
        if started == 0 {
            let message = format!("parallel: no thread can be started ({} MiB of stack)", stack::LEAST_MIB);
            self.end_all(Failure::from(Thrown::new(FaultCode::Internal, message).hint(stack::HINT)).at(self.position));
        } else if started < wanted {
            self.context.warn(format!("parallel: only {started} of {wanted} workers could be started"));
        }
    }

    /// The life of one worker.
    fn work(&self, pool: &Arc<Pool>, stack: usize) {
        let _alarm = Alarm(self);
        let browser = self.context.browser.as_ref().map(|browser| browser.for_worker(&self.cancel));
        let context = Arc::new(self.context.for_worker(self.cancel.clone(), browser));
        {
            let _meter = Meter::join(pool.clone(), stack / 2);
            let page = self.pages.take();
            if let Err(end) = Worker::new(self, &context, page).and_then(Worker::run) {
                self.end_all(end);
            }
        }
        if let Some(browser) = &context.browser {
            browser.release_handles();
        }
    }

    /// Ends all workers; what the first one ended with is what the script ends with.
    fn end_all(&self, end: Box<EvalAltResult>) {
        if matches!(end.unwrap_inner(), EvalAltResult::Exit(..)) {
            self.context.exit();
        }
        lock(&self.end).get_or_insert(end);
        // The reason is never told: the end above is.
        self.cancel.cancel(CancelReason::Stopped);
    }

    fn next(&self) -> Option<(usize, &Dynamic)> {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        self.task.items.get(index).map(|item| (index, item))
    }
}

/// Ends the others when a worker panics: they would go on for a script that has ended.
struct Alarm<'a>(&'a Job<'a>);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.cancel.cancel(CancelReason::Stopped);
        }
    }
}

/// One thread's engine, page, and copies of what the function captured.
struct Worker<'a> {
    job: &'a Job<'a>,
    context: &'a Arc<Context>,
    engine: Engine,
    global: GlobalRuntimeState,
    copier: Copier,
    function: FnPtr,
    page: LentPage,
}

impl<'a> Worker<'a> {
    fn new(job: &'a Job<'a>, context: &'a Arc<Context>, page: LentPage) -> Native<Self> {
        let engine = engine::build(context);
        let mut global = job.global.clone();
        global.tag = engine.default_tag().clone();
        global.level = 0;
        let mut copier = Copier::default();
        let function = copier.function(&job.task.function).map_err(|failure| failure.at(job.position))?;
        Ok(Self { job, context, engine, global, copier, function, page })
    }

    /// Takes items until there are none.
    fn run(mut self) -> Native<()> {
        while let Some((index, item)) = self.job.next() {
            let outcome = match self.one(item) {
                Ok(value) => outcome("value", true, value.flatten()),
                Err(error) if !error.unwrap_inner().is_catchable() => return Err(error),
                Err(error) => self.failed(*error),
            };
            lock(&self.job.outcomes)[index] = outcome;
        }
        Ok(())
    }

    fn one(&mut self, item: &Dynamic) -> Native<Dynamic> {
        let position = self.job.position;
        if let Some(end) = self.context.must_end() {
            return Err(Failure::from(end).at(position));
        }
        let item = self.copier.copy(item).map_err(|failure| failure.at(position))?;
        let page = self.page.ready(self.context, self.job.pages).map_err(|failure| failure.at(position))?;
        let call = NativeCallContext::new_with_all_fields(&self.engine, "parallel", None, &self.global, position);
        match self.job.task.takes_page {
            true => self.function.call_raw(&call, None, [item, page]),
            false => self.function.call_raw(&call, None, [item]),
        }
    }

    fn failed(&mut self, error: EvalAltResult) -> Dynamic {
        let error: Map = error::caught(error);
        let code = error.get("code").and_then(|code| code.as_immutable_string_ref().ok());
        if code.is_some_and(|code| *code == FaultCode::PageUnresponsive.name()) {
            self.page.give_up();
        }
        outcome("error", false, error.into())
    }
}

fn into_inner<T>(mutex: Mutex<T>) -> T {
    mutex.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
