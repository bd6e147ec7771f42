//! A paid browser is never lost: the life of a browser and of its debt, whatever goes wrong, as the gateway's ledger saw
//! it.
//!
//! One file per kind: `races`, `beside`, `builds`, `start`, `cancel`, `idle`, `death`, `callers`, `release`, `debts`, `stop`. Where
//! the fault concerns processes and files, the same is shown on a real Chromium.

#[path = "../support/mod.rs"]
mod support;

mod beside;
mod builds;
mod callers;
mod cancel;
mod death;
mod debts;
mod idle;
mod races;
mod release;
mod start;
mod stop;

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use support::{CloseReply, FakeGateway, PATIENCE, Process, Running, Sandbox, Seen};

/// A script that says that it runs, and goes on until it is ended.
const ENDLESS: &str = "print(\"runs\"); sleep(600)";

/// Waits for the first request for a WebSocket.
fn wait_for_handshake(gateway: &FakeGateway) {
    gateway.wait_until("a WebSocket handshake", |seen| {
        seen.iter().any(|seen| matches!(seen, Seen::Request { path, .. } if path.contains("/devtools/")))
    });
}

/// From now on only a DELETE can prove a release.
fn closes_prove_nothing(gateway: &FakeGateway) {
    gateway.cdp().answers_close_with(CloseReply::Drop);
}

/// The lines of stderr that warn.
fn warnings(said: &support::Said) -> Vec<&str> {
    said.stderr.lines().filter(|line| line.starts_with("warning: ")).collect()
}

/// Kills a process as nothing can be done about.
fn kill(process: &Process) {
    process.signal(Signal::SIGKILL);
}

/// Waits until a call waits for the lock of a note.
fn wait_for_lock_of_note(call: &Running) {
    let pid = call.pid().to_string();
    let waits = |line: &str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        fields.get(1) == Some(&"->") && fields.get(5) == Some(&pid.as_str())
    };
    let until = Instant::now() + PATIENCE;
    while !fs::read_to_string("/proc/locks").unwrap().lines().any(waits) {
        assert!(Instant::now() < until, "it waits for no note");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Daemon and keeper of a session that has both.
fn daemon_and_keeper(sandbox: &Sandbox) -> (Process, Process) {
    let daemon = sandbox.daemon().expect("a daemon");
    let keeper = sandbox.keeper().expect("a keeper");
    (daemon, keeper)
}
