//! Processes that are killed, and files that are taken away under them.

use std::fs;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::support::{Answer, FakeGateway, Gate, Process, ReleaseAnswer, Running, Sandbox};
use crate::{ENDLESS, closes_prove_nothing, daemon_and_keeper, kill, warnings};

/// What a keeper may take, on a machine that does other things too.
const PAID_WITHIN: Duration = Duration::from_secs(10);

#[test]
fn a_killed_daemons_browser_is_released_by_the_keeper_and_status_says_so_meanwhile() {
    for signal in [Signal::SIGKILL, Signal::SIGABRT] {
        let gateway = FakeGateway::start();
        gateway.answers_releases_with([500, 500]);
        let sandbox = Sandbox::of(&gateway);
        sandbox.script("1").quietly();
        let (daemon, keeper) = daemon_and_keeper(&sandbox);

        daemon.signal(signal);

        gateway.wait_for("DELETE", "", 1);
        let told = sandbox.ghost(["status"]);
        let lines: Vec<_> = told.quietly().lines().collect();
        assert_eq!(lines.first(), Some(&"release-failed"));
        assert!(lines.get(1).is_some_and(|line| line.starts_with("debt: ") && line.contains("keeper")), "{told:#?}");
        gateway.assert_nothing_owed();
        sandbox.wait_for_status("the end", |status| status["state"] == "stopped");
        assert!(!keeper.is_alive());
        assert_eq!(sandbox.script("1").quietly(), "1", "the next call starts anew");
        sandbox.stop();
        gateway.assert_nothing_owed();
    }
}

#[test]
fn stop_waits_for_the_keeper_that_pays() {
    let gateway = FakeGateway::start();
    gateway.answers_releases_with([500]);
    let sandbox = Sandbox::of(&gateway);
    sandbox.script("1").quietly();
    let (daemon, _) = daemon_and_keeper(&sandbox);
    kill(&daemon);
    gateway.wait_for("DELETE", "", 1);

    assert_eq!(sandbox.stop().quietly(), "released browser");

    gateway.assert_nothing_owed();
    assert_eq!(gateway.deletes(), 2);
}

#[test]
fn the_keeper_that_pays_beside_a_new_daemon_is_told_by_status_and_awaited_by_stop() {
    let gateway = FakeGateway::start();
    let gate = Gate::closed();
    gateway.answers_releases_with([ReleaseAnswer::Behind(gate.clone())]);
    let sandbox = Sandbox::of(&gateway);
    sandbox.script("1").quietly();
    let (daemon, _) = daemon_and_keeper(&sandbox);
    kill(&daemon);
    gateway.wait_for("DELETE", "", 1);
    sandbox.script("2").value();

    let status = sandbox.status();
    assert_eq!(status["state"], "connected");
    assert!(status["debts"][0].as_str().is_some_and(|debt| debt.contains("an earlier daemon")), "{status:#}");
    assert_eq!(status["debts"].as_array().map(Vec::len), Some(1), "its own is no debt");
    let stop = sandbox.spawn(["stop"], "");
    sandbox.wait_for_status("the keeper alone", |status| status["state"] == "release-failed");
    assert!(Process::find(stop.pid()).is_some(), "it has not answered yet");
    gate.open();

    assert!(stop.wait().quietly().starts_with("released "));
    assert_eq!(gateway.owed(), [""; 0]);
}

#[test]
fn a_killed_daemons_chromium_is_gone_with_its_crash_handlers_and_files() {
    let sandbox = Sandbox::local();
    sandbox.script("js(\"1\")").value();
    let (daemon, keeper) = daemon_and_keeper(&sandbox);
    assert!(!sandbox.chromiums().is_empty());
    let killed = Instant::now();

    kill(&daemon);

    let meanwhile = sandbox.ghost(["status"]);
    assert!(matches!(meanwhile.quietly().lines().next(), Some("release-failed" | "stopped")), "{meanwhile:#?}");
    wait_for_end(&sandbox);
    assert_eq!(chromium_folders(&sandbox), Vec::<std::path::PathBuf>::new());
    assert!(killed.elapsed() < PAID_WITHIN, "{:?}", killed.elapsed());
    assert!(!keeper.is_alive());
    assert_eq!(sandbox.script("js(\"20+2\")").value(), "22");
    assert_eq!(sandbox.stop().quietly(), "released browser");
}

fn chromium_folders(sandbox: &Sandbox) -> Vec<std::path::PathBuf> {
    let is_folder = |path: &std::path::PathBuf| path.is_dir();
    fs::read_dir(sandbox.state()).unwrap().map(|entry| entry.unwrap().path()).filter(is_folder).collect()
}

#[test]
fn the_next_call_after_a_killed_daemon_never_meets_its_socket() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);

    for _ in 0..3 {
        sandbox.script("1").quietly();
        kill(&sandbox.daemon().unwrap());
        let said = sandbox.script("2");
        assert_eq!(said.value(), "2");
        assert!(!said.stderr.contains("refused"), "{said:#?}");
    }

    sandbox.stop();
    gateway.assert_nothing_owed();
    assert_eq!(gateway.allocations(), 4);
}

#[test]
fn a_killed_keeper_is_replaced_and_the_new_one_pays_too() {
    for sandbox_of in [Sandbox::of as fn(&FakeGateway) -> Sandbox, |_| Sandbox::local()] {
        let gateway = FakeGateway::start();
        let sandbox = sandbox_of(&gateway);
        sandbox.script("1").value();
        let (daemon, first) = daemon_and_keeper(&sandbox);

        kill(&first);

        let is_new = |pid: &serde_json::Value| pid.as_i64().is_some_and(|pid| pid != i64::from(first.pid));
        sandbox.wait_for_status("another keeper", |status| is_new(&status["keeper_pid"]));
        assert_eq!(sandbox.script("js(\"1+1\")").quietly(), "2");
        kill(&daemon);
        gateway.assert_nothing_owed();
        assert!(matches!(sandbox.stop().quietly(), "released browser" | "browser already stopped"));
        sandbox.assert_nothing_left();
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_keeper_that_cannot_be_replaced_at_once_is_tried_again_and_no_script_runs_without_one() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    sandbox.script("1").quietly();
    let (daemon, keeper) = daemon_and_keeper(&sandbox);
    let mut sleeping = sandbox.spawn(["run", "-e", crate::ENDLESS], "");
    assert_eq!(sleeping.line(), "runs");

    // Enough for the socket of one more caller, and not for a keeper.
    let before = limit_files(&daemon, open_files(&daemon) + 2);
    kill(&keeper);
    sandbox.wait_for_log("no keeper");
    let refused = sandbox.script("2");
    limit_files(&daemon, before);

    assert!(refused.fails_with(3).contains("without one no browser is used"), "{refused:#?}");
    sandbox.wait_for_status("another keeper", |status| status["keeper_pid"].is_i64());
    assert_eq!(sandbox.script("3").quietly(), "3");
    kill(&daemon);
    gateway.assert_nothing_owed();
}

#[cfg(target_os = "linux")]
fn open_files(process: &Process) -> u64 {
    let files = std::fs::read_dir(format!("/proc/{}/fd", process.pid)).unwrap();
    let numbers = files.map(|file| file.unwrap().file_name().to_str().unwrap().parse::<u64>().unwrap());
    numbers.max().unwrap() + 1
}

/// Sets how many files a process may have open, and gives what it was.
#[cfg(target_os = "linux")]
fn limit_files(process: &Process, most: u64) -> u64 {
    use nix::libc::{RLIMIT_NOFILE, prlimit, rlimit};
    let mut before = rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both point to a limit for as long as the calls last.
    unsafe {
        assert_eq!(prlimit(process.pid, RLIMIT_NOFILE, std::ptr::null(), &mut before), 0);
        let now = rlimit { rlim_cur: most, ..before };
        assert_eq!(prlimit(process.pid, RLIMIT_NOFILE, &now, std::ptr::null_mut()), 0);
    }
    before.rlim_cur
}

#[test]
fn with_both_killed_the_debt_is_told_and_blocks_nobody() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    sandbox.script("1").quietly();
    kill_both(&sandbox);

    let told = sandbox.ghost(["status"]);
    assert!(told.quietly().starts_with("release-unknown\ndebt: "), "{told:#?}");
    let next = sandbox.script("2");
    assert_eq!((next.value(), warnings(&next).len()), ("2", 1), "{next:#?}");
    assert_eq!(sandbox.script("3").quietly(), "3");
    let beside = sandbox.ghost(["status"]);
    assert!(beside.quietly().starts_with("connected 127.0.0.1"), "{beside:#?}");
    assert!(beside.stdout.contains("\ndebt: "), "{beside:#?}");

    let stopped = sandbox.stop();

    assert!(stopped.fails_with(5).contains("may still be running and billed"), "{stopped:#?}");
    assert_eq!(stopped.stdout, "released browser\n");
    assert_eq!(sandbox.ghost(["status"]).quietly(), "stopped");
    assert_eq!(sandbox.stop().quietly(), "browser already stopped");
    assert_eq!(gateway.owed().len(), 1, "the one that was told");
}

#[test]
fn with_both_killed_chromium_ends_by_itself_and_a_later_call_wipes_its_files() {
    let sandbox = Sandbox::local();
    sandbox.script("1").value();
    let left = chromium_folders(&sandbox);
    kill_both(&sandbox);
    wait_for_end(&sandbox);
    // A young one could be a browser's that is being started.
    let a_minute_ago = std::time::SystemTime::now() - Duration::from_secs(90);
    left.iter().for_each(|folder| fs::File::open(folder).unwrap().set_modified(a_minute_ago).unwrap());

    assert_eq!(sandbox.script("2").value(), "2");

    assert!(!left.is_empty() && left.iter().all(|folder| !folder.exists()), "{left:?}");
    sandbox.stop().fails_with(5);
    assert_eq!(sandbox.stop().quietly(), "browser already stopped");
    sandbox.assert_nothing_left();
}

/// Both at once: a keeper that dies alone is replaced, and one whose daemon dies alone pays.
fn kill_both(sandbox: &Sandbox) {
    let (daemon, keeper) = daemon_and_keeper(sandbox);
    daemon.signal(Signal::SIGSTOP);
    kill(&keeper);
    kill(&daemon);
    sandbox.wait_for_status("nobody left", |status| status["state"] == "release-unknown");
}

#[test]
fn killed_while_it_asked_its_allocation_is_told() {
    let gateway = FakeGateway::start();
    let gate = Gate::closed();
    gateway.answers_allocations_with([Answer::browser().behind(&gate)]);
    let sandbox = Sandbox::of(&gateway);
    let caller = sandbox.spawn(["run", "-e", "1"], "");
    gateway.wait_for("GET", "/json/version", 1);

    kill(&sandbox.daemon().unwrap());

    let said = caller.wait();
    assert!(said.fails_with(4).contains("the daemon ended"), "{said:#?}");
    assert_eq!(sandbox.ghost(["status"]).quietly().lines().next(), Some("release-unknown"));
    gate.open();
    assert!(sandbox.stop().fails_with(5).contains("may still be running and billed"));
    assert_eq!(sandbox.ghost(["status"]).quietly(), "stopped");
}

#[test]
fn a_local_daemon_killed_at_any_moment_of_its_start_leaves_nothing() {
    for _ in 0..4 {
        let sandbox = Sandbox::local();
        let caller = sandbox.spawn(["run", "-e", "1"], "");
        sandbox.wait_for_status("a start", |status| status["state"] == "starting");

        sandbox.daemon().iter().for_each(kill);

        caller.wait();
        sandbox.wait_for_status("the end", |status| status["state"] == "stopped");
        assert_eq!(sandbox.stop().quietly(), "browser already stopped");
        sandbox.assert_nothing_left();
    }
}

#[test]
fn a_chromium_that_lost_daemon_and_keeper_is_not_said_to_be_billed() {
    let sandbox = Sandbox::local();
    sandbox.script("js(\"1\")").value();
    kill_both(&sandbox);

    let told = sandbox.ghost(["status"]);
    assert!(told.quietly().starts_with("release-unknown\ndebt: a Chromium of this machine"), "{told:#?}");
    let stopped = sandbox.stop();
    let said = stopped.fails_with(5);
    assert!(!said.contains("billed") && !said.contains("gateway"), "{stopped:#?}");
    assert!(said.contains("ends by itself"), "{stopped:#?}");
    assert_eq!(sandbox.stop().quietly(), "browser already stopped");
    wait_for_end(&sandbox);
    // A later start wipes it, once it is old enough.
    chromium_folders(&sandbox).iter().for_each(|folder| fs::remove_dir_all(folder).unwrap());
}

#[test]
fn a_script_whose_daemon_is_killed_has_an_unknown_outcome() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    let mut caller = sandbox.spawn(["run", "-e", ENDLESS], "");
    caller.line();

    kill(&sandbox.daemon().unwrap());

    assert!(caller.wait().fails_with(4).contains("unknown"));
    gateway.assert_nothing_owed();
}

#[test]
fn a_swept_state_folder_ends_the_daemon_and_its_browser() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    assert_swept_folder_ends_all(&sandbox);
    gateway.assert_nothing_owed();
}

#[test]
fn a_swept_state_folder_ends_the_daemon_and_its_chromium() {
    assert_swept_folder_ends_all(&Sandbox::local());
}

fn assert_swept_folder_ends_all(sandbox: &Sandbox) {
    sandbox.script("1").value();
    let (daemon, keeper) = daemon_and_keeper(sandbox);

    sweep(&sandbox.state());

    wait_for_end(sandbox);
    assert!(!daemon.is_alive() && !keeper.is_alive());
    assert_eq!(sandbox.script("2").value(), "2", "the next call makes the folder anew");
    sandbox.stop();
}

#[test]
fn a_script_under_a_daemon_that_is_told_to_end_is_told_so_and_not_that_somebody_stopped_it() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    let mut running = sandbox.spawn(["run", "-e", "print(`runs`); sleep(100)"], "");
    running.line();

    sandbox.daemon().unwrap().signal(Signal::SIGTERM);
    let said = running.wait();

    assert!(said.fails_with(130).contains("the daemon ended under the script"), "{said:#?}");
    gateway.assert_nothing_owed();
}

/// Removes a folder in which somebody still writes.
fn sweep(folder: &std::path::Path) {
    let until = Instant::now() + crate::support::PATIENCE;
    while fs::remove_dir_all(folder).is_err() {
        assert!(Instant::now() < until, "{} cannot be removed", folder.display());
    }
}

#[test]
fn a_socket_that_is_taken_away_ends_the_daemon_and_its_browser() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    sandbox.script("1").quietly();
    let (daemon, _) = daemon_and_keeper(&sandbox);
    let entries = fs::read_dir(sandbox.state()).unwrap().map(|entry| entry.unwrap().path());
    let sockets: Vec<_> = entries.filter(|path| path.extension().is_some_and(|ending| ending == "sock")).collect();

    sockets.iter().for_each(|socket| fs::remove_file(socket).unwrap());

    gateway.assert_nothing_owed();
    wait_for_end(&sandbox);
    assert!(!daemon.is_alive());
}

/// A daemon that looks for its files does so every few seconds.
fn wait_for_end(sandbox: &Sandbox) {
    let until = Instant::now() + crate::support::PATIENCE;
    while !sandbox.processes().is_empty() {
        assert!(Instant::now() < until, "still there: {:#?}", sandbox.processes());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_daemon_outlives_the_replacement_of_its_program() {
    for sandbox_of in [Sandbox::of as fn(&FakeGateway) -> Sandbox, |_| Sandbox::local()] {
        let gateway = FakeGateway::start();
        let sandbox = sandbox_of(&gateway);
        let program = sandbox.work().join("ghost-browser");
        fs::copy(env!("CARGO_BIN_EXE_ghost-browser"), &program).unwrap();
        let mut old = std::process::Command::new(&program);
        let like = sandbox.command(["run", "-e", "1"]);
        old.args(like.get_args()).env_clear().envs(like.get_envs().filter_map(|(key, value)| Some((key, value?))));
        old.current_dir(sandbox.work()).stdin(std::process::Stdio::null());
        old.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        assert_eq!(Running::start(old, Vec::new()).wait().value(), "1");

        fs::remove_file(&program).unwrap();
        fs::write(&program, "another build").unwrap();

        let (daemon, first) = daemon_and_keeper(&sandbox);
        kill(&first);
        let is_new = |pid: &serde_json::Value| pid.as_i64().is_some_and(|pid| pid != i64::from(first.pid));
        sandbox.wait_for_status("another keeper", |status| is_new(&status["keeper_pid"]));
        assert_eq!(sandbox.script("js(\"1+1\")").quietly(), "2");
        kill(&daemon);
        gateway.assert_nothing_owed();
        assert!(matches!(sandbox.stop().quietly(), "released browser" | "browser already stopped"));
        sandbox.assert_nothing_left();
    }
}

#[test]
fn a_chromium_that_dies_by_itself_is_told_and_the_next_call_has_another() {
    let sandbox = Sandbox::local();
    sandbox.script("1").value();
    let browser = sandbox.chromiums().into_iter().find(|process| !process.command.contains("--type=")).unwrap();

    kill(&browser);

    sandbox.wait_for_status("the loss", |status| status["state"] == "stopped" || status["pid"].is_null());
    let next = sandbox.script("js(\"1+1\")");
    assert_eq!(next.value(), "2");
    sandbox.stop();
}

#[test]
fn a_keeper_that_cannot_pay_yet_goes_on_trying() {
    let gateway = FakeGateway::start();
    closes_prove_nothing(&gateway);
    gateway.answers_releases_with([503, 503, 503]);
    let sandbox = Sandbox::of(&gateway);
    sandbox.script("1").quietly();

    kill(&sandbox.daemon().unwrap());

    gateway.assert_nothing_owed();
    assert_eq!(gateway.deletes(), 4);
}
