//! The process that holds a browser, and the one that holds its debt.

pub mod keeper;
