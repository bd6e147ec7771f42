//! A browser whose daemon was killed, beside the daemon that came after: whoever stops waits for its keeper and tells.

use crate::support::{FakeGateway, Gate, Process, ReleaseAnswer, Sandbox};
use crate::{closes_prove_nothing, daemon_and_keeper, kill, wait_for_lock_of_note};

/// A keeper that pays for a killed daemon's browser once the gate is open.
struct Earlier {
    keeper: Process,
    gate: Gate,
}

impl Earlier {
    fn of(gateway: &FakeGateway, sandbox: &Sandbox) -> Self {
        closes_prove_nothing(gateway);
        let gate = Gate::closed();
        gateway.answers_releases_with([ReleaseAnswer::Behind(gate.clone())]);
        sandbox.script("1").quietly();
        let (daemon, keeper) = daemon_and_keeper(sandbox);
        kill(&daemon);
        gateway.wait_for("DELETE", "", 1);
        Self { keeper, gate }
    }
}

/// Lets what waits behind a gate go, so that nothing stays when the test ends.
impl Drop for Earlier {
    fn drop(&mut self) {
        self.gate.open();
    }
}

#[test]
fn a_run_with_stop_waits_for_it() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    let earlier = Earlier::of(&gateway, &sandbox);
    let call = sandbox.spawn(["run", "--stop", "-e", "2"], "");
    wait_for_lock_of_note(&call);

    earlier.gate.open();

    assert_eq!(call.wait().value(), "2");
    assert_eq!(gateway.owed(), [""; 0]);
}

#[test]
fn a_run_with_stop_says_that_it_is_not_released() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    let earlier = Earlier::of(&gateway, &sandbox);
    let call = sandbox.spawn(["run", "--stop", "-e", "2"], "");
    wait_for_lock_of_note(&call);

    kill(&earlier.keeper);

    let said = call.wait();
    assert!(said.fails_with(5).contains("may still be running and billed"), "{said:#?}");
    assert_eq!(said.stdout, "2\n");
    assert_eq!(sandbox.stop().quietly(), "browser already stopped");
}

#[test]
fn a_session_of_lines_waits_for_it_and_meanwhile_tells_what_is_left() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    let earlier = Earlier::of(&gateway, &sandbox);
    let lines = sandbox.spawn(["repl"], "2\n:stop\n:status\n");
    wait_for_lock_of_note(&lines);

    let status = sandbox.status();
    assert!(status["pid"].is_number(), "its daemon lives: {status:#}");
    assert_eq!(status["state"], "release-failed");
    earlier.gate.open();

    assert_eq!(lines.wait().value(), "2\nreleased 2 browsers\nstopped");
    assert_eq!(gateway.owed(), [""; 0]);
}

#[test]
fn a_session_of_lines_says_that_it_is_not_released() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    let earlier = Earlier::of(&gateway, &sandbox);
    let lines = sandbox.spawn(["repl"], "2\n:stop\n");
    wait_for_lock_of_note(&lines);

    kill(&earlier.keeper);

    let said = lines.wait();
    assert!(said.fails_with(5).contains("may still be running and billed"), "{said:#?}");
    assert_eq!(said.stdout, "2\nreleased browser\n");
}

#[test]
fn a_stop_waits_for_it_though_another_call_keeps_the_daemon() {
    for command in [&["stop"][..], &["stop", "--all"]] {
        let gateway = FakeGateway::start();
        let sandbox = Sandbox::of(&gateway);
        let earlier = Earlier::of(&gateway, &sandbox);
        let own = Gate::closed();
        gateway.answers_releases_with([ReleaseAnswer::Behind(own.clone())]);
        sandbox.script("2").value();
        let stop = sandbox.spawn(command, "");
        gateway.wait_for("DELETE", "", 2);
        let mut other = sandbox.spawn(["run", "-e", crate::ENDLESS], "");
        // Whoever comes first is answered first. Where the call comes too late and finds another daemon, all holds as well.
        sandbox.status();
        own.open();
        other.line();
        wait_for_lock_of_note(&stop);

        earlier.gate.open();

        let said = stop.wait();
        assert_eq!(said.value().matches("released").count(), if command.len() == 1 { 1 } else { 2 }, "{said:#?}");
        assert_eq!(gateway.owed().len(), 1, "the other call's");
        sandbox.stop().quietly();
        assert_eq!(other.wait().code, Some(130));
    }
}

#[test]
fn a_stop_whose_own_release_fails_tells_both() {
    for command in [&["stop"][..], &["stop", "--all"]] {
        let gateway = FakeGateway::start();
        let sandbox = Sandbox::of(&gateway);
        let earlier = Earlier::of(&gateway, &sandbox);
        gateway.answers_releases_with([500; 5]);
        sandbox.script("2").value();
        let stop = sandbox.spawn(command, "");
        wait_for_lock_of_note(&stop);

        kill(&earlier.keeper);

        let said = stop.wait();
        let error = said.fails_with(5);
        assert!(error.contains("HTTP 500") && error.contains("its daemon and keeper are gone"), "{said:#?}");
        while sandbox.stop().code == Some(5) {}
    }
}
