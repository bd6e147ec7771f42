//! A standard output or error that takes no more.

use crate::support::{FakeGateway, Sandbox};

/// A session with a daemon, and its number.
fn warm(gateway: &FakeGateway) -> (Sandbox, serde_json::Value) {
    let sandbox = Sandbox::of(gateway);
    sandbox.script("cdp(\"Browser.getVersion\");").quietly();
    let pid = sandbox.status()["pid"].clone();
    (sandbox, pid)
}

/// The daemon has taken no notice.
#[track_caller]
fn assert_unmoved(sandbox: &Sandbox, pid: &serde_json::Value) {
    let status = sandbox.wait_for_status("the script's end", |status| status["scripts"] == 0);
    assert_eq!((&status["state"], &status["pid"]), (&"connected".into(), pid));
    assert_eq!(sandbox.script("1 + 1").quietly(), "2");
}

const MANY: &str = "ghost-browser run -e 'for i in 0..100000 { print(i) }'";

#[test]
fn a_reader_that_leaves_ends_the_script_with_a_plain_error() {
    let gateway = FakeGateway::start();
    let (sandbox, pid) = warm(&gateway);

    let said = sandbox.shell(&format!("({MANY}; echo $? >code) | head -1"));

    assert_eq!(said.stdout, "0\n");
    assert!(said.stderr.starts_with("error: cannot write to standard output\ncaused by: "), "{said:#?}");
    assert!(!said.stderr.contains("panicked"), "{said:#?}");
    assert_eq!(std::fs::read_to_string(sandbox.work().join("code")).unwrap(), "1\n");
    assert_unmoved(&sandbox, &pid);
    sandbox.stop().quietly();
    gateway.assert_nothing_owed();
}

#[test]
fn a_full_disk_behind_standard_output_ends_the_script_with_a_plain_error() {
    let gateway = FakeGateway::start();
    let (sandbox, pid) = warm(&gateway);

    for line in [
        format!("{MANY} >/dev/full"),
        "ghost-browser run -e '1 + 1' >/dev/full".to_owned(),
        "ghost-browser run --json -e '1 + 1' >/dev/full".to_owned(),
    ] {
        let said = sandbox.shell(&line);
        let error = said.fails_with(1);
        assert!(error.contains("error: cannot write to standard output\ncaused by: "), "{line}: {said:#?}");
        assert!(!error.contains("panicked"), "{line}: {said:#?}");
    }

    assert_unmoved(&sandbox, &pid);
    sandbox.stop().quietly();
    gateway.assert_nothing_owed();
}

#[test]
fn a_closed_standard_output_or_error_changes_no_outcome() {
    let gateway = FakeGateway::start();
    let (sandbox, pid) = warm(&gateway);

    for (line, code) in [
        ("ghost-browser run -e 'print(1)' >&-", 0),
        ("ghost-browser run -e 'throw 1' 2>&-", 1),
        ("ghost-browser run -e 'let x = ;' 2>/dev/full", 2),
        ("ghost-browser run -e 'debug(1); 2' 2>/dev/full", 0),
        ("ghost-browser run -e '1' <&- >&- 2>&-", 0),
    ] {
        let said = sandbox.shell(line);
        assert_eq!(said.code, Some(code), "{line}: {said:#?}");
        assert!(!said.stderr.contains("panicked"), "{line}: {said:#?}");
    }

    assert_unmoved(&sandbox, &pid);
    sandbox.stop().quietly();
    gateway.assert_nothing_owed();
}

#[test]
fn the_other_commands_never_panic_where_nobody_reads() {
    let gateway = FakeGateway::start();
    let (sandbox, pid) = warm(&gateway);

    for command in
        ["status", "status --json", "status --all", "skill", "--help", "run --help", "--version", "workspace"]
    {
        for end in [">/dev/full", ">&-", "| true"] {
            let said = sandbox.shell(&format!("ghost-browser {command} {end}"));
            assert!(!said.stderr.contains("panicked"), "{command} {end}: {said:#?}");
            assert!(matches!(said.code, Some(0 | 1)), "{command} {end}: {said:#?}");
        }
    }

    assert_unmoved(&sandbox, &pid);
    let said = sandbox.shell("ghost-browser stop >/dev/full");
    assert!(!said.stderr.contains("panicked"), "{said:#?}");
    gateway.assert_nothing_owed();
}
