//! `parallel` on a real Chromium: a page for each worker, and none of them afterwards; and on a fake one that is slow or
//! refuses.

mod support;

use support::{FakeGateway, Reaction, Sandbox, ms};

/// Functions that the scripts here share: how many pages there are, and a page's way to another.
const COMMON: &str = r#"
fn pages() { cdp("Target.getTargets").targetInfos.filter(|info| info.type == "page").len() }
"#;

fn with_common(script: &str) -> String {
    format!("{COMMON}{script}")
}

fn pages_left(sandbox: &Sandbox) -> String {
    sandbox.script(with_common("pages()")).value().to_owned()
}

#[test]
fn each_worker_has_a_visible_page_of_its_own_and_all_are_closed() {
    let sandbox = Sandbox::local();
    let script = r#"
        ensure_page();
        let before = pages();
        let items = []; for n in 0..12 { items.push(n); }
        let results = parallel(items, 3, |n, page| {
            js(`window.seen = (window.seen || 0) + 1`);
            let frame = js("new Promise(done => requestAnimationFrame(() => done(document.visibilityState)))");
            [n, page.target_id == ensure_page().target_id, frame, page.target_id, pages()]
        });
        let own = #{}; let wrong = [];
        for (result, n) in results {
            let value = result.value;
            if value[0] != n || !value[1] || value[2] != "visible" || value[4] != before + 3 { wrong.push(result); }
            own[value[3]] = true;
        }
        [wrong, own.len() <= 3, own.len() >= 1, pages() == before]
    "#;

    assert_eq!(sandbox.script(with_common(script)).value(), "[[],true,true,true]");
    sandbox.stop();
}

#[test]
fn workers_run_at_once_and_each_sees_the_events_of_the_others_page() {
    let sandbox = Sandbox::local();
    // Neither gets further than `meet` before the other is there, too; its page keeps a `#` from then on.
    let script = r##"
        fn meet() {
            js("location.hash = 'ready'");
            while tabs().filter(|tab| tab.url.contains("#")).len() < 2 { sleep(0.01) }
        }
        parallel(["a", "b"], 2, |name, page| {
            cdp("Page.enable", #{}, page);
            let end = if name == "a" { "#from-b" } else { "#from-a" };
            let other = expect_event("Page.navigatedWithinDocument", #{where: |p| p.url.ends_with(end)});
            meet();
            js(`location.hash = "from-${name}"`);
            let url = other.wait().params.url;
            [url, drain_events("Page.navigatedWithinDocument").len() > 2]
        }).map(|r| if r.ok { r.value } else { r })
    "##;

    let said = sandbox.script(script);

    assert_eq!(said.value(), r##"[["about:blank#from-b",true],["about:blank#from-a",true]]"##);
    sandbox.stop();
}

#[test]
fn helper_modules_of_the_workspace_and_imported_ones_work_on_the_workers_page() {
    let sandbox = Sandbox::local();
    sandbox.file(".ghost/helpers/shop.rhai", "fn heading() { js(\"h.textContent\") }");
    let script = r#"
        import "page" as page;
        let urls = ["A", "B", "C"].map(|name| `data:text/html,<h1 id=h>${name}</h1>`);
        parallel(urls, 2, |url, tab| { page::open(url); heading() }).map(|r| if r.ok { r.value } else { r })
    "#;

    assert_eq!(sandbox.script(script).value(), r#"["A","B","C"]"#);
    sandbox.stop();
}

#[test]
fn a_wait_that_the_script_began_can_end_in_a_worker_and_the_other_way() {
    let sandbox = Sandbox::local();
    let script = r#"
        let page = ensure_page();
        cdp("Page.enable", #{}, page);
        let loaded = expect_event("Page.loadEventFired", #{session: page.session_id});
        let begun = parallel([1], 1, |n, own| {
            cdp("Page.navigate", #{url: "data:text/html,1"}, page);
            loaded.wait();
            expect_event("Page.loadEventFired", #{session: page.session_id})
        });
        cdp("Page.navigate", #{url: "data:text/html,2"}, page);
        begun[0].value.wait().method
    "#;

    assert_eq!(sandbox.script(script).value(), "Page.loadEventFired");
    sandbox.stop();
}

#[test]
fn an_item_that_fails_costs_only_itself_and_a_page_that_it_spoils_is_replaced() {
    let sandbox = Sandbox::local();
    let script = r##"
        let before = pages();
        let results = parallel(["ok", "throw", "close", "crash", "dialog", "hang", "last"], 1, |what, page| {
            if what == "throw" { js("nope.x"); }
            if what == "close" {
                let gone = expect_event("Target.detachedFromTarget");
                cdp("Target.closeTarget", #{targetId: page.target_id});
                gone.wait();
            }
            if what == "crash" { cdp("Page.crash", #{}, page); }
            if what == "dialog" { js("confirm('?')"); }
            if what == "hang" { js("for (;;) {}", #{timeout_ms: 300}); }
            js("1 + 1")
        });
        [results.map(|r| if r.ok { r.value } else { r.error.code }), pages() - before]
    "##;

    let said = sandbox.script(with_common(script));

    assert_eq!(said.value(), r#"[[2,"js_error","target_gone","page_crashed","dialog_open","timeout",2],0]"#);
    sandbox.stop();
}

#[test]
fn an_interrupt_midway_leaves_no_page_open() {
    let sandbox = Sandbox::local();
    sandbox.script("ensure_page()").value();
    let before = pages_left(&sandbox);
    let script = r#"parallel([1, 2, 3, 4], 4, |n, page| { print("busy"); js("for (;;) {}", #{timeout_ms: 600000}); })"#;
    let mut running = sandbox.spawn([] as [&str; 0], script);
    for _ in 0..4 {
        assert_eq!(running.line(), "busy");
    }

    running.signal(nix::sys::signal::Signal::SIGINT);

    assert_eq!(running.wait().code, Some(130));
    assert_eq!(pages_left(&sandbox), before);
    sandbox.stop();
}

#[test]
fn an_interrupt_while_pages_open_closes_those_that_come_after_it() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    gateway.cdp().on("Target.createTarget", |_| Reaction::After(ms(500), Box::new(Reaction::Usual)));
    let running = sandbox.spawn([] as [&str; 0], "parallel([1, 2], 2, |n, page| print(n))");
    gateway.cdp().wait_for("Target.createTarget", 2);

    running.signal(nix::sys::signal::Signal::SIGINT);

    let said = running.wait();
    assert_eq!((said.code, said.stdout.as_str()), (Some(130), ""));
    gateway.cdp().wait_for("Target.closeTarget", 2);
    sandbox.stop();
}

#[test]
fn where_one_page_is_refused_the_others_are_closed_and_nothing_ran() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    gateway.cdp().on("Target.createTarget", |command| match command.nth {
        1 => Reaction::Error(-32000, "no more windows".to_owned()),
        _ => Reaction::Usual,
    });

    let said = sandbox.script("parallel([1, 2, 3], 3, |n, page| print(n))");

    assert!(said.fails_with(1).contains("no more windows"), "{said:#?}");
    assert_eq!((said.stdout.as_str(), gateway.cdp().count("Target.closeTarget")), ("", 2));
    sandbox.stop();
}

#[test]
fn a_stop_midway_ends_the_script_and_the_browser() {
    let sandbox = Sandbox::local();
    let script = r#"parallel([1, 2], 2, |n, page| { print("busy"); sleep(3600); })"#;
    let mut running = sandbox.spawn([] as [&str; 0], script);
    for _ in 0..2 {
        assert_eq!(running.line(), "busy");
    }

    assert_eq!(sandbox.stop().quietly(), "released browser");

    assert_eq!(running.wait().code, Some(130));
    sandbox.assert_nothing_left();
}

#[test]
fn the_deadline_of_the_call_and_a_limit_leave_no_page_open() {
    let sandbox = Sandbox::local();
    sandbox.script("ensure_page()").value();
    let before = pages_left(&sandbox);
    let late = "parallel([1, 2], 2, |n, page| { try { js(\"new Promise(() => {})\", #{timeout_ms: 600000}) } catch { } loop {} })";
    let deep = "fn dive(n) { dive(n + 1) } parallel([1, 2], 2, |n, page| { if n == 1 { dive(1) } sleep(3600) })";

    let said = sandbox.script_with(["--timeout", "2"], late);
    assert_ne!(said.code, Some(0), "{said:#?}");
    assert_eq!(pages_left(&sandbox), before, "after the deadline");
    assert!(sandbox.script(deep).fails_with(1).contains("calls nested deeper"), "the limit is told");
    assert_eq!(pages_left(&sandbox), before, "after the limit");
    sandbox.stop();
}

#[test]
fn the_script_goes_on_with_its_own_page_and_sees_all_events() {
    let sandbox = Sandbox::local();
    let script = r#"
        let own = ensure_page();
        drain_events();
        parallel([1, 2], 2, |n, page| { cdp("Page.enable", #{}, page); cdp("Page.reload", #{}, page); js("1"); });
        [ensure_page() == own, drain_events("Target.detachedFromTarget").len() >= 2]
    "#;

    assert_eq!(sandbox.script(script).value(), "[true,true]");
    assert_eq!(sandbox.script("tabs().len()").value(), "1");
    sandbox.stop();
}
