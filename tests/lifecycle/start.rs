//! Starts that fail: what may exist is released or told, and nothing is asked for that could not be kept account of.

use std::io::Write;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::Signal;

use crate::support::{Answer, Delivery, FakeGateway, Gate, Handshake, Process, Reaction, Running, Sandbox, Seen, ms};
use crate::{daemon_and_keeper, kill, warnings};

#[test]
fn a_browser_that_cannot_be_reached_is_released_once_and_said_so() {
    let handshakes = [
        (Handshake::Status(404), "404"),
        (Handshake::Status(302), "302"),
        (Handshake::Reset, "browser connection failed"),
        (Handshake::Silent, "timed out"),
    ];
    for (handshake, word) in handshakes {
        let gateway = FakeGateway::start();
        gateway.answers_allocations_with([Answer::browser().handshake(handshake)]);
        let mut sandbox = Sandbox::of(&gateway);
        sandbox.set("GHOST_BROWSER_WS_TIMEOUT", "0.5");

        let said = sandbox.script("1");

        assert!(said.fails_with(3).contains(word), "{handshake:?}: {said:#?}");
        gateway.assert_nothing_owed();
        assert_eq!((gateway.allocations(), gateway.deletes()), (1, 1), "{handshake:?}");
        assert_eq!(sandbox.status()["state"], "stopped");
        assert_eq!(sandbox.script("1").quietly(), "1", "the next one is not blocked");
        sandbox.stop();
    }
}

#[test]
fn a_browser_that_never_speaks_is_released() {
    let gateway = FakeGateway::start();
    gateway.cdp().on("Target.attachToBrowserTarget", |_| crate::support::Reaction::Never);
    gateway.cdp().on("Target.setAutoAttach", |_| crate::support::Reaction::Never);
    gateway.cdp().on("Target.setDiscoverTargets", |_| crate::support::Reaction::Never);
    let mut sandbox = Sandbox::of(&gateway);
    sandbox.set("GHOST_BROWSER_WS_TIMEOUT", "0.5");

    let said = sandbox.script("1");

    assert!(said.fails_with(3).contains("does not speak CDP"), "{said:#?}");
    gateway.assert_nothing_owed();
}

#[test]
fn a_browser_behind_broken_tls_is_owed_until_it_is_told() {
    let gateway = FakeGateway::start();
    let secure = format!("wss://127.0.0.1:{}/devtools/browser/x?token=socket-token-0123456789", no_tls());
    gateway.answers_allocations_with([Answer::browser().url(&secure)]);
    let sandbox = Sandbox::of(&gateway);

    let said = sandbox.script("1");

    // Its DELETE goes the same broken way.
    assert!(said.fails_with(5).contains("TLS"), "{said:#?}");
    let status = sandbox.status();
    assert_eq!(status["state"], "release-failed");
    assert!(status["debts"][0].as_str().unwrap().contains("gateway release failed"), "{status:#}");
    assert!(sandbox.stop().fails_with(5).contains("gateway release failed"));
    let (daemon, keeper) = daemon_and_keeper(&sandbox);
    kill(&keeper);
    kill(&daemon);
    sandbox.keeper().iter().for_each(kill);
    sandbox.wait_for_status("nobody left to pay", |status| status["state"] == "release-unknown");
    sandbox.stop().fails_with(5);
    assert_eq!(sandbox.stop().quietly(), "browser already stopped");
}

/// The port of a server that speaks no TLS.
fn no_tls() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // A client that hung up is what this is for.
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    port
}

#[test]
fn without_room_for_its_note_no_browser_is_asked_for() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    let mut command = sandbox.command(["run", "-e", "1"]);
    // A limit on files is to a write what a full disk is, on any machine and for any user.
    // SAFETY: one system call between fork and exec.
    unsafe { command.pre_exec(|| Ok(setrlimit(Resource::RLIMIT_FSIZE, 0, 0)?)) };

    let said = Running::start(command, Vec::new()).wait();

    assert!(said.fails_with(3).contains("make room on the disk"), "{said:#?}");
    assert_eq!(gateway.requests(), 0);
    assert_eq!(sandbox.script("1").quietly(), "1");
    sandbox.stop();
    gateway.assert_nothing_owed();
}

#[test]
fn a_local_browser_that_cannot_be_started_leaves_nothing() {
    let mut sandbox = Sandbox::local();
    sandbox.set("GHOST_BROWSER_CHROMIUM", "/bin/false");

    let said = sandbox.script("1");

    assert!(said.fails_with(3).contains("exit"), "{said:#?}");
    assert!(said.stderr.contains("hint: ") && said.stderr.contains("GHOST_BROWSER_CHROMIUM"), "{said:#?}");
    assert_eq!(sandbox.ghost(["status"]).quietly(), "stopped");
    sandbox.assert_nothing_left();
}

#[test]
fn a_local_browser_that_hangs_at_its_start_is_ended_and_the_hint_says_what_to_look_at() {
    use std::os::unix::fs::PermissionsExt;
    let mut sandbox = Sandbox::local();
    let hangs = sandbox.file("chromium", "#!/bin/sh\nexec sleep 600\n");
    std::fs::set_permissions(&hangs, std::fs::Permissions::from_mode(0o755)).unwrap();
    sandbox.set("GHOST_BROWSER_CHROMIUM", &hangs).set("GHOST_BROWSER_WS_TIMEOUT", "0.3");

    let said = sandbox.script("1");

    assert!(said.fails_with(3).contains("does not speak CDP"), "{said:#?}");
    assert!(said.stderr.contains("hint: see whether that Chromium starts by hand"), "{said:#?}");
    sandbox.assert_nothing_left();
}

#[test]
fn an_answer_that_is_no_browser_is_released_by_its_id() {
    let broken = [
        Answer::browser().body("not JSON"),
        Answer::browser().body("{}"),
        Answer::browser().but_status(500),
        Answer::browser().url("ws://elsewhere.example/devtools/browser/x"),
        Answer::browser().cut_at_close(9),
        Answer::browser().delivered(Delivery::CutChunk(5)),
    ];
    for (number, answer) in broken.into_iter().enumerate() {
        let gateway = FakeGateway::start();
        gateway.answers_allocations_with([answer]);
        let sandbox = Sandbox::of(&gateway);

        let said = sandbox.script("1");

        assert!(said.fails_with(3).contains("gateway allocation"), "{number}: {said:#?}");
        gateway.assert_nothing_owed();
        assert_eq!((gateway.deletes(), gateway.sockets()), (1, 0), "{number}");
        assert_eq!(sandbox.ghost(["status"]).quietly(), "stopped", "{number}");
    }
}

#[test]
fn a_browser_that_was_named_is_released_although_the_rest_of_the_answer_never_comes() {
    let gateway = FakeGateway::start();
    gateway.answers_allocations_with([Answer::browser().delivered(Delivery::HeadOnly)]);
    let sandbox = Sandbox::of(&gateway);

    let said = sandbox.script("1");

    said.fails_with(3);
    gateway.assert_nothing_owed();
    assert_eq!((gateway.deletes(), gateway.sockets()), (1, 0));
    assert_eq!(sandbox.ghost(["status"]).quietly(), "stopped");
}

#[test]
fn an_allocation_that_nothing_can_release_is_told_by_the_run_and_once_more_by_stop() {
    for lost in [Answer::reset(), Answer::eof(), Answer::browser().without_id_header().but_status(500)] {
        let gateway = FakeGateway::start();
        gateway.answers_allocations_with([lost]);
        let sandbox = Sandbox::of(&gateway);

        let said = sandbox.script("1");

        assert!(said.fails_with(5).contains("gateway allocation failed"), "{said:#?}");
        let told = sandbox.ghost(["status"]).quietly().to_owned();
        assert!(told.starts_with("release-unknown\n"), "{told}");
        let next = sandbox.script("1");
        assert_eq!((next.value(), warnings(&next).len()), ("1", 1), "{next:#?}");
        assert!(sandbox.script("1").quietly() == "1", "told once");
        let stopped = sandbox.stop();
        assert!(stopped.fails_with(5).contains("gateway allocation failed"), "{stopped:#?}");
        assert!(stopped.stdout.contains("released browser"), "the other one was: {stopped:#?}");
        assert_eq!(sandbox.stop().quietly(), "browser already stopped");
        assert_eq!(gateway.owed().len(), 1, "the one that was told");
    }
}

#[test]
fn an_answer_after_the_callers_time_is_released_unseen() {
    let gateway = FakeGateway::start();
    let gate = Gate::closed();
    gateway.answers_allocations_with([Answer::browser().behind(&gate)]);
    let mut sandbox = Sandbox::of(&gateway);
    sandbox.set("GHOST_BROWSER_ALLOCATION_TIMEOUT", "0.5");

    let said = sandbox.script("1");

    assert!(said.fails_with(5).contains("gateway allocation failed: timed out"), "{said:#?}");
    assert_eq!(sandbox.ghost(["status"]).quietly(), "stopping");
    let asked = Instant::now();
    let stopped = sandbox.stop();
    assert!(stopped.fails_with(5).contains("has not answered"), "{stopped:#?}");
    assert!(asked.elapsed() < Duration::from_secs(10), "it waited {:?}, not half a second", asked.elapsed());
    assert_eq!(sandbox.ghost(["status"]).quietly(), "stopping");
    gate.open();
    gateway.assert_nothing_owed();
    sandbox.wait_for_status("the end of it", |status| status["state"] == "stopped");
    assert_eq!((gateway.allocations(), gateway.deletes(), gateway.sockets()), (1, 1, 0));
}

#[test]
fn while_a_late_answer_is_awaited_the_next_call_gets_its_own_browser() {
    let gateway = FakeGateway::start();
    let gate = Gate::closed();
    gateway.answers_allocations_with([Answer::browser().behind(&gate)]);
    let mut sandbox = Sandbox::of(&gateway);
    sandbox.set("GHOST_BROWSER_ALLOCATION_TIMEOUT", "1");
    sandbox.script("1").fails_with(5);

    assert_eq!(sandbox.script("2").value(), "2");

    gate.open();
    gateway.wait_until("the late one's release", |seen| seen.iter().any(|seen| matches!(seen, Seen::Deleted { .. })));
    assert_eq!(sandbox.status()["state"], "connected");
    assert_eq!(sandbox.script("3").quietly(), "3");
    assert_eq!(sandbox.stop().quietly(), "released browser");
    gateway.assert_nothing_owed();
    assert_eq!(gateway.allocations(), 2);
}

#[test]
fn time_that_runs_out_before_anything_was_allocated_costs_nothing() {
    let gateway = FakeGateway::start();
    gateway.always_answers_allocations_with(Answer::status(503));
    let mut sandbox = Sandbox::of(&gateway);
    sandbox.set("GHOST_BROWSER_ALLOCATION_TIMEOUT", "1");

    let said = sandbox.script("1");

    assert!(said.fails_with(3).contains("HTTP 503"), "{said:#?}");
    assert_eq!(sandbox.ghost(["status"]).quietly(), "stopped");
}

#[test]
fn a_calls_own_timeout_tells_what_held_the_browser_up() {
    let gateway = FakeGateway::start();
    gateway.always_answers_allocations_with(Answer::status(429));
    let sandbox = Sandbox::of(&gateway);

    let said = sandbox.script_with(["--timeout", "1"], "1");

    assert!(
        said.fails_with(3).contains("no browser within --timeout: gateway allocation failed: HTTP 429"),
        "{said:#?}"
    );
    gateway.assert_nothing_owed();
}

#[test]
fn a_calls_own_timeout_ends_its_wait_and_the_answer_is_released() {
    let gateway = FakeGateway::start();
    let gate = Gate::closed();
    gateway.answers_allocations_with([Answer::browser().behind(&gate)]);
    let sandbox = Sandbox::of(&gateway);

    let said = sandbox.script_with(["--timeout", "1"], "1");

    assert!(said.fails_with(3).contains("no browser within --timeout"), "{said:#?}");
    sandbox.wait_for_status("the giving up", |status| status["state"] == "stopping");
    gate.open();
    gateway.assert_nothing_owed();
    assert_eq!((gateway.allocations(), gateway.deletes(), gateway.sockets()), (1, 1, 0));
}

#[test]
fn a_slow_start_says_what_is_waited_for_and_not_once_the_script_runs() {
    let gateway = FakeGateway::start();
    gateway.answers_allocations_with([Answer::browser().after(ms(200))]);
    let sandbox = Sandbox::of(&gateway);

    // Ten seconds of a script are not ten seconds of a start.
    let said = sandbox.script("sleep(10.5)");

    assert_eq!(said.stderr, "");
    sandbox.stop();
    gateway.assert_nothing_owed();
}

#[test]
fn a_call_that_nobody_waits_for_any_more_blocks_no_other() {
    let gateway = FakeGateway::start();
    let gate = Gate::closed();
    gateway.answers_allocations_with([Answer::browser().behind(&gate)]);
    let sandbox = Sandbox::of(&gateway);
    let given_up = sandbox.spawn(["run", "-e", "1"], "");
    gateway.wait_for("GET", "/json/version", 1);
    given_up.signal(Signal::SIGINT);
    assert_eq!(given_up.wait().code, Some(130));
    let stop = sandbox.spawn(["stop"], "");
    sandbox.wait_for_status("the giving up", |status| status["state"] == "stopping");

    let beside = sandbox.script("2");

    assert_eq!(beside.value(), "2");
    assert!(Process::find(stop.pid()).is_some(), "it still waits for the gateway's answer");
    gate.open();
    assert_eq!(stop.wait().quietly(), "released browser");
    assert_eq!(sandbox.script("3").quietly(), "3", "what came after the stop is not its to end");
    sandbox.stop();
    gateway.assert_nothing_owed();
    assert_eq!(gateway.allocations(), 2);
}

#[test]
fn a_daemon_that_was_told_to_end_and_waits_for_the_gateway_serves_the_next_call() {
    let gateway = FakeGateway::start();
    let gate = Gate::closed();
    gateway.answers_allocations_with([Answer::browser().behind(&gate)]);
    let sandbox = Sandbox::of(&gateway);
    let first = sandbox.spawn(["run", "-e", "1"], "");
    gateway.wait_for("GET", "/json/version", 1);
    sandbox.daemon().expect("a daemon").signal(Signal::SIGTERM);
    assert_eq!(first.wait().code, Some(130));

    assert_eq!(sandbox.script("2").value(), "2");

    gate.open();
    gateway.wait_until("the late one's release", |seen| seen.iter().any(|seen| matches!(seen, Seen::Deleted { .. })));
    sandbox.stop();
    gateway.assert_nothing_owed();
    assert_eq!(gateway.allocations(), 2);
}

#[test]
fn a_browser_that_is_gone_when_its_set_up_is_done_is_released_and_told() {
    let gateway = FakeGateway::start();
    gateway.cdp().on("Target.setAutoAttach", |_| Reaction::Last(serde_json::json!({}), 1001));
    let sandbox = Sandbox::of(&gateway);

    let said = sandbox.script("cdp(\"Browser.getVersion\")");

    said.fails_with(3);
    gateway.assert_nothing_owed();
    assert_eq!(sandbox.ghost(["status"]).quietly(), "stopped");
    assert_eq!((gateway.allocations(), gateway.deletes()), (1, 1));
}
