//! A scripted CDP peer: a small believable browser, whose every answer a test can replace.
//!
//! `chromium` is the browser's model and knows no socket; `wire` is the socket and knows no CDP; `evaluate`
//! answers the few expressions that tests use. Everything received is in the ledger.

mod chromium;
mod evaluate;
mod wire;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tungstenite::protocol::{Message, Role, WebSocket, WebSocketConfig};

use super::ledger::{Ledger, PATIENCE, lock};
use chromium::Chromium;
use wire::Ear;
pub(super) use wire::Wire;

/// A command as it arrived.
#[derive(Debug, Clone)]
pub struct Command {
    pub id: u64,
    pub method: String,
    pub params: Value,
    pub session: Option<String>,
    /// How many of this method came before it.
    pub nth: usize,
    pub at: Instant,
}

impl Command {
    /// The text of a reply to it.
    pub fn reply(&self, result: Value) -> String {
        self.frame("result", result)
    }

    /// The text of a refusal.
    pub fn refusal(&self, code: i64, message: &str) -> String {
        self.frame("error", json!({"code": code, "message": message}))
    }

    fn frame(&self, key: &str, value: Value) -> String {
        let mut frame = json!({"id": self.id, key: value});
        if let Some(session) = &self.session {
            frame["sessionId"] = json!(session);
        }
        frame.to_string()
    }
}

/// What a hook does with a command.
#[derive(Clone)]
pub enum Reaction {
    /// What the browser would do.
    Usual,
    Result(Value),
    Error(i64, String),
    /// Text frames, whatever they say.
    Raw(Vec<String>),
    Binary(Vec<u8>),
    /// No answer, ever.
    Never,
    /// The answer comes twice.
    Twice(Value),
    /// The answer, and in the same packet a close frame with this code.
    Last(Value, u16),
    /// The same, later; other commands are answered meanwhile.
    After(Duration, Box<Reaction>),
    /// A close frame with this code, sent by the browser.
    Close(u16),
    Reset,
}

/// How the browser answers the client's close.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum CloseReply {
    Code(u16),
    /// It ends the TCP connection without a word.
    Drop,
    /// It says nothing and keeps the connection open.
    Silent,
}

/// How a WebSocket came to its end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Closing {
    /// The client closed with this code; `reply` is what it got.
    ByClient { code: Option<u16>, reply: CloseReply },
    /// No close handshake.
    Lost,
}

impl Closing {
    /// Whether it is a release: 1000 both ways.
    pub fn is_normal(self) -> bool {
        let normal = Self::ByClient { code: Some(1000), reply: CloseReply::Code(1000) };
        self == normal
    }
}

type Hook = Arc<dyn Fn(&Command) -> Reaction + Send + Sync>;

/// The browsers behind one [`super::FakeGateway`]: hooks and ledger are shared by all their connections.
#[derive(Clone, Default)]
pub struct FakeCdp(Arc<Shared>);

struct Shared {
    commands: Ledger<Command>,
    hooks: Mutex<HashMap<String, Hook>>,
    close_reply: Mutex<CloseReply>,
    peers: Mutex<Vec<Peer>>,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            commands: Ledger::default(),
            hooks: Mutex::default(),
            close_reply: Mutex::new(CloseReply::Code(1000)),
            peers: Mutex::default(),
        }
    }
}

/// One connection. Weak, so that the thread that serves it is the one whose end closes the socket.
#[derive(Clone)]
struct Peer {
    wire: Weak<Wire>,
    model: Arc<Mutex<Chromium>>,
}

impl FakeCdp {
    /// Has `method` answered by `hook` from now on.
    pub fn on(&self, method: &str, hook: impl Fn(&Command) -> Reaction + Send + Sync + 'static) {
        lock(&self.0.hooks).insert(method.to_owned(), Arc::new(hook));
    }

    /// Has `method` answered with `result` from now on.
    pub fn answers(&self, method: &str, result: Value) {
        self.on(method, move |_| Reaction::Result(result.clone()));
    }

    pub fn answers_close_with(&self, reply: CloseReply) {
        *lock(&self.0.close_reply) = reply;
    }

    pub fn commands(&self) -> Vec<Command> {
        self.0.commands.all()
    }

    pub fn count(&self, method: &str) -> usize {
        count(&self.commands(), method)
    }

    /// Waits until `method` has come `times` times, and gives the last of them.
    #[track_caller]
    pub fn wait_for(&self, method: &str, times: usize) -> Command {
        let what = format!("{times} x {method}");
        self.0.commands.wait_until(&what, |seen| count(seen, method) >= times);
        let mut seen = self.commands().into_iter().filter(|command| command.method == method);
        seen.nth(times - 1).expect("it was just counted")
    }

    /// Sends a text frame to every connection, whatever it says.
    pub fn send_raw(&self, text: &str) {
        self.each_wire(|wire| wire.text(text));
    }

    pub fn send_binary(&self, bytes: &[u8]) {
        self.each_wire(|wire| wire.frame(0x82, bytes));
    }

    /// Sends bytes that need not be a frame.
    pub fn send_bytes(&self, bytes: &[u8]) {
        self.each_wire(|wire| wire.raw(bytes));
    }

    /// Sends one text message in frames of `size` bytes.
    pub fn send_fragmented(&self, text: &str, size: usize) {
        let parts: Vec<_> = text.as_bytes().chunks(size).collect();
        self.each_wire(|wire| {
            for (index, part) in parts.iter().enumerate() {
                let opcode = if index == 0 { 1 } else { 0 };
                let fin = if index + 1 == parts.len() { 0x80 } else { 0 };
                wire.frame(fin | opcode, part);
            }
        });
    }

    /// Sends one event so many times, back to back.
    pub fn flood(&self, event: &Value, times: usize) {
        let text = event.to_string();
        self.each_wire(|wire| (0..times).for_each(|_| wire.text(&text)));
    }

    /// Starts a close with `code`.
    pub fn close(&self, code: u16) {
        self.each_wire(|wire| wire.close(code));
    }

    /// Ends every connection with RST.
    pub fn reset(&self) {
        self.each_wire(Wire::reset);
    }

    /// Ends every connection with FIN and no close frame.
    pub fn hang_up(&self) {
        self.each_wire(Wire::end);
    }

    /// Reads nothing more from any connection; they stay open.
    pub fn stop_reading(&self) {
        self.each_wire(Wire::go_deaf);
    }

    /// Waits until so many bytes have come to a connection that does not read them.
    #[track_caller]
    pub fn wait_for_unread(&self, bytes: usize) {
        let end = Instant::now() + PATIENCE;
        let mut unread = 0;
        while unread < bytes {
            assert!(Instant::now() < end, "waited in vain for {bytes} unread bytes: {unread}");
            std::thread::sleep(Duration::from_millis(5));
            self.each_wire(|wire| unread = unread.max(wire.unread()));
        }
    }

    /// Opens a page as the browser itself would, and gives its target id.
    pub fn open_page(&self, url: &str) -> String {
        let mut target = String::new();
        self.each_model(|model| {
            let (id, frames) = model.open_page(url);
            target = id;
            frames
        });
        target
    }

    pub fn close_page(&self, target: &str) {
        self.each_model(|model| model.close_page(target));
    }

    pub fn crash_page(&self, target: &str) {
        self.each_model(|model| model.crash_page(target));
    }

    /// Every attachment there is: (session id, target id).
    pub fn sessions(&self) -> Vec<(String, String)> {
        let peers = lock(&self.0.peers).clone();
        peers.iter().flat_map(|peer| lock(&peer.model).sessions()).collect()
    }

    fn each_wire(&self, mut act: impl FnMut(&Wire)) {
        let peers = lock(&self.0.peers).clone();
        peers.iter().filter_map(|peer| peer.wire.upgrade()).for_each(|wire| act(&wire));
    }

    fn each_model(&self, mut act: impl FnMut(&mut Chromium) -> Vec<String>) {
        for peer in lock(&self.0.peers).clone() {
            let Some(wire) = peer.wire.upgrade() else {
                continue;
            };
            let frames = act(&mut lock(&peer.model));
            frames.iter().for_each(|frame| wire.text(frame));
        }
    }

    /// Serves one connection until it ends.
    pub(super) fn serve(&self, wire: Arc<Wire>) -> Closing {
        let peer = Peer { wire: Arc::downgrade(&wire), model: Arc::default() };
        lock(&self.0.peers).push(peer.clone());
        let config = WebSocketConfig::default().max_message_size(None).max_frame_size(None);
        let mut socket = WebSocket::from_raw_socket(Ear(wire.clone()), Role::Server, Some(config));
        loop {
            match socket.read() {
                Ok(Message::Text(text)) => self.receive(&peer, &wire, &text),
                // The reader is not asked again, so it answers nothing of its own.
                Ok(Message::Close(frame)) => {
                    return self.answer_close(&wire, frame.map(|frame| frame.code.into()));
                }
                Ok(_) => {}
                Err(_) => return Closing::Lost,
            }
        }
    }

    fn receive(&self, peer: &Peer, wire: &Arc<Wire>, text: &str) {
        let Some(command) = self.record(text) else {
            return;
        };
        let hook = lock(&self.0.hooks).get(&command.method).cloned();
        let reaction = hook.map_or(Reaction::Usual, |hook| hook(&command));
        react(peer, wire, &command, reaction);
    }

    fn record(&self, text: &str) -> Option<Command> {
        let frame: Value = serde_json::from_str(text).ok()?;
        let method = frame["method"].as_str()?.to_owned();
        let command = Command {
            id: frame["id"].as_u64()?,
            nth: self.count(&method),
            params: frame.get("params").cloned().unwrap_or_else(|| json!({})),
            session: frame["sessionId"].as_str().map(str::to_owned),
            at: Instant::now(),
            method,
        };
        self.0.commands.write(command.clone());
        Some(command)
    }

    fn answer_close(&self, wire: &Arc<Wire>, code: Option<u16>) -> Closing {
        let reply = *lock(&self.0.close_reply);
        match reply {
            CloseReply::Code(code) => wire.close(code),
            CloseReply::Drop => {}
            CloseReply::Silent => keep_open(wire),
        }
        Closing::ByClient { code, reply }
    }
}

/// Holds a connection open, unanswered, until the client lets go of it.
fn keep_open(wire: &Arc<Wire>) {
    let mut ear = Ear(wire.clone());
    // Whatever the end looks like, it is the end.
    let _ = std::io::copy(&mut ear, &mut std::io::sink());
}

fn react(peer: &Peer, wire: &Arc<Wire>, command: &Command, reaction: Reaction) {
    match reaction {
        Reaction::Usual => {
            let frames = lock(&peer.model).answer(command);
            frames.iter().for_each(|frame| wire.text(frame));
        }
        Reaction::Result(result) => wire.text(&command.reply(result)),
        Reaction::Error(code, message) => wire.text(&command.refusal(code, &message)),
        Reaction::Raw(frames) => frames.iter().for_each(|frame| wire.text(frame)),
        Reaction::Binary(bytes) => wire.frame(0x82, &bytes),
        Reaction::Never => {}
        Reaction::Twice(result) => (0..2).for_each(|_| wire.text(&command.reply(result.clone()))),
        Reaction::Last(result, code) => {
            let end = wire::frame(0x88, &code.to_be_bytes());
            wire.raw(&[wire::frame(0x81, command.reply(result).as_bytes()), end].concat());
        }
        Reaction::After(pause, then) => react_later(peer.clone(), command.clone(), pause, *then),
        Reaction::Close(code) => wire.close(code),
        Reaction::Reset => wire.reset(),
    }
}

fn react_later(peer: Peer, command: Command, pause: Duration, reaction: Reaction) {
    std::thread::spawn(move || {
        std::thread::sleep(pause);
        if let Some(wire) = peer.wire.upgrade() {
            react(&peer, &wire, &command, reaction);
        }
    });
}

fn count(commands: &[Command], method: &str) -> usize {
    commands.iter().filter(|command| command.method == method).count()
}
