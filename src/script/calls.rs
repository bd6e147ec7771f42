//! Method calls as they stand in a source's text, for guesses at what went wrong with one.
//!
//! It reads no more of the language than brackets and quotes, so what it finds may be a comment. Nothing that runs
//! depends on it.

/// The longest call that is read: a text may open thousands and close none.
const LONGEST: usize = 2000;

/// One `….name(…)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Called<'a> {
    /// What stands before it in its statement.
    pub before: &'a str,
    /// What stands between its brackets.
    pub arguments: &'a str,
    /// What comes after it in the text, without white space.
    pub after: &'a str,
    /// Where its name begins, in bytes.
    pub at: usize,
}

/// The calls of `name` in a text, in order.
pub fn calls<'a>(text: &'a str, name: &str) -> impl Iterator<Item = Called<'a>> {
    let opening = format!(".{name}(");
    let places: Vec<usize> = text.match_indices(&opening).map(|(at, _)| at).collect();
    places.into_iter().filter_map(move |at| {
        let rest = &text[at + opening.len()..];
        let end = closing(rest)?;
        let statement = text[..at].rfind([';', '{', '}', '\n']).map_or(0, |end| end + 1);
        Some(Called {
            before: text[statement..at].trim(),
            arguments: &rest[..end],
            after: rest[end + 1..].trim_start(),
            at: at + 1,
        })
    })
}

impl<'a> Called<'a> {
    /// The variable that it is called on, if it is no more than that.
    pub fn on(&self) -> Option<&'a str> {
        let start = self.before.rfind(|character| !is_part(character)).map_or(0, |at| at + 1);
        let name = self.before.get(start..)?;
        (!name.is_empty() && !self.before[..start].ends_with('.')).then_some(name)
    }

    /// The variable that its result is given to.
    pub fn given_to(&self) -> Option<&'a str> {
        let (name, value) = self.before.split_once('=')?;
        let name = name.trim().trim_start_matches("let ").trim_start_matches("const ").trim();
        let is_whole = self.after.is_empty() || self.after.starts_with([';', '\n', '}']);
        (is_whole && is_balanced(value) && !name.is_empty() && name.chars().all(is_part)).then_some(name)
    }

    /// Whether something is done with its result where it stands.
    pub fn is_gone_on_with(&self) -> bool {
        self.after.starts_with(['.', '[', '+', '-', '*', '/', '%', '<', '>', '=', '!'])
    }
}

/// Whether a text has `word` as a word of its own.
pub fn has_word(text: &str, word: &str) -> bool {
    text.split(|character| !is_part(character)).any(|part| part == word)
}

fn is_part(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

fn is_balanced(text: &str) -> bool {
    let count = |wanted: &[char]| text.matches(wanted).count();
    count(&['(', '[']) == count(&[')', ']'])
}

/// Where the bracket ends that is open before the text.
fn closing(text: &str) -> Option<usize> {
    let (mut open, mut quote) = (1, None);
    for (at, character) in text.char_indices().take_while(|(at, _)| *at < LONGEST) {
        match (quote, character) {
            (Some(ends), _) if ends == character => quote = None,
            (Some(_), _) => {}
            (None, '"' | '`') => quote = Some(character),
            (None, '(') => open += 1,
            (None, ')') if open == 1 => return Some(at),
            (None, ')') => open -= 1,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Called<'_> {
        calls(text, "trim").next().unwrap_or_else(|| panic!("{text}"))
    }

    #[test]
    fn a_call_tells_what_it_is_called_on_and_what_becomes_of_it() {
        assert_eq!(one("let t = js(\"document.title\").trim();").given_to(), Some("t"));
        assert_eq!(one("x; t = s.trim()").given_to(), Some("t"));
        assert_eq!((one("s.trim();").given_to(), one("s.trim();").on()), (None, Some("s")));
        assert_eq!(one("let t = f(s.trim());").given_to(), None);
        assert_eq!(one("let t = s.trim() + 1;").given_to(), None);
        assert!(one("s.trim().len()").is_gone_on_with() && !one("s.trim(); -1").is_gone_on_with());
        assert_eq!((one("m.s.trim()").on(), one("f().trim()").on()), (None, None));
        assert_eq!(one("s.trim(\")\", f(a))").arguments, "\")\", f(a)");
        assert_eq!(calls("s.trim( and ever on", "trim").next(), None);
        assert_eq!(calls("a.trim(); b.trim()", "trim").map(|call| call.at).collect::<Vec<_>>(), [2, 12]);
    }

    #[test]
    fn a_text_that_closes_nothing_costs_little() {
        let began = std::time::Instant::now();

        assert_eq!(calls(&".trim(".repeat(20_000), "trim").count(), 0);
        assert!(began.elapsed() < std::time::Duration::from_secs(5), "{:?}", began.elapsed());
    }
}
