//! The life of a call: what is asked of the gateway, what is printed, and what is not touched.

mod support;

use support::{FakeGateway, Sandbox};

#[test]
fn three_calls_share_one_browser() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);

    assert_eq!(sandbox.script("print(1)").quietly(), "1");
    assert_eq!(sandbox.script("cdp(\"Browser.getVersion\").protocolVersion").quietly(), "1.3");
    assert_eq!(sandbox.script("js(\"1+1\")").quietly(), "2");
    assert_eq!(sandbox.stop().quietly(), "released browser");

    assert_eq!((gateway.gets(), gateway.sockets(), gateway.deletes()), (1, 1, 1));
    assert_eq!(gateway.cdp().count("Browser.getVersion"), 1);
    gateway.assert_nothing_owed();
}

#[test]
fn the_page_is_where_the_last_call_left_it() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    let go = r#"cdp("Page.navigate", #{url: "https://here.example/"}, ensure_page());"#;
    assert_eq!(sandbox.script(go).quietly(), "");

    assert_eq!(sandbox.script("js(\"location.href\")").quietly(), "https://here.example/");

    sandbox.stop();
    gateway.assert_nothing_owed();
}

#[test]
fn a_browser_is_held_even_for_a_script_that_calls_no_cdp() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);

    assert_eq!(sandbox.script("1 + 1").quietly(), "2");

    let status = sandbox.status();
    assert_eq!(status["state"], "connected");
    assert!(status["keeper_pid"].is_u64(), "{status:#}");
    assert_eq!(gateway.allocations(), 1);
    sandbox.stop();
    gateway.assert_nothing_owed();
}

#[test]
fn a_syntax_error_asks_for_nothing() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);

    let said = sandbox.script("let x = ;");

    assert!(said.fails_with(2).contains("stdin:1:"), "{said:#?}");
    assert_eq!(gateway.requests(), 0);
    sandbox.assert_untouched();
}

#[test]
fn nothing_but_a_script_creates_or_sends_anything() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);

    assert_eq!(sandbox.ghost(["status"]).quietly(), "stopped");
    assert_eq!(sandbox.status()["state"], "stopped");
    assert_eq!(sandbox.stop().quietly(), "browser already stopped");
    let version = sandbox.ghost(["--version"]);
    assert!(version.quietly().contains(env!("CARGO_PKG_VERSION")), "{version:#?}");
    assert!(sandbox.ghost(["skill"]).quietly().starts_with("---\nname: ghost-browser"));
    assert!(sandbox.ghost(["--help"]).quietly().contains("Usage"));

    assert_eq!(gateway.requests(), 0);
    sandbox.assert_untouched();
}

#[test]
fn a_script_may_end_without_a_newline_have_other_line_ends_or_name_its_interpreter() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    let bom = "\u{feff}print(4)";

    assert_eq!(sandbox.script("print(1)").quietly(), "1");
    assert_eq!(sandbox.script("let x = 1;\r\nprint(x + 1)\r\n").quietly(), "2");
    assert_eq!(sandbox.script("#!/usr/bin/env ghost-browser\nprint(3)\n").quietly(), "3");
    assert_eq!(sandbox.script(bom).quietly(), "4");
    assert_eq!(sandbox.shell("ghost-browser <<'RHAI'\nprint(5)\nRHAI").quietly(), "5");

    sandbox.stop();
    gateway.assert_nothing_owed();
}

#[test]
fn nothing_to_run_is_a_usage_error() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);

    for nothing in ["", " \n\t\r\n"] {
        assert_eq!(sandbox.script(nothing).code, Some(2), "{nothing:?}");
    }
    for (wrong, offset) in [(&b"print(1)\0"[..], "8"), (b"print(\xff)", "6")] {
        let said = sandbox.script(wrong);
        assert!(said.fails_with(2).contains(offset), "{said:#?}");
    }

    assert_eq!(gateway.requests(), 0);
    sandbox.assert_untouched();
}

#[test]
fn a_file_without_run_is_told_how_to_be_run() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    sandbox.file("steps", "print(1)");

    for file in ["steps", "missing.rhai"] {
        let said = sandbox.ghost([file]);
        assert!(said.fails_with(2).contains(&format!("ghost-browser run {file}")), "{said:#?}");
    }
    let said = sandbox.ghost(["nonsense"]);
    assert!(!said.fails_with(2).contains("ghost-browser run"), "{said:#?}");

    assert_eq!(gateway.requests(), 0);
}

#[test]
fn an_option_behind_the_file_is_not_lost_in_a_script_that_takes_no_arguments() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    sandbox.file("plain.rhai", "print(1)");
    sandbox.file("echo.rhai", "for word in args { print(word); }");

    for late in ["--stop", "--timeout=5", "--name"] {
        let said = sandbox.ghost(["run", "plain.rhai", late]);
        assert!(said.fails_with(2).contains("before FILE"), "{said:#?}");
    }
    assert_eq!(gateway.requests(), 0);
    assert_eq!(sandbox.ghost(["run", "echo.rhai", "--stop"]).quietly(), "--stop", "the script's own");
    assert_eq!(sandbox.ghost(["run", "plain.rhai", "--other"]).quietly(), "1");

    sandbox.stop();
    gateway.assert_nothing_owed();
}

#[test]
fn a_file_gets_its_arguments_and_an_argument_is_a_script() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    sandbox.file("echo.rhai", "for word in args { print(word); }");

    assert_eq!(sandbox.ghost(["run", "echo.rhai", "one", "two words"]).quietly(), "one\ntwo words");
    assert_eq!(sandbox.ghost(["run", "-e", "40 + 2"]).quietly(), "42");

    sandbox.stop();
    gateway.assert_nothing_owed();
}

#[test]
fn output_comes_while_the_script_runs() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    sandbox.script(";");
    let mut running = sandbox.spawn(["run", "-e", "print(\"first\"); sleep(60);"], "");

    assert_eq!(running.line(), "first");

    assert_eq!(sandbox.status()["scripts"], 1);
    assert_eq!(sandbox.stop().code, Some(0));
    assert_eq!(running.wait().code, Some(130));
    gateway.assert_nothing_owed();
}

#[test]
fn a_failing_script_names_its_line_and_keeps_the_browser() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);

    let said = sandbox.script("print(1);\nthrow \"no luck\";");

    assert_eq!(said.stdout, "1\n");
    let error = said.fails_with(1);
    assert!(error.contains("no luck") && error.contains("stdin:2:1"), "{error}");
    assert_eq!(sandbox.status()["state"], "connected");
    sandbox.stop();
    gateway.assert_nothing_owed();
}

#[test]
fn stop_at_the_end_of_a_run_releases_and_says_nothing() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);

    assert_eq!(sandbox.script_with(["--stop"], "print(1)").quietly(), "1");

    assert_eq!(sandbox.ghost(["status"]).quietly(), "stopped");
    assert_eq!(gateway.allocations(), 1);
    gateway.assert_nothing_owed();
}

#[test]
fn names_are_sessions_of_their_own() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);

    sandbox.script_with(["--name", "one"], "1").quietly();
    sandbox.script_with(["--name", "two"], "2").quietly();

    assert_eq!(gateway.allocations(), 2);
    assert_eq!(sandbox.ghost(["status"]).value(), "stopped");
    for name in ["one", "two"] {
        assert_eq!(sandbox.ghost(["stop", "--name", name]).quietly(), "released browser");
    }
    gateway.assert_nothing_owed();
}

#[test]
fn the_callers_pipes_are_not_held_open() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);

    let said = sandbox.shell("out=$(ghost-browser run -e 'print(1)' 2>&1); echo \"got $out\"");

    assert_eq!(said.quietly(), "got 1");
    sandbox.stop();
    gateway.assert_nothing_owed();
}

#[test]
fn a_timeout_ends_the_whole_call() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    sandbox.script(";");

    let said = sandbox.script_with(["--timeout", "0.3"], "sleep(60)");

    said.fails_with(1);
    assert_eq!(sandbox.status()["state"], "connected");
    sandbox.stop();
    gateway.assert_nothing_owed();
}

#[test]
fn a_timeout_ends_the_wait_for_a_script() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    sandbox.shell("mkfifo silent unopened").quietly();

    for call in ["--timeout 0.2 <&3", "run --timeout 0.2 silent", "run --timeout 0.2 unopened"] {
        let said = sandbox.shell(&format!("exec 3<>silent; ghost-browser {call}"));
        assert!(said.fails_with(2).contains("no script arrived within --timeout"), "{call}: {said:#?}");
    }
    let slow = "(echo 'print(1)' >unopened &) ; ghost-browser run --timeout 60 unopened";

    assert_eq!(sandbox.shell(slow).value(), "1");
    sandbox.stop();
    gateway.assert_nothing_owed();
}

#[test]
fn a_forgotten_page_is_told() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);

    let alone = sandbox.script("cdp(\"Page.navigate\", #{url: \"about:blank\"})");
    let among = sandbox.script("print(cdp_all([[\"Page.reload\"]])[0].error.hint)");

    assert!(alone.fails_with(1).contains("`cdp(\"Page.navigate\", #{…}, ensure_page())`"), "{alone:#?}");
    assert!(among.value().contains("ensure_page()"), "{among:#?}");
    sandbox.stop();
    gateway.assert_nothing_owed();
}

#[test]
fn json_is_one_envelope() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);

    let good = sandbox.script_with(["--json"], "print(\"said\"); #{a: 1}");
    let bad = sandbox.script_with(["--json"], "throw \"no\"");

    let envelope = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    let (good, bad) = (envelope(good.value()), (bad.code, envelope(&bad.stdout)));
    assert_eq!((&good["ok"], &good["value"]["a"]), (&true.into(), &1.into()));
    assert!(good["output"].to_string().contains("said"), "{good:#}");
    assert_eq!((bad.0, &bad.1["ok"], &bad.1["error"]["code"]), (Some(1), &false.into(), &"script_error".into()));
    sandbox.stop();
    gateway.assert_nothing_owed();
}
