//! A credential is never seen: canaries go in wherever a secret does, everything that can fail is made to fail, and
//! then they are looked for in all that came out.

mod support;

use std::cell::RefCell;
use std::fs;
use std::path::Path;

use nix::sys::signal::Signal;
use serde_json::json;
use support::{
    Answer, CloseReply, Delivery, FakeGateway, Handshake, Process, Reaction, ReleaseAnswer, Running, Said, Sandbox,
};

/// Every canary holds one of these words, which no spelling changes.
const CANARIES: [&str; 2] = ["canary", "socket-token"];

/// A token whose spellings differ: raw, percent-encoded, JSON-escaped.
const TOKEN: &str = "canary/token\"é 0123456789";

/// A browser's id, which is as good as a key to it.
const ID: &str = "canary-browser/1";

/// A sandbox that is fed with canaries and remembers what it was told.
struct Cage {
    gateway: FakeGateway,
    sandbox: Sandbox,
    heard: RefCell<Vec<String>>,
}

impl Cage {
    fn new() -> Self {
        let gateway = FakeGateway::start();
        gateway.wants_token(TOKEN);
        gateway.always_answers_allocations_with(Answer::browser().id(ID));
        let mut sandbox = Sandbox::new();
        sandbox.set("GHOST_GATEWAY_URL", format!("{}/?api_key=canary-key&plan=canary-plan", gateway.url()));
        sandbox.set("APIFY_TOKEN", TOKEN).set("GHOST_BROWSER_LOG", "debug");
        sandbox.set("GHOST_BROWSER_ALLOCATION_TIMEOUT", "2").set("GHOST_BROWSER_WS_TIMEOUT", "2");
        Self { gateway, sandbox, heard: RefCell::default() }
    }

    fn hears(&self, said: Said) -> Said {
        self.heard.borrow_mut().extend([said.stdout.clone(), said.stderr.clone()]);
        said
    }

    /// Runs a script as text and as JSON would tell it, and looks into everything that lives meanwhile.
    #[track_caller]
    fn script(&self, text: &str) -> Said {
        self.call(&["run", "--json", "-e", text]);
        self.call(&["run", "-e", text])
    }

    #[track_caller]
    fn call(&self, args: &[&str]) -> Said {
        let said = self.hears(self.sandbox.ghost(args));
        self.hears(self.sandbox.ghost(["status", "--json"]));
        self.hears(self.sandbox.ghost(["status", "--all"]));
        self.look_at_processes();
        self.look_at_words_and_files();
        said
    }

    /// Stops, and fails when a canary was seen anywhere or something is owed.
    #[track_caller]
    fn ends_well(&self) {
        self.call(&["stop"]);
        self.gateway.assert_nothing_owed();
        self.look_at_words_and_files();
    }

    #[track_caller]
    fn look_at_processes(&self) {
        // Who may not look sees nothing, which is the other promise.
        for Process { pid, command, .. } in self.sandbox.processes() {
            for file in ["cmdline", "environ"] {
                let text = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
                assert_no_canary(&format!("{file} of {command}"), &text);
            }
        }
    }

    #[track_caller]
    fn look_at_words_and_files(&self) {
        for text in self.heard.borrow().iter() {
            assert_no_canary("what was said", text.as_bytes());
        }
        look_below(self.sandbox.root());
    }
}

#[track_caller]
fn look_below(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, kind) = (entry.path(), entry.file_type());
        assert_no_canary("a file's name", path.as_os_str().as_encoded_bytes());
        match kind {
            Ok(kind) if kind.is_dir() => look_below(&path),
            Ok(kind) if kind.is_file() => {
                assert_no_canary(&path.display().to_string(), &fs::read(&path).unwrap_or_default())
            }
            _ => {}
        }
    }
}

#[track_caller]
fn assert_no_canary(of: &str, text: &[u8]) {
    for canary in CANARIES {
        let found = text.windows(canary.len()).position(|window| window.eq_ignore_ascii_case(canary.as_bytes()));
        if let Some(at) = found {
            let around = &text[at.saturating_sub(80)..text.len().min(at + 80)];
            panic!("a canary sings in {of}: …{}…", String::from_utf8_lossy(around));
        }
    }
}

#[test]
fn the_search_finds_a_canary_in_words_in_files_and_in_processes() {
    let seen = |look: &dyn Fn()| std::panic::catch_unwind(std::panic::AssertUnwindSafe(look)).is_err();
    let spoken = Cage::new();
    spoken.heard.borrow_mut().push("https://gateway.example/?token=CANARY%2F1".to_owned());
    let written = Cage::new();
    written.sandbox.file("deep/notes.txt", "a canary");
    let mut lived = Cage::new();
    lived.sandbox.set("GHOST_BROWSER_NAME", "canary");
    let (reader, writer) = std::io::pipe().unwrap();
    let mut command = lived.sandbox.command([] as [&str; 0]);
    command.stdin(reader);
    let running = Running::start(command, Vec::new());

    assert!(seen(&|| spoken.look_at_words_and_files()));
    assert!(seen(&|| written.look_at_words_and_files()));
    assert!(seen(&|| lived.look_at_processes()));

    drop(writer);
    running.wait();
}

#[test]
fn no_gateway_that_cannot_be_reached_or_is_refused_gives_one_away() {
    let gateway = FakeGateway::start();
    for (what, base, code) in [
        ("an unknown host", "https://nowhere.invalid", 3),
        ("plain HTTP where TLS is meant", &gateway.url().replace("http:", "https:"), 3),
        ("a closed port", "http://127.0.0.1:1", 3),
        ("plain HTTP elsewhere", "http://example.invalid", 2),
    ] {
        let mut cage = Cage::new();
        cage.sandbox.set("GHOST_GATEWAY_URL", format!("{base}/?api_key=canary-key&plan=canary-plan"));
        cage.sandbox.set("GHOST_BROWSER_ALLOCATION_TIMEOUT", "0.4");

        let said = cage.script("1");

        assert_eq!(said.code, Some(code), "{what}: {said:#?}");
        cage.ends_well();
    }
}

/// Runs a script for each of these answers, none of which brings a browser that can be used.
#[track_caller]
fn fails_quietly(answers: impl IntoIterator<Item = (&'static str, Answer)>) {
    for (what, answer) in answers {
        let cage = Cage::new();
        cage.gateway.answers_allocations_with([answer.clone(), answer]);

        let said = cage.script("1");

        assert!(matches!(said.code, Some(3 | 5)), "{what}: {said:#?}");
        cage.call(&["stop"]);
        cage.look_at_words_and_files();
    }
}

#[test]
fn no_refusal_of_a_gateway_gives_one_away() {
    let talkative = |status: u16| {
        let body = json!({"error": TOKEN, "webSocketDebuggerUrl": 7, "also": "canary-body"});
        Answer::status(status).body(&body.to_string()).header("X-Reason", "canary-header")
    };

    fails_quietly([
        ("401", talkative(401)),
        ("403", talkative(403)),
        ("redirect", Answer::redirect("https://canary-redirect.example/?token=canary")),
        ("500", talkative(500)),
    ]);
}

#[test]
fn no_broken_answer_of_a_gateway_gives_one_away() {
    let insecure = "ws://canary.example:1/devtools/browser/canary?token=canary";

    fails_quietly([
        ("no JSON", Answer::browser().id(ID).body("canary-body {")),
        ("no URL", Answer::json(json!({"canary-key": "canary-value"}))),
        ("an insecure URL", Answer::browser().id(ID).url(insecure)),
        ("no id", Answer::browser().without_id_header().url("http://canary.example/x?token=canary")),
        ("cut off", Answer::browser().id(ID).cut_chunk(20)),
    ]);
}

#[test]
fn a_refused_token_is_not_named() {
    let cage = Cage::new();
    cage.gateway.wants_token("another");

    let said = cage.script("1");

    assert!(said.fails_with(3).contains("gateway allocation failed: HTTP 401"), "{said:#?}");
    assert!(said.stderr.contains("APIFY_TOKEN"), "{said:#?}");
    cage.ends_well();
}

#[test]
fn no_websocket_that_fails_gives_one_away() {
    for handshake in [Handshake::Status(404), Handshake::Status(302), Handshake::Reset, Handshake::Silent] {
        let mut cage = Cage::new();
        cage.sandbox.set("GHOST_BROWSER_WS_TIMEOUT", "0.5");
        cage.gateway.always_answers_allocations_with(Answer::browser().id(ID).handshake(handshake));

        let said = cage.script("1");

        assert!(said.fails_with(3).contains("browser connection failed"), "{handshake:?}: {said:#?}");
        cage.ends_well();
    }
}

#[test]
fn a_websocket_that_cannot_be_reached_gives_nothing_away_while_its_release_fails() {
    for (what, host) in [("no TLS", "127.0.0.1"), ("an unknown host", "nowhere.invalid")] {
        let cage = Cage::new();
        let port = cage.gateway.url().rsplit(':').next().unwrap().to_owned();
        let url = format!("wss://{host}:{port}/devtools/browser/canary-browser?token=canary-token");
        cage.gateway.always_answers_allocations_with(Answer::browser().id(ID).url(&url));

        let said = cage.call(&["run", "-e", "1"]);

        assert_eq!(said.code, Some(5), "{what}: {said:#?}");
        assert_eq!(cage.call(&["stop"]).code, Some(5), "{what}");
        cage.sandbox.give_up();
        cage.look_at_words_and_files();
    }
}

#[test]
fn no_broken_frame_and_no_lost_connection_gives_one_away() {
    let cage = Cage::new();
    let frames = [r#"{"id": 1, "canary": }"#, r#"["canary"]"#, r#"{"id": 99999, "result": {"x": "canary"}}"#];
    cage.gateway.cdp().on("Test.odd", move |command| {
        let mut all: Vec<String> = frames.map(str::to_owned).to_vec();
        all.push(command.reply(json!({})));
        Reaction::Raw(all)
    });
    cage.gateway.cdp().on("Test.close", |_| Reaction::Close(1011));
    cage.gateway.cdp().on("Test.reset", |_| Reaction::Reset);
    cage.gateway.cdp().on("Test.binary", |_| Reaction::Binary(b"canary".to_vec()));

    assert_eq!(cage.script("cdp(\"Test.odd\"); 1").stdout, "1\n");
    assert_eq!(cage.script("cdp(\"Test.binary\", #{}, (), #{timeout_ms: 100})").code, Some(4));
    assert_eq!(cage.script("cdp(\"Test.close\")").code, Some(4));
    assert_eq!(cage.script("cdp(\"Test.reset\")").code, Some(4));

    cage.ends_well();
}

#[test]
fn no_release_that_fails_gives_one_away() {
    let cage = Cage::new();
    cage.gateway.cdp().answers_close_with(CloseReply::Code(1011));
    cage.script("cdp(\"Browser.getVersion\");").quietly();
    cage.gateway.answers_releases_with([ReleaseAnswer::Status(500), ReleaseAnswer::Reset]);

    assert!(cage.call(&["stop"]).fails_with(5).contains("gateway release failed: HTTP 500"));
    cage.call(&["stop"]);

    cage.ends_well();
}

#[test]
fn an_error_that_quotes_a_secret_shows_none() {
    let cage = Cage::new();
    cage.gateway.cdp().on("Test.refuse", |_| Reaction::Error(-32000, format!("no: {TOKEN} at {ID}")));
    cage.script("cdp(\"Browser.getVersion\");").quietly();
    let quoted = serde_json::to_string(TOKEN).unwrap();

    for script in [
        format!("throw {quoted};"),
        format!("let x = {quoted}; throw x;"),
        format!("let x = {quoted}; nope(x);"),
        format!("let x = {quoted} 5;"),
        format!("throw #{{code: {quoted}, message: {quoted}, hint: {quoted}}};"),
        "cdp(\"Test.refuse\")".to_owned(),
        format!("cdp(\"Test.odd\", #{{x: || {quoted}}})"),
        format!("js({quoted})"),
        format!("read_text({quoted})"),
    ] {
        let said = cage.script(&script);
        assert!(matches!(said.code, Some(1 | 2)), "{script}: {said:#?}");
    }

    cage.ends_well();
}

#[test]
fn a_secret_that_a_script_uses_is_not_seen_whatever_becomes_of_the_call() {
    let mut cage = Cage::new();
    cage.sandbox.set("GHOST_BROWSER_SECRETS", "SHOP").set("SHOP", "canary-shop \"1\"");
    cage.gateway.cdp().on("Test.refuse", |command| Reaction::Error(-32000, format!("no: {}", command.params)));
    cage.gateway.cdp().on("Test.echo", |command| Reaction::Result(command.params.clone()));
    cage.gateway.cdp().on("Test.never", |_| Reaction::Never);
    cage.gateway.cdp().on("Test.close", |_| Reaction::Close(1011));

    for (script, code) in [
        ("print(secret(\"SHOP\"))", 0),
        ("secret(\"SHOP\")", 0),
        ("cdp(\"Test.echo\", #{text: secret(\"SHOP\")})", 0),
        ("throw cdp(\"Test.echo\", #{text: secret(\"SHOP\")})", 1),
        ("cdp(\"Test.refuse\", #{text: secret(\"SHOP\")})", 1),
        ("cdp(\"Test.never\", #{text: secret(\"SHOP\")}, (), #{timeout_ms: 50})", 4),
        ("cdp(\"Test.close\", #{text: secret(\"SHOP\")})", 4),
    ] {
        assert_eq!(cage.script(script).code, Some(code), "{script}");
    }

    let mut echoes = cage.gateway.cdp().commands().into_iter().filter(|command| command.method == "Test.echo");
    assert!(echoes.all(|command| command.params["text"] == "canary-shop \"1\""));
    cage.ends_well();
}

#[test]
fn a_syntax_error_shows_no_secret_before_there_is_a_daemon() {
    let cage = Cage::new();
    let quoted = serde_json::to_string(TOKEN).unwrap();

    let said = cage.script(&format!("let x = {quoted} 5;"));

    assert_eq!(said.code, Some(2));
    assert_eq!(cage.gateway.requests(), 0);
}

#[test]
fn output_loses_a_secret_in_every_spelling_and_keeps_all_else() {
    let cage = Cage::new();
    let url = "https://shop.example/find?q=shoes&token=theirs&session=abcdef#key=other";
    let encoded: String =
        url::form_urlencoded::byte_serialize(TOKEN.as_bytes()).collect::<String>().replace('+', "%20");
    let escaped = serde_json::to_string(TOKEN).unwrap();
    let page = |text: &str| serde_json::to_string(&format!("<{text}>")).unwrap();
    cage.script(&format!("cdp(\"Page.navigate\", #{{url: \"{url}\"}}, ensure_page());")).quietly();

    assert_eq!(cage.script("print(js(\"location.href\"))").quietly(), url);
    for (spelling, text) in [
        ("raw", TOKEN),
        ("percent-encoded", &encoded),
        ("in the other case", &encoded.to_ascii_lowercase()),
        ("JSON-escaped", escaped.trim_matches('"')),
        ("the key in the base URL", "canary-key"),
        ("the browser's id", ID),
    ] {
        let value = page(text);
        cage.gateway.cdp().answers(
            "Runtime.evaluate",
            json!({"result": {"type": "string", "value": serde_json::from_str::<String>(&value).unwrap()}}),
        );
        assert_eq!(cage.script("print(js(\"secret\"))").quietly(), "<[redacted]>", "{spelling}");
        assert_eq!(cage.script("js(\"secret\")").quietly(), "<[redacted]>", "{spelling}");
        assert_eq!(cage.script("debug(js(\"secret\"))").stderr, "<[redacted]>\n", "{spelling}");
        let nested = cage.script("#{a: [js(\"secret\")]}");
        assert_eq!(nested.quietly(), "{\"a\":[\"<[redacted]>\"]}", "{spelling}");
    }

    cage.ends_well();
}

#[test]
fn the_chromium_of_this_machine_is_told_no_secret() {
    let mut cage = Cage { sandbox: Sandbox::local(), ..Cage::new() };
    cage.sandbox.set("APIFY_TOKEN", TOKEN).set("GHOST_BROWSER_LOG", "debug").set("GHOST_BROWSER_SECRETS", "SHOP");
    cage.sandbox.set("SHOP", "canary-shop").set("CANARY", "canary-variable");
    cage.sandbox.set("HTTPS_PROXY", "http://canary-user:canary-password@127.0.0.1:1/");

    cage.call(&["run", "-e", "js(\"1+1\")"]);

    assert!(cage.sandbox.chromiums().len() > 1);
    cage.look_at_processes();
    cage.call(&["stop"]);
    cage.sandbox.assert_nothing_left();
}

/// What others of the same user must be refused, as a shell asks for it.
const DOORS: [(&str, &str); 5] = [
    ("environ", "head -c1 <environ"),
    ("maps", "head -c1 <maps"),
    ("mem", "exec 3<mem"),
    ("fd", "ls fd/"),
    ("exe", "readlink exe"),
];

/// Whether a process of the sandbox's user gets through a door of another one.
fn opens(sandbox: &Sandbox, pid: i32, how: &str) -> bool {
    let said = sandbox.shell(&format!("cd /proc/{pid} && {how} >/dev/null"));
    said.code == Some(0)
}

#[test]
fn others_of_the_same_user_cannot_look_into_daemon_and_keeper() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway).without_privileges();
    sandbox.script("cdp(\"Browser.getVersion\");").quietly();
    let (daemon, keeper) = (sandbox.daemon().unwrap(), sandbox.keeper().unwrap());
    let mut own = sandbox.command(["run", "-e", "print(1); sleep(60)"]);
    own.env("APIFY_TOKEN", "");
    let mut client = Running::start(own, Vec::new());
    client.line();

    for (door, how) in DOORS {
        for (whose, process) in [("daemon", &daemon), ("keeper", &keeper)] {
            assert!(!opens(&sandbox, process.pid, how), "{door} of the {whose}");
        }
        // Where the kernel lets nobody attach to anything, this door is shut for all.
        assert!(door == "mem" || opens(&sandbox, client.pid(), how), "{door} of a process like any other");
    }

    client.signal(Signal::SIGINT);
    client.wait();
    sandbox.stop();
    gateway.assert_nothing_owed();
}

#[test]
fn the_state_folder_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let cage = Cage::new();
    cage.script("cdp(\"Browser.getVersion\");").quietly();
    let mode = |path: &Path| fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777;

    assert_eq!(mode(&cage.sandbox.state()), 0o700);
    let mut seen = 0;
    for entry in fs::read_dir(cage.sandbox.state()).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path) & 0o077, 0, "{}", path.display());
        seen += 1;
    }

    assert!(seen >= 3, "a lock, a socket and a note at least");
    cage.ends_well();
}

#[test]
fn an_answer_that_never_comes_gives_nothing_away() {
    let mut cage = Cage::new();
    cage.sandbox.set("GHOST_BROWSER_ALLOCATION_TIMEOUT", "0.4");
    cage.gateway.always_answers_allocations_with(Answer::browser().id(ID).delivered(Delivery::Hang));

    let said = cage.script("1");

    assert_eq!(said.code, Some(5), "{said:#?}");
    assert_eq!(cage.call(&["stop"]).code, Some(5));
    cage.sandbox.give_up();
    cage.look_at_words_and_files();
}
