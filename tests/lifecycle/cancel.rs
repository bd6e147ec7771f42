//! Cancelling, in each phase and by everyone who can: one release, and a browser that is not wanted is never dialled.

use nix::sys::signal::Signal;

use crate::ENDLESS;
use crate::support::{Answer, FakeGateway, Gate, Handshake, Running, Said, Sandbox};

/// Who no longer wants the browser.
#[derive(Debug, Clone, Copy, PartialEq)]
enum By {
    DaemonSignal(Signal),
    CallersDeath,
    CallersCtrlC,
    Stop,
}

const EVERYONE: [By; 6] = [
    By::DaemonSignal(Signal::SIGTERM),
    By::DaemonSignal(Signal::SIGINT),
    By::DaemonSignal(Signal::SIGHUP),
    By::CallersDeath,
    By::CallersCtrlC,
    By::Stop,
];

impl By {
    /// Cancels, and gives the stop that is under way.
    fn cancel(self, sandbox: &Sandbox, caller: &Running) -> Option<Running> {
        match self {
            By::DaemonSignal(signal) => sandbox.daemon().expect("a daemon").signal(signal),
            By::CallersDeath => caller.signal(Signal::SIGKILL),
            By::CallersCtrlC => caller.signal(Signal::SIGINT),
            By::Stop => return Some(sandbox.spawn(["stop"], "")),
        }
        None
    }

    fn assert_told(self, caller: &Said, stop: Option<Running>) {
        let expected = if self == By::CallersDeath { None } else { Some(130) };
        assert_eq!(caller.code, expected, "{self:?}: {caller:#?}");
        if let Some(stop) = stop {
            assert_eq!(stop.wait().quietly(), "released browser");
        }
    }
}

fn assert_released_once(gateway: &FakeGateway, sandbox: &Sandbox, by: By) {
    gateway.assert_nothing_owed();
    sandbox.wait_for_status("the end", |status| status["state"] == "stopped");
    assert_eq!((gateway.gets(), gateway.allocations(), gateway.deletes()), (1, 1, 1), "{by:?}");
    sandbox.assert_nothing_left();
}

#[test]
fn while_asking_what_the_answer_brings_is_released_unseen() {
    for by in EVERYONE {
        let gateway = FakeGateway::start();
        let gate = Gate::closed();
        gateway.answers_allocations_with([Answer::browser().behind(&gate)]);
        let sandbox = Sandbox::of(&gateway);
        let caller = sandbox.spawn(["run", "-e", "1"], "");
        gateway.wait_for("GET", "/json/version", 1);
        assert_eq!(sandbox.ghost(["status"]).quietly(), "starting");

        let stop = by.cancel(&sandbox, &caller);

        sandbox.wait_for_status("the giving up", |status| status["state"] == "stopping");
        gate.open();
        by.assert_told(&caller.wait(), stop);
        assert_released_once(&gateway, &sandbox, by);
        assert_eq!(gateway.sockets(), 0, "{by:?}");
    }
}

#[test]
fn while_connecting_the_browser_is_released_at_once() {
    for by in EVERYONE {
        let gateway = FakeGateway::start();
        gateway.answers_allocations_with([Answer::browser().handshake(Handshake::Silent)]);
        let sandbox = Sandbox::of(&gateway);
        let caller = sandbox.spawn(["run", "-e", "1"], "");
        crate::wait_for_handshake(&gateway);
        assert_eq!(sandbox.ghost(["status"]).quietly(), "starting");

        let stop = by.cancel(&sandbox, &caller);

        by.assert_told(&caller.wait(), stop);
        assert_released_once(&gateway, &sandbox, by);
    }
}

#[test]
fn a_connected_browser_that_no_script_has_used_is_released() {
    for by in EVERYONE {
        let gateway = FakeGateway::start();
        let sandbox = Sandbox::of(&gateway);
        let mut caller = sandbox.spawn(["run", "-e", ENDLESS], "");
        assert_eq!(caller.line(), "runs");

        let stop = by.cancel(&sandbox, &caller);

        by.assert_told(&caller.wait(), stop);
        assert_released_once(&gateway, &sandbox, by);
    }
}

#[test]
fn a_daemon_that_is_told_to_end_while_a_script_waits_for_the_browser_releases_it() {
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        let gateway = FakeGateway::start();
        gateway.cdp().on("Browser.getVersion", |_| crate::support::Reaction::Never);
        let sandbox = Sandbox::of(&gateway);
        let caller = sandbox.spawn(["run", "-e", "cdp(\"Browser.getVersion\", #{}, (), #{timeout_ms: 600000})"], "");
        gateway.cdp().wait_for("Browser.getVersion", 1);

        sandbox.daemon().unwrap().signal(signal);

        assert_eq!(caller.wait().code, Some(130));
        assert_released_once(&gateway, &sandbox, By::DaemonSignal(signal));
    }
}

#[test]
fn a_daemon_that_is_told_to_end_while_its_release_fails_leaves_the_debt_to_the_keeper() {
    let gateway = FakeGateway::start();
    crate::closes_prove_nothing(&gateway);
    gateway.answers_releases_with([500, 500, 500]);
    let sandbox = Sandbox::of(&gateway);
    sandbox.script("1").quietly();
    sandbox.stop().fails_with(5);
    let (daemon, keeper) = crate::daemon_and_keeper(&sandbox);

    daemon.signal(Signal::SIGTERM);

    sandbox.wait_for_status("the keeper's turn", |status| status["pid"].is_null());
    gateway.assert_nothing_owed();
    sandbox.wait_for_status("the end", |status| status["state"] == "stopped");
    sandbox.assert_nothing_left();
    assert!(!daemon.is_alive() && !keeper.is_alive());
}

#[test]
fn a_local_start_is_cancelled_by_everyone_and_leaves_nothing() {
    for by in [By::DaemonSignal(Signal::SIGTERM), By::CallersDeath, By::Stop] {
        let sandbox = Sandbox::local();
        let caller = sandbox.spawn(["run", "-e", ENDLESS], "");
        sandbox.wait_for_status("a start", |status| status["state"] != "stopped");

        let stop = by.cancel(&sandbox, &caller);

        by.assert_told(&caller.wait(), stop);
        sandbox.assert_nothing_left();
    }
}
