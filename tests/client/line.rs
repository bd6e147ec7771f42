//! The binary: what it prints, what it creates, how it ends.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Output, Stdio};

use ghost_browser::wire::{Done, Fault, FaultCode, Reply, Request, StatusState, Stopped, Stream};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::fake::{FakeDaemon, Sandbox, Visit, answer, done, done_with, ours, status};

fn command(sandbox: &Sandbox, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ghost-browser"));
    command
        .args(args)
        .env_clear()
        .env("GHOST_GATEWAY_URL", "local")
        .env("GHOST_BROWSER_RUNTIME_DIR", sandbox.path("state"))
        .current_dir(sandbox.path("work"))
        .stdin(Stdio::null());
    command
}

fn call(sandbox: &Sandbox, args: &[&str]) -> Output {
    command(sandbox, args).output().unwrap()
}

fn pipe(sandbox: &Sandbox, args: &[&str], script: &[u8]) -> Output {
    let mut command = command(sandbox, args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A client that refuses early reads no more.
    let _ = child.stdin.take().unwrap().write_all(script);
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn script_of(request: &Request) -> &ghost_browser::wire::Run {
    match request {
        Request::Run(run) => run,
        other => panic!("expected Run, got {other:?}"),
    }
}

fn output(text: &str) -> Reply {
    Reply::Output { stream: Stream::Stdout, text: text.to_owned() }
}

#[test]
fn a_script_on_standard_input_is_run_and_its_output_printed() {
    let sandbox = Sandbox::new();
    let replies = vec![Reply::Accepted, output("hi\n"), done()];
    let daemon = ours(&sandbox.files().socket, vec![answer(replies)]);

    let ended = pipe(&sandbox, &["--timeout", "5"], b"#!/x\r\nprint(\"hi\")");

    assert_eq!((text(&ended.stdout), text(&ended.stderr)), ("hi\n", ""));
    assert_eq!(ended.status.code(), Some(0));
    let ledger = daemon.ledger();
    let run = script_of(&ledger[0]);
    assert_eq!((run.source.as_str(), run.origin.as_str()), ("///x\r\nprint(\"hi\")", "stdin"));
    assert_eq!(run.cwd, sandbox.path("work").as_os_str().as_encoded_bytes());
    assert!((4000..=5000).contains(&run.timeout_ms.unwrap()));
    assert_eq!(run.credential, None);
}

#[test]
fn a_named_script_gets_its_arguments_even_those_that_look_like_options() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.path("work/s.rhai"), "args").unwrap();
    let visits = (0..2).map(|_| answer(vec![Reply::Accepted, done()])).collect();
    let daemon = ours(&sandbox.files().socket, visits);

    call(&sandbox, &["run", "s.rhai", "a", "--stop", "-e"]);
    call(&sandbox, &["run", "-e", "args", "x y", "--json"]);

    let ledger = daemon.ledger();
    let (file, code) = (script_of(&ledger[0]), script_of(&ledger[1]));
    assert_eq!((file.origin.as_str(), file.source.as_str()), ("s.rhai", "args"));
    assert_eq!((&file.args[..], file.stop), (&["a", "--stop", "-e"].map(String::from)[..], false));
    assert_eq!((code.origin.as_str(), code.source.as_str()), ("-e", "args"));
    assert_eq!(code.args, ["x y", "--json"]);
}

#[test]
fn what_cannot_run_exits_2_and_leaves_nothing() {
    let sandbox = Sandbox::new();
    fs::remove_dir(sandbox.path("state")).unwrap();

    for (args, script) in [
        (&[][..], &b""[..]),
        (&[], b" \n"),
        (&[], b"a\0"),
        (&[], b"\xff"),
        (&[], &vec![b'x'; 4 << 20]),
        (&["--timeout", "0"], b"1"),
        (&["--nonsense"], b"1"),
        (&["run"], b""),
        (&["run", "missing.rhai"], b""),
        (&["--stop", "status"], b""),
        (&["nonsense"], b""),
    ] {
        let ended = pipe(&sandbox, args, script);

        assert_eq!(ended.status.code(), Some(2), "{args:?}");
        assert!(text(&ended.stderr).starts_with("error: "), "{}", text(&ended.stderr));
        assert!(ended.stdout.is_empty());
    }
    assert!(!sandbox.path("state").exists());
}

#[test]
fn whoever_asks_for_json_gets_one_object_also_where_nothing_could_be_run() {
    let sandbox = Sandbox::new();

    for (args, script) in [
        (&["--json", "--nonsense"][..], &b"1"[..]),
        (&["--timeout", "soon", "--json"], b"1"),
        (&["--timeout", "--json"], b"1"),
        (&["--json", "steps.rhai"], b""),
        (&["--json", "run"], b""),
        (&["run", "-e", "1", "--json", "--timeout"], b""),
        (&["--json", "skill"], b""),
        (&["--json"], b"\xff"),
        (&["run", "--json", "missing.rhai"], b""),
    ] {
        let ended = pipe(&sandbox, args, script);

        assert_eq!((ended.status.code(), text(&ended.stderr)), (Some(2), ""), "{args:?}");
        let told: serde_json::Value = serde_json::from_slice(&ended.stdout).unwrap();
        assert_eq!((&told["ok"], &told["error"]["code"]), (&false.into(), &"usage".into()), "{args:?}: {told:#}");
        assert!(!told["error"]["message"].as_str().unwrap().starts_with("error"), "{told:#}");
    }
    let of_the_script = pipe(&sandbox, &["run", "missing.rhai", "--json"], b"");
    assert_eq!(text(&of_the_script.stdout), "");
}

#[test]
fn what_was_typed_is_what_the_error_names() {
    let sandbox = Sandbox::new();

    for (args, named) in [
        (&["--json", "status"][..], "go behind its name: `ghost-browser status --json`"),
        (&["--timeout", "3", "repl"], "go behind its name: `ghost-browser repl --timeout <SECONDS>`"),
        (&["--json", "skill"], "`ghost-browser skill --help`"),
        (&["--timeout", "3", "status"], "`ghost-browser status --help`"),
        (&["--stop", "stop"], "`ghost-browser stop --help`"),
        (&["--name", "a\nb", "status"], "for '--name <NAME>': expected at most 100 bytes"),
    ] {
        let ended = call(&sandbox, args);

        assert_eq!(ended.status.code(), Some(2), "{args:?}");
        let told = [text(&ended.stdout), text(&ended.stderr)].concat();
        assert!(told.contains(named), "{told}");
    }
}

#[test]
fn a_bad_setting_is_told_before_anything_is_made() {
    let sandbox = Sandbox::new();
    fs::remove_dir(sandbox.path("state")).unwrap();
    let mut command = command(&sandbox, &["run", "-e", "1"]);

    let ended = command.env("GHOST_BROWSER_WS_TIMEOUT", "soon").output().unwrap();

    assert_eq!(ended.status.code(), Some(2));
    assert!(text(&ended.stderr).starts_with("error: GHOST_BROWSER_WS_TIMEOUT has a bad value"));
    assert!(!sandbox.path("state").exists());
}

#[test]
fn what_only_tells_creates_nothing() {
    let sandbox = Sandbox::new();
    fs::remove_dir(sandbox.path("state")).unwrap();

    for (args, start) in [
        (&["status"][..], "stopped\n"),
        (&["status", "--all"], "stopped\n"),
        (&["stop"], "browser already stopped\n"),
        (&["stop", "--all"], "browser already stopped\n"),
        (&["skill"], "---\nname: ghost-browser"),
        (&["--version"], "ghost-browser 0."),
        (&["--help"], "Drive one remote Chromium"),
    ] {
        let ended = call(&sandbox, args);

        assert_eq!(ended.status.code(), Some(0), "{args:?}");
        assert!(text(&ended.stdout).starts_with(start), "{}", text(&ended.stdout));
        assert_eq!(text(&ended.stderr), "");
    }
    assert!(!sandbox.path("state").exists());
    assert_eq!(fs::read_dir(sandbox.path("work")).unwrap().count(), 0);
}

#[test]
fn status_tells_the_state_as_text_and_as_json_and_always_exits_0() {
    let sandbox = Sandbox::new();
    let held = || answer(vec![status(StatusState::Connected, "default", &sandbox.path("work"))]);
    let daemon = ours(&sandbox.files().socket, vec![held(), held(), held()]);

    let (line, json, all) = (
        call(&sandbox, &["status"]),
        call(&sandbox, &["status", "--json"]),
        call(&sandbox, &["status", "--all", "--json"]),
    );

    assert!(text(&line.stdout).starts_with("connected local\n"));
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((&json["state"], &json["pid"]), (&"connected".into(), &7.into()));
    let all: serde_json::Value = serde_json::from_slice(&all.stdout).unwrap();
    assert_eq!(all[0]["name"], "default");
    assert_eq!(daemon.ledger(), [Request::Status, Request::Status, Request::Status]);
}

#[test]
fn an_unsafe_state_folder_stops_runs_and_not_status() {
    use std::os::unix::fs::PermissionsExt;
    let sandbox = Sandbox::new();
    fs::set_permissions(sandbox.path("state"), fs::Permissions::from_mode(0o777)).unwrap();

    let codes =
        [&["run", "-e", "1"][..], &["stop"], &["status"]].map(|args| call(&sandbox, args).status.code().unwrap());

    assert_eq!(codes, [3, 3, 0]);
    assert!(sandbox.state_files().is_empty());
}

#[test]
fn stop_tells_what_was_released_and_exits_5_where_it_is_not() {
    for (released, unconfirmed, code, stdout, stderr) in [
        (1, None, 0, "released browser\n", ""),
        (0, None, 0, "browser already stopped\n", ""),
        (0, Some("HTTP 500"), 5, "", "error: HTTP 500\nhint: again\n"),
        (2, Some("x"), 5, "released 2 browsers\n", "error: x\nhint: again\n"),
    ] {
        let sandbox = Sandbox::new();
        let fault = |text| Fault::new(FaultCode::ReleaseUnconfirmed, text).hint("again");
        let stopped = Stopped { released, unconfirmed: unconfirmed.map(fault).into_iter().collect() };
        // Afterwards the client looks whether the daemon lives on.
        let visits = vec![answer(vec![Reply::Stopped(Box::new(stopped))]), answer(vec![])];
        let daemon = ours(&sandbox.files().socket, visits);

        let ended = call(&sandbox, &["stop"]);

        assert_eq!(ended.status.code(), Some(code));
        assert_eq!((text(&ended.stdout), text(&ended.stderr)), (stdout, stderr));
        assert_eq!(daemon.ledger(), [Request::Stop]);
    }
}

#[test]
fn a_stop_that_finds_nothing_names_the_sessions_that_were_perhaps_meant() {
    let sandbox = Sandbox::new();
    let shop = sandbox.door_of("shop").session.files(&sandbox.path("state"));
    let held = status(StatusState::Connected, "shop", &sandbox.path("work"));
    let daemon = ours(&shop.socket, vec![answer(vec![held])]);

    let ended = call(&sandbox, &["stop"]);

    assert_eq!(text(&ended.stdout), "browser already stopped\n");
    assert!(text(&ended.stderr).contains("`ghost-browser stop --name shop`"));
    assert_eq!(daemon.ledger(), [Request::Status]);
}

#[test]
fn a_status_that_finds_nothing_names_the_sessions_that_were_perhaps_meant() {
    let sandbox = Sandbox::new();
    let shop = sandbox.door_of("shop").session.files(&sandbox.path("state"));
    let held = status(StatusState::Connected, "shop", &sandbox.path("work"));
    let daemon = ours(&shop.socket, vec![answer(vec![held])]);

    let ended = call(&sandbox, &["status"]);

    assert_eq!((text(&ended.stdout), ended.status.code()), ("stopped\n", Some(0)));
    assert!(
        text(&ended.stderr).starts_with("hint: ") && text(&ended.stderr).contains("`ghost-browser status --name shop`")
    );
    assert_eq!(daemon.ledger(), [Request::Status]);
}

#[test]
fn a_status_beside_a_bad_gateway_warns_of_it() {
    let sandbox = Sandbox::new();

    let ended = command(&sandbox, &["status"]).env("GHOST_GATEWAY_URL", "nowhere").output().unwrap();

    assert_eq!((text(&ended.stdout), ended.status.code()), ("stopped\n", Some(0)));
    assert!(text(&ended.stderr).starts_with("warning: GHOST_GATEWAY_URL has a bad value"), "{ended:?}");
}

#[test]
fn the_state_of_a_daemon_that_cannot_be_asked_is_unknown() {
    let sandbox = Sandbox::new();
    let socket = sandbox.files().socket;
    // Nobody can be reached behind a link that leads to itself.
    std::os::unix::fs::symlink(&socket, &socket).unwrap();

    let (line, json) = (call(&sandbox, &["status"]), call(&sandbox, &["status", "--json"]));

    assert_eq!((text(&line.stdout), line.status.code()), ("unknown\n", Some(0)));
    let told: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((&told["state"], &told["pid"], &told["name"]), (&"unknown".into(), &().into(), &"default".into()));
    assert!(text(&json.stderr).starts_with("error: cannot connect to this session's daemon"), "{json:?}");
}

#[test]
fn stop_all_stops_every_session() {
    let sandbox = Sandbox::new();
    let daemons = ["a", "b"].map(|name| {
        let files = sandbox.door_of(name).session.files(&sandbox.path("state"));
        let told = answer(vec![status(StatusState::Connected, name, &sandbox.path("work"))]);
        let released = Stopped { released: 1, unconfirmed: vec![] };
        ours(&files.socket, vec![told, answer(vec![Reply::Stopped(Box::new(released))])])
    });

    let ended = call(&sandbox, &["stop", "--all"]);

    let work = sandbox.path("work").display().to_string();
    let mut lines: Vec<_> = text(&ended.stdout).lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, [format!("released browser: {work} (a)"), format!("released browser: {work} (b)")]);
    for daemon in daemons {
        assert_eq!(daemon.ledger(), [Request::Status, Request::Stop]);
    }
}

#[test]
fn the_envelope_holds_everything_about_a_run() {
    let sandbox = Sandbox::new();
    let end = done_with(Done {
        value: Some("{\"a\":1}".to_owned()),
        fault: None,
        warnings: vec!["careful".to_owned()],
        ..Done::default()
    });
    let replies = vec![Reply::Accepted, output("{\"a\":1}\n"), end];
    let daemon = ours(&sandbox.files().socket, vec![answer(replies)]);

    let ended = pipe(&sandbox, &["--json"], b"#{a: 1}");

    let envelope: serde_json::Value = serde_json::from_slice(&ended.stdout).unwrap();
    let expected = serde_json::json!({
        "ok": true, "value": {"a": 1}, "output": "{\"a\":1}\n", "error": null, "warnings": ["careful"],
        "aftermath": null,
        "session": {"workspace": sandbox.path("work").to_str().unwrap(), "name": "default"},
    });
    assert_eq!(envelope, expected);
    assert_eq!(text(&ended.stderr), "");
    assert_eq!(daemon.ledger().len(), 1);
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_on_standard_output_is_an_error_and_cancels() {
    let sandbox = Sandbox::new();
    let daemon = ours(&sandbox.files().socket, vec![prints_until_cancelled()]);
    let full = File::options().write(true).open("/dev/full").unwrap();

    let child = command(&sandbox, &["run", "-e", "1"]).stdout(full).stderr(Stdio::piped()).spawn();
    let ended = child.unwrap().wait_with_output().unwrap();

    assert_eq!(ended.status.code(), Some(1));
    assert!(text(&ended.stderr).starts_with("error: cannot write to standard output\ncaused by: "));
    assert!(text(&ended.stderr).contains("hint: the script was ended when its output could not be written"));
    assert_eq!(daemon.ledger().last(), Some(&Request::Cancel));
}

#[test]
fn a_reader_that_leaves_cancels_without_a_panic() {
    let sandbox = Sandbox::new();
    let daemon = ours(&sandbox.files().socket, vec![prints_until_cancelled()]);
    let mut command = command(&sandbox, &["run", "-e", "1"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();

    drop(child.stdout.take());
    let ended = child.wait_with_output().unwrap();

    assert_eq!(ended.status.code(), Some(1));
    assert!(!text(&ended.stderr).contains("panic"));
    assert_eq!(daemon.ledger().last(), Some(&Request::Cancel));
}

fn prints_until_cancelled() -> Visit {
    Box::new(|visitor| {
        visitor.read();
        visitor.say(&Reply::Accepted);
        visitor.say(&output("line\n"));
        visitor.read();
        visitor.say(&cancelled());
    })
}

fn cancelled() -> Reply {
    done_with(Done { fault: Some(Fault::new(FaultCode::Cancelled, "interrupted")), ..Done::default() })
}

fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id() as i32), signal).unwrap();
}

/// A call that runs a script; returns once its first output has arrived.
fn running(sandbox: &Sandbox) -> Child {
    let mut command = command(sandbox, &["run", "-e", "1"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut byte = [0];
    child.stdout.as_mut().unwrap().read_exact(&mut byte).unwrap();
    child
}

#[test]
fn being_told_to_end_cancels_the_script_and_waits_for_its_end() {
    for kind in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let sandbox = Sandbox::new();
        let daemon = ours(&sandbox.files().socket, vec![prints_until_cancelled()]);
        let child = running(&sandbox);

        signal(&child, kind);
        let ended = child.wait_with_output().unwrap();

        assert_eq!(ended.status.code(), Some(130), "{kind}");
        assert_eq!(text(&ended.stderr), "error: interrupted\n");
        assert_eq!(daemon.ledger()[1..], [Request::Cancel]);
    }
}

#[test]
fn being_told_twice_ends_at_once() {
    let sandbox = Sandbox::new();
    let stubborn: Visit = Box::new(|visitor| {
        visitor.read();
        visitor.say(&Reply::Accepted);
        visitor.say(&output("line\n"));
        while visitor.read().is_some() {}
    });
    let daemon = ours(&sandbox.files().socket, vec![stubborn]);
    let child = running(&sandbox);
    daemon.next();

    signal(&child, Signal::SIGINT);
    assert_eq!(daemon.next(), Request::Cancel);
    signal(&child, Signal::SIGINT);
    let ended = child.wait_with_output().unwrap();

    assert_eq!(ended.status.code(), Some(130));
}

#[test]
fn a_stop_ends_at_once_where_a_signal_comes_before_the_answer() {
    let sandbox = Sandbox::new();
    let silent: Visit = Box::new(|visitor| while visitor.read().is_some() {});
    let daemon = ours(&sandbox.files().socket, vec![silent]);
    let child = command(&sandbox, &["stop"]).stdout(Stdio::piped()).spawn().unwrap();
    assert_eq!(daemon.next(), Request::Stop);

    signal(&child, Signal::SIGINT);
    let ended = child.wait_with_output().unwrap();

    assert_eq!((ended.status.signal(), text(&ended.stdout)), (Some(Signal::SIGINT as i32), ""));
}

#[test]
fn another_builds_daemon_is_still_stopped() {
    let sandbox = Sandbox::new();
    let released = Stopped { released: 1, unconfirmed: vec![] };
    let visits = vec![answer(vec![Reply::Stopped(Box::new(released))])];
    let daemon = FakeDaemon::listen(&sandbox.files().socket, "9.9.9", visits);

    let ended = call(&sandbox, &["stop"]);

    assert_eq!(text(&ended.stdout), "released browser\n");
    assert_eq!(daemon.ledger(), [Request::Stop]);
}

#[test]
fn workspace_makes_the_folder_once_and_makes_this_the_root() {
    let sandbox = Sandbox::new();

    let made = call(&sandbox, &["workspace"]);
    fs::create_dir(sandbox.path("work/sub")).unwrap();
    let mut inside = command(&sandbox, &["workspace"]);
    let again = inside.current_dir(sandbox.path("work/sub")).output().unwrap();

    let helpers = sandbox.path("work/.ghost/helpers");
    assert_eq!(text(&made.stdout), format!("{}\n", helpers.display()));
    assert_eq!(again.stdout, made.stdout);
}

#[test]
fn a_daemon_is_found_from_a_long_state_folder() {
    let sandbox = Sandbox::new();
    let folder = sandbox.path(&"x".repeat(150));
    std::os::unix::fs::DirBuilderExt::mode(&mut fs::DirBuilder::new(), 0o700).create(&folder).unwrap();
    let files = sandbox.door().session.files(&folder);
    let Ok(address) = files.socket_address() else {
        return;
    };
    let listener = UnixListener::bind(address.path()).unwrap();
    let served = std::thread::spawn(move || listener.accept().map(drop));

    let mut command = command(&sandbox, &["status"]);
    let ended = command.env("GHOST_BROWSER_RUNTIME_DIR", &folder).output().unwrap();

    served.join().unwrap().unwrap();
    assert_eq!(text(&ended.stdout), "stopped\n");
}
