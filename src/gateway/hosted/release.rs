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

    /// Of a browser that no server has, for the tests of the layers above.
    #[cfg(test)]
    pub(crate) fn of_nobody(id: &str) -> Self {
        Self {
            url: Secret::new("http://127.0.0.1:1/".into()),
            owner: Owner::Exact,
            proxies: Proxies::default(),
            secrets: vec![Secret::new(id.into())],
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
        "gateway release is not confirmed: HTTP {status} from a shared endpoint, which may not own the browser"
    );
    Fault::new(FaultCode::ReleaseUnconfirmed, message).hint(
        "it may be running and billed: look into the gateway's own console; `ghost-browser stop` tells this once more and then forgets it",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::hosted::BaseUrl;

    fn config(base: &str) -> Config {
        Config {
            base: BaseUrl::parse(base, "GHOST_GATEWAY_URL").unwrap(),
            token: Some(Secret::new("caller".into())),
            country: None,
            proxies: Proxies::default(),
        }
    }

    fn of_browser(base: &str, id: &str, websocket: &str) -> Release {
        let websocket = Url::parse(websocket).unwrap();
        Release::of_browser(&Secret::new(id.into()), &websocket, &config(base))
    }

    #[test]
    fn a_granted_browser_is_released_where_its_websocket_is() {
        for (base, id, websocket, url) in [
            (
                "https://gate.example/prefix?x=1",
                "id",
                "wss://b.example:8443/devtools/browser/z?token=own&a=%20",
                "https://b.example:8443/v1/sessions/id?token=own&a=%20",
            ),
            (
                "https://gate.example?token=base",
                "a/b%",
                "wss://b.example/x?a=1",
                "https://b.example/v1/sessions/a%2Fb%25?a=1&token=base",
            ),
            ("http://localhost:1", "..", "ws://127.0.0.1:2/x", "http://127.0.0.1:2/v1/sessions/%2E%2E?token=caller"),
            ("http://localhost:1", "ü", "ws://[::1]:2/x?", "http://[::1]:2/v1/sessions/%C3%BC?token=caller"),
        ] {
            let release = of_browser(base, id, websocket);

            assert_eq!(release.url.expose(), url);
            assert_eq!(release.owner, Owner::Exact);
        }
    }

    #[test]
    fn a_shared_endpoint_proves_nothing_and_is_not_asked_again() {
        let id = Secret::new("id".into());
        let release = Release::of_id(&id, &config("https://gate.example/p?x=1"));
        let kind = |outcome| match release.judge(outcome) {
            Ok(()) => "proven",
            Err(ReleaseError::Failed(_)) => "again",
            Err(ReleaseError::Unprovable(_)) => "never",
        };

        assert_eq!(release.url.expose(), "https://gate.example/p/v1/sessions/id?x=1&token=caller");
        assert_eq!([200, 204, 404, 410].map(|status| kind(Ok(status))), ["never"; 4]);
        assert_eq!([302, 401, 408, 500, 503].map(|status| kind(Ok(status))), ["again"; 5]);
        assert_eq!(kind(Err(NoAnswer::NotSent(Why::Refused))), "again");
        assert_eq!(kind(Err(NoAnswer::Unknown(Why::TimedOut))), "again");
    }

    #[test]
    fn what_must_not_be_seen_of_a_browser_is_known() {
        let url = "wss://b.example/devtools/browser/z?apiKey=k%20ey&region=eu";
        let release = of_browser("https://gate.example", "id", url);

        let secrets: Vec<_> = release.secrets().iter().map(Secret::expose).collect();

        assert_eq!(secrets, ["id", url, "k ey"]);
        assert!(!format!("{release:?}").contains("example"));
    }
}
