//! What scripts leave to later scripts of their session: JSON texts by name, in memory, gone with the daemon.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::memory::uncounted;

/// The most that all names and texts together may be, in bytes.
pub const LIMIT: usize = 16 << 20;

/// The most names there may be.
pub const NAMES: usize = 10_000;

/// The texts of one session. Shared by all its scripts, so it is outside of every script's memory count.
#[derive(Default)]
pub struct State(Mutex<Shelf>);

#[derive(Default)]
struct Shelf {
    texts: BTreeMap<String, String>,
    bytes: usize,
}

/// There is no room for another text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a session keeps at most {} MiB under at most {NAMES} names", LIMIT >> 20)
    }
}

impl State {
    /// The text under `name`.
    pub fn get(&self, name: &str) -> Option<String> {
        self.shelf().texts.get(name).cloned()
    }

    /// Puts `text` under `name`, in place of what was there.
    ///
    /// # Errors
    /// [`Full`]: what was there stays.
    pub fn set(&self, name: &str, text: &str) -> Result<(), Full> {
        let mut shelf = self.shelf();
        let before = shelf.texts.get(name).map_or(0, |old| name.len() + old.len());
        let bytes = shelf.bytes - before + name.len() + text.len();
        let names = shelf.texts.len() + usize::from(before == 0 && !shelf.texts.contains_key(name));
        if bytes > LIMIT || names > NAMES {
            return Err(Full);
        }
        shelf.bytes = bytes;
        uncounted(|| shelf.texts.insert(name.to_owned(), text.to_owned()));
        Ok(())
    }

    /// Forgets what is under `name`.
    pub fn remove(&self, name: &str) {
        let mut shelf = self.shelf();
        uncounted(|| {
            if let Some(old) = shelf.texts.remove(name) {
                shelf.bytes -= name.len() + old.len();
            }
        });
    }

    /// Every name, in order.
    pub fn names(&self) -> Vec<String> {
        self.shelf().texts.keys().cloned().collect()
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_bounded_and_a_refusal_changes_nothing() {
        let state = State::default();
        let half = "x".repeat(LIMIT / 2);
        state.set("a", &half).unwrap();

        assert_eq!(state.set("b", &half), Err(Full));
        state.set("a", "small").unwrap();
        state.set("b", &half).unwrap();
        assert_eq!(state.set("a", &half), Err(Full));
        assert_eq!(state.get("a").as_deref(), Some("small"));
        state.remove("b");
        state.remove("a");
        assert_eq!((state.names().len(), state.shelf().bytes), (0, 0));
    }

    #[test]
    fn there_are_only_so_many_names() {
        let state = State::default();
        for number in 0..NAMES {
            state.set(&number.to_string(), "").unwrap();
        }

        assert_eq!(state.set("more", ""), Err(Full));
        assert_eq!(state.set("7", "again"), Ok(()));
    }
}
