//! What a test can have the gateway answer.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::http::Delivery;

/// A browser that an answer brings into being.
#[derive(Debug, Clone)]
pub struct Minted {
    pub id: String,
    /// Its WebSocket URL.
    pub url: String,
}

/// What happens to a WebSocket handshake.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Handshake {
    Good,
    /// An HTTP status instead of 101.
    Status(u16),
    /// No answer.
    Silent,
    Reset,
}

type Body = Arc<dyn Fn(&Minted) -> String + Send + Sync>;

/// One scripted answer to an allocation or to the making of a session.
#[derive(Clone)]
pub struct Answer {
    pub(super) mints: bool,
    pub(super) id: Option<String>,
    pub(super) id_header: bool,
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    /// `None`: what the route documents.
    pub(super) body: Option<Body>,
    pub(super) url: Option<String>,
    pub(super) pause: Duration,
    pub(super) gate: Option<Gate>,
    pub(super) delivery: Delivery,
    pub(super) handshake: Handshake,
}

impl Answer {
    /// A good browser.
    pub fn browser() -> Self {
        Self {
            mints: true,
            id: None,
            id_header: true,
            status: 200,
            headers: Vec::new(),
            body: None,
            url: None,
            pause: Duration::ZERO,
            gate: None,
            delivery: Delivery::Whole,
            handshake: Handshake::Good,
        }
    }

    /// A status without a browser.
    pub fn status(status: u16) -> Self {
        Self { mints: false, status, ..Self::browser() }.without_id_header().body("{\"error\": \"scripted\"}")
    }

    /// A redirect to `location`, which must not be followed.
    pub fn redirect(location: &str) -> Self {
        Self::status(302).header("Location", location)
    }

    /// JSON without a browser.
    pub fn json(value: Value) -> Self {
        Self::status(200).body(&value.to_string())
    }

    /// The request is read and never answered, though a browser runs.
    pub fn hang() -> Self {
        Self::browser().delivered(Delivery::Hang)
    }

    /// The connection is reset once the request was read, though a browser runs.
    pub fn reset() -> Self {
        Self::browser().delivered(Delivery::Reset)
    }

    /// The connection ends once the request was read, though a browser runs.
    pub fn eof() -> Self {
        Self::browser().delivered(Delivery::Eof)
    }

    /// With another status, the browser notwithstanding.
    pub fn but_status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    pub fn header(mut self, key: &str, value: &str) -> Self {
        self.headers.push((key.to_owned(), value.to_owned()));
        self
    }

    /// With this browser id instead of one made up.
    pub fn id(mut self, id: &str) -> Self {
        self.id = Some(id.to_owned());
        self
    }

    /// With this WebSocket URL in the body, wherever it leads.
    pub fn url(mut self, url: &str) -> Self {
        self.url = Some(url.to_owned());
        self
    }

    /// `X-Ghost-Session` is left out.
    pub fn without_id_header(mut self) -> Self {
        self.id_header = false;
        self
    }

    pub fn body(self, body: &str) -> Self {
        let body = body.to_owned();
        self.body_of(move |_| body.clone())
    }

    /// A body made from the browser it brings.
    pub fn body_of(mut self, body: impl Fn(&Minted) -> String + Send + Sync + 'static) -> Self {
        self.body = Some(Arc::new(body));
        self
    }

    /// Delivered after a pause.
    pub fn after(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }

    /// Delivered once `gate` is open.
    pub fn behind(mut self, gate: &Gate) -> Self {
        self.gate = Some(gate.clone());
        self
    }

    pub fn delivered(mut self, delivery: Delivery) -> Self {
        self.delivery = delivery;
        self
    }

    /// The body ends after so many bytes, and looks complete to a careless reader.
    pub fn cut_at_close(self, kept: usize) -> Self {
        self.delivered(Delivery::CutAtClose(kept))
    }

    /// A chunked body ends in the middle of its chunk.
    pub fn cut_chunk(self, kept: usize) -> Self {
        self.delivered(Delivery::CutChunk(kept))
    }

    /// A byte at a time.
    pub fn dripped(self, pause: Duration) -> Self {
        self.delivered(Delivery::Drip(pause))
    }

    /// What the WebSocket of this browser does with a handshake.
    pub fn handshake(mut self, handshake: Handshake) -> Self {
        self.handshake = handshake;
        self
    }

    pub(super) fn body_for(&self, minted: &Minted, in_country: bool) -> String {
        if let Some(body) = &self.body {
            return body(minted);
        }
        let cdp = json!({"webSocketDebuggerUrl": minted.url});
        if in_country { json!({"browserId": minted.id, "cdp": cdp}).to_string() } else { cdp.to_string() }
    }

    pub(super) fn wait(&self) {
        std::thread::sleep(self.pause);
        if let Some(gate) = &self.gate {
            gate.wait();
        }
    }
}

/// One scripted answer to a DELETE.
#[derive(Debug, Clone)]
pub enum ReleaseAnswer {
    Status(u16),
    /// The same, after a pause.
    Late(Duration, u16),
    /// Truthfully, once the gate is open.
    Behind(Gate),
    Hang,
    Reset,
}

impl From<u16> for ReleaseAnswer {
    fn from(status: u16) -> Self {
        Self::Status(status)
    }
}

/// Holds answers back until the test opens it.
#[derive(Debug, Clone, Default)]
pub struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    pub fn closed() -> Self {
        Self::default()
    }

    pub fn open(&self) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.1.notify_all();
    }

    pub(super) fn wait(&self) {
        let open = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.0.1.wait_while(open, |open| !*open);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}
