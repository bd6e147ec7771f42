//! An upgrade never strands a browser: daemons of other builds are asked in the words that never change.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use ghost_browser::config::Identity;
use ghost_browser::wire::{read_frame, write_frame};
use ghost_browser::workspace::Session;
use serde_json::{Value, json};

use crate::support::{FakeGateway, Sandbox};

/// A daemon of a build that is not ours.
struct OtherBuild {
    stops: Arc<AtomicU32>,
}

impl OtherBuild {
    /// Takes the place of the daemon of `sandbox`, and tells `state`.
    fn start(sandbox: &Sandbox, state: &str) -> Self {
        let socket = socket_of(sandbox);
        let listener = UnixListener::bind(&socket).unwrap();
        let stops = Arc::new(AtomicU32::new(0));
        let (count, state) = (stops.clone(), state.to_owned());
        thread::spawn(move || {
            for stream in listener.incoming() {
                if talk(stream.unwrap(), &state).is_none() {
                    count.fetch_add(1, Ordering::SeqCst);
                    return;
                }
                assert!(socket.exists());
            }
        });
        Self { stops }
    }

    fn stops(&self) -> u32 {
        self.stops.load(Ordering::SeqCst)
    }
}

fn socket_of(sandbox: &Sandbox) -> PathBuf {
    let command = sandbox.command(["status"]);
    let variable = |name: &str| {
        let found = command.get_envs().find(|(key, _)| *key == name);
        found.and_then(|(_, value)| value).map(ToOwned::to_owned)
    };
    let session = Session::of(&Identity::from_env(&variable), &sandbox.work());
    if !sandbox.state().exists() {
        fs::DirBuilder::new().mode(0o700).create(sandbox.state()).unwrap();
    }
    let socket: &Path = &session.files(&sandbox.state()).socket;
    socket.to_owned()
}

/// Serves one client; `None` once it said stop.
fn talk(mut stream: UnixStream, state: &str) -> Option<()> {
    while let Ok(Some(request)) = read_frame::<Value>(&mut stream) {
        let reply = match request["type"].as_str().unwrap() {
            "hello" => json!({"type": "hello", "protocol": 999, "build": "9.9.9", "pid": 1, "news": [1]}),
            "status" => status(state),
            "stop" => json!({"type": "stopped", "released": 1, "unconfirmed": [], "news": "yes"}),
            other => panic!("not a frozen request: {other}"),
        };
        if request["type"] == "stop" {
            fs::remove_file(stream.local_addr().unwrap().as_pathname().unwrap()).unwrap();
            write_frame(&mut stream, &reply).unwrap();
            return None;
        }
        write_frame(&mut stream, &reply).unwrap();
    }
    Some(())
}

fn status(state: &str) -> Value {
    json!({
        "type": "status", "state": state, "gateway": "gate.example", "pid": 1, "keeper_pid": null, "since_s": 1.5,
        "idle_remaining_s": null, "scripts": 0, "calls": 0, "events_buffered": 0, "events_dropped": 0,
        "workspace": "/w", "name": "default", "version": "9.9.9", "debts": [], "something_new": {"a": 1},
    })
}

#[test]
fn another_builds_daemon_that_holds_a_browser_is_left_alone_but_can_be_looked_at_and_stopped() {
    for state in ["connected", "starting", "release-failed", "a-state-of-the-future"] {
        let gateway = FakeGateway::start();
        let sandbox = Sandbox::of(&gateway);
        let other = OtherBuild::start(&sandbox, state);

        let said = sandbox.script("1");

        let error = said.fails_with(3);
        assert!(error.contains("another build (9.9.9") && error.contains("ghost-browser stop"), "{said:#?}");
        assert_eq!((gateway.requests(), other.stops()), (0, 0));
        let told = sandbox.ghost(["status"]);
        let word = told.quietly().split_whitespace().next();
        assert!(word == Some(state) || word == Some("unknown"), "{told:#?}");
        assert_eq!(sandbox.stop().quietly(), "released browser");
        assert_eq!(sandbox.script("1").quietly(), "1");
        sandbox.stop();
        gateway.assert_nothing_owed();
    }
}

#[test]
fn another_builds_daemon_that_holds_nothing_is_replaced() {
    let gateway = FakeGateway::start();
    let sandbox = Sandbox::of(&gateway);
    let other = OtherBuild::start(&sandbox, "stopped");

    assert_eq!(sandbox.script("1").quietly(), "1");

    assert_eq!((gateway.allocations(), other.stops()), (1, 1));
    sandbox.stop();
    gateway.assert_nothing_owed();
}
