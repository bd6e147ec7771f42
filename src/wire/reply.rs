//! What the daemon answers.

use serde::{Deserialize, Serialize};

use super::Fault;

/// One answer. `Run` is answered by `Accepted`, any number of `Progress` and `Output`, `Done`, and with `stop` by `Stopped`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Reply {
    /// Who answers. Frozen.
    Hello {
        /// [`super::PROTOCOL`] of the daemon.
        protocol: u32,
        /// [`super::BUILD`] of the daemon.
        build: String,
        /// Its process.
        pid: u32,
    },
    /// The script is the daemon's from here on: a connection that ends later leaves its outcome unknown.
    Accepted,
    /// What the caller is waiting for.
    Progress {
        /// What is being done.
        phase: Phase,
        /// For how long, in milliseconds.
        elapsed_ms: u64,
        /// What holds it up, where it is known.
        #[serde(default)]
        why: Option<String>,
    },
    /// What the script wrote, as soon as it wrote it.
    Output {
        /// Where it belongs.
        stream: Stream,
        /// The text, with its newline.
        text: String,
    },
    /// The script asks for a secret: [`super::Request::Secret`] is the answer.
    NeedSecret {
        /// Its name.
        name: String,
    },
    /// The script has ended.
    Done(Box<Done>),
    /// The state. Frozen.
    Status(Box<Status>),
    /// What `Stop` came to. Frozen.
    Stopped(Box<Stopped>),
    /// The request was refused. Frozen.
    Refused(Fault),
    /// An answer of a newer build.
    #[serde(other)]
    Unknown,
}

/// What a daemon says to its starter, once, before it closes that pipe.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ready {
    /// It listens.
    Listening,
    /// It will not start.
    Refused(Fault),
}

/// What keeps a caller waiting before its script runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// An earlier browser's release is tried once more.
    Releasing,
    /// The gateway has been asked for a browser.
    Allocating,
    /// The browser is there and the connection is being made.
    Connecting,
    /// The script runs: the wait is over. Said only after another phase was.
    Running,
    /// A phase of a newer build.
    #[serde(other)]
    Unknown,
}

/// Where output belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    /// `print`, and the value of the last expression.
    Stdout,
    /// `debug`.
    Stderr,
}

/// How a script ended.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Done {
    /// The script's value as JSON text; `None` for `()`. It was also sent as output. That of a session's line was not,
    /// and is cut where it is long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Whether there is a value that is too long to be told here.
    #[serde(default)]
    pub value_is_left_out: bool,
    /// Why it failed; `None` when it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
    /// What the caller should know whatever the outcome, one sentence each.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// What has happened in the browser meanwhile; `None` for a script that had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aftermath: Option<Box<Aftermath>>,
}

/// What has happened in the browser while a script ran, whoever caused it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aftermath {
    /// Where the script's page was when it began to use it; `None` where it used none, or that is not known.
    pub start_url: Option<String>,
    /// Where it was at the end.
    pub end_url: Option<String>,
    /// Documents that pages went to.
    pub navigations: u64,
    /// Dialogs that opened.
    pub dialogs: u64,
    /// Events that there was no room for.
    pub events_dropped: u64,
    /// Exceptions that pages did not catch; `None` where the script has not enabled `Runtime`.
    pub page_errors: Option<u64>,
    /// `console.error` and the like; `None` likewise.
    pub console_errors: Option<u64>,
}

/// What `Stop` came to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Stopped {
    /// Browsers whose release was confirmed by this stop.
    pub released: u32,
    /// One fault for each browser whose release is not confirmed.
    #[serde(default)]
    pub unconfirmed: Vec<Fault>,
}

/// The state of a session, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StatusState {
    /// No daemon, nothing owed.
    Stopped,
    /// Asking for a browser, or connecting to it.
    Starting,
    /// A browser is held.
    Connected,
    /// A browser that is no longer wanted is being given back.
    Stopping,
    /// A release failed; it is held and tried again.
    ReleaseFailed,
    /// A release that nothing can try again.
    ReleaseUnknown,
    /// A state of a newer build.
    #[serde(other)]
    Unknown,
}

/// What `status` tells.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The first word.
    pub state: StatusState,
    /// The gateway's host, or `local`.
    pub gateway: String,
    /// The daemon's process; `None` without one.
    pub pid: Option<u32>,
    /// The keeper's process; only while it holds the capability to release.
    pub keeper_pid: Option<u32>,
    /// Seconds in this state.
    pub since_s: f64,
    /// Seconds until an idle browser is released; `None` while it is not idle.
    pub idle_remaining_s: Option<f64>,
    /// Scripts that run now.
    pub scripts: u32,
    /// CDP commands that scripts sent, since the browser was allocated.
    pub calls: u64,
    /// Events in the buffer.
    pub events_buffered: u64,
    /// Events that the buffer had no room for.
    pub events_dropped: u64,
    /// The workspace root, lossily as text.
    pub workspace: String,
    /// The session's name.
    pub name: String,
    /// The daemon's build.
    pub version: String,
    /// Debts beside the state: releases that are not confirmed, one sentence each.
    #[serde(default)]
    pub debts: Vec<String>,
}
