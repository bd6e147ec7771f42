//! The fakes are what every other test believes: here they are looked at themselves, with a plain client.

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};
use support::{Answer, CloseReply, FakeGateway, Gate, Handshake, Reaction, Sandbox, Seen};
use tungstenite::protocol::frame::{CloseFrame, coding::CloseCode};
use tungstenite::stream::MaybeTlsStream;
use tungstenite::{Message, WebSocket};

/// A browser as a plain client sees it.
struct Client {
    socket: WebSocket<MaybeTlsStream<TcpStream>>,
    next: u64,
}

impl Client {
    fn connect(gateway: &FakeGateway) -> Self {
        let (_, body) = http(gateway, "GET", "/json/version?token=t");
        let answer: Value = serde_json::from_str(&body).unwrap();
        let url = answer["webSocketDebuggerUrl"].as_str().unwrap();
        let (socket, _) = tungstenite::connect(url).unwrap();
        Self { socket, next: 0 }
    }

    /// Sends a command; gives its reply and the events before it.
    fn call(&mut self, method: &str, params: Value, session: Option<&Value>) -> (Value, Vec<Value>) {
        self.next += 1;
        let mut frame = json!({"id": self.next, "method": method, "params": params});
        if let Some(session) = session {
            frame["sessionId"] = session.clone();
        }
        self.socket.send(Message::text(frame.to_string())).unwrap();
        let mut events = Vec::new();
        loop {
            let frame = self.frame();
            if frame["id"] == self.next {
                return (frame, events);
            }
            events.push(frame);
        }
    }

    fn frame(&mut self) -> Value {
        let message = self.socket.read().unwrap();
        serde_json::from_str(message.to_text().unwrap()).unwrap()
    }

    /// Closes with 1000 and gives the code that came back.
    fn close(mut self) -> Option<CloseCode> {
        let normal = CloseFrame { code: CloseCode::Normal, reason: "".into() };
        self.socket.close(Some(normal)).unwrap();
        match self.socket.read() {
            Ok(Message::Close(frame)) => frame.map(|frame| frame.code),
            _ => None,
        }
    }
}

/// One request; gives the status (0 for none) and the body.
fn http(gateway: &FakeGateway, method: &str, target: &str) -> (u16, String) {
    let host = gateway.url().replace("http://", "");
    let mut stream = TcpStream::connect(&host).unwrap();
    write!(stream, "{method} {target} HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
    let mut text = String::new();
    if stream.read_to_string(&mut text).is_err() {
        return (0, String::new());
    }
    let status = text.get(9..12).and_then(|code| code.parse().ok()).unwrap_or(0);
    let body = text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
    (status, body.unwrap_or_default())
}

#[test]
fn a_normal_close_pays_for_a_browser() {
    let gateway = FakeGateway::start();
    let client = Client::connect(&gateway);
    assert_eq!(gateway.owed().len(), 1);

    assert_eq!(client.close(), Some(CloseCode::Normal));

    gateway.assert_nothing_owed();
    assert_eq!((gateway.gets(), gateway.sockets(), gateway.deletes()), (1, 1, 0));
}

#[test]
fn another_close_code_or_a_lost_connection_pays_nothing() {
    let gateway = FakeGateway::start();
    gateway.cdp().answers_close_with(CloseReply::Code(1011));
    let refused = Client::connect(&gateway);
    let lost = Client::connect(&gateway);

    assert_ne!(refused.close(), Some(CloseCode::Normal));
    drop(lost);

    let closed = |seen: &[Seen]| seen.iter().filter(|seen| matches!(seen, Seen::Closed { .. })).count();
    gateway.wait_until("both closes", |seen| closed(seen) == 2);
    assert_eq!(gateway.owed().len(), 2);
}

#[test]
fn a_delete_pays_only_with_the_token_of_the_socket_url_or_the_callers() {
    let gateway = FakeGateway::start();
    gateway.wants_token("caller");
    assert_eq!(http(&gateway, "GET", "/json/version?token=other").0, 401);
    assert_eq!(gateway.allocations(), 0);
    http(&gateway, "GET", "/json/version?token=caller");
    let id = gateway.owed().remove(0);

    assert_eq!(http(&gateway, "DELETE", &format!("/v1/sessions/{id}?token=wrong")).0, 401);
    assert_eq!(gateway.releases(), 0);
    assert_eq!(http(&gateway, "DELETE", &format!("/v1/sessions/{id}?token=caller")).0, 204);

    gateway.assert_nothing_owed();
}

#[test]
fn scripted_answers_come_in_their_order_and_then_the_usual_one() {
    let gateway = FakeGateway::start();
    let gate = Gate::closed();
    let late = Answer::browser().behind(&gate).id("späte/id");
    gateway.answers_allocations_with([Answer::status(503), Answer::reset(), Answer::browser().cut_at_close(4), late]);
    gateway.answers_releases_with([500, 204]);

    assert_eq!(http(&gateway, "GET", "/json/version").0, 503);
    assert_eq!(http(&gateway, "GET", "/json/version").0, 0);
    assert_eq!(http(&gateway, "GET", "/json/version"), (200, "{\"we".to_owned()));
    gate.open();
    assert!(http(&gateway, "GET", "/json/version").1.contains("sp%C3%A4te%2Fid"));
    assert_eq!(http(&gateway, "DELETE", "/v1/sessions/sp%C3%A4te%2Fid").0, 500);
    assert_eq!(http(&gateway, "DELETE", "/v1/sessions/sp%C3%A4te%2Fid").0, 204);

    assert_eq!((gateway.allocations(), gateway.releases()), (3, 1));
}

#[test]
fn a_country_session_leads_to_a_browser() {
    let gateway = FakeGateway::start();

    let session: Value = serde_json::from_str(&http(&gateway, "POST", "/v1/sessions").1).unwrap();
    let target = format!("/v1/sessions/{}/browser", session["session"].as_str().unwrap());
    let browser: Value = serde_json::from_str(&http(&gateway, "POST", &target).1).unwrap();

    assert_eq!(gateway.owed(), [browser["browserId"].as_str().unwrap()]);
    assert!(browser["cdp"]["webSocketDebuggerUrl"].is_string());
}

#[test]
fn a_handshake_can_be_refused() {
    let gateway = FakeGateway::start();
    gateway.always_answers_allocations_with(Answer::browser().handshake(Handshake::Status(404)));
    let (_, body) = http(&gateway, "GET", "/json/version");
    let answer: Value = serde_json::from_str(&body).unwrap();

    let refused = tungstenite::connect(answer["webSocketDebuggerUrl"].as_str().unwrap());

    assert!(refused.is_err());
    assert_eq!((gateway.sockets(), gateway.owed().len()), (0, 1));
}

#[test]
fn the_browser_attaches_navigates_and_evaluates() {
    let gateway = FakeGateway::start();
    let mut client = Client::connect(&gateway);
    let (watch, _) = client.call("Target.attachToBrowserTarget", json!({}), None);
    let watch = watch["result"]["sessionId"].clone();
    let auto = json!({"autoAttach": true, "waitForDebuggerOnStart": true, "flatten": true});
    let (_, seen) = client.call("Target.setAutoAttach", auto, Some(&watch));
    assert_eq!(seen[0]["params"]["waitingForDebugger"], false);
    let page = seen[0]["params"]["sessionId"].clone();

    client.call("Page.enable", json!({}), Some(&page));
    client.call("Page.navigate", json!({"url": "data:text/html,<title>T</title>"}), Some(&page));
    assert_eq!(client.frame()["method"], "Page.domContentEventFired");
    assert_eq!(client.frame()["method"], "Page.loadEventFired");
    let mut value = |source: &str| {
        let (reply, _) = client.call("Runtime.evaluate", json!({"expression": source}), Some(&page));
        reply["result"]["result"]["value"].clone()
    };

    assert_eq!(value("1+1"), 2);
    assert_eq!(value("({t: document.title, n: [1,2].length})"), Value::Null);
    assert_eq!(value("({t: document.title, u: \"x\"})"), json!({"t": "T", "u": "x"}));
    let (_, opened) = client.call("Target.createTarget", json!({"url": "about:blank"}), None);
    assert_eq!(opened[0]["params"]["waitingForDebugger"], true);
    let (unknown, _) = client.call("Nope.nope", json!({}), None);
    assert_eq!(unknown["error"]["code"], -32601);
    assert_eq!(gateway.cdp().count("Runtime.evaluate"), 3);
}

#[test]
fn a_hook_replaces_an_answer() {
    let gateway = FakeGateway::start();
    gateway.cdp().on("Browser.getVersion", |command| match command.nth {
        0 => Reaction::Twice(json!({"first": true})),
        _ => Reaction::After(support::ms(1), Box::new(Reaction::Usual)),
    });
    let mut client = Client::connect(&gateway);

    assert_eq!(client.call("Browser.getVersion", json!({}), None).0["result"], json!({"first": true}));
    assert_eq!(client.frame()["result"], json!({"first": true}));
    assert!(client.call("Browser.getVersion", json!({}), None).0["result"]["product"].is_string());
    gateway.cdp().send_fragmented("{\"method\": \"A.b\"}", 3);
    assert_eq!(client.frame()["method"], "A.b");
    gateway.cdp().reset();

    assert!(client.socket.read().is_err());
    gateway.wait_until("the loss", |seen| seen.iter().any(|seen| matches!(seen, Seen::Closed { .. })));
}

#[test]
fn the_sandbox_sees_processes_and_litter_that_belong_to_it() {
    let sandbox = Sandbox::new();
    let other = Sandbox::new();
    std::fs::create_dir(sandbox.state()).unwrap();
    for kept in ["a.lock", "daemon.log"] {
        std::fs::write(sandbox.state().join(kept), "").unwrap();
    }
    assert_eq!((sandbox.processes(), sandbox.litter()), (vec![], vec![]));
    let socket = sandbox.state().join("a.sock");
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let mut child = std::process::Command::new("sleep").arg("60").current_dir(sandbox.work()).spawn().unwrap();

    let seen = sandbox.processes();

    assert_eq!(seen.iter().map(|process| process.pid).collect::<Vec<_>>(), [child.id() as i32]);
    assert_eq!(sandbox.litter(), std::slice::from_ref(&socket));
    assert_eq!((other.processes(), other.litter()), (vec![], vec![]));
    child.kill().unwrap();
    child.wait().unwrap();
    drop(listener);
    std::fs::remove_file(socket).unwrap();
    sandbox.assert_nothing_left();
}
