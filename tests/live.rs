//! The same promises on a real Chromium of this machine.

mod support;

use std::path::Path;

use support::Sandbox;

const PAGE: &str = r#"
let page = ensure_page();
cdp("Page.enable", #{}, page);
let loaded = expect_event("Page.loadEventFired", #{session: page.session_id});
cdp("Page.navigate", #{url: "data:text/html,<title>Ghost</title><h1 id=h>Boo</h1>"}, page);
loaded.wait();
"#;

#[test]
fn a_page_is_opened_read_and_found_again_by_the_next_call() {
    let sandbox = Sandbox::local();
    let read = "js(\"({title: document.title, heading: h.textContent, sum: 20 + 22})\")";

    let first = sandbox.script(format!("{PAGE}{read}"));
    let second = sandbox.script(read);

    let expected = r#"{"heading":"Boo","sum":42,"title":"Ghost"}"#;
    assert_eq!(first.value(), expected);
    assert_eq!(second.quietly(), expected);
    assert_eq!(sandbox.stop().quietly(), "released browser");
}

#[test]
fn values_come_back_exactly() {
    let sandbox = Sandbox::local();
    let cases = [
        ("9007199254740991", "9007199254740991"),
        ("10n ** 20n", "100000000000000000000"),
        ("[NaN, -0, 1.5, Infinity]", "[NaN,-0.0,1.5,inf]"),
        ("new Set([1, 2])", "[1,2]"),
        ("new Date(0)", "1970-01-01T00:00:00.000Z"),
        ("Promise.resolve('later')", "later"),
        ("({a: {b: [null, true, 'x']}})", r#"{"a":{"b":[null,true,"x"]}}"#),
        ("undefined", ""),
    ];
    sandbox.script(";").value();

    for (source, expected) in cases {
        let said = sandbox.script(format!("js(`{source}`)"));
        assert_eq!(said.quietly(), expected, "{source}");
    }
    sandbox.stop();
}

#[test]
fn an_error_of_the_page_reads_like_one() {
    let sandbox = Sandbox::local();

    let said = sandbox.script("js(\"nope.x\")");

    assert!(said.fails_with(1).contains("ReferenceError: nope is not defined"), "{said:#?}");
    sandbox.stop();
}

#[test]
fn a_screenshot_is_a_png_in_the_callers_folder() {
    let sandbox = Sandbox::local();

    let said = sandbox.script(format!("{PAGE}capture_screenshot(\"shot.png\")"));

    let path = Path::new(said.value());
    assert_eq!(path, sandbox.work().join("shot.png"));
    assert!(std::fs::read(path).unwrap().starts_with(b"\x89PNG\r\n"));
    sandbox.stop();
}

#[test]
fn the_first_example_fills_in_its_form_with_real_events() {
    let sandbox = Sandbox::local();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/first.rhai");

    let said = sandbox.ghost(["run".as_ref(), example.as_os_str(), "picture.png".as_ref()]);

    assert!(said.value().contains("Ada from London was here."), "{said:#?}");
    assert!(said.stdout.contains("\"real\":true"), "{said:#?}");
    assert!(sandbox.work().join("picture.png").exists());
    sandbox.stop();
}

#[test]
fn stop_leaves_no_chromium_and_no_folder() {
    let sandbox = Sandbox::local();
    sandbox.script(PAGE).value();
    let status = sandbox.status();
    assert_eq!((&status["state"], &status["gateway"]), (&"connected".into(), &"local".into()));
    assert!(!sandbox.chromiums().is_empty(), "a Chromium runs");

    assert_eq!(sandbox.stop().quietly(), "released browser");

    assert_eq!(sandbox.chromiums(), []);
    sandbox.assert_nothing_left();
    assert_eq!(sandbox.ghost(["status"]).quietly(), "stopped");
}

#[test]
fn an_idle_browser_is_released() {
    let mut sandbox = Sandbox::local();
    sandbox.set("GHOST_BROWSER_IDLE_SECONDS", "0.5");
    sandbox.script("1").value();

    sandbox.wait_for_status("the idle release", |status| status["state"] == "stopped");

    sandbox.assert_nothing_left();
}
