//! A script on standard input, in every shape that it comes in.

use std::io::Write;
use std::process::Stdio;
use std::thread;

use super::terminal::Terminal;
use crate::support::{FakeGateway, Running, Sandbox, ms};

/// Runs the binary and writes `parts` to its standard input, with a pause after each.
fn fed(sandbox: &Sandbox, parts: impl IntoIterator<Item = Vec<u8>>, pause_ms: u64) -> crate::support::Said {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let mut command = sandbox.command([] as [&str; 0]);
    command.stdin(reader);
    let running = Running::start(command, Vec::new());
    for part in parts {
        writer.write_all(&part).unwrap();
        // The shape is the promise: bytes that come apart in time.
        thread::sleep(ms(pause_ms));
    }
    drop(writer);
    running.wait()
}

#[test]
fn text_is_text_with_a_mark_with_other_line_ends_or_without_the_last() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);

    for (text, printed) in [
        ("\u{feff}print(1)\n", "1"),
        ("print(1);\r\nprint(2)\r\n", "1\n2"),
        ("\u{feff}#!/usr/bin/env ghost-browser\r\nprint(3)\r\n", "3"),
        ("print(\"\u{1f600}\u{e9}\")", "\u{1f600}\u{e9}"),
    ] {
        assert_eq!(sandbox.script(text).quietly(), printed, "{text:?}");
    }

    sandbox.stop().quietly();
    gateway.assert_nothing_owed();
}

#[test]
fn a_character_that_comes_in_two_reads_is_one_character() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    let text = "print(\"\u{1f600}\")".as_bytes();

    let parts = [&text[..9], &text[9..]].map(<[u8]>::to_vec);

    assert_eq!(fed(&sandbox, parts, 100).quietly(), "\u{1f600}");
    sandbox.stop().quietly();
    gateway.assert_nothing_owed();
}

#[test]
fn a_script_that_comes_a_byte_at_a_time_runs_once_it_is_whole() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);

    let said = fed(&sandbox, b"print(7)".map(|byte| vec![byte]), 100);

    assert_eq!(said.quietly(), "7");
    sandbox.stop().quietly();
    gateway.assert_nothing_owed();
}

#[test]
fn what_is_no_text_is_refused_with_the_place() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);

    for (bytes, place) in [
        (&b"print(1)\n\xff"[..], "bad UTF-8 at byte 9"),
        (b"\xff\xfep\0", "a NUL at byte 3"),
        (b"print(\"\0\")", "a NUL at byte 7"),
        (b"print(\"\xf0\x9f\x98", "bad UTF-8 at byte 7"),
    ] {
        let said = sandbox.script(bytes);
        assert!(said.fails_with(2).contains(place), "{said:#?}");
    }

    assert_eq!(gateway.requests(), 0);
    sandbox.assert_untouched();
}

#[test]
fn four_megabytes_in_one_line_are_refused_by_their_size() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);

    let said = sandbox.script(vec![b'1'; 4 << 20]);

    assert!(said.fails_with(2).contains("over the limit of 131072 bytes"), "{said:#?}");
    assert_eq!(gateway.requests(), 0);
    sandbox.assert_untouched();
}

#[test]
fn nothing_on_standard_input_is_a_usage_error() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);

    for line in [
        "ghost-browser </dev/null",
        "ghost-browser <&-",
        "printf '' | ghost-browser",
        "printf '\\n \\r\\n' | ghost-browser",
    ] {
        let said = sandbox.shell(line);
        assert!(said.fails_with(2).contains("no script to run"), "{line}: {said:#?}");
        assert!(said.stderr.contains("Usage"), "{line}: {said:#?}");
    }

    assert_eq!(gateway.requests(), 0);
    sandbox.assert_untouched();
}

#[test]
fn a_folder_on_standard_input_is_a_usage_error() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);

    let said = sandbox.shell("ghost-browser </");

    assert!(said.fails_with(2).contains("cannot read the script stdin"), "{said:#?}");
    assert_eq!(gateway.requests(), 0);
}

#[test]
fn a_terminal_on_standard_input_prints_how_to_use_it() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    let mut terminal = Terminal::open();

    let call = terminal.run(sandbox.command([] as [&str; 0]));

    terminal.wait_for("standard input is a terminal");
    terminal.wait_for("Usage");
    assert_eq!(call.exit_code(), Some(2));
    assert_eq!(gateway.requests(), 0);
    sandbox.assert_untouched();
}

#[test]
fn an_input_that_never_ends_asks_for_nothing() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    let (reader, mut writer) = std::io::pipe().unwrap();
    let mut command = sandbox.command([] as [&str; 0]);
    command.stdin(reader).stdout(Stdio::null());
    let running = Running::start(command, Vec::new());
    writer.write_all(b"print(1)").unwrap();

    running.signal(nix::sys::signal::Signal::SIGINT);

    running.wait();
    assert_eq!(gateway.requests(), 0);
    sandbox.assert_untouched();
}
