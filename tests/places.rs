//! Whose session a call is, and where it lies: the environment decides nothing, and a folder that is a trap is refused.

mod support;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use ghost_browser::config::Identity;
use ghost_browser::places::Places;
use ghost_browser::workspace::Session;
use support::{FakeGateway, Running, Said, Sandbox, TOKEN};

/// Runs it from another folder.
fn from(folder: &Path, mut command: Command) -> Said {
    command.current_dir(folder);
    Running::start(command, Vec::new()).wait()
}

fn connected(gateway: &FakeGateway) -> String {
    format!("connected {}", gateway.url().trim_start_matches("http://"))
}

#[test]
fn neither_tmpdir_nor_home_nor_the_login_decides_who_finds_the_daemon() {
    let gateway = FakeGateway::start();
    let mut sandbox = Sandbox::of(&gateway);
    sandbox.set("GHOST_BROWSER_IDLE_SECONDS", "30");
    // The folders of the system: this test has a session of its own there, since the gateway's port is in its key.
    let plain = |args: &[&str]| {
        let mut command = sandbox.command(args);
        command.env_remove("GHOST_BROWSER_RUNTIME_DIR");
        command
    };
    let mut first = plain(&["run", "-e", "1"]);
    first.env("TMPDIR", "/nowhere").env("XDG_RUNTIME_DIR", "/nowhere");
    assert_eq!(Running::start(first, Vec::new()).wait().quietly(), "1");

    let mut bare = plain(&["status"]);
    bare.env_remove("TMPDIR").env_remove("HOME").env_remove("XDG_RUNTIME_DIR").env_remove("PATH");
    let found = Running::start(bare, Vec::new()).wait();
    assert_eq!(found.quietly().lines().next(), Some(&*connected(&gateway)));
    let mut other = plain(&["stop"]);
    other.env("TMPDIR", sandbox.work()).env("HOME", "/").env("USER", "somebody");
    assert_eq!(Running::start(other, Vec::new()).wait().quietly(), "released browser");

    gateway.assert_nothing_owed();
    assert_eq!(gateway.allocations(), 1);
    remove_from_system_folders(&gateway, &sandbox);
}

/// What a session leaves for the next one: here there is none.
fn remove_from_system_folders(gateway: &FakeGateway, sandbox: &Sandbox) {
    let url = gateway.url();
    let identity = Identity::from_env(&|name: &str| (name == "GHOST_GATEWAY_URL").then(|| OsString::from(&url)));
    let key = Session::of(&identity, &sandbox.work()).key;
    for folder in Places::new(None).find().folders {
        let entries = fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
        let ours = entries.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with(key.as_str()));
        ours.for_each(|path| fs::remove_file(path).unwrap());
    }
}

#[test]
fn a_subfolder_and_a_symbolic_link_lead_to_the_same_session() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    let deep = sandbox.work().join("a/b");
    fs::create_dir_all(&deep).unwrap();
    fs::create_dir(sandbox.work().join(".ghost")).unwrap();
    let link = sandbox.root().join("link");
    symlink(sandbox.work().join("a"), &link).unwrap();

    assert_eq!(from(&deep, sandbox.command(["run", "-e", "1"])).quietly(), "1");

    for folder in [sandbox.work(), link.clone(), link.join("b")] {
        let mut status = sandbox.command(["status"]);
        // A shell says here what it thinks the folder is called.
        status.env("PWD", &folder);
        let said = from(&folder, status);
        assert_eq!(said.quietly().lines().next(), Some(&*connected(&gateway)), "{}", folder.display());
    }
    assert_eq!(from(&link, sandbox.command(["stop"])).quietly(), "released browser");
    gateway.assert_nothing_owed();
}

#[test]
fn without_a_workspace_folder_each_folder_is_its_own() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    let inner = sandbox.work().join("inner");
    fs::create_dir(&inner).unwrap();
    sandbox.script("1").quietly();

    assert_eq!(from(&inner, sandbox.command(["status"])).quietly(), "stopped");

    sandbox.stop();
    gateway.assert_nothing_owed();
}

#[test]
fn a_workspace_folder_that_others_could_have_planted_is_none() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    let inner = sandbox.work().join("inner");
    fs::create_dir(&inner).unwrap();
    let ghost = sandbox.work().join(".ghost");
    fs::create_dir(&ghost).unwrap();
    fs::set_permissions(&ghost, fs::Permissions::from_mode(0o777)).unwrap();
    sandbox.script("1").quietly();

    assert_eq!(from(&inner, sandbox.command(["status"])).quietly(), "stopped");

    sandbox.stop();
    gateway.assert_nothing_owed();
}

#[test]
fn folders_of_any_name_and_length_hold_a_session() {
    let long = |length: usize| OsString::from("l".repeat(length));
    let names: Vec<OsString> = vec![
        "with spaces and 'quotes\"".into(),
        "with\nnewlines\n".into(),
        OsStr::from_bytes(b"not \xff utf-8 \xfe").to_owned(),
        "ünïcode-🦊".into(),
        "-dash".into(),
        long(60),
        long(108),
        long(200),
    ];
    for name in names {
        let gateway = FakeGateway::start();
        let mut sandbox = Sandbox::of(&gateway);
        let work = sandbox.work().join(&name);
        fs::create_dir(&work).unwrap();
        let state = sandbox.state();
        // The state folder, too.
        sandbox.set("GHOST_BROWSER_RUNTIME_DIR", state.join(&name));

        assert_eq!(from(&work, sandbox.command(["run", "-e", "1"])).quietly(), "1", "{name:?}");

        let status = from(&work, sandbox.command(["status"]));
        assert_eq!(status.quietly().lines().next(), Some(&*connected(&gateway)), "{name:?}");
        assert!(from(&work, sandbox.command(["status", "--all"])).quietly().starts_with("connected"), "{name:?}");
        assert_eq!(from(&work, sandbox.command(["stop"])).quietly(), "released browser", "{name:?}");
        gateway.assert_nothing_owed();
    }
}

#[test]
fn a_long_state_folder_holds_a_real_browser() {
    let mut sandbox = Sandbox::local();
    let state = sandbox.state().join("l".repeat(150));
    sandbox.set("GHOST_BROWSER_RUNTIME_DIR", &state);

    assert_eq!(sandbox.script("js(\"1+1\")").value(), "2");

    assert_eq!(sandbox.stop().quietly(), "released browser");
    sandbox.assert_nothing_left();
}

#[test]
fn another_token_may_not_run_but_may_look_and_stop() {
    let gateway = FakeGateway::start();
    gateway.wants_token(TOKEN);
    let mut sandbox = Sandbox::of(&gateway);
    sandbox.set("APIFY_TOKEN", TOKEN);
    sandbox.script("1").quietly();

    for token in [Some("another-token-9876543210"), None] {
        sandbox.unset("APIFY_TOKEN");
        if let Some(token) = token {
            sandbox.set("APIFY_TOKEN", token);
        }
        let refused = sandbox.script("2");
        assert!(refused.fails_with(6).contains("another credential owns this session"), "{refused:#?}");
        assert_eq!(sandbox.status()["state"], "connected");
    }

    assert_eq!(sandbox.stop().quietly(), "released browser");
    gateway.assert_nothing_owed();
    assert_eq!((gateway.gets(), gateway.cdp().count("Runtime.evaluate")), (1, 0));
}

#[test]
fn the_token_in_the_base_urls_query_is_the_one_that_counts() {
    let gateway = FakeGateway::start();
    let mut sandbox = Sandbox::of(&gateway);
    sandbox.set("GHOST_GATEWAY_URL", format!("{}/?token={TOKEN}", gateway.url()));
    sandbox.set("APIFY_TOKEN", "unused-token-0123456789");
    sandbox.script("1").quietly();
    sandbox.set("APIFY_TOKEN", "another-unused-token-9876");
    assert_eq!(sandbox.script("2").quietly(), "2");

    sandbox.set("GHOST_GATEWAY_URL", format!("{}/?token=other-{TOKEN}", gateway.url()));

    sandbox.script("3").fails_with(6);
    assert_eq!(sandbox.stop().quietly(), "released browser");
    gateway.assert_nothing_owed();
}

#[test]
fn a_local_browser_belongs_to_no_token() {
    let mut sandbox = Sandbox::local();
    sandbox.set("APIFY_TOKEN", TOKEN);
    sandbox.script("1").value();

    sandbox.unset("APIFY_TOKEN");

    assert_eq!(sandbox.script("2").value(), "2");
    sandbox.stop();
}

/// What a state folder is, down to its inode: what must not change.
fn look(path: &Path) -> Option<(u64, u32, u32, Vec<PathBuf>)> {
    let data = fs::symlink_metadata(path).ok()?;
    let inside = fs::read_dir(path).map(|entries| entries.map(|entry| entry.unwrap().path()).collect());
    Some((data.ino(), data.mode(), data.uid(), inside.unwrap_or_default()))
}

/// Each trap, made at `path`, and a word of its refusal.
type Trap = (&'static str, fn(&Path));

fn traps() -> Vec<Trap> {
    let mut traps: Vec<Trap> = vec![
        ("is a symbolic link", |path| {
            let target = path.with_extension("target");
            fs::create_dir(&target).unwrap();
            fs::set_permissions(&target, fs::Permissions::from_mode(0o700)).unwrap();
            symlink(target, path).unwrap();
        }),
        ("is a symbolic link", |path| symlink("/nowhere", path).unwrap()),
        ("is not a folder", |path| fs::write(path, "mine").unwrap()),
        ("has mode 0777", |path| make(path, 0o777)),
        ("has mode 0750", |path| make(path, 0o750)),
        ("has mode 0500", |path| make(path, 0o500)),
    ];
    if nix::unistd::geteuid().is_root() {
        traps.push(("belongs to user 12345", |path| {
            make(path, 0o700);
            std::os::unix::fs::chown(path, Some(12345), Some(12345)).unwrap();
        }));
    }
    traps
}

fn make(path: &Path, mode: u32) {
    fs::create_dir(path).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_state_folder_that_is_a_trap_is_refused_and_nothing_changed() {
    for (reason, set) in traps() {
        let gateway = FakeGateway::start();
        let mut sandbox = Sandbox::of(&gateway);
        let state = sandbox.root().join("trap");
        set(&state);
        let before = look(&state);
        sandbox.set("GHOST_BROWSER_RUNTIME_DIR", &state);

        let said = sandbox.script("1");

        let error = said.fails_with(3);
        assert!(error.contains(reason) && error.contains("hint: "), "{reason}: {said:#?}");
        assert_eq!(gateway.requests(), 0, "{reason}");
        let status = sandbox.ghost(["status"]);
        assert_eq!((status.code, status.stdout.as_str()), (Some(0), "stopped\n"), "{reason}: {status:#?}");
        assert!(status.stderr.contains(reason), "a state that cannot be looked at is told: {status:#?}");
        assert!(sandbox.stop().fails_with(3).contains(reason), "{reason}");
        assert_eq!(sandbox.ghost(["skill"]).code, Some(0), "{reason}");
        assert_eq!(sandbox.ghost(["--version"]).code, Some(0), "{reason}");
        assert_eq!(look(&state), before, "{reason}: nothing was changed");
        let own = sandbox.state();
        sandbox.set("GHOST_BROWSER_RUNTIME_DIR", own);
    }
}

#[test]
fn a_state_folder_that_cannot_be_made_is_refused() {
    for (parent, word) in [("/proc/nowhere/s", "/proc/nowhere"), ("relative/s", "absolute")] {
        let gateway = FakeGateway::start();
        let mut sandbox = Sandbox::of(&gateway);
        sandbox.set("GHOST_BROWSER_RUNTIME_DIR", parent);

        let said = sandbox.script("1");

        assert!(matches!(said.code, Some(2 | 3)), "{said:#?}");
        assert!(said.stderr.contains(word) && said.stderr.contains("hint: "), "{said:#?}");
        assert_eq!(gateway.requests(), 0);
        assert_eq!(sandbox.ghost(["--version"]).code, Some(0));
    }
}

#[test]
fn what_lies_in_the_state_folder_is_for_its_owners_eyes_only() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    sandbox.script("1").quietly();

    let entries: Vec<_> = fs::read_dir(sandbox.state()).unwrap().map(|entry| entry.unwrap()).collect();

    assert_eq!(fs::metadata(sandbox.state()).unwrap().mode() & 0o777, 0o700);
    assert!(!entries.is_empty());
    for entry in entries {
        assert_eq!(entry.metadata().unwrap().mode() & 0o077, 0, "{}", entry.path().display());
    }
    sandbox.stop();
    gateway.assert_nothing_owed();
}

#[test]
fn files_that_are_traps_inside_the_state_folder_are_not_followed() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    sandbox.script_with(["--stop"], "1").quietly();
    let victim = sandbox.file("victim", "precious");
    for entry in fs::read_dir(sandbox.state()).unwrap() {
        let path = entry.unwrap().path();
        fs::remove_file(&path).unwrap();
        symlink(&victim, &path).unwrap();
    }

    let said = sandbox.script("1");

    assert!(matches!(said.code, Some(0 | 3)), "{said:#?}");
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    sandbox.stop();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    gateway.assert_nothing_owed();
    for entry in fs::read_dir(sandbox.state()).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
}
