//! What a failure is called: the step, then the status or the kind of error, and nothing that came over the wire.

use std::fmt;
use std::io;

use crate::wire::{Fault, FaultCode};

/// What was being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    SessionCreation,
    Allocation,
    Release,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SessionCreation => "gateway session creation",
            Self::Allocation => "gateway allocation",
            Self::Release => "gateway release",
        })
    }
}

impl Step {
    /// `gateway allocation failed: HTTP 401`.
    pub(super) fn failed(self, code: FaultCode, why: Why) -> Fault {
        let fault = Fault::new(code, format!("{self} failed: {why}"));
        match (why.hint(), code) {
            (Some(hint), _) => fault.hint(hint),
            (None, _) if self == Self::Release => fault.hint(RETRIED),
            (None, FaultCode::ReleaseUnconfirmed) => fault.hint(UNKNOWN),
            (None, _) => fault,
        }
    }

    /// `gateway allocation returned an invalid response`.
    pub(super) fn invalid(self, code: FaultCode) -> Fault {
        let fault = Fault::new(code, format!("{self} returned an invalid response"));
        match code {
            FaultCode::ReleaseUnconfirmed => fault.hint(UNKNOWN),
            _ => fault,
        }
    }
}

const RETRIED: &str =
    "the browser may still be running and billed: the release is tried again, and `ghost-browser stop` tries at once";

const UNKNOWN: &str = "a browser may be running and billed, and nothing here can release it: look into the gateway's own console; \
     `ghost-browser stop` tells this once more and then forgets it";

/// Why it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    Status(u16),
    TimedOut,
    Refused,
    Unreachable,
    NotFound,
    Tls,
    Proxy,
    Reset,
    Closed,
    NotHttp,
    Abandoned,
    Other,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Status(status) => return write!(f, "HTTP {status}"),
            Self::TimedOut => "timed out",
            Self::Refused => "connection refused",
            Self::Unreachable => "network unreachable",
            Self::NotFound => "host not found",
            Self::Tls => "TLS",
            Self::Proxy => "proxy",
            Self::Reset => "connection reset",
            Self::Closed => "connection closed",
            Self::NotHttp => "not an HTTP response",
            Self::Abandoned => "cancelled",
            Self::Other => "connection failed",
        })
    }
}

impl Why {
    fn hint(self) -> Option<&'static str> {
        match self {
            Self::Status(401 | 403) => Some("check APIFY_TOKEN: the gateway did not accept it"),
            Self::NotFound | Self::Refused => Some("check GHOST_GATEWAY_URL, and that the network can be reached"),
            Self::Proxy => Some("check HTTPS_PROXY, ALL_PROXY and NO_PROXY"),
            _ => None,
        }
    }
}

impl From<&ureq::Error> for Why {
    fn from(error: &ureq::Error) -> Self {
        match error {
            ureq::Error::Timeout(_) => Self::TimedOut,
            ureq::Error::HostNotFound => Self::NotFound,
            ureq::Error::Tls(_) | ureq::Error::Rustls(_) | ureq::Error::Pem(_) => Self::Tls,
            ureq::Error::ConnectProxyFailed(_) | ureq::Error::InvalidProxyUrl => Self::Proxy,
            ureq::Error::Protocol(_) | ureq::Error::LargeResponseHeader(..) => Self::NotHttp,
            ureq::Error::Io(error) => error.into(),
            _ => Self::Other,
        }
    }
}

impl From<&io::Error> for Why {
    fn from(error: &io::Error) -> Self {
        let inner = error.get_ref();
        if inner.is_some_and(|inner| inner.is::<rustls::Error>()) {
            return Self::Tls;
        }
        match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Self::TimedOut,
            io::ErrorKind::ConnectionRefused => Self::Refused,
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Self::Reset,
            io::ErrorKind::ConnectionAborted => Self::Reset,
            io::ErrorKind::UnexpectedEof => Self::Closed,
            io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => Self::Unreachable,
            // What the resolver says has no kind and no number of the system.
            _ if inner.is_some() && error.to_string().contains("lookup address") => Self::NotFound,
            _ => Self::Other,
        }
    }
}
