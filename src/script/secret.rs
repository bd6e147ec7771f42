//! Secrets that a script may use without seeing them.
//!
//! A [`Veiled`] text can be joined with others and put into a command's parameters; nothing else takes it, and printing
//! shows its name. The value comes from whoever called the script, through [`Secrets`]; what may be told, and to
//! which pages, is decided there.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use rhai::ImmutableString;

use crate::secret::Secret;
use crate::wire::{Fault, FaultCode, Granted};

/// What is done with an answer. Called once, from any thread; dropped when no answer can come any more.
pub type Answering = Box<dyn FnOnce(Result<Granted, Fault>) + Send>;

/// Where a script's secrets come from.
pub trait Secrets: Send + Sync {
    /// Asks for the secret `name` and returns at once.
    fn ask(&self, name: &str, answer: Answering);

    /// `text` without the secrets that were told so far, by anyone.
    fn hide<'t>(&self, text: &'t str) -> Cow<'t, str>;
}

/// A script that nobody called has no secrets.
pub struct NoSecrets;

impl Secrets for NoSecrets {
    fn ask(&self, name: &str, answer: Answering) {
        let message = format!("the secret `{name}` cannot be told: there is no caller to ask");
        answer(Err(Fault::new(FaultCode::Denied, message)));
    }

    fn hide<'t>(&self, text: &'t str) -> Cow<'t, str> {
        Cow::Borrowed(text)
    }
}

/// Text with secrets in it.
#[derive(Clone)]
pub struct Veiled(Vec<Part>);

/// A part of such a text.
#[derive(Clone)]
pub enum Part {
    /// What the script wrote itself.
    Plain(ImmutableString),
    /// What it does not see.
    Hidden(Arc<Hidden>),
}

/// One secret.
pub struct Hidden {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: Secret,
    /// The only origin whose pages it is given to.
    pub origin: Option<String>,
}

impl Veiled {
    /// A secret that was granted.
    pub fn new(name: &str, granted: Granted) -> Self {
        let Granted { value, origin } = granted;
        Self(vec![Part::Hidden(Arc::new(Hidden { name: name.to_owned(), value, origin }))])
    }

    /// Its parts in order.
    pub fn parts(&self) -> &[Part] {
        &self.0
    }

    /// This and then `other`.
    pub fn join(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// What one more copy of it takes, about.
    pub fn size(&self) -> usize {
        self.0.len() * size_of::<Part>()
    }
}

impl From<ImmutableString> for Veiled {
    fn from(text: ImmutableString) -> Self {
        Self(vec![Part::Plain(text)])
    }
}

impl fmt::Display for Veiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in &self.0 {
            match part {
                Part::Plain(text) => f.write_str(text)?,
                Part::Hidden(hidden) => write!(f, "<secret {}>", hidden.name)?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Veiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
