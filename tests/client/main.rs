//! The client and the command line against a daemon that does as it is told.

mod door;
mod fake;
mod line;
