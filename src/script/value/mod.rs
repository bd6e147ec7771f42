//! What crosses between JSON text and script values, in one pass each way.
//!
//! What comes out equals what went in, up to what JSON or Rhai cannot hold: key order, duplicate keys
//! (the last wins), lone surrogates (U+FFFD), integers beyond 64 bits (their digits as a string).
//! Neither way goes through `serde_json`: its values would be a second copy of a large reply.
//!
//! Nothing here knows CDP. Read `parse` for text to value, `write` for value to text, `deep` for the
//! values of `Runtime.evaluate`.

pub mod deep;
mod parse;
mod write;

pub use parse::{ParseFailure, parse};
pub use write::{Bound, Form, Params, Refusal, show, write, write_params};

/// Nesting beyond this is refused both ways: dropping, cloning and comparing a value recurse.
pub const DEPTH_LIMIT: usize = 10_000;

#[cfg(test)]
mod tests;
