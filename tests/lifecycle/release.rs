//! Whether a browser is released: the text, the exit code and `status` are true each time.

use crate::support::{CloseReply, Closing, FakeGateway, Reaction, ReleaseAnswer, Sandbox, Seen};
use crate::{closes_prove_nothing, warnings};

#[test]
fn a_normal_close_is_proof_whatever_the_delete_says() {
    let gateway = FakeGateway::start();
    gateway.answers_releases_with([500]);
    let sandbox = Sandbox::of(&gateway);
    sandbox.script("1").quietly();

    assert_eq!(sandbox.stop().quietly(), "released browser");

    assert_eq!(sandbox.ghost(["status"]).quietly(), "stopped");
    assert_eq!(gateway.deletes(), 1, "the backstop was sent");
    gateway.assert_nothing_owed();
}

#[test]
fn a_delete_is_proof_whatever_the_close_did() {
    for reply in [CloseReply::Drop, CloseReply::Code(1011), CloseReply::Code(1001)] {
        let gateway = FakeGateway::start();
        gateway.cdp().answers_close_with(reply);
        let sandbox = Sandbox::of(&gateway);
        sandbox.script("1").quietly();

        assert_eq!(sandbox.stop().quietly(), "released browser", "{reply:?}");

        let not_normal = |how: &Closing| matches!(how, Closing::ByClient { reply: got, .. } if *got == reply);
        gateway.wait_until("the close", |seen| {
            seen.iter().any(|seen| matches!(seen, Seen::Closed { how, .. } if not_normal(how)))
        });
        gateway.assert_nothing_owed();
    }
}

#[test]
fn a_release_that_takes_its_time_is_told_as_stopping() {
    let gateway = FakeGateway::start();
    closes_prove_nothing(&gateway);
    gateway.answers_releases_with([ReleaseAnswer::Late(crate::support::ms(1500), 204)]);
    let sandbox = Sandbox::of(&gateway);
    sandbox.script("1").quietly();
    let stop = sandbox.spawn(["stop"], "");
    gateway.wait_for("DELETE", "", 1);

    assert_eq!(sandbox.ghost(["status"]).quietly(), "stopping");

    assert_eq!(stop.wait().quietly(), "released browser");
    assert_eq!(sandbox.ghost(["status"]).quietly(), "stopped");
    gateway.assert_nothing_owed();
}

#[test]
fn gone_already_is_released() {
    for status in [404, 410, 200] {
        let gateway = FakeGateway::start();
        closes_prove_nothing(&gateway);
        gateway.answers_releases_with([status]);
        let sandbox = Sandbox::of(&gateway);
        sandbox.script("1").quietly();

        assert_eq!(sandbox.stop().quietly(), "released browser", "{status}");
    }
}

#[test]
fn an_unconfirmed_release_is_told_kept_and_tried_again_by_itself() {
    let gateway = FakeGateway::start();
    closes_prove_nothing(&gateway);
    gateway.answers_releases_with([ReleaseAnswer::Status(500), ReleaseAnswer::Reset]);
    let sandbox = Sandbox::of(&gateway);
    sandbox.script("1").quietly();

    let said = sandbox.stop();

    assert!(said.fails_with(5).contains("gateway release failed: HTTP 500"), "{said:#?}");
    assert_eq!(said.stdout, "");
    let status = sandbox.ghost(["status"]);
    assert!(matches!(status.quietly().lines().next(), Some("release-failed" | "stopped")), "{status:#?}");
    gateway.assert_nothing_owed();
    sandbox.wait_for_status("the end", |status| status["state"] == "stopped");
    assert_eq!(gateway.deletes(), 3);
    sandbox.assert_nothing_left();
}

#[test]
fn stop_tries_a_failed_release_at_once() {
    let gateway = FakeGateway::start();
    closes_prove_nothing(&gateway);
    gateway.answers_releases_with([500, 500, 500, 500]);
    let sandbox = Sandbox::of(&gateway);
    sandbox.script("1").quietly();

    // By the last one the daemon itself would wait for eight seconds.
    let said: Vec<_> = std::iter::repeat_with(|| sandbox.stop()).take(5).collect();

    let end = said.iter().position(|said| said.code == Some(0)).expect("one that succeeds");
    said[..end].iter().for_each(|said| assert!(said.fails_with(5).contains("HTTP 500")));
    assert_eq!(said[end].quietly(), "released browser");
    gateway.assert_nothing_owed();
    assert_eq!(gateway.deletes(), 5);
}

#[test]
fn a_run_with_stop_tells_an_unconfirmed_release_whatever_the_script_said() {
    for script in ["print(1)", "print(1); throw \"no\""] {
        let gateway = FakeGateway::start();
        closes_prove_nothing(&gateway);
        gateway.answers_releases_with([500]);
        let sandbox = Sandbox::of(&gateway);

        let said = sandbox.script_with(["--stop"], script);

        assert!(said.fails_with(5).contains("gateway release failed: HTTP 500"), "{said:#?}");
        assert_eq!(said.stdout, "1\n");
        gateway.assert_nothing_owed();
    }
}

#[test]
fn a_run_with_stop_releases_after_a_script_that_failed_was_interrupted_or_ran_out_of_time() {
    let cases: [(&[&str], &str, i32); 3] = [
        (&["--stop"], "throw \"no\"", 1),
        (&["--stop", "--timeout", "2"], "sleep(600)", 1),
        (&["--stop"], "print(\"runs\"); sleep(600)", 130),
    ];
    for (args, script, code) in cases {
        let gateway = FakeGateway::start();
        let sandbox = Sandbox::of(&gateway);

        let mut call = sandbox.spawn(args, script);
        if code == 130 {
            assert_eq!(call.line(), "runs");
            call.signal(nix::sys::signal::Signal::SIGINT);
        }
        let said = call.wait();

        assert_eq!(said.code, Some(code), "{said:#?}");
        assert_eq!(sandbox.ghost(["status"]).quietly(), "stopped");
        gateway.assert_nothing_owed();
        assert_eq!(gateway.allocations(), 1);
    }
}

#[test]
fn a_run_with_stop_on_a_real_browser_leaves_nothing() {
    let sandbox = Sandbox::local();

    assert_eq!(sandbox.script_with(["--stop"], "js(\"1+1\")").value(), "2");

    sandbox.assert_nothing_left();
}

#[test]
fn a_browser_that_is_lost_is_released_once_and_the_next_call_is_told_so_in_one_line() {
    for loss in [Reaction::Reset, Reaction::Close(1000), Reaction::Close(1001), Reaction::Close(1011)] {
        let gateway = FakeGateway::start();
        gateway.cdp().on("Page.lose", move |_| loss.clone());
        let sandbox = Sandbox::of(&gateway);

        let said = sandbox.script("cdp(\"Page.lose\")");

        assert!(said.fails_with(4).contains("Page.lose"), "{said:#?}");
        gateway.wait_for("DELETE", "", 1);
        gateway.assert_nothing_owed();
        let next = sandbox.script("1");
        assert_eq!((next.value(), warnings(&next).len()), ("1", 1), "{next:#?}");
        assert_eq!(sandbox.script("1").quietly(), "1");
        sandbox.stop();
        gateway.assert_nothing_owed();
        assert_eq!((gateway.allocations(), gateway.deletes()), (2, 2));
    }
}

#[test]
fn the_loss_of_a_browser_is_not_what_a_script_waits_for() {
    let gateway = FakeGateway::start();
    gateway.cdp().on("Page.lose", |_| Reaction::Reset);
    gateway.answers_releases_with([ReleaseAnswer::Hang]);
    let sandbox = Sandbox::of(&gateway);
    let asked = std::time::Instant::now();

    sandbox.script("cdp(\"Page.lose\")").fails_with(4);

    assert!(asked.elapsed() < std::time::Duration::from_secs(8), "{:?}: the DELETE hangs for ten", asked.elapsed());
    gateway.assert_nothing_owed();
}
