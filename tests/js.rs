//! `js` on a real Chromium: values exactly, promises awaited, errors that name their class and place; and what it asks of
//! the browser for that, seen by a fake one.

mod support;

use support::{FakeGateway, Reaction, Sandbox};

/// Runs `script`, which prints a line for each thing that is promised.
#[track_caller]
fn prints(script: &str, lines: &[&str]) {
    let sandbox = Sandbox::local();
    assert_eq!(sandbox.script(script).value().lines().collect::<Vec<_>>(), lines);
    sandbox.stop();
}

#[test]
fn values_come_exactly() {
    prints(
        r#"
        print(js("({int: 7, float: 1.5, text: 'a', yes: true, none: null, undef: undefined, list: [1, [2]]})"));
        print(js("[NaN, Infinity, -Infinity, -0, 9007199254740993n, 10n ** 20n, 2 ** 53]"));
        print(js("new Date(0)"));
        print(js("new Map([['a', 1], ['b', new Map([[1, 2]])]])"));
        print(js("new Set([1, 'a'])"));
        print(js("/a.b/gi"));
        print(js("document.body").name + " " + js("document.body").type);
        print([js("undefined"), js("null")]);
        print(js("({d: new Date(0)})", #{by_value: true}));"#,
        &[
            r#"{"float":1.5,"int":7,"list":[1,[2]],"none":null,"text":"a","undef":null,"yes":true}"#,
            r#"[NaN,inf,-inf,-0.0,"9007199254740993","100000000000000000000",9007199254740992]"#,
            "1970-01-01T00:00:00.000Z",
            r#"{"a":1,"b":[[1,2]]}"#,
            r#"[1,"a"]"#,
            "/a.b/gi",
            "body node",
            "[null,null]",
            r#"{"d":{}}"#,
        ],
    );
}

#[test]
fn a_promise_is_awaited_however_the_expression_came_by_it() {
    prints(
        r#"
        js("window.kept = new Promise(done => setTimeout(() => done({a: [1]}), 20)); 0");
        js("window.failing = Promise.reject(new TypeError('no')); window.failing.catch(() => 0); 0");
        js("window.thenable = {then(done) { done('then') }}; 0");
        print(js("kept"));
        print(js("Promise.resolve(kept)"));
        print(js("const late = kept; late"));
        print(js("(await kept).a"));
        for options in [#{by_value: true}, #{by_value: false}] {
            print([js("kept", options), js("const again = kept; again", options), js("let n = 1; n", options)]);
        }
        print(js("(() => thenable)()"));
        try { js("failing") } catch (e) { print(`${e.code} ${e.message}`) }
        try { js("kept", #{await_promise: false}) } catch (e) { print(`${e.code} ${e.message}`) }"#,
        &[
            r#"{"a":[1]}"#,
            r#"{"a":[1]}"#,
            r#"{"a":[1]}"#,
            "[1]",
            r#"[{"a":[1]},{"a":[1]},1]"#,
            r#"[{"a":[1]},{"a":[1]},1]"#,
            "then",
            "js_error TypeError: no",
            "js_error the value holds what a script cannot: Promise",
        ],
    );
}

#[test]
fn what_cannot_be_told_is_an_error_with_its_class_and_place() {
    prints(
        r#"
        fn told(expression) {
            try { js(expression); "a value" } catch (e) { print(`${e.code} ${e.message} at ${e.line}:${e.column}`); }
        }
        fn class(expression) { try { js(expression); } catch (e) { print(e.message); } }
        told("nope.x");
        told("1;\n  (() => { throw new RangeError('far') })()");
        told("throw 5");
        class("() => 1");
        class("Symbol('s')");
        class("window");
        class("({f() {}})");
        class("(() => { let a = {}; a.a = a; return a })()");
        told("throw 'text'");"#,
        &[
            "js_error ReferenceError: nope is not defined at 1:1",
            "js_error RangeError: far at 2:12",
            "js_error Uncaught 5 at 1:1",
            "the value holds what a script cannot: Function",
            "the value holds what a script cannot: symbol",
            "the value holds what a script cannot: window",
            "the value holds what a script cannot: function",
            "the value holds what a script cannot: a cycle",
            "js_error Uncaught text at 1:1",
        ],
    );
}

#[test]
fn what_was_thrown_and_is_no_error_is_told_with_its_fields() {
    prints(
        r#"
        fn told(expression) { try { js(expression) } catch (e) { print(e.message); } }
        told("throw {code: 5, why: 'denied', more: {deep: [1]}}");
        told("throw [1, 2]");
        told("throw null");
        told("throw undefined");
        told("throw NaN");
        told("throw 5n");
        told("throw ''");
        told("throw new (class Refusal { constructor() { this.code = 5 } })");
        told("throw {code: 5, get why() { throw 1 }}");
        told("throw {code: 5, toJSON() { while (true) { } }}");
        told("throw {text: 'x'.repeat(2000)}");
        told("throw new Map([[1, 2]])");
        told("throw new DOMException('no', 'AbortError')");
        told("Promise.reject({code: 5})");
        told("await Promise.reject({code: 5})");
        try { js("throw {code: 5}", #{by_value: true}) } catch (e) { print(`${e.message} ${e.stack}`); }
        print(js("1 + 1"));"#,
        &[
            r#"Uncaught {"code":5,"why":"denied","more":{"deep":[1]}}"#,
            "Uncaught [1,2]",
            "Uncaught null",
            "Uncaught undefined",
            "Uncaught NaN",
            "Uncaught 5n",
            r#"Uncaught """#,
            r#"Uncaught Refusal {"code":5}"#,
            r#"Uncaught {"code":5,"why":…}"#,
            r#"Uncaught {"code":5,"toJSON":…}"#,
            &format!("Uncaught {{\"text\":\"{}…", "x".repeat(991)),
            "Uncaught Map(1)",
            "AbortError: no",
            r#"Uncaught (in promise) {"code":5}"#,
            r#"Uncaught {"code":5}"#,
            r#"Uncaught {"code":5} at line 1, column 1 of the expression"#,
            "2",
        ],
    );
}

#[test]
fn a_getter_that_throws_is_guessed_at_where_the_browser_says_nothing_of_it() {
    // As Chromium 148 does with `({get id() { throw 1 }})`.
    let gateway = FakeGateway::start();
    gateway.cdp().on("Runtime.evaluate", |command| match command.params.get("returnByValue") {
        Some(_) => Reaction::Error(-32603, "Internal error".into()),
        None => Reaction::Never,
    });
    let sandbox = Sandbox::of(&gateway);
    let script = r#"
        let page = ensure_page();
        print(page.target_id);
        for options in [#{by_value: true}, #{}] { try { js("x", options) } catch (e) { print(`${e.code}: ${e.hint}`); } }"#;

    let mut running = sandbox.spawn(["run", "-e", script], "");
    let target = running.line();
    gateway.cdp().wait_for("Runtime.evaluate", 2);
    gateway.cdp().crash_page(&target);

    let said = running.wait();
    let lines: Vec<_> = said.value().lines().skip(1).collect();
    let hints = [
        "cdp_error: a getter or a `toJSON` of the value may throw: pick what you need in the expression, `({id: x.id})`",
        "page_crashed: `Page.reload` revives the page; if it was this value that ended it, a getter in it throws: \
         pick fields, `({id: x.id})`; `#{by_value: true}` fails without ending the page",
    ];
    assert_eq!(lines, hints);
}

#[test]
fn what_a_page_boxed_is_no_empty_map() {
    prints(
        r#"
        for expression in ["new Number(5)", "new Boolean(false)", "Object(5n)", "new String('x')", "new String('')",
            "new DataView(new ArrayBuffer(2))", "[1, 2].values()", "new Map().keys()", "(function* () { yield 1 })()",
            "new Intl.NumberFormat()"] {
            try { print(js(expression)); } catch (e) { print(`${e.message}; ${e.hint}`); }
        }
        print([js("new (class Number { constructor() { this.a = 1 } })"), js("new (class Empty {})"), js("({})")]);
        print([js("new Number(5).valueOf()"), js("[...[1, 2].values()]"), js("[new Number(5)]")]);"#,
        &[
            "the value holds what a script cannot: Number; `.valueOf()` gives the value in it",
            "the value holds what a script cannot: Boolean; `.valueOf()` gives the value in it",
            "the value holds what a script cannot: BigInt; `.valueOf()` gives the value in it",
            "the value holds what a script cannot: String; `.valueOf()` gives the value in it",
            "the value holds what a script cannot: String; `.valueOf()` gives the value in it",
            "the value holds what a script cannot: DataView; pick what you need in the expression: `({title: document.title})`",
            "the value holds what a script cannot: Array Iterator; `[...x]` makes an array of all that it gives",
            "the value holds what a script cannot: MapIterator; `[...x]` makes an array of all that it gives",
            "the value holds what a script cannot: Generator; `[...x]` makes an array of all that it gives",
            "the value holds what a script cannot: NumberFormat; pick what you need in the expression: `({title: document.title})`",
            r#"[{"a":1},{},{}]"#,
            "[5,[1,2],[{}]]",
        ],
    );
}

#[test]
fn a_small_value_that_refers_to_itself_without_end_in_sight_ends_the_script_and_not_the_daemon() {
    let sandbox = Sandbox::local();
    let doubled = |times: u32| format!("(()=>{{let a=[1,2,3,4];for(let i=0;i<{times};i++)a=[a,a];return a}})()");
    assert_eq!(
        sandbox.script(format!("js(\"{}\")", doubled(2))).value(),
        "[[[1,2,3,4],[1,2,3,4]],[[1,2,3,4],[1,2,3,4]]]"
    );

    let said = sandbox.script(format!("try {{ js(\"{}\") }} catch {{ }}", doubled(28)));

    assert!(said.fails_with(1).contains("the script holds more memory than a script may"), "{said:#?}");
    let peak = sandbox.daemon().expect("a daemon").peak_mib();
    assert!(peak < 700, "{peak} MiB");
    assert_eq!(sandbox.script("js(\"1+1\")").value(), "2");
    sandbox.stop();
}

#[test]
fn the_browser_is_asked_for_no_more_than_the_expression_needs() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);

    sandbox.script("js(`1+1`); js(`(1+1)`); js(`(1+1)`, #{await_promise: false}); js(`let`);").fails_with(1);

    let asked = gateway.cdp().commands().into_iter().filter(|command| command.method.starts_with("Runtime.evaluate"));
    let extras = |params: &serde_json::Value| ["awaitPromise", "replMode"].map(|name| params.get(name).is_some());
    let asked: Vec<_> = asked.map(|command| extras(&command.params)).collect();
    assert_eq!(asked, [[false, false], [true, false], [false, false], [false, true]]);
}
