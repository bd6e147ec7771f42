//! A value as a person reads it: what fits on a line stays on one, what is long is cut.

/// How wide a value may be before it is spread over lines.
const WIDTH: usize = 80;
/// The most lines of a value.
const LINES: usize = 60;
/// The most bytes of a value.
const BYTES: usize = 8 << 10;

const NOTE: &str = "\n… shortened: `print` shows all of it, and a part is worth a variable";

/// JSON text, spread out. Text that is cut somewhere is taken as far as it goes.
pub(super) fn json(text: &str) -> String {
    let mut page = Page { text: String::new(), depth: 0, lines: 1 };
    let mut rest = text;
    while let Some(sign) = rest.chars().next() {
        let taken = page.write(sign, rest);
        rest = &rest[taken..];
        if page.is_full() {
            return page.cut();
        }
    }
    page.text
}

struct Page {
    text: String,
    depth: usize,
    lines: usize,
}

impl Page {
    /// Writes what `rest` begins with; gives how many bytes of it that was.
    fn write(&mut self, sign: char, rest: &str) -> usize {
        match sign {
            '{' | '[' => return self.open(sign, rest),
            '}' | ']' => {
                self.depth = self.depth.saturating_sub(1);
                self.new_line();
                self.text.push(sign);
            }
            ',' => {
                self.text.push(sign);
                self.new_line();
            }
            ':' => self.text.push_str(": "),
            '"' => {
                let length = string_length(rest);
                self.text.push_str(&rest[..length]);
                return length;
            }
            _ => self.text.push(sign),
        }
        sign.len_utf8()
    }

    fn open(&mut self, sign: char, rest: &str) -> usize {
        let column = self.text.len() - self.text.rfind('\n').map_or(0, |at| at + 1);
        if let Some((line, length)) = on_one_line(rest, WIDTH.saturating_sub(column)) {
            self.text.push_str(&line);
            return length;
        }
        self.text.push(sign);
        self.depth += 1;
        self.new_line();
        sign.len_utf8()
    }

    fn new_line(&mut self) {
        self.lines += 1;
        self.text.push('\n');
        self.text.extend(std::iter::repeat_n("  ", self.depth));
    }

    fn is_full(&self) -> bool {
        self.lines > LINES || self.text.len() > BYTES
    }

    fn cut(mut self) -> String {
        let end = (0..=self.text.len().min(BYTES)).rev().find(|&end| self.text.is_char_boundary(end));
        self.text.truncate(end.unwrap_or(0));
        self.text.truncate(self.text.trim_end().len());
        self.text + NOTE
    }
}

/// A list or map that fits into `room`, and how many bytes of `rest` it was.
fn on_one_line(rest: &str, room: usize) -> Option<(String, usize)> {
    let mut line = String::new();
    let mut depth = 0;
    let mut at = 0;
    while line.len() <= room {
        let sign = rest[at..].chars().next()?;
        let length = if sign == '"' { string_length(&rest[at..]) } else { sign.len_utf8() };
        line.push_str(&rest[at..at + length]);
        at += length;
        match sign {
            '{' | '[' => depth += 1,
            '}' | ']' => depth -= 1,
            ',' | ':' => line.push(' '),
            _ => {}
        }
        if depth == 0 {
            return (line.len() <= room).then_some((line, at));
        }
    }
    None
}

/// The length of the string that `rest` begins with, quotes and all.
fn string_length(rest: &str) -> usize {
    let mut is_escaped = false;
    let mut signs = rest.char_indices().skip(1);
    let end = signs.find(|&(_, sign)| {
        let ends = sign == '"' && !is_escaped;
        is_escaped = sign == '\\' && !is_escaped;
        ends
    });
    end.map_or(rest.len(), |(at, _)| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_on_a_line_stays_on_one() {
        for (text, expected) in [
            ("1", "1"),
            ("NaN", "NaN"),
            ("\"a: [b, \\\"c\"", "\"a: [b, \\\"c\""),
            ("[]", "[]"),
            ("{\"a\":[1,2,{\"b\":\"x,y\"}]}", "{\"a\": [1, 2, {\"b\": \"x,y\"}]}"),
        ] {
            assert_eq!(json(text), expected);
        }
    }

    #[test]
    fn what_does_not_is_spread_and_stays_the_same_value() {
        let text = format!("{{\"list\":[1,2],\"long\":\"{}\",\"empty\":{{}}}}", "é".repeat(60));

        let spread = json(&text);

        assert_eq!(spread.lines().count(), 5, "{spread}");
        assert!(spread.starts_with("{\n  \"list\": [1, 2],\n  \"long\""), "{spread}");
        let (before, after): (serde_json::Value, serde_json::Value) =
            (serde_json::from_str(&text).unwrap(), serde_json::from_str(&spread).unwrap());
        assert_eq!(before, after);
    }

    #[test]
    fn what_is_long_or_cut_off_ends_with_a_note() {
        let many = format!("[{}]", vec!["\"some text\""; 1000].join(","));
        let wide = format!("\"{}\"", "é".repeat(BYTES));
        for text in [&many, &wide, &many[..many.len() - 3]] {
            let short = json(text);

            assert!(short.ends_with(NOTE) && short.len() <= BYTES + NOTE.len(), "{short}");
            assert!(short.lines().count() <= LINES + 2);
        }
    }
}
