//! A scripted gateway: HTTP and WebSocket on one loopback port, with a ledger of what it saw and what it is owed.
//!
//! It mints browsers as the contract says and knows which of them are paid for. What a test scripts are the answers;
//! the books are kept here, so a client cannot be released by mistake. `answer` has what can be scripted.

mod answer;

use std::collections::VecDeque;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use serde_json::json;
use tungstenite::handshake::derive_accept_key;

use super::cdp::{Closing, FakeCdp, Wire};
use super::http::{Delivery, HttpAnswer, HttpRequest};
use super::ledger::{Ledger, lock};
pub use answer::{Answer, Gate, Handshake, Minted, ReleaseAnswer};

/// The token that [`FakeGateway`] wants where a test asks for one.
pub const TOKEN: &str = "caller-token-0123456789";

/// One line of the ledger.
#[derive(Debug, Clone)]
pub enum Seen {
    Request {
        method: String,
        path: String,
        token: Option<String>,
        query: Vec<String>,
        at: Instant,
    },
    /// A session for a country was made.
    SessionMade {
        session: String,
    },
    /// A browser exists from here on.
    Minted {
        id: String,
    },
    /// A DELETE was answered.
    Deleted {
        id: String,
        status: u16,
    },
    Opened {
        id: String,
    },
    Closed {
        id: String,
        how: Closing,
    },
    /// Something that the contract forbids.
    Wrong(String),
}

/// The gateway. Dropping it ends its listener and its connections.
pub struct FakeGateway(Arc<Books>);

struct Books {
    port: u16,
    cdp: FakeCdp,
    ledger: Ledger<Seen>,
    browsers: Mutex<Vec<Browser>>,
    allocations: Mutex<VecDeque<Answer>>,
    sessions: Mutex<VecDeque<Answer>>,
    releases: Mutex<VecDeque<ReleaseAnswer>>,
    /// For every allocation after the queue is empty.
    usual: Mutex<Answer>,
    token: Mutex<Option<String>>,
    minted: AtomicU32,
    ended: AtomicBool,
}

#[derive(Clone)]
struct Browser {
    id: String,
    token: String,
    handshake: Handshake,
}

enum Route {
    Version,
    MakeSession,
    InCountry,
    Release(String),
    Socket(String),
    Other,
}

impl FakeGateway {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind a loopback port");
        let books = Arc::new(Books {
            port: listener.local_addr().expect("a bound port").port(),
            cdp: FakeCdp::default(),
            ledger: Ledger::default(),
            browsers: Mutex::default(),
            allocations: Mutex::default(),
            sessions: Mutex::default(),
            releases: Mutex::default(),
            usual: Mutex::new(Answer::browser()),
            token: Mutex::default(),
            minted: AtomicU32::new(0),
            ended: AtomicBool::new(false),
        });
        let accepting = books.clone();
        std::thread::spawn(move || accepting.accept(&listener));
        Self(books)
    }

    /// The base URL.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.0.port)
    }

    /// The browsers' side.
    pub fn cdp(&self) -> &FakeCdp {
        &self.0.cdp
    }

    /// Refuses allocations without this token (401).
    pub fn wants_token(&self, token: &str) {
        *lock(&self.0.token) = Some(token.to_owned());
    }

    /// Answers the next allocations so, one each; then as usual again.
    pub fn answers_allocations_with(&self, answers: impl IntoIterator<Item = Answer>) {
        lock(&self.0.allocations).extend(answers);
    }

    /// Answers every allocation so.
    pub fn always_answers_allocations_with(&self, answer: Answer) {
        *lock(&self.0.usual) = answer;
    }

    /// Answers the next requests for a session so.
    pub fn answers_sessions_with(&self, answers: impl IntoIterator<Item = Answer>) {
        lock(&self.0.sessions).extend(answers);
    }

    /// Answers the next DELETEs so; then truthfully again.
    pub fn answers_releases_with<A: Into<ReleaseAnswer>>(&self, answers: impl IntoIterator<Item = A>) {
        lock(&self.0.releases).extend(answers.into_iter().map(Into::into));
    }

    pub fn ledger(&self) -> Vec<Seen> {
        self.0.ledger.all()
    }

    /// Waits for a fact in the ledger.
    #[track_caller]
    pub fn wait_until(&self, what: &str, holds: impl Fn(&[Seen]) -> bool) {
        self.0.ledger.wait_until(what, holds);
    }

    /// Waits until so many requests of this method and path end have come.
    #[track_caller]
    pub fn wait_for(&self, method: &str, path_end: &str, times: usize) {
        let what = format!("{times} x {method} …{path_end}");
        self.wait_until(&what, |seen| requests(seen, method, path_end) >= times);
    }

    pub fn count(&self, method: &str, path_end: &str) -> usize {
        requests(&self.ledger(), method, path_end)
    }

    /// Requests of any kind, WebSocket handshakes included.
    pub fn requests(&self) -> usize {
        self.ledger().iter().filter(|seen| matches!(seen, Seen::Request { .. })).count()
    }

    /// `GET /json/version` and its like: each may bill a browser.
    pub fn gets(&self) -> usize {
        self.count("GET", "/json/version") + self.count("GET", "/json") + self.count("GET", "/json/list")
    }

    /// DELETE requests.
    pub fn deletes(&self) -> usize {
        self.count("DELETE", "")
    }

    /// WebSockets that were opened.
    pub fn sockets(&self) -> usize {
        self.ledger().iter().filter(|seen| matches!(seen, Seen::Opened { .. })).count()
    }

    /// Browsers that came into being.
    pub fn allocations(&self) -> usize {
        minted(&self.ledger()).count()
    }

    /// Browsers whose end is proven.
    pub fn releases(&self) -> usize {
        let seen = self.ledger();
        minted(&seen).filter(|id| is_paid(&seen, id)).count()
    }

    /// Ids of the browsers whose release nobody has proven.
    pub fn owed(&self) -> Vec<String> {
        owed(&self.ledger())
    }

    /// Waits until every browser is released as the contract says, and fails when one is not or a rule was broken.
    #[track_caller]
    pub fn assert_nothing_owed(&self) {
        self.wait_until("every browser to be released", |seen| owed(seen).is_empty());
        let seen = self.ledger();
        let wrongs: Vec<_> = seen.iter().filter(|seen| matches!(seen, Seen::Wrong(_))).collect();
        assert!(wrongs.is_empty(), "the contract was broken: {wrongs:#?}\nthe ledger:\n{seen:#?}");
    }
}

impl Drop for FakeGateway {
    fn drop(&mut self) {
        self.0.ended.store(true, Ordering::SeqCst);
        self.0.cdp.hang_up();
        // Wakes `accept`; a listener that is gone already needs no waking.
        let _ = TcpStream::connect(("127.0.0.1", self.0.port));
    }
}

impl Books {
    fn accept(self: Arc<Self>, listener: &TcpListener) {
        for stream in listener.incoming().map_while(Result::ok) {
            if self.ended.load(Ordering::SeqCst) {
                return;
            }
            let books = self.clone();
            std::thread::spawn(move || books.serve(stream));
        }
    }

    fn serve(&self, mut stream: TcpStream) {
        let Some(request) = HttpRequest::read(&mut stream) else {
            let _ = plain(400, "").deliver(stream);
            return;
        };
        self.note(&request);
        let route = route(&request);
        let answer = match route {
            Route::Socket(id) => return self.socket(stream, &request, &id),
            Route::Version => self.allocate(&request, false),
            Route::InCountry => self.allocate(&request, true),
            Route::MakeSession => self.make_session(),
            Route::Release(id) => self.release(&request, &id),
            Route::Other => {
                let what = format!("{} {}", request.method, request.path);
                self.ledger.write(Seen::Wrong(format!("nobody may ask for {what}")));
                plain(404, "{}")
            }
        };
        // A client that went away meanwhile is part of what is tested.
        let _ = answer.deliver(stream);
    }

    fn note(&self, request: &HttpRequest) {
        self.ledger.write(Seen::Request {
            method: request.method.clone(),
            path: request.path.clone(),
            token: request.token().map(str::to_owned),
            query: request.query.iter().map(|(key, _)| key.clone()).collect(),
            at: Instant::now(),
        });
    }

    fn allocate(&self, request: &HttpRequest, in_country: bool) -> HttpAnswer {
        let wanted = lock(&self.token).clone();
        if wanted.is_some() && wanted.as_deref() != request.token() {
            return plain(401, "{}");
        }
        let scripted = lock(&self.allocations).pop_front();
        let answer = scripted.unwrap_or_else(|| lock(&self.usual).clone());
        let minted = self.mint(&answer);
        answer.wait();
        self.write_answer(&answer, &minted, in_country)
    }

    fn mint(&self, answer: &Answer) -> Minted {
        let number = self.minted.fetch_add(1, Ordering::SeqCst) + 1;
        let id = answer.id.clone().unwrap_or_else(|| format!("browser-{number}-{}", self.port));
        let token = format!("socket-token-{number}-{}", self.port);
        let path = encoded(&id);
        let own = format!("ws://127.0.0.1:{}/devtools/browser/{path}?token={token}", self.port);
        if answer.mints {
            let browser = Browser { id: id.clone(), token, handshake: answer.handshake };
            lock(&self.browsers).push(browser);
            self.ledger.write(Seen::Minted { id: id.clone() });
        }
        Minted { id, url: answer.url.clone().unwrap_or(own) }
    }

    fn write_answer(&self, answer: &Answer, minted: &Minted, in_country: bool) -> HttpAnswer {
        let mut headers = answer.headers.clone();
        if answer.id_header {
            headers.push(("X-Ghost-Session".to_owned(), minted.id.clone()));
        }
        HttpAnswer {
            status: answer.status,
            headers,
            body: answer.body_for(minted, in_country).into_bytes(),
            delivery: answer.delivery,
        }
    }

    fn make_session(&self) -> HttpAnswer {
        if let Some(answer) = lock(&self.sessions).pop_front() {
            let nobody = Minted { id: String::new(), url: String::new() };
            answer.wait();
            return self.write_answer(&answer.without_id_header(), &nobody, false);
        }
        let session = format!("session-{}", self.minted.fetch_add(1, Ordering::SeqCst) + 1);
        self.ledger.write(Seen::SessionMade { session: session.clone() });
        plain(200, &json!({"session": session}).to_string())
    }

    fn release(&self, request: &HttpRequest, id: &str) -> HttpAnswer {
        let scripted = lock(&self.releases).pop_front();
        let status = match scripted {
            Some(ReleaseAnswer::Hang) => return broken(Delivery::Hang),
            Some(ReleaseAnswer::Reset) => return broken(Delivery::Reset),
            Some(ReleaseAnswer::Status(status)) => status,
            Some(ReleaseAnswer::Late(pause, status)) => {
                std::thread::sleep(pause);
                status
            }
            Some(ReleaseAnswer::Behind(gate)) => {
                gate.wait();
                self.judge(request, id)
            }
            None => self.judge(request, id),
        };
        self.ledger.write(Seen::Deleted { id: id.to_owned(), status });
        plain(status, "")
    }

    /// The truthful answer to a DELETE.
    fn judge(&self, request: &HttpRequest, id: &str) -> u16 {
        let Some(browser) = self.browser(id) else {
            let session = |seen: &Seen| matches!(seen, Seen::SessionMade { session } if session == id);
            if !self.ledger.all().iter().any(session) {
                self.ledger.write(Seen::Wrong("a DELETE of something that never was".to_owned()));
            }
            return 404;
        };
        // Both are right: the one of the browser's own URL, and the caller's where that URL was never seen.
        let caller = lock(&self.token).clone();
        let right = [Some(browser.token.as_str()), caller.as_deref()].contains(&request.token());
        if right || caller.is_none() { 204 } else { 401 }
    }

    fn browser(&self, id: &str) -> Option<Browser> {
        lock(&self.browsers).iter().rfind(|browser| browser.id == id).cloned()
    }

    fn socket(&self, stream: TcpStream, request: &HttpRequest, id: &str) {
        let Some(browser) = self.browser(id) else {
            let _ = plain(404, "").deliver(stream);
            return;
        };
        let answered = match browser.handshake {
            Handshake::Good => return self.speak(stream, request, id),
            Handshake::Status(status) => plain(status, "").deliver(stream),
            Handshake::Silent => broken(Delivery::Hang).deliver(stream),
            Handshake::Reset => broken(Delivery::Reset).deliver(stream),
        };
        // A client that went away meanwhile is part of what is tested.
        let _ = answered;
    }

    fn speak(&self, mut stream: TcpStream, request: &HttpRequest, id: &str) {
        let key = derive_accept_key(request.header("sec-websocket-key").unwrap_or_default().as_bytes());
        let head = format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {key}\r\n\r\n"
        );
        if std::io::Write::write_all(&mut stream, head.as_bytes()).is_err() {
            return;
        }
        let Ok(wire) = Wire::new(stream) else { return };
        self.ledger.write(Seen::Opened { id: id.to_owned() });
        let how = self.cdp.serve(wire);
        self.ledger.write(Seen::Closed { id: id.to_owned(), how });
    }
}

fn route(request: &HttpRequest) -> Route {
    let path = request.path.as_str();
    if request.header("upgrade").is_some() {
        let last = path.rsplit('/').next().unwrap_or_default();
        return Route::Socket(decoded(last));
    }
    let after = path.split_once("/v1/sessions").map(|(_, after)| after);
    match (request.method.as_str(), after) {
        ("GET", None) if path.ends_with("/json/version") => Route::Version,
        ("POST", Some("" | "/")) => Route::MakeSession,
        ("POST", Some(rest)) if rest.ends_with("/browser") => Route::InCountry,
        ("DELETE", Some(rest)) => Route::Release(decoded(rest.trim_start_matches('/'))),
        _ => Route::Other,
    }
}

fn plain(status: u16, body: &str) -> HttpAnswer {
    HttpAnswer { status, headers: Vec::new(), body: body.as_bytes().to_vec(), delivery: Delivery::Whole }
}

fn broken(delivery: Delivery) -> HttpAnswer {
    HttpAnswer { delivery, ..plain(200, "") }
}

fn requests(seen: &[Seen], method: &str, path_end: &str) -> usize {
    let matches =
        |seen: &&Seen| matches!(seen, Seen::Request { method: m, path, .. } if m == method && path.ends_with(path_end));
    seen.iter().filter(matches).count()
}

fn minted(seen: &[Seen]) -> impl Iterator<Item = &String> {
    seen.iter().filter_map(|seen| match seen {
        Seen::Minted { id } => Some(id),
        _ => None,
    })
}

fn owed(seen: &[Seen]) -> Vec<String> {
    minted(seen).filter(|id| !is_paid(seen, id)).cloned().collect()
}

fn is_paid(seen: &[Seen], id: &str) -> bool {
    seen.iter().any(|seen| match seen {
        Seen::Deleted { id: deleted, status } => deleted == id && matches!(status, 200..=299 | 404 | 410),
        Seen::Closed { id: closed, how } => closed == id && how.is_normal(),
        _ => false,
    })
}

/// Percent-encoded once, as an id stands in a path.
fn encoded(id: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
    let one = |byte: u8| {
        if plain(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }
    };
    id.bytes().map(one).collect()
}

/// Decoded once.
fn decoded(part: &str) -> String {
    let escaped = part.replace('+', "%2B");
    let mut pairs = url::form_urlencoded::parse(escaped.as_bytes());
    pairs.next().map(|(key, _)| key.into_owned()).unwrap_or_default()
}
