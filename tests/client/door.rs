//! Finding, starting and using a daemon.

use std::fs;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::time::Instant;

use ghost_browser::client::{Connection, Door, Listener, Outcome, Program, Start};
use ghost_browser::config::Settings;
use ghost_browser::launch::Launch;
use ghost_browser::wire::{
    Done, Fault, FaultCode, Phase, Ready, Reply, Request, Run, StatusState, Stopped, Stream, read_frame, write_frame,
};

use crate::fake::{FakeDaemon, Sandbox, Visit, answer, done, done_with, hang_up, ours, status};

#[derive(Default)]
struct Heard {
    output: String,
    phases: Vec<Phase>,
    is_full: bool,
}

impl Listener for Heard {
    fn output(&mut self, _: Stream, text: &str) -> io::Result<()> {
        if self.is_full {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.output.push_str(text);
        Ok(())
    }

    fn progress(&mut self, phase: Phase, _: u64, _: Option<String>) {
        self.phases.push(phase);
    }

    fn next_tick(&self) -> Option<Instant> {
        None
    }

    fn tick(&mut self) {}
}

fn settings() -> Settings {
    Settings::from_env(&|_| None).unwrap()
}

/// Runs a script through a door whose daemon, where none lives, is `program`.
fn run_with(door: &Door, run: &Run, program: &Program, heard: &mut Heard) -> Result<Outcome, Fault> {
    let begin = Start { settings: &settings(), program, deadline: None, check: &|| Ok(()) };
    door.run(&begin, &|| run.clone(), heard)
}

fn run(door: &Door, heard: &mut Heard) -> Result<Outcome, Fault> {
    run_with(door, &Run::default(), &cannot_start(), heard)
}

fn cannot_start() -> Program {
    Program { path: PathBuf::from("/nonexistent/daemon"), args: vec![] }
}

fn text(text: &str) -> Reply {
    Reply::Output { stream: Stream::Stdout, text: text.to_owned() }
}

fn script() -> Request {
    Request::Run(Box::default())
}

#[test]
fn output_arrives_in_order_and_the_end_is_the_scripts() {
    let sandbox = Sandbox::new();
    let allocating = Reply::Progress { phase: Phase::Allocating, elapsed_ms: 5, why: None };
    let end = done_with(Done { value: Some("1".to_owned()), ..Done::default() });
    let replies = vec![Reply::Accepted, allocating, text("a\n"), text("1\n"), end];
    let daemon = ours(&sandbox.files().socket, vec![answer(replies)]);
    let mut heard = Heard::default();

    let outcome = run(&sandbox.door(), &mut heard).unwrap();

    assert_eq!(outcome.done.value.as_deref(), Some("1"));
    assert_eq!((heard.output.as_str(), &heard.phases[..]), ("a\n1\n", &[Phase::Allocating][..]));
    assert_eq!(daemon.ledger(), [script()]);
}

#[test]
fn a_script_that_was_not_accepted_is_sent_again() {
    let sandbox = Sandbox::new();
    let visits = vec![hang_up(), hang_up(), hang_up(), hang_up(), answer(vec![Reply::Accepted, done()])];
    let daemon = ours(&sandbox.files().socket, visits);

    run(&sandbox.door(), &mut Heard::default()).unwrap();

    assert_eq!(daemon.ledger(), [script(), script(), script(), script(), script()]);
}

#[test]
fn a_script_that_is_never_accepted_is_given_up_after_some_tries() {
    let sandbox = Sandbox::new();
    let daemon = ours(&sandbox.files().socket, (0..5).map(|_| hang_up()).collect());

    let fault = run(&sandbox.door(), &mut Heard::default()).unwrap_err();

    assert_eq!(fault.code, FaultCode::NoBrowser);
    assert!(fault.hint.unwrap().contains("run it again"));
    assert_eq!(daemon.ledger().len(), 5);
}

#[test]
fn after_the_callers_deadline_a_script_is_not_sent_again() {
    let sandbox = Sandbox::new();
    let visit: Visit = Box::new(|visitor| {
        visitor.read();
        std::thread::sleep(std::time::Duration::from_millis(300));
    });
    let daemon = ours(&sandbox.files().socket, vec![visit, hang_up()]);
    let deadline = Instant::now().checked_add(std::time::Duration::from_millis(250));
    let begin = Start { settings: &settings(), program: &cannot_start(), deadline, check: &|| Ok(()) };

    let fault = sandbox.door().run(&begin, &Run::default, &mut Heard::default());

    assert_eq!(fault.unwrap_err().code, FaultCode::NoBrowser);
    assert_eq!(daemon.ledger(), [script()]);
}

#[test]
fn an_accepted_script_is_never_sent_again() {
    let sandbox = Sandbox::new();
    let visits = vec![answer(vec![Reply::Accepted, text("half")]), hang_up()];
    let daemon = ours(&sandbox.files().socket, visits);

    let outcome = run(&sandbox.door(), &mut Heard::default()).unwrap();

    assert_eq!(outcome.done.fault.unwrap().code, FaultCode::OutcomeUnknown);
    assert_eq!(daemon.ledger(), [script()]);
}

#[test]
fn a_refusal_is_the_daemons_word() {
    let sandbox = Sandbox::new();
    let refusal = Fault::new(FaultCode::OtherCredential, "another token owns this session");
    let daemon = ours(&sandbox.files().socket, vec![answer(vec![Reply::Refused(refusal.clone())])]);

    let fault = run(&sandbox.door(), &mut Heard::default()).unwrap_err();

    assert_eq!(fault, refusal);
    assert_eq!(daemon.ledger(), [script()]);
}

#[test]
fn output_that_cannot_be_written_cancels_the_script() {
    let sandbox = Sandbox::new();
    let visit: Visit = Box::new(|visitor| {
        visitor.read();
        visitor.say(&Reply::Accepted);
        visitor.say(&text("a\n"));
        assert_eq!(visitor.read(), Some(Request::Cancel));
        visitor.say(&done_with(Done { fault: Some(Fault::new(FaultCode::Cancelled, "cancelled")), ..Done::default() }));
    });
    let daemon = ours(&sandbox.files().socket, vec![visit]);
    let mut heard = Heard { is_full: true, ..Heard::default() };

    let outcome = run(&sandbox.door(), &mut heard).unwrap();

    assert_eq!(outcome.done.fault.unwrap().code, FaultCode::Output);
    assert_eq!(daemon.ledger(), [script(), Request::Cancel]);
}

#[test]
fn a_run_with_stop_waits_for_the_word_on_the_release() {
    let sandbox = Sandbox::new();
    let released = Stopped { released: 1, unconfirmed: vec![] };
    let replies = |last: Option<Reply>| {
        let all = [Reply::Accepted, done()].into_iter().chain(last);
        answer(all.collect())
    };
    let visits = vec![replies(Some(Reply::Stopped(Box::new(released.clone())))), replies(None)];
    let daemon = ours(&sandbox.files().socket, visits);
    let stopping = Run { stop: true, ..Run::default() };
    let run = || run_with(&sandbox.door(), &stopping, &cannot_start(), &mut Heard::default());

    let (told, silent) = (run().unwrap(), run().unwrap());

    assert_eq!(told.stopped, Some(released));
    // It ended without a word: that there is no note says that nothing is owed.
    assert_eq!(silent.stopped, Some(Stopped::default()));
    assert_eq!(daemon.ledger().len(), 2);
}

#[test]
fn a_daemon_of_another_build_that_holds_a_browser_is_left_alone() {
    let sandbox = Sandbox::new();
    let held = status(StatusState::Connected, "default", &sandbox.path("work"));
    let daemon = FakeDaemon::listen(&sandbox.files().socket, "0.0.0", vec![answer(vec![held])]);

    let fault = run(&sandbox.door(), &mut Heard::default()).unwrap_err();

    assert_eq!(fault.code, FaultCode::NoBrowser);
    assert!(fault.message.contains("another build (0.0.0, process 7)"), "{fault}");
    assert_eq!(daemon.ledger(), [Request::Status]);
}

#[test]
fn a_daemon_of_another_build_that_holds_none_is_replaced() {
    let sandbox = Sandbox::new();
    let socket = sandbox.files().socket.to_path_buf();
    let free = status(StatusState::Stopped, "default", &sandbox.path("work"));
    let leave = socket.clone();
    let stopping: Visit = Box::new(move |visitor| {
        visitor.read();
        fs::remove_file(leave).unwrap();
        visitor.say(&Reply::Stopped(Box::default()));
    });
    let old = FakeDaemon::listen(&socket, "0.0.0", vec![answer(vec![free]), stopping]);
    let new = sandbox.path("new.sock");
    let young = ours(&new, vec![answer(vec![Reply::Accepted, done()])]);
    let program = starts(&sandbox, &Ready::Listening);

    run_with(&sandbox.door(), &Run::default(), &program, &mut Heard::default()).unwrap();

    assert_eq!(young.ledger(), [script()]);
    assert_eq!(old.ledger(), [Request::Status, Request::Stop]);
}

/// A program that keeps what it is told in `launch`, moves `new.sock` to where the daemon is looked for, and says `ready`.
fn starts(sandbox: &Sandbox, ready: &Ready) -> Program {
    let mut frame = Vec::new();
    write_frame(&mut frame, ready).unwrap();
    fs::write(sandbox.path("ready"), frame).unwrap();
    let top = sandbox.path("");
    let (top, socket) = (top.display(), sandbox.files().socket.display().to_string());
    shell(&format!("cd {top}; /bin/cat > launch; [ -S new.sock ] && /bin/mv new.sock {socket}; /bin/cat ready"))
}

fn shell(script: &str) -> Program {
    Program { path: PathBuf::from("/bin/sh"), args: vec!["-c".into(), script.into()] }
}

#[test]
fn a_daemon_is_started_with_what_it_needs_and_used() {
    let sandbox = Sandbox::new();
    let daemon = ours(&sandbox.path("new.sock"), vec![answer(vec![Reply::Accepted, done()])]);
    let program = starts(&sandbox, &Ready::Listening);

    run_with(&sandbox.door(), &Run::default(), &program, &mut Heard::default()).unwrap();

    let told = fs::read(sandbox.path("launch")).unwrap();
    let launch: Launch = read_frame(&mut told.as_slice()).unwrap().unwrap();
    assert_eq!((launch.session, launch.files), (sandbox.door().session, sandbox.files()));
    assert_eq!(launch.settings, settings());
    assert_eq!(daemon.ledger(), [script()]);
    let socket = format!("{}.sock", sandbox.door().session.key);
    assert_eq!(sandbox.state_files(), [socket], "the starter's lock is gone");
}

#[test]
fn what_a_daemon_refuses_to_start_with_is_told() {
    let sandbox = Sandbox::new();
    let refusal = Fault::new(FaultCode::Setting, "APIFY_TOKEN is required").hint("set it");
    let program = starts(&sandbox, &Ready::Refused(refusal.clone()));

    let fault = run_with(&sandbox.door(), &Run::default(), &program, &mut Heard::default());

    assert_eq!(fault.unwrap_err(), refusal);
}

#[test]
fn a_daemon_that_ends_without_a_word_is_no_browser() {
    let sandbox = Sandbox::new();

    for program in [shell("exit 1"), shell("/bin/cat > /dev/null"), cannot_start()] {
        let fault = run_with(&sandbox.door(), &Run::default(), &program, &mut Heard::default());

        assert_eq!(fault.unwrap_err().code, FaultCode::NoBrowser);
        assert!(sandbox.state_files().is_empty());
    }
}

#[test]
fn nothing_is_started_for_a_script_that_does_not_parse() {
    let sandbox = Sandbox::new();
    fs::remove_dir(sandbox.path("state")).unwrap();
    let begin = Start {
        deadline: None,
        settings: &settings(),
        program: &cannot_start(),
        check: &|| Err(Fault::new(FaultCode::Syntax, "expected `;`")),
    };

    let fault = sandbox.door().run(&begin, &Run::default, &mut Heard::default());

    assert_eq!(fault.unwrap_err().code, FaultCode::Syntax);
    assert!(!sandbox.path("state").exists());
}

#[test]
#[cfg(target_os = "linux")]
fn a_started_daemon_has_nothing_of_its_starter() {
    let sandbox = Sandbox::new();
    // SAFETY: `dup` gives a new descriptor, which nobody else owns; it is inherited, unlike those that Rust opens.
    let inherited = unsafe { OwnedFd::from_raw_fd(libc::dup(2)) };
    let number = std::os::fd::AsRawFd::as_raw_fd(&inherited);
    let facts = sandbox.path("facts");
    let program = shell(&format!(
        "/bin/cat > /dev/null
         {{ /usr/bin/env -u PWD -u OLDPWD -u SHLVL -u _; pwd
            read pid comm state parent group session rest < /proc/$$/stat; echo $session
            [ -e /proc/$$/fd/{number} ] && echo leaked; }} > {}",
        facts.display()
    ));

    let ended = run_with(&sandbox.door(), &Run::default(), &program, &mut Heard::default());

    assert_eq!(ended.unwrap_err().code, FaultCode::NoBrowser);
    let told = fs::read_to_string(facts).unwrap();
    let lines: Vec<_> = told.lines().collect();
    assert_eq!(lines[0], "/", "no variable stands in front: {told}");
    let own = nix::unistd::getsid(None).unwrap().to_string();
    assert_ne!(lines[1], own);
    assert_eq!(lines.len(), 2, "{told}");
}

#[test]
fn starters_wait_for_one_another() {
    let sandbox = Sandbox::new();
    let visits: Vec<Visit> = (0..8).map(|_| answer(vec![Reply::Accepted, done()])).collect();
    let daemon = ours(&sandbox.path("new.sock"), visits);
    let program = starts(&sandbox, &Ready::Listening);
    let started = sandbox.path("started");
    let counted = format!("echo >> {}; ", started.display()) + program.args[1].to_str().unwrap();

    std::thread::scope(|scope| {
        let call = || {
            let program = shell(&counted);
            run_with(&sandbox.door(), &Run::default(), &program, &mut Heard::default()).unwrap();
        };
        (0..8).for_each(|_| drop(scope.spawn(call)));
    });

    assert_eq!(daemon.ledger().len(), 8);
    assert_eq!(fs::read(started).unwrap(), b"\n");
}

#[test]
fn a_socket_that_a_dead_daemon_left_is_nobody() {
    let sandbox = Sandbox::new();
    drop(std::os::unix::net::UnixListener::bind(&*sandbox.files().socket).unwrap());

    assert!(Connection::open(&sandbox.files()).unwrap().is_none());
    assert!(sandbox.door().status().unwrap().is_none());
    assert!(sandbox.files().socket.exists(), "a look-up removes nothing");
}
