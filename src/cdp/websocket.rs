//! A WebSocket that never blocks, over TCP or TLS.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tungstenite::handshake::HandshakeError;
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tungstenite::{Error, Message, WebSocket as Socket};
use url::Url;

use super::transport::{Incoming, MESSAGE_LIMIT, Transport, over_the_limit};
use super::{CloseReason, DialError};

/// Opens the WebSocket at `url` over `stream`, which is connected to its host (or to a proxy's tunnel there).
///
/// # Errors
/// [`DialError`], which names no URL; `deadline` is kept for TLS and handshake together.
pub fn dial(url: &Url, stream: TcpStream, deadline: Instant) -> Result<WebSocket, DialError> {
    let timed = Timed { stream, deadline: Some(deadline), drained: false };
    let stream = match url.scheme() {
        "wss" => Stream::Tls(Box::new(tls(url, timed)?)),
        _ => Stream::Plain(timed),
    };
    let config = WebSocketConfig::default()
        .max_message_size(Some(MESSAGE_LIMIT))
        .max_frame_size(Some(MESSAGE_LIMIT))
        .max_write_buffer_size(usize::MAX);
    let (mut socket, _) =
        tungstenite::client::client_with_config(url.as_str(), stream, Some(config)).map_err(dial_error)?;
    socket.get_mut().make_nonblocking().map_err(|error| DialError::Connect(error.kind().to_string()))?;
    Ok(WebSocket { socket, close_sent: false })
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

fn dial_error<R: tungstenite::handshake::HandshakeRole>(error: HandshakeError<R>) -> DialError {
    match error {
        HandshakeError::Interrupted(_) => DialError::TimedOut,
        HandshakeError::Failure(Error::Http(response)) => DialError::Status(response.status().as_u16()),
        HandshakeError::Failure(Error::Io(error)) => match tls_error(error) {
            DialError::Tls(_) => DialError::Handshake,
            other => other,
        },
        HandshakeError::Failure(_) => DialError::Handshake,
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
    socket: Socket<Stream>,
    /// Our close frame has left.
    close_sent: bool,
}

impl WebSocket {
    fn written(&mut self, result: Result<(), Error>) -> Result<bool, CloseReason> {
        match result {
            Ok(()) => Ok(true),
            Err(Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(close_reason(error)),
        }
    }

    /// Queues `message` and writes what goes.
    fn push(&mut self, message: Message) -> Result<bool, CloseReason> {
        // A full socket is no error here: the frame is queued, and `flush` tells.
        let queued = self.socket.write(message);
        self.written(queued)?;
        self.flush()
    }
}

impl Transport for WebSocket {
    fn reader(&self) -> RawFd {
        self.socket.get_ref().fd()
    }

    fn writer(&self) -> RawFd {
        self.reader()
    }

    fn send(&mut self, text: String) -> Result<bool, CloseReason> {
        self.push(Message::text(text))
    }

    fn flush(&mut self) -> Result<bool, CloseReason> {
        let flushed = self.socket.flush();
        self.written(flushed)
    }

    fn receive(&mut self) -> Result<Option<Incoming>, CloseReason> {
        match self.socket.read() {
            Ok(Message::Text(text)) if text.is_empty() => Ok(Some(Incoming::Odd)),
            Ok(Message::Text(text)) => Ok(Some(Incoming::Text(text))),
            Ok(Message::Binary(_) | Message::Frame(_)) => Ok(Some(Incoming::Odd)),
            Ok(Message::Ping(_) | Message::Pong(_)) => {
                self.flush()?;
                Ok(Some(Incoming::Life))
            }
            Ok(Message::Close(frame)) => {
                let code = frame.map_or(1005, |frame| u16::from(frame.code));
                // Its answer goes out if it can; the stream is at its end either way.
                let _ = self.socket.flush();
                Err(if self.close_sent && code == 1000 { CloseReason::Normal } else { CloseReason::Peer(code) })
            }
            Err(Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            // The message is lost, and what comes behind it is not.
            Err(Error::Utf8(_)) => Ok(Some(Incoming::Odd)),
            Err(error) => Err(close_reason(error)),
        }
    }

    fn ping(&mut self) -> Result<bool, CloseReason> {
        self.push(Message::Ping(tungstenite::Bytes::new()))
    }

    fn close(&mut self) -> Result<bool, CloseReason> {
        let frame = CloseFrame { code: CloseCode::Normal, reason: tungstenite::Utf8Bytes::from_static("") };
        let queued = self.socket.close(Some(frame));
        self.written(queued)?;
        self.close_sent = self.flush()?;
        Ok(self.close_sent)
    }

    fn terminate(&mut self) {
        // It may be gone already.
        let _ = self.socket.get_mut().timed().stream.shutdown(Shutdown::Both);
    }
}

fn close_reason(error: Error) -> CloseReason {
    match error {
        Error::ConnectionClosed | Error::AlreadyClosed => CloseReason::HungUp,
        Error::Protocol(tungstenite::error::ProtocolError::ResetWithoutClosingHandshake) => CloseReason::HungUp,
        Error::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => CloseReason::HungUp,
        Error::Io(error) => CloseReason::Broken(error.kind().to_string()),
        Error::Capacity(_) => over_the_limit(),
        Error::Protocol(error) => CloseReason::Protocol(error.to_string()),
        _ => CloseReason::Protocol("an unexpected frame".to_owned()),
    }
}
