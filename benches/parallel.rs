//! What several callers get out of one browser at once, as a part of what one of them gets alone.
//!
//! Ten scripts and `parallel` with as many workers, each evaluating on a page of its own.

mod bare;
#[path = "../tests/support/mod.rs"]
mod support;

use std::time::Instant;

use bare::{Browser, median, row};
use support::{Answer, FakeGateway, Running, Sandbox};

const ROUNDS: usize = 5;
const CALLS: usize = 2000;
const AT_ONCE: usize = 10;

fn main() {
    let browser = Browser::start();
    let gateway = FakeGateway::start();
    gateway.always_answers_allocations_with(Answer::browser().url(&browser.url));
    for (name, sandbox) in [("WebSocket", Sandbox::of(&gateway)), ("pipe", Sandbox::local())] {
        sandbox.script("ensure_page()");
        let (mut single, mut scripts, mut workers, mut pages) = (vec![], vec![], vec![], vec![]);
        for _ in 0..ROUNDS {
            single.push(number(&sandbox, &alone()));
            scripts.push(scripts_at_once(&sandbox));
            workers.push(number(&sandbox, &in_parallel()));
            pages.push(number(&sandbox, &for_nothing()));
        }
        let single = median(single);
        for (what, rate) in [("ten scripts at once", median(scripts)), ("parallel, ten workers", median(workers))] {
            let against = format!("one script {single:.0} /s");
            row(&format!("{what}, {name}"), format!("{rate:.0} /s"), &against, Some(rate / single), 1.5, 2.5);
        }
        let cost = format!("{:.0} ms", median(pages));
        row(&format!("parallel, ten pages opened and closed, {name}"), cost, "", None, 0.0, 0.0);
    }
}

fn alone() -> String {
    format!(
        "let own = ensure_page(\"new\"); let t = timestamp(); for i in 0..{CALLS} {{ js(\"1+1\"); }} \
         print({CALLS}.0 / t.elapsed); cdp(\"Target.closeTarget\", #{{targetId: own.target_id}});"
    )
}

/// All begin when the last of them has its page; the clock runs until the last of them is done.
fn scripts_at_once(sandbox: &Sandbox) -> f64 {
    let script = format!(
        "let own = ensure_page(\"new\"); let begun = expect_event(\"Target.targetCreated\"); print(\"ready\"); \
         begun.wait(); for i in 0..{CALLS} {{ js(\"1+1\"); }} cdp(\"Target.closeTarget\", #{{targetId: own.target_id}});"
    );
    let mut running: Vec<Running> = (0..AT_ONCE).map(|_| sandbox.spawn([] as [&str; 0], &script)).collect();
    for script in &mut running {
        script.line();
    }
    let start = Instant::now();
    // It tells of every target that there is, and all scripts see it.
    let go = "cdp(\"Target.setDiscoverTargets\", #{discover: true}); cdp(\"Target.setDiscoverTargets\", #{discover: false});";
    sandbox.script(go).value();
    running.into_iter().for_each(|script| assert_eq!(script.wait().value(), "ready"));
    (AT_ONCE * CALLS) as f64 / start.elapsed().as_secs_f64()
}

/// From the first call of each worker to its last: the slowest counts.
fn in_parallel() -> String {
    format!(
        "let items = []; items.pad({AT_ONCE}, 1); \
         let times = parallel(items, {AT_ONCE}, |n, page| {{ \
             let t = timestamp(); for i in 0..{CALLS} {{ js(\"1+1\"); }} t.elapsed }}); \
         let slowest = 0.0; for time in times {{ if time.value > slowest {{ slowest = time.value; }} }} \
         print({AT_ONCE}.0 * {CALLS}.0 / slowest)"
    )
}

/// What the pages themselves cost, in milliseconds.
fn for_nothing() -> String {
    format!(
        "let items = []; items.pad({AT_ONCE}, 1); let t = timestamp(); parallel(items, {AT_ONCE}, |n, page| 1); \
         print(t.elapsed * 1000.0)"
    )
}

fn number(sandbox: &Sandbox, script: &str) -> f64 {
    let said = sandbox.script(script);
    said.stdout.trim().parse().unwrap_or_else(|_| panic!("{said:#?}"))
}
