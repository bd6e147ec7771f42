//! Why a call failed, and the one place where the browser's own messages are understood.

use std::time::Duration;

use crate::ids::{SessionId, TargetId};
use crate::wire::FaultCode;

/// Why a connection ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    /// We closed it, and the peer agreed.
    #[error("it was closed")]
    Normal,
    /// The peer closed its WebSocket.
    #[error("the browser's side closed the WebSocket (code {0})")]
    Peer(u16),
    /// The stream ended without a word.
    #[error("the browser's side hung up")]
    HungUp,
    /// The operating system's word.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// The peer broke the WebSocket protocol, or a frame was over the cap.
    #[error("the browser's side broke the protocol: {0}")]
    Protocol(String),
    /// Nothing came, not even an answer to a question.
    #[error("the browser has been silent for {0:?}")]
    Silent(Duration),
}

/// Why a WebSocket could not be opened. Never names the URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DialError {
    /// No TCP connection.
    #[error("browser connection failed: {0}")]
    Connect(String),
    /// TLS was refused.
    #[error("browser connection failed: TLS: {0}")]
    Tls(String),
    /// The handshake was answered by something else than 101.
    #[error("browser connection failed: HTTP {0}")]
    Status(u16),
    /// The handshake was answered by nothing that makes sense.
    #[error("browser connection failed: invalid WebSocket handshake")]
    Handshake,
    /// The handshake took too long.
    #[error("browser connection failed: timed out")]
    TimedOut,
    /// Nobody wants the connection any more.
    #[error("browser connection given up")]
    Abandoned,
}

/// Why a call, or a wait on the connection, failed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CallError {
    /// The browser said no.
    #[error("{method}: {message}{}", data.as_deref().map(|data| format!(": {data}")).unwrap_or_default())]
    Refused {
        /// The command.
        method: String,
        /// The session it was sent to; `None` for the browser itself.
        session: Option<SessionId>,
        /// CDP's error code.
        code: i64,
        /// CDP's message.
        message: String,
        /// CDP's `data`, as text.
        data: Option<String>,
    },
    /// The session is not known to the browser: the command did not run.
    #[error("{method}: session {session} not found")]
    SessionGone {
        /// The command.
        method: String,
        /// The session that is no more.
        session: SessionId,
    },
    /// The command was handed over, and its deadline passed.
    #[error("{method}: no reply within {}; the outcome is unknown", seconds(*waited))]
    NoReply {
        /// The command.
        method: String,
        /// How long it was waited for.
        waited: Duration,
    },
    /// The command was not handed over by its deadline: it never ran.
    #[error("{method}: not sent within {}: the browser takes no data", seconds(*waited))]
    NotWritten {
        /// The command.
        method: String,
        /// How long it was waited for.
        waited: Duration,
    },
    /// The connection is gone, or went while the call was pending.
    #[error("{method}: {reason}{}", if *written { "; the outcome is unknown" } else { "; the command was not sent" })]
    Closed {
        /// The command.
        method: String,
        /// Whether it had been handed over.
        written: bool,
        /// Why the connection ended.
        reason: CloseReason,
    },
    /// The page went away, or to another renderer, while the call was pending.
    #[error("{method}: the page navigated, or was closed, before it answered; the outcome is unknown")]
    Detached {
        /// The command.
        method: String,
    },
    /// A wait that was not for a reply ended.
    #[error("{what}: not within {}", seconds(*waited))]
    TimedOut {
        /// What was waited for.
        what: String,
        /// How long.
        waited: Duration,
    },
    /// The target is no more.
    #[error("the page {0} is gone")]
    TargetGone(TargetId),
    /// The page's renderer crashed.
    #[error("{method}: the page crashed")]
    PageCrashed {
        /// The command.
        method: String,
    },
    /// The page's thread answers nothing.
    #[error("{what}: the page does not respond")]
    PageUnresponsive {
        /// What was asked of it.
        what: String,
    },
    /// A dialog blocks the page.
    #[error("{method}: the page is blocked by an open dialog: {kind} {message:?}")]
    DialogOpen {
        /// The command.
        method: String,
        /// `alert`, `confirm`, `prompt` or `beforeunload`.
        kind: String,
        /// Its text.
        message: String,
    },
    /// The script is being ended.
    #[error("cancelled")]
    Cancelled,
}

impl CallError {
    /// The kind that crosses to scripts and shells.
    pub fn code(&self) -> FaultCode {
        match self {
            Self::Refused { .. } => FaultCode::CdpError,
            Self::SessionGone { .. } | Self::TargetGone(_) => FaultCode::TargetGone,
            Self::NoReply { .. } | Self::Detached { .. } | Self::Closed { written: true, .. } => {
                FaultCode::OutcomeUnknown
            }
            Self::NotWritten { .. } | Self::Closed { written: false, .. } => FaultCode::Disconnected,
            Self::TimedOut { .. } => FaultCode::Timeout,
            Self::PageCrashed { .. } => FaultCode::PageCrashed,
            Self::PageUnresponsive { .. } => FaultCode::PageUnresponsive,
            Self::DialogOpen { .. } => FaultCode::DialogOpen,
            Self::Cancelled => FaultCode::Cancelled,
        }
    }

    /// What to type next.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::SessionGone { .. } => "`ensure_page(target_id)` attaches anew to a page that is in `tabs()`",
            Self::TargetGone(_) => "`ensure_page(\"new\")` opens a page, `tabs()` lists those that are open",
            Self::NoReply { .. } => "look before repeating it; `#{timeout_ms: …}` as fourth argument waits longer",
            Self::Detached { .. } => "look at `tabs()` before repeating it",
            Self::Closed { .. } | Self::NotWritten { .. } => "the next call gets a new browser",
            Self::PageCrashed { .. } => {
                "`Page.navigate` or `Page.reload` revives the page, `ensure_page(\"new\")` opens another"
            }
            Self::PageUnresponsive { .. } => "`Page.navigate` elsewhere, or `Target.closeTarget`",
            Self::DialogOpen { .. } => "answer it: cdp(\"Page.handleJavaScriptDialog\", #{accept: true}, page)",
            Self::Refused { .. } | Self::TimedOut { .. } | Self::Cancelled => return None,
        })
    }
}

/// Understands the browser's refusal of `method`.
pub(super) fn refused(method: &str, session: Option<&SessionId>, refusal: Refusal) -> CallError {
    let method = method.to_owned();
    match (refusal.code, session) {
        // The one answer that proves that nothing ran.
        (-32001, Some(session)) => CallError::SessionGone { method, session: session.clone() },
        (-32000, _) if refusal.message == "Inspected target navigated or closed" => CallError::Detached { method },
        (code, _) => {
            let Refusal { message, data, .. } = refusal;
            CallError::Refused { method, session: session.cloned(), code, message, data }
        }
    }
}

/// CDP's `error` object.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Refusal {
    pub(super) code: i64,
    pub(super) message: String,
    pub(super) data: Option<String>,
}

fn seconds(length: Duration) -> String {
    format!("{} s", (length.as_secs_f64() * 1000.0).round() / 1000.0)
}
