//! Against the real Chromium of this machine, and against scripts that stand in for a broken one.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use super::*;
use crate::cancel::Cancel;
use crate::gateway::RequestLeft;
use crate::local::gone::{Group, Remains};
use crate::local::processes;
use crate::local::release::Release;

/// A state folder with a gateway that lives in it.
struct Sandbox {
    root: tempfile::TempDir,
    settings: Settings,
}

impl Sandbox {
    fn new() -> Self {
        let root = tempfile::Builder::new().prefix("gb").tempdir_in("/tmp").unwrap();
        let settings = Settings::new(root.path(), Settings::keep_environment(std::env::vars_os()));
        Self { root, settings }
    }

    /// With a script in place of Chromium.
    fn with_script(text: &str) -> Self {
        let mut sandbox = Self::new();
        let script = sandbox.root.path().join("script");
        fs::write(&script, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        sandbox.settings.chromium = Some(script.into());
        sandbox
    }

    fn start(&self) -> Browser {
        let local = Local::new(self.settings.clone());
        let prepared = local.prepare().unwrap();
        match local.allocate(&ask(prepared)) {
            Allocation::Granted(grant) => Browser::of(grant),
            other => panic!("no browser: {other:?}"),
        }
    }

    fn refuses(&self) -> Fault {
        let local = Local::new(self.settings.clone());
        match local.allocate(&ask(None)) {
            Allocation::Refused(fault) => fault,
            other => panic!("not refused: {other:?}"),
        }
    }

    /// The browser folders that are there.
    fn folders(&self) -> Vec<OsString> {
        let names = fs::read_dir(self.root.path()).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_str().unwrap().starts_with("chromium-")).collect()
    }
}

fn ask(prepared: Option<Capability>) -> Ask {
    let deadline = soon();
    Ask {
        deadline,
        last_word: deadline,
        abandoned: Cancel::new(),
        prepared,
        left: RequestLeft::new(),
        on_retry: std::sync::Arc::new(drop),
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

/// A browser that is ended at the end of its test, whatever happens.
struct Browser {
    reader: BufReader<fs::File>,
    writer: Option<fs::File>,
    release: Release,
    notice: Option<String>,
}

impl Browser {
    fn of(grant: Grant) -> Self {
        let (Endpoint::Pipe { reader, writer }, Capability::Local(release)) = (grant.endpoint, grant.capability) else {
            panic!("not a local browser")
        };
        let writer = Some(fs::File::from(writer));
        Self { reader: BufReader::new(reader.into()), writer, release, notice: grant.notice }
    }

    fn answers(&mut self, method: &str) -> String {
        let command = format!("{{\"id\":1,\"method\":\"{method}\"}}\0");
        self.writer.as_mut().unwrap().write_all(command.as_bytes()).unwrap();
        let mut answer = Vec::new();
        self.reader.read_until(0, &mut answer).unwrap();
        String::from_utf8(answer).unwrap()
    }

    fn hang_up(&mut self) {
        self.writer = None;
    }

    /// Waits until the leader has ended, by its silence.
    fn died(&mut self) -> crate::local::Death {
        let mut rest = Vec::new();
        std::io::Read::read_to_end(&mut self.reader, &mut rest).unwrap();
        let group = Group::led_by(self.release.leader().unwrap()).unwrap();
        let remains = Remains { group: Some(&group), folder: self.release.folder() };
        assert!(remains.are_gone_by(soon()).unwrap());
        self.release.post_mortem(Duration::from_secs(10)).unwrap()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        self.hang_up();
        let _ = self.release.release_after(Duration::ZERO, soon());
        self.release.reap();
    }
}

/// Living processes that have the folder among their arguments, or are of the group.
/// The zombies of its children are for process 1 to wait for.
fn alive_of(release: &Release) -> Vec<processes::Process> {
    let folder = release.folder().to_str().unwrap();
    let mut all = processes::all().unwrap();
    all.retain(|process| {
        let arguments = processes::arguments(process.pid);
        let names_it = String::from_utf8_lossy(&arguments).contains(folder);
        !process.is_zombie && (Some(process.group) == release.leader() || names_it)
    });
    all
}

#[test]
fn a_released_browser_leaves_no_process_and_no_file() {
    let sandbox = Sandbox::new();
    let mut browser = sandbox.start();
    assert!(browser.answers("Browser.getVersion").contains("Chrome/"));
    let handlers = alive_of(&browser.release).into_iter().filter(|process| process.name.contains("crashpad"));
    assert!(handlers.count() > 0, "crash handlers are part of the promise");

    browser.hang_up();
    browser.release.release(soon()).unwrap();

    let leader = browser.release.leader().unwrap();
    assert_eq!(alive_of(&browser.release), []);
    assert!(processes::one(leader).unwrap().is_zombie, "its number is free too early");
    browser.release.reap();
    assert!(processes::one(leader).is_err());
    assert!(sandbox.folders().is_empty());
}

#[test]
fn a_browser_that_nobody_asked_to_close_is_ended_in_time() {
    let sandbox = Sandbox::new();
    let browser = sandbox.start();

    browser.release.release_after(Duration::ZERO, soon()).unwrap();

    assert_eq!(alive_of(&browser.release), []);
}

#[test]
fn a_browser_is_found_by_its_folder_when_its_number_was_never_told() {
    let sandbox = Sandbox::new();
    let mut browser = sandbox.start();
    assert!(browser.answers("Browser.getVersion").contains("Chrome/"));

    let prepared = Release::prepared(browser.release.folder().to_owned());
    prepared.release_after(Duration::ZERO, soon()).unwrap();

    assert_eq!(alive_of(&browser.release), []);
    assert!(sandbox.folders().is_empty());
}

#[test]
fn what_ignores_every_word_is_killed() {
    let sandbox =
        Sandbox::with_script("trap '' TERM; (trap '' TERM; while :; do sleep 100; done) & while :; do sleep 100; done");
    let browser = sandbox.start();

    browser.release.release_after(Duration::ZERO, soon()).unwrap();

    assert_eq!(alive_of(&browser.release), []);
}

#[test]
fn a_capability_survives_the_way_to_the_keeper() {
    let sandbox = Sandbox::with_script("exec sleep 100");
    let browser = sandbox.start();

    let text = serde_json::to_string(&browser.release).unwrap();
    let crossed: Release = serde_json::from_str(&text).unwrap();

    crossed.release_after(Duration::ZERO, soon()).unwrap();
    assert!(sandbox.folders().is_empty());
}

#[test]
fn chromium_gets_its_two_pipes_and_no_other_descriptor() {
    let sandbox = Sandbox::with_script("ls -l /proc/$$/fd >&4; exec 4>&-; exec sleep 100");
    // As if some caller's pipe had been leaked to us without close-on-exec.
    let leaked = nix::unistd::dup(std::io::stderr()).unwrap();
    let mut browser = sandbox.start();

    let mut listing = String::new();
    std::io::Read::read_to_string(&mut browser.reader, &mut listing).unwrap();

    drop(leaked);
    let mut numbers: Vec<&str> =
        listing.lines().skip(1).filter_map(|line| line.split(" -> ").next()?.rsplit(' ').next()).collect();
    // The shell keeps its script open, at 10 or above.
    numbers.retain(|number| number.len() == 1 && number.bytes().all(|digit| digit.is_ascii_digit()));
    assert_eq!(numbers, ["0", "1", "2", "3", "4"], "{listing}");
}

#[test]
fn chromium_sees_no_variable_but_those_it_needs_and_folders_of_its_own() {
    let mut sandbox = Sandbox::with_script("env >&4; exec 4>&-; exec sleep 100");
    sandbox.settings.environment.push(("DISPLAY".into(), ":7".into()));
    let mut browser = sandbox.start();

    let mut listing = String::new();
    std::io::Read::read_to_string(&mut browser.reader, &mut listing).unwrap();

    let folder = browser.release.folder().to_str().unwrap();
    for own in ["HOME", "TMPDIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"] {
        assert!(listing.contains(&format!("{own}={folder}/")), "{own}: {listing}");
    }
    assert!(!listing.contains("CARGO") && !listing.contains("DISPLAY"), "{listing}");
}

#[test]
fn a_profile_that_another_chromium_locked_is_told() {
    let sandbox = Sandbox::with_script("echo 'last words' >&2; exit 21");
    let mut browser = sandbox.start();

    let death = browser.died();

    assert_eq!(death.to_string(), "chromium ended with exit code 21: its profile is in use\n  last words");
    assert!(death.hint().unwrap().contains("GHOST_BROWSER_PROFILE"));
}

#[test]
fn a_chromium_that_crashes_is_told_with_its_signal() {
    let sandbox = Sandbox::with_script("kill -SEGV $$");
    let mut browser = sandbox.start();

    assert_eq!(browser.died().to_string(), "chromium was ended by SIGSEGV");
}

#[test]
fn a_running_browser_has_no_post_mortem() {
    let sandbox = Sandbox::with_script("exec sleep 100");

    assert_eq!(sandbox.start().release.post_mortem(Duration::ZERO), None);
}

#[test]
fn a_kept_profile_stays_and_is_free_after_the_release() {
    let mut sandbox = Sandbox::new();
    let kept = sandbox.root.path().join("kept");
    sandbox.settings.profile = Some(kept.clone().into());
    let mut browser = sandbox.start();
    assert!(browser.answers("Browser.getVersion").contains("Chrome/"));

    assert_eq!(sandbox.refuses().code, FaultCode::NoBrowser);
    drop(browser);

    assert!(kept.join("Default").is_dir());
    assert!(sandbox.folders().is_empty());
    drop(sandbox.start());
}

#[test]
fn a_program_that_cannot_be_started_leaves_no_folder() {
    let sandbox = Sandbox::with_script("");
    let script = sandbox.root.path().join("script");
    fs::write(&script, "#!/nowhere/interpreter\n").unwrap();

    let fault = sandbox.refuses();

    assert_eq!(fault.code, FaultCode::NoBrowser);
    assert!(fault.message.contains(script.to_str().unwrap()), "{fault}");
    assert!(sandbox.folders().is_empty());
}

#[test]
fn preparing_makes_nothing_and_finds_what_is_wrong() {
    let mut sandbox = Sandbox::with_script("");
    let local = Local::new(sandbox.settings.clone());
    assert!(local.prepare().unwrap().is_some());
    assert!(sandbox.folders().is_empty());

    sandbox.settings.headed = true;
    sandbox.settings.environment.clear();
    let fault = Local::new(sandbox.settings.clone()).prepare().unwrap_err();
    assert!(fault.message.contains("DISPLAY"), "{fault}");
}

#[test]
fn the_missing_sandbox_is_told_once_and_only_to_root() {
    let sandbox = Sandbox::with_script("exec sleep 100");
    let local = Local::new(sandbox.settings.clone());
    let notices: Vec<_> = (0..2)
        .map(|_| match local.allocate(&ask(None)) {
            Allocation::Granted(grant) => Browser::of(grant).notice.take(),
            other => panic!("no browser: {other:?}"),
        })
        .collect();

    let is_root = nix::unistd::geteuid().is_root();
    assert_eq!(notices, [is_root.then(|| NO_SANDBOX.to_owned()), None]);
}
