//! The other end: an HTTP server that does one scripted thing per request and keeps a ledger.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use nix::sys::socket::{setsockopt, sockopt};

/// What a request is met with, once it was read whole.
pub(crate) enum Deed {
    /// These bytes, then the end of the connection.
    Say(String),
    /// The end of the connection.
    End,
    /// A reset of the connection.
    Reset,
    /// Nothing, until the client gives up.
    Silence,
    /// What another thread decides.
    Do(Box<dyn FnOnce(&mut TcpStream) + Send>),
}

/// `Say` a status, headers and a body of known length.
pub(crate) fn say(status: u16, headers: &str, body: &str) -> Deed {
    let length = body.len();
    Deed::Say(format!("HTTP/1.1 {status} X\r\n{headers}Content-Length: {length}\r\n\r\n{body}"))
}

pub(crate) struct Server {
    address: SocketAddr,
    ledger: Arc<Mutex<Vec<String>>>,
    ending: Arc<AtomicBool>,
    serving: Option<JoinHandle<()>>,
}

impl Server {
    /// Meets the requests with `deeds`, in order; one too many ends without a word, and is in the ledger.
    pub(crate) fn start(deeds: impl IntoIterator<Item = Deed>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let ledger = Arc::new(Mutex::new(Vec::new()));
        let ending = Arc::new(AtomicBool::new(false));
        let (seen, end) = (ledger.clone(), ending.clone());
        let mut deeds = deeds.into_iter().collect::<Vec<_>>().into_iter();
        let serving = thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if end.load(Ordering::SeqCst) {
                    return;
                }
                if let Some(request) = read_request(&stream) {
                    seen.lock().unwrap().push(request);
                    meet(stream, deeds.next().unwrap_or(Deed::End));
                }
            }
        });
        Self { address, ledger, ending, serving: Some(serving) }
    }

    pub(crate) fn authority(&self) -> String {
        self.address.to_string()
    }

    /// The requests so far: `METHOD target body`.
    pub(crate) fn ledger(&self) -> Vec<String> {
        self.ledger.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::SeqCst);
        // Wakes `accept`; a server that is gone already needs no waking.
        let _ = TcpStream::connect(self.address);
        if let Some(serving) = self.serving.take() {
            serving.join().unwrap();
        }
    }
}

fn read_request(stream: &TcpStream) -> Option<String> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let length = head
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok())
        .unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let line = head.lines().next()?.trim_end_matches(" HTTP/1.1");
    let body = String::from_utf8_lossy(&body);
    Some(format!("{line} {body}").trim_end().to_owned())
}

fn meet(mut stream: TcpStream, deed: Deed) {
    match deed {
        // The client may have turned away before the last byte.
        Deed::Say(text) => drop(stream.write_all(text.as_bytes())),
        Deed::End => drop(stream.shutdown(Shutdown::Both)),
        Deed::Reset => {
            let at_once = nix::libc::linger { l_onoff: 1, l_linger: 0 };
            setsockopt(&stream, sockopt::Linger, &at_once).unwrap();
        }
        Deed::Silence => drop(stream.read(&mut [0])),
        Deed::Do(deed) => deed(&mut stream),
    }
}
