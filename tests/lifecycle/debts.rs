//! Debts that stay: told by everyone who is asked, and in nobody's way.

use crate::support::{Answer, FakeGateway, ReleaseAnswer, Sandbox, ms};
use crate::{closes_prove_nothing, warnings};

#[test]
fn a_failed_release_costs_the_next_session_one_try_and_one_line() {
    let gateway = FakeGateway::start();
    closes_prove_nothing(&gateway);
    gateway.answers_releases_with([500; 5]);
    let sandbox = Sandbox::of(&gateway);
    sandbox.script("1").quietly();
    sandbox.stop().fails_with(5);
    let before = gateway.deletes();

    let next = sandbox.script("2");

    assert_eq!((next.value(), warnings(&next).len()), ("2", 1), "{next:#?}");
    assert!(next.stderr.contains("not released yet"), "{next:#?}");
    assert!(gateway.deletes() > before, "it was tried once more");
    let status = sandbox.status();
    assert_eq!((&status["state"], status["debts"].as_array().map(Vec::len)), (&"connected".into(), Some(1)));
    assert_eq!(sandbox.script("3").quietly(), "3");
    while sandbox.stop().code == Some(5) {}
    gateway.assert_nothing_owed();
    assert_eq!(gateway.allocations(), 2);
}

#[test]
fn a_release_that_succeeds_when_the_next_session_tries_costs_not_even_the_line() {
    let gateway = FakeGateway::start();
    closes_prove_nothing(&gateway);
    gateway.answers_releases_with([500]);
    let sandbox = Sandbox::of(&gateway);
    sandbox.script("1").quietly();
    sandbox.stop().fails_with(5);

    assert_eq!(sandbox.script("2").quietly(), "2");

    assert_eq!(gateway.releases(), 1);
    sandbox.stop();
    gateway.assert_nothing_owed();
}

/// A debt whose next try takes its time.
fn with_a_slow_debt(gateway: &FakeGateway, sandbox: &Sandbox) {
    closes_prove_nothing(gateway);
    gateway.answers_releases_with([ReleaseAnswer::Status(500), ReleaseAnswer::Late(ms(3000), 500)]);
    sandbox.script("1").quietly();
    sandbox.stop().fails_with(5);
}

#[test]
fn a_calls_own_timeout_counts_while_a_debt_is_tried_again() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    with_a_slow_debt(&gateway, &sandbox);

    sandbox.script_with(["--timeout", "0.5"], "2").fails_with(3);

    assert_eq!(gateway.releases(), 0, "it did not wait");
    gateway.assert_nothing_owed();
    assert_eq!(gateway.allocations(), 1);
}

#[test]
fn a_caller_that_dies_while_a_debt_is_tried_again_has_asked_for_nothing() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    with_a_slow_debt(&gateway, &sandbox);
    let caller = sandbox.spawn(["run", "-e", "2"], "");
    gateway.wait_for("DELETE", "", 2);

    caller.signal(nix::sys::signal::Signal::SIGKILL);

    gateway.assert_nothing_owed();
    sandbox.wait_for_status("the end", |status| status["state"] == "stopped");
    assert_eq!(gateway.allocations(), 1);
    sandbox.assert_nothing_left();
}

#[test]
fn a_stop_while_a_debt_is_tried_again_ends_the_caller_that_waits() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    with_a_slow_debt(&gateway, &sandbox);
    let caller = sandbox.spawn(["run", "-e", "2"], "");
    gateway.wait_for("DELETE", "", 2);
    sandbox.wait_for_status("a waiting caller", |status| status["state"] == "release-failed");

    let stopped = sandbox.stop();

    let told = caller.wait();
    assert!(matches!(told.code, Some(0 | 130)), "{told:#?}");
    assert!(stopped.fails_with(5).contains("HTTP 500"), "{stopped:#?}");
    while sandbox.stop().code == Some(5) {}
    gateway.assert_nothing_owed();
}

#[test]
fn a_failed_allocation_whose_release_fails_is_told_as_both() {
    let gateway = FakeGateway::start();
    gateway.answers_allocations_with([Answer::browser().handshake(crate::support::Handshake::Status(404))]);
    gateway.answers_releases_with([500]);
    let sandbox = Sandbox::of(&gateway);

    let said = sandbox.script("1");

    let error = said.fails_with(5);
    assert!(error.contains("HTTP 500") && error.contains("404"), "{said:#?}");
    gateway.assert_nothing_owed();
}

#[test]
fn all_means_every_session_and_every_debt_of_the_user() {
    let gateway = FakeGateway::start();
    let other_gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    for name in ["one", "two", "killed"] {
        sandbox.script_with(["--name", name], "1").quietly();
    }
    let elsewhere = sandbox
        .shell(&format!("mkdir other; cd other; GHOST_GATEWAY_URL={} ghost-browser run -e 1", other_gateway.url()));
    elsewhere.quietly();
    kill_both(&sandbox, "killed");

    let told = sandbox.ghost(["status", "--all"]);

    let lines: Vec<_> = told.quietly().lines().collect();
    let count = |start: &str| lines.iter().filter(|line| line.starts_with(start)).count();
    assert_eq!((count("connected"), count("release-unknown")), (3, 1), "{told:#?}");
    let json: serde_json::Value = serde_json::from_str(sandbox.ghost(["status", "--all", "--json"]).quietly()).unwrap();
    assert_eq!(json.as_array().map(Vec::len), Some(4), "{json:#}");
    let stopped = sandbox.ghost(["stop", "--all"]);
    assert!(stopped.fails_with(5).contains("may still be running and billed"), "{stopped:#?}");
    assert_eq!(stopped.stdout.matches("released browser").count(), 3, "{stopped:#?}");
    assert_eq!(sandbox.ghost(["stop", "--all"]).quietly(), "browser already stopped");
    assert_eq!(sandbox.ghost(["status", "--all"]).quietly(), "stopped");
    assert_eq!((gateway.releases(), gateway.owed().len()), (2, 1));
    other_gateway.assert_nothing_owed();
}

fn kill_both(sandbox: &Sandbox, name: &str) {
    let status = || -> serde_json::Value {
        let told = sandbox.ghost(["status", "--json", "--name", name]);
        serde_json::from_str(told.quietly()).unwrap()
    };
    let first = status();
    let process = |key: &str| crate::support::Process::find(first[key].as_i64().unwrap() as i32).unwrap();
    let (daemon, keeper) = (process("pid"), process("keeper_pid"));
    daemon.signal(nix::sys::signal::Signal::SIGSTOP);
    crate::kill(&keeper);
    crate::kill(&daemon);
    let until = std::time::Instant::now() + crate::support::PATIENCE;
    while status()["state"] != "release-unknown" {
        assert!(std::time::Instant::now() < until, "somebody still pays");
    }
}

#[test]
fn all_waits_for_keepers_that_pay() {
    let gateway = FakeGateway::start();
    gateway.answers_releases_with([500]);
    let sandbox = Sandbox::of(&gateway);
    sandbox.script("1").quietly();
    crate::kill(&sandbox.daemon().unwrap());
    gateway.wait_for("DELETE", "", 1);

    assert_eq!(sandbox.ghost(["stop", "--all"]).quietly(), "released browser");

    gateway.assert_nothing_owed();
}

#[test]
fn a_stop_that_finds_nothing_names_what_was_perhaps_meant() {
    let gateway = FakeGateway::start();
    let other = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    sandbox.script_with(["--name", "side"], "1").quietly();

    let said = sandbox.stop();
    assert_eq!(said.value(), "browser already stopped");
    assert!(said.stderr.contains("ghost-browser stop --name side"), "{said:#?}");
    let said = sandbox.shell(&format!("GHOST_GATEWAY_URL={} ghost-browser stop --name side", other.url()));
    assert_eq!(said.value(), "browser already stopped");
    assert!(said.stderr.contains("GHOST_GATEWAY_URL"), "{said:#?}");

    assert_eq!(gateway.owed().len(), 1, "neither touched it");
    kill_both(&sandbox, "side");
    let said = sandbox.stop();
    assert!(said.stderr.contains("(release-unknown): `ghost-browser stop --name side`"), "{said:#?}");
    sandbox.ghost(["stop", "--name", "side"]).fails_with(5);
    assert_eq!(sandbox.stop().quietly(), "browser already stopped");
}

#[test]
fn a_stop_that_a_daemon_does_not_answer_confirms_nothing() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    sandbox.script("1").quietly();
    let daemon = sandbox.daemon().unwrap();

    daemon.signal(nix::sys::signal::Signal::SIGSTOP);
    let stopped = sandbox.stop();
    daemon.signal(nix::sys::signal::Signal::SIGCONT);

    assert!(stopped.fails_with(5).contains("does not answer"), "{stopped:#?}");
    assert_eq!(sandbox.stop().quietly(), "released browser");
    gateway.assert_nothing_owed();
}

#[test]
fn all_names_every_daemon_that_does_not_answer_and_waits_for_them_at_once() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    let suspended = ["one", "two"].map(|name| {
        sandbox.script_with(["--name", name], "1").quietly();
        let status: serde_json::Value =
            serde_json::from_str(sandbox.ghost(["status", "--json", "--name", name]).quietly()).unwrap();
        crate::support::Process::find(status["pid"].as_i64().unwrap() as i32).unwrap()
    });
    sandbox.script("1").quietly();
    suspended.iter().for_each(|daemon| daemon.signal(nix::sys::signal::Signal::SIGSTOP));
    let begun = std::time::Instant::now();

    let (status, stop) = (sandbox.spawn(["status", "--all"], ""), sandbox.spawn(["stop", "--all"], ""));
    let (status, stopped) = (status.wait(), stop.wait());
    let took = begun.elapsed();
    suspended.iter().for_each(|daemon| daemon.signal(nix::sys::signal::Signal::SIGCONT));

    assert_eq!(warnings(&status).len(), 2, "{status:#?}");
    assert_eq!(status.value().matches("unknown\n").count(), 2, "{status:#?}");
    let errors = stopped.fails_with(5);
    for name in ["one", "two"] {
        assert!(errors.contains(&format!("({name}): this session's daemon does not answer")), "{stopped:#?}");
    }
    assert!(!errors.contains("the keeper has not released"), "{stopped:#?}");
    assert_eq!(stopped.stdout.matches("released browser").count(), 1, "{stopped:#?}");
    assert!(took < ms(35_000), "it waited for each alone: {took:?}");
    assert_eq!(sandbox.ghost(["stop", "--all"]).quietly().matches("released browser").count(), 2);
    gateway.assert_nothing_owed();
}
