//! What can be typed. The doc comments here are the help.

use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};

use super::call::Call;
use super::envelope::{self, Kept};
use super::exit::Exit;
use super::helpers::Helpers;
use super::output;
use super::render;
use crate::config;
use crate::wire::{Fault, FaultCode};

/// What is not typed: where settings come from, and what an exit code means.
const SETTINGS: &str = "\
Settings (environment):
  APIFY_TOKEN                        The token for the hosted Gateway
  GHOST_GATEWAY_URL                  Where browsers come from, else GHOST_STANDBY_URL, else the hosted Gateway;
                                     `local` is the Chromium of this machine
  GHOST_BROWSER_COUNTRY              Two letters: a browser in that country
  GHOST_BROWSER_NAME                 The session's name, like --name
  GHOST_BROWSER_IDLE_SECONDS         Release an unused browser after so long (default: 600)
  GHOST_BROWSER_ALLOCATION_TIMEOUT   Seconds to wait for a browser (default: 180)
  GHOST_BROWSER_WS_TIMEOUT           Seconds until the browser must speak CDP (default: 30)
  GHOST_BROWSER_SECRETS              Names that scripts may use by `secret(name)`; NAME@https://shop.example binds one
  GHOST_BROWSER_SECRET_CMD           A program that prints the value of the secret that its argument names
  GHOST_BROWSER_RUNTIME_DIR          The folder for sockets and locks (default: one of your user)
  GHOST_BROWSER_LOG                  off, error, info or debug (default: error): a file in that folder
  GHOST_BROWSER_CHROMIUM             Local: which Chromium (default: the one on PATH)
  GHOST_BROWSER_CHROMIUM_ARGS        Local: more arguments, split as a shell splits words
  GHOST_BROWSER_HEADED               Local: 1 shows a window
  GHOST_BROWSER_PROFILE              Local: a profile folder to keep (default: a fresh one, wiped)

Exit codes:
  0 ok · 1 the script failed · 2 usage, syntax, a bad setting · 3 no browser to be had · 4 outcome unknown
  5 release unconfirmed · 6 another token owns this session · 130 interrupted, or ended by `stop`";

/// Drive one remote Chromium over raw CDP with small Rhai scripts
///
/// Without a command it runs the script on standard input. A daemon per workspace holds the browser, so the next
/// call finds the page where this one left it; `ghost-browser stop` releases it.
#[derive(Parser)]
#[command(name = "ghost-browser", version, after_long_help = SETTINGS)]
struct Line {
    #[command(flatten)]
    options: RunOptions,

    /// Use the session of this name in the workspace (default: GHOST_BROWSER_NAME, else `default`)
    #[arg(long, value_name = "NAME", global = true, value_parser = config::session_name)]
    name: Option<String>,

    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Subcommand)]
enum Verb {
    /// Run a script from a file or from an argument
    Run(RunLine),
    /// Run one line after the other, in one scope: at a prompt, or as lines are piped in
    Repl(ReplOptions),
    /// Tell the state of the session; starts nothing and exits 0
    Status(StatusOptions),
    /// Release the browser and end the daemon
    Stop(StopOptions),
    /// List, show or copy the helper modules that scripts can use
    Helpers {
        #[command(subcommand)]
        what: Option<Helpers>,
    },
    /// Make the workspace's folder for helper modules and print its path
    Workspace,
    /// Print the skill that teaches an agent to use this tool
    Skill(SkillOptions),
}

/// How a script is run.
#[derive(clap::Args, Default)]
pub(super) struct RunOptions {
    /// End the whole call after this many seconds, cold start included (default: no limit)
    #[arg(long, value_name = "SECONDS", value_parser = config::seconds)]
    pub(super) timeout: Option<Duration>,

    /// Release the browser when the script has ended, however it ended
    #[arg(long)]
    pub(super) stop: bool,

    /// Show no progress
    #[arg(long)]
    pub(super) quiet: bool,

    /// Print one JSON object: ok, value, output, error, warnings, aftermath, session
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(clap::Args)]
#[command(
    override_usage = "ghost-browser run [OPTIONS] FILE [ARGS]...\n       ghost-browser run [OPTIONS] -e CODE [ARGS]..."
)]
struct RunLine {
    /// Run CODE instead of a file
    #[arg(short = 'e', value_name = "CODE")]
    code: Option<String>,

    #[command(flatten)]
    options: RunOptions,

    /// The file, unless -e is given; what follows is the script's `args`
    #[arg(value_name = "FILE", trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// How lines are run.
#[derive(clap::Args)]
pub(super) struct ReplOptions {
    /// End each line after this many seconds, the start of the browser included (default: no limit)
    #[arg(long, value_name = "SECONDS", value_parser = config::seconds)]
    pub(super) timeout: Option<Duration>,

    /// Release the browser on leaving
    #[arg(long)]
    pub(super) stop: bool,

    /// Show no progress
    #[arg(long)]
    pub(super) quiet: bool,
}

/// What `status` tells.
#[derive(clap::Args, Default)]
pub(super) struct StatusOptions {
    /// Tell every session of this user
    #[arg(long)]
    pub(super) all: bool,

    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// What `stop` stops.
#[derive(clap::Args, Default)]
pub(super) struct StopOptions {
    /// Stop every session of this user
    #[arg(long)]
    pub(super) all: bool,
}

/// What is printed.
#[derive(clap::Args)]
pub(super) struct SkillOptions {
    /// Print what differs between Rhai and Python or JavaScript instead
    #[arg(long)]
    pub(super) rhai: bool,
}

/// What is to be done.
pub(super) enum Command {
    Script(RunOptions),
    Run(Script),
    Repl(ReplOptions),
    Status(StatusOptions),
    Stop(StopOptions),
    Helpers(Helpers),
    Workspace,
    Skill(SkillOptions),
}

/// A script that was named on the command line.
pub(super) struct Script {
    pub(super) from: From,
    pub(super) args: Vec<String>,
    pub(super) options: RunOptions,
}

/// Where a script is.
pub(super) enum From {
    File(OsString),
    Code(String),
}

/// Reads the command line.
///
/// # Errors
/// The exit code, when everything is said already: help, version, or what is wrong.
pub(super) fn parse(line: impl IntoIterator<Item = OsString>) -> Result<(Call, Command), Exit> {
    let started = Instant::now();
    let words: Vec<OsString> = line.into_iter().collect();
    let as_json = wants_json(&words);
    let line = Line::try_parse_from(words).map_err(|error| tell(&error, as_json))?;
    let call = Call { started, name: line.name };
    match command(line.verb, line.options) {
        Ok(command) => Ok((call, command)),
        Err(fault) if as_json => Err(tell_as_json(&fault)),
        Err(fault) => {
            render::error(&fault);
            Err(Exit::of(&fault))
        }
    }
}

/// Whether `--json` was typed, whatever else is wrong: among our own words, not the script's.
fn wants_json(words: &[OsString]) -> bool {
    let mut words = words.iter().skip(1).map(|word| word.to_str().unwrap_or_default()).peekable();
    let mut is_run = false;
    while let Some(word) = words.next() {
        match word {
            "--json" => return true,
            "--" => return false,
            // What follows is a value, unless it was forgotten.
            "--timeout" | "--name" | "-e" => drop(words.next_if(|value| !value.starts_with('-'))),
            "run" if !is_run => is_run = true,
            word if is_run && !word.starts_with('-') => return false,
            _ => {}
        }
    }
    false
}

fn command(verb: Option<Verb>, options: RunOptions) -> Result<Command, Fault> {
    match verb {
        None => Ok(Command::Script(options)),
        Some(Verb::Run(line)) => line.script(options).map(Command::Run),
        Some(verb) if options.first().is_some() => Err(misplaced(options.first().unwrap_or_default(), verb.name())),
        Some(Verb::Repl(options)) => Ok(Command::Repl(options)),
        Some(Verb::Status(options)) => Ok(Command::Status(options)),
        Some(Verb::Stop(options)) => Ok(Command::Stop(options)),
        Some(Verb::Helpers { what }) => Ok(Command::Helpers(what.unwrap_or_default())),
        Some(Verb::Workspace) => Ok(Command::Workspace),
        Some(Verb::Skill(options)) => Ok(Command::Skill(options)),
    }
}

impl Verb {
    fn name(&self) -> &'static str {
        match self {
            Self::Run(_) => "run",
            Self::Repl(_) => "repl",
            Self::Status(_) => "status",
            Self::Stop(_) => "stop",
            Self::Helpers { .. } => "helpers",
            Self::Workspace => "workspace",
            Self::Skill(_) => "skill",
        }
    }
}

impl RunLine {
    fn script(self, before: RunOptions) -> Result<Script, Fault> {
        let mut words = self.words.into_iter();
        let from = match self.code {
            Some(code) => From::Code(code),
            None => From::File(words.next().ok_or_else(nothing_named)?),
        };
        Ok(Script { from, args: words.map(text).collect::<Result<_, _>>()?, options: before.or(self.options) })
    }
}

impl RunOptions {
    /// The name of one that was typed.
    fn first(&self) -> Option<&'static str> {
        let typed =
            [("timeout", self.timeout.is_some()), ("stop", self.stop), ("quiet", self.quiet), ("json", self.json)];
        typed.into_iter().find_map(|(name, is_typed)| is_typed.then_some(name))
    }

    /// Options may stand before or behind the word `run`.
    fn or(self, behind: Self) -> Self {
        Self {
            timeout: behind.timeout.or(self.timeout),
            stop: self.stop || behind.stop,
            quiet: self.quiet || behind.quiet,
            json: self.json || behind.json,
        }
    }
}

fn text(word: OsString) -> Result<String, Fault> {
    word.into_string().map_err(|word| {
        let message = format!("the script's argument {} is not UTF-8", word.display());
        Fault::new(FaultCode::Usage, message)
    })
}

fn misplaced(option: &str, verb: &str) -> Fault {
    let mut line = Line::command();
    // An argument knows how it is written only once its command is built.
    line.build();
    let command = line.find_subcommand(verb);
    let argument = command.and_then(|command| command.get_arguments().find(|known| known.get_long() == Some(option)));
    let hint = match argument {
        Some(argument) => format!("options of a command go behind its name: `ghost-browser {verb} {argument}`"),
        None => format!("leave it out: `ghost-browser {verb} --help` tells what `{verb}` takes"),
    };
    Fault::new(FaultCode::Usage, format!("`--{option}` before `{verb}` is an option of a script run")).hint(hint)
}

fn nothing_named() -> Fault {
    Fault::new(FaultCode::Usage, "`run` needs a script: FILE or -e CODE")
        .hint("ghost-browser run script.rhai, or ghost-browser run -e 'print(page_info())'")
}

/// Prints what clap has to say: help and version to standard output, what is wrong to standard error.
fn tell(error: &clap::Error, as_json: bool) -> Exit {
    let text = error.to_string();
    let hint = file_for_a_command(error).map(|file| format!("a script in a file is run by `ghost-browser run {file}`"));
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Exit::after(output::write(&text)),
        _ if as_json => tell_as_json(&fault(&text, hint)),
        _ => {
            output::complain(&text);
            hint.iter().for_each(|hint| render::hint(hint));
            Exit::USAGE
        }
    }
}

/// What clap says in paragraphs: what is wrong, perhaps a tip, and the usage, which help tells better.
fn fault(text: &str, hint: Option<String>) -> Fault {
    let mut paragraphs = text.split("\n\n").map(str::trim);
    let wrong = paragraphs.next().unwrap_or_default();
    let tip = paragraphs.find_map(|paragraph| paragraph.strip_prefix("tip: "));
    let hint = hint.or_else(|| tip.map(str::to_owned));
    Fault::new(FaultCode::Usage, wrong.strip_prefix("error: ").unwrap_or(wrong))
        .hint(hint.unwrap_or_else(|| "`ghost-browser --help` tells what can be typed".to_owned()))
}

/// Whoever asked for one object gets it also where nothing could be run.
fn tell_as_json(fault: &Fault) -> Exit {
    let told = output::write(envelope::line(&Err(fault.clone()), &Kept::default(), None));
    Exit::of(fault).or(Exit::after(told))
}

/// The file that stands where a command is expected.
fn file_for_a_command(error: &clap::Error) -> Option<&str> {
    match error.get(ContextKind::InvalidSubcommand)? {
        ContextValue::String(word) if word.ends_with(".rhai") || Path::new(word).is_file() => Some(word),
        _ => None,
    }
}

/// The usage line, for whoever gave no script.
pub(super) fn usage() -> String {
    Line::command().render_usage().to_string()
}
