//! Pages of a real Chromium: closed, lost, crashed, blocked, busy, many, and watched without a trace.

mod support;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::{Value, json};
use support::{FakeGateway, Reaction, Running, Sandbox, Site};

/// Functions that the scripts below share.
const SHARED: &str = r#"
fn visit(page, url) {
    let loaded = expect_event("Page.loadEventFired", #{session: page});
    cdp("Page.enable", #{}, page);
    cdp("Page.navigate", #{url: url}, page);
    loaded.wait();
}
fn popup(page, url) {
    cdp("Runtime.evaluate", #{expression: `window.open("${url}"); 1`, userGesture: true}, page);
    find(url)
}
fn find(url) {
    loop {
        for tab in tabs() { if tab.url == url { return tab.target_id; } }
        sleep(0.02);
    }
}
fn is_open(target) { tabs().some(|tab| tab.target_id == target) }
fn click(page) {
    for kind in ["mousePressed", "mouseReleased"] {
        cdp("Input.dispatchMouseEvent", #{type: kind, x: 10, y: 10, button: "left", clickCount: 1}, page);
    }
}
fn code(act) { try { act.call(); return "none"; } catch (e) { return e.code; } }
"#;

fn script(text: &str) -> String {
    format!("{SHARED}\n{text}")
}

/// `script`, for a site.
fn on(site: &Site, text: &str) -> String {
    script(&text.replace("SITE", &site.url("")))
}

/// Starts a script and waits until it says that it is ready.
#[track_caller]
fn start(sandbox: &Sandbox, text: &str) -> Running {
    let mut running = sandbox.spawn(["run", "-e", text], "");
    assert_eq!(running.line(), "ready");
    running
}

#[test]
fn p1_a_tab_that_was_closed_is_said_to_be_gone_and_no_other_takes_its_place() {
    let sandbox = Sandbox::local();
    let first = script(
        r#"
        ensure_page();
        let page = ensure_page("new");
        cdp("Target.closeTarget", #{targetId: page.target_id});
        print([
            code(|| js("1")), code(|| page_info()), code(|| ensure_page()), code(|| capture_screenshot("x.png")),
            code(|| cdp("Runtime.evaluate", #{expression: "1"}, page)),
            cdp_all([["Runtime.evaluate", #{expression: "1"}, page]])[0].error.code,
            tabs().len(),
        ])"#,
    );
    let then = script(r#"print([code(|| js("1")), code(|| ensure_page())]); ensure_page("new"); js("1 + 1")"#);

    let (first, then) = (sandbox.script(first), sandbox.script(then));

    let gone = r#""target_gone""#;
    assert_eq!(first.value(), format!("[{gone},{gone},{gone},{gone},{gone},{gone},1]"));
    assert_eq!(then.value(), format!("[{gone},{gone}]\n2"));
    sandbox.stop();
}

#[test]
fn p1_a_tab_that_another_call_or_the_page_itself_closes_is_gone_too() {
    let (sandbox, site) =
        (Sandbox::local(), Site::start([("/", "<title>opener</title>"), ("/kid", "<title>kid</title>")]));
    let waits = script(
        r#"let page = ensure_page("new"); print("ready"); while is_open(page.target_id) { sleep(0.02); } code(|| js("1"))"#,
    );
    sandbox.script("ensure_page();").value();

    let waiting = start(&sandbox, &waits);
    let closes = "for tab in tabs().filter(|tab| tab.target_id != ensure_page().target_id) { cdp(\"Target.closeTarget\", #{targetId: tab.target_id}); }";
    sandbox.script(closes).value();
    let by_itself = on(
        &site,
        r#"
        let page = ensure_page("new");
        visit(page, "SITE/");
        let kid = popup(page, "SITE/kid");
        ensure_page(kid);
        js("setTimeout(() => window.close(), 10)");
        while is_open(kid) { sleep(0.02); }
        print(code(|| js("1")));
        ensure_page(page.target_id);
        js("document.title")"#,
    );

    assert_eq!(waiting.wait().value(), "ready\ntarget_gone");
    assert_eq!(sandbox.script(by_itself).value(), "target_gone\nopener");
    sandbox.stop();
}

#[test]
fn p2_a_lost_session_is_attached_again_to_the_same_page_and_what_ran_runs_once() {
    let sandbox = Sandbox::local();
    let counted = script(
        r#"
        let other = ensure_page("new");
        js("window.clicks = 0; addEventListener('click', () => clicks++); 1");
        let page = ensure_page("new");
        js("window.runs = 0");
        let lose = || cdp("Target.detachFromTarget", #{sessionId: ensure_page().session_id});
        lose.call();
        print(js("++runs"));
        lose.call();
        print(cdp("Runtime.evaluate", #{expression: "++runs"}, page).result.value);
        lose.call();
        print(cdp_all([["Runtime.evaluate", #{expression: "++runs"}, page]])[0].result.result.value);
        lose.call();
        click(page);
        lose.call();
        let again = ensure_page();
        print([again.target_id == page.target_id, again.session_id == page.session_id]);
        print(cdp("Runtime.evaluate", #{expression: "++runs"}, again.session_id).result.value);
        print(code(|| cdp("Runtime.evaluate", #{expression: "++runs"}, page.session_id)));
        lose.call();
        ensure_page(other.target_id);
        print(js("clicks"));
        ensure_page(page.target_id);
        lose.call();"#,
    );

    let said = sandbox.script(counted);

    assert_eq!(said.value(), "1\n2\n3\n[true,false]\n4\ntarget_gone\n0");
    assert_eq!(sandbox.script("js(\"++runs\")").value(), "5");
    sandbox.stop();
}

#[test]
fn p2_a_wait_for_events_follows_its_page_to_a_new_session() {
    let sandbox = Sandbox::local();
    let script = r#"
        let page = ensure_page("new");
        let moved = expect_event("Page.frameNavigated", #{session: page, timeout_ms: 5000});
        cdp("Target.detachFromTarget", #{sessionId: page.session_id});
        cdp("Page.enable", #{}, page);
        cdp("Page.navigate", #{url: "data:text/html,there"}, page);
        moved.wait().params.frame.url"#;

    assert_eq!(sandbox.script(script).value(), "data:text/html,there");
    sandbox.stop();
}

#[test]
fn p2_only_what_provably_did_not_run_is_sent_again() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    let lost = || Reaction::Error(-32001, "Session with given id not found.".to_owned());
    gateway
        .cdp()
        .on("Test.lost", move |command| if command.nth == 0 { lost() } else { Reaction::Result(json!({"n": 2})) });
    let navigated = "Inspected target navigated or closed".to_owned();
    gateway.cdp().on("Test.navigated", move |_| Reaction::Error(-32000, navigated.clone()));
    gateway.cdp().on("Test.failed", |_| Reaction::Error(-32000, "Session with given id not found.".to_owned()));
    gateway.cdp().on("Test.never", |_| Reaction::Never);

    let said = sandbox.script(script(
        r#"
        let page = ensure_page();
        print(cdp("Test.lost", #{}, page).n);
        print([
            code(|| cdp("Test.navigated", #{}, page)), code(|| cdp("Test.failed", #{}, page)),
            code(|| cdp("Test.never", #{}, page, #{timeout_ms: 100})),
        ]);
        ensure_page().target_id == page.target_id"#,
    ));

    assert_eq!(said.value(), "2\n[\"outcome_unknown\",\"cdp_error\",\"outcome_unknown\"]\ntrue");
    assert!(
        said.stderr.contains("was lost and attached anew"),
        "what it had enabled is off, and that is said: {said:#?}"
    );
    let sent = |method: &str| gateway.cdp().count(method);
    assert_eq!([sent("Test.lost"), sent("Test.navigated"), sent("Test.failed"), sent("Test.never")], [2, 1, 1, 1]);
    let attached = gateway.cdp().commands().into_iter().filter(|command| command.method == "Target.attachToTarget");
    let targets: Vec<_> = attached.map(|command| command.params["targetId"].clone()).collect();
    assert!(targets.len() == 2 && targets[0] == targets[1], "{targets:?}");
    sandbox.stop();
    gateway.assert_nothing_owed();
}

#[test]
fn p3_a_crash_ends_what_is_pending_on_its_page_and_nothing_else() {
    let sandbox = Sandbox::local();
    let crash = script(
        r#"
        let other = ensure_page("new");
        let page = ensure_page("new");
        let slow = "new Promise(done => setTimeout(() => done('whole'), 500))";
        let never = "new Promise(() => {})";
        let replies = cdp_all([
            ["Runtime.evaluate", #{expression: slow, awaitPromise: true}, other],
            ["Runtime.evaluate", #{expression: never, awaitPromise: true}, page],
            ["Page.crash", #{}, page],
        ]);
        print([replies[0].result.result.value, replies[1].error.code, replies[2].error.code, code(|| js("1"))]);
        ensure_page("new");
        print(js("'new'"));
        ensure_page(page.target_id);
        cdp("Page.navigate", #{url: "data:text/html,<title>again</title>"}, page);
        while page_info().title != "again" { sleep(0.02); }
        print(js("document.title"));
        code(|| js("confirm('watched?')"))"#,
    );
    let began = Instant::now();

    let said = sandbox.script(crash);

    assert_eq!(said.value(), "[\"whole\",\"page_crashed\",\"page_crashed\",\"page_crashed\"]\nnew\nagain\ndialog_open");
    assert!(began.elapsed() < Duration::from_secs(20), "nothing waited for its deadline");
    sandbox.stop();
}

#[test]
fn p4_a_confirm_waits_for_an_answer_that_another_call_can_give() {
    let sandbox = Sandbox::local();
    let asks = script(
        r#"
        ensure_page();
        let before = page_info();
        print(code(|| js("window.answer = confirm('Really?')")));
        let blocked = page_info();
        print([blocked.url == before.url, blocked.width == before.width, blocked.height == before.height]);
        blocked.dialog"#,
    );
    let answers = script(
        r#"
        print(page_info().dialog.type);
        cdp("Page.handleJavaScriptDialog", #{accept: true}, ensure_page());
        print(page_info().contains("dialog"));
        js("answer")"#,
    );

    assert_eq!(
        sandbox.script(asks).value(),
        "dialog_open\n[true,true,true]\n{\"message\":\"Really?\",\"type\":\"confirm\"}"
    );
    assert_eq!(sandbox.script(answers).value(), "confirm\nfalse\ntrue");
    let prompts = script(
        r#"
        code(|| js("window.said = prompt('Name?')"));
        let info = page_info();
        cdp("Page.handleJavaScriptDialog", #{accept: true, promptText: "Ada"}, ensure_page());
        [info.dialog.type, info.url, js("said")]"#,
    );
    assert_eq!(sandbox.script(prompts).value(), r#"["prompt","about:blank","Ada"]"#);
    sandbox.stop();
}

#[test]
fn p4_a_call_behind_a_dialog_ends_within_a_second() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    let cdp = gateway.cdp().clone();
    gateway.cdp().on("Test.asks", move |_| {
        for (session, _) in cdp.sessions() {
            let params = json!({"type": "confirm", "message": "Really?", "url": "", "hasBrowserHandler": false});
            let event = json!({"method": "Page.javascriptDialogOpening", "sessionId": session, "params": params});
            cdp.send_raw(&event.to_string());
        }
        Reaction::Never
    });

    let said = sandbox.script(script(
        r#"
        let page = ensure_page();
        let before = timestamp();
        print(code(|| cdp("Test.asks", #{}, page)));
        print(before.elapsed < 1.0);
        // What does not concern the page is not held up.
        cdp("Browser.getVersion").protocolVersion"#,
    ));

    assert_eq!(said.quietly(), "dialog_open\ntrue\n1.3");
    sandbox.stop();
    gateway.assert_nothing_owed();
}

#[test]
fn p4_alerts_are_accepted_and_told_until_a_page_overdoes_it() {
    let sandbox = Sandbox::local();
    sandbox.script("ensure_page();").value();

    let one = sandbox.script("js(\"alert('hello'); 1\")");
    let many = sandbox.script(script(r#"code(|| js("for (let i = 0; i < 1000; i++) alert(i)"))"#));

    assert_eq!(one.value(), "1");
    assert!(one.stderr.contains("accepted a dialog of the page: alert \"hello\""), "{one:#?}");
    assert_eq!(many.value(), "dialog_open");
    assert_eq!(sandbox.script("page_info().dialog.type").value(), "alert");
    sandbox.stop();
}

#[test]
fn p4_a_dirty_tab_closes_and_stop_ends_with_a_dialog_open() {
    let dirty = "<body onbeforeunload='event.preventDefault(); return 1'>dirty";
    let (sandbox, site) = (Sandbox::local(), Site::start([("/dirty", dirty)]));
    let closes = on(
        &site,
        r#"
        ensure_page();
        for close in ["Page.close", "Target.closeTarget"] {
            let page = ensure_page("new");
            visit(page, "SITE/dirty");
            click(page);
            cdp(close, if close == "Page.close" { #{} } else { #{targetId: page.target_id} }, if close == "Page.close" { page } else { () });
            print(is_open(page.target_id));
        }
        let page = ensure_page("new");
        visit(page, "SITE/dirty");
        click(page);
        ensure_page("new");
        code(|| js("confirm('open at stop')"))"#,
    );

    let said = sandbox.script(closes);

    assert_eq!(said.value(), "false\nfalse\ndialog_open");
    assert!(said.stderr.contains("beforeunload"), "{said:#?}");
    assert_eq!(sandbox.stop().quietly(), "released browser");
    sandbox.assert_nothing_left();
}

#[test]
fn p5_code_that_never_ends_is_ended_and_the_page_goes_on() {
    let sandbox = Sandbox::local();
    sandbox.script("ensure_page();").value();
    let loops = script(
        r#"
        ensure_page("new");
        print("ready");
        print(code(|| js("while (true) {}", #{timeout_ms: 2000})));
        js("'usable'")"#,
    );
    let waits = script(
        r#"
        try { js("new Promise(() => {})", #{timeout_ms: 200}) } catch (e) { print([e.code, e.message.contains("promise")]); }
        js("'usable'")"#,
    );

    let running = start(&sandbox, &loops);
    let asked = Instant::now();
    let status = sandbox.status();
    let answered = asked.elapsed();
    let beside = sandbox.script("js(\"'beside'\")");

    assert_eq!((&status["state"], &status["scripts"]), (&"connected".into(), &1.into()));
    assert!(answered < Duration::from_secs(1), "status took {answered:?}");
    assert_eq!(beside.value(), "beside");
    assert_eq!(running.wait().value(), "ready\ntimeout\nusable");
    assert_eq!(sandbox.script(waits).value(), "[\"timeout\",true]\nusable");
    sandbox.stop();
}

#[test]
fn p5_an_interrupted_script_leaves_no_endless_loop_behind() {
    let (sandbox, site) = (Sandbox::local(), Site::start([("/", "<title>here</title>")]));
    let report = "let request = new XMLHttpRequest(); request.open('POST', '/', false); request.send('runs')";
    let loops = format!("visit(ensure_page(), \"SITE/\"); js(`(() => {{ {report}; while (true) {{}} }})()`)");

    let running = sandbox.spawn(["run", "-e", &on(&site, &loops)], "");
    site.wait_for_report(1);
    running.signal(Signal::SIGINT);

    assert_eq!(running.wait().code, Some(130));
    assert_eq!(sandbox.script("js(\"document.title\", #{timeout_ms: 10000})").value(), "here");
    sandbox.stop();
}

#[test]
fn p5_a_page_that_cannot_be_helped_is_unresponsive_and_its_code_ran_once() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    gateway.cdp().on("Runtime.evaluate", |_| Reaction::Never);

    let said = sandbox.script(script(r#"code(|| js("while (true) {}", #{timeout_ms: 100}))"#));

    assert_eq!(said.value(), "page_unresponsive");
    let sent = gateway.cdp().commands();
    let ran = |text: &str| sent.iter().filter(|command| command.params["expression"] == text).count();
    assert_eq!((ran("while (true) {}"), gateway.cdp().count("Runtime.terminateExecution")), (1, 1));
    sandbox.stop();
    gateway.assert_nothing_owed();
}

#[test]
fn p6_a_tab_that_never_answers_holds_nobody_up() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    // The first page that is watched, the one that every browser starts with, never answers.
    gateway.cdp().on("Page.enable", |command| if command.nth == 0 { Reaction::Never } else { Reaction::Usual });
    let starts = script(r#"let first = ensure_page(); ensure_page("new"); print(js("1 + 1")); first.target_id"#);

    let began = Instant::now();
    let said = sandbox.script(starts);
    let target = said.value().lines().last().unwrap().to_owned();
    let hung = script(
        r#"
        loop {
            try { ensure_page(args[0]); } catch (e) { print(e.code + " " + e.hint); break; }
            sleep(0.05);
        }"#,
    );
    sandbox.file("hung.rhai", hung);
    let hung = sandbox.ghost(["run", "hung.rhai", &target]);

    assert!(said.value().starts_with("2\n"), "{said:#?}");
    assert!(began.elapsed() < Duration::from_secs(15), "nothing waited for a deadline of its own");
    assert!(hung.value().starts_with("page_unresponsive `Page.navigate`"), "{hung:#?}");
    assert_eq!(sandbox.script("ensure_page(\"new\"); js(\"1 + 2\")").value(), "3");
    sandbox.stop();
    gateway.assert_nothing_owed();
}

#[test]
fn p7_two_scripts_at_once_keep_their_own_pages_and_both_see_every_event() {
    let sandbox = Sandbox::local();
    sandbox.script("ensure_page();").value();
    let worker = |name: &str| {
        script(
            &r#"
            let page = ensure_page("new");
            js("document.title = 'NAME'");
            cdp("Target.setDiscoverTargets", #{discover: true});
            let signal = expect_event("Target.targetInfoChanged", #{where: |seen| seen.targetInfo.url.contains("signal")});
            print("ready");
            signal.wait();
            print(js("document.title"));
            print(ensure_page().target_id == page.target_id);
            drain_events("Target.targetInfoChanged").some(|event| event.params.targetInfo.url.contains("signal"))"#
                .replace("NAME", name),
        )
    };

    let (one, two) = (start(&sandbox, &worker("one")), start(&sandbox, &worker("two")));
    sandbox.script("cdp(\"Page.navigate\", #{url: \"data:text/html,signal\"}, ensure_page(\"new\"));").value();

    assert_eq!(one.wait().value(), "ready\none\ntrue\ntrue");
    assert_eq!(two.wait().value(), "ready\ntwo\ntrue\ntrue");
    sandbox.stop();
}

#[test]
fn p7_a_script_that_chose_no_page_leaves_the_choice_of_another_alone() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    sandbox.script("ensure_page();").value();
    let idle = start(
        &sandbox,
        "print(\"ready\"); js(\"1\"); wait_event(\"Test.end\", #{timeout_ms: 20000}); print(ensure_page().target_id)",
    );

    let chosen = sandbox.script("ensure_page(\"new\").target_id").value().to_owned();
    gateway.cdp().send_raw(r#"{"method":"Test.end","params":{}}"#);
    let kept = idle.wait().value().lines().last().unwrap().to_owned();

    assert_ne!(kept, chosen);
    assert_eq!(sandbox.script("ensure_page().target_id").value(), chosen);
    sandbox.stop();
    gateway.assert_nothing_owed();
}

#[test]
fn p7_scripts_share_one_session_on_a_page_and_not_their_handles() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    let works = r#"
        let page = ensure_page();
        for round in 0..3 {
            let other = ensure_page("new");
            ensure_page(page.target_id);
            cdp("Target.closeTarget", #{targetId: other.target_id});
        }
        js("({a: 1})");
        page.session_id"#;

    let (one, two) = (sandbox.script(works), sandbox.script(works));

    assert_eq!(one.quietly(), two.quietly());
    let sent = gateway.cdp().commands();
    let attached = sent.iter().filter(|command| command.method == "Target.attachToTarget").count();
    assert_eq!(attached, 1 + 6, "one session on the page, one on each of the others");
    let groups: Vec<_> = sent.iter().filter_map(|command| command.params["objectGroup"].as_str()).collect();
    assert!(groups.len() == 2 && groups[0] != groups[1], "{groups:?}");
    sandbox.stop();
    gateway.assert_nothing_owed();
}

#[test]
fn p7_the_next_script_sees_the_events_that_came_between() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    let seen = "drain_events(\"Test.seen\").map(|event| event.params.n)";
    let send =
        |number: u32| gateway.cdp().send_raw(&format!("{{\"method\":\"Test.seen\",\"params\":{{\"n\":{number}}}}}"));

    sandbox.script(";").value();
    send(1);
    let first = sandbox.script(format!("cdp(\"Browser.getVersion\"); {seen}"));
    send(2);
    sandbox.script("cdp(\"Browser.getVersion\");").value();
    let second = sandbox.script(format!("cdp(\"Browser.getVersion\"); {seen}"));

    assert_eq!((first.value(), second.value()), ("[1]", "[2]"));
    sandbox.stop();
    gateway.assert_nothing_owed();
}

#[test]
fn p8_what_a_page_opens_at_birth_blocks_nobody_and_is_not_lost() {
    let opener = "<title>opener</title><script>alert('first'); window.kid = open('/kid', 'kid')</script><iframe src=/frame></iframe>";
    let frame = "<script>alert('frame')</script>";
    let kid = "<script>alert('kid'); document.title = confirm('Yes?') ? 'yes' : 'no'</script>";
    let site = Site::start([("/", opener), ("/frame", frame), ("/kid", kid)]);
    let mut sandbox = Sandbox::local();
    sandbox.set("GHOST_BROWSER_CHROMIUM_ARGS", "--disable-popup-blocking");
    let births = on(
        &site,
        r#"
        let page = ensure_page();
        // Not awaited: the confirm of the popup holds its opener up, because both run on one thread.
        cdp("Page.navigate", #{url: "SITE/"}, page);
        ensure_page(find("SITE/kid"));
        while !page_info().contains("dialog") { sleep(0.02); }
        print(page_info().dialog.message);
        try { js("1", #{session: page, timeout_ms: 50}); } catch (e) { print(e.code); }
        // A script that turns its own attaching off has nothing to do with the watch.
        for on in [true, false] {
            cdp("Target.setAutoAttach", #{autoAttach: on, waitForDebuggerOnStart: false, flatten: true});
        }
        cdp("Page.handleJavaScriptDialog", #{accept: true}, ensure_page());
        while js("document.title", #{session: page}) != "opener" || js("document.readyState", #{session: page}) != "complete" { sleep(0.02); }
        print(js("document.title"));
        print(code(|| js("confirm('still watched?')")));
        let shown = drain_events().filter(|event| event.method.starts_with("Page.") && event.session_id != page.session_id);
        shown.len()"#,
    );

    let said = sandbox.script(births);

    assert_eq!(said.value(), "Yes?\ndialog_open\nyes\ndialog_open\n0");
    for told in ["alert \"first\"", "alert \"kid\"", "alert \"frame\""] {
        assert!(said.stderr.contains(told), "{said:#?}");
    }
    sandbox.stop();
}

#[test]
fn p8_no_event_names_a_session_of_the_watch() {
    let sandbox = Sandbox::local();
    let named = r#"
        let named = [];
        for event in drain_events() { if "sessionId" in event.params { named.push(event.params.sessionId); } }
        named"#;

    let first = sandbox
        .script(format!("let at_birth = {{ {named} }}; let page = ensure_page(\"new\"); [at_birth, page.session_id]"));
    let second =
        sandbox.script(format!("cdp(\"Target.closeTarget\", #{{targetId: ensure_page().target_id}}); {named}"));

    let first: serde_json::Value = serde_json::from_str(first.value()).unwrap();
    let second: serde_json::Value = serde_json::from_str(second.value()).unwrap();
    assert_eq!(first[0], serde_json::json!([]), "the watch over all pages is set up before any script");
    let own = &first[1];
    assert!(second.as_array().unwrap().iter().all(|session| session == own), "{second} beside {own}");
    sandbox.stop();
}

#[test]
fn p8_a_page_is_watched_while_no_script_runs() {
    let alone = "<script>setTimeout(() => { alert('alone'); open('/kid'); fetch('/', {method: 'POST', body: 'went on'}) }, 300)</script>";
    let kid = "<script>alert('kid alone'); fetch('/', {method: 'POST', body: 'kid went on'})</script>";
    let site = Site::start([("/", alone), ("/kid", kid)]);
    let mut sandbox = Sandbox::local();
    sandbox.set("GHOST_BROWSER_CHROMIUM_ARGS", "--disable-popup-blocking");

    sandbox.script(on(&site, "cdp(\"Page.navigate\", #{url: \"SITE/\"}, ensure_page());")).value();
    site.wait_for_report(2);

    let said = sandbox.script("tabs().len()");
    assert_eq!(said.value(), "2");
    assert!(said.stderr.contains("\"alone\"") && said.stderr.contains("\"kid alone\""), "{said:#?}");
    sandbox.stop();
}

/// Looks for a harness in every way that a page has, and reports what it finds.
const SUSPICIOUS: &str = r#"<!doctype html><title>suspicious</title><script>
const now = () => performance.now();
const least = async (measure) => {
    const lengths = [];
    for (let i = 0; i < 5; i++) lengths.push(await measure());
    return Math.min(...lengths);
};
async function traps() {
    let touched = 0;
    const touch = (value) => () => { touched++; return value; };
    const error = new Error('trap');
    Object.defineProperty(error, 'stack', {get: touch('')});
    const object = Object.defineProperty({}, 'id', {enumerable: true, get: touch(1)});
    const date = new Date(); date.toString = touch('');
    const regexp = /x/; regexp.toString = touch('');
    const plain = () => 1; plain.toString = touch('');
    const proxy = new Proxy({}, {ownKeys: touch([]), getPrototypeOf: touch(null), get: touch(undefined)});
    const usual = Error.prepareStackTrace;
    Error.prepareStackTrace = touch('');
    for (const say of ['debug', 'log', 'dir', 'table', 'error', 'trace', 'groupEnd'])
        for (const bait of [error, object, date, regexp, plain, proxy, new Error('fresh')]) console[say](bait);
    await new Promise(done => setTimeout(done, 300));
    Error.prepareStackTrace = usual;
    return touched;
}
const names = (object) => Object.getOwnPropertyNames(object).sort().join();
const sources = () => [fetch, setTimeout, open, alert, Function.prototype.toString, Element.prototype.click,
    Object.getOwnPropertyDescriptor(Navigator.prototype, 'webdriver').get].map(String).join();
const pause = () => { const from = now(); debugger; return now() - from; };
const worker = () => new Promise(done => { const from = now(); new Worker('/worker.js').onmessage = () => done(now() - from); });
const popup = () => new Promise(done => {
    const from = now();
    window.onmessage = () => done(now() - from);
    open('/said?' + from, '_blank');
});
const frame = () => new Promise(done => {
    const from = now(), frame = document.createElement('iframe');
    frame.onload = () => { frame.remove(); done(now() - from); };
    frame.src = '/frame';
    document.documentElement.append(frame);
});
const depth = () => { try { return 1 + depth(); } catch { return 0; } };
(async () => {
    const found = {
        touched: await traps(), window: names(window), document: names(document), navigator: names(navigator),
        prototypes: names(Navigator.prototype) + names(Document.prototype), sources: sources(),
        webdriver: navigator.webdriver, languages: navigator.languages.join(), agent: navigator.userAgent,
        html: document.documentElement.outerHTML.length, stack: new Error('x').stack.replace(/:\d+/g, ''),
        limit: Error.stackTraceLimit, deep: depth() > 1000,
    };
    const delays = {debugger: await least(pause), worker: await least(worker), popup: await least(popup), frame: await least(frame)};
    found.later = names(window);
    await fetch('/', {method: 'POST', body: JSON.stringify({found, delays})});
    document.title = 'reported';
})();
</script>"#;

#[test]
fn p8_a_page_that_looks_for_the_harness_finds_what_a_plain_browser_shows() {
    let said = "<script>opener.postMessage(1, '*'); close()</script>";
    let site =
        Site::start([("/", SUSPICIOUS), ("/worker.js", "postMessage(1)"), ("/said", said), ("/frame", "<p>frame")]);
    let mut sandbox = Sandbox::local();
    sandbox.set("GHOST_BROWSER_CHROMIUM_ARGS", "--disable-popup-blocking");
    let watches = on(
        &site,
        r#"
        let page = ensure_page();
        cdp("Page.navigate", #{url: "SITE/"}, page);
        do {
            js("[document.title, new Map([[1, {a: [location]}]]).size]");
            tabs();
            drain_events();
        } while page_info().title != "reported";"#,
    );
    let running = sandbox.spawn(["run", "-e", &watches], "");
    let harnessed = site.wait_for_report(1);
    running.wait().value();
    let plain = Plain::start(&sandbox, &site.url("/"));
    let expected = site.wait_for_report(2);
    drop(plain);

    let (harnessed, expected): (Value, Value) =
        (serde_json::from_str(&harnessed).unwrap(), serde_json::from_str(&expected).unwrap());

    for (what, usual) in expected["found"].as_object().unwrap() {
        assert_eq!(&harnessed["found"][what], usual, "{what}");
    }
    for (what, usual) in expected["delays"].as_object().unwrap() {
        let (seen, usual) = (harnessed["delays"][what].as_f64().unwrap(), usual.as_f64().unwrap());
        assert!(seen < usual * 3.0 + 250.0, "{what}: {seen} ms, {usual} ms in a plain browser");
    }
    sandbox.stop();
}

/// The same Chromium with the same flags, and nobody at its debugging door.
struct Plain(Child);

impl Plain {
    fn start(sandbox: &Sandbox, url: &str) -> Self {
        let own = sandbox.chromiums().into_iter().find(|process| process.command.contains("--remote-debugging-pipe"));
        let command = own.expect("the harness's Chromium runs").command;
        let mut words = command.split(' ').filter(|word| !word.is_empty());
        let program = words.next().expect("a program");
        let kept = words.filter(|word| {
            word.starts_with("--") && !["--remote-debugging", "--user-data-dir"].iter().any(|own| word.starts_with(own))
        });
        let data = sandbox.root().join("plain");
        let mut plain = Command::new(program);
        plain.args(kept).arg(format!("--user-data-dir={}", data.display())).arg(url);
        plain.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        plain.env("HOME", &data).env("TMPDIR", &data);
        std::fs::create_dir(&data).expect("make its folder");
        std::os::unix::process::CommandExt::process_group(&mut plain, 0);
        Self(plain.spawn().expect("start a plain Chromium"))
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = killpg(Pid::from_raw(self.0.id() as i32), Signal::SIGKILL);
        let _ = self.0.wait();
    }
}

#[test]
fn p1_a_picture_of_a_page_that_is_gone_leaves_no_file() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    let target = sandbox.script("ensure_page(\"new\").target_id").value().to_owned();
    gateway.cdp().close_page(&target);

    let said = sandbox.script(script("code(|| capture_screenshot(\"x.png\"))"));

    assert_eq!(said.value(), "target_gone");
    assert!(!Path::new(&sandbox.work()).join("x.png").exists());
    sandbox.stop();
    gateway.assert_nothing_owed();
}
