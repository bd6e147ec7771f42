//! Colours for what is typed, piece by piece.

use crate::script::reading::{self, Kind};

/// The text with colours.
pub(super) fn paint(text: &str) -> String {
    let pieces = reading::pieces(text);
    let ends = pieces.iter().skip(1).map(|piece| piece.start).chain([text.len()]);
    let mut painted = text[..pieces.first().map_or(text.len(), |piece| piece.start)].to_owned();
    for (piece, end) in pieces.iter().zip(ends) {
        let part = &text[piece.start..end];
        match colour(piece.kind) {
            Some(colour) => painted.push_str(&format!("\x1b[{colour}m{part}\x1b[0m")),
            None => painted.push_str(part),
        }
    }
    painted
}

fn colour(kind: Kind) -> Option<u8> {
    match kind {
        Kind::Keyword => Some(35),
        Kind::Text => Some(32),
        Kind::Number => Some(33),
        Kind::Comment => Some(90),
        Kind::Wrong => Some(31),
        Kind::Name | Kind::Sign => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::super::complete::{Words, complete};
    use super::*;

    fn without_colours(painted: &str) -> String {
        let mut plain = String::new();
        for (index, part) in painted.split("\x1b[").enumerate() {
            plain.push_str(if index == 0 { part } else { part.split_once('m').unwrap().1 });
        }
        plain
    }

    proptest! {
        #[test]
        fn whatever_is_typed_is_painted_and_completed(
            pieces in vec(select(vec![
                "`", "${", "}", "{", "#{", "\"", "'", "/*", "*/", "//", "\n", "\\", "é", "§", "let ", "x", "1", "0x", "1.", "..",
                "\t", "\r\n", " ", "(", "cdp(", ",", "\"Page.navigate\"", "$", "#", "##\"", "r#", "\0", "~", "@", "import \"",
            ]), 0..24)
        ) {
            let text = pieces.concat();

            prop_assert_eq!(without_colours(&paint(&text)), text.as_str());
            let (start, _) = complete(&text, &Words::default());
            prop_assert!(text.is_char_boundary(start));
            reading::is_complete(&text);
            reading::imports(&text);
        }
    }

    #[test]
    fn colours_change_nothing_but_colours() {
        for text in [
            "",
            "  let x = \"é ${\"; // no\nf(`a${x + 1}b ${y}`, 'c') § ",
            "\"open",
            "`open ${ 1",
            "/* open",
            "1 /*",
            ":status",
            "é",
            "}}",
        ] {
            let painted = paint(text);

            assert_eq!(without_colours(&painted), text);
        }
        assert_eq!(paint("let x = 1"), "\x1b[35mlet \x1b[0mx = \x1b[33m1\x1b[0m");
    }
}
