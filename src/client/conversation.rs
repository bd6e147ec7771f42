//! A session of lines: one connection, on which one line runs after the other and finds what earlier ones defined.

use std::mem;

use super::connection::Connection;
use super::door::{Door, Start, interrupted, never_taken};
use super::interrupt;
use super::run::{Listener, Outcome, Sent, run};
use super::vault::Vault;
use crate::wire::{Fault, FaultCode, Run, Stopped};

/// One session's way to its daemon, and to its variables there.
#[derive(Default)]
pub struct Conversation {
    /// There once a line has run.
    connection: Option<Connection>,
    /// Whether variables were lost, and nobody has been told.
    is_forgotten: bool,
}

impl Conversation {
    /// Runs one line: on the daemon that has the variables, else on the one that lives or is started.
    ///
    /// # Errors
    /// A fault where the line never ran; among them `disconnected`, once, where the daemon with the variables is gone.
    pub fn run(
        &mut self,
        door: &Door,
        begin: &Start,
        make: &dyn Fn() -> Run,
        listener: &mut dyn Listener,
    ) -> Result<Outcome, Fault> {
        let vault = Vault::new(begin.settings, &|name| std::env::var_os(name));
        if mem::take(&mut self.is_forgotten) {
            return Err(forgotten());
        }
        if let Some(connection) = &mut self.connection {
            let sent = run(connection, make(), &vault, listener)?;
            return self.outcome(sent).ok_or_else(forgotten);
        }
        for _ in begin.tries() {
            let Some(mut connection) = door.reach(begin)? else { continue };
            if interrupt::is_raised() {
                return Err(interrupted());
            }
            let sent = run(&mut connection, make(), &vault, listener)?;
            self.connection = Some(connection);
            if let Some(outcome) = self.outcome(sent) {
                return Ok(outcome);
            }
        }
        Err(never_taken("line"))
    }

    /// What came of a line; `None` where the daemon has not taken it. A connection that is of no more use goes.
    fn outcome(&mut self, sent: Sent) -> Option<Outcome> {
        match sent {
            Sent::Ended(outcome) => Some(*outcome),
            Sent::Unanswered(outcome) => {
                self.forget();
                Some(*outcome)
            }
            Sent::NotTaken => {
                self.connection = None;
                None
            }
        }
    }

    fn forget(&mut self) {
        self.connection = None;
        self.is_forgotten = true;
    }

    /// Has every browser released, and keeps the variables; `None` where no line has run yet, or the daemon is gone.
    ///
    /// # Errors
    /// What the daemon refused it with; `cancelled` when we are told to end before it answers.
    pub fn release(&mut self) -> Result<Option<Stopped>, Fault> {
        let Some(connection) = &mut self.connection else { return Ok(None) };
        let released = connection.release();
        // The answer comes later, and would be taken for that to another request.
        if released.as_ref().is_err_and(|fault| fault.code == FaultCode::Cancelled) {
            self.forget();
        }
        released
    }
}

fn forgotten() -> Fault {
    let message = "the connection to this session's daemon has ended, and with it what earlier lines defined: the line did not run";
    Fault::new(FaultCode::Disconnected, message).hint("run it again: it starts with nothing defined")
}
