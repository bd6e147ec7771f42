//! What daemon and keeper hold: idle, after large replies, after a flood of events, and fifty of them on one machine.

mod bare;
#[path = "../tests/support/mod.rs"]
mod support;

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use bare::{Browser, median, row};
use support::{Answer, FakeGateway, Reaction, Sandbox};

/// A daemon gives memory back when it has a moment; a bench may wait for it by the clock.
const A_WHILE: Duration = Duration::from_secs(2);

const SESSIONS: usize = 50;

const EVENTS: usize = 100_000;

fn main() {
    idle();
    large_replies();
    flood();
    many_sessions();
    let size = fs::metadata(env!("CARGO_BIN_EXE_ghost-browser")).unwrap().len() as f64 / MIB;
    row("binary", mib(size), "", None, 16.0, 9.0);
}

const MIB: f64 = 1024.0 * 1024.0;

fn mib(size: f64) -> String {
    format!("{size:.1} MiB")
}

/// Resident memory in MiB.
fn resident(pid: i32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1024.0
}

fn peak(pid: i32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1024.0
}

fn idle() {
    let sandbox = Sandbox::local();
    sandbox.ghost(["run", "-e", "1"]).value();
    row("idle daemon", mib(resident(sandbox.daemon().unwrap().pid)), "", None, 14.0, 8.0);
    row("idle keeper", mib(resident(sandbox.keeper().unwrap().pid)), "", None, 6.0, 3.0);
}

fn large_replies() {
    let browser = Browser::start();
    let gateway = FakeGateway::start();
    gateway.always_answers_allocations_with(Answer::browser().url(&browser.url));
    for (way, sandbox) in [("pipe", Sandbox::local()), ("WebSocket", Sandbox::of(&gateway))] {
        sandbox.ghost(["run", "-e", "js(\"1\")"]).value();
        let daemon = sandbox.daemon().unwrap().pid;
        let before = resident(daemon);
        sandbox.script("for i in 0..5 { js(\"'x'.repeat(20000000)\").len(); }");
        sleep(A_WHILE);
        let more = resident(daemon) - before;
        row(&format!("after five replies of 20 MB, {way}"), format!("+ {}", mib(more)), "", None, 24.0, 6.0);
    }
}

fn flood() {
    let gateway = FakeGateway::start();
    let cdp = gateway.cdp();
    cdp.on("Flood.now", |command| Reaction::Raw(flood_around(command.id)));
    let sandbox = Sandbox::of(&gateway);
    sandbox.ghost(["run", "-e", "1"]).value();
    let daemon = sandbox.daemon().unwrap().pid;
    let before = resident(daemon);
    let said = sandbox.script("let t = timestamp(); cdp(\"Flood.now\"); t.elapsed");
    let late: f64 = said.value().trim().parse().unwrap();
    row("100,000 events around a reply: memory", format!("+ {}", mib(peak(daemon) - before)), "", None, 48.0, 16.0);
    row("100,000 events around a reply: it comes after", format!("{late:.2} s"), "", None, 1.0, 0.2);
}

/// Half of the events before the reply, half behind it.
fn flood_around(id: u64) -> Vec<String> {
    let event =
        r#"{"method":"Network.dataReceived","params":{"requestId":"1000.1","timestamp":1.5,"dataLength":65536}}"#;
    let mut frames = vec![event.to_owned(); EVENTS];
    frames.insert(EVENTS / 2, format!("{{\"id\":{id},\"result\":{{}}}}"));
    frames
}

fn many_sessions() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    let names: Vec<_> = (0..SESSIONS).map(|number| format!("s{number}")).collect();
    for name in &names {
        sandbox.ghost(["run", "--name", name, "-e", "1"]).value();
    }
    let each = names.iter().map(|name| {
        let told = sandbox.ghost(["status", "--json", "--name", name]);
        let status: serde_json::Value = serde_json::from_str(&told.stdout).unwrap();
        let of = |field: &str| resident(status[field].as_i64().unwrap() as i32);
        of("pid") + of("keeper_pid")
    });
    row("each of 50 sessions, daemon and keeper", mib(median(each.collect())), "", None, 16.0, 8.0);
    sandbox.ghost(["stop", "--all"]);
}
