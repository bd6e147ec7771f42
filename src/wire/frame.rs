//! The bytes: a big-endian `u32` length, then that many bytes of JSON.

use std::io::{self, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The largest frame that is read: more than any script source, value or chunk of output needs.
pub const FRAME_LIMIT: usize = 64 << 20;

/// Writes one message as one `write`, so that frames of several threads behind a lock never interleave.
///
/// # Errors
/// The writer's own, or `InvalidData` for a message over [`FRAME_LIMIT`].
pub fn write_frame<T: Serialize>(writer: &mut impl Write, message: &T) -> io::Result<()> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, message)?;
    let length = bytes.len() - 4;
    if length > FRAME_LIMIT {
        return Err(too_large(length));
    }
    bytes[..4].copy_from_slice(&(length as u32).to_be_bytes());
    writer.write_all(&bytes)
}

/// Reads one message; `None` when the other side ended between two frames.
///
/// # Errors
/// `UnexpectedEof` for a frame cut short, `InvalidData` for one that is too large or not a `T`.
pub fn read_frame<T: DeserializeOwned>(reader: &mut impl Read) -> io::Result<Option<T>> {
    let mut head = [0; 4];
    if !read_head(reader, &mut head)? {
        return Ok(None);
    }
    let length = u32::from_be_bytes(head) as usize;
    if length > FRAME_LIMIT {
        return Err(too_large(length));
    }
    let mut bytes = Vec::new();
    reader.take(length as u64).read_to_end(&mut bytes)?;
    if bytes.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some(serde_json::from_slice(&bytes)?))
}

/// Fills `head`; false when the stream ended before its first byte.
fn read_head(reader: &mut impl Read, head: &mut [u8; 4]) -> io::Result<bool> {
    let mut filled = 0;
    while filled < head.len() {
        match reader.read(&mut head[filled..]) {
            Ok(0) if filled == 0 => return Ok(false),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

fn too_large(length: usize) -> io::Error {
    let text = format!("a frame of {length} bytes, over the limit of {FRAME_LIMIT}");
    io::Error::new(io::ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_comes_back_and_the_end_is_told_from_a_cut() {
        let mut bytes = Vec::new();
        write_frame(&mut bytes, &"hällo").unwrap();
        let mut whole = bytes.as_slice();

        assert_eq!(read_frame::<String>(&mut whole).unwrap(), Some("hällo".to_owned()));
        assert_eq!(read_frame::<String>(&mut whole).unwrap(), None);
        for cut in 1..bytes.len() {
            let error = read_frame::<String>(&mut &bytes[..cut]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "cut at {cut}");
        }
    }

    #[test]
    fn a_length_over_the_limit_allocates_nothing() {
        let error = read_frame::<String>(&mut &[0xff_u8; 8][..]).unwrap_err();

        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
