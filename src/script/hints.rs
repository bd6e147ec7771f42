//! What to type next: for errors of the language, and for habits from Python and JavaScript.
//!
//! A hint is a guess from the error and its source line. It never changes what happens.

use rhai::{EvalAltResult, ParseErrorType, Position};

use super::api::SIGNATURES;
use super::calls::{Called, calls, has_word};
use super::engine::Source;

/// The language's own functions, for guesses; the engine does not list them.
const LANGUAGE: &str = "\
    abs acos all append as_string asin atan bits blob bytes call ceiling chars chop clear contains cos crop \
    curry debug dedup drain elapsed end ends_with exit exp extract fill_with filter find find_map floor \
    for_each fraction get get_bit get_bits hypot index_of insert is_anonymous is_def_fn is_def_var is_empty \
    is_even is_finite is_infinite is_nan is_odd is_shared is_zero keys len ln log make_lower make_upper map \
    max merge min mixin order order_by order_desc pad parse_float parse_int parse_json pop push range reduce \
    reduce_rev remove replace retain reverse round set shift sign sin some sort sort_by sort_desc splice \
    split split_at split_rev sqrt start starts_with sub_string take tan timestamp to_array to_binary to_blob \
    to_chars to_debug to_float to_hex to_int to_json to_lower to_octal to_string to_upper trim truncate \
    type_of values zip";

/// The names of the language's own functions.
#[cfg(test)]
pub fn language_names() -> impl Iterator<Item = &'static str> {
    LANGUAGE.split_ascii_whitespace()
}

/// All functions that can be called: the primitives and the language's own.
pub fn function_names<'a>() -> impl Iterator<Item = &'a str> {
    SIGNATURES.iter().map(|(name, _)| *name).chain(LANGUAGE.split_ascii_whitespace())
}

/// Whether every script has a function of that name.
pub fn is_function(name: &str) -> bool {
    function_names().any(|known| known == name)
}

/// What a person calls a type of the language, with its article.
pub fn kind(type_name: &str) -> &str {
    match type_name {
        "()" => "nothing `()`",
        "bool" => "true or false",
        "i64" | "INT" => "an integer",
        "f64" | "FLOAT" => "a float",
        "char" => "a character",
        "string" | "&str | ImmutableString | String" => "a string",
        "array" => "an array",
        "map" => "a map",
        "blob" => "a blob",
        "Fn" => "a function",
        "timestamp" => "a timestamp",
        "range" | "range=" => "a range",
        other if other.contains("Range") => "a range",
        other if other.ends_with("Expectation") => "an expectation",
        other if other == "secret" || other.ends_with("::Veiled") => "a secret",
        other => other,
    }
}

/// The candidate that `name` was most probably meant to be.
pub fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let lower = name.to_lowercase();
    // Two slips in a long name, one in a short one.
    let allowed = if lower.chars().count() > 5 { 2 } else { 1 };
    candidates
        .filter(|candidate| *candidate != name)
        .map(|candidate| (distance(&lower, &candidate.to_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min()
        .map(|(_, candidate)| candidate)
}

/// How many letters must be put in, taken out, changed or swapped with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let changed = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = changed.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

/// A message better than the language's own.
pub fn message(error: &EvalAltResult) -> Option<String> {
    match error {
        EvalAltResult::ErrorFunctionNotFound(signature, _) => {
            let (name, arguments) = split_signature(signature);
            let known = signatures(name).is_some() || function_names().any(|known| known == name);
            Some(match (is_operator(name), known) {
                (true, _) | (_, true) => format!("`{name}` does not take ({arguments})"),
                _ => format!("there is no function `{name}`"),
            })
        }
        EvalAltResult::ErrorVariableNotFound(name, _) => Some(format!("there is no variable `{name}`")),
        EvalAltResult::ErrorDotExpr(said, _) => {
            let mut quoted = said.split('\'').skip(1).step_by(2);
            let (name, of) = (quoted.next()?, quoted.next()?);
            Some(format!("{} has no property `{name}`", kind(of)))
        }
        EvalAltResult::ErrorStackOverflow(_) => Some("calls nested deeper than 64 levels".to_owned()),
        EvalAltResult::ErrorDataRace(..) => {
            Some("a function uses the very value that it was called on, which is in use".to_owned())
        }
        _ => None,
    }
}

/// The hint for an error while the script ran.
pub fn for_error(error: &EvalAltResult, line: &str, source: &Source) -> Option<String> {
    if found_nothing(error)
        && let Some(name) = changed_in_place(line, source)
    {
        return Some(in_place(name));
    }
    match error {
        EvalAltResult::ErrorFunctionNotFound(signature, _) => for_function(signature, line, source),
        EvalAltResult::ErrorVariableNotFound(name, _) => for_variable(name, source),
        EvalAltResult::ErrorStackOverflow(_) => Some("use a loop instead of a function that calls itself".to_owned()),
        EvalAltResult::ErrorDataRace(..) => {
            Some("let it work on a copy: `let copy = x; copy.map(|item| …)`".to_owned())
        }
        EvalAltResult::ErrorFor(_) => {
            Some("`for` takes an array, a string, a range `0..10`, or `map.keys()`".to_owned())
        }
        EvalAltResult::ErrorMismatchDataType(wanted, seen, _) if wanted == "bool" => {
            Some(format!("a condition must be true or false: compare {} with something", kind(seen)))
        }
        EvalAltResult::ErrorMismatchDataType(wanted, seen, _) if wanted == "string" && seen == "char" => {
            Some(CHARACTER.to_owned())
        }
        EvalAltResult::ErrorIndexingType(seen, _) if seen.starts_with("()") => Some(NOTHING.to_owned()),
        EvalAltResult::ErrorDotExpr(said, _) if said.contains("'()'") => Some(NOTHING.to_owned()),
        _ => None,
    }
}

const NOTHING: &str =
    "a map gives `()` for a key that it does not have: look at what is there with `print(map.keys())`";

/// Where an error is that does not say so, if the source leaves one place for it: a call on a variable that its own
/// arguments use is refused before the engine knows where it is.
pub fn place(error: &EvalAltResult, source: &Source) -> Option<Position> {
    let EvalAltResult::ErrorDataRace(said, _) = error else { return None };
    let name = said.split('\'').nth(1)?;
    let uses_itself = |call: &Called<'_>| call.on().is_some_and(|on| has_word(call.arguments, on));
    let (mut all, mut its) = (calls(source.text(), name), calls(source.text(), name).filter(uses_itself));
    let call = match (its.next(), its.next()) {
        (Some(call), None) => call,
        (None, _) => all.next().filter(|_| all.next().is_none())?,
        _ => return None,
    };
    source.position(call.at)
}

/// Functions that change what they are called on, and return nothing.
const IN_PLACE: &[(&str, &str)] = &[
    ("append", "value"),
    ("chop", "array"),
    ("clear", "value"),
    ("crop", "string"),
    ("dedup", "array"),
    ("fill_with", "map"),
    ("insert", "array"),
    ("make_lower", "string"),
    ("make_upper", "string"),
    ("mixin", "map"),
    ("pad", "value"),
    ("push", "array"),
    ("replace", "string"),
    ("reverse", "array"),
    ("sort", "array"),
    ("sort_by", "array"),
    ("sort_desc", "array"),
    ("splice", "array"),
    ("trim", "string"),
    ("truncate", "value"),
];

fn in_place(name: &str) -> String {
    let of = IN_PLACE.iter().find(|(known, _)| *known == name).map_or("value", |(_, of)| *of);
    format!("`{name}` changes its {of} in place and returns nothing: `x.{name}(…);` then use `x`")
}

/// Whether the error may be that a `()` was there for something else.
fn found_nothing(error: &EvalAltResult) -> bool {
    match error {
        EvalAltResult::ErrorFunctionNotFound(signature, _) => split_signature(signature).1.contains("nothing"),
        EvalAltResult::ErrorMismatchDataType(_, seen, _) => seen == "()",
        EvalAltResult::ErrorIndexingType(seen, _) => seen.starts_with("()"),
        EvalAltResult::ErrorDotExpr(said, _) => said.contains("'()'"),
        EvalAltResult::ErrorFor(_) => true,
        _ => false,
    }
}

/// The function whose missing result a line uses: it goes on with the call itself, or with a variable that got it.
fn changed_in_place(line: &str, source: &Source) -> Option<&'static str> {
    let names = || IN_PLACE.iter().map(|(name, _)| *name);
    let gone_on_with = names().find(|name| calls(line, name).any(|call| call.is_gone_on_with()));
    gone_on_with.or_else(|| {
        names().find(|name| {
            let given = calls(source.text(), name).filter_map(|call| call.given_to());
            given.into_iter().any(|variable| has_word(line, variable))
        })
    })
}

fn for_function(signature: &str, line: &str, source: &Source) -> Option<String> {
    let (name, arguments) = split_signature(signature);
    if let Some(forms) = signatures(name) {
        return Some(format!("`{name}` takes {}", forms.join(" or ")));
    }
    if is_operator(name) {
        return for_operator(name, &arguments, line);
    }
    if let Some(hint) = foreign_function(name) {
        return Some(hint.to_owned());
    }
    if function_names().any(|known| known == name) {
        return Some(format!("`{name}` exists, with other arguments"));
    }
    let candidates = function_names().chain(own_names(source, "fn"));
    nearest(name, candidates).map(|near| format!("did you mean `{near}`?"))
}

fn for_operator(name: &str, arguments: &str, line: &str) -> Option<String> {
    if arguments.contains("character") {
        return Some(CHARACTER.to_owned());
    }
    if arguments.contains("nothing") {
        return Some("one side is `()`: nothing was found or returned there".to_owned());
    }
    // `+=` that is not there is tried once more as `+`.
    let plain = name.trim_end_matches('=');
    let (left, right) = arguments.split_once(", ").unwrap_or((arguments, arguments));
    match (plain, left, right) {
        ("+", "an array", _) => Some("an array takes another one: `a + [x]`, or `a.push(x);`".to_owned()),
        ("+", "a map", _) => Some("a map takes another one: `m + #{key: x}`, or `m.key = x;`".to_owned()),
        ("|" | "&" | "^" | "<<" | ">>", ..) if is_number(left) && is_number(right) => {
            Some("make both sides integers: `x.to_int()`".to_owned())
        }
        (_, "a string", other) | (_, other, "a string") if other == "a string" || is_number(other) => {
            Some(text_as_number(plain, left, line))
        }
        _ => None,
    }
}

fn is_number(kind: &str) -> bool {
    matches!(kind, "an integer" | "a float")
}

/// A text where a number is wanted is the one thing that can be made of another kind.
fn text_as_number(operator: &str, left: &str, line: &str) -> String {
    let hint = "make the text a number: `parse_int(text)`, `parse_float(text)`";
    if left == "a string" && line.contains(&format!("{operator}=")) {
        return format!("`{operator}=` keeps the kind of its left side; {hint}");
    }
    hint.to_owned()
}

const CHARACTER: &str = "`'x'` is a character in Rhai; a string has double quotes: \"x\"";

const NO_ENVIRONMENT: &str = "a script has no environment: what it is given is in `args` and `secret(name)`";

fn foreign_function(name: &str) -> Option<&'static str> {
    Some(match name {
        "console" | "log" | "println" | "echo" => "output is `print(x)`",
        "str" | "String" => "a value's text is `x.to_string()`",
        "int" | "parseInt" | "Number" => "a number from text is `parse_int(text)`",
        "float" | "parseFloat" => "a number from text is `parse_float(text)`",
        "length" | "size" | "count" => "the length is `x.len()`",
        "append" | "add" => "one more item is `array.push(x)`",
        "json" | "loads" | "parse" => "JSON is read by `json_parse(text)` and written by `json_stringify(x)`",
        "dumps" | "stringify" => "JSON is written by `json_stringify(x)`",
        "open" | "goto" | "navigate" => "a page is opened by `cdp(\"Page.navigate\", #{url: …}, ensure_page())`",
        "setTimeout" | "wait" => "`sleep(seconds)` waits, `wait_event(method)` waits for the browser",
        "fetch" | "document" => "the page's own functions are reached through `js(\"…\")`",
        "join" => "an array becomes text by a loop, or in the page: `js(\"….join(',')\")`",
        "substring" | "slice" | "substr" => "a part of a string is `text.sub_string(start, length)`",
        "includes" | "has" | "has_key" | "hasOwnProperty" => "`x in array_or_map`, or `.contains(x)`",
        "toUpperCase" | "upper" => "upper case is `text.to_upper()`",
        "toLowerCase" | "lower" => "lower case is `text.to_lower()`",
        "env" | "getenv" | "environ" => NO_ENVIRONMENT,
        "strip" => "`text.trim()` trims in place",
        _ => return None,
    })
}

/// The hint for a variable that is not there.
fn for_variable(name: &str, source: &Source) -> Option<String> {
    if let Some(hint) = foreign_word(name) {
        return Some(hint.to_owned());
    }
    let names = own_names(source, "let");
    let constants = own_names(source, "const");
    if let Some(constant) = name.strip_prefix("global::") {
        return Some(for_constant(constant, &constants));
    }
    if names.contains(&name) || constants.contains(&name) {
        return Some(format!(
            "a function does not see the variables around it: pass `{name}` as an argument, or use `global::{name}` where it is a `const` of this script"
        ));
    }
    let parameters = ["args"];
    let candidates = names.into_iter().chain(constants).chain(parameters);
    match nearest(name, candidates) {
        Some(near) => Some(format!("did you mean `{near}`?")),
        None if function_names().any(|known| known == name) => Some(format!("to call the function: `{name}(…)`")),
        None => nearest(name, function_names()).map(|near| format!("did you mean `{near}(…)`?")),
    }
}

/// The hint for a `global::NAME` that is not there. The language knows those of the script that runs, and at the prompt
/// that is one input.
fn for_constant(name: &str, constants: &[&str]) -> String {
    if !constants.contains(&name)
        && let Some(near) = nearest(name, constants.iter().copied())
    {
        return format!("did you mean `global::{near}`?");
    }
    format!(
        "`global::{name}` is there once the same script, at the prompt the same input, has run `const {name} = …;`: pass \
         it as an argument, or let a function give it: `fn {name}() {{ … }}`"
    )
}

fn foreign_word(name: &str) -> Option<&'static str> {
    Some(match name {
        "NaN" | "Infinity" => "they are `0.0/0.0` and `1.0/0.0`; to ask for them: `x.is_nan()`, `x.is_infinite()`",
        "None" | "undefined" | "nil" => "nothing is `()` in Rhai: `if x == () { … }`",
        "True" => "it is `true`",
        "False" => "it is `false`",
        "document" | "window" | "location" | "console" => {
            "the page is reached through `js(\"…\")`, and output is `print(x)`"
        }
        "process" | "env" | "os" | "sys" => NO_ENVIRONMENT,
        "math" | "Math" => "the functions stand alone: `sqrt(x)`, `floor(x)`, `min(a, b)`",
        "JSON" => "JSON is read by `json_parse(text)` and written by `json_stringify(x)`",
        "def" | "function" | "lambda" => "a function is `fn name(a, b) { … }`, or in place `|a, b| …`",
        "f" => F_STRING,
        _ => return None,
    })
}

const F_STRING: &str = "text with values in it is written in backticks: `total: ${n}`";

/// The hint for a source that does not parse.
pub fn for_syntax(error: &ParseErrorType, line: &str, source: &Source) -> Option<String> {
    if let ParseErrorType::VariableUndefined(name) = error {
        return for_undefined(name, line, source);
    }
    if let ParseErrorType::Reserved(word) = error {
        return reserved(word).or_else(|| for_line(line)).or_else(|| {
            Some(format!(
                "`{word}` cannot be a name here; as a key it is quoted: `m[\"{word}\"]`, `#{{\"{word}\": 1}}`"
            ))
        });
    }
    if let Some(hint) = for_line(line) {
        return Some(hint);
    }
    match error {
        ParseErrorType::BadInput(_) if line.contains("eval") => reserved("eval"),
        ParseErrorType::BadInput(_) if line.contains('\'') => Some(CHARACTER.to_owned()),
        ParseErrorType::ExprTooDeep => Some("split the expression: give its parts names with `let`".to_owned()),
        ParseErrorType::UnexpectedEOF => {
            Some("the end is missing: a value, or what closes a `{`, `(` or `[`".to_owned())
        }
        ParseErrorType::MissingToken(token, _) if has_bare_map(line) || token == "}" && line.contains(':') => {
            Some(MAP.to_owned())
        }
        ParseErrorType::MissingToken(token, _) if token == ";" => Some("statements end with `;`".to_owned()),
        ParseErrorType::AssignmentToConstant(name) => {
            Some(format!("`{name}` is a constant; a variable is `let {name} = …`"))
        }
        ParseErrorType::MismatchedType(wanted, _) if wanted.contains("bool") => {
            Some("a condition must be true or false: compare with something, as in `x != ()` or `n > 0`".to_owned())
        }
        ParseErrorType::WrongFnDefinition => {
            Some("inside a function or block use a closure: `let f = |x| …;`".to_owned())
        }
        _ => None,
    }
}

/// A name that is not known may be a word of another language, which the line around it tells.
fn for_undefined(name: &str, line: &str, source: &Source) -> Option<String> {
    let is_key = ["{", "{ "].iter().any(|open| line.contains(&format!("{open}{name}:")));
    if is_key {
        return Some(MAP.to_owned());
    }
    let is_statement = ["import ", "from ", "def ", "elif "].iter().any(|word| line.trim_start().starts_with(word));
    if is_statement || matches!(name, "not" | "and" | "or") {
        return for_line(line);
    }
    for_variable(name, source)
}

const MAP: &str = "a map is `#{a: 1}`, with a `#`";

/// `{a: 1}` or `{"a": 1}`, without a `#`.
fn has_bare_map(line: &str) -> bool {
    let is_key = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || "_\"'".contains(c));
    line.match_indices('{').any(|(at, _)| {
        let key = line[at + 1..].split_once(':').map(|(key, _)| key.trim());
        !line[..at].ends_with(['#', '$']) && key.is_some_and(is_key)
    })
}

fn reserved(word: &str) -> Option<String> {
    Some(match word {
        "null" | "nil" => "nothing is `()` in Rhai: `if x == () { … }`".to_owned(),
        "await" => "`cdp` and `js` wait by themselves; `await` belongs inside the text of `js(\"await …\")`".to_owned(),
        "async" | "spawn" | "thread" => "a script runs straight on; to send at once there is `cdp_all([…])`".to_owned(),
        "new" => {
            "there is no `new`: a map is `#{}`, an array `[]`, and objects of the page are made in `js(\"new …\")`"
                .to_owned()
        }
        "var" => "a variable is `let x = …;`".to_owned(),
        "match" | "case" => "it is `switch x { 1 => …, _ => … }`".to_owned(),
        "default" => "the last arm of a `switch` is `_ => …`; as a key it is quoted: `m[\"default\"]`".to_owned(),
        "eval" => "there is no `eval`; code for the page goes to `js(\"…\")`".to_owned(),
        "is" => "equality is `==`, and a kind is `type_of(x) == \"map\"`".to_owned(),
        "void" | "void 0" => "nothing is `()`".to_owned(),
        _ => return None,
    })
}

/// Habits that show in the line, whatever the parser tripped over.
fn for_line(line: &str) -> Option<String> {
    let code = line.trim_start();
    let starts = |word: &str| code.strip_prefix(word).is_some_and(|rest| rest.starts_with([' ', '(']));
    let hint = if starts("def") || starts("function") {
        "a function is `fn name(a, b) { … }`"
    } else if starts("import") && !code.contains('"') || starts("from") {
        "there are no such modules; `import \"name\" as name;` loads a helper module"
    } else if starts("var") {
        "a variable is `let x = …;`"
    } else if starts("elif") || code.contains("} elif ") {
        "it is `else if`"
    } else if starts("await") || code.contains("= await ") {
        "`cdp` and `js` wait by themselves; `await` belongs inside the text of `js(\"await …\")`"
    } else if code.contains("= new ") {
        "there is no `new`: objects of the page are made in `js(\"new …\")`"
    } else if code.contains("f\"") || code.contains("f'") {
        F_STRING
    } else if code.contains("= try") || code.contains("=try") {
        "`try` is a statement without a value: set a variable inside it"
    } else if code.contains("=== ") || code.contains("!== ") {
        "equality is `==`, and its opposite `!=`"
    } else if starts("for") && for_hint(code).is_some() {
        for_hint(code)?
    } else if code.contains(" and ") || code.contains(" or ") || code.contains("not ") {
        "the words are `&&`, `||` and `!`"
    } else if has_long_character(code) {
        CHARACTER
    } else {
        return None;
    };
    Some(hint.to_owned())
}

/// `for (v, k) in map`, `for k, v in map`, `for (const x of …)`.
fn for_hint(code: &str) -> Option<&'static str> {
    if code.contains(" of ") || code.contains("(let ") || code.contains("(const ") || code.contains("++") {
        return Some("it is `for x in array { … }`, or `for i in 0..10 { … }`");
    }
    let head = code.split(" in ").next()?;
    (head.contains(',')).then_some(
        "`for (x, i) in array` counts along; the keys and values of a map are `for key in map.keys() { let value = map[key]; … }`",
    )
}

/// `'more than one character'`.
fn has_long_character(code: &str) -> bool {
    let mut parts = code.split('\'');
    parts.next();
    parts.next().is_some_and(|inside| inside.chars().count() > 1 && !inside.starts_with('\\'))
}

/// The names that the script itself declares after `word`.
fn own_names<'a>(source: &'a Source, word: &str) -> Vec<&'a str> {
    let is_part = |character: char| character.is_alphanumeric() || character == '_';
    let mut names = Vec::new();
    for (start, _) in source.text().match_indices(word) {
        let rest = &source.text()[start + word.len()..];
        let Some(rest) = rest.strip_prefix(' ') else { continue };
        let rest = rest.trim_start();
        let name = &rest[..rest.find(|character| !is_part(character)).unwrap_or(rest.len())];
        if !name.is_empty() && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// `foo (i64, map)` as the name and what a person calls the arguments.
fn split_signature(signature: &str) -> (&str, String) {
    let (name, arguments) = signature.split_once(" (").unwrap_or((signature, ""));
    let arguments = arguments.strip_suffix(')').unwrap_or(arguments);
    // The unit type is written as `()` and has lost its half where it stood last.
    let arguments = if arguments.ends_with('(') { format!("{arguments})") } else { arguments.to_owned() };
    let kinds: Vec<&str> = arguments.split(", ").filter(|text| !text.is_empty()).map(kind).collect();
    (name, kinds.join(", "))
}

fn signatures(name: &str) -> Option<&'static [&'static str]> {
    SIGNATURES.iter().find(|(known, _)| *known == name).map(|(_, forms)| *forms)
}

fn is_operator(name: &str) -> bool {
    !name.starts_with(|first: char| first.is_alphabetic() || first == '_')
}
