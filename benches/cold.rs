//! How long a first call takes on a local Chromium, as a multiple of what Chromium alone takes until it listens.

mod bare;
#[path = "../tests/support/mod.rs"]
mod support;

use std::time::Instant;

use bare::{Browser, median, row};
use support::Sandbox;

const ROUNDS: usize = 9;

fn main() {
    let (mut alone, mut ours) = (vec![], vec![]);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let browser = Browser::start();
        alone.push(start.elapsed().as_secs_f64() * 1000.0);
        drop(browser);

        let sandbox = Sandbox::local();
        let start = Instant::now();
        sandbox.ghost(["run", "-e", "cdp(\"Browser.getVersion\").product"]).value();
        ours.push(start.elapsed().as_secs_f64() * 1000.0);
    }
    let (alone, ours) = (median(alone), median(ours));
    let against = format!("Chromium alone {alone:.0} ms");
    row("cold call to its first value", format!("{ours:.0} ms"), &against, Some(ours / alone), 1.3, 1.1);
}
