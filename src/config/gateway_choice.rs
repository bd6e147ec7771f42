//! Which source of browsers is meant, and what its base URL tells without being dialled.
//!
//! Whether a base URL may be used at all is for the hosted Gateway to say.

use serde::{Deserialize, Serialize};
use url::Url;

use super::{Lookup, bad, variables::Variables};
use crate::secret::Secret;
use crate::wire::Fault;

const HOSTED: &str = "https://straightforward-under--ghost-gateway.apify.actor";
const LOCAL: &str = "local";
const FORM: &str = "expected an https:// URL with a host, or `local`";

/// Where browsers come from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum GatewayChoice {
    /// A Chromium of this machine.
    Local,
    /// A Gateway over HTTP.
    Hosted {
        /// Its base URL as it was set; the query may hold credentials.
        base: Secret,
        /// Its host, and its port where one is set: what may be shown.
        host: String,
        /// The variable that named it; `None` for the built-in one.
        variable: Option<String>,
    },
}

impl GatewayChoice {
    /// Reads the variables that choose it, and no others.
    ///
    /// # Errors
    /// [`FaultCode::Setting`](crate::wire::FaultCode::Setting) for a base URL that is none.
    pub fn from_env(lookup: Lookup) -> Result<Self, Fault> {
        read(&Variables(lookup))
    }

    /// What `status` calls it: the host, or `local`.
    pub fn display_name(&self) -> &str {
        match self {
            Self::Local => LOCAL,
            Self::Hosted { host, .. } => host,
        }
    }
}

/// The value that counts, and the variable it is from.
fn chosen(variables: &Variables) -> (String, Option<&'static str>) {
    for name in ["GHOST_GATEWAY_URL", "GHOST_STANDBY_URL"] {
        if let Some(value) = variables.raw(name) {
            return (value.to_string_lossy().into_owned(), Some(name));
        }
    }
    (HOSTED.to_owned(), None)
}

pub(super) fn read(variables: &Variables) -> Result<GatewayChoice, Fault> {
    let (value, variable) = chosen(variables);
    if value == LOCAL {
        return Ok(GatewayChoice::Local);
    }
    let host =
        Url::parse(&value).ok().filter(|url| matches!(url.scheme(), "http" | "https")).and_then(|url| host_of(&url));
    match host {
        Some(host) => {
            Ok(GatewayChoice::Hosted { base: Secret::new(value), host, variable: variable.map(str::to_owned) })
        }
        None => Err(bad(variable.unwrap_or("GHOST_GATEWAY_URL"), FORM)),
    }
}

fn host_of(url: &Url) -> Option<String> {
    let host = url.host_str()?;
    Some(match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    })
}

/// The gateway as a session key knows it: how the same base can be written differently is evened out.
pub(super) fn key(variables: &Variables) -> String {
    let (value, _) = chosen(variables);
    match Url::parse(&value) {
        Ok(mut url) => {
            url.set_query(None);
            url.set_fragment(None);
            url.as_str().trim_end_matches('/').to_owned()
        }
        Err(_) => value,
    }
}

/// The token that a base URL carries itself.
pub(super) fn token_of(base: &Secret) -> Option<Secret> {
    let url = Url::parse(base.expose()).ok()?;
    let mut pairs = url.query_pairs();
    let (_, token) = pairs.find(|(name, value)| name == "token" && !value.is_empty())?;
    Some(Secret::new(token.into_owned()))
}
