//! Taking secrets out of text, where text leaves the process.
//!
//! Output of scripts loses known secrets only, so that what a page says stays whole; our own errors and logs also
//! lose every URL's query and whatever looks like a credential's parameter. A page can transform a secret, and no
//! search finds that: this is the second line of defence, not the first.
//!
//! `forms` says in which spellings a secret is searched, `shapes` what looks like one.

mod forms;
mod shapes;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock};

use memchr::memmem::Finder;
use serde_json::Value;

use crate::secret::Secret;
use crate::wire::Fault;

pub(crate) use shapes::is_credential;

/// What stands where a secret stood.
pub const REDACTED: &str = "[redacted]";

/// The known secrets. Clones share them; none is ever forgotten.
#[derive(Clone, Default)]
pub struct Redactor(Arc<RwLock<Vec<Form>>>);

/// One spelling of one secret.
struct Form {
    text: Secret,
    finder: Finder<'static>,
}

impl Redactor {
    /// Knows nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Has `secret` taken out from here on, in all its spellings. One under six bytes would hit innocent text: ignored.
    pub fn learn(&self, secret: &Secret) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for text in forms::of(secret.expose()) {
            if !known.iter().any(|form| form.text.expose() == text) {
                known.push(Form { finder: Finder::new(text.as_bytes()).into_owned(), text: Secret::new(text) });
            }
        }
    }

    /// Learns a URL that is a secret, and each credential in the query of one that is not.
    pub fn learn_url(&self, url: &Secret) {
        self.learn(url);
        self.learn_query(url);
    }

    /// Learns each credential in the query of `url`.
    pub fn learn_query(&self, url: &Secret) {
        for credential in shapes::credentials_of(url.expose()) {
            self.learn(&Secret::new(credential));
        }
    }

    /// What a script wrote, without the known secrets.
    pub fn output<'t>(&self, text: &'t str) -> Cow<'t, str> {
        replace(text, self.find(text))
    }

    /// What we say ourselves: without the known secrets, queries of URLs and parameters that look like credentials.
    pub fn error<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut spans = self.find(text);
        spans.extend(shapes::find(text));
        replace(text, spans)
    }

    /// A fault without secrets, in every text that it holds.
    pub fn fault(&self, mut fault: Fault) -> Fault {
        fault.message = self.error(&fault.message).into_owned();
        fault.hint = fault.hint.map(|hint| self.error(&hint).into_owned());
        fault.context.values_mut().for_each(|value| self.clean(value));
        fault
    }

    fn clean(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.error(text).into_owned(),
            Value::Array(items) => items.iter_mut().for_each(|item| self.clean(item)),
            Value::Object(fields) => fields.values_mut().for_each(|field| self.clean(field)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn find(&self, text: &str) -> Vec<Range<usize>> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let mut spans = Vec::new();
        for Form { text: form, finder } in known.iter() {
            let length = form.expose().len();
            let hits = finder.find_iter(text.as_bytes());
            spans.extend(hits.map(|start| start..start + length));
        }
        spans
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Redactor")
    }
}

/// Puts the mark in place of each span; spans that overlap become one.
fn replace(text: &str, mut spans: Vec<Range<usize>>) -> Cow<'_, str> {
    if spans.is_empty() {
        return Cow::Borrowed(text);
    }
    spans.sort_by_key(|span| span.start);
    let mut clean = String::with_capacity(text.len());
    let mut done = 0;
    for span in spans {
        if span.start >= done {
            clean.push_str(&text[done..span.start]);
            clean.push_str(REDACTED);
        }
        done = done.max(span.end);
    }
    clean.push_str(&text[done..]);
    Cow::Owned(clean)
}
