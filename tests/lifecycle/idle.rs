//! The idle limit: it fires for what does not count, and not while a script runs.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{FakeGateway, Sandbox, Seen, ms};

#[test]
fn neither_events_nor_pings_nor_looking_extend_it() {
    let gateway = FakeGateway::start();
    let mut sandbox = Sandbox::of(&gateway);
    sandbox.set("GHOST_BROWSER_IDLE_SECONDS", "2");
    sandbox.script("cdp(\"Browser.getVersion\");").value();
    let idle_since = Instant::now();
    let event = json!({"method": "Page.frameStartedLoading", "params": {"frameId": "F"}});
    let is_released = |seen: &[Seen]| seen.iter().any(|seen| matches!(seen, Seen::Deleted { .. }));

    while !is_released(&gateway.ledger()) {
        assert!(idle_since.elapsed() < Duration::from_secs(15), "it never fires");
        gateway.cdp().flood(&event, 1);
        let ping = [0x89, 0];
        gateway.cdp().send_bytes(&ping);
        sandbox.status();
        thread::sleep(ms(50));
    }

    assert!(idle_since.elapsed() >= ms(1500), "{:?} is too early", idle_since.elapsed());
    gateway.assert_nothing_owed();
    sandbox.wait_for_status("the end", |status| status["state"] == "stopped");
    sandbox.assert_nothing_left();
}

#[test]
fn a_script_that_sleeps_computes_or_waits_holds_its_browser() {
    let scripts = [
        "sleep(1.5); js(\"1+1\")",
        "let end = timestamp(); while end.elapsed < 1.5 {} js(\"1+1\")",
        "cdp(\"Browser.getVersion\"); js(\"1+1\")",
    ];
    for script in scripts {
        let gateway = FakeGateway::start();
        let version = json!({"product": "Slow/1"});
        gateway.cdp().on("Browser.getVersion", move |_| {
            crate::support::Reaction::After(ms(1500), Box::new(crate::support::Reaction::Result(version.clone())))
        });
        let mut sandbox = Sandbox::of(&gateway);
        sandbox.set("GHOST_BROWSER_IDLE_SECONDS", "0.7");

        assert_eq!(sandbox.script(script).value(), "2", "{script}");

        assert_eq!((gateway.allocations(), gateway.deletes()), (1, 0), "{script}");
        gateway.assert_nothing_owed();
    }
}

#[test]
fn each_call_starts_it_anew() {
    let gateway = FakeGateway::start();
    let mut sandbox = Sandbox::of(&gateway);
    sandbox.set("GHOST_BROWSER_IDLE_SECONDS", "600");
    sandbox.script("1").quietly();

    let remaining = sandbox.status()["idle_remaining_s"].as_f64().unwrap();
    sandbox.script("1").quietly();
    let again = sandbox.status()["idle_remaining_s"].as_f64().unwrap();

    assert!((590.0..=600.0).contains(&remaining) && (590.0..=600.0).contains(&again), "{remaining} {again}");
    sandbox.stop();
    gateway.assert_nothing_owed();
}
