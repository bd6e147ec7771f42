//! What a script says and what is told of it: whole, in time, and without filling anybody's memory.

mod support;

use std::io::Read;
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::{FakeGateway, Sandbox};

/// What a flood prints, in lines of a hundred thousand bytes.
const LINES: usize = 600;

/// What the daemon may hold of a flood on its way, in MiB: a few lines, not the flood.
const ON_ITS_WAY_MIB: u64 = 8;

fn flood(sandbox: &Sandbox) -> Command {
    let script = format!("let s = \"\"; s.pad(99999, \"x\"); for i in 0..{LINES} {{ print(s); }}");
    let mut command = sandbox.command(["run", "-e", script.as_str()]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

#[test]
fn a_flood_waits_for_its_reader_and_costs_nobody_else_anything() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    sandbox.script("1").quietly();
    let daemon = sandbox.daemon().expect("a daemon");
    let before = daemon.resident_mib();
    let mut child = flood(&sandbox).spawn().expect("start the flood");
    let mut output = child.stdout.take().expect("its output");

    // Read a part, then nothing, then the rest.
    let mut read = take(&mut output, 20 * 100_000);
    let began = Instant::now();
    assert_eq!(sandbox.script("js(\"1+1\")").value(), "2");
    sandbox.wait_for_status("the flood alone to wait", |status| status["scripts"] == 1);
    assert!(began.elapsed() < Duration::from_secs(10), "another caller took {:?}", began.elapsed());
    let held = daemon.resident_mib().saturating_sub(before);
    read += take(&mut output, usize::MAX);

    assert_eq!(read, LINES * 100_000);
    assert!(child.wait().expect("its end").success());
    assert!(held <= ON_ITS_WAY_MIB, "the daemon held {held} MiB more than the {before} MiB before");
    sandbox.stop();
    gateway.assert_nothing_owed();
}

/// Reads up to so many bytes; tells how many came.
fn take(output: &mut ChildStdout, most: usize) -> usize {
    let mut buffer = vec![0; 64 << 10];
    let mut read = 0;
    while read < most {
        let room = buffer.len().min(most - read);
        match output.read(&mut buffer[..room]).expect("the output") {
            0 => break,
            count => read += count,
        }
    }
    read
}

#[test]
fn the_envelope_is_bounded_and_says_that_it_is_cut() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);

    let said = sandbox.script_with(["--json"], "let s = \"\"; s.pad(999, \"x\"); for i in 0..3000 { print(s); } 7");

    let envelope: Value = serde_json::from_str(said.value()).unwrap();
    assert_eq!(envelope["value"], 7);
    assert_eq!(envelope["output"].as_str().unwrap().len(), 1 << 20);
    assert!(envelope["warnings"].to_string().contains("output was cut"), "{}", envelope["warnings"]);
    sandbox.stop();
    gateway.assert_nothing_owed();
}

#[test]
fn a_value_longer_than_any_frame_is_written_whole_and_left_out_of_the_envelope() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    let long = "let s = \"\"; s.pad(70000000, \"x\"); s";

    let said = sandbox.script(long);
    let envelope = envelope(&sandbox, long);

    assert_eq!((said.code, said.stdout.len(), said.stderr.as_str()), (Some(0), 70_000_001, ""));
    assert_eq!((&envelope["ok"], &envelope["value"]), (&json!(true), &Value::Null));
    assert!(envelope["warnings"].to_string().contains("left out"), "{}", envelope["warnings"]);
    sandbox.stop();
    gateway.assert_nothing_owed();
}

#[test]
fn the_value_that_a_script_exits_with_is_the_envelopes() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);

    let envelope = envelope(&sandbox, "print(\"said\"); exit(#{a: [1, ()]}); 2");

    assert_eq!(envelope["value"], json!({"a": [1, null]}));
    assert_eq!(envelope["output"], "said\n{\"a\":[1,null]}\n");
    assert_eq!(envelope["aftermath"]["navigations"], 0);
    sandbox.stop();
    gateway.assert_nothing_owed();
}

#[test]
fn the_aftermath_tells_what_happened_on_the_page() {
    let sandbox = Sandbox::local();
    sandbox.script("js(\"1\");").value();

    let first = envelope(&sandbox, PAGE);
    let second = envelope(&sandbox, "js(\"console.error('unheard'); location.hash = 'there'; 1\")");

    let (first, second) = (&first["aftermath"], &second["aftermath"]);
    assert_eq!(first["start_url"], "about:blank", "{first:#}");
    assert!(first["end_url"].as_str().unwrap().starts_with("data:text/html,"), "{first:#}");
    let figures = ["navigations", "dialogs", "events_dropped", "page_errors", "console_errors"];
    assert_eq!(figures.map(|figure| &first[figure]), [1, 1, 0, 1, 1], "{first:#}");
    assert_eq!(second["start_url"], first["end_url"]);
    assert_eq!((&second["navigations"], &second["dialogs"]), (&json!(0), &json!(0)), "{second:#}");
    sandbox.stop();
}

#[test]
fn errors_of_the_page_are_not_counted_where_nobody_listens() {
    let sandbox = Sandbox::local();

    let quiet = envelope(&sandbox, "js(\"console.error('unheard'); setTimeout(() => { throw 1 }); 1\")");

    let aftermath = &quiet["aftermath"];
    assert_eq!((&aftermath["page_errors"], &aftermath["console_errors"]), (&Value::Null, &Value::Null));
    sandbox.stop();
}

/// A page that alerts, complains and throws.
const PAGE: &str = r#"
let page = ensure_page();
cdp("Runtime.enable", #{}, page);
let thrown = expect_event("Runtime.exceptionThrown", #{session: page.session_id});
cdp("Page.navigate", #{url: "data:text/html,<script>console.error(1); alert(2); setTimeout(() => { throw 3 })</script>"}, page);
thrown.wait();
"#;

fn envelope(sandbox: &Sandbox, script: &str) -> Value {
    let said = sandbox.script_with(["--json"], script);
    serde_json::from_str(&said.stdout).unwrap_or_else(|error| panic!("{error}: {said:#?}"))
}
