//! The arguments of a quiet browser in the background.

use std::ffi::OsString;
use std::path::Path;

use super::folder::Layout;
use super::settings::Settings;
use super::words;
use crate::wire::{Fault, FaultCode};

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
    "--disable-features=MediaRouter,OptimizationHints,Translate",
    "--metrics-recording-only",
    "--password-store=basic",
    "--use-mock-keychain",
    // Below errors it logs what pages write to their console.
    "--log-level=2",
];

/// Below this, `/dev/shm` (64 MiB in a container) fills up and renderers crash.
const SHARED_MEMORY: u64 = 512 << 20;

/// The user's own arguments.
///
/// # Errors
/// `setting` where a quote is left open.
pub(super) fn of_user(settings: &Settings) -> Result<Vec<String>, Fault> {
    let text = settings.args.as_deref().unwrap_or_default();
    words::split(text).ok_or_else(|| {
        Fault::new(FaultCode::Setting, "GHOST_BROWSER_CHROMIUM_ARGS has an open quote or ends in a backslash")
            .hint("words are split as a shell splits them: quote those with blanks, as in '--lang=de DE'")
    })
}

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
