//! The arguments of a quiet browser in the background.

use std::ffi::OsString;
use std::path::Path;

use super::folder::Layout;

/// No question, no phoning home, no update, no slowing down of what is not seen. (Not `--disable-crashpad-for-testing`:
/// the network service of Chromium 156 aborts with it.)
const QUIET: &[&str] = &[
    "--no-first-run",
    "--no-default-browser-check",
    "--no-pings",
    "--noerrdialogs",
    "--hide-crash-restore-bubble",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--disable-search-engine-choice-screen",
    "--disable-sync",
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
    // The debugging pipe counts as automation, and pages would be told (`navigator.webdriver`).
    "--disable-blink-features=AutomationControlled",
    "--disable-features=MediaRouter,OptimizationHints,Translate",
    "--metrics-recording-only",
    "--password-store=basic",
    "--use-mock-keychain",
    // Below errors it logs what pages write to their console.
    "--log-level=2",
];

/// Below this, `/dev/shm` (64 MiB in a container) fills up and renderers crash.
const SHARED_MEMORY: u64 = 512 << 20;

/// Whether Chromium has to be told to do without its sandbox, which it refuses to run as root with.
pub(super) fn lacks_sandbox(of_user: &[String]) -> bool {
    nix::unistd::geteuid().is_root() && !of_user.iter().any(|argument| argument == "--no-sandbox")
}

/// All arguments; the user's come last, so that they win.
pub(super) fn all(folder: &Path, profile: &Path, is_headed: bool, of_user: Vec<String>) -> Vec<OsString> {
    let mut data = OsString::from("--user-data-dir=");
    data.push(profile);
    let own = ["--remote-debugging-pipe".to_owned(), Layout(folder).marker()];
    let when = [
        (!is_headed, "--headless=new"),
        (lacks_sandbox(&of_user), "--no-sandbox"),
        (is_shared_memory_small(), "--disable-dev-shm-usage"),
    ];
    let when = when.into_iter().filter_map(|(holds, argument)| holds.then_some(argument));
    std::iter::once(data)
        .chain(own.into_iter().map(OsString::from))
        .chain(QUIET.iter().copied().chain(when).map(OsString::from))
        .chain(of_user.into_iter().map(OsString::from))
        .chain([OsString::from("about:blank")])
        .collect()
}

fn is_shared_memory_small() -> bool {
    let Ok(shared) = nix::sys::statvfs::statvfs("/dev/shm") else {
        return cfg!(target_os = "linux");
    };
    // The widths of these numbers differ between systems.
    #[allow(clippy::unnecessary_cast)]
    let size = shared.blocks() as u64 * shared.fragment_size() as u64;
    size < SHARED_MEMORY
}
