//! Running a script, from wherever it comes.

use std::env;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use nix::sys::stat::{Mode, umask};

use super::args::{From, RunOptions, Script};
use super::call::Call;
use super::envelope::{self, Kept};
use super::exit::Exit;
use super::progress::Progress;
use super::source::{self, Source};
use super::{output, render};
use crate::client::{Door, Listener, Outcome, Program, Start, interrupt};
use crate::config::{GatewayChoice, Settings};
use crate::redact::Redactor;
use crate::script;
use crate::wire::{Fault, FaultCode, Phase, Run, Stream};

/// Runs the script on standard input.
pub(super) fn stdin(call: &Call, options: &RunOptions) -> Exit {
    run(call, options, source::from_stdin(deadline(call, options)), &[])
}

/// Runs the script that the command line names.
pub(super) fn named(call: &Call, script: &Script) -> Exit {
    let source = match &script.from {
        From::File(path) => source::from_file(path, deadline(call, &script.options)),
        From::Code(code) => source::from_code(code),
    };
    run(call, &script.options, source.and_then(|source| without_late_options(source, &script.args)), &script.args)
}

/// Refuses an option of ours that was typed behind FILE and that nobody would read: a lost `--stop` leaves a browser held.
fn without_late_options(source: Source, args: &[String]) -> Result<Source, Fault> {
    let is_ours = |word: &&String| {
        let name = word.split_once('=').map_or(word.as_str(), |(name, _)| name);
        ["--stop", "--timeout", "--quiet", "--json", "--name"].contains(&name)
    };
    match args.iter().find(is_ours) {
        Some(word) if !source.text.contains("args") => {
            let message =
                format!("`{word}` stands behind FILE, where all is the script's, and the script reads no `args`");
            Err(Fault::new(FaultCode::Usage, message)
                .hint("options stand before FILE: `ghost-browser run --stop FILE`"))
        }
        _ => Ok(source),
    }
}

fn run(call: &Call, options: &RunOptions, source: Result<Source, Fault>, args: &[String]) -> Exit {
    let mut screen = Screen::new(options);
    let door = call.door();
    let session = door.as_ref().ok().map(|door| door.session.clone());
    let result = match (source, door) {
        (Ok(source), Ok(door)) => execute(call, options, &door, &source, args, &mut screen),
        (Err(fault), _) | (_, Err(fault)) => Err(fault),
    };
    screen.progress.clear();
    let exit = exit_of(&result);
    match &screen.kept {
        Some(kept) => {
            let line = envelope::line(&result, kept, session.as_ref());
            exit.or(Exit::after(output::write(line)))
        }
        None => {
            report(&result);
            exit
        }
    }
}

/// When `--timeout` has passed.
fn deadline(call: &Call, options: &RunOptions) -> Option<Instant> {
    call.started.checked_add(options.timeout?)
}

fn execute(
    call: &Call,
    options: &RunOptions,
    door: &Door,
    source: &Source,
    args: &[String],
    screen: &mut Screen,
) -> Result<Outcome, Fault> {
    let settings = call.settings()?;
    let program = Program::own()?;
    interrupt::watch();
    let deadline = deadline(call, options);
    let begin = Start { settings: &settings, program: &program, deadline, check: &|| check_syntax(source) };
    let template = Run {
        source: source.text.clone(),
        args: args.to_vec(),
        stop: options.stop,
        ..template(&settings, door, &source.origin)
    };
    let make = || Run { timeout_ms: options.timeout.map(|limit| left_of(limit, call.started)), ..template.clone() };
    door.run(&begin, &make, screen).map(with_its_end).map_err(|fault| redactor(&settings).fault(fault))
}

/// Output that cannot be written ends the script, which nothing else tells.
fn with_its_end(mut outcome: Outcome) -> Outcome {
    if let Some(fault) = outcome.done.fault.take_if(|fault| fault.code == FaultCode::Output) {
        outcome.done.fault = Some(fault.hint("the script was ended when its output could not be written"));
    }
    outcome
}

/// A run of nothing, by this caller.
pub(super) fn template(settings: &Settings, door: &Door, origin: &str) -> Run {
    Run {
        origin: origin.to_owned(),
        cwd: working_directory(),
        umask: callers_umask(),
        credential: settings.credential(&door.session.key),
        settings: settings.digest(),
        ..Run::default()
    }
}

/// Knows what the daemon's knows of the settings: an error of our own shows the source line, too.
pub(super) fn redactor(settings: &Settings) -> Redactor {
    let redactor = Redactor::new();
    settings.token.iter().for_each(|token| redactor.learn(token));
    if let GatewayChoice::Hosted { base, .. } = &settings.gateway {
        redactor.learn_query(base);
    }
    redactor
}

/// Whether the script parses. Asked only where no daemon lives, which would check it itself before it takes a browser.
fn check_syntax(source: &Source) -> Result<(), Fault> {
    script::check(&source.text, &source.origin)
}

fn left_of(limit: Duration, started: Instant) -> u64 {
    let left = limit.saturating_sub(started.elapsed());
    u64::try_from(left.as_millis()).unwrap_or(u64::MAX).max(1)
}

fn working_directory() -> Vec<u8> {
    let folder = env::current_dir().unwrap_or_default();
    folder.as_os_str().as_bytes().to_vec()
}

/// The kernel tells it only by changing it; this process has one thread, so nobody sees the change.
fn callers_umask() -> u32 {
    let mask = umask(Mode::from_bits_truncate(0o077));
    umask(mask);
    // macOS counts in 16 bits.
    #[allow(clippy::useless_conversion)]
    u32::from(mask.bits())
}

fn exit_of(result: &Result<Outcome, Fault>) -> Exit {
    match result {
        Ok(outcome) => Exit::of_run(outcome, interrupt::is_raised()),
        Err(_) if interrupt::is_raised() => Exit::INTERRUPTED,
        Err(fault) => Exit::of(fault),
    }
}

fn report(result: &Result<Outcome, Fault>) {
    match result {
        Ok(outcome) => {
            outcome.done.warnings.iter().for_each(|sentence| render::warning(sentence));
            outcome.done.fault.iter().for_each(render::error);
            let stopped = outcome.stopped.iter();
            stopped.flat_map(|stopped| &stopped.unconfirmed).for_each(render::error);
        }
        Err(fault) => render::error(fault),
    }
}

/// Where a run's words go.
struct Screen {
    progress: Progress,
    /// With `--json` output is kept for the one object.
    kept: Option<Kept>,
}

impl Screen {
    fn new(options: &RunOptions) -> Self {
        Self { progress: Progress::new(options.quiet), kept: options.json.then(Kept::default) }
    }
}

impl Listener for Screen {
    fn output(&mut self, stream: Stream, text: &str) -> io::Result<()> {
        self.progress.clear();
        match (stream, &mut self.kept) {
            (Stream::Stdout, Some(kept)) => kept.push(text),
            (Stream::Stdout, None) => return output::write_raw(text),
            (Stream::Stderr, _) => output::complain(text),
        }
        Ok(())
    }

    fn progress(&mut self, phase: Phase, elapsed_ms: u64, why: Option<String>) {
        self.progress.enter(phase, Duration::from_millis(elapsed_ms), why);
    }

    fn next_tick(&self) -> Option<Instant> {
        self.progress.next()
    }

    fn tick(&mut self) {
        self.progress.show();
    }
}
