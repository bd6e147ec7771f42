//! A path as the raw bytes that it is, so that a folder whose name is not UTF-8 survives the way through JSON.

use std::ffi::OsString;
use std::ops::Deref;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A path that can be serialised whatever its bytes: as text where it is UTF-8, else as numbers.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RawPath(PathBuf);

impl RawPath {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        self.0.as_os_str().as_bytes()
    }
}

impl<P: Into<PathBuf>> From<P> for RawPath {
    fn from(path: P) -> Self {
        Self(path.into())
    }
}

impl AsRef<Path> for RawPath {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Deref for RawPath {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Serialize for RawPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.to_str() {
            Some(text) => serializer.serialize_str(text),
            None => self.bytes().serialize(serializer),
        }
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Form {
    Text(String),
    Bytes(Vec<u8>),
}

impl<'de> Deserialize<'de> for RawPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match Form::deserialize(deserializer)? {
            Form::Text(text) => Self(text.into()),
            Form::Bytes(bytes) => Self(OsString::from_vec(bytes).into()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_come_back_from_json() {
        for bytes in [&b"/a b/\n"[..], "/ü".as_bytes(), b"/\xff\xfe", b""] {
            let path = RawPath::from(OsString::from_vec(bytes.to_vec()));

            let text = serde_json::to_string(&path).unwrap();

            assert_eq!(serde_json::from_str::<RawPath>(&text).unwrap(), path);
        }
    }
}
