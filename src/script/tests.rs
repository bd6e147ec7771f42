//! Scripts run whole, without a browser: what they give, what ends them, and what they are told.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::engine;
use super::host::{Closed, Ended, Output, Script, check, run_without_browser};
use crate::cancel::{Cancel, CancelReason};
use crate::wire::{Fault, FaultCode, Stream};

mod parallel;

/// What a script may hold here: enough for all but the hostile ones, which reach it soon.
const MEMORY: usize = 48 << 20;

/// Output kept in memory; a reader that goes away after so many lines.
#[derive(Default)]
struct Paper {
    text: Mutex<String>,
    ends_after: Option<usize>,
}

impl Output for Paper {
    fn write(&self, stream: Stream, text: &str) -> Result<(), Closed> {
        let mut all = self.text.lock().unwrap();
        if self.ends_after.is_some_and(|lines| all.lines().count() >= lines) {
            return Err(Closed);
        }
        if stream == Stream::Stderr {
            all.push_str("stderr: ");
        }
        all.push_str(text);
        Ok(())
    }
}

fn script(source: &str) -> Script {
    Script {
        source: source.to_owned(),
        origin: "stdin".to_owned(),
        args: vec!["first".to_owned()],
        cwd: std::env::temp_dir(),
        umask: 0o022,
        deadline: None,
    }
}

fn run(source: &str) -> (Ended, String) {
    // As a host does: what all scripts share is no script's memory.
    engine::warm_up();
    let paper = Arc::new(Paper::default());
    let ended = run_without_browser(script(source), MEMORY, Cancel::new(), paper.clone());
    let text = paper.text.lock().unwrap().clone();
    (ended, text)
}

fn output(source: &str) -> String {
    let (ended, text) = run(source);
    assert_eq!(ended.fault, None, "{source}");
    text
}

fn fault(source: &str) -> Fault {
    run(source).0.fault.unwrap_or_else(|| panic!("no fault: {source}"))
}

fn hint(source: &str) -> String {
    fault(source).hint.unwrap_or_default()
}

#[test]
fn the_last_value_is_shown_and_a_semicolon_silences_it() {
    assert_eq!(output("1 + 1"), "2\n");
    assert_eq!(output("1 + 1;"), "");
    assert_eq!(output("\"bare\""), "bare\n");
    assert_eq!(output("let x = [1.0, 'c', (), #{a: true}]; x"), "[1.0,\"c\",null,{\"a\":true}]\n");
    assert_eq!(output("fn leave() { exit(7); } leave(); 8"), "7\n");
    assert_eq!(run("[0.0 / 0.0, 1]").0.value.as_deref(), Some("[null,1]"));
    assert_eq!(run("#{a: 1};").0.value, None);
}

#[test]
fn print_and_debug_write_where_they_belong() {
    let text = output("print(\"a\"); debug([1]); print(); print(0.0 / 0.0); print(-0.0); print(`v ${#{k: 1}}`);");

    assert_eq!(text, "a\nstderr: [1]\n\nNaN\n-0.0\nv {\"k\":1}\n");
}

#[test]
fn arguments_are_seen_everywhere() {
    assert_eq!(output("fn first() { args[0] } [args, first()]"), "[[\"first\"],\"first\"]\n");
}

#[test]
fn a_source_may_open_with_a_mark_or_a_hash_bang_and_have_any_line_ends() {
    let (ended, _) = run("\u{feff}#!/usr/bin/env ghost-browser\r\nlet x = 1;\r\nx +");
    let fault = ended.fault.unwrap();

    assert_eq!(fault.context["line"], 3);
    assert_eq!(output("#!x\r\n`a\r\nb`"), "a\nb\n");
}

#[test]
fn a_script_that_does_not_parse_is_refused_with_its_place() {
    let fault = check("let a = 1;\nlet b = cuont;", "-e").unwrap_err();

    assert_eq!((fault.code, fault.message.as_str()), (FaultCode::Syntax, "undefined variable: cuont"));
    assert_eq!(fault.context["source"], "-e");
    assert_eq!((&fault.context["line"], &fault.context["column"]), (&2.into(), &9.into()));
    assert_eq!(fault.context["source_line"], "let b = cuont;");
    assert_eq!(check("let a = args; fn f() { args }", "-e"), Ok(()));
}

#[test]
fn an_error_says_where_it_was_thrown_and_through_which_calls() {
    let fault = fault("fn outer(n) {\n  inner(n)\n}\nfn inner(n) {\n  throw \"bad \" + n;\n}\nouter(1)");

    assert_eq!((fault.code, fault.message.as_str()), (FaultCode::ScriptError, "bad 1"));
    assert_eq!((&fault.context["line"], &fault.context["source_line"]), (&5.into(), &"  throw \"bad \" + n;".into()));
    assert_eq!(fault.context["trace"], serde_json::json!(["inner called at stdin:2:3", "outer called at stdin:7:1"]));
}

#[test]
fn a_caught_error_is_a_map_and_thrown_again_keeps_what_it_says() {
    let source = "try { cdp(\"Browser.getVersion\") } catch (e) { print([e.code, e.line]); throw e; }";
    let (ended, text) = run(source);
    let fault = ended.fault.unwrap();

    assert_eq!(text, "[\"disconnected\",1]\n");
    assert_eq!(
        (fault.code, fault.message.as_str()),
        (FaultCode::Disconnected, "no browser is connected to this script")
    );
}

#[test]
fn params_that_cannot_be_json_are_refused_with_their_path() {
    for (params, message) in [
        ("#{a: [1, #{b: 0.0 / 0.0}]}", "X.y: params a[1].b: NaN cannot be JSON; nothing was sent"),
        ("#{f: |x| x}", "X.y: params f: a function cannot be JSON; nothing was sent"),
        ("#{t: timestamp()}", "X.y: params t: a timestamp cannot be JSON; nothing was sent"),
        ("#{r: 1..3}", "X.y: params r: a range cannot be JSON; nothing was sent"),
        ("[1]", "X.y: the params must be a map `#{…}`, not an array"),
    ] {
        let fault = fault(&format!("cdp(\"X.y\", {params})"));

        assert_eq!((fault.code, fault.message.as_str()), (FaultCode::BadParams, message));
    }
}

#[test]
fn wrong_arguments_are_named() {
    for (source, message) in [
        ("cdp(1)", "the CDP method must be a string, not an integer"),
        (
            "cdp(\"X.y\", #{}, 1)",
            "the session must be a session id, a page of `ensure_page()`, or `()` for the browser, not an integer",
        ),
        ("js(\"1\", #{timeout: 5})", "js has no option `timeout`"),
        ("js(\"1\", #{timeout_ms: -5})", "js: `timeout_ms` must be 0 to 86400000 milliseconds, not -5"),
        ("cdp_all([[\"X.y\", 5]])", "X.y: the params must be a map `#{…}`, not an integer"),
        ("sleep(-1)", "sleep takes 0 to 86400 seconds, not -1.0"),
        ("sleep(1e300)", "sleep takes 0 to 86400 seconds, not 1e300"),
    ] {
        let fault = fault(source);

        assert_eq!((fault.code, fault.message.as_str()), (FaultCode::BadParams, message), "{source}");
    }
}

#[test]
fn what_is_not_defined_is_found_before_anything_runs() {
    for source in ["print(1); countr", "print(1); if false { countr }", "print(1); let f = |x| countr;"] {
        let (ended, text) = run(source);

        assert_eq!((ended.fault.map(|fault| fault.code), text.as_str()), (Some(FaultCode::Syntax), ""), "{source}");
    }
}

#[test]
fn a_primitive_called_in_another_way_says_how_it_is_called() {
    for source in ["js()", "js(1, 2, 3)", "js(\"1\", #{}, 5)"] {
        assert!(hint(source).contains("`js` takes (expression) or (expression, options)"), "{:?}", fault(source));
    }
    assert!(hint("cdp()").contains("`cdp` takes (method) or (method, params) or"), "{:?}", fault("cdp()"));
    assert!(hint("sleep(\"1\")").contains("`sleep` takes (seconds)"));
}

#[test]
fn what_a_function_throws_while_it_sorts_is_thrown() {
    assert_eq!(output("let a = [3, 1, 2, 1]; a.sort(|x, y| x - y); a"), "[1,1,2,3]\n");
    assert_eq!(output("[3, 1, 2].order_by(|x, y| x > y)"), "[3,2,1]\n");
    assert_eq!(output("let a = [1, 1, 2, 2, 1]; a.dedup(|x, y| x == y); a"), "[1,2,1]\n");
    assert_eq!(fault("let a = [2, 1]; a.sort(|x, y| { throw \"no\" });").message, "no");
    let no_order = fault("[2, 1].order_by(|x, y| \"more\")");
    assert_eq!(no_order.message, "the function that sorts must give an integer, not a string");
}

#[test]
fn parts_of_a_text_are_counted_in_characters_from_either_end() {
    for (part, expected) in [
        ("s.sub_string(1, 2)", "aï"),
        ("s.sub_string(-2)", "ve"),
        ("s.sub_string(-9, 2)", "na"),
        ("s.sub_string(9)", ""),
        ("s.sub_string(1..=2)", "aï"),
        ("s.sub_string(3..1)", ""),
        ("s.crop(1, 2); s", "aï"),
        ("s.crop(-2); s", "ve"),
        ("s.crop(..2); s", "na"),
        ("s.pad(7, \"ab\"); s", "naïveab"),
        ("s.pad(6, \"ab\"); s", "naïvea"),
    ] {
        assert_eq!(output(&format!("let s = \"naïve\"; {part}")).trim_end(), expected, "{part}");
    }
}

#[test]
fn a_script_cannot_claim_what_only_the_session_can_tell() {
    for code in ["cancelled", "no_browser", "release_unconfirmed", "other_credential", "deadline", "mine"] {
        let fault = fault(&format!("throw #{{code: \"{code}\", message: \"no\"}}"));

        assert_eq!((fault.code, fault.message.as_str()), (FaultCode::ScriptError, "no"));
        assert_eq!(fault.context["code"], code);
    }
    assert_eq!(fault("throw #{code: \"timeout\", message: \"no\"}").code, FaultCode::Timeout);
}

#[test]
fn an_error_of_a_native_that_knows_no_place_has_that_of_its_call() {
    let fault = fault("let a = 1;\nrange(1, 2, 0)");

    assert_eq!((&fault.context["line"], &fault.context["source_line"]), (&2.into(), &"range(1, 2, 0)".into()));
}

#[test]
fn a_function_that_uses_what_it_is_called_on_has_a_place() {
    for (source, place) in [
        ("let a = [1, 2];\nlet b = [1].map(|x| x);\na.map(|x| a)", (3, 3)),
        ("let a = [1];\na.for_each(|| a.push(1));", (2, 3)),
        ("fn g(a) {\n  a.map(|x| a)\n}\ng([1])", (2, 5)),
        // More than one call may be meant: the innermost call of a function of the script is what is known.
        ("fn g(a, b) {\n  b.map(|x| b.map(|y| y));\n  a.map(|x| a)\n}\n\n  g([1], [])", (6, 3)),
    ] {
        let fault = fault(source);
        let (line, column) = place;

        assert_eq!((&fault.context["line"], &fault.context["column"]), (&line.into(), &column.into()), "{fault:?}");
        let text = source.lines().nth(line - 1).unwrap();
        assert_eq!(fault.context["source_line"], text, "{fault:?}");
    }
}

#[test]
fn a_parameter_that_is_wondered_about_is_not_said_to_be_sent_when_nothing_is() {
    let warnings = |source: &str| run(source).0.warnings;

    assert_eq!(warnings("cdp(\"Page.navigate\", #{urll: |x| x})"), [""; 0]);
    assert_eq!(warnings("cdp(\"Page.navigate\", #{urll: 1}, 5)"), [""; 0]);
}

#[test]
fn habits_of_other_languages_get_a_hint() {
    for (source, part) in [
        ("let counter = 1; print(countr)", "`counter`"),
        ("prnt(1)", "`print`"),
        ("js(1, 2, 3)", "`js` takes (expression) or (expression, options)"),
        ("let s = \"a\"; let t = s.replace(\"a\", \"b\"); t.len()", "`replace` changes its string"),
        ("let s = \"a\"; let t = s.replace(\"a\", \"b\"); t.x", "`replace` changes its string"),
        ("let x = try { 1 } catch { 2 };", "`try` is a statement"),
        ("let s = 'abc';", "double quotes"),
        ("'a' + 1", "double quotes"),
        ("for (v, k) in #{a: 1} { print(k) }", "map.keys()"),
        ("for k, v in #{a: 1} { }", "map.keys()"),
        ("let x = null;", "`()`"),
        ("let x = None;", "`()`"),
        ("let x = 1; if x == null { }", "`()`"),
        ("def f(x): return x", "`fn name(a, b) { … }`"),
        ("import os", "helper module"),
        ("let n = 1; print(f\"a{n}\")", "backticks"),
        ("let x = await js(\"1\");", "wait by themselves"),
        ("let x = new Date();", "js(\"new …\")"),
        ("const C = 1; fn f() { C } f()", "`global::C`"),
        ("let m = #{}; m += 1;", "`m.key = x;`"),
        ("let a = [1]; a -= 1;", ""),
        ("true + 1", ""),
        ("let x = true; x += 1;", ""),
        ("let s = \"a\"; s *= 3;", "keeps the kind of its left side; make the text a number"),
        ("let n = 1; n -= \"1\";", "make the text a number"),
        ("1.5 | 2", "`x.to_int()`"),
        ("let m = #{a: 1}; m['a']", "double quotes"),
        ("const C = 1; fn f() { global::CC } f()", "`global::C`"),
        ("fn f() { global::C } f(); const C = 1;", "`fn C() { … }`"),
        ("let t = \" a \".trim(); t.len()", "`trim` changes its string in place and returns nothing"),
        ("let t = \" a \".trim();\nt.len()", "`trim` changes its string in place"),
        ("let a = [2, 1];\nlet b = a.sort();\n\nfor x in b { }", "`sort` changes its array in place"),
        ("let b = [1].push(2); b[0]", "`push` changes its array in place"),
        ("[1, 2].reverse().map(|x| x)", "`reverse` changes its array in place"),
        ("let b = \"\".clear(); if b { }", "`clear` changes its value in place"),
        ("let m = #{}; let a = []; a.push(m.a.b)", "`()` for a key"),
        ("let m = #{}; let a = []; a.push(1); m.a.b", "`()` for a key"),
        ("let x = {a: 1};", "`#{a: 1}`"),
        ("let m = #{}; m.a.b", "`()` for a key"),
        ("if 1 { }", "true or false"),
        ("let x = #{default: 1};", "quoted"),
        ("console.log(1)", "print(x)"),
        ("eval(\"1\")", "js"),
        ("env(\"HOME\")", "`secret(name)`"),
        ("{a: 1}", "`#{a: 1}`"),
        ("let a = [1]; a.for_each(|| a.push(1));", "a copy"),
        ("let s = \"a\"; s += 1; s -= 1;", "make the text a number"),
    ] {
        assert!(hint(source).contains(part), "{source}\n{:?}", fault(source));
        assert_eq!(part.is_empty(), hint(source).is_empty(), "{source}\n{:?}", fault(source));
    }
}

#[test]
fn a_hostile_script_ends_in_a_clear_error() {
    let deep = "[".repeat(10_000);
    let switches = format!("{}1{}", "switch 1 { 1 => ".repeat(30), " }".repeat(30));
    for (source, code) in [
        ("fn f() { f() } f()", FaultCode::Limit),
        ("let f = |f, n| f.call(f, n + 1); f.call(f, 0)", FaultCode::Limit),
        ("let s = \"x\"; loop { s += s; }", FaultCode::Limit),
        ("let a = [1]; loop { a.append(a); }", FaultCode::Limit),
        ("let a = []; loop { a.push(\"some text or other\"); }", FaultCode::Limit),
        ("let s = \"\"; s.pad(2000000000, \"x\");", FaultCode::Limit),
        ("let a = []; a.pad(2000000000, 1);", FaultCode::Limit),
        ("let big = []; big.pad(100000, 1); let a = []; a.pad(10000, big);", FaultCode::Limit),
        ("blob(2000000000)", FaultCode::Limit),
        ("let b = blob(1); b.pad(2000000000, 0);", FaultCode::Limit),
        ("let s = \"\"; s.pad(2000000, \"x\"); s.split(\"\")", FaultCode::Limit),
        ("let s = \"\"; s.pad(100000, \"x\"); let t = s; s.replace(\"x\", t);", FaultCode::Limit),
        ("let s = \"\"; s.pad(20000000, \"x\"); s.to_chars()", FaultCode::Limit),
        ("blob(20000000).to_array()", FaultCode::Limit),
        ("try { loop { let s = \"x\"; s.pad(2000000000, \"y\"); } } catch { } 1", FaultCode::Limit),
        ("json_parse(\"[\" + [1].to_string())", FaultCode::BadParams),
        (deep.as_str(), FaultCode::Syntax),
        (&format!("{switches}; nope()"), FaultCode::ScriptError),
        ("import \"/etc/passwd\" as x;", FaultCode::Denied),
        ("eval(\"1\")", FaultCode::Syntax),
        (&"//".repeat(70_000), FaultCode::Usage),
    ] {
        let (ended, text) = run(source);
        let seen = ended.fault.as_ref().map(|fault| fault.code);

        assert_eq!(seen, Some(code), "{}… {text} {ended:?}", source.chars().take(60).collect::<String>());
    }
}

#[test]
fn values_nested_deeper_than_can_be_written_are_refused_and_dropped() {
    let levels = format!("a = {}a{};", "[".repeat(40), "]".repeat(40));
    let deep = format!("let a = []; for i in 0..260 {{ {levels} }}");

    for last in ["print(a)", "let b = a; a == b", "a.to_string()", "json_stringify(a)", "a"] {
        assert_eq!(fault(&format!("{deep} {last}")).code, FaultCode::Limit, "{last}");
    }
    assert_eq!(output(&format!("{deep} a.len()")), "1\n");
}

#[test]
fn a_chain_of_closures_of_any_length_is_dropped() {
    let chain = "let f = || 1; let n = 0; while n < 100000 { let g = f; f = || g.call(); n += 1; }";

    assert_eq!(output(&format!("{chain} type_of(f)")), "Fn\n");
    assert_eq!(fault(&format!("{chain} f.call()")).code, FaultCode::Limit);
}

#[test]
fn what_a_script_leaves_behind_for_good_is_told() {
    let (ended, _) = run("let a = #{}; a.big = blob(4000000); let f = || a; a.f = f; 1");

    assert_eq!(ended.fault, None);
    assert!(ended.warnings.iter().any(|warning| warning.contains("left 4 MiB behind")), "{:?}", ended.warnings);
    assert_eq!(run("let a = blob(4000000); let f = || a; f.call().len()").0.warnings, [""; 0]);
}

fn cancelled_after(source: &str, cancel: Cancel, reason: CancelReason) -> Fault {
    let paper = Arc::new(Paper::default());
    let ended = std::thread::scope(|threads| {
        let running = threads.spawn(|| run_without_browser(script(source), MEMORY, cancel.clone(), paper.clone()));
        // The script says when it is where it should be ended.
        while paper.text.lock().unwrap().is_empty() {
            std::thread::yield_now();
        }
        cancel.cancel(reason);
        running.join().unwrap()
    });
    ended.fault.unwrap()
}

#[test]
fn a_cancel_ends_a_loop_a_sleep_and_a_catch_at_once() {
    for source in [
        "print(1); loop { }",
        "print(1); sleep(3600);",
        "print(1); loop { try { loop { } } catch { } }",
        "print(1); try { sleep(3600) } catch { sleep(3600) }",
    ] {
        let started = Instant::now();
        let fault = cancelled_after(source, Cancel::new(), CancelReason::Interrupted);

        assert_eq!(fault.code, FaultCode::Cancelled, "{source}");
        assert!(started.elapsed() < Duration::from_secs(10), "{source}");
    }
}

#[test]
fn a_deadline_ends_a_loop_and_a_sleep() {
    for source in ["loop { }", "sleep(3600);", "try { sleep(3600) } catch { 1 }"] {
        let script = Script { deadline: Some(Instant::now() + Duration::from_millis(50)), ..script(source) };
        let ended = run_without_browser(script, MEMORY, Cancel::new(), Arc::new(Paper::default()));

        assert_eq!(ended.fault.unwrap().code, FaultCode::Deadline, "{source}");
    }
}

#[test]
fn a_reader_that_goes_away_ends_the_script() {
    let paper = Arc::new(Paper { ends_after: Some(3), ..Paper::default() });
    let ended = run_without_browser(script("loop { print(1) }"), MEMORY, Cancel::new(), paper.clone());

    assert_eq!(ended.fault.unwrap().code, FaultCode::Output);
    assert_eq!(paper.text.lock().unwrap().as_str(), "1\n1\n1\n");
}

#[test]
fn a_host_runs_many_scripts_at_once() {
    let outputs: Vec<String> = std::thread::scope(|threads| {
        let running: Vec<_> = (0..8).map(|n| threads.spawn(move || output(&format!("{n} * 2")))).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    });

    assert_eq!(outputs.concat(), "0\n2\n4\n6\n8\n10\n12\n14\n");
}

#[test]
fn the_skill_names_every_function_that_a_script_has() {
    let skill = include_str!("../../skill/SKILL.md");

    let unnamed =
        super::api::SIGNATURES.iter().map(|(name, _)| *name).filter(|name| !skill.contains(&format!("`{name}(")));

    assert_eq!(unnamed.collect::<Vec<_>>(), [""; 0]);
}
