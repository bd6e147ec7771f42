//! Where browsers come from, and who takes them back.
//!
//! `api` is the seam that everything above is written against: a [`Gateway`] is asked once and answers once, and what
//! it gives can be given back by any process that holds the [`Capability`]. `hosted` is the one that costs money.
//!
//! Nothing here decides when a browser is wanted, retries a release or remembers a debt: that is `lease`. Nothing
//! here speaks CDP: an [`Endpoint`] is dialled by `cdp`. Read `api` first, then `hosted`.

pub mod api;
pub mod hosted;

pub use api::{Allocation, Ask, Capability, Endpoint, Gateway, Grant, OnRetry, ReleaseError, RequestLeft};
