//! What a client asks of the daemon.

use serde::{Deserialize, Serialize};

use super::Fault;
use crate::secret::Secret;

/// One request. A session of lines has one `Run` after the `Done` of the last, and `Stop` between two. A connection opens with `Hello`, then carries one of the others (`Cancel` and `Secret` belong to a running `Run`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Request {
    /// Who speaks. Frozen.
    Hello {
        /// [`super::PROTOCOL`] of the speaker.
        protocol: u32,
        /// [`super::BUILD`] of the speaker.
        build: String,
    },
    /// Runs a script.
    Run(Box<Run>),
    /// Ends the script of this connection; its `Done` still comes.
    Cancel,
    /// Answers the script of this connection, which asked for a secret.
    Secret {
        /// Its name.
        name: String,
        /// What is told.
        answer: SecretAnswer,
    },
    /// Asks for the state. Frozen.
    Status,
    /// Releases every browser of this session and ends the daemon. Frozen. Where this connection has run lines, the
    /// daemon stays for their variables.
    Stop,
    /// A request of a newer build.
    #[serde(other)]
    Unknown,
}

/// What a script that asked for a secret is told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SecretAnswer {
    /// It may use it.
    Granted(Granted),
    /// It may not, or there is no such secret.
    Refused(Fault),
}

/// A secret that a script may use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Granted {
    /// Its value.
    pub value: Secret,
    /// The only origin whose pages it is given to.
    pub origin: Option<String>,
}

/// One script and whose it is.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Run {
    /// The source text, whole.
    pub source: String,
    /// What errors call the source: `stdin`, `-e`, or the path as it was typed.
    pub origin: String,
    /// The script's `args`.
    pub args: Vec<String>,
    /// The caller's working directory, as raw bytes: relative paths start here.
    pub cwd: Vec<u8>,
    /// The caller's umask: files that the script writes get `0666` minus it.
    pub umask: u32,
    /// How long the whole call may still take, cold start included, in milliseconds.
    pub timeout_ms: Option<u64>,
    /// Whether everything is released when the script has ended, however it ended.
    pub stop: bool,
    /// The digest of the caller's effective token; `None` without one. Another digest than the daemon's is refused.
    pub credential: Option<String>,
    /// The digest of the settings that the daemon keeps from its starter; a difference is worth a warning.
    pub settings: String,
    /// The number of the source's first line in a session of lines: what it defines is there for the next `Run` of
    /// this connection, and its value is told by `Done` only. `None`: a script by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}
