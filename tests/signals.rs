//! What comes between a call and its end: a signal, a terminal that closes, a connection that is lost, a reader that
//! leaves, a standard input of an odd shape.
//!
//! Here are the signals; `lost`, `pipes` and `input` have the rest.

mod support;

#[path = "signals/input.rs"]
mod input;
#[path = "signals/lost.rs"]
mod lost;
#[path = "signals/pipes.rs"]
mod pipes;
#[path = "signals/terminal.rs"]
mod terminal;

use nix::sys::signal::Signal;
use support::{Answer, CloseReply, FakeGateway, Gate, ReleaseAnswer, Running, Sandbox};
use terminal::Terminal;

/// Has a browser that is worth keeping: a script has used it.
fn with_a_used_browser() -> (FakeGateway, Sandbox) {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    sandbox.script("cdp(\"Browser.getVersion\");").quietly();
    (gateway, sandbox)
}

/// A script that has begun and would go on for a minute.
fn asleep(sandbox: &Sandbox) -> Running {
    let mut running = sandbox.spawn(["run", "-e", "print(\"begun\"); sleep(60);"], "");
    assert_eq!(running.line(), "begun");
    running
}

#[test]
fn a_signal_cancels_the_script_and_keeps_the_browser() {
    let (gateway, sandbox) = with_a_used_browser();
    let daemon = sandbox.status()["pid"].clone();

    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let running = asleep(&sandbox);
        running.signal(signal);
        assert_eq!(running.wait().code, Some(130), "{signal}");
    }

    let status = sandbox.wait_for_status("the scripts to have ended", |status| status["scripts"] == 0);
    assert_eq!((&status["state"], &status["pid"]), (&"connected".into(), &daemon));
    assert_eq!(sandbox.script("1 + 1").quietly(), "2");
    sandbox.stop().quietly();
    assert_eq!(gateway.allocations(), 1);
    gateway.assert_nothing_owed();
}

#[test]
fn a_script_that_computes_or_swallows_errors_is_cancelled_too() {
    let (gateway, sandbox) = with_a_used_browser();

    for body in ["while true {}", "while true { try { sleep(60) } catch { } }"] {
        let mut running = sandbox.spawn(["run", "-e", &format!("print(\"begun\"); {body}")], "");
        running.line();
        running.signal(Signal::SIGINT);
        assert_eq!(running.wait().code, Some(130), "{body}");
    }

    sandbox.stop().quietly();
    gateway.assert_nothing_owed();
}

#[test]
fn a_signal_during_a_cold_start_has_the_browser_released_unseen() {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let gateway = FakeGateway::start();
        let gate = Gate::closed();
        gateway.answers_allocations_with([Answer::browser().behind(&gate)]);
        let sandbox = Sandbox::of(&gateway);
        let running = sandbox.spawn(["run", "-e", "print(1)"], "");
        gateway.wait_for("GET", "/json/version", 1);

        running.signal(signal);

        let said = running.wait();
        assert_eq!((said.code, said.stdout.as_str()), (Some(130), ""), "{said:#?}");
        gate.open();
        gateway.wait_for("DELETE", "", 1);
        gateway.assert_nothing_owed();
        assert_eq!((gateway.allocations(), gateway.sockets()), (1, 0));
        sandbox.wait_for_status("the end", |status| status["state"] == "stopped");
    }
}

#[test]
fn a_second_signal_leaves_at_once_and_the_release_goes_on() {
    let (gateway, sandbox) = with_a_used_browser();
    gateway.cdp().answers_close_with(CloseReply::Drop);
    let gate = Gate::closed();
    gateway.answers_releases_with([ReleaseAnswer::Behind(gate.clone())]);
    let mut running = sandbox.spawn(["run", "--stop", "-e", "print(\"begun\"); sleep(60);"], "");
    running.line();
    running.signal(Signal::SIGINT);
    gateway.wait_for("DELETE", "", 1);

    running.signal(Signal::SIGINT);

    assert_eq!(running.wait().code, Some(130));
    assert_eq!(gateway.releases(), 0);
    gate.open();
    gateway.assert_nothing_owed();
}

#[test]
fn a_signal_ends_a_call_whose_daemon_is_suspended() {
    for (options, told) in [(&[][..], 1), (&["--stop"], 2)] {
        let (gateway, sandbox) = with_a_used_browser();
        let daemon = sandbox.daemon().unwrap();
        let code = ["-e", "print(\"begun\"); sleep(60);"];
        let mut running = sandbox.spawn([&["run"], options, &code].concat(), "");
        running.line();
        daemon.signal(Signal::SIGSTOP);

        running.signal(Signal::SIGTERM);

        let said = running.wait();
        assert_eq!(said.fails_with(130).matches("daemon does not answer").count(), told, "{said:#?}");
        daemon.signal(Signal::SIGCONT);
        sandbox.wait_for_status("the script's end", |status| status["scripts"] == 0);
        sandbox.stop();
        gateway.assert_nothing_owed();
    }
}

#[test]
fn ctrl_c_in_the_terminal_that_started_the_daemon_reaches_the_script_alone() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    let mut terminal = Terminal::open();
    let code = "cdp(\"Browser.getVersion\"); print(\"begun\"); sleep(60);";
    let call = terminal.run(sandbox.command(["run", "-e", code]));
    terminal.wait_for("begun");

    terminal.types(b"\x03");

    assert_eq!(call.exit_code(), Some(130));
    assert_eq!(sandbox.status()["state"], "connected");
    assert_eq!(sandbox.script("1 + 1").quietly(), "2");
    sandbox.stop().quietly();
    gateway.assert_nothing_owed();
}

#[test]
fn a_terminal_that_closes_cancels_the_script_and_keeps_the_browser() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    let mut terminal = Terminal::open();
    let code = "cdp(\"Browser.getVersion\"); print(\"begun\"); sleep(60);";
    let call = terminal.run(sandbox.command(["run", "-e", code]));
    terminal.wait_for("begun");

    terminal.close();

    assert_eq!(call.exit_code(), Some(130));
    let status = sandbox.wait_for_status("the script's end", |status| status["scripts"] == 0);
    assert_eq!(status["state"], "connected");
    sandbox.stop().quietly();
    gateway.assert_nothing_owed();
}

#[test]
fn a_terminal_shows_why_a_browser_is_not_there_yet_and_how_to_give_up() {
    let gateway = FakeGateway::start();
    gateway.always_answers_allocations_with(Answer::status(503));
    let sandbox = Sandbox::of(&gateway);
    let mut terminal = Terminal::open();
    let call = terminal.run(sandbox.command(["run", "-e", "1"]));

    terminal.wait_for("waiting for a browser (gateway allocation failed: HTTP 503; trying again)");
    terminal.wait_for("(Ctrl-C cancels)");
    terminal.types(b"\x03");

    assert_eq!(call.exit_code(), Some(130));
    gateway.assert_nothing_owed();
}

#[test]
fn a_terminal_that_closes_during_a_cold_start_has_the_browser_released() {
    let gateway = FakeGateway::start();
    let gate = Gate::closed();
    gateway.answers_allocations_with([Answer::browser().behind(&gate)]);
    let sandbox = Sandbox::of(&gateway);
    let terminal = Terminal::open();
    let call = terminal.run(sandbox.command(["run", "-e", "1"]));
    gateway.wait_for("GET", "/json/version", 1);

    terminal.close();

    assert_eq!(call.exit_code(), Some(130));
    gate.open();
    gateway.assert_nothing_owed();
    assert_eq!(gateway.sockets(), 0);
}
