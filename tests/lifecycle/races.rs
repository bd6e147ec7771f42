//! First calls that race.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nix::sys::signal::Signal;

use crate::support::{Answer, FakeGateway, Gate, Sandbox, ms};

#[test]
fn twenty_first_calls_get_one_browser_of_one_daemon() {
    let gateway = FakeGateway::start();
    gateway.answers_allocations_with([Answer::browser().after(ms(1500))]);
    let sandbox = Sandbox::of(&gateway);

    let calls: Vec<_> = (0..20).map(|number| sandbox.spawn(["run", "-e", &number.to_string()], "")).collect();
    let said: Vec<_> = calls.into_iter().map(|call| call.wait().quietly().to_owned()).collect();

    let expected: Vec<_> = (0..20).map(|number: u32| number.to_string()).collect();
    assert_eq!(said, expected);
    // The losers have left, and the browser still answers.
    assert_eq!(sandbox.script("js(\"1+1\")").quietly(), "2");
    assert_eq!((gateway.gets(), gateway.sockets()), (1, 1));
    assert_eq!(sandbox.stop().quietly(), "released browser");
    gateway.assert_nothing_owed();
    assert_eq!(gateway.deletes(), 1);
}

#[test]
fn twenty_first_calls_get_one_chromium() {
    let sandbox = Sandbox::local();

    let calls: Vec<_> = (0..20).map(|_| sandbox.spawn(["run", "-e", "js(\"20+1\")"], "")).collect();

    for call in calls {
        assert_eq!(call.wait().value(), "21");
    }
    let browsers = sandbox.chromiums().into_iter().filter(|process| !process.command.contains("--type="));
    let browsers: Vec<_> = browsers.filter(|process| process.command.contains("--remote-debugging-pipe")).collect();
    assert_eq!(browsers.len(), 1, "{browsers:#?}");
    assert_eq!(sandbox.stop().quietly(), "released browser");
}

#[test]
fn the_first_callers_death_costs_nobody_the_browser() {
    let gateway = FakeGateway::start();
    let gate = Gate::closed();
    gateway.answers_allocations_with([Answer::browser().behind(&gate)]);
    let sandbox = Sandbox::of(&gateway);
    let first = sandbox.spawn(["run", "-e", "1"], "");
    gateway.wait_for("GET", "/json/version", 1);
    let others: Vec<_> = (0..19).map(|_| sandbox.spawn(["run", "-e", "2"], "")).collect();

    first.signal(Signal::SIGKILL);
    assert_eq!(first.wait().code, None);
    gate.open();

    for other in others {
        assert_eq!(other.wait().quietly(), "2");
    }
    assert_eq!(sandbox.status()["state"], "connected");
    sandbox.stop();
    gateway.assert_nothing_owed();
}

#[test]
fn looking_at_the_state_never_costs_a_starting_call_its_daemon() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    let over = &AtomicBool::new(false);

    thread::scope(|threads| {
        let mut look = sandbox.command(["status", "--name", "0"]);
        let looks = threads.spawn(move || {
            let mut looks = 0;
            while !over.load(Ordering::SeqCst) {
                look.output().unwrap();
                looks += 1;
            }
            looks
        });
        for _ in 0..8 {
            let said = sandbox.command(["run", "--name", "0", "--stop", "-e", "1"]).output().unwrap();
            assert!(said.status.success(), "{said:?}");
        }
        over.store(true, Ordering::SeqCst);
        assert!(looks.join().unwrap() > 0);
    });

    gateway.assert_nothing_owed();
    assert_eq!(gateway.allocations(), 8);
}

#[test]
fn a_call_at_the_end_of_another_ones_stop_gets_a_browser_all_the_same() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);

    for _ in 0..5 {
        let calls: Vec<_> = (0..4).map(|_| sandbox.spawn(["run", "--stop", "-e", "1"], "")).collect();
        for call in calls {
            let said = call.wait();
            // Ended by another one's stop, or in time: but never without a browser.
            assert!(matches!(said.code, Some(0 | 130)), "{said:#?}");
        }
    }

    assert_eq!(sandbox.ghost(["status"]).quietly(), "stopped");
    gateway.assert_nothing_owed();
}

#[test]
fn a_call_that_meets_an_ending_daemon_goes_to_the_next_one() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    sandbox.script("1").quietly();

    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGTERM, Signal::SIGTERM] {
        sandbox.daemon().expect("a daemon").signal(signal);
        // One that was quicker than the signal is ended by it; one that was not is served by the next daemon.
        let said = std::iter::repeat_with(|| sandbox.script("2")).find(|said| said.code != Some(130)).unwrap();
        assert_eq!(said.value(), "2");
    }

    sandbox.stop();
    gateway.assert_nothing_owed();
    assert_eq!(gateway.gets(), gateway.allocations());
}

#[test]
fn a_browser_that_is_idle_at_that_moment_is_no_callers_misfortune() {
    let gateway = FakeGateway::start();
    let mut sandbox = Sandbox::of(&gateway);
    sandbox.set("GHOST_BROWSER_IDLE_SECONDS", "0.02");

    // About as long as it takes from one call to the next.
    for round in 0..30 {
        assert_eq!(sandbox.script(round.to_string()).value(), round.to_string());
    }

    sandbox.stop();
    gateway.assert_nothing_owed();
}
