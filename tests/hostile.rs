//! Scripts that mean harm, one after the other against one daemon: each ends in the error that it names, and the
//! daemon, its browser and its memory are as before.
//!
//! A file of `tests/hostile/` says in its first lines what it tries and what it must end in. `⟦text × 1000⟧` stands
//! for a thousand times the text.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;
use support::{FakeGateway, Process, Sandbox};

/// What the daemon may keep of all of them together, in MiB: the allocator's own pieces, not the scripts' values.
const MAY_KEEP_MIB: u64 = 24;

struct Hostile {
    name: String,
    /// The code that it must end in, or `nothing`.
    ends_in: String,
    text: String,
}

#[test]
fn nothing_a_script_does_ends_the_session() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    sandbox.script("cdp(\"Browser.getVersion\");").quietly();
    let daemon = sandbox.daemon().expect("a daemon");
    let before = daemon.resident_mib();
    let corpus = corpus();
    assert!(corpus.len() >= 60, "{} scripts", corpus.len());

    let wrong: Vec<_> = corpus.iter().filter_map(|hostile| wrong_end(&sandbox, &daemon, hostile)).collect();

    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(sandbox.script("js(\"1+1\")").value(), "2");
    sandbox.wait_for_memory(&daemon, before + MAY_KEEP_MIB);
    sandbox.stop();
    assert_eq!((gateway.allocations(), gateway.sockets()), (1, 1));
    gateway.assert_nothing_owed();
}

#[test]
fn code_of_the_page_ends_with_the_script_that_was_interrupted() {
    let sandbox = Sandbox::local();
    sandbox.script("js(\"1\");").value();
    let running = sandbox.spawn(["run", "-e", "js(\"document.title = 'busy'; while (true) { }\")"], "");
    wait_until_busy(&sandbox);

    running.signal(Signal::SIGINT);

    assert_eq!(running.wait().code, Some(130));
    assert_eq!(sandbox.script("js(\"1+1\", #{timeout_ms: 10000})").value(), "2");
    sandbox.stop();
}

#[test]
fn code_of_the_page_ends_with_the_time_of_the_call() {
    let sandbox = Sandbox::local();
    sandbox.script("js(\"1\");").value();
    let began = Instant::now();

    let said = sandbox.script_with(["--timeout", "1"], "js(\"while (true) { }\")");

    assert!(said.fails_with(4).contains("Runtime.evaluate"), "{said:#?}");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(sandbox.script("js(\"1+1\", #{timeout_ms: 10000})").value(), "2");
    sandbox.stop();
}

/// Waits until the page has said by its title that its code runs; the browser tells titles, the page answers nothing.
fn wait_until_busy(sandbox: &Sandbox) {
    let wait = "while !tabs().some(|tab| tab.title == \"busy\") { sleep(0.02); }";
    sandbox.script_with(["--timeout", "20"], wait).value();
}

/// What is wrong with how a script ended, if anything is.
fn wrong_end(sandbox: &Sandbox, daemon: &Process, hostile: &Hostile) -> Option<String> {
    // What would go on for ever is told to end soon; what ends by itself has all the time it needs.
    let timeout = if hostile.ends_in == "deadline" { "0.3" } else { "50" };
    let began = Instant::now();
    let said = sandbox.script_with(["--json", "--timeout", timeout], &hostile.text);
    // Shown when something fails.
    println!("{:?} {}: {} MiB", began.elapsed(), hostile.name, daemon.resident_mib());
    assert!(daemon.is_alive(), "{} ended the daemon: {said:#?}", hostile.name);
    let envelope: Value = serde_json::from_str(&said.stdout).unwrap_or_default();
    let ended_in = envelope["error"]["code"].as_str().unwrap_or("nothing");
    let is_right = ended_in == hostile.ends_in && envelope.is_object();
    (!is_right).then(|| format!("{} must end in {}: {said:?}", hostile.name, hostile.ends_in))
}

fn corpus() -> Vec<Hostile> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hostile");
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| hostile(file)).collect()
}

fn hostile(file: &Path) -> Hostile {
    let text = fs::read_to_string(file).unwrap();
    let name = file.file_stem().unwrap().to_string_lossy().into_owned();
    let ends_in = text.lines().find_map(|line| line.strip_prefix("// Ends in: "));
    let ends_in = ends_in.unwrap_or_else(|| panic!("{name} does not say what it ends in")).to_owned();
    Hostile { name, ends_in, text: repeated(&text) }
}

/// The text with each `⟦part × count⟧` written out.
fn repeated(text: &str) -> String {
    let mut parts = text.split('⟦');
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (repeat, rest) = part.split_once('⟧').expect("a bracket is closed");
        let (what, times) = repeat.rsplit_once(" × ").expect("a part and a count");
        whole.push_str(&what.repeat(times.parse().expect("a count")));
        whole.push_str(rest);
    }
    whole
}
