//! Text that must not be seen: `Debug` prints nothing of it, and dropping wipes it.
//!
//! A secret leaves this type only by [`Secret::expose`], so that `rg expose` shows every place that
//! handles one; it crosses to daemon and keeper over a pipe or a socket, which is why it can be serialised at all.

use std::fmt;

use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A token, a browser id, a bearer URL, a `secret()` value.
#[derive(Clone)]
pub struct Secret(SecretString);

impl Secret {
    /// Takes over `text`.
    pub fn new(text: String) -> Self {
        Self(SecretString::from(text))
    }

    /// The text itself, for the one place that needs it.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.expose() == other.expose()
    }
}

/// Only for the pipes to daemon and keeper, and for the socket between a client and its daemon.
impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.expose())
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::new)
    }
}
