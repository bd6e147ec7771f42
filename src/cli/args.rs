//! What can be typed. The doc comments here are the help.

use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};

use super::call::Call;
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
  GHOST_BROWSER_WS_TIMEOUT           Seconds to wait for the WebSocket's handshake (default: 30)
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
    #[arg(long, value_name = "NAME", global = true)]
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
    let line = Line::try_parse_from(line).map_err(|error| tell(&error))?;
    let call = Call { started, name: line.name };
    match command(line.verb, line.options) {
        Ok(command) => Ok((call, command)),
        Err(fault) => {
            render::error(&fault);
            Err(Exit::of(&fault))
        }
    }
}

fn command(verb: Option<Verb>, options: RunOptions) -> Result<Command, Fault> {
    match verb {
        None => Ok(Command::Script(options)),
        Some(Verb::Run(line)) => line.script(options).map(Command::Run),
        Some(_) if options.is_any() => Err(misplaced()),
        Some(Verb::Repl(options)) => Ok(Command::Repl(options)),
        Some(Verb::Status(options)) => Ok(Command::Status(options)),
        Some(Verb::Stop(options)) => Ok(Command::Stop(options)),
        Some(Verb::Helpers { what }) => Ok(Command::Helpers(what.unwrap_or_default())),
        Some(Verb::Workspace) => Ok(Command::Workspace),
        Some(Verb::Skill(options)) => Ok(Command::Skill(options)),
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
    fn is_any(&self) -> bool {
        self.timeout.is_some() || self.stop || self.quiet || self.json
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

fn misplaced() -> Fault {
    Fault::new(FaultCode::Usage, "an option of a script run stands before another command")
        .hint("options of a command go behind its name: `ghost-browser status --json`")
}

fn nothing_named() -> Fault {
    Fault::new(FaultCode::Usage, "`run` needs a script: FILE or -e CODE")
        .hint("ghost-browser run script.rhai, or ghost-browser run -e 'print(page_info())'")
}

/// Prints what clap has to say: help and version to standard output, what is wrong to standard error.
fn tell(error: &clap::Error) -> Exit {
    let text = error.to_string();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Exit::after(output::write(&text)),
        _ => {
            output::complain(&text);
            if let Some(file) = file_for_a_command(error) {
                render::hint(&format!("a script in a file is run by `ghost-browser run {file}`"));
            }
            Exit::USAGE
        }
    }
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
