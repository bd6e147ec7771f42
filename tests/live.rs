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
fn a_script_that_closes_the_browser_finds_it_gone_and_the_next_call_has_another() {
    let sandbox = Sandbox::local();

    let said = sandbox.script(
        r#"ensure_page(); print(cdp("Browser.close"));
        try { cdp("Browser.getVersion") } catch (e) { print(e.code) }"#,
    );
    let next = sandbox.script("js(`1 + 1`)");

    assert_eq!(said.value(), "{}\ndisconnected");
    assert_eq!(next.value(), "2");
    assert!(next.stderr.contains("the browser that was here is lost"), "{next:#?}");
    sandbox.stop();
    sandbox.assert_nothing_left();
}

#[test]
fn an_idle_browser_is_released() {
    let mut sandbox = Sandbox::local();
    sandbox.set("GHOST_BROWSER_IDLE_SECONDS", "0.5");
    sandbox.script("1").value();

    sandbox.wait_for_status("the idle release", |status| status["state"] == "stopped");

    sandbox.assert_nothing_left();
}

/// A web server that knows a few pages. Its thread ends with the test's process.
fn web() -> String {
    use std::io::{BufRead, BufReader, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    let answer = |path: &str| match path {
        "/moved" => "HTTP/1.1 302 Found\r\nLocation: /page\r\nContent-Length: 0\r\n\r\n".to_owned(),
        "/page" => page(
            "200 OK",
            "<h1>Hello</h1><script>setTimeout(() => document.body.append(document.createElement('aside')), 200)</script>",
        ),
        "/form" => page("200 OK", "<input id=pw autofocus>"),
        _ => page("404 Not Found", "<h1>Nothing</h1>"),
    };
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
            let first = lines.next().unwrap_or_default();
            lines.take_while(|line| !line.is_empty()).for_each(drop);
            let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
            // The browser may have gone.
            let _ = (&stream).write_all(answer(&path).as_bytes());
        }
    });
    origin
}

fn page(status: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

#[test]
fn the_page_module_opens_waits_and_reads() {
    let sandbox = Sandbox::local();
    sandbox.script(";").value();
    let origin = web();
    let run = |source: &str| sandbox.script(format!("import \"page\" as page; {}", source.replace("ORIGIN", &origin)));

    let opened = run("[page::open(\"ORIGIN/moved\"), page::text(\"h1\"), page::open(\"ORIGIN/none\").status]");
    assert_eq!(
        opened.quietly(),
        format!(r#"[{{"landed":"{origin}/page","requested":"{origin}/moved","status":200}},"Hello",404]"#)
    );
    assert_eq!(run("page::open(\"data:text/html,<h1>D</h1>\").status == ()").quietly(), "true");
    assert_eq!(run("page::open(\"ORIGIN/page\"); page::wait_for(\"aside\"); page::text(\"aside\")").quietly(), "");

    let error = run("page::open(\"http://127.0.0.1:1/\")").fails_with(1).to_owned();
    assert!(
        error.contains("cannot open http://127.0.0.1:1/: net::ERR_") && error.contains("helpers/page.rhai:"),
        "{error}"
    );
    assert_eq!(
        run("try { page::open(\"http://nowhere.invalid/\") } catch (e) { print(e.code) }").quietly(),
        "load_failed"
    );
    assert!(run("page::text(\"#none\")").fails_with(1).contains("no element matches #none"));
    assert!(run("page::wait_for(\"#none\", 0.2)").fails_with(1).contains("no element matches #none after 0.2 seconds"));
    assert!(run("page::wait_for(\"#[\")").fails_with(1).contains("SyntaxError"));
    sandbox.stop();
}

#[test]
fn a_bound_secret_is_typed_into_a_page_of_its_origin_and_into_no_other() {
    let (shop, other) = (web(), web());
    let mut sandbox = Sandbox::local();
    sandbox.set("GHOST_BROWSER_SECRETS", format!("SHOP_PW@{shop}")).set("SHOP_PW", "hunter2-and-more");
    sandbox.script(";").value();
    let fill = |origin: &str| {
        sandbox.script(format!(
            "import \"page\" as page; page::open(\"{origin}/form\"); cdp(\"Input.insertText\", #{{text: secret(\"SHOP_PW\")}}, \
             ensure_page()); [js(\"pw.value.length\"), js(\"pw.value\")]"
        ))
    };

    assert_eq!(fill(&shop).quietly(), "[16,\"[redacted]\"]");
    assert!(fill(&other).fails_with(1).contains(&format!("not for a page of {other}")));
    assert_eq!(sandbox.script("js(\"pw.value\")").quietly(), "");
    sandbox.stop();
}
