//! What the benches share: a bare client to be measured against, a browser on a port, medians and a table.

#![allow(dead_code, missing_docs)]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ghost_browser::cancel::Cancel;
use ghost_browser::gateway::{Allocation, Ask, Capability, Endpoint, Gateway, RequestLeft};
use ghost_browser::local::{self, Local};
use serde_json::Value;
use tungstenite::{Message, WebSocket};

/// One sequential caller at its best: what a script is measured against.
pub enum Bare {
    WebSocket(WebSocket<TcpStream>),
    Pipe { reader: BufReader<fs::File>, writer: fs::File, capability: Capability },
}

impl Bare {
    /// Over a WebSocket, blocking, without Nagle's delay.
    pub fn websocket(url: &str) -> Self {
        let host = url.trim_start_matches("ws://").split('/').next().unwrap();
        let stream = TcpStream::connect(host).unwrap();
        stream.set_nodelay(true).unwrap();
        Self::WebSocket(tungstenite::client(url, stream).unwrap().0)
    }

    /// Over the debugging pipe of a browser of its own.
    pub fn pipe(state: &std::path::Path) -> Self {
        let settings = local::Settings::new(state, local::Settings::keep_environment(std::env::vars_os()));
        let deadline = Instant::now() + Duration::from_secs(30);
        let left = RequestLeft::new();
        let ask = Ask {
            deadline,
            last_word: deadline,
            abandoned: Cancel::new(),
            prepared: None,
            left,
            on_retry: std::sync::Arc::new(drop),
        };
        let Allocation::Granted(grant) = Local::new(settings).allocate(&ask) else { panic!("no Chromium") };
        let Endpoint::Pipe { reader, writer } = grant.endpoint else { panic!("no pipe") };
        let file = |fd: OwnedFd| fs::File::from(fd);
        Self::Pipe { reader: BufReader::new(file(reader)), writer: file(writer), capability: grant.capability }
    }

    pub fn send(&mut self, id: usize, method: &str, params: &str, session: Option<&str>) {
        let session = session.map(|session| format!(",\"sessionId\":\"{session}\"")).unwrap_or_default();
        let frame = format!("{{\"id\":{id},\"method\":\"{method}\",\"params\":{params}{session}}}");
        match self {
            Self::WebSocket(socket) => socket.send(Message::text(frame)).unwrap(),
            Self::Pipe { writer, .. } => writer.write_all(&[frame.as_bytes(), b"\0"].concat()).unwrap(),
        }
    }

    /// The reply to `id`; what comes before it is let go.
    pub fn reply(&mut self, id: usize) -> Value {
        loop {
            let text = match self {
                Self::WebSocket(socket) => socket.read().unwrap().into_text().unwrap().as_str().to_owned(),
                Self::Pipe { reader, .. } => {
                    let mut bytes = Vec::new();
                    reader.read_until(0, &mut bytes).unwrap();
                    bytes.pop();
                    String::from_utf8(bytes).unwrap()
                }
            };
            let reply: Value = serde_json::from_str(&text).unwrap();
            if reply["id"] == id {
                return reply;
            }
        }
    }

    pub fn call(&mut self, id: usize, method: &str, params: &str, session: Option<&str>) -> Value {
        self.send(id, method, params, session);
        self.reply(id)
    }

    /// A session on the first page.
    pub fn page(&mut self) -> String {
        let targets = self.call(1, "Target.getTargets", "{}", None);
        let targets = targets["result"]["targetInfos"].as_array().unwrap();
        let page = targets.iter().find(|target| target["type"] == "page").unwrap()["targetId"].as_str().unwrap();
        let params = format!("{{\"targetId\":\"{page}\",\"flatten\":true}}");
        let attached = self.call(2, "Target.attachToTarget", &params, None);
        attached["result"]["sessionId"].as_str().unwrap().to_owned()
    }

    /// Calls a second.
    pub fn rate(&mut self, count: usize, method: &str, params: &str, session: Option<&str>) -> f64 {
        let start = Instant::now();
        for id in 0..count {
            self.call(id + 10, method, params, session);
        }
        count as f64 / start.elapsed().as_secs_f64()
    }

    /// Calls a second, all sent before the first reply is read.
    pub fn pipelined_rate(&mut self, count: usize, method: &str) -> f64 {
        let start = Instant::now();
        for id in 0..count {
            self.send(id + 10, method, "{}", None);
        }
        for id in 0..count {
            self.reply(id + 10);
        }
        count as f64 / start.elapsed().as_secs_f64()
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        if let Self::Pipe { capability, .. } = self {
            // A bench that leaves a browser behind says so by the process list; nothing depends on it.
            let _ = capability.release(false, Instant::now() + Duration::from_secs(10));
            capability.settle();
        }
    }
}

/// A Chromium that listens on a port, for as long as this lives.
pub struct Browser {
    process: Child,
    profile: tempfile::TempDir,
    pub url: String,
}

impl Browser {
    pub fn start() -> Self {
        let profile = tempfile::tempdir().unwrap();
        let process = Command::new("chromium")
            .args(["--headless=new", "--no-sandbox", "--remote-debugging-port=0", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync", "about:blank"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .env("HOME", profile.path())
            .stderr(Stdio::piped())
            .spawn()
            .expect("chromium is on PATH");
        let mut browser = Self { process, profile, url: String::new() };
        let lines = BufReader::new(browser.process.stderr.take().unwrap()).lines();
        let mut listening =
            lines.map_while(Result::ok).filter_map(|line| Some(line.split_once("listening on ")?.1.to_owned()));
        browser.url = listening.next().expect("DevTools listens");
        // Its log goes on: somebody has to read it.
        std::thread::spawn(move || listening.count());
        browser
    }

    pub fn profile(&self) -> PathBuf {
        self.profile.path().to_owned()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The middle of what was measured.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// One line of the result: what, the figure, what it is held against, and the floor and goal.
pub fn row(what: &str, figure: String, against: &str, ratio: Option<f64>, floor: f64, goal: f64) {
    let ratio = ratio.map(|ratio| format!("{ratio:.2}")).unwrap_or_default();
    println!("{what:<44} {figure:>14} {against:>22} {ratio:>6}  floor {floor} goal {goal}");
}
