//! What has happened on all pages of one connection, in figures that only grow: a script's part is the difference.

/// Figures since the connection was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Documents that main frames of pages went to.
    pub navigations: u64,
    /// Dialogs that opened.
    pub dialogs: u64,
    /// Exceptions that pages did not catch, told to sessions with Runtime enabled.
    pub page_errors: u64,
    /// `console.error` and failed `console.assert`, told likewise.
    pub console_errors: u64,
    /// Events that there was no room for.
    pub events_dropped: u64,
}

impl Tally {
    /// What has been added since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            navigations: self.navigations - before.navigations,
            dialogs: self.dialogs - before.dialogs,
            page_errors: self.page_errors - before.page_errors,
            console_errors: self.console_errors - before.console_errors,
            events_dropped: self.events_dropped - before.events_dropped,
        }
    }
}
