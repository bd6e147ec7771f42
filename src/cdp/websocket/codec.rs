//! WebSocket frames (RFC 6455), as a client sees them: bytes in, whole messages out, and no memory kept of a large one.

use crate::cdp::CloseReason;
use crate::cdp::transport::{MESSAGE_LIMIT, over_the_limit};

/// What a frame carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opcode {
    Continuation,
    Text,
    Binary,
    Close,
    Ping,
    Pong,
}

impl Opcode {
    fn of(bits: u8) -> Option<Self> {
        Some(match bits {
            0 => Self::Continuation,
            1 => Self::Text,
            2 => Self::Binary,
            8 => Self::Close,
            9 => Self::Ping,
            10 => Self::Pong,
            _ => return None,
        })
    }

    fn bits(self) -> u8 {
        match self {
            Self::Continuation => 0,
            Self::Text => 1,
            Self::Binary => 2,
            Self::Close => 8,
            Self::Ping => 9,
            Self::Pong => 10,
        }
    }

    fn is_control(self) -> bool {
        matches!(self, Self::Close | Self::Ping | Self::Pong)
    }
}

/// Something whole that arrived.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decoded {
    Text(Vec<u8>),
    Binary,
    Ping(Vec<u8>),
    Pong,
    /// With the peer's code, if it gave one.
    Close(Option<u16>),
}

/// The most that a frame's claim has room made for before its bytes are here.
const TRUSTED: usize = 32 << 20;

/// The longest head of a frame from a server: it masks nothing.
const LONGEST_HEAD: usize = 10;

/// Takes bytes as they come.
#[derive(Default)]
pub(super) struct Decoder {
    head: Vec<u8>,
    frame: Option<Frame>,
    /// What the fragments of the current message carry.
    kind: Option<Opcode>,
    message: Vec<u8>,
    control: Vec<u8>,
}

/// A frame whose payload is arriving.
#[derive(Clone, Copy)]
struct Frame {
    opcode: Opcode,
    is_last: bool,
    left: usize,
}

impl Decoder {
    /// Takes from `input` up to the end of the next whole message; `None` when that is still to come.
    ///
    /// # Errors
    /// [`CloseReason::Protocol`]: nothing that comes later can be understood.
    pub(super) fn next(&mut self, input: &mut &[u8]) -> Result<Option<Decoded>, CloseReason> {
        loop {
            let mut frame = match self.frame.take() {
                Some(frame) => frame,
                None => match self.read_head(input)? {
                    Some(frame) => frame,
                    None => return Ok(None),
                },
            };
            let (now, later) = input.split_at(frame.left.min(input.len()));
            *input = later;
            let target = if frame.opcode.is_control() { &mut self.control } else { &mut self.message };
            target.extend_from_slice(now);
            frame.left -= now.len();
            if frame.left > 0 {
                self.frame = Some(frame);
                return Ok(None);
            }
            if let Some(decoded) = self.finish(frame) {
                return Ok(Some(decoded));
            }
        }
    }

    fn read_head(&mut self, input: &mut &[u8]) -> Result<Option<Frame>, CloseReason> {
        while self.head.len() < self.head_length() {
            let Some((&byte, later)) = input.split_first() else { return Ok(None) };
            self.head.push(byte);
            *input = later;
        }
        let frame = self.understand_head()?;
        self.head.clear();
        Ok(Some(frame))
    }

    fn head_length(&self) -> usize {
        match self.head.get(1).map(|byte| byte & 0x7f) {
            None => 2,
            Some(126) => 4,
            Some(127) => LONGEST_HEAD,
            Some(_) => 2,
        }
    }

    fn understand_head(&mut self) -> Result<Frame, CloseReason> {
        let (first, second) = (self.head[0], self.head[1]);
        let opcode =
            Opcode::of(first & 0x0f).filter(|_| first & 0x70 == 0).ok_or_else(|| broken("an unknown frame"))?;
        if second & 0x80 != 0 {
            return Err(broken("a masked frame"));
        }
        let length = match self.head[2..] {
            [] => usize::from(second & 0x7f),
            [high, low] => usize::from(u16::from_be_bytes([high, low])),
            ref long => {
                long.iter().fold(0, |length: usize, &byte| length.saturating_mul(256).saturating_add(byte.into()))
            }
        };
        let frame = Frame { opcode, is_last: first & 0x80 != 0, left: length };
        self.admit(&frame)?;
        Ok(frame)
    }

    /// Whether a frame may come now, and how much room it takes.
    fn admit(&mut self, frame: &Frame) -> Result<(), CloseReason> {
        match (frame.opcode, self.kind) {
            (opcode, _) if opcode.is_control() => {
                let fits = frame.is_last && frame.left <= 125;
                self.control.clear();
                return if fits { Ok(()) } else { Err(broken("a control frame in pieces")) };
            }
            (Opcode::Continuation, None) => return Err(broken("a continuation of nothing")),
            (Opcode::Continuation, Some(_)) => {}
            (_, Some(_)) => return Err(broken("a message inside of another")),
            (opcode, None) => self.kind = Some(opcode),
        }
        if self.message.len().saturating_add(frame.left) > MESSAGE_LIMIT {
            return Err(over_the_limit());
        }
        self.message.reserve_exact(frame.left.min(TRUSTED));
        Ok(())
    }

    /// What a frame that is all here completes.
    fn finish(&mut self, frame: Frame) -> Option<Decoded> {
        match frame.opcode {
            Opcode::Ping => Some(Decoded::Ping(std::mem::take(&mut self.control))),
            Opcode::Pong => Some(Decoded::Pong),
            Opcode::Close => {
                let code = self.control.first_chunk().map(|code| u16::from_be_bytes(*code));
                Some(Decoded::Close(code))
            }
            _ if !frame.is_last => None,
            _ => {
                let message = std::mem::take(&mut self.message);
                let is_text = self.kind.take() == Some(Opcode::Text);
                Some(if is_text { Decoded::Text(message) } else { Decoded::Binary })
            }
        }
    }
}

fn broken(what: &str) -> CloseReason {
    CloseReason::Protocol(what.to_owned())
}

/// Appends one whole frame to `out`, masked as a client's has to be.
pub(super) fn encode(opcode: Opcode, payload: &[u8], mask: [u8; 4], out: &mut Vec<u8>) {
    out.reserve(payload.len() + 14);
    out.push(0x80 | opcode.bits());
    match payload.len() {
        length @ ..=125 => out.push(0x80 | length as u8),
        length @ ..=0xffff => {
            out.push(0x80 | 126);
            out.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            out.push(0x80 | 127);
            out.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(&mask);
    let start = out.len();
    out.extend_from_slice(payload);
    for piece in out[start..].chunks_mut(4) {
        piece.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
    }
}

#[cfg(test)]
mod tests {
    use tungstenite::protocol::Role;
    use tungstenite::{Message, WebSocket};

    use super::*;

    fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![first];
        match payload.len() {
            length @ ..=125 => bytes.push(length as u8),
            length @ ..=0xffff => {
                bytes.push(126);
                bytes.extend_from_slice(&(length as u16).to_be_bytes());
            }
            length => {
                bytes.push(127);
                bytes.extend_from_slice(&(length as u64).to_be_bytes());
            }
        }
        bytes.extend_from_slice(payload);
        bytes
    }

    /// All that comes of `bytes` when they arrive in pieces of `size`.
    fn decoded(bytes: &[u8], size: usize) -> Result<Vec<Decoded>, CloseReason> {
        let (mut decoder, mut all) = (Decoder::default(), Vec::new());
        for mut piece in bytes.chunks(size) {
            while let Some(decoded) = decoder.next(&mut piece)? {
                all.push(decoded);
            }
            assert!(piece.is_empty());
        }
        Ok(all)
    }

    #[test]
    fn messages_arrive_whole_however_they_were_cut() {
        let long = vec![b'x'; 70_000];
        let stream = [
            frame(0x81, b"one"),
            frame(0x01, b"tw"),
            frame(0x89, b"ping"),
            frame(0x80, b"o"),
            frame(0x82, &[0; 200]),
            frame(0x81, &long),
            frame(0x81, b""),
            frame(0x8a, b""),
            frame(0x88, &[3, 232]),
        ]
        .concat();
        let expected = [
            Decoded::Text(b"one".to_vec()),
            Decoded::Ping(b"ping".to_vec()),
            Decoded::Text(b"two".to_vec()),
            Decoded::Binary,
            Decoded::Text(long),
            Decoded::Text(Vec::new()),
            Decoded::Pong,
            Decoded::Close(Some(1000)),
        ];

        for size in [1, 2, 3, 7, 4096, stream.len()] {
            assert_eq!(decoded(&stream, size).unwrap(), expected, "in pieces of {size}");
        }
    }

    #[test]
    fn what_breaks_the_protocol_ends_the_stream() {
        for (what, bytes) in [
            ("unknown opcode", frame(0x83, b"")),
            ("reserved bit", frame(0xc1, b"")),
            ("masked", vec![0x81, 0x80, 0, 0, 0, 0]),
            ("continuation of nothing", frame(0x80, b"x")),
            ("message in a message", [frame(0x01, b"x"), frame(0x81, b"y")].concat()),
            ("ping in pieces", frame(0x09, b"")),
            ("long ping", frame(0x89, &[0; 126])),
            ("too large", vec![0x81, 127, 0, 0, 0, 0, 0x20, 0, 0, 1]),
            ("absurd", [vec![0x81, 127], vec![0xff; 8]].concat()),
        ] {
            assert!(matches!(decoded(&bytes, bytes.len()), Err(CloseReason::Protocol(_))), "{what}");
        }
    }

    #[test]
    fn another_implementation_understands_what_we_send() {
        let texts = ["", "short", &"m".repeat(126), &"ü".repeat(40_000)];
        let mut bytes = Vec::new();
        for text in texts {
            encode(Opcode::Text, text.as_bytes(), [1, 2, 3, 4], &mut bytes);
        }

        let mut server = WebSocket::from_raw_socket(std::io::Cursor::new(bytes), Role::Server, None);

        for text in texts {
            assert_eq!(server.read().unwrap(), Message::text(text));
        }
    }
}
