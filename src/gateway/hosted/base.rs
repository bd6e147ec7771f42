//! The gateway's address: what it may be, and what is said in its name.

use std::fmt;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use url::Url;

use crate::proxy;
use crate::redact::is_credential;
use crate::secret::Secret;
use crate::wire::{Fault, FaultCode};

/// Everything but RFC 3986's unreserved characters.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// A gateway's base URL that passed the refusals. Its query may hold a token, so it is shown by its host only.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Secret", into = "Secret")]
pub struct BaseUrl(Url);

impl BaseUrl {
    /// Takes `text` for a base URL. `setting` is what a refusal calls it.
    ///
    /// # Errors
    /// `setting`: no HTTP(S) URL with a host, a user name in it, or plain `http` beyond this machine.
    pub fn parse(text: &str, setting: &str) -> Result<Self, Fault> {
        let refuse = |what: &str| {
            Fault::new(FaultCode::Setting, format!("{setting} {what}"))
                .hint(format!("set {setting}=https://HOST, or GHOST_GATEWAY_URL=local for a Chromium on this machine"))
        };
        let mut url = Url::parse(text.trim()).map_err(|_| refuse("must be an https URL with a host"))?;
        url.set_fragment(None);
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
            return Err(refuse("must be an https URL with a host"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(refuse("must not contain a user name or a password"));
        }
        if url.scheme() == "http" && !proxy::is_loopback(&url) {
            return Err(refuse("must use https: plain http is for loopback only"));
        }
        Ok(Self(url))
    }

    /// The host, with its port where one is named.
    pub fn host(&self) -> String {
        authority(&self.0)
    }

    /// Whether the gateway runs on this machine.
    pub fn is_loopback(&self) -> bool {
        proxy::is_loopback(&self.0)
    }

    /// The URL without its query: what a session's key is made from.
    pub fn without_query(&self) -> String {
        let mut url = self.0.clone();
        url.set_query(None);
        url.into()
    }

    /// The token that counts: the URL's own, else the `caller`'s.
    pub fn effective_token(&self, caller: Option<&Secret>) -> Option<Secret> {
        let caller = || caller.filter(|token| !token.expose().is_empty()).cloned();
        token_of(&self.0).or_else(caller)
    }

    /// The credentials in the URL's query.
    pub fn secrets(&self) -> Vec<Secret> {
        credentials(&self.0)
    }

    pub(super) fn url(&self) -> &Url {
        &self.0
    }

    /// The URL of `path` (which begins with a slash and is encoded) under this base, with the token that counts.
    pub(super) fn endpoint(&self, path: &str, caller: Option<&Secret>) -> Secret {
        let url = &self.0;
        let prefix = url.path().trim_end_matches('/');
        let (scheme, authority) = (url.scheme(), authority(url));
        let token = match token_of(url) {
            Some(_) => None,
            None => caller,
        };
        let query = query(url.query(), token);
        Secret::new(format!("{scheme}://{authority}{prefix}{path}{query}"))
    }
}

impl fmt::Debug for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BaseUrl").field(&self.host()).finish()
    }
}

impl TryFrom<Secret> for BaseUrl {
    type Error = Fault;

    fn try_from(text: Secret) -> Result<Self, Fault> {
        Self::parse(text.expose(), "GHOST_GATEWAY_URL")
    }
}

impl From<BaseUrl> for Secret {
    fn from(base: BaseUrl) -> Self {
        Self::new(base.0.into())
    }
}

/// `text` as one segment of a path, encoded once. A segment of dots would otherwise be taken for a direction.
pub(super) fn segment(text: &str) -> String {
    match text {
        "." | ".." => text.replace('.', "%2E"),
        _ => utf8_percent_encode(text, ENCODED).to_string(),
    }
}

/// The value of the query's first `token`; an empty one is none.
pub(super) fn token_of(url: &Url) -> Option<Secret> {
    let (_, token) = url.query_pairs().find(|(name, value)| name == "token" && !value.is_empty())?;
    Some(Secret::new(token.into_owned()))
}

/// A query, with its question mark, of what was there and a token.
pub(super) fn query(own: Option<&str>, token: Option<&Secret>) -> String {
    let token = token.map(|token| format!("token={}", segment(token.expose())));
    // An empty token is none, and would stand before the one that counts.
    let kept = |own: &str| {
        own.split('&').filter(|pair| !matches!(*pair, "" | "token" | "token=")).collect::<Vec<_>>().join("&")
    };
    let own = own.map(kept).filter(|own| !own.is_empty());
    match (own, token) {
        (Some(own), Some(token)) => format!("?{own}&{token}"),
        (Some(only), None) | (None, Some(only)) => format!("?{only}"),
        (None, None) => String::new(),
    }
}

/// The values of a query's parameters that are named like credentials.
pub(super) fn credentials(url: &Url) -> Vec<Secret> {
    url.query_pairs()
        .filter(|(name, value)| is_credential(name) && !value.is_empty())
        .map(|(_, value)| Secret::new(value.into_owned()))
        .collect()
}

/// Host and port, without a user name.
pub(super) fn authority(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}
