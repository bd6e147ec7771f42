//! What looks like a credential in our own messages: the query and the user of a URL, and parameters whose name
//! holds `token`, `key` or `authorization`.

use std::ops::Range;

use memchr::memmem;

use super::forms::percent_decoded;

const NAMES: [&str; 3] = ["token", "key", "authorization"];

/// Names that credentials have in the queries of URLs that we are given.
const NAMES_IN_URLS: [&str; 9] = ["token", "key", "auth", "secret", "pass", "sig", "cred", "jwt", "session"];

/// A shorter value is a word, not a credential: `key: "Enter"`.
const SHORTEST: usize = 6;

/// The spans of `text` that must not be shown.
pub(super) fn find(text: &str) -> Vec<Range<usize>> {
    let mut spans = Vec::new();
    for at in memmem::find_iter(text.as_bytes(), "://") {
        spans.extend(in_url(text, at + 3));
    }
    for (at, _) in text.match_indices([':', '=']) {
        spans.extend(value_of(text, at));
    }
    spans
}

/// Whether a parameter of that name, in the query of a URL that we are given, is a credential.
pub(crate) fn is_credential(name: &str) -> bool {
    names(&NAMES_IN_URLS, name)
}

/// The values of credentials in the query of `url`, as written and decoded.
pub(super) fn credentials_of(url: &str) -> Vec<String> {
    let Some((_, query)) = url.split_once('?') else {
        return Vec::new();
    };
    let query = query.split('#').next().unwrap_or_default();
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs
        .filter(|(name, _)| is_credential(name))
        .flat_map(|(_, value)| [Some(value.to_owned()), percent_decoded(value)])
        .flatten()
        .collect()
}

/// The user and the query of the URL whose authority starts at `start`.
fn in_url(text: &str, start: usize) -> Vec<Range<usize>> {
    let rest = &text[start..];
    let ends = |c: char| c.is_whitespace() || c.is_control() || "\"'`<>\\|)]}".contains(c);
    let url = &rest[..rest.find(ends).unwrap_or(rest.len())];
    let authority = &url[..url.find(['/', '?', '#']).unwrap_or(url.len())];
    let mut spans = Vec::new();
    if let Some(at) = authority.rfind('@') {
        spans.push(start..start + at);
    }
    if let Some(query) = url.find('?') {
        let end = url[query..].find('#').map_or(url.len(), |at| query + at);
        spans.push(start + query + 1..start + end);
    }
    spans.retain(|span| !span.is_empty());
    spans
}

/// The value behind the `:` or `=` at `at`, where the name in front of it is a credential's.
///
/// A bare word behind a colon is prose (`unexpected token: end of input`) unless it is a header's.
fn value_of(text: &str, at: usize) -> Option<Range<usize>> {
    let name = name_before(&text[..at])?;
    let is_colon = text[at..].starts_with(':');
    let rest = &text[at + 1..];
    if rest.starts_with(['=', ':']) {
        return None;
    }
    let value = rest.trim_start_matches(' ');
    let start = text.len() - value.len();
    let length = match value.chars().next()? {
        quote @ ('"' | '\'' | '`') if !is_colon || quote == '"' => {
            return quoted(value, quote).map(|end| start + 1..start + end);
        }
        _ if is_header(name) => value.find(['\n', '\r', '"', '\'', ',']),
        _ if is_colon => return None,
        _ => value.find(|c: char| c.is_whitespace() || "&,;)]}\"'`#".contains(c)),
    };
    let length = length.unwrap_or(value.len());
    (length >= SHORTEST).then(|| start..start + length)
}

/// Where the text in quotes at the front of `value` ends, when it is long enough to matter.
fn quoted(value: &str, quote: char) -> Option<usize> {
    let inner = &value[1..];
    let length = inner.find(quote).unwrap_or(inner.len());
    (length >= SHORTEST).then_some(length + 1)
}

/// The word that ends `before`, in quotes or not, when it names a credential.
fn name_before(before: &str) -> Option<&str> {
    let before = before.trim_end_matches(' ').trim_end_matches(['"', '\'', '\\']);
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let name = &before[before.trim_end_matches(is_part).len()..];
    names(&NAMES, name).then_some(name)
}

fn is_header(name: &str) -> bool {
    names(&["authorization"], name)
}

fn names(parts: &[&str], name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    parts.iter().any(|part| name.contains(part))
}
