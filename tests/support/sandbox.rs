//! A place to run the built binary in: a home, a workspace, a state folder and an environment of its own.
//!
//! When it ends it stops every session in it and looks for what was left: a process, a socket, a note, a profile
//! folder, a file in the home or the temporary folder. What is left fails the test; then it is cleared away.

use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::gateway::FakeGateway;
use super::processes::{self, Process};

/// How long one run of the binary may take before the test calls it hung.
const HUNG: Duration = Duration::from_secs(60);
/// How long what has been stopped may take to disappear.
const GONE: Duration = Duration::from_secs(5);
/// Between two looks at a fact that tells nobody when it changes.
const LOOK: Duration = Duration::from_millis(10);

/// The folder and what was started in it.
pub struct Sandbox {
    root: PathBuf,
    env: Vec<(OsString, OsString)>,
    program: PathBuf,
    /// Whom everything runs as; `None`: whom the test runs as.
    user: Option<u32>,
    /// Daemons and keepers that `status` named: known even where `/proc` says little of them.
    met: RefCell<Vec<Process>>,
}

impl Sandbox {
    /// With no gateway set: what needs one must not be called.
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::SeqCst);
        // Literally /tmp, and few letters: neither a socket's path nor Chromium's folder beside it has much room.
        let root = PathBuf::from(format!("/tmp/gb{}-{number}", std::process::id()));
        for folder in ["", "home", "work", "tmp"] {
            let made = DirBuilder::new().mode(0o700).create(root.join(folder));
            made.unwrap_or_else(|error| panic!("make {}: {error}", root.join(folder).display()));
        }
        let root = root.canonicalize().expect("the folder was just made");
        let program = PathBuf::from(env!("CARGO_BIN_EXE_ghost-browser"));
        let mut sandbox = Self { root, env: Vec::new(), program, user: None, met: RefCell::default() };
        sandbox.set("PATH", std::env::var_os("PATH").unwrap_or_default());
        sandbox.set("HOME", sandbox.root.join("home"));
        sandbox.set("TMPDIR", sandbox.root.join("tmp"));
        sandbox.set("GHOST_BROWSER_RUNTIME_DIR", sandbox.state());
        sandbox
    }

    /// Whose browsers come from `gateway`.
    pub fn of(gateway: &FakeGateway) -> Self {
        let mut sandbox = Self::new();
        sandbox.set("GHOST_GATEWAY_URL", gateway.url());
        sandbox
    }

    /// Whose browser is the Chromium of this machine.
    pub fn local() -> Self {
        let mut sandbox = Self::new();
        sandbox.set("GHOST_GATEWAY_URL", "local");
        if let Some(chromium) = std::env::var_os("GHOST_BROWSER_CHROMIUM") {
            sandbox.set("GHOST_BROWSER_CHROMIUM", chromium);
        }
        sandbox
    }

    /// Has everything run as nobody in particular where the test is the superuser, who may look into every process.
    pub fn without_privileges(mut self) -> Self {
        const NOBODY: u32 = 65534;
        if nix::unistd::geteuid().is_root() {
            // Nobody can get to a build folder below a home. A link, since a copy might still be open for writing.
            let program = self.root.join("ghost-browser");
            let linked =
                fs::hard_link(&self.program, &program).or_else(|_| fs::copy(&self.program, &program).map(drop));
            linked.unwrap_or_else(|error| panic!("put the binary in {}: {error}", program.display()));
            for folder in ["", "home", "work", "tmp"] {
                std::os::unix::fs::chown(self.root.join(folder), Some(NOBODY), Some(NOBODY)).expect("give it away");
            }
            (self.program, self.user) = (program, Some(NOBODY));
        }
        self
    }

    /// Sets a variable for every run from now on.
    pub fn set(&mut self, name: &str, value: impl AsRef<OsStr>) -> &mut Self {
        self.unset(name);
        self.env.push((name.into(), value.as_ref().to_owned()));
        self
    }

    pub fn unset(&mut self, name: &str) -> &mut Self {
        self.env.retain(|(key, _)| key != name);
        self
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder that runs start in.
    pub fn work(&self) -> PathBuf {
        self.root.join("work")
    }

    /// The state folder. It is the binary that makes it.
    pub fn state(&self) -> PathBuf {
        self.root.join("s")
    }

    /// Writes a file of the workspace and gives its path.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.work().join(name);
        fs::create_dir_all(path.parent().expect("a file has a folder")).expect("make the file's folder");
        fs::write(&path, content).expect("write a file of the workspace");
        path
    }

    /// The command, ready to be changed and run.
    pub fn command<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Command {
        let mut command = self.prepare(Command::new(&self.program));
        command.args(args);
        command
    }

    fn prepare(&self, mut command: Command) -> Command {
        command.env_clear().envs(self.env.iter().cloned()).current_dir(self.work());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        command
    }

    /// Runs the binary with nothing on its standard input.
    #[track_caller]
    pub fn ghost<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Said {
        self.spawn(args, "").wait()
    }

    /// Runs a script from standard input.
    #[track_caller]
    pub fn script(&self, text: impl AsRef<[u8]>) -> Said {
        self.script_with([] as [&str; 0], text)
    }

    /// Runs a script from standard input, with arguments.
    #[track_caller]
    pub fn script_with<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>, text: impl AsRef<[u8]>) -> Said {
        self.spawn(args, text).wait()
    }

    /// Starts a run and leaves it running.
    #[track_caller]
    pub fn spawn<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>, stdin: impl AsRef<[u8]>) -> Running {
        Running::start(self.command(args), stdin.as_ref().to_vec())
    }

    /// Runs a line of shell in the sandbox, with the binary on its `PATH`.
    #[track_caller]
    pub fn shell(&self, line: &str) -> Said {
        let binary = &self.program;
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = binary.parent().into_iter().map(Path::to_owned).chain(std::env::split_paths(&path));
        let mut shell = self.prepare(Command::new("sh"));
        shell.args(["-c", line]);
        shell.env("PATH", std::env::join_paths(folders).expect("a PATH"));
        Running::start(shell, Vec::new()).wait()
    }

    /// `status --json`. The processes it names are remembered for the search for leaks.
    #[track_caller]
    pub fn status(&self) -> Value {
        let said = self.ghost(["status", "--json"]);
        let status: Value =
            serde_json::from_str(&said.stdout).unwrap_or_else(|error| panic!("status --json: {error}\n{said:#?}"));
        for key in ["pid", "keeper_pid"] {
            let pid = status[key].as_i64().and_then(|pid| pid.try_into().ok());
            self.met.borrow_mut().extend(pid.and_then(Process::find));
        }
        status
    }

    /// Waits until `status` says what `holds` wants, and gives it.
    #[track_caller]
    pub fn wait_for_status(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        wait_until(super::PATIENCE, || {
            last = self.status();
            holds(&last)
        })
        .unwrap_or_else(|()| panic!("waited in vain for {what}: {last:#}"));
        last
    }

    /// Waits until a daemon's log has this.
    #[track_caller]
    pub fn wait_for_log(&self, text: &str) {
        let is_log = |path: &Path| path.extension().is_some_and(|end| end == "log");
        let has = |path: PathBuf| fs::read_to_string(path).is_ok_and(|log| log.contains(text));
        let found = wait_until(super::PATIENCE, || {
            let files = fs::read_dir(self.state()).into_iter().flatten().flatten();
            files.map(|file| file.path()).filter(|path| is_log(path)).any(has)
        });
        assert!(found.is_ok(), "waited in vain for {text:?} in a log");
    }

    /// Waits until the daemon holds no more than this.
    #[track_caller]
    pub fn wait_for_memory(&self, daemon: &Process, most_mib: u64) {
        let settled = wait_until(super::PATIENCE, || daemon.resident_mib() <= most_mib);
        assert!(settled.is_ok(), "the daemon holds {} MiB, not {most_mib}", daemon.resident_mib());
    }

    /// The daemon, if there is one.
    #[track_caller]
    pub fn daemon(&self) -> Option<Process> {
        self.process("pid")
    }

    /// The keeper, if there is one.
    #[track_caller]
    pub fn keeper(&self) -> Option<Process> {
        self.process("keeper_pid")
    }

    #[track_caller]
    fn process(&self, key: &str) -> Option<Process> {
        Process::find(self.status()[key].as_i64()?.try_into().ok()?)
    }

    #[track_caller]
    pub fn stop(&self) -> Said {
        self.ghost(["stop"])
    }

    /// Every process that has to do with this sandbox now.
    pub fn processes(&self) -> Vec<Process> {
        let mut found = processes::belonging_to(&self.root);
        let met = self.met.borrow();
        let more = met.iter().filter(|known| known.is_alive() && !found.iter().any(|new| new.pid == known.pid));
        let more: Vec<_> = more.cloned().collect();
        found.extend(more);
        found
    }

    /// Chromium processes of this sandbox.
    pub fn chromiums(&self) -> Vec<Process> {
        let chromium = |process: &Process| process.command.contains("chrom") || process.command.contains("--type=");
        self.processes().into_iter().filter(chromium).collect()
    }

    /// Sockets, notes, profiles and other files that no ended session leaves.
    pub fn litter(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for folder in [self.state(), self.root.join("tmp"), self.root.join("home")] {
            search(&folder, &mut found);
        }
        found
    }

    /// Waits until no process and no litter is left, and fails when some stays. Call it after `stop`.
    #[track_caller]
    pub fn assert_nothing_left(&self) {
        let clean = || self.processes().is_empty() && self.litter().is_empty();
        if wait_until(GONE, clean).is_err() {
            panic!("left behind: {:#?} {:#?}", self.processes(), self.litter());
        }
    }

    /// Fails when anything has been created on disk by the runs so far.
    #[track_caller]
    pub fn assert_untouched(&self) {
        let mut found = Vec::new();
        for folder in ["home", "work", "tmp"] {
            let inside = fs::read_dir(self.root.join(folder)).expect("a folder of the sandbox");
            found.extend(inside.flatten().map(|entry| entry.path()));
        }
        assert!(!self.state().exists(), "the state folder was made");
        assert!(found.is_empty(), "created: {found:#?}");
    }

    /// Ends every process by force and clears away what it leaves: for tests whose debt nothing can pay.
    pub fn give_up(&self) {
        self.end_everything();
        wait_until(GONE, || self.processes().is_empty()).expect("what was killed ends");
        for path in self.litter() {
            fs::remove_file(&path).unwrap_or_else(|error| panic!("remove {}: {error}", path.display()));
        }
    }

    fn end_everything(&self) {
        for process in self.processes() {
            process.signal(Signal::SIGKILL);
        }
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        if thread::panicking() {
            self.end_everything();
        } else {
            let stopped = Running::start(self.command(["stop", "--all"]), Vec::new()).end(HUNG);
            let clean = wait_until(GONE, || self.processes().is_empty() && self.litter().is_empty());
            if clean.is_err() {
                let left = (self.processes(), self.litter());
                self.end_everything();
                panic!("the sandbox leaks: {left:#?}\n`stop --all` said: {stopped:#?}");
            }
        }
        // A process that was just killed may still be writing; then a folder in /tmp stays, and the test has failed anyway.
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// A run of the binary that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Said {
    /// The exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Said {
    /// Fails unless it succeeded and wrote nothing to stderr; gives what it printed, without the last newline.
    #[track_caller]
    pub fn quietly(&self) -> &str {
        assert_eq!(self.stderr, "", "a successful run says nothing on stderr: {self:#?}");
        self.value()
    }

    /// Fails unless it succeeded; gives what it printed, without the last newline.
    #[track_caller]
    pub fn value(&self) -> &str {
        assert_eq!(self.code, Some(0), "{self:#?}");
        self.stdout.strip_suffix('\n').unwrap_or(&self.stdout)
    }

    /// Fails unless it ended with `code` and an error on stderr; gives that.
    #[track_caller]
    pub fn fails_with(&self, code: i32) -> &str {
        assert_eq!(self.code, Some(code), "{self:#?}");
        assert!(self.stderr.contains("error: "), "{self:#?}");
        &self.stderr
    }
}

/// A run of the binary that goes on. Dropping it kills it.
pub struct Running {
    /// Reaped by nobody but its owner: until then its number is nobody else's, and a signal reaches it or nothing.
    child: Child,
    lines: mpsc::Receiver<String>,
    errors: mpsc::Receiver<String>,
    heard: String,
}

impl Running {
    #[track_caller]
    pub fn start(mut command: Command, stdin: Vec<u8>) -> Self {
        if !stdin.is_empty() {
            command.stdin(Stdio::piped());
        }
        let mut child = command.spawn().expect("start the binary");
        feed(&mut child, stdin);
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (line, lines) = mpsc::channel();
        let (end, errors) = mpsc::channel();
        // The test may have stopped listening.
        thread::spawn(move || drop(end.send(listen(stdout, stderr, &line))));
        Self { child, lines, errors, heard: String::new() }
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    pub fn signal(&self, signal: Signal) {
        // It may have ended by itself; what it said tells.
        let _ = kill(Pid::from_raw(self.pid()), signal);
    }

    /// Waits for one more line of stdout.
    #[track_caller]
    pub fn line(&mut self) -> String {
        let line = self.lines.recv_timeout(HUNG).expect("another line of output");
        self.heard.push_str(&line);
        line.trim_end_matches('\n').to_owned()
    }

    /// Waits for its end.
    #[track_caller]
    pub fn wait(self) -> Said {
        self.end(HUNG).unwrap_or_else(|| panic!("the binary, or who inherited its output, still runs after {HUNG:?}"))
    }

    fn end(mut self, patience: Duration) -> Option<Said> {
        let stderr = self.errors.recv_timeout(patience).ok()?;
        let status = self.child.wait().expect("an end to wait for");
        let mut stdout = std::mem::take(&mut self.heard);
        stdout.extend(self.lines.try_iter());
        Some(Said { code: status.code(), stdout, stderr })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both do nothing to one whose end has been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Writes `stdin` on a thread: a binary that reads nothing must not block the test.
fn feed(child: &mut Child, stdin: Vec<u8>) {
    if let Some(mut pipe) = child.stdin.take() {
        // A binary that does not read to the end is free to do so.
        thread::spawn(move || drop(pipe.write_all(&stdin)));
    }
}

/// Hands stdout on line by line and gives stderr, when both have ended.
fn listen(stdout: Option<ChildStdout>, mut stderr: Option<ChildStderr>, line: &mpsc::Sender<String>) -> String {
    let errors = thread::spawn(move || stderr.as_mut().map(text_of).unwrap_or_default());
    let mut stdout = stdout.map(BufReader::new);
    while let Some(text) = stdout.as_mut().and_then(next_line) {
        let _ = line.send(text);
    }
    errors.join().unwrap_or_default()
}

fn next_line(from: &mut impl BufRead) -> Option<String> {
    let mut bytes = Vec::new();
    let read = from.read_until(b'\n', &mut bytes).ok()?;
    (read > 0).then(|| String::from_utf8_lossy(&bytes).into_owned())
}

fn text_of(from: &mut impl Read) -> String {
    let mut bytes = Vec::new();
    // What came before a failure is still worth showing.
    let _ = from.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Looks until `holds`, for as long as `patience`.
fn wait_until(patience: Duration, mut holds: impl FnMut() -> bool) -> Result<(), ()> {
    let end = Instant::now() + patience;
    while !holds() {
        if Instant::now() > end {
            return Err(());
        }
        thread::sleep(LOOK);
    }
    Ok(())
}

/// Collects what no ended session leaves below `folder`: all but locks, logs, histories and empty folders.
fn search(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(kind) = entry.file_type() else {
            continue;
        };
        if kind.is_dir() && !is_profile(&path) {
            search(&path, found);
        } else if kind.is_socket() || !is_kept(&path) {
            found.push(path);
        }
    }
}

fn is_profile(folder: &Path) -> bool {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    name.contains("profile") || name.contains("chromium")
}

fn is_kept(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    [".lock", ".log", "lock", "history", ".start"].iter().any(|end| name.ends_with(end))
}
