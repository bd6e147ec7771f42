//! From an endpoint to a connection that speaks CDP and watches its pages.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use url::Url;

use crate::cancel::Cancel;
use crate::cdp::{self, CloseReason, Connection, DialError, KeepAlive, Pipe, Transport};
use crate::gateway::Endpoint;
use crate::proxy::{self, Proxies};
use crate::secret::Secret;
use crate::wire::{Fault, FaultCode};

/// How a browser is reached.
#[derive(Clone)]
pub(super) struct Connector {
    pub(super) proxies: Proxies,
    /// How long it may take, the set-up of the watch included.
    pub(super) within: Duration,
}

impl Connector {
    /// Connects, unless `given_up` is raised meanwhile; `on_close` is told once when the connection has ended.
    pub(super) fn connect(
        &self,
        endpoint: Endpoint,
        given_up: &Cancel,
        on_close: impl FnOnce(CloseReason) + Send + 'static,
    ) -> Result<Connection, Fault> {
        let deadline = Instant::now() + self.within;
        let is_local = matches!(endpoint, Endpoint::Pipe { .. });
        let transport = self.transport(endpoint, deadline)?;
        let connection = Connection::open(transport, KeepAlive::default(), on_close)
            .map_err(|error| no_browser("browser connection failed").caused_by(&error))?;
        connection.watch(given_up, deadline).map_err(|error| mute(is_local).caused_by(&error))?;
        Ok(connection)
    }

    fn transport(&self, endpoint: Endpoint, deadline: Instant) -> Result<Box<dyn Transport>, Fault> {
        match endpoint {
            Endpoint::WebSocket(url) => Ok(Box::new(self.dial(&url, deadline)?)),
            Endpoint::Pipe { reader, writer } => {
                let pipe = Pipe::new(reader, writer);
                Ok(Box::new(pipe.map_err(|error| no_browser("the debugging pipe cannot be used").caused_by(&error))?))
            }
        }
    }

    fn dial(&self, url: &Secret, deadline: Instant) -> Result<cdp::WebSocket, Fault> {
        let url = Url::parse(url.expose()).map_err(|_| no_browser("browser connection failed: invalid URL"))?;
        let stream = self.tcp(&url, deadline)?;
        cdp::dial(&url, stream, deadline).map_err(|error| no_browser(&error.to_string()))
    }

    fn tcp(&self, url: &Url, deadline: Instant) -> Result<TcpStream, Fault> {
        let proxy = self.proxies.select(url)?;
        let (host, port) = (url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or_default());
        let connected = proxy::connect(host, port, proxy.as_ref(), deadline);
        connected.map_err(|error| no_browser(&DialError::Connect(error.kind().to_string()).to_string()))
    }
}

/// The fault of a browser that is there and says nothing.
fn mute(is_local: bool) -> Fault {
    let fault = no_browser("the browser does not speak CDP");
    match is_local {
        true => fault.hint(
            "see whether that Chromium starts by hand, or name another one with GHOST_BROWSER_CHROMIUM; \
             GHOST_BROWSER_WS_TIMEOUT=SECONDS gives a slow one more time",
        ),
        false => fault,
    }
}

fn no_browser(message: &str) -> Fault {
    Fault::new(FaultCode::NoBrowser, message)
}
