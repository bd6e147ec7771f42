//! The keeper as a process of its own: what it does when the daemon is gone, and what it does not do before.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use ghost_browser::cancel::Cancel;
use ghost_browser::daemon::keeper::{ARGUMENT, Keeper};
use ghost_browser::gateway::api::{Allocation, Ask, Capability, Endpoint, Gateway, Grant, RequestLeft};
use ghost_browser::local::{Local, Release, Settings};
use ghost_browser::wire::write_frame;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// What a keeper may take to pay for a local browser.
const PAID_WITHIN: Duration = Duration::from_secs(5);

/// A state folder with a locked note, a keeper that shares the lock, and a gateway.
struct Sandbox {
    root: tempfile::TempDir,
    note: File,
    local: Local,
}

impl Sandbox {
    fn new() -> Self {
        let root = tempfile::Builder::new().prefix("gk").tempdir_in("/tmp").unwrap();
        let note = File::create(root.path().join("note")).unwrap();
        lock(&note).unwrap();
        let local = Local::new(Settings::new(root.path(), Settings::keep_environment(std::env::vars_os())));
        Self { root, note, local }
    }

    fn note_path(&self) -> PathBuf {
        self.root.path().join("note")
    }

    fn keeper(&self) -> Keeper {
        let program = Path::new(env!("CARGO_BIN_EXE_ghost-browser"));
        Keeper::start_program(program, self.note.as_fd(), &self.note_path()).unwrap()
    }

    fn prepared(&self) -> Capability {
        self.local.prepare().unwrap().unwrap()
    }

    fn start(&self, prepared: Capability) -> Browser {
        let deadline = Instant::now() + Duration::from_secs(20);
        let (abandoned, left) = (Cancel::new(), RequestLeft::new());
        let ask = Ask {
            deadline,
            last_word: deadline,
            abandoned,
            prepared: Some(prepared),
            left,
            on_retry: std::sync::Arc::new(drop),
        };
        let Allocation::Granted(Grant { endpoint, capability, .. }) = self.local.allocate(&ask) else {
            panic!("no browser")
        };
        Browser { endpoint: Some(endpoint), capability }
    }
}

/// A browser that is ended at the end of its test, whatever happens.
struct Browser {
    endpoint: Option<Endpoint>,
    capability: Capability,
}

impl Browser {
    fn release(&self) -> &Release {
        let Capability::Local(release) = &self.capability else { panic!("not local") };
        release
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        self.endpoint = None;
        let _ = self.capability.release(false, Instant::now() + Duration::from_secs(10));
        self.capability.settle();
    }
}

/// A promise that the keeper of `pid` has ended: its number is watched, since it is dropped with its handle.
fn ends_within(pid: u32, longest: Duration) -> bool {
    // SAFETY: a new descriptor or -1.
    let opened = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if opened < 0 {
        return true;
    }
    // SAFETY: just made, and ours alone.
    let process = unsafe { OwnedFd::from_raw_fd(opened as i32) };
    let mut ended = [PollFd::new(process.as_fd(), PollFlags::POLLIN)];
    poll(&mut ended, PollTimeout::try_from(longest).unwrap()).unwrap() == 1
}

fn is_locked(note: &Path) -> bool {
    lock(&File::open(note).unwrap()) == Err(Errno::EWOULDBLOCK)
}

/// Locks it until every copy of the descriptor is closed; `nix::fcntl::Flock` would unlock the keeper's copy too.
fn lock(note: &File) -> Result<(), Errno> {
    // SAFETY: a living descriptor and a constant.
    Errno::result(unsafe { libc::flock(note.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) }).map(drop)
}

fn is_alive(leader: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{leader}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
}

#[test]
fn a_daemon_that_is_gone_has_its_browser_paid_for() {
    let sandbox = Sandbox::new();
    let mut keeper = sandbox.keeper();
    let prepared = sandbox.prepared();
    keeper.hold(&prepared).unwrap();
    let browser = sandbox.start(prepared);
    keeper.hold(&browser.capability).unwrap();
    let pid = keeper.pid();

    // The pipe stays open here: the keeper does not count on its end.
    drop(keeper);

    assert!(ends_within(pid, PAID_WITHIN));
    assert!(!is_alive(browser.release().leader().unwrap()));
    assert!(!browser.release().folder().exists());
    assert!(!sandbox.note_path().exists());
}

#[test]
fn a_daemon_that_is_gone_before_it_told_the_number_is_paid_for_too() {
    let sandbox = Sandbox::new();
    let mut keeper = sandbox.keeper();
    let prepared = sandbox.prepared();
    keeper.hold(&prepared).unwrap();
    let browser = sandbox.start(prepared);
    let pid = keeper.pid();

    drop(keeper);

    assert!(ends_within(pid, PAID_WITHIN));
    assert!(!is_alive(browser.release().leader().unwrap()));
    assert!(!browser.release().folder().exists());
}

#[test]
fn the_word_released_ends_it_and_touches_nothing() {
    let sandbox = Sandbox::new();
    let mut keeper = sandbox.keeper();
    let browser = sandbox.start(sandbox.prepared());
    keeper.hold(&browser.capability).unwrap();
    let pid = keeper.pid();
    let (tell, told) = mpsc::channel();
    keeper.watch(move || tell.send(()).unwrap()).unwrap();

    keeper.released();

    assert!(!Path::new(&format!("/proc/{pid}")).exists(), "it was waited for");
    assert!(is_alive(browser.release().leader().unwrap()));
    assert!(browser.release().folder().exists());
    assert!(sandbox.note_path().exists());
    assert!(told.recv().is_err(), "no death is told of one that was dismissed");
}

#[test]
fn the_signals_of_a_terminal_and_a_service_leave_it_alone() {
    let sandbox = Sandbox::new();
    let mut keeper = sandbox.keeper();
    let prepared = sandbox.prepared();
    keeper.hold(&prepared).unwrap();

    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        kill(Pid::from_raw(keeper.pid() as i32), signal).unwrap();
    }

    keeper.hold(&prepared).unwrap();
    keeper.released();
}

#[test]
fn its_death_is_told() {
    let sandbox = Sandbox::new();
    let mut keeper = sandbox.keeper();
    keeper.hold(&sandbox.prepared()).unwrap();
    let (tell, told) = mpsc::channel();
    keeper.watch(move || tell.send(()).unwrap()).unwrap();

    kill(Pid::from_raw(keeper.pid() as i32), Signal::SIGKILL).unwrap();

    told.recv_timeout(Duration::from_secs(5)).unwrap();
    assert!(keeper.hold(&sandbox.prepared()).is_err());
}

#[test]
fn the_note_stays_locked_while_it_owes_and_no_longer() {
    let sandbox = Sandbox::new();
    let note = sandbox.note_path();
    let mut keeper = sandbox.keeper();
    keeper.hold(&sandbox.prepared()).unwrap();

    drop(sandbox.note);
    assert!(is_locked(&note));
    keeper.released();
    assert!(!is_locked(&note));
    drop(sandbox.root);
}

#[test]
fn it_is_small_and_has_nothing_of_its_starter() {
    let sandbox = Sandbox::new();
    // As if some caller's pipe had been leaked to us without close-on-exec.
    let leaked = nix::unistd::dup(std::io::stderr()).unwrap();
    let mut keeper = sandbox.keeper();
    keeper.hold(&sandbox.prepared()).unwrap();

    let process = format!("/proc/{}", keeper.pid());
    let status = fs::read_to_string(format!("{process}/status")).unwrap();
    // What it has of its own: how much of the program's file is in memory is the build's and the kernel's affair.
    let own = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    let own_kib: u64 = own.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(own_kib <= 2 << 10, "{own_kib} KiB");

    // The superuser may look where others of the same user may not.
    if let Ok(open) = fs::read_dir(format!("{process}/fd")) {
        let targets: Vec<_> = open.map(|entry| fs::read_link(entry.unwrap().path()).unwrap()).collect();
        let sockets = targets.iter().filter(|target| target.to_str().unwrap().starts_with("socket:"));
        assert_eq!(sockets.count(), 2, "the daemon's end, twice: {targets:?}");
        assert_eq!(targets.len(), 4, "and the note, and /dev/null: {targets:?}");
        assert_eq!(fs::read(format!("{process}/environ")).unwrap(), b"");
    }
    drop(leaked);
    keeper.released();
}

#[test]
fn others_of_the_same_user_cannot_look_into_it() {
    let sandbox = Sandbox::new();
    let program = sandbox.root.path().join("keeper");
    fs::copy(env!("CARGO_BIN_EXE_ghost-browser"), &program).unwrap();
    let mode = |bits| fs::Permissions::from_mode(bits);
    fs::set_permissions(sandbox.root.path(), mode(0o755)).unwrap();
    fs::set_permissions(&program, mode(0o755)).unwrap();
    let (mut daemon, theirs) = UnixStream::pair().unwrap();
    let mut command = Command::new(&program);
    command.arg(ARGUMENT).stdin(OwnedFd::from(theirs)).stdout(Stdio::null());
    // The superuser's own processes show no difference.
    if nix::unistd::geteuid().is_root() {
        command.uid(65534);
    }
    let mut keeper = command.spawn().unwrap();
    let word = serde_json::json!({"Hold": {"capability": sandbox.prepared(), "note": {"Unix": []}}});
    write_frame(&mut daemon, &word).unwrap();
    daemon.read_exact(&mut [0]).unwrap();

    // The kernel gives the files of a process that refuses to be read to the superuser.
    let owner = fs::metadata(format!("/proc/{}/environ", keeper.id())).unwrap().uid();

    write_frame(&mut daemon, &serde_json::json!("Released")).unwrap();
    assert!(keeper.wait().unwrap().success());
    assert_eq!(owner, 0);
}
