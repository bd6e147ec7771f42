//! The one error that crosses the socket, and the one table that says what each code means to
//! a shell, an HTTP client, an MCP client and a script.
//!
//! The doors that are there read the first and the last of them; the table is whole, so that a door for HTTP or MCP takes
//! its column from here and decides nothing of its own.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// What went wrong, for whoever asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    /// Which kind; decides the exit code.
    pub code: FaultCode,
    /// A lowercase fragment that names the thing, what was expected and what was seen.
    pub message: String,
    /// What to type next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// More that is known, by name: `caused_by`, `method`, `cdp_code`, `data`, `line`, `column`, `stack`, `url`, `source`, …
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub context: BTreeMap<String, serde_json::Value>,
}

impl Fault {
    /// A fault with a message and nothing else.
    pub fn new(code: FaultCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None, context: BTreeMap::new() }
    }

    /// Adds what to type next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds one named fact.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<serde_json::Value>) -> Self {
        self.context.insert(name.to_owned(), value.into());
        self
    }

    /// Takes the message of `error` and the chain of its sources, each told once.
    #[must_use]
    pub fn caused_by(self, error: &dyn std::error::Error) -> Self {
        let mut chain = vec![error.to_string()];
        let mut next = error.source();
        while let Some(source) = next {
            chain.push(source.to_string());
            next = source.source();
        }
        self.with("caused_by", chain)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Fault {}

/// Declares the codes and their four columns at once, so that none can be left out.
macro_rules! fault_codes {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, exit $exit:literal, http $http:literal, mcp $mcp:literal;)*) => {
        /// The kinds of failure. One table: exit code, HTTP status, MCP error, the script's `err.code`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum FaultCode {
            $($(#[$doc])* #[serde(rename = $name)] $variant,)*
            /// A code of a newer build.
            #[serde(other, rename = "unknown")]
            Unknown,
        }

        impl FaultCode {
            /// Every code of this build.
            pub const ALL: &[FaultCode] = &[$(FaultCode::$variant),*];

            /// The name: what a script sees as `err.code`.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* Self::Unknown => "unknown" }
            }

            /// The exit code of a command that ends with it.
            pub fn exit_code(self) -> u8 {
                match self { $(Self::$variant => $exit,)* Self::Unknown => 1 }
            }

            /// The HTTP status of an answer that carries it.
            pub fn http_status(self) -> u16 {
                match self { $(Self::$variant => $http,)* Self::Unknown => 500 }
            }

            /// The JSON-RPC error code of an MCP answer that carries it.
            pub fn mcp_error(self) -> i32 {
                match self { $(Self::$variant => $mcp,)* Self::Unknown => -32603 }
            }
        }
    };
}

fault_codes! {
    /// The script threw, or broke a rule of the language.
    ScriptError = "script_error", exit 1, http 422, mcp -32000;
    /// The browser refused a command.
    CdpError = "cdp_error", exit 1, http 422, mcp -32000;
    /// An exception in the page, or a value that cannot be told.
    JsError = "js_error", exit 1, http 422, mcp -32000;
    /// Parameters that cannot be JSON, or the wrong kind of argument.
    BadParams = "bad_params", exit 1, http 422, mcp -32602;
    /// Not allowed: a path outside the workspace, a secret that is not listed.
    Denied = "denied", exit 1, http 403, mcp -32000;
    /// A limit of the engine: memory, depth, size.
    Limit = "limit", exit 1, http 422, mcp -32000;
    /// `--timeout` ran out.
    Deadline = "deadline", exit 1, http 504, mcp -32001;
    /// A wait ended, or `js` was ended.
    Timeout = "timeout", exit 1, http 504, mcp -32001;
    /// The command was not written: it never ran.
    Disconnected = "disconnected", exit 1, http 502, mcp -32000;
    /// A dialog blocks the page.
    DialogOpen = "dialog_open", exit 1, http 409, mcp -32000;
    /// The page's target is no more.
    TargetGone = "target_gone", exit 1, http 410, mcp -32000;
    /// The page's renderer crashed.
    PageCrashed = "page_crashed", exit 1, http 502, mcp -32000;
    /// The page's thread does not answer.
    PageUnresponsive = "page_unresponsive", exit 1, http 504, mcp -32000;
    /// A reference to something that the page replaced.
    StaleRef = "stale_ref", exit 1, http 410, mcp -32000;
    /// Standard output could not be written.
    Output = "output", exit 1, http 500, mcp -32000;
    /// The command was handed over and no answer came: it may have run.
    OutcomeUnknown = "outcome_unknown", exit 4, http 504, mcp -32002;
    /// The command line is wrong.
    Usage = "usage", exit 2, http 400, mcp -32602;
    /// The script does not parse.
    Syntax = "syntax", exit 2, http 400, mcp -32602;
    /// A setting is wrong or missing.
    Setting = "setting", exit 2, http 400, mcp -32602;
    /// There is no browser to be had.
    NoBrowser = "no_browser", exit 3, http 503, mcp -32003;
    /// A browser's release is not confirmed: it may still be billed.
    ReleaseUnconfirmed = "release_unconfirmed", exit 5, http 500, mcp -32004;
    /// Another credential owns this session.
    OtherCredential = "other_credential", exit 6, http 403, mcp -32005;
    /// Interrupted, or ended by `stop`.
    Cancelled = "cancelled", exit 130, http 499, mcp -32006;
    /// A fault of this program.
    Internal = "internal", exit 1, http 500, mcp -32603;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_crosses_the_wire_under_the_name_that_scripts_see() {
        for &code in FaultCode::ALL {
            let text = serde_json::to_string(&code).unwrap();

            assert_eq!(text, format!("\"{}\"", code.name()));
            assert_eq!(serde_json::from_str::<FaultCode>(&text).unwrap(), code);
        }
    }

    #[test]
    fn a_code_of_a_newer_build_is_read_as_unknown() {
        assert_eq!(serde_json::from_str::<FaultCode>("\"later\"").unwrap(), FaultCode::Unknown);
    }
}
