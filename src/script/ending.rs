//! Whether a script asked for its value not to be shown: does its text end with `;`?
//!
//! The language gives `1;` the value 1, and its tree has lost the semicolon, so the text is looked at.

/// Whether the last statement ends with a semicolon, also one inside closing braces: `if x { y; }`.
pub fn is_silent(text: &str) -> bool {
    let mut reader = Reader { rest: text, last: None, interpolations: Vec::new() };
    while reader.step() {}
    reader.last == Some(';')
}

struct Reader<'a> {
    rest: &'a str,
    /// The last character of code that is no closing brace.
    last: Option<char>,
    /// Braces that are open inside each `${…}` around here.
    interpolations: Vec<usize>,
}

impl Reader<'_> {
    /// Reads one character of code, or one comment or string; false at the end.
    fn step(&mut self) -> bool {
        let Some(character) = self.rest.chars().next() else { return false };
        if self.rest.starts_with("//") {
            self.skip_to("\n");
        } else if self.rest.starts_with("/*") {
            self.skip_block_comment();
        } else {
            self.rest = &self.rest[character.len_utf8()..];
            self.code(character);
        }
        true
    }

    fn code(&mut self, character: char) {
        match character {
            '"' | '\'' => self.skip_string(character),
            '`' => self.skip_text(),
            '{' => self.interpolations.last_mut().into_iter().for_each(|open| *open += 1),
            '}' => return self.close(),
            _ => {}
        }
        if !character.is_whitespace() {
            self.last = Some(character);
        }
    }

    /// A closing brace ends a block, or an interpolation and thereby goes back to its text.
    fn close(&mut self) {
        match self.interpolations.last_mut() {
            Some(0) => {
                self.interpolations.pop();
                self.skip_text();
                self.last = Some('`');
            }
            Some(open) => *open -= 1,
            None => {}
        }
    }

    fn skip_to(&mut self, end: &str) {
        let found = self.rest.find(end).map_or(self.rest.len(), |at| at + end.len());
        self.rest = &self.rest[found..];
    }

    /// Block comments nest.
    fn skip_block_comment(&mut self) {
        let mut open = 0;
        while let Some(at) = self.rest.find(['/', '*']) {
            self.rest = &self.rest[at..];
            if self.rest.starts_with("/*") {
                open += 1;
            } else if self.rest.starts_with("*/") {
                open -= 1;
            } else {
                self.rest = &self.rest[1..];
                continue;
            }
            self.rest = &self.rest[2..];
            if open == 0 {
                return;
            }
        }
        self.rest = "";
    }

    fn skip_string(&mut self, quote: char) {
        let mut characters = self.rest.chars();
        while let Some(character) = characters.next() {
            if character == '\\' {
                characters.next();
            } else if character == quote {
                break;
            }
        }
        self.rest = characters.as_str();
    }

    /// Text in backticks, up to its end or to code inside of it.
    fn skip_text(&mut self) {
        while let Some(at) = self.rest.find(['`', '$']) {
            self.rest = &self.rest[at..];
            if self.rest.starts_with("${") {
                self.rest = &self.rest[2..];
                self.interpolations.push(0);
                return;
            }
            let ends = self.rest.starts_with('`');
            self.rest = &self.rest[1..];
            if ends {
                return;
            }
        }
        self.rest = "";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_semicolon_at_the_end_silences_and_one_inside_does_not() {
        for silent in
            ["1;", "1; // done", "1; /* a /* b */ c */ \n", "if x { y; }", "`a${b;}`;", "let s = \";\";", "';';"]
        {
            assert!(is_silent(silent), "{silent}");
        }
        for shown in
            ["", "1", "1; 2", "#{a: 1}", "\"a;\"", "`a;`", "`a${b;}`", "';'", "1 // ;", "1 /* ; */", "`${ `x;` }`"]
        {
            assert!(!is_silent(shown), "{shown}");
        }
    }
}
