//! A connection that ends by itself: what was written is unknown, what was not is said, and the debt is paid once.

use serde_json::Value;

use crate::support::{CloseReply, FakeCdp, FakeGateway, Gate, Reaction, ReleaseAnswer, Running, Said, Sandbox, Seen};

/// A way in which a connection ends by itself, and its name.
type End = (&'static str, fn(&FakeCdp));

const ENDS: [End; 6] = [
    ("RST", FakeCdp::reset),
    ("FIN", FakeCdp::hang_up),
    ("close 1000", |cdp| cdp.close(1000)),
    ("close 1001", |cdp| cdp.close(1001)),
    ("close 1011", |cdp| cdp.close(1011)),
    ("garbage", |cdp| cdp.send_bytes(&[0xff; 16])),
];

/// A script that calls what is never answered, with the call on its way.
fn in_flight(gateway: &FakeGateway, sandbox: &Sandbox) -> Running {
    gateway.cdp().on("Test.never", |_| Reaction::Never);
    let running = sandbox.spawn(["run", "--json", "-e", "cdp(\"Test.never\")"], "");
    gateway.cdp().wait_for("Test.never", 1);
    running
}

#[track_caller]
fn error_of(said: &Said) -> Value {
    let envelope: Value = serde_json::from_str(&said.stdout).unwrap_or_else(|_| panic!("{said:#?}"));
    envelope["error"].clone()
}

fn is_stopped(status: &Value) -> bool {
    status["state"] == "stopped"
}

#[test]
fn a_call_that_was_written_ends_at_once_as_unknown_and_the_browser_is_released_once() {
    for (how, end) in ENDS {
        let gateway = FakeGateway::start();
        let sandbox = Sandbox::of(&gateway);
        let running = in_flight(&gateway, &sandbox);

        end(gateway.cdp());

        let said = running.wait();
        assert_eq!((said.code, &error_of(&said)["code"]), (Some(4), &"outcome_unknown".into()), "{how}: {said:#?}");
        gateway.assert_nothing_owed();
        sandbox.wait_for_status("the end of the debt", is_stopped);
        assert_eq!((gateway.deletes(), gateway.sockets()), (1, 1), "{how}");
        assert_eq!(gateway.cdp().count("Test.never"), 1, "{how}");
    }
}

#[test]
fn the_next_run_gets_a_new_browser_and_one_line_that_says_so() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    let running = in_flight(&gateway, &sandbox);
    // A debt that is not paid keeps the daemon, whose it is to tell.
    gateway.answers_releases_with([500]);
    gateway.cdp().reset();
    running.wait();
    gateway.wait_until("the first release", |seen| seen.iter().any(|seen| matches!(seen, Seen::Deleted { .. })));

    let next = sandbox.script("cdp(\"Browser.getVersion\").protocolVersion");

    assert_eq!(next.value(), "1.3");
    assert_eq!(next.stderr.lines().count(), 1, "{next:#?}");
    assert!(next.stderr.starts_with("warning: ") && next.stderr.contains("lost"), "{next:#?}");
    assert_eq!(sandbox.script("1 + 1").quietly(), "2");
    sandbox.stop().quietly();
    assert_eq!((gateway.allocations(), gateway.sockets()), (2, 2));
    gateway.assert_nothing_owed();
}

#[test]
fn a_browser_that_was_lost_while_nobody_called_is_released_and_the_next_run_is_told() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    sandbox.script("cdp(\"Browser.getVersion\");").quietly();
    gateway.answers_releases_with([500]);

    gateway.cdp().reset();
    gateway.wait_until("the first release", |seen| seen.iter().any(|seen| matches!(seen, Seen::Deleted { .. })));

    let next = sandbox.script("1 + 1");
    assert_eq!(next.value(), "2");
    assert_eq!(next.stderr.lines().count(), 1, "{next:#?}");
    sandbox.stop().quietly();
    assert_eq!(gateway.allocations(), 2);
    gateway.assert_nothing_owed();
}

#[test]
fn a_release_that_fails_is_told_and_repeated_until_it_is_confirmed() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    let running = in_flight(&gateway, &sandbox);
    gateway.answers_releases_with([ReleaseAnswer::Status(500), ReleaseAnswer::Reset]);

    gateway.cdp().reset();

    assert_eq!(running.wait().code, Some(4));
    let status = sandbox.wait_for_status("the failed release", |status| status["state"] == "release-failed");
    assert!(status["debts"].to_string().contains("gateway release failed"), "{status:#}");
    gateway.assert_nothing_owed();
    sandbox.wait_for_status("the end of the debt", is_stopped);
    assert_eq!(gateway.deletes(), 3);
}

#[test]
fn a_run_does_not_wait_for_the_release_of_what_it_lost() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    let running = in_flight(&gateway, &sandbox);
    let gate = Gate::closed();
    gateway.answers_releases_with([ReleaseAnswer::Behind(gate.clone())]);

    gateway.cdp().reset();

    assert_eq!(running.wait().code, Some(4));
    assert_eq!(gateway.releases(), 0);
    gate.open();
    gateway.assert_nothing_owed();
}

#[test]
fn after_the_loss_the_same_script_is_told_that_nothing_was_sent() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    gateway.cdp().on("Test.never", |_| Reaction::Never);
    let code = "try { cdp(\"Test.never\") } catch (e) { print(e.code) } cdp(\"Test.after\")";
    let mut running = sandbox.spawn(["run", "-e", code], "");
    gateway.cdp().wait_for("Test.never", 1);

    gateway.cdp().reset();

    assert_eq!(running.line(), "outcome_unknown");
    let said = running.wait();
    assert!(said.fails_with(1).contains("Test.after: "), "{said:#?}");
    assert!(said.stderr.contains("the command was not sent"), "{said:#?}");
    gateway.assert_nothing_owed();
    assert_eq!(gateway.cdp().count("Test.after"), 0);
}

#[test]
fn every_call_that_waits_ends_with_the_connection() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    gateway.cdp().on("Test.never", |_| Reaction::Never);
    let code = "cdp_all([[\"Test.never\"], [\"Test.never\"]]).map(|r| r.error.code)";
    let all = sandbox.spawn(["run", "-e", code], "");
    let one = sandbox.spawn(["run", "-e", "cdp(\"Test.never\")"], "");
    let event = sandbox.spawn(["run", "-e", "wait_event(\"Test.event\", #{timeout_ms: 60000})"], "");
    gateway.cdp().wait_for("Test.never", 3);
    sandbox.wait_for_status("three scripts", |status| status["scripts"] == 3);

    gateway.cdp().reset();

    assert_eq!(all.wait().stdout, "[\"outcome_unknown\",\"outcome_unknown\"]\n");
    assert_eq!(one.wait().code, Some(4));
    let event = event.wait();
    assert!(event.fails_with(1).contains("Test.event: "), "{event:#?}");
    gateway.assert_nothing_owed();
}

/// More than the buffers of both ends of a connection take in.
const TOO_MUCH: &str =
    "let s = \"0123456789abcdef\"; while s.len < 16000000 { s += s; } cdp(\"Test.big\", #{s: s}, ())";

#[test]
fn what_waits_behind_a_peer_that_stopped_reading_was_not_sent() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    sandbox.script("cdp(\"Browser.getVersion\");").quietly();
    gateway.cdp().stop_reading();
    let first = sandbox.spawn(["run", "--json", "-e", TOO_MUCH], "");
    gateway.cdp().wait_for_unread(1 << 15);
    let second = sandbox.spawn(["run", "--json", "-e", "cdp(\"Test.small\")"], "");
    sandbox.wait_for_status("the small call", |status| status["calls"] == 3);

    gateway.cdp().reset();

    let (first, second) = (first.wait(), second.wait());
    assert_eq!((first.code, &error_of(&first)["code"]), (Some(4), &"outcome_unknown".into()), "{first:#?}");
    assert_eq!((second.code, &error_of(&second)["code"]), (Some(1), &"disconnected".into()), "{second:#?}");
    gateway.assert_nothing_owed();
    assert_eq!((gateway.cdp().count("Test.big"), gateway.cdp().count("Test.small")), (0, 0));
}

#[test]
fn a_peer_that_stops_reading_costs_a_call_its_time_and_no_more() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    sandbox.script("cdp(\"Browser.getVersion\");").quietly();
    gateway.cdp().stop_reading();

    let short = TOO_MUCH.replace(", ())", ", (), #{timeout_ms: 300})");
    let first = sandbox.spawn(["run", "--json", "-e", &short], "").wait();
    let second = sandbox.script_with(["--json"], "cdp(\"Test.small\", #{}, (), #{timeout_ms: 300})");

    assert_eq!(error_of(&first)["code"], "outcome_unknown", "{first:#?}");
    assert_eq!(error_of(&second)["code"], "disconnected", "{second:#?}");
    assert_eq!(sandbox.status()["state"], "connected");
    gateway.cdp().reset();
    gateway.assert_nothing_owed();
    assert_eq!(gateway.cdp().count("Test.small"), 0);
}

#[test]
fn a_close_that_is_not_answered_is_backed_by_the_gateways_word() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    sandbox.script("cdp(\"Browser.getVersion\");").quietly();
    gateway.cdp().answers_close_with(CloseReply::Drop);
    gateway.answers_releases_with([500]);

    let said = sandbox.stop();

    assert!(said.fails_with(5).contains("gateway release failed: HTTP 500"), "{said:#?}");
    gateway.assert_nothing_owed();
    sandbox.wait_for_status("the end of the debt", is_stopped);
    assert!(gateway.deletes() >= 2);
}
