//! One request over a connection of its own, and whether it left.

use std::fmt;
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use ureq::http::{Method, Request as HttpRequest, Response, header};
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{ConnectionDetails, Connector, DefaultConnector, Transport};
use url::Url;

use super::wording::Why;
use crate::proxy::{Proxies, Proxy};
use crate::secret::Secret;

const CONNECT_LIMIT: Duration = Duration::from_secs(15);
const BODY_LIMIT: u64 = 1 << 20;

/// How long a body may take once the head has named a browser: what is named can be released without it.
const NAMED_BODY_LIMIT: Duration = Duration::from_secs(10);

const BROWSER_ID: &str = "x-ghost-session";

/// What to send, and until when.
pub(super) struct Request<'a> {
    pub(super) method: Method,
    pub(super) url: &'a Secret,
    pub(super) json: Option<String>,
    pub(super) proxies: &'a Proxies,
    /// Until when the connection must stand.
    pub(super) connect_by: Instant,
    /// Until when the answer is read.
    pub(super) read_by: Instant,
    /// Asked once, when the connection stands and nothing has been written. A no ends it.
    pub(super) may_leave: Arc<dyn Fn() -> bool + Send + Sync>,
}

/// What came back. The body is read of a 2xx only: of another status, the head is all that counts.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) browser_id: Option<Secret>,
    pub(super) retry_after: Option<Duration>,
    /// `None` when it was cut off or over the limit.
    pub(super) body: Option<Vec<u8>>,
}

/// Nothing came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoAnswer {
    /// Nothing was written: it cannot have had an effect.
    NotSent(Why),
    /// It may have been read, and acted on.
    Unknown(Why),
}

impl NoAnswer {
    pub(super) fn why(self) -> Why {
        match self {
            Self::NotSent(why) | Self::Unknown(why) => why,
        }
    }
}

impl Request<'_> {
    /// Sends it, once.
    pub(super) fn send(self) -> Result<Answer, NoAnswer> {
        let url = Url::parse(self.url.expose()).map_err(|_| NoAnswer::NotSent(Why::Other))?;
        let proxy = self.proxies.select(&url).map_err(|_| NoAnswer::NotSent(Why::Proxy))?;
        let gate = Gate { is_tunnelled: proxy.is_some(), may_leave: self.may_leave.clone(), passed: Arc::default() };
        let agent = self.agent(proxy.as_ref(), gate.clone())?;
        match self.call(&agent) {
            Ok(response) => Ok(Answer::read(response)),
            Err(error) => Err(gate.judge(&error)),
        }
    }

    fn call(self, agent: &ureq::Agent) -> Result<Response<ureq::Body>, ureq::Error> {
        let request = HttpRequest::builder().method(self.method).uri(self.url.expose());
        match self.json {
            Some(json) => {
                let request = request.header(header::CONTENT_TYPE, "application/json");
                agent.run(request.body(json)?)
            }
            None => agent.run(request.body(())?),
        }
    }

    fn agent(&self, proxy: Option<&Proxy>, gate: Gate) -> Result<ureq::Agent, NoAnswer> {
        let left = |by: Instant| by.saturating_duration_since(Instant::now());
        let connect = left(self.connect_by).min(CONNECT_LIMIT);
        if connect.is_zero() {
            return Err(NoAnswer::NotSent(Why::TimedOut));
        }
        let proxy = match proxy {
            Some(proxy) => Some(proxy.for_ureq().ok_or(NoAnswer::NotSent(Why::Proxy))?),
            None => None,
        };
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .max_idle_connections(0)
            .user_agent(concat!("ghost-browser/", env!("CARGO_PKG_VERSION")))
            .proxy(proxy)
            .timeout_resolve(Some(connect))
            .timeout_connect(Some(connect))
            .timeout_global(Some(left(self.read_by)))
            .build();
        let connector = DefaultConnector::new().chain(gate);
        Ok(ureq::Agent::with_parts(config, connector, DefaultResolver::default()))
    }
}

impl Answer {
    fn read(response: Response<ureq::Body>) -> Self {
        let header = |name: &str| {
            let value = response.headers().get(name)?.to_str().ok()?.trim();
            (!value.is_empty()).then(|| value.to_owned())
        };
        let status = response.status().as_u16();
        let browser_id = header(BROWSER_ID).map(Secret::new);
        let retry_after = header("retry-after").and_then(|value| pause(&value));
        let body = match (response.status().is_success(), &browser_id) {
            (false, _) => None,
            (true, None) => read_body(response.into_body()),
            (true, Some(_)) => read_body_within(response.into_body(), NAMED_BODY_LIMIT),
        };
        Self { status, browser_id, retry_after, body }
    }

    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

fn read_body(body: ureq::Body) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    body.into_reader().take(BODY_LIMIT + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= BODY_LIMIT).then_some(bytes)
}

/// `None` also for a body that takes longer; the thread that goes on reading it ends with the request's own time.
fn read_body_within(body: ureq::Body, limit: Duration) -> Option<Vec<u8>> {
    let (tell, told) = mpsc::channel();
    let read = move || {
        // Nobody waits for what comes too late.
        let _ = tell.send(read_body(body));
    };
    // Without a thread the body is as good as cut off.
    thread::Builder::new().name("body".to_owned()).spawn(read).ok()?;
    told.recv_timeout(limit).ok().flatten()
}

/// `Retry-After`: seconds, or a date.
fn pause(value: &str) -> Option<Duration> {
    if let Ok(seconds) = value.parse::<u32>() {
        return Some(Duration::from_secs(seconds.into()));
    }
    let date = httpdate::parse_http_date(value).ok()?;
    Some(date.duration_since(SystemTime::now()).unwrap_or_default())
}

/// The last link of the connector's chain: what comes here has a connection, TLS and tunnel included, and has written
/// nothing. An error before it is a request that never left; one after it is not known to be.
#[derive(Clone)]
struct Gate {
    is_tunnelled: bool,
    may_leave: Arc<dyn Fn() -> bool + Send + Sync>,
    passed: Arc<AtomicBool>,
}

impl Gate {
    fn judge(&self, error: &ureq::Error) -> NoAnswer {
        let why = match error {
            ureq::Error::Other(inner) if inner.is::<Withheld>() => Why::Abandoned,
            error => error.into(),
        };
        match self.passed.load(Ordering::SeqCst) {
            true => NoAnswer::Unknown(why),
            false => NoAnswer::NotSent(why),
        }
    }
}

impl<In: Transport> Connector<In> for Gate {
    type Out = In;

    fn connect(&self, details: &ConnectionDetails, chained: Option<In>) -> Result<Option<In>, ureq::Error> {
        // `ureq` runs the whole chain for the connection to the proxy too, with a configuration that has no proxy.
        if self.is_tunnelled && details.config.proxy().is_none() {
            return Ok(chained);
        }
        if !(self.may_leave)() {
            return Err(ureq::Error::Other(Box::new(Withheld)));
        }
        self.passed.store(true, Ordering::SeqCst);
        Ok(chained)
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gate")
    }
}

#[derive(Debug)]
struct Withheld;

impl fmt::Display for Withheld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the request is no longer wanted")
    }
}

impl std::error::Error for Withheld {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date_and_a_past_date_is_now() {
        let soon = SystemTime::now() + Duration::from_secs(60);
        let date = pause(&httpdate::fmt_http_date(soon)).unwrap();

        assert_eq!(pause("7"), Some(Duration::from_secs(7)));
        assert!(date > Duration::from_secs(50) && date <= Duration::from_secs(60));
        assert_eq!(pause("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::ZERO));
        assert_eq!(pause("soon"), None);
    }
}
