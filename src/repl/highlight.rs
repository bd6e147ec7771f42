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
    use super::*;

    #[test]
    fn colours_change_nothing_but_colours() {
        for text in [
            "",
            "  let x = \"é ${\"; // no\nf(`a${x + 1}b ${y}`, 'c') § ",
            "\"open",
            "`open ${ 1",
            ":status",
            "é",
            "}}",
        ] {
            let painted = paint(text);

            let mut plain = String::new();
            for (index, part) in painted.split("\x1b[").enumerate() {
                plain.push_str(if index == 0 { part } else { part.split_once('m').unwrap().1 });
            }
            assert_eq!(plain, text);
        }
        assert_eq!(paint("let x = 1"), "\x1b[35mlet \x1b[0mx = \x1b[33m1\x1b[0m");
    }
}
