//! One call: when it began, and whose session it means.

use std::env;
use std::ffi::OsString;
use std::time::Instant;

use crate::client::Door;
use crate::config::{self, GatewayChoice, Identity, Settings};
use crate::places::Places;
use crate::wire::{Fault, FaultCode};
use crate::workspace::Session;

/// What every command knows.
pub(super) struct Call {
    /// When it began: `--timeout` counts from here.
    pub(super) started: Instant,
    /// `--name`.
    pub(super) name: Option<String>,
}

impl Call {
    /// The session's daemon, wherever it may be.
    pub(super) fn door(&self) -> Result<Door, Fault> {
        let identity = Identity::from_env(&|variable| self.variable(variable));
        let folder = env::current_dir().map_err(|error| no_folder(&error))?;
        Ok(Door { session: Session::of(&identity, &folder), places: Places::new(identity.runtime_dir.as_deref()) })
    }

    /// The folders of every session of this user.
    pub(super) fn places(&self) -> Places {
        let identity = Identity::from_env(&|variable| self.variable(variable));
        Places::new(identity.runtime_dir.as_deref())
    }

    /// What the gateway that is set is called.
    pub(super) fn gateway_name(&self) -> String {
        Identity::from_env(&|variable| self.variable(variable)).gateway_name
    }

    /// What is wrong with the gateway that is set, if anything is.
    pub(super) fn check_gateway(&self) -> Result<(), Fault> {
        GatewayChoice::from_env(&|variable| self.variable(variable)).map(drop)
    }

    pub(super) fn settings(&self) -> Result<Settings, Fault> {
        Settings::from_env(&|variable| self.variable(variable))
    }

    /// The environment, where `--name` stands above its variable.
    fn variable(&self, variable: &str) -> Option<OsString> {
        match &self.name {
            Some(name) if variable == config::NAME => Some(name.into()),
            _ => env::var_os(variable),
        }
    }
}

fn no_folder(error: &std::io::Error) -> Fault {
    Fault::new(FaultCode::Usage, "the working directory cannot be told")
        .caused_by(error)
        .hint("cd into a folder that exists")
}
