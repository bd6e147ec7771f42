//! The REPL, as lines from a pipe and at a pseudo-terminal: one scope, one browser, and what a person's keys do.

mod support;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use support::{FakeGateway, Gate, PATIENCE, Reaction, ReleaseAnswer, Sandbox};

const CTRL_C: &str = "\x03";
const CTRL_D: &str = "\x04";

/// The binary at a terminal of its own. What it writes is read all the time.
struct Terminal {
    child: Child,
    keys: File,
    screen: Arc<(Mutex<Screen>, Condvar)>,
    /// How much of the screen was waited for already.
    seen: usize,
}

#[derive(Default)]
struct Screen {
    text: String,
    is_closed: bool,
}

impl Terminal {
    fn open(sandbox: &Sandbox) -> Self {
        let mut terminal = Self::start(sandbox.command(["repl"]));
        terminal.waits_for("ghost> ");
        terminal
    }

    fn start(mut command: Command) -> Self {
        let size = Winsize { ws_row: 40, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(&size, None).expect("a pseudo-terminal");
        let end = || Stdio::from(pty.slave.try_clone().expect("another end"));
        command.env("TERM", "xterm").env("NO_COLOR", "1").stdin(end()).stdout(end()).stderr(end());
        // SAFETY: between fork and exec it only makes system calls.
        unsafe { command.pre_exec(lead_session) };
        let child = command.spawn().expect("start the binary");
        drop(command);
        drop(pty.slave);
        let screen = Arc::new((Mutex::default(), Condvar::new()));
        let keys = File::from(pty.master);
        watch(keys.try_clone().expect("the screen"), screen.clone());
        Self { child, keys, screen, seen: 0 }
    }

    fn types(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("type");
    }

    /// Types a line and waits for what it shows, and for the next prompt behind it.
    #[track_caller]
    fn says(&mut self, line: &str, expected: &str) {
        self.types(line);
        self.types("\r");
        self.waits_for(expected);
        self.waits_for("ghost> ");
    }

    /// Waits until the screen has shown `expected` since the last wait.
    #[track_caller]
    fn waits_for(&mut self, expected: &str) {
        let end = Instant::now() + PATIENCE;
        let (screen, changed) = &*self.screen;
        let mut screen = screen.lock().unwrap();
        loop {
            if let Some(at) = screen.text[self.seen..].find(expected) {
                self.seen += at + expected.len();
                return;
            }
            let left = end.saturating_duration_since(Instant::now());
            assert!(!left.is_zero() && !screen.is_closed, "no {expected:?} after:\n{}", &screen.text[self.seen..]);
            screen = changed.wait_timeout(screen, left).unwrap().0;
        }
    }

    /// What has been shown in all.
    fn shown(&self) -> String {
        self.screen.0.lock().unwrap().text.clone()
    }

    /// Leaves as a person does, and gives the exit code.
    #[track_caller]
    fn leaves(mut self) -> Option<i32> {
        self.types(CTRL_D);
        self.ends()
    }

    /// Is told what the kernel tells when a terminal's window is closed, and ends by itself.
    #[track_caller]
    fn hangs_up(mut self) -> Option<i32> {
        kill(Pid::from_raw(self.child.id() as i32), Signal::SIGHUP).expect("tell it");
        self.ends()
    }

    #[track_caller]
    fn ends(&mut self) -> Option<i32> {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if let Some(status) = self.child.try_wait().expect("look at the binary") {
                return status.code();
            }
            thread::sleep(Duration::from_millis(5));
        }
        panic!("it does not leave:\n{}", self.shown());
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It may have ended; a test that failed leaves none behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Makes the terminal on standard input this process's own, so that its Ctrl-C is a signal to it.
fn lead_session() -> std::io::Result<()> {
    nix::unistd::setsid()?;
    // SAFETY: a system call on a descriptor that this process has.
    match unsafe { nix::libc::ioctl(0, nix::libc::TIOCSCTTY as _, 0) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

fn watch(mut from: File, screen: Arc<(Mutex<Screen>, Condvar)>) {
    thread::spawn(move || {
        let mut bytes = [0; 4096];
        loop {
            // A terminal whose other end is closed reads as an error.
            let read = from.read(&mut bytes).unwrap_or(0);
            let mut shown = screen.0.lock().unwrap();
            shown.text.push_str(&String::from_utf8_lossy(&bytes[..read]));
            shown.is_closed = read == 0;
            screen.1.notify_all();
            if read == 0 {
                return;
            }
        }
    });
}

fn history(sandbox: &Sandbox) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(sandbox.state()).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "history")).collect()
}

#[test]
fn piped_lines_share_one_scope_and_one_browser() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    let lines = "\
// nothing yet

let version = cdp(\"Browser.getVersion\").protocolVersion;
fn twice(x) {
    x + x
}
let more = |x| x + version;
twice(version)
more.call(\"v\")
print(version)
#{list: [1, 2], text: \"é\"}
";

    let said = sandbox.script_with(["repl"], lines);

    assert_eq!(said.quietly(), "\"1.31.3\"\n\"v1.3\"\n1.3\n{\"list\": [1, 2], \"text\": \"é\"}");
    assert_eq!((gateway.allocations(), gateway.sockets()), (1, 1));
    assert_eq!(sandbox.status()["state"], "connected");
    sandbox.stop();
    gateway.assert_nothing_owed();
}

#[test]
fn a_failing_line_names_its_place_and_the_next_one_runs() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    let lines = "let a = 1;\nfn broken() {\n  nothing_there()\n}\nbroken();\na + nobody\nprint(a)\n";

    let said = sandbox.script_with(["repl"], lines);

    assert_eq!((said.code, said.stdout.as_str()), (Some(2), "1\n"), "{said:#?}");
    assert!(said.stderr.contains("--> repl:3:3") && said.stderr.contains("3 |   nothing_there()"), "{said:#?}");
    assert!(said.stderr.contains("in broken called at repl:5:1"), "{said:#?}");
    assert!(said.stderr.contains("--> repl:6:5"), "{said:#?}");
    sandbox.stop();
    gateway.assert_nothing_owed();
}

#[test]
fn the_exit_code_is_that_of_the_last_failure_and_what_is_not_complete_is_one() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);

    assert_eq!(sandbox.script_with(["repl"], "let x = ;\nthrow \"no\"\n1;\n").code, Some(1));
    assert_eq!(sandbox.script_with(["repl"], "1\nprint(\n").code, Some(2));
    assert_eq!(sandbox.script_with(["repl"], "").quietly(), "");
    assert_eq!(sandbox.script_with(["repl", "--timeout", "0.3"], "sleep(100)\n").code, Some(1));

    sandbox.stop();
    gateway.assert_nothing_owed();
}

#[test]
fn lines_that_need_no_browser_take_none() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);

    let said = sandbox.script_with(["repl"], "// a comment\n\n:status\n:events\n:protocol Page.navigate\n:stop\n");

    let shown = said.quietly();
    assert!(shown.starts_with("stopped\nno browser, and so no events\nPage.navigate takes url, "), "{said:#?}");
    assert!(shown.ends_with("\nbrowser already stopped"), "{said:#?}");
    let said = sandbox.script_with(["repl"], ":help\n:nonsense\n");
    assert!(said.fails_with(2).contains("there is no command `:nonsense`"), "{said:#?}");
    assert!(said.stdout.contains(":protocol NAME"), "{said:#?}");
    assert_eq!(gateway.requests(), 0);
    sandbox.assert_untouched();
}

#[test]
fn after_stop_the_next_line_has_a_new_browser_and_the_old_variables() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);

    let said = sandbox.script_with(["repl"], "let kept = 7;\n:stop\n:status\nprint(kept)\n:status\n");

    assert!(said.quietly().starts_with("released browser\nstopped\n7\nconnected "), "{said:#?}");
    assert_eq!((gateway.allocations(), gateway.deletes()), (2, 1));
    sandbox.stop();
    gateway.assert_nothing_owed();
}

#[test]
fn stop_on_leaving_releases_the_browser() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);

    let said = sandbox.script_with(["repl", "--stop"], "throw \"no\"\n");

    assert_eq!((said.code, said.stdout.as_str()), (Some(1), "released browser\n"), "{said:#?}");
    gateway.assert_nothing_owed();
    sandbox.assert_nothing_left();
}

#[test]
fn a_session_whose_daemon_is_stopped_says_once_that_its_variables_are_gone() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    let mut terminal = Terminal::open(&sandbox);
    terminal.says("let x = 1; print(\"de\" + \"fined\")", "\r\ndefined");

    assert_eq!(sandbox.stop().quietly(), "released browser");

    terminal.says("print(x)", "what earlier lines defined: the line did not run");
    terminal.says("print(\"an\" + \"ew\")", "\r\nanew");
    assert_eq!(terminal.leaves(), Some(0));
    sandbox.stop();
    gateway.assert_nothing_owed();
}

#[test]
fn what_was_expected_on_one_line_is_awaited_on_the_next() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    let lines = "\
let page = ensure_page();
cdp(\"Page.enable\", #{}, page);
let loaded = expect_event(\"Page.loadEventFired\", #{session: page.session_id});
cdp(\"Page.navigate\", #{url: \"https://here.example/\"}, page);
loaded.wait().method
:events
";

    let said = sandbox.script_with(["repl"], lines);

    assert!(said.quietly().starts_with("\"Page.loadEventFired\"\n"), "{said:#?}");
    assert!(said.stdout.contains("\nPage.loadEventFired {"), "{said:#?}");
    sandbox.stop();
    gateway.assert_nothing_owed();
}

#[test]
fn ctrl_c_ends_the_line_that_runs_and_keeps_session_browser_and_variables() {
    let gateway = FakeGateway::start();
    gateway.cdp().on("Browser.getHistograms", |_| Reaction::Never);
    let sandbox = Sandbox::of(&gateway);
    let mut terminal = Terminal::open(&sandbox);
    terminal.says("let kept = 40 + 2; print(\"re\" + \"ady\")", "\r\nready");

    terminal.types("print(\"sleep\" + \"ing\"); sleep(100)\r");
    terminal.waits_for("\r\nsleeping");
    terminal.types(CTRL_C);
    terminal.waits_for("cancelled");
    terminal.waits_for("ghost> ");
    terminal.types("cdp(\"Browser.getHistograms\")\r");
    gateway.cdp().wait_for("Browser.getHistograms", 1);
    terminal.types(CTRL_C);
    terminal.waits_for("cancelled");
    terminal.waits_for("ghost> ");

    terminal.types("sleep(100)\r");
    sandbox.wait_for_status("the line", |status| status["scripts"] == 1);
    terminal.types(CTRL_C);
    terminal.waits_for("cancelled");
    // Longer than a client that reads nothing has before it is cut off.
    assert_eq!(sandbox.script("sleep(2.5); 1").value(), "1");
    terminal.says("kept", "\r\n42");
    assert_eq!(terminal.leaves(), Some(0));
    assert_eq!((gateway.allocations(), gateway.deletes()), (1, 0));
    sandbox.stop();
    gateway.assert_nothing_owed();
}

#[test]
fn ctrl_d_leaves_and_keeps_the_browser() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    let mut terminal = Terminal::open(&sandbox);
    terminal.says("1 + 1", "\r\n2");

    assert_eq!(terminal.leaves(), Some(0));

    assert_eq!(sandbox.status()["state"], "connected");
    assert_eq!(sandbox.script("cdp(\"Browser.getVersion\").protocolVersion").quietly(), "1.3");
    assert_eq!(gateway.allocations(), 1);
    sandbox.stop();
    gateway.assert_nothing_owed();
}

#[test]
fn a_statement_goes_on_over_lines_until_it_is_complete() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    let mut terminal = Terminal::open(&sandbox);

    terminal.types("fn add(a, b) {\r");
    terminal.types("a +\r");
    terminal.types("b }\r");
    terminal.waits_for("ghost> ");
    terminal.says("add(20, 3)", "\r\n23");
    // A line that is given up leaves nothing of itself.
    terminal.types("add(\r");
    terminal.types(CTRL_C);
    terminal.waits_for("ghost> ");
    terminal.says("add(4, 3)", "\r\n7");

    assert_eq!(terminal.leaves(), Some(0));
    sandbox.stop();
    gateway.assert_nothing_owed();
}

#[test]
fn tab_completes_functions_methods_and_parameters() {
    let gateway = FakeGateway::start();
    gateway.cdp().answers("Browser.getVersion", json!({"product": "Fake/1"}));
    let sandbox = Sandbox::of(&gateway);
    let mut terminal = Terminal::open(&sandbox);

    terminal.says("cd\t(\"Browser.getVersi\t\").product", "\r\n\"Fake/1\"");
    terminal.types("let outcome = cdp(\"Target.createTarget\", #{ur\t");
    terminal.waits_for("#{url: ");
    terminal.says("\"about:blank\"}); outc\t.len()", "\r\n1");

    assert!(gateway.cdp().commands().iter().any(|command| command.params == json!({"url": "about:blank"})));
    assert_eq!(terminal.leaves(), Some(0));
    sandbox.stop();
    gateway.assert_nothing_owed();
}

#[test]
fn the_history_is_private_and_a_line_with_a_leading_space_is_not_in_it() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    let mut terminal = Terminal::open(&sandbox);
    terminal.says("\"re\" + \"membered\"", "\r\n\"remembered\"");
    terminal.says(" \"for\" + \"gotten\"", "\r\n\"forgotten\"");
    assert_eq!(terminal.leaves(), Some(0));

    let files = history(&sandbox);
    assert_eq!(files.len(), 1, "{files:?}");
    let mode = fs::metadata(&files[0]).unwrap().permissions().mode();
    let text = fs::read_to_string(&files[0]).unwrap();
    assert_eq!(mode & 0o777, 0o600);
    assert!(text.contains("membered") && !text.contains("gotten"), "{text}");

    let mut again = Terminal::open(&sandbox);
    // The line above, and Enter.
    again.says("\x1b[A", "\r\n\"remembered\"");
    assert_eq!(again.leaves(), Some(0));
    sandbox.stop();
    gateway.assert_nothing_owed();
}

#[test]
fn commands_of_the_prompt_tell_and_release() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    let mut terminal = Terminal::open(&sandbox);

    terminal.says(":status", "\r\nstopped");
    terminal.says("let kept = 5;", "");
    terminal.says(":status", "\r\nconnected ");
    terminal.says(":protocol Page.reload", "Page.reload takes ignoreCache");
    terminal.says(":stop", "\r\nreleased browser");
    terminal.says("kept * 2", "\r\n10");
    terminal.says(":help", "Ctrl-D leaves and keeps the browser");

    assert_eq!(terminal.leaves(), Some(0));
    sandbox.stop();
    assert_eq!(gateway.allocations(), 2);
    gateway.assert_nothing_owed();
}

#[test]
fn ctrl_c_ends_the_wait_for_a_release_that_goes_on() {
    let gateway = FakeGateway::start();
    let gate = Gate::closed();
    gateway.answers_releases_with([ReleaseAnswer::Behind(gate.clone())]);
    let sandbox = Sandbox::of(&gateway);
    let mut terminal = Terminal::open(&sandbox);
    terminal.says("let kept = 5; print(\"re\" + \"ady\")", "\r\nready");
    terminal.types(":stop\r");
    gateway.wait_for("DELETE", "", 1);

    terminal.types(CTRL_C);

    terminal.waits_for("interrupted before the daemon answered");
    terminal.waits_for("ghost> ");
    gate.open();
    terminal.says("kept", "what earlier lines defined: the line did not run");
    assert_eq!(terminal.leaves(), Some(0));
    sandbox.stop();
    gateway.assert_nothing_owed();
}

#[test]
fn a_terminal_that_closes_ends_the_line_and_the_session() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    let mut terminal = Terminal::open(&sandbox);
    terminal.types("print(\"sleep\" + \"ing\"); sleep(100)\r");
    terminal.waits_for("\r\nsleeping");

    terminal.hangs_up();

    sandbox.wait_for_status("no script", |status| status["scripts"] == 0);
    sandbox.stop();
    gateway.assert_nothing_owed();
}

#[test]
fn a_long_value_is_shortened_with_a_note() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);

    let said = sandbox.script_with(["repl"], "let l = []; for i in 0..100000 { l.push(i); } l\nl.len()\n");

    assert!(said.quietly().ends_with("\n100000"), "{said:#?}");
    assert!(said.stdout.len() < 20_000 && said.stdout.contains("\n… shortened"), "{said:#?}");
    sandbox.stop();
    gateway.assert_nothing_owed();
}
