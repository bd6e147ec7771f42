//! Any script at all: soup of tokens, and soup that parses. Each ends in a value or an error, soon, and in no panic.

use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::api::SIGNATURES;
use super::hints::language_names;
use super::host::{Closed, Ended, Output, Script, run_without_browser};
use crate::cancel::Cancel;
use crate::wire::{FaultCode, Stream};

/// For how long soup is served.
const SERVED_FOR: Duration = Duration::from_secs(2);

/// How long one script may take beyond its deadline: what one native call may cost on a busy machine.
const SOON: Duration = Duration::from_secs(20);

const TOKENS: &[&str] = &[
    "let",
    "const",
    "fn",
    "if",
    "else",
    "while",
    "loop",
    "for",
    "in",
    "do",
    "until",
    "switch",
    "try",
    "catch",
    "throw",
    "return",
    "break",
    "continue",
    "import",
    "export",
    "as",
    "global",
    "this",
    "Fn",
    "call",
    "curry",
    "is_shared",
    "type_of",
    "true",
    "false",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "#{",
    "|",
    "||",
    "&&",
    "!",
    "=>",
    "=",
    "==",
    "!=",
    "<",
    ">",
    "<=",
    ">=",
    "+",
    "-",
    "*",
    "/",
    "%",
    "**",
    "<<",
    ">>",
    "&",
    "^",
    "+=",
    "-=",
    "*=",
    "??",
    "?.",
    "?[",
    ".",
    "..",
    "..=",
    ",",
    ";",
    ":",
    "::",
    "_",
    "`",
    "${",
    "\"",
    "'",
    "\\",
    "//",
    "/*",
    "*/",
    "a",
    "b",
    "f",
    "0",
    "1",
    "'x'",
    "\"s\"",
    "`${a}`",
    "9223372036854775807",
    "1e308",
    "0xff",
    "0.5",
    "é",
    "😀",
    "\n",
];

const LITERALS: &[&str] = &[
    "0",
    "1",
    "-1",
    "3",
    "1000",
    "9223372036854775807",
    "(-9223372036854775807 - 1)",
    "0.0",
    "0.5",
    "-1e308",
    "(0.0/0.0)",
    "(1.0/0.0)",
    "\"\"",
    "\"héllo\"",
    "'x'",
    "`${a}`",
    "()",
    "true",
    "false",
    "[]",
    "[1, 2, 3]",
    "#{}",
    "#{x: 1}",
    "blob(3)",
    "timestamp()",
    "0..3",
    "5..=-9",
    "0..9223372036854775807",
    "Fn(\"f\")",
    "|x| x",
    "|x, y| x",
    "|| this",
];

const OPERATORS: &[&str] =
    &["+", "-", "*", "/", "%", "**", "<<", ">>", "&", "|", "^", "==", "!=", "<", ">=", "&&", "||", "??", "in"];

/// Nobody reads it.
struct Nowhere;

impl Output for Nowhere {
    fn write(&self, _: Stream, _: &str) -> Result<(), Closed> {
        Ok(())
    }
}

fn tokens() -> impl Strategy<Value = String> {
    prop::collection::vec(select(TOKENS), 0..40).prop_map(|tokens| tokens.join(" "))
}

fn names() -> Vec<&'static str> {
    SIGNATURES.iter().map(|(name, _)| *name).chain(language_names()).collect()
}

fn expressions() -> impl Strategy<Value = String> {
    let leaf =
        prop_oneof![select(LITERALS).prop_map(str::to_owned), select(&["a", "b", "c"][..]).prop_map(str::to_owned)];
    leaf.prop_recursive(4, 24, 3, |inner| {
        let arguments = prop::collection::vec(inner.clone(), 0..4).prop_map(|arguments| arguments.join(", "));
        prop_oneof![
            (inner.clone(), select(OPERATORS), inner.clone()).prop_map(|(a, op, b)| format!("({a} {op} {b})")),
            (inner.clone(), select(names()), arguments.clone()).prop_map(|(a, name, b)| format!("({a}).{name}({b})")),
            (select(names()), arguments.clone()).prop_map(|(name, b)| format!("{name}({b})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a})[{b}]")),
            arguments.prop_map(|items| format!("[{items}]")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("#{{a: {a}, b: {b}}}")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("`${{{a}}} ${{{b}}}`")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("(|x| {{ a = {a}; {b} }}).call({a})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("switch {a} {{ 1 => {b}, _ => {a} }}")),
            (inner.clone(), inner).prop_map(|(a, b)| format!("if type_of({a}) == \"i64\" {{ {b} }} else {{ {a} }}")),
        ]
    })
}

fn statements() -> impl Strategy<Value = String> {
    let one = (select(&["a", "b", "c"][..]), expressions(), 0..7).prop_map(|(name, expression, kind)| match kind {
        0 => format!("{name} = {expression};"),
        1 => format!("{name} += {expression};"),
        2 => format!("for x in {expression} {{ {name} = x; }}"),
        3 => format!("try {{ {expression}; }} catch (e) {{ {name} = e; }}"),
        4 => format!("{name}[{expression}] = a;"),
        5 => format!("{name}.x = || {name}; {expression};"),
        _ => format!("{expression};"),
    });
    prop::collection::vec(one, 1..8)
        .prop_map(|lines| format!("fn f(x) {{ x }} let a = 1; let b = [1, 2]; let c = #{{}};\n{}", lines.join("\n")))
}

fn run(source: &str) -> Ended {
    let script = Script {
        source: source.to_owned(),
        origin: "soup".to_owned(),
        args: Vec::new(),
        cwd: std::env::temp_dir(),
        umask: 0o022,
        deadline: Some(Instant::now() + Duration::from_millis(50)),
    };
    run_without_browser(script, 16 << 20, Cancel::new(), Arc::new(Nowhere))
}

fn serve(soup: impl Strategy<Value = String>) {
    let mut runner = TestRunner::default();
    let until = Instant::now() + SERVED_FOR;
    while Instant::now() < until {
        let source = soup.new_tree(&mut runner).unwrap().current();
        let began = Instant::now();

        let fault = run(&source).fault;

        let is_clear =
            fault.as_ref().is_none_or(|fault| fault.code != FaultCode::Internal && !fault.message.is_empty());
        assert!(is_clear, "{source}\n{fault:?}");
        assert!(began.elapsed() < SOON, "{source}\ntook {:?}", began.elapsed());
    }
}

#[test]
fn soup_of_tokens_ends_in_a_clear_error() {
    serve(tokens());
}

#[test]
fn soup_of_calls_with_any_arguments_ends_in_a_clear_error() {
    serve(statements());
}
