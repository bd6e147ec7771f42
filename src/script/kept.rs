//! A scope that is kept from one line of a session to the next.
//!
//! Values die on the thread that made them, so all lines of a session run on one thread, which lives as long as
//! its [`Kept`]. All else a line has for itself: its engine, its cancel, its deadline, its output, its browser.
//! A line that fails keeps what it had defined by then; one that ends for want of memory does not.
//!
//! Read `host` for the life of a script by itself.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

use rhai::{AST, Dynamic, Position, Scope};

use super::browser::Browser;
use super::context::Context;
use super::ending::is_silent;
use super::engine::{self, Source};
use super::host::{self, Allowance, Ended, Given, Host, Output, Script, length, no_thread, panicked};
use super::memory::{self, Meter};
use super::secret::Secrets;
use super::value::{Form, write};
use super::{error, reading, stack};
use crate::cancel::Cancel;
use crate::cdp::Connection;
use crate::wire::{Fault, FaultCode};

/// Lines from here on are counted anew for each input: their number is made of empty lines, and those cost.
const NUMBERED: u32 = 10_000;

/// How much of the earlier lines' text is remembered, for errors in their functions.
const REMEMBERED: usize = 1 << 20;

/// One line of a session, or several that belong together.
#[derive(Debug, Clone)]
pub struct Line {
    /// What it is and what it is given.
    pub script: Script,
    /// The number of its first line in the session, from 1.
    pub number: u32,
}

/// The variables and functions of one session, and the thread that they live on.
pub struct Kept {
    jobs: Sender<Job>,
    host: Arc<Host>,
}

type Job = Box<dyn FnOnce(&mut Room) + Send>;

impl Kept {
    /// A scope with nothing defined in it.
    ///
    /// # Errors
    /// `internal` where no thread can be started for it.
    pub fn new(host: Arc<Host>) -> Result<Self, Fault> {
        let (jobs, work) = mpsc::channel::<Job>();
        let allowance = host.memory.clone();
        let started = stack::spawn_alone("session", move |stack| Room::new(stack, allowance).live(&work));
        if started { Ok(Self { jobs, host }) } else { Err(no_thread()) }
    }

    /// Checks a line without running it: its syntax, and that every variable is known.
    ///
    /// # Errors
    /// As [`super::check`].
    pub fn check(&self, line: &Line) -> Result<(), Fault> {
        let line = line.clone();
        self.ask(move |room| room.check(&line))?
    }

    /// Runs a line to its end.
    pub fn run(
        &self,
        line: Line,
        connection: &Connection,
        cancel: Cancel,
        output: Arc<dyn Output>,
        secrets: Arc<dyn Secrets>,
    ) -> Ended {
        let browser = self.host.browser(connection);
        let given = self.host.given(secrets);
        self.ask(move |room| {
            let browser = browser(&cancel);
            room.run(line, given, cancel, output, Some(browser))
        })
        .unwrap_or_else(Ended::failed)
    }

    /// Runs a line that has no browser.
    #[cfg(test)]
    pub fn run_without_browser(&self, line: Line, cancel: Cancel, output: Arc<dyn Output>) -> Ended {
        let given = self.host.given(Arc::new(super::secret::NoSecrets));
        self.ask(move |room| room.run(line, given, cancel, output, None)).unwrap_or_else(Ended::failed)
    }

    fn ask<T: Send + 'static>(&self, work: impl FnOnce(&mut Room) -> T + Send + 'static) -> Result<T, Fault> {
        let (answer, answers) = mpsc::channel();
        let job = move |room: &mut Room| {
            let outcome = catch_unwind(AssertUnwindSafe(|| work(room)));
            if outcome.is_err() {
                room.clear();
            }
            // Whoever asked waits for it.
            let _ = answer.send(outcome.map_err(|panic| panicked(&*panic)));
        };
        // A thread that is gone drops the job, and with it the other end of `answers`.
        let _ = self.jobs.send(Box::new(job));
        answers.recv().unwrap_or_else(|_| Err(no_thread()))
    }
}

/// What lives on a session's thread.
struct Room {
    scope: Scope<'static>,
    functions: AST,
    /// The text of each line so far, for errors in functions of earlier ones.
    lines: Vec<String>,
    /// Imports so far, each with the number of lines before it: the language forgets them with their line.
    imports: Vec<(usize, String)>,
    /// Bytes that scope and functions hold.
    held: usize,
    stack: usize,
    allowance: Arc<Allowance>,
}

impl Room {
    fn new(stack: usize, allowance: Arc<Allowance>) -> Self {
        let (scope, functions) = (engine::scope(&[]), AST::empty());
        Self { scope, functions, lines: Vec::new(), imports: Vec::new(), held: 0, stack, allowance }
    }

    /// Does what is asked, one thing after the other, until nobody can ask any more.
    fn live(mut self, jobs: &Receiver<Job>) {
        jobs.iter().for_each(|job| job(&mut self));
        let meter = Meter::resume(self.held, usize::MAX);
        self.scope.clear();
        self.functions = AST::empty();
        let lost = memory::used();
        drop(meter);
        // Nobody is left to be told.
        self.allowance.charge(lost);
    }

    fn clear(&mut self) {
        self.scope = engine::scope(&[]);
        self.functions = AST::empty();
        self.imports.clear();
        self.held = 0;
    }

    fn check(&self, line: &Line) -> Result<(), Fault> {
        engine::compile(&engine::limited(), &self.numbered(line), &self.scope).map(drop)
    }

    fn run(
        &mut self,
        line: Line,
        given: Given,
        cancel: Cancel,
        output: Arc<dyn Output>,
        browser: Option<Browser>,
    ) -> Ended {
        let source = self.numbered(&line);
        let told = self.remember(&line);
        let imports = reading::imports(&line.script.source);
        let before_it = before(&line);
        let context = Arc::new(host::context(line.script, given, cancel, output, browser));
        let limit = self.allowance.left().min(self.stack / 2);
        let meter = Meter::resume(self.held, limit);
        let variables = self.scope.len();
        let outcome = self.evaluate(&context, &source, &told);
        let is_short =
            outcome.as_ref().is_err_and(|fault| fault.code == FaultCode::Limit) && memory::used() > limit / 2;
        let dropped = if is_short { self.make_room(variables) } else { None };
        self.held = memory::used().saturating_sub(length(&outcome));
        drop(meter);
        if outcome.is_ok() {
            self.imports.extend(imports.into_iter().map(|import| (before_it, import)));
        }
        let mut ended = host::ended(&context, outcome);
        ended.warnings.extend(dropped.map(str::to_owned));
        ended
    }

    /// Runs the line and gives its value as JSON.
    fn evaluate(&mut self, context: &Arc<Context>, source: &Source, told: &Source) -> Result<Option<String>, Fault> {
        let engine = engine::build(context);
        let line = engine::compile(&engine, source, &self.scope)?;
        let mut whole = self.functions.merge(&line);
        whole.set_source(source.origin.as_str());
        self.functions = self.functions.merge(&line.clone_functions_only());
        let told_of = |error| error::uncaught(error, told, &|origin| context.library.source(origin));
        let value = engine.eval_ast_with_scope::<Dynamic>(&mut self.scope, &whole).map_err(|error| told_of(*error))?;
        let is_asked_for = context.has_exited() || !is_silent(source.text());
        if value.is_unit() || !is_asked_for {
            return Ok(None);
        }
        let written = write(&value, Form::Json).map(Some).map_err(error::Failure::from);
        written.map_err(|failure| told_of(*failure.at(Position::NONE)))
    }

    /// Drops what a line for want of memory left, and everything where that is not enough: a session in which
    /// nothing can run any more would be of no use.
    fn make_room(&mut self, variables: usize) -> Option<&'static str> {
        self.scope.rewind(variables);
        if !memory::is_over() {
            return Some("the variables of this line are dropped");
        }
        self.scope = engine::scope(&[]);
        Some("the variables of this session are dropped: they held more memory than a session may")
    }

    /// The line's source, at its place in the session: behind empty lines, and imports where they stood.
    fn numbered(&self, line: &Line) -> Source {
        let count = before(line);
        let mut text = String::new();
        for index in 0..count.max(1) {
            let here = self.imports.iter().filter(|(before, _)| count == 0 || *before == index);
            here.for_each(|(_, import)| text.push_str(import));
            text.extend((count > 0).then_some('\n'));
        }
        Source::new(&(text + line.script.source.as_str()), &line.script.origin)
    }

    /// Takes the line's text to those of the earlier ones, and gives all as errors show them.
    fn remember(&mut self, line: &Line) -> Source {
        let source = self.numbered(line);
        if line.number >= NUMBERED {
            return source;
        }
        if self.lines.iter().map(String::len).sum::<usize>() > REMEMBERED {
            self.lines.clear();
        }
        for (index, text) in source.text().lines().enumerate().skip(before(line)) {
            self.lines.resize(self.lines.len().max(index + 1), String::new());
            self.lines[index] = text.to_owned();
        }
        Source::new(&self.lines.join("\n"), &line.script.origin)
    }
}

/// How many lines of the session come before it.
fn before(line: &Line) -> usize {
    if line.number < NUMBERED { line.number.saturating_sub(1) as usize } else { 0 }
}

impl Ended {
    fn failed(fault: Fault) -> Self {
        Self { fault: Some(fault), ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::super::host::Closed;
    use super::*;
    use crate::cancel::CancelReason;
    use crate::wire::Stream;

    #[derive(Default)]
    struct Paper(Mutex<String>);

    impl Output for Paper {
        fn write(&self, _: Stream, text: &str) -> Result<(), Closed> {
            self.0.lock().unwrap().push_str(text);
            Ok(())
        }
    }

    fn kept() -> Kept {
        Kept::new(Arc::new(Host::new(std::env::temp_dir()))).unwrap()
    }

    fn line(number: u32, source: &str) -> Line {
        let script = Script {
            source: source.to_owned(),
            origin: "repl".to_owned(),
            args: Vec::new(),
            cwd: std::env::temp_dir(),
            umask: 0o022,
            deadline: None,
        };
        Line { script, number }
    }

    fn run(kept: &Kept, number: u32, source: &str) -> Ended {
        kept.run_without_browser(line(number, source), Cancel::new(), Arc::new(Paper::default()))
    }

    #[track_caller]
    fn value(kept: &Kept, source: &str) -> String {
        let ended = run(kept, 1, source);
        assert_eq!(ended.fault, None, "{source}");
        ended.value.unwrap_or_default()
    }

    #[test]
    fn what_a_line_defines_is_there_for_the_next() {
        let kept = kept();
        for (source, expected) in [
            ("let y = 2;", ""),
            ("let f = |x| x + y;", ""),
            ("fn double(a) { a * 2 }", ""),
            ("f.call(double(3))", "8"),
            ("y = 10; f.call(1)", "11"),
            ("fn double(a) { a + a + a }", ""),
            ("double(y)", "30"),
            ("const LIST = [y, \"s\"]; LIST", "[10,\"s\"]"),
            ("exit(LIST.len())", "2"),
            ("args", "[]"),
        ] {
            assert_eq!(value(&kept, source), expected, "{source}");
        }
    }

    #[test]
    fn a_line_that_fails_or_is_ended_costs_nothing_that_was_there() {
        let kept = kept();
        value(&kept, "let before = 1;");
        let cancelled = Cancel::new();
        cancelled.cancel(CancelReason::Interrupted);

        assert_eq!(run(&kept, 1, "let then = 2; throw \"no\"").fault.unwrap().message, "no");
        assert_eq!(run(&kept, 1, "let x = ;").fault.unwrap().code, FaultCode::Syntax);
        assert_eq!(run(&kept, 1, "nobody").fault.unwrap().code, FaultCode::Syntax);
        let ended = kept.run_without_browser(line(1, "loop { }"), cancelled, Arc::new(Paper::default()));
        assert_eq!(ended.fault.unwrap().code, FaultCode::Cancelled);

        assert_eq!(value(&kept, "before + then"), "3");
        assert!(kept.check(&line(1, "before")).is_ok() && kept.check(&line(1, "nobody")).is_err());
    }

    #[test]
    fn an_error_names_the_line_of_the_session_also_in_a_function_of_an_earlier_one() {
        let kept = kept();
        run(&kept, 2, "fn broken(a) {\n  a.nope()\n}");

        let here = run(&kept, 7, "1 + ()").fault.unwrap();
        let there = run(&kept, 8, "broken(1)").fault.unwrap();

        assert_eq!((&here.context["line"], &here.context["source"]), (&7.into(), &"repl".into()));
        assert_eq!((&there.context["line"], &there.context["source_line"]), (&3.into(), &"  a.nope()".into()));
        assert_eq!(there.context["trace"][0], "broken called at repl:8:1");
    }

    #[test]
    fn a_constant_of_an_earlier_line_is_no_global_one_and_the_hint_does_not_say_that_it_is() {
        let kept = kept();
        run(&kept, 1, "const C = 4;");
        run(&kept, 2, "fn g() { global::C } fn c() { 4 }");

        let fault = run(&kept, 3, "g()").fault.unwrap();

        assert_eq!(fault.message, "there is no variable `global::C`");
        assert!(fault.hint.as_ref().is_some_and(|hint| hint.contains("at the prompt the same input")), "{fault:?}");
        assert_eq!(value(&kept, "c()"), "4");
    }

    #[test]
    fn an_import_lasts_as_long_as_the_session() {
        let kept = kept();
        for (number, source) in [(1, "import \"page\" as here;"), (2, "let x = 1;"), (3, "import \"page\" as there; x")]
        {
            assert_eq!(run(&kept, number, source).fault, None, "{source}");
        }

        for function in ["here::open", "there::open"] {
            let fault = run(&kept, 4, &format!("{function}(\"about:blank\")")).fault.unwrap();
            assert_eq!(fault.code, FaultCode::Disconnected);
            assert!(fault.context["trace"][0].as_str().unwrap().starts_with("open called at repl:4:"), "{fault:?}");
        }
    }

    #[test]
    fn a_line_that_takes_all_memory_leaves_room_for_the_next() {
        let kept = kept();
        value(&kept, "let before = 1;");

        let greedy = run(&kept, 1, "let big = []; loop { big.push(blob(8_000_000)); }");

        assert_eq!(greedy.fault.unwrap().code, FaultCode::Limit);
        assert_eq!(greedy.warnings, ["the variables of this line are dropped"]);
        assert_eq!(value(&kept, "before"), "1");
    }
}
