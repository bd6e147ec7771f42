//! Which exit code a call ends with, when more than one thing went wrong.

use std::process::ExitCode;

use super::render;
use crate::client::Outcome;
use crate::wire::{Fault, FaultCode, Stopped};

/// An exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Exit(u8);

impl Exit {
    pub(super) const OK: Self = Self(0);
    pub(super) const USAGE: Self = Self(2);
    const UNCONFIRMED: Self = Self(5);
    pub(super) const INTERRUPTED: Self = Self(130);

    /// That of one fault.
    pub(super) fn of(fault: &Fault) -> Self {
        Self::of_code(fault.code)
    }

    /// That of a kind of fault.
    pub(super) fn of_code(code: FaultCode) -> Self {
        Self(code.exit_code())
    }

    /// A kind of fault that has it; `None` for success.
    pub(super) fn failure(self) -> Option<FaultCode> {
        let is_it = |code: &FaultCode| code.exit_code() == self.0;
        (self != Self::OK).then(|| FaultCode::ALL.iter().copied().find(is_it).unwrap_or(FaultCode::Internal))
    }

    /// That of a command whose last act this was; its error is told.
    pub(super) fn after(result: Result<(), Fault>) -> Self {
        match result {
            Ok(()) => Self::OK,
            Err(fault) => {
                render::error(&fault);
                Self::of(&fault)
            }
        }
    }

    /// That of a script run. Being interrupted wins over everything, an unconfirmed release over what the script said.
    pub(super) fn of_run(outcome: &Outcome, interrupted: bool) -> Self {
        let script = outcome.done.fault.as_ref();
        if interrupted || script.is_some_and(|fault| fault.code == FaultCode::Cancelled) {
            return Self::INTERRUPTED;
        }
        let stopped = outcome.stopped.as_ref().map_or(Self::OK, Self::of_stop);
        match stopped {
            Self::OK => script.map_or(Self::OK, Self::of),
            unconfirmed => unconfirmed,
        }
    }

    /// That of a stop.
    pub(super) fn of_stop(stopped: &Stopped) -> Self {
        if stopped.unconfirmed.is_empty() { Self::OK } else { Self::UNCONFIRMED }
    }

    /// That of two stops, one of them unconfirmed or refused.
    pub(super) fn or(self, other: Self) -> Self {
        if self == Self::OK || other == Self::UNCONFIRMED { other } else { self }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Done;

    fn outcome(script: Option<FaultCode>, confirmed: Option<bool>) -> Outcome {
        let fault = |code| Fault::new(code, "");
        let unconfirmed = |confirmed: bool| match confirmed {
            true => vec![],
            false => vec![fault(FaultCode::ReleaseUnconfirmed)],
        };
        Outcome {
            done: Done { fault: script.map(fault), ..Done::default() },
            stopped: confirmed.map(|confirmed| Stopped { released: 0, unconfirmed: unconfirmed(confirmed) }),
        }
    }

    #[test]
    fn interruption_wins_then_the_release_then_the_script() {
        use FaultCode as C;
        for (script, confirmed, interrupted, expected) in [
            (None, None, false, 0),
            (Some(C::ScriptError), None, false, 1),
            (Some(C::OutcomeUnknown), Some(true), false, 4),
            (None, Some(false), false, 5),
            (Some(C::ScriptError), Some(false), false, 5),
            (Some(C::NoBrowser), Some(false), false, 5),
            (Some(C::Cancelled), Some(false), false, 130),
            (None, Some(false), true, 130),
            (Some(C::OutcomeUnknown), None, true, 130),
            (Some(C::OtherCredential), None, false, 6),
        ] {
            let exit = Exit::of_run(&outcome(script, confirmed), interrupted);

            assert_eq!(exit, Exit(expected), "{script:?} {confirmed:?} {interrupted}");
        }
    }
}
