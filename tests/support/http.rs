//! HTTP/1.1 of the server's side: one request a connection, answers that can be broken on purpose.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};

/// A request, read whole.
#[derive(Debug, Clone)]
pub struct HttpRequest {
    pub method: String,
    /// As it came: percent-encoding is part of the contract.
    pub path: String,
    /// Decoded.
    pub query: Vec<(String, String)>,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl HttpRequest {
    /// Reads one request; `None` when the peer left or sent something else.
    pub fn read(stream: &mut impl Read) -> Option<Self> {
        let head = read_head(stream)?;
        let mut lines = head.split("\r\n");
        let mut first = lines.next()?.split(' ');
        let (method, target) = (first.next()?.to_owned(), first.next()?);
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut request = Self {
            method,
            path: path.to_owned(),
            query: url::form_urlencoded::parse(query.as_bytes()).into_owned().collect(),
            headers: lines.filter_map(header).collect(),
            body: Vec::new(),
        };
        let length = request.header("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
        request.body = vec![0; length];
        stream.read_exact(&mut request.body).ok()?;
        Some(request)
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub fn token(&self) -> Option<&str> {
        let found = self.query.iter().find(|(key, _)| key == "token");
        found.map(|(_, value)| value.as_str())
    }
}

/// Byte by byte, so that nothing of what follows the head is taken.
fn read_head(stream: &mut impl Read) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
        // Another protocol, TLS for one: a server does not wait for more of it.
        if !head[0].is_ascii_alphabetic() {
            return None;
        }
    }
    String::from_utf8(head).ok()
}

fn header(line: &str) -> Option<(String, String)> {
    let (key, value) = line.split_once(':')?;
    Some((key.to_owned(), value.trim().to_owned()))
}

/// How an answer reaches the client, whole or broken.
#[derive(Debug, Clone, Copy)]
pub enum Delivery {
    Whole,
    /// No length, and the end comes after so many bytes of the body: looks complete to a careless reader.
    CutAtClose(usize),
    /// One chunk is announced whole and ends after so many bytes.
    CutChunk(usize),
    /// One byte, then a pause of this length, and so on.
    Drip(Duration),
    /// Nothing is ever answered; the connection stays open until the client leaves.
    Hang,
    /// The head, and a body that never comes.
    HeadOnly,
    /// RST after the request was read.
    Reset,
    /// FIN after the request was read.
    Eof,
}

/// An answer, ready to be delivered.
pub struct HttpAnswer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub delivery: Delivery,
}

impl HttpAnswer {
    /// Delivers and ends the connection.
    pub fn deliver(&self, mut stream: TcpStream) -> io::Result<()> {
        match self.delivery {
            Delivery::Whole => self.send(&mut stream, &self.length(), &self.body),
            Delivery::CutAtClose(kept) => self.send(&mut stream, "", self.part(kept)),
            Delivery::CutChunk(kept) => {
                let chunk = [format!("{:x}\r\n", self.body.len()).as_bytes(), self.part(kept)].concat();
                self.send(&mut stream, "Transfer-Encoding: chunked\r\n", &chunk)
            }
            Delivery::Drip(pause) => self.drip(&mut stream, pause),
            Delivery::HeadOnly => {
                self.send(&mut stream, &self.length(), b"")?;
                io::copy(&mut stream, &mut io::sink()).map(drop)
            }
            Delivery::Hang => io::copy(&mut stream, &mut io::sink()).map(drop),
            Delivery::Reset => reset(stream),
            Delivery::Eof => Ok(()),
        }
    }

    fn send(&self, stream: &mut TcpStream, framing: &str, body: &[u8]) -> io::Result<()> {
        stream.write_all(&[self.head(framing).as_bytes(), body].concat())
    }

    fn drip(&self, stream: &mut TcpStream, pause: Duration) -> io::Result<()> {
        self.send(stream, &self.length(), b"")?;
        for byte in &self.body {
            std::thread::sleep(pause);
            stream.write_all(&[*byte])?;
        }
        Ok(())
    }

    fn head(&self, framing: &str) -> String {
        let mut head = format!("HTTP/1.1 {} Scripted\r\nConnection: close\r\n{framing}", self.status);
        for (key, value) in &self.headers {
            head.push_str(&format!("{key}: {value}\r\n"));
        }
        head + "\r\n"
    }

    fn length(&self) -> String {
        format!("Content-Length: {}\r\n", self.body.len())
    }

    fn part(&self, kept: usize) -> &[u8] {
        &self.body[..kept.min(self.body.len())]
    }
}

/// Ends a connection with RST instead of FIN.
pub fn reset(stream: TcpStream) -> io::Result<()> {
    reset_on_close(&stream)
}

/// Makes the last close of `stream` an RST.
pub fn reset_on_close(stream: &TcpStream) -> io::Result<()> {
    let linger = nix::libc::linger { l_onoff: 1, l_linger: 0 };
    Ok(setsockopt(stream, sockopt::Linger, &linger)?)
}
