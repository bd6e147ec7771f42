//! What a text that is being typed could go on with.

use crate::script::protocol;
use crate::script::reading::{self, Kind, Piece};

use super::commands;

/// What a session knows beside what the program knows.
#[derive(Default)]
pub(super) struct Words {
    /// Names that earlier lines or the workspace's helpers define.
    pub(super) names: Vec<String>,
    /// Modules that can be imported.
    pub(super) modules: Vec<String>,
}

/// Where the last word of a text begins, and what it could become.
pub(super) fn complete(text: &str, words: &Words) -> (usize, Vec<String>) {
    if text.starts_with(':') {
        return at_command(text);
    }
    let typed = Typed { text, pieces: reading::pieces(text) };
    if let Some(start) = typed.open_string() {
        return typed.within_string(start, words);
    }
    let start = word_start(text);
    match typed.method_of_map(start) {
        Some(method) => (start, parameters(method, &text[start..])),
        None => (start, names(text, start, words)),
    }
}

fn at_command(text: &str) -> (usize, Vec<String>) {
    match text.split_once(' ') {
        Some((_, name)) => (text.len() - name.len(), beginning(name, protocol::commands())),
        None => (0, beginning(text, commands::NAMES.iter().copied())),
    }
}

fn parameters(method: &str, typed: &str) -> Vec<String> {
    let names = protocol::parameters(method).into_iter().flatten();
    beginning(typed, names).into_iter().map(|name| name + ": ").collect()
}

fn names(text: &str, start: usize, words: &Words) -> Vec<String> {
    let typed = &text[start..];
    if typed.is_empty() {
        return Vec::new();
    }
    let (known, here) = (reading::names(), reading::defined(&text[..start]));
    let defined = words.names.iter().chain(&here).map(String::as_str);
    let mut found = beginning(typed, known.iter().copied().chain(defined));
    found.sort_unstable();
    found.dedup();
    found
}

fn beginning<'a>(typed: &str, candidates: impl Iterator<Item = &'a str>) -> Vec<String> {
    candidates.filter(|candidate| candidate.starts_with(typed)).map(str::to_owned).collect()
}

fn word_start(text: &str) -> usize {
    let word = text.rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_').next();
    text.len() - word.map_or(0, str::len)
}

struct Typed<'t> {
    text: &'t str,
    pieces: Vec<Piece>,
}

impl<'t> Typed<'t> {
    fn piece(&self, index: usize) -> &'t str {
        let end = self.pieces.get(index + 1).map_or(self.text.len(), |next| next.start);
        self.text[self.pieces[index].start..end].trim_end()
    }

    /// Where the string begins whose end is still to come.
    fn open_string(&self) -> Option<usize> {
        let last = self.pieces.last().filter(|piece| piece.kind == Kind::Text)?;
        let inside = self.text[last.start..].strip_prefix('"')?;
        (!inside.contains('"')).then_some(last.start)
    }

    /// A method inside `cdp("…` or in a list of calls, a module behind `import`.
    fn within_string(&self, start: usize, words: &Words) -> (usize, Vec<String>) {
        let before = self.text[..start].trim_end();
        let typed = &self.text[start + 1..];
        let found = if before.ends_with("cdp(") || before.ends_with('[') {
            beginning(typed, protocol::commands())
        } else if before.ends_with("import") {
            beginning(typed, words.modules.iter().map(String::as_str))
        } else {
            Vec::new()
        };
        (start + 1, found)
    }

    /// The method whose parameters are being typed, where a parameter's name is due: `"Page.navigate", #{ur`.
    fn method_of_map(&self, word: usize) -> Option<&'t str> {
        let count = self.pieces.iter().take_while(|piece| piece.start < word).count();
        let before = (0..count).rev();
        let is_due = matches!(self.piece(count.checked_sub(1)?), "#{" | ",");
        let mut depth = 0;
        let map = before.into_iter().find(|&index| match self.piece(index) {
            "}" | ")" | "]" => {
                depth += 1;
                false
            }
            "{" | "#{" | "(" | "[" => {
                depth -= 1;
                depth < 0
            }
            _ => false,
        });
        let map = map.filter(|&index| is_due && index >= 2 && self.piece(index) == "#{")?;
        let method = self.piece(map - 2);
        (self.piece(map - 1) == ",").then(|| method.trim_matches('"'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn completes(text: &str, expected: &[&str]) {
        let words = Words { names: vec!["ensure_shop".into(), "total".into()], modules: vec!["shop".into()] };
        let (start, found) = complete(text, &words);
        let whole: Vec<_> = found.iter().map(|found| text[..start].to_owned() + found.as_str()).collect();
        assert_eq!(whole, expected, "{text}");
    }

    #[test]
    fn functions_and_what_was_defined_are_offered() {
        completes("ensure_", &["ensure_page", "ensure_shop"]);
        completes("print(tot", &["print(total"]);
        completes("let x = capture", &["let x = capture_screenshot"]);
        completes("let outcome = 1; outc", &["let outcome = 1; outcome"]);
        completes("[1].is_emp", &["[1].is_empty"]);
        completes("", &[]);
        completes("unheard", &[]);
    }

    #[test]
    fn methods_are_offered_inside_the_string_that_names_one() {
        completes("cdp(\"Page.navigat", &["cdp(\"Page.navigate", "cdp(\"Page.navigateToHistoryEntry"]);
        completes("cdp_all([[\"Browser.getVer", &["cdp_all([[\"Browser.getVersion"]);
        completes("print(\"Page.navigat", &[]);
        completes("cdp(\"Page.enable\", \"Page.navigat", &[]);
        completes("import \"sh", &["import \"shop"]);
    }

    #[test]
    fn parameters_are_offered_where_the_name_of_one_is_due() {
        completes("cdp(\"Page.navigate\", #{ur", &["cdp(\"Page.navigate\", #{url: "]);
        completes(
            "cdp(\"Page.navigate\", #{url: f(\"x\"), refer",
            &[
                "cdp(\"Page.navigate\", #{url: f(\"x\"), referrer: ",
                "cdp(\"Page.navigate\", #{url: f(\"x\"), referrerPolicy: ",
            ],
        );
        completes("cdp(\"Page.navigate\", #{url: tot", &["cdp(\"Page.navigate\", #{url: total"]);
        completes("cdp_all([[\"Page.navigate\", #{ur", &["cdp_all([[\"Page.navigate\", #{url: "]);
    }

    #[test]
    fn commands_and_what_they_take_are_offered() {
        completes(":sta", &[":status"]);
        completes(":protocol Page.reloa", &[":protocol Page.reload"]);
    }
}
