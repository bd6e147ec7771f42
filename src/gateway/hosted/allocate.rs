//! Asking for a browser, in a country or anywhere.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use ureq::http::Method;
use url::Url;

use super::answer::{Brought, Shape};
use super::base::{self, BaseUrl};
use super::release::Release;
use super::request::{Answer, NoAnswer, Request};
use super::wording::{Step, Why};
use crate::gateway::{Allocation, Ask, Capability, Endpoint, Gateway, Grant};
use crate::proxy::Proxies;
use crate::secret::Secret;
use crate::wire::{Fault, FaultCode};

/// For how long a gateway that cannot be connected to is tried: a typing mistake should not cost the whole allocation time.
const CONNECT_PATIENCE: Duration = Duration::from_secs(30);
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(8);
/// What a `Retry-After: 0` comes to.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
/// How long an answer may be held up by giving back a session that brought no browser.
const DISCARD_LIMIT: Duration = Duration::from_secs(5);

/// Which gateway, and who asks. Crosses to the daemon over a pipe.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Config {
    /// The address.
    pub base: BaseUrl,
    /// The caller's token; the base URL's own wins.
    pub token: Option<Secret>,
    /// Two letters, for a browser in that country.
    pub country: Option<String>,
    /// The way there.
    pub proxies: Proxies,
}

impl Config {
    /// What must not be seen of it.
    pub fn secrets(&self) -> Vec<Secret> {
        let mut secrets = self.base.secrets();
        secrets.extend(self.token.clone());
        secrets.extend(self.proxies.secrets());
        secrets
    }
}

/// The hosted Gateway.
#[derive(Debug)]
pub struct Hosted {
    name: String,
    config: Config,
}

impl Hosted {
    /// Judges the settings; sends nothing.
    ///
    /// # Errors
    /// `setting`: no token for a gateway beyond this machine, or a proxy that cannot be used.
    pub fn new(config: Config) -> Result<Self, Fault> {
        let token = config.base.effective_token(config.token.as_ref());
        if token.is_none() && !config.base.is_loopback() {
            let message = "APIFY_TOKEN is required for the configured gateway";
            return Err(Fault::new(FaultCode::Setting, message)
                .hint("set APIFY_TOKEN, or GHOST_GATEWAY_URL=local for a Chromium on this machine"));
        }
        config.proxies.select(config.base.url())?;
        Ok(Self { name: config.base.host(), config })
    }

    fn anywhere(&self, ask: &Ask) -> Allocation {
        let url = self.endpoint("/json/version");
        let answer = persist(ask, Step::Allocation, || self.request(Method::GET, &url, None, ask).send());
        self.judge(answer, Shape::Plain)
    }

    /// Two requests: a session, which costs nothing, and a browser in it.
    fn in_country(&self, country: &str, ask: &Ask) -> Allocation {
        let (session, named) = match self.open_session(ask) {
            Ok(opened) => opened,
            Err(allocation) => return *allocation,
        };
        let path = format!("/v1/sessions/{}", base::segment(session.expose()));
        let url = self.endpoint(&format!("{path}/browser"));
        let body = serde_json::json!({ "country": country }).to_string();
        let answer = persist(ask, Step::Allocation, || {
            let body = Some(body.clone());
            self.request(Method::POST, &url, body, ask).send()
        });
        let allocation = self.judge(answer, Shape::Country);
        if matches!(allocation, Allocation::Refused(_) | Allocation::Lost(_)) {
            self.discard(&self.endpoint(&path));
        }
        match (allocation, named) {
            // Whatever named a browser is a debt, and nothing else pays for this one.
            (Allocation::Refused(fault), Some(id)) => self.named_only(&id, fault),
            (allocation, _) => allocation,
        }
    }

    /// The session, and the browser that its answer named although none was asked for.
    fn open_session(&self, ask: &Ask) -> Result<(Secret, Option<Secret>), Box<Allocation>> {
        let url = self.endpoint("/v1/sessions");
        let answer = persist(ask, Step::SessionCreation, || self.session_request(&url, ask).send());
        let answer = match answer {
            Ok(answer) => answer,
            Err(none) => {
                let fault = Step::SessionCreation.failed(FaultCode::NoBrowser, none.why());
                return Err(Box::new(Allocation::Refused(fault)));
            }
        };
        let fault = || refusal(Step::SessionCreation, answer.status, FaultCode::NoBrowser);
        match (answer.body.as_deref().and_then(session_in), &answer.browser_id) {
            (Some(session), named) => Ok((session, named.clone())),
            (None, Some(id)) => Err(Box::new(self.named_only(id, fault()))),
            (None, None) => Err(Box::new(Allocation::Refused(fault()))),
        }
    }

    /// A session without a browser is no debt: its answer is not waited for longer than callers wait.
    fn session_request<'a>(&'a self, url: &'a Secret, ask: &'a Ask) -> Request<'a> {
        let (abandoned, deadline) = (ask.abandoned.clone(), ask.deadline);
        Request {
            read_by: deadline,
            may_leave: Arc::new(move || !abandoned.is_cancelled() && Instant::now() < deadline),
            ..self.request(Method::POST, url, Some("{}".to_owned()), ask)
        }
    }

    fn request<'a>(&'a self, method: Method, url: &'a Secret, json: Option<String>, ask: &Ask) -> Request<'a> {
        Request {
            method,
            url,
            json,
            proxies: &self.config.proxies,
            connect_by: ask.deadline,
            read_by: ask.last_word,
            may_leave: gate(ask),
        }
    }

    fn endpoint(&self, path: &str) -> Secret {
        self.config.base.endpoint(path, self.config.token.as_ref())
    }

    fn judge(&self, answer: Result<Answer, NoAnswer>, shape: Shape) -> Allocation {
        let answer = match answer {
            Ok(answer) => answer,
            Err(NoAnswer::NotSent(why)) => {
                return Allocation::Refused(Step::Allocation.failed(FaultCode::NoBrowser, why));
            }
            Err(NoAnswer::Unknown(why)) => {
                return Allocation::Lost(Step::Allocation.failed(FaultCode::ReleaseUnconfirmed, why));
            }
        };
        let fault = |code| refusal(Step::Allocation, answer.status, code);
        match Brought::read(&answer, shape, &self.config.base) {
            Brought::Browser { id, websocket } => self.grant(&id, &websocket),
            Brought::IdOnly(id) => self.named_only(&id, fault(FaultCode::NoBrowser)),
            Brought::UrlOnly(url) => {
                let endpoint = Endpoint::WebSocket(Secret::new(url.into()));
                Allocation::Stray(endpoint, fault(FaultCode::ReleaseUnconfirmed))
            }
            Brought::Uncertain => Allocation::Lost(fault(FaultCode::ReleaseUnconfirmed)),
            Brought::Nothing => Allocation::Refused(fault(FaultCode::NoBrowser)),
        }
    }

    fn grant(&self, id: &Secret, websocket: &Url) -> Allocation {
        let release = Release::of_browser(id, websocket, &self.config);
        Allocation::Granted(Grant {
            endpoint: Endpoint::WebSocket(Secret::new(websocket.to_string())),
            capability: Capability::Hosted(release),
            notice: None,
        })
    }

    fn named_only(&self, id: &Secret, fault: Fault) -> Allocation {
        let release = Release::of_id(id, &self.config);
        Allocation::Unusable(Capability::Hosted(release), fault)
    }

    fn discard(&self, session: &Secret) {
        let deadline = Instant::now() + DISCARD_LIMIT;
        let request = Request {
            method: Method::DELETE,
            url: session,
            json: None,
            proxies: &self.config.proxies,
            connect_by: deadline,
            read_by: deadline,
            may_leave: Arc::new(|| true),
        };
        // Best effort: a session without a browser is not billed.
        let _ = request.send();
    }
}

impl Gateway for Hosted {
    fn name(&self) -> &str {
        &self.name
    }

    fn prepare(&self) -> Result<Option<Capability>, Fault> {
        Ok(None)
    }

    fn allocate(&self, ask: &Ask) -> Allocation {
        match &self.config.country {
            Some(country) => self.in_country(country, ask),
            None => self.anywhere(ask),
        }
    }
}

/// Says for `ask`, when the connection stands, whether the request may leave. The flag goes up before the last look at the clock:
/// whoever sees it down after the deadline knows that nothing left, nor will.
fn gate(ask: &Ask) -> Arc<dyn Fn() -> bool + Send + Sync> {
    let (left, abandoned, deadline) = (ask.left.clone(), ask.abandoned.clone(), ask.deadline);
    Arc::new(move || {
        left.raise();
        let may_leave = !abandoned.is_cancelled() && Instant::now() < deadline;
        if !may_leave {
            left.lower();
        }
        may_leave
    })
}

/// Sends until something comes of it: repeats only what cannot have allocated, and only while it is wanted.
fn persist(ask: &Ask, step: Step, mut send: impl FnMut() -> Result<Answer, NoAnswer>) -> Result<Answer, NoAnswer> {
    let unreachable_after = Instant::now() + CONNECT_PATIENCE;
    let mut pause = FIRST_PAUSE;
    loop {
        let outcome = send();
        let (wait, why) = match &outcome {
            // A certificate does not get better by asking again.
            Err(NoAnswer::NotSent(Why::Tls | Why::Abandoned)) => return outcome,
            Err(NoAnswer::NotSent(why)) if Instant::now() < unreachable_after => (pause, *why),
            Ok(answer) if is_put_off(answer) => {
                ask.left.lower();
                (answer.retry_after.unwrap_or(pause).max(SHORTEST_PAUSE), Why::Status(answer.status))
            }
            _ => return outcome,
        };
        (ask.on_retry)(step.failed(FaultCode::NoBrowser, why).message);
        if !ask.pause(wait) {
            return outcome;
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Whether the gateway said to come again, and that it did nothing.
fn is_put_off(answer: &Answer) -> bool {
    matches!(answer.status, 429 | 503) && answer.browser_id.is_none()
}

/// The fault of an answer that brought no browser to use.
fn refusal(step: Step, status: u16, code: FaultCode) -> Fault {
    match status {
        200..300 => step.invalid(code),
        _ => step.failed(code, Why::Status(status)),
    }
}

fn session_in(body: &[u8]) -> Option<Secret> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let session = body.get("session")?.as_str()?;
    (!session.is_empty()).then(|| Secret::new(session.to_owned()))
}
