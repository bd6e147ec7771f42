//! The hosted Gateway: one HTTP request brings a browser that is billed until it is released.
//!
//! What an answer means for the debt is decided in `answer`, without a socket; `request` sends one request and knows
//! whether it left; `allocate` joins them and retries only what cannot have allocated; `release` is the other end, and
//! all of it that the keeper needs. `base` is the address and what it refuses.
//!
//! No URL, token, id or body ever gets into a message: `wording` makes them all, from a step and a status or a kind of
//! error. No redirect is followed, no connection is reused, no request is made to see whether the gateway is there.

mod allocate;
mod answer;
mod base;
mod release;
mod request;
mod wording;

#[cfg(test)]
pub(crate) mod tests;

pub use allocate::{Config, Hosted};
pub use base::BaseUrl;
pub use release::Release;
