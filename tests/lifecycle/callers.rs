//! Callers: what they leave open, and how they die.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::ENDLESS;
use crate::support::{FakeGateway, Reaction, Sandbox};

/// The promise is a second; the machine does other things too.
const SOON: Duration = Duration::from_secs(5);

#[test]
fn nobody_who_reads_a_cold_calls_output_waits_for_the_daemon() {
    let lines = [
        "out=$(ghost-browser run -e '\"done\"' 2>&1); echo $out",
        "ghost-browser run -e '\"done\"' 2>&1 | cat",
        "mkfifo f; cat f & exec 9>f; ghost-browser run -e '\"done\"'; exec 9>&-; wait",
        "mkfifo f; cat f & exec 9>f 8<f; ghost-browser run -e '\"done\"' 3<&8; exec 9>&- 8<&-; wait",
    ];
    for line in lines {
        let gateway = FakeGateway::start();
        let sandbox = Sandbox::of(&gateway);

        // It ends only when every copy of these descriptors is closed.
        assert_eq!(sandbox.shell(line).value(), "done", "{line}");

        assert_eq!(sandbox.status()["state"], "connected");
        assert_eq!(sandbox.stop().quietly(), "released browser");
        gateway.assert_nothing_owed();
    }
}

#[test]
fn nobody_who_reads_a_cold_local_calls_output_waits_for_chromium() {
    let sandbox = Sandbox::local();

    let line = "mkfifo f; cat f & exec 9>f; out=$(ghost-browser run -e '\"done\"' | cat); exec 9>&-; wait; echo $out";
    assert_eq!(sandbox.shell(line).value(), "done");

    assert_eq!(sandbox.status()["state"], "connected");
    assert_eq!(sandbox.stop().quietly(), "released browser");
}

#[test]
fn a_killed_callers_script_ends_at_once_and_the_browser_is_the_next_ones() {
    let scripts = [
        "cdp(\"Browser.getVersion\"); print(\"runs\"); sleep(600)",
        "cdp(\"Browser.getVersion\"); print(\"runs\"); loop {}",
        "cdp(\"Browser.getVersion\"); print(\"runs\"); cdp(\"Page.never\", #{}, (), #{timeout_ms: 600000})",
    ];
    for script in scripts {
        let gateway = FakeGateway::start();
        gateway.cdp().on("Page.never", |_| Reaction::Never);
        let sandbox = Sandbox::of(&gateway);
        let mut caller = sandbox.spawn(["run", "-e", script], "");
        assert_eq!(caller.line(), "runs");
        let killed = Instant::now();

        caller.signal(Signal::SIGKILL);

        sandbox.wait_for_status("the script's end", |status| status["scripts"] == 0);
        assert!(killed.elapsed() < SOON, "{script}: {:?}", killed.elapsed());
        assert_eq!(sandbox.script("js(\"1+1\")").quietly(), "2", "{script}");
        assert_eq!(gateway.allocations(), 1, "{script}");
        sandbox.stop();
        gateway.assert_nothing_owed();
    }
}

#[test]
fn a_fresh_browser_is_not_released_while_another_caller_uses_it() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    let mut first = sandbox.spawn(["run", "-e", ENDLESS], "");
    first.line();
    let mut second = sandbox.spawn(["run", "-e", ENDLESS], "");
    second.line();

    first.signal(Signal::SIGKILL);
    sandbox.wait_for_status("one script", |status| status["scripts"] == 1);

    assert_eq!(sandbox.status()["state"], "connected");
    second.signal(Signal::SIGKILL);
    gateway.wait_for("DELETE", "", 1);
    gateway.assert_nothing_owed();
    assert_eq!((gateway.allocations(), gateway.deletes()), (1, 1));
}

#[test]
fn a_caller_that_reads_nothing_cannot_hold_up_a_stop() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    let script = "let s = \"x\"; for i in 0..16 { s += s; } print(\"runs\"); loop { print(s) }";
    let mut caller = sandbox.spawn(["run", "-e", script], "");
    assert_eq!(caller.line(), "runs");
    caller.signal(Signal::SIGSTOP);
    assert_eq!(sandbox.status()["scripts"], 1);
    let asked = Instant::now();

    assert_eq!(sandbox.stop().quietly(), "released browser");

    assert!(asked.elapsed() < Duration::from_secs(20), "{:?}", asked.elapsed());
    assert_eq!(sandbox.ghost(["status"]).quietly(), "stopped");
    gateway.assert_nothing_owed();
    caller.signal(Signal::SIGKILL);
}

#[test]
fn a_caller_with_a_timeout_does_not_wait_for_a_suspended_daemon() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    let mut running = sandbox.spawn(["run", "--timeout", "1", "-e", "print(1); sleep(60)"], "");
    assert_eq!(running.line(), "1");
    let daemon = sandbox.daemon().expect("a daemon");
    daemon.signal(Signal::SIGSTOP);

    let asked = Instant::now();
    let said = sandbox.ghost(["run", "--timeout", "0.5", "-e", "2"]);
    let waited = asked.elapsed();
    let unanswered = running.wait();
    daemon.signal(Signal::SIGCONT);

    assert!(said.fails_with(3).contains("does not answer"), "{said:#?}");
    assert!(waited < Duration::from_secs(5), "{waited:?}");
    let told = unanswered.fails_with(4);
    assert!(told.contains("does not answer") && told.contains("kill -CONT"), "{told}");
    assert_eq!(sandbox.script("3").value(), "3", "it goes on once it is woken");
}
