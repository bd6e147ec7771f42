//! How long a first call takes on a local Chromium, as a multiple of what Chromium alone takes: until it says that it
//! listens on a port, and until it answers its first command over the pipe, which is what we wait for.

mod bare;
#[path = "../tests/support/mod.rs"]
mod support;

use std::time::Instant;

use bare::{Bare, Browser, median, row};
use support::Sandbox;

const ROUNDS: usize = 9;

fn main() {
    let (mut listens, mut answers, mut ours) = (vec![], vec![], vec![]);
    for _ in 0..ROUNDS {
        listens.push(milliseconds(Browser::start));

        let sandbox = Sandbox::local();
        answers.push(milliseconds(|| {
            let mut bare = Bare::pipe(sandbox.root());
            bare.call(1, "Browser.getVersion", "{}", None);
            // Its end is no part of it.
            bare
        }));
        ours.push(milliseconds(|| {
            sandbox.ghost(["run", "-e", "cdp(\"Browser.getVersion\").product"]).value();
        }));
    }
    let (listens, answers, ours) = (median(listens), median(answers), median(ours));
    for (alone, against) in [(listens, "listens"), (answers, "answers")] {
        let against = format!("Chromium {against} {alone:.0} ms");
        row("cold call to its first value", format!("{ours:.0} ms"), &against, Some(ours / alone), 1.3, 1.1);
    }
}

fn milliseconds<T>(work: impl FnOnce() -> T) -> f64 {
    let start = Instant::now();
    let kept = work();
    let length = start.elapsed().as_secs_f64() * 1000.0;
    drop(kept);
    length
}
