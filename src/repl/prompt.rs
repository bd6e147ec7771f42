//! Inputs from a person at a terminal: editing, history, completion, colours.

use std::borrow::Cow;
use std::path::PathBuf;
use std::{env, fs};

use rustyline::completion::{Completer, Pair};
use rustyline::config::{ColorMode, CompletionType};
use rustyline::error::ReadlineError;
use rustyline::highlight::{CmdKind, Highlighter};
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Config, Context, Editor, Helper};

use super::complete::{Words, complete};
use super::highlight;
use super::session::{Next, Session};
use crate::client::Door;
use crate::script::{helpers, reading};
use crate::wire::{Fault, FaultCode};

const PROMPT: &str = "ghost> ";

/// How many inputs are kept.
const REMEMBERED: usize = 1000;

/// Talks until the person leaves. What failed was seen, so nothing of it is left to tell.
pub(super) fn talk(session: &mut Session) -> Option<FaultCode> {
    let mut prompt = match Prompt::new(&session.means.door) {
        Ok(prompt) => prompt,
        Err(error) => {
            session.fail(&no_prompt(&error));
            return session.failure;
        }
    };
    let mut number = 1;
    while let Some(input) = prompt.next(session) {
        if session.take(&input, number) == Next::Leave {
            break;
        }
        number += input.lines().count().max(1) as u32;
    }
    None
}

struct Prompt {
    editor: Editor<Typist, FileHistory>,
    history: History,
}

impl Prompt {
    fn new(door: &Door) -> rustyline::Result<Self> {
        let colours = if env::var_os("NO_COLOR").is_some() { ColorMode::Disabled } else { ColorMode::Enabled };
        let config = Config::builder()
            .max_history_size(REMEMBERED)?
            .history_ignore_space(true)
            .history_ignore_dups(true)?
            .completion_type(CompletionType::List)
            .color_mode(colours)
            .build();
        let mut editor = Editor::with_history(config.clone(), FileHistory::with_config(&config))?;
        editor.set_helper(Some(Typist::default()));
        let history = History::of(door);
        if let Some(path) = history.find() {
            // A history that cannot be read is one that is not there.
            let _ = editor.load_history(&path);
        }
        Ok(Self { editor, history })
    }

    /// The next input; `None` when the person leaves.
    fn next(&mut self, session: &mut Session) -> Option<String> {
        if let Some(typist) = self.editor.helper_mut() {
            typist.0 = words(session);
        }
        loop {
            match self.editor.readline(PROMPT) {
                Ok(input) => {
                    self.keep(&input);
                    return Some(input);
                }
                // Ctrl-C at the prompt: a line that nobody wants any more.
                Err(ReadlineError::Interrupted) => {}
                Err(ReadlineError::Eof) => return None,
                Err(error) => {
                    session.fail(&no_prompt(&error));
                    return None;
                }
            }
        }
    }

    fn keep(&mut self, input: &str) {
        if self.editor.add_history_entry(input).unwrap_or(false)
            && let Some(path) = self.history.make()
        {
            // Without a history everything else still works.
            let _ = self.editor.append_history(&path);
        }
    }
}

/// Where the inputs of one session are kept: in the state folder, for this user's eyes only.
struct History {
    door: Door,
}

impl History {
    fn of(door: &Door) -> Self {
        Self { door: Door { session: door.session.clone(), places: door.places.clone() } }
    }

    fn find(&self) -> Option<PathBuf> {
        let folders = self.door.places.find().folders;
        folders.iter().map(|folder| self.door.session.history(folder)).find(|path| path.exists())
    }

    fn make(&self) -> Option<PathBuf> {
        self.find().or_else(|| self.door.places.create().ok().map(|folder| self.door.session.history(&folder)))
    }
}

/// What completion knows beside the program's own tables: names of earlier lines, and of the workspace's helpers.
fn words(session: &Session) -> Words {
    let mut words = Words { names: session.defined.clone(), modules: Vec::new() };
    words.modules.extend(helpers::SHIPPED.iter().map(|module| module.name.to_owned()));
    for (name, path) in helpers::own(&session.means.door.session.root) {
        words.modules.push(name);
        words.names.extend(fs::read_to_string(&path).iter().flat_map(|text| reading::defined(text)));
    }
    words
}

/// What is done while somebody types.
#[derive(Default)]
struct Typist(Words);

impl Helper for Typist {}

impl Hinter for Typist {
    type Hint = String;
}

impl Completer for Typist {
    type Candidate = Pair;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let (start, found) = complete(&line[..at], &self.0);
        let pair = |word: String| Pair { display: word.trim_end_matches(": ").to_owned(), replacement: word };
        Ok((start, found.into_iter().map(pair).collect()))
    }
}

impl Validator for Typist {
    fn validate(&self, context: &mut ValidationContext) -> rustyline::Result<ValidationResult> {
        let input = context.input();
        let is_over = input.starts_with(':') || reading::is_complete(input);
        Ok(if is_over { ValidationResult::Valid(None) } else { ValidationResult::Incomplete })
    }
}

impl Highlighter for Typist {
    fn highlight<'l>(&self, line: &'l str, _: usize) -> Cow<'l, str> {
        if line.starts_with(':') { Cow::Borrowed(line) } else { Cow::Owned(highlight::paint(line)) }
    }

    fn highlight_char(&self, _: &str, _: usize, kind: CmdKind) -> bool {
        kind != CmdKind::MoveCursor
    }
}

fn no_prompt(error: &ReadlineError) -> Fault {
    Fault::new(FaultCode::Usage, "the terminal cannot be read").caused_by(error)
}
