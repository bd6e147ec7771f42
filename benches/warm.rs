//! What a call costs when the browser is there: a whole process, over `/bin/true` from the same launcher.

mod bare;
#[path = "../tests/support/mod.rs"]
mod support;

use std::process::{Command, Stdio};
use std::time::Instant;

use bare::{median, row};
use support::Sandbox;

const ROUNDS: usize = 200;

fn main() {
    let sandbox = Sandbox::local();
    sandbox.script("ensure_page()");
    let calls = [("warm call `print(page_info())`", "print(page_info())", 3.5, 2.0), ("warm call `1`", "1", 2.2, 1.3)];
    for (what, code, floor, goal) in calls {
        let (mut idle, mut ours) = (vec![], vec![]);
        for _ in 0..ROUNDS {
            idle.push(milliseconds(Command::new("/bin/true")));
            ours.push(milliseconds(sandbox.command(["run", "-e", code])));
        }
        let (idle, ours) = (median(idle), median(ours));
        let over = ours - idle;
        row(what, format!("+ {over:.2} ms"), &format!("/bin/true {idle:.2} ms"), None, floor, goal);
    }
}

fn milliseconds(mut command: Command) -> f64 {
    let start = Instant::now();
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
    assert!(status.success());
    start.elapsed().as_secs_f64() * 1000.0
}
