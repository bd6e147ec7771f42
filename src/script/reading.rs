//! What a text is before it runs: whether it is complete, what its pieces are, which names it could go on with.
//!
//! Asked while somebody types, so nothing here runs a script or asks a browser. The pieces are those of the
//! language's own lexer.

use rhai::{Engine, LexError, ParseError, ParseErrorType, Position, Token};

use super::engine;
use super::hints;
use super::host::on_own_thread;

/// The words of the language that are worth completing.
const KEYWORDS: &[&str] = &[
    "break", "catch", "const", "continue", "do", "else", "false", "for", "if", "import", "in", "let", "loop", "return",
    "switch", "throw", "true", "try", "while",
];

/// Whether a text can be run as it is, or is wrong however it goes on; false where more of it is to come.
pub fn is_complete(text: &str) -> bool {
    // The parser recurses as deep as the text nests.
    on_own_thread(|_| !ends_too_early(text)).unwrap_or(true)
}

fn ends_too_early(text: &str) -> bool {
    let mut engine = engine::limited();
    // What is known is for later: here only the end matters.
    engine.set_strict_variables(false);
    match engine.compile(text) {
        Ok(_) => ends_in_comment(&engine, text),
        Err(error) => is_for_want_of_more(&error, text),
    }
}

fn ends_in_comment(engine: &Engine, text: &str) -> bool {
    let input = [text];
    let (mut tokens, _control) = engine.lex(&input);
    // The lexer's iterator goes on for ever with `EOF`.
    while tokens.next().is_some_and(|(token, _)| token != Token::EOF) {}
    tokens.state.comment_level > 0
}

fn is_for_want_of_more(error: &ParseError, text: &str) -> bool {
    match error.err_type() {
        ParseErrorType::UnexpectedEOF => true,
        ParseErrorType::BadInput(LexError::UnterminatedString) => match offset(text, error.position()) {
            // A string in quotes ends with its line, unless it says otherwise.
            Some(start) if text[start..].starts_with(['"', '\'']) => text.trim_end_matches('\n').ends_with('\\'),
            _ => true,
        },
        _ => error.position() == end_of(text),
    }
}

/// Where the parser is when it has read everything.
fn end_of(text: &str) -> Position {
    let last = text.rsplit('\n').next().unwrap_or_default();
    let (line, column) = (text.matches('\n').count() + 1, last.chars().count() + 1);
    match (u16::try_from(line), u16::try_from(column)) {
        (Ok(line), Ok(column)) => Position::new(line, column),
        _ => Position::NONE,
    }
}

/// What a piece of text is to a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A word of the language.
    Keyword,
    /// A string or a character.
    Text,
    /// A number.
    Number,
    /// A comment.
    Comment,
    /// A name.
    Name,
    /// Something that can be in no script.
    Wrong,
    /// All else.
    Sign,
}

/// One piece of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// What it is.
    pub kind: Kind,
    /// Where it begins, in bytes. It goes on to the next one.
    pub start: usize,
}

/// The pieces of a text, in order.
pub fn pieces(text: &str) -> Vec<Piece> {
    let engine = engine::limited();
    let input = [text];
    let (mut tokens, control) = engine.lex(&input);
    tokens.state.include_comments = true;
    let mut pieces: Vec<Piece> = Vec::new();
    let mut open = Vec::new();
    // A token has at least a byte; the lexer itself may go on for ever.
    for _ in 0..text.len() {
        let Some((token, position)) = tokens.next() else { break };
        let Some(start) = offset(text, position).filter(|_| token != Token::EOF) else { break };
        match token {
            Token::InterpolatedString(_) => open.push(0),
            Token::LeftBrace | Token::MapStart => open.last_mut().into_iter().for_each(|depth| *depth += 1),
            Token::RightBrace => {
                open.last_mut().into_iter().for_each(|depth| *depth -= 1);
                // The parser would say so: after the code in a text comes more text.
                if open.last() == Some(&0) {
                    open.pop();
                    control.borrow_mut().is_within_text = true;
                }
            }
            _ => {}
        }
        // A string that its line ends before it does is told with a place further on.
        let last = pieces.last().map_or(0, |last| last.start);
        pieces.push(Piece { kind: kind(&token), start: start.max(last) });
        // The lexer tells a comment that nothing ends again and again.
        if tokens.state.comment_level > 0 {
            break;
        }
    }
    pieces
}

fn kind(token: &Token) -> Kind {
    match token {
        Token::StringConstant(_) | Token::InterpolatedString(_) | Token::CharConstant(_) => Kind::Text,
        Token::IntegerConstant(_) | Token::FloatConstant(_) => Kind::Number,
        Token::Comment(_) => Kind::Comment,
        Token::Identifier(_) => Kind::Name,
        Token::LexError(error) if matches!(**error, LexError::UnterminatedString) => Kind::Text,
        Token::LexError(_) | Token::Reserved(_) => Kind::Wrong,
        token if token.literal_syntax().starts_with(|c: char| c.is_ascii_alphabetic()) => Kind::Keyword,
        _ => Kind::Sign,
    }
}

/// The byte at a position of the lexer, which counts lines and characters from 1.
fn offset(text: &str, position: Position) -> Option<usize> {
    let (line, column) = (position.line()?, position.position().unwrap_or(1));
    let start = text.split_inclusive('\n').take(line - 1).map(str::len).sum::<usize>();
    let within = text.get(start..)?;
    Some(start + within.char_indices().nth(column - 1).map_or(within.len(), |(at, _)| at))
}

/// The names that a text defines: variables, constants, functions, modules.
pub fn defined(text: &str) -> Vec<String> {
    let engine = engine::limited();
    let input = [text];
    let (tokens, _control) = engine.lex(&input);
    let mut names = Vec::new();
    let mut defines = false;
    for (token, _) in tokens {
        if token == Token::EOF {
            break;
        }
        let is_next = matches!(token, Token::Let | Token::Const | Token::Fn | Token::As | Token::For);
        if let Token::Identifier(name) = token
            && defines
        {
            names.push(name.to_string());
        }
        defines = is_next;
    }
    names
}

/// The imports of a text that are none of a block's, each with its semicolon.
pub fn imports(text: &str) -> Vec<String> {
    let engine = engine::limited();
    let input = [text];
    let (tokens, _control) = engine.lex(&input);
    let (mut found, mut depth, mut open) = (Vec::new(), 0, None);
    for (token, position) in tokens {
        match token {
            Token::Import if depth == 0 => open = offset(text, position),
            Token::LeftBrace | Token::MapStart => depth += 1,
            Token::RightBrace => depth -= 1,
            Token::SemiColon | Token::EOF => {
                let end = offset(text, position).unwrap_or(text.len());
                let statement = open.take().and_then(|start: usize| text.get(start..end));
                found.extend(statement.map(|statement| statement.trim_end().to_owned() + ";"));
            }
            _ => {}
        }
        if token == Token::EOF {
            break;
        }
    }
    found
}

/// Every name that a script can begin a word with, in order: functions and words of the language.
pub fn names() -> Vec<&'static str> {
    let mut names: Vec<_> = hints::function_names().chain(KEYWORDS.iter().copied()).chain(["args", "fn"]).collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_complete_once_nothing_is_open() {
        for open in [
            "1 +",
            "let x =",
            "fn f()",
            "fn f() {",
            "if x",
            "if x {\n 1",
            "foo(1,\n",
            "[1,\n2",
            "#{a: 1",
            "`a\nb",
            "`a${x",
            "`a${x} b\nc",
            "/* x",
            "1 /* x\n",
            "x.",
            "try { 1 }",
            "do { 1 }",
            "switch x { 1 => ",
            "\"a\\\n",
            "1 + // c",
            "let f = |x| {",
            "cdp(\"Page.navigate\", #{",
        ] {
            assert!(!is_complete(open), "{open}");
        }
        for complete in [
            "",
            "1",
            "1;",
            "let x = 1",
            "fn f() { 1 }",
            "foo(1,\n2)",
            "`a\nb`",
            "/* x */",
            "// (",
            "\"a",
            "1 )",
            "let x = ;",
            "if x { 1 }",
            "unknown(y)",
            "f(1 2",
            "'(' + \"[{\"",
            "é",
        ] {
            assert!(is_complete(complete), "{complete}");
        }
    }

    #[test]
    fn every_piece_is_named_also_around_code_in_a_text() {
        let text = "let é = 1; // c\nf(`a${x + 1}b`, 'c', \"s\\n\") /* open";
        let pieces = pieces(&text.replace('é', "e"));

        let named: Vec<_> =
            pieces.iter().map(|piece| (piece.kind, &text.replace('é', "e")[piece.start..][..1] == " ")).collect();
        assert!(named.iter().all(|(_, blank)| !blank), "{pieces:?}");
        let kinds: Vec<_> = pieces.iter().map(|piece| piece.kind).collect();
        use Kind::{Comment, Keyword, Name, Number, Sign, Text};
        assert_eq!(
            kinds,
            [
                Keyword, Name, Sign, Number, Sign, Comment, Name, Sign, Text, Sign, Name, Sign, Number, Sign, Text,
                Sign, Text, Sign, Text, Sign, Comment
            ]
        );
    }

    #[test]
    fn what_a_line_defines_can_be_typed_on_the_next() {
        assert_eq!(
            imports("import \"a\" as a; { import \"b\" as b; } let x = 1; import \"c\" as c"),
            ["import \"a\" as a;", "import \"c\" as c;"]
        );
        assert_eq!(
            defined("let a = b; const C = 1; fn f(x) { let inner = x; } import \"m\" as m; for i in a { }"),
            ["a", "C", "f", "inner", "m", "i"]
        );
        assert!(names().contains(&"ensure_page") && names().contains(&"while"));
    }
}
