//! Giving a browser back: one `DELETE`, and what its answer proves.

use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use ureq::http::Method;
use url::Url;

use super::allocate::Config;
use super::base;
use super::request::{NoAnswer, Request};
use super::wording::{Step, Why};
use crate::gateway::ReleaseError;
use crate::proxy::Proxies;
use crate::secret::Secret;
use crate::wire::{Fault, FaultCode};

/// All that is needed to release one browser of the hosted Gateway.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Release {
    url: Secret,
    owner: Owner,
    proxies: Proxies,
    secrets: Vec<Secret>,
}

/// Who answers the `DELETE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Owner {
    /// The one server that has this browser: its word counts.
    Exact,
    /// An endpoint that many servers share. It says "gone" of a browser that another one has.
    Shared,
}

impl Release {
    /// For a browser that was granted whole: its own server is asked, by the authority of its WebSocket URL.
    pub(super) fn of_browser(id: &Secret, websocket: &Url, config: &Config) -> Self {
        let token = match base::token_of(websocket) {
            Some(_) => None,
            None => config.base.effective_token(config.token.as_ref()),
        };
        let scheme = if websocket.scheme() == "ws" { "http" } else { "https" };
        let authority = base::authority(websocket);
        let path = path(id);
        let query = base::query(websocket.query(), token.as_ref());
        let mut secrets = vec![id.clone(), Secret::new(websocket.to_string())];
        secrets.extend(base::credentials(websocket));
        Self {
            url: Secret::new(format!("{scheme}://{authority}{path}{query}")),
            owner: Owner::Exact,
            proxies: config.proxies.clone(),
            secrets,
        }
    }

    /// For a browser of which nothing but its id is known: the gateway itself is asked.
    pub(super) fn of_id(id: &Secret, config: &Config) -> Self {
        let owner = match config.base.is_loopback() {
            true => Owner::Exact,
            false => Owner::Shared,
        };
        Self {
            url: config.base.endpoint(&path(id), config.token.as_ref()),
            owner,
            proxies: config.proxies.clone(),
            secrets: vec![id.clone()],
        }
    }

    /// What must not be seen of the browser.
    pub fn secrets(&self) -> &[Secret] {
        &self.secrets
    }

    /// Sends the `DELETE` and waits for its answer until `deadline`. `closed`: the WebSocket was closed normally by both sides, which
    /// is proof already.
    ///
    /// # Errors
    /// [`ReleaseError`], when neither is proof.
    pub fn release(&self, closed: bool, deadline: Instant) -> Result<(), ReleaseError> {
        let request = Request {
            method: Method::DELETE,
            url: &self.url,
            json: None,
            proxies: &self.proxies,
            connect_by: deadline,
            read_by: deadline,
            may_leave: Arc::new(|| true),
        };
        let outcome = request.send().map(|answer| answer.status);
        match closed {
            true => Ok(()),
            false => self.judge(outcome),
        }
    }

    fn judge(&self, outcome: Result<u16, NoAnswer>) -> Result<(), ReleaseError> {
        match (outcome, self.owner) {
            (Ok(200..300 | 404 | 410), Owner::Exact) => Ok(()),
            (Ok(status @ (200..300 | 404 | 410)), Owner::Shared) => Err(ReleaseError::Unprovable(unprovable(status))),
            (Ok(status), _) => Err(failed(Why::Status(status))),
            (Err(none), _) => Err(failed(none.why())),
        }
    }
}

fn path(id: &Secret) -> String {
    format!("/v1/sessions/{}", base::segment(id.expose()))
}

fn failed(why: Why) -> ReleaseError {
    ReleaseError::Failed(Step::Release.failed(FaultCode::ReleaseUnconfirmed, why))
}

fn unprovable(status: u16) -> Fault {
    let message = format!(
        "gateway release is not confirmed: HTTP {status} from a shared endpoint, which may not own this browser"
    );
    Fault::new(FaultCode::ReleaseUnconfirmed, message).hint(
        "it may be running and billed: look into the gateway's own console; `ghost-browser stop` tells this once more and then forgets it",
    )
}
