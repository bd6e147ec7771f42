//! `stop` meets everything: no hang, no orphan, true answers.

use nix::sys::signal::Signal;

use crate::support::{FakeGateway, ReleaseAnswer, Said, Sandbox, ms};
use crate::{ENDLESS, daemon_and_keeper, kill, wait_for_lock_of_note};

/// What a stop may truly say.
fn is_true(said: &Said) -> bool {
    said.code == Some(0) && matches!(said.stdout.as_str(), "released browser\n" | "browser already stopped\n")
}

#[test]
fn many_stops_at_once_all_tell_the_truth() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    let mut script = sandbox.spawn(["run", "-e", ENDLESS], "");
    script.line();

    let stops: Vec<_> = (0..8).map(|_| sandbox.spawn(["stop"], "")).collect();
    let said: Vec<_> = stops.into_iter().map(|stop| stop.wait()).collect();

    assert!(said.iter().all(is_true), "{said:#?}");
    assert!(said.iter().any(|said| said.stdout == "released browser\n"), "{said:#?}");
    assert_eq!(script.wait().code, Some(130));
    gateway.assert_nothing_owed();
    assert_eq!((gateway.allocations(), gateway.deletes()), (1, 1));
    sandbox.assert_nothing_left();
}

#[test]
fn many_stops_that_wait_for_one_keeper_in_vain_all_say_so() {
    let gateway = FakeGateway::start();
    gateway.answers_releases_with([500; 50]);
    let sandbox = Sandbox::of(&gateway);
    sandbox.script("1").quietly();
    let (daemon, keeper) = daemon_and_keeper(&sandbox);
    kill(&daemon);
    let stops: Vec<_> = (0..4).map(|_| sandbox.spawn(["stop"], "")).collect();
    stops.iter().for_each(wait_for_lock_of_note);

    kill(&keeper);

    for stop in stops {
        let said = stop.wait();
        assert!(said.fails_with(5).contains("may still be running and billed"), "{said:#?}");
        assert_eq!(said.stdout, "");
    }
    assert_eq!(sandbox.stop().quietly(), "browser already stopped", "it was told");
    assert_eq!(gateway.owed().len(), 1);
}

#[test]
fn many_stops_of_what_nobody_pays_blame_no_keeper() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    sandbox.script("1").quietly();
    let (daemon, keeper) = daemon_and_keeper(&sandbox);
    daemon.signal(Signal::SIGSTOP);
    kill(&keeper);
    kill(&daemon);
    sandbox.wait_for_status("nobody left", |status| status["state"] == "release-unknown");

    let stops: Vec<_> = (0..8).map(|_| sandbox.spawn(["stop"], "")).collect();
    let said: Vec<_> = stops.into_iter().map(|stop| stop.wait()).collect();

    let tells = |said: &Said| said.code == Some(5) && said.stderr.contains("may still be running and billed");
    let comes_late = |said: &Said| said.code == Some(0) && said.stdout == "browser already stopped\n";
    assert!(said.iter().all(|said| tells(said) || comes_late(said)), "{said:#?}");
    assert!(said.iter().any(tells), "{said:#?}");
    assert_eq!(gateway.owed().len(), 1);
}

#[test]
fn fifty_stops_right_after_starts_lose_nothing() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);

    for round in 0..50 {
        let call = sandbox.spawn(["run", "-e", "1"], "");
        if round % 3 == 1 {
            gateway.wait_for("GET", "/json/version", 1);
        }
        let stopped = sandbox.stop();
        assert!(is_true(&stopped), "round {round}: {stopped:#?}");
        let said = call.wait();
        assert!(matches!(said.code, Some(0 | 130)), "round {round}: {said:#?}");
    }

    let last = sandbox.stop();
    assert!(is_true(&last), "{last:#?}");
    gateway.assert_nothing_owed();
    assert_eq!(gateway.gets(), gateway.allocations());
    sandbox.assert_nothing_left();
}

#[test]
fn stops_and_calls_of_a_real_browser_in_any_order_leave_nothing() {
    let sandbox = Sandbox::local();

    for _ in 0..3 {
        let call = sandbox.spawn(["run", "-e", "1"], "");
        let stops: Vec<_> = (0..2).map(|_| sandbox.spawn(["stop"], "")).collect();
        for stop in stops {
            let said = stop.wait();
            assert!(is_true(&said), "{said:#?}");
        }
        let said = call.wait();
        assert!(matches!(said.code, Some(0 | 130)), "{said:#?}");
    }

    assert!(is_true(&sandbox.stop()));
    sandbox.assert_nothing_left();
}

#[test]
fn a_stop_does_not_wait_for_the_callers_that_come_after_it() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    sandbox.script("1").quietly();
    let stop = sandbox.spawn(["stop"], "");
    let later: Vec<_> = (0..4).map(|_| sandbox.spawn(["run", "-e", "2"], "")).collect();

    let said = stop.wait();

    assert!(is_true(&said), "{said:#?}");
    for call in later {
        let said = call.wait();
        assert!(matches!(said.code, Some(0 | 130)), "{said:#?}");
    }
    sandbox.stop();
    gateway.assert_nothing_owed();
}

#[test]
fn a_stop_that_is_killed_stops_all_the_same() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    sandbox.script("1").quietly();
    gateway.answers_releases_with([crate::support::ReleaseAnswer::Status(500)]);
    crate::closes_prove_nothing(&gateway);
    let stop = sandbox.spawn(["stop"], "");
    gateway.wait_for("DELETE", "", 1);

    stop.signal(nix::sys::signal::Signal::SIGKILL);

    gateway.assert_nothing_owed();
    sandbox.wait_for_status("the end", |status| status["state"] == "stopped");
    sandbox.assert_nothing_left();
}

#[test]
fn a_release_has_its_own_time_however_short_an_allocation_may_take() {
    let gateway = FakeGateway::start();
    gateway.answers_releases_with([ReleaseAnswer::Late(ms(1500), 204)]);
    let mut sandbox = Sandbox::of(&gateway);
    sandbox.set("GHOST_BROWSER_ALLOCATION_TIMEOUT", "1");
    sandbox.script("1").quietly();

    assert_eq!(sandbox.stop().quietly(), "released browser");

    gateway.assert_nothing_owed();
}
