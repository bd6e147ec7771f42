//! A WebSocket that never blocks, over TCP or TLS.
//!
//! The handshake is `tungstenite`'s; the frames are our own (`codec`), since a general client reads once more for every
//! message and keeps a buffer as large as the largest one.

mod codec;

use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tungstenite::client::IntoClientRequest;
use tungstenite::handshake::client::{Response, generate_request};
use tungstenite::handshake::derive_accept_key;
use tungstenite::handshake::machine::TryParse;
use tungstenite::http::StatusCode;
use url::Url;

use self::codec::{Decoded, Decoder, Opcode};
use super::transport::{Incoming, Transport};
use super::{CloseReason, DialError};

/// What one `read` asks for.
const CHUNK: usize = 64 << 10;

/// The longest answer to a handshake.
const HEAD_LIMIT: usize = 16 << 10;

/// Opens the WebSocket at `url` over `stream`, which is connected to its host (or to a proxy's tunnel there).
///
/// # Errors
/// [`DialError`], which names no URL; `deadline` is kept for TLS and handshake together.
pub fn dial(url: &Url, stream: TcpStream, deadline: Instant) -> Result<WebSocket, DialError> {
    let timed = Timed { stream, deadline: Some(deadline), drained: false };
    let mut stream = match url.scheme() {
        "wss" => Stream::Tls(Box::new(tls(url, timed)?)),
        _ => Stream::Plain(timed),
    };
    let early = shake_hands(url, &mut stream)?;
    stream.make_nonblocking().map_err(|error| DialError::Connect(error.kind().to_string()))?;
    Ok(WebSocket::new(stream, &early))
}

/// Asks for the upgrade; what came behind the answer is the stream's beginning.
fn shake_hands(url: &Url, stream: &mut Stream) -> Result<Vec<u8>, DialError> {
    let request = url.as_str().into_client_request().map_err(|_| DialError::Handshake)?;
    let (request, key) = generate_request(request).map_err(|_| DialError::Handshake)?;
    stream.write_all(&request).and_then(|()| stream.flush()).map_err(dial_error)?;
    let mut answer = Vec::new();
    let (length, response) = loop {
        if let Some(parsed) = Response::try_parse(&answer).map_err(|_| DialError::Handshake)? {
            break parsed;
        }
        let mut piece = [0; 4096];
        match stream.read(&mut piece).map_err(dial_error)? {
            0 => return Err(DialError::Handshake),
            _ if answer.len() > HEAD_LIMIT => return Err(DialError::Handshake),
            read => answer.extend_from_slice(&piece[..read]),
        }
    };
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(DialError::Status(response.status().as_u16()));
    }
    let says = |name: &str, value: &str| {
        response.headers().get(name).is_some_and(|header| header.as_bytes().eq_ignore_ascii_case(value.as_bytes()))
    };
    let accept = response.headers().get("Sec-WebSocket-Accept").map(|header| header.as_bytes());
    if !says("Upgrade", "websocket") || accept != Some(derive_accept_key(key.as_bytes()).as_bytes()) {
        return Err(DialError::Handshake);
    }
    Ok(answer.split_off(length))
}

fn tls(url: &Url, stream: Timed) -> Result<StreamOwned<ClientConnection, Timed>, DialError> {
    let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    let name = ServerName::try_from(host.to_owned()).map_err(|_| DialError::Tls("not a host name".to_owned()))?;
    let roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| DialError::Tls(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connection =
        ClientConnection::new(Arc::new(config), name).map_err(|error| DialError::Tls(error.to_string()))?;
    let mut stream = StreamOwned::new(connection, stream);
    stream.conn.complete_io(&mut stream.sock).map_err(tls_error)?;
    Ok(stream)
}

fn tls_error(error: io::Error) -> DialError {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => DialError::TimedOut,
        io::ErrorKind::InvalidData => DialError::Tls(error.to_string()),
        kind => DialError::Connect(kind.to_string()),
    }
}

fn dial_error(error: io::Error) -> DialError {
    match tls_error(error) {
        DialError::Tls(_) => DialError::Handshake,
        other => other,
    }
}

/// A TCP stream whose blocking reads and writes end at a deadline, together.
struct Timed {
    stream: TcpStream,
    /// `None` once it does not block any more.
    deadline: Option<Instant>,
    /// Whether the last read has emptied the socket, so that another one would only say so.
    drained: bool,
}

impl Timed {
    fn left(&self) -> io::Result<Option<Duration>> {
        match self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
            Some(Duration::ZERO) => Err(io::ErrorKind::TimedOut.into()),
            left => Ok(left),
        }
    }
}

impl Read for Timed {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if let Some(left) = self.left()? {
            self.stream.set_read_timeout(Some(left))?;
            return self.stream.read(bytes);
        }
        if std::mem::take(&mut self.drained) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let read = self.stream.read(bytes)?;
        // Whoever polls next learns of what comes after a short read; the end is none.
        self.drained = (1..bytes.len()).contains(&read);
        Ok(read)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(left) = self.left()? {
            self.stream.set_write_timeout(Some(left))?;
        }
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

enum Stream {
    Plain(Timed),
    Tls(Box<StreamOwned<ClientConnection, Timed>>),
}

impl Stream {
    fn timed(&mut self) -> &mut Timed {
        match self {
            Self::Plain(timed) => timed,
            Self::Tls(stream) => &mut stream.sock,
        }
    }

    fn make_nonblocking(&mut self) -> io::Result<()> {
        let timed = self.timed();
        timed.deadline = None;
        timed.stream.set_nodelay(true)?;
        timed.stream.set_nonblocking(true)
    }

    fn fd(&self) -> RawFd {
        match self {
            Self::Plain(timed) => timed.stream.as_raw_fd(),
            Self::Tls(stream) => stream.sock.stream.as_raw_fd(),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(timed) => timed.read(bytes),
            Self::Tls(stream) => stream.read(bytes),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(timed) => timed.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(timed) => timed.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

/// An open WebSocket.
pub struct WebSocket {
    stream: Stream,
    /// What one `read` fills, and which part of it is not decoded yet.
    chunk: Box<[u8]>,
    unread: Range<usize>,
    decoder: Decoder,
    /// Bytes to be written; those before `written` were.
    outgoing: Vec<u8>,
    written: usize,
    /// A close frame of ours is among what is to be written, or was.
    is_closing: bool,
    masks: Masks,
}

impl WebSocket {
    fn new(stream: Stream, early: &[u8]) -> Self {
        let mut chunk = vec![0; CHUNK].into_boxed_slice();
        chunk[..early.len()].copy_from_slice(early);
        Self {
            stream,
            chunk,
            unread: 0..early.len(),
            decoder: Decoder::default(),
            outgoing: Vec::new(),
            written: 0,
            is_closing: false,
            masks: Masks::default(),
        }
    }

    /// Queues one frame and writes what goes.
    fn push(&mut self, opcode: Opcode, payload: &[u8]) -> Result<bool, CloseReason> {
        codec::encode(opcode, payload, self.masks.next(), &mut self.outgoing);
        self.flush()
    }

    /// Decodes what is here already.
    fn decode(&mut self) -> Result<Option<Decoded>, CloseReason> {
        let mut input = &self.chunk[self.unread.clone()];
        let decoded = self.decoder.next(&mut input);
        self.unread.start = self.unread.end - input.len();
        decoded
    }

    /// Reads once; false when nothing is there.
    fn fill(&mut self) -> Result<bool, CloseReason> {
        match self.stream.read(&mut self.chunk) {
            Ok(0) => Err(CloseReason::HungUp),
            Ok(read) => {
                self.unread = 0..read;
                Ok(true)
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(false),
            Err(error) => Err(close_reason(&error)),
        }
    }

    fn take_in(&mut self, decoded: Decoded) -> Result<Incoming, CloseReason> {
        Ok(match decoded {
            Decoded::Text(bytes) => match String::from_utf8(bytes) {
                Ok(text) if !text.is_empty() => Incoming::Text(text.into()),
                // The message is lost, and what comes behind it is not.
                Ok(_) | Err(_) => Incoming::Odd,
            },
            Decoded::Binary => Incoming::Odd,
            Decoded::Ping(payload) => {
                self.push(Opcode::Pong, &payload)?;
                Incoming::Life
            }
            Decoded::Pong => Incoming::Life,
            Decoded::Close(code) => return Err(self.closed_by_peer(code)),
        })
    }

    fn closed_by_peer(&mut self, code: Option<u16>) -> CloseReason {
        // An answer to ours only if ours was out.
        if self.is_closing && self.outgoing.is_empty() && code == Some(1000) {
            return CloseReason::Normal;
        }
        let payload = code.map(u16::to_be_bytes);
        // Its answer goes out if it can; the stream is at its end either way.
        let _ = self.push(Opcode::Close, payload.as_ref().map_or(&[], |code| code));
        CloseReason::Peer(code.unwrap_or(1005))
    }
}

impl Transport for WebSocket {
    fn reader(&self) -> RawFd {
        self.stream.fd()
    }

    fn writer(&self) -> RawFd {
        self.reader()
    }

    fn queue(&mut self, text: String) {
        codec::encode(Opcode::Text, text.as_bytes(), self.masks.next(), &mut self.outgoing);
    }

    fn unwritten(&self) -> usize {
        self.outgoing.len() - self.written
    }

    fn flush(&mut self) -> Result<bool, CloseReason> {
        while self.written < self.outgoing.len() {
            match self.stream.write(&self.outgoing[self.written..]) {
                Ok(wrote) => self.written += wrote,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(close_reason(&error)),
            }
        }
        self.outgoing.clear();
        self.outgoing.shrink_to(CHUNK);
        self.written = 0;
        match self.stream.flush() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(close_reason(&error)),
            Ok(()) => Ok(true),
        }
    }

    fn receive(&mut self) -> Result<Option<Incoming>, CloseReason> {
        loop {
            if let Some(decoded) = self.decode()? {
                return self.take_in(decoded).map(Some);
            }
            if !self.fill()? {
                return Ok(None);
            }
        }
    }

    fn ping(&mut self) -> Result<bool, CloseReason> {
        self.push(Opcode::Ping, &[])
    }

    fn close(&mut self) -> Result<bool, CloseReason> {
        self.is_closing = true;
        self.push(Opcode::Close, &1000_u16.to_be_bytes())
    }

    fn terminate(&mut self) {
        // It may be gone already.
        let _ = self.stream.timed().stream.shutdown(Shutdown::Both);
    }
}

/// The masks of our frames. They hide nothing; they keep what a page makes us send from looking like HTTP to a proxy.
#[derive(Default)]
struct Masks(RandomState, u64);

impl Masks {
    fn next(&mut self) -> [u8; 4] {
        self.1 += 1;
        (self.0.hash_one(self.1) as u32).to_ne_bytes()
    }
}

fn close_reason(error: &io::Error) -> CloseReason {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => CloseReason::HungUp,
        kind => CloseReason::Broken(kind.to_string()),
    }
}
