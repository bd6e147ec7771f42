//! A session of lines: one connection, on which one line runs after the other and finds what earlier ones defined.

use super::connection::Connection;
use super::door::{Door, Start, interrupted};
use super::interrupt;
use super::run::{Listener, Outcome, Sent, run};
use super::vault::Vault;
use crate::wire::{Fault, FaultCode, Run, Stopped};

/// One session's way to its daemon, and to its variables there.
#[derive(Default)]
pub struct Conversation {
    /// There once a line has run.
    connection: Option<Connection>,
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
        if let Some(connection) = &mut self.connection {
            return match run(connection, make(), &vault, listener)? {
                Sent::Ended(outcome) => Ok(*outcome),
                Sent::NotTaken => {
                    self.connection = None;
                    Err(forgotten())
                }
            };
        }
        // A daemon that ends just as we come takes nothing, so a second try cannot run anything twice.
        for _ in 0..2 {
            let Some(mut connection) = door.reach(begin)? else { continue };
            if interrupt::is_raised() {
                return Err(interrupted());
            }
            if let Sent::Ended(outcome) = run(&mut connection, make(), &vault, listener)? {
                self.connection = Some(connection);
                return Ok(*outcome);
            }
        }
        Err(Fault::new(FaultCode::NoBrowser, "the daemon ended twice before it took the line")
            .hint("the line did not run; `:status` tells what is left"))
    }

    /// Has every browser released, and keeps the variables; `None` where no line has run yet, or the daemon is gone.
    ///
    /// # Errors
    /// What the daemon refused it with.
    pub fn release(&mut self) -> Result<Option<Stopped>, Fault> {
        match &mut self.connection {
            Some(connection) => connection.release(),
            None => Ok(None),
        }
    }
}

fn forgotten() -> Fault {
    let message = "this session's daemon has ended, and with it what earlier lines defined: the line did not run";
    Fault::new(FaultCode::Disconnected, message).hint("run it again: it starts with nothing defined")
}
