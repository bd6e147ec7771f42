//! Splits text into words as a shell would: blanks separate, quotes and backslashes keep together.
//! No variable is replaced and no pattern expanded.

/// The words of `text`, or `None` where a quote is left open or a backslash ends it.
pub(super) fn split(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut rest = text.chars().peekable();
    while let Some(&next) = rest.peek() {
        if next.is_whitespace() {
            rest.next();
        } else {
            words.push(word(&mut rest)?);
        }
    }
    Some(words)
}

type Letters<'a> = std::iter::Peekable<std::str::Chars<'a>>;

fn word(rest: &mut Letters<'_>) -> Option<String> {
    let mut word = String::new();
    while let Some(letter) = rest.next_if(|letter| !letter.is_whitespace()) {
        match letter {
            '\'' => single_quoted(rest, &mut word)?,
            '"' => double_quoted(rest, &mut word)?,
            '\\' => word.push(rest.next()?),
            plain => word.push(plain),
        }
    }
    Some(word)
}

fn single_quoted(rest: &mut Letters<'_>, word: &mut String) -> Option<()> {
    loop {
        match rest.next()? {
            '\'' => return Some(()),
            letter => word.push(letter),
        }
    }
}

fn double_quoted(rest: &mut Letters<'_>, word: &mut String) -> Option<()> {
    loop {
        match rest.next()? {
            '"' => return Some(()),
            '\\' => match rest.next()? {
                escaped @ ('"' | '\\' | '$' | '`') => word.push(escaped),
                plain => word.extend(['\\', plain]),
            },
            letter => word.push(letter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn words_are_split_as_a_shell_splits_them() {
        for (text, words) in [
            ("", &[][..]),
            ("  --a\t--b=1 \n", &["--a", "--b=1"]),
            (r#"--lang='de DE' "two  words" a\ b"#, &["--lang=de DE", "two  words", "a b"]),
            (r#""a\"b\n" 'c\d' ''"#, &["a\"b\\n", "c\\d", ""]),
        ] {
            assert_eq!(split(text).unwrap(), words, "{text}");
        }
    }

    #[test]
    fn an_open_quote_is_no_word() {
        for text in ["'a", "\"a", "a\\", "\"a\\"] {
            assert_eq!(split(text), None, "{text}");
        }
    }
}
