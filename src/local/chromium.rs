//! Chromium on this machine as a source of browsers.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use super::folder::{self, Layout};
use super::launch::{Launched, launch};
use super::profile::Profile;
use super::release::Release;
use super::settings::Settings;
use super::{arguments, find, litter};
use crate::gateway::{Allocation, Ask, Capability, Endpoint, Gateway, Grant};
use crate::wire::{Fault, FaultCode};

const NO_SANDBOX: &str = "running as root: chromium is started with --no-sandbox";

/// Starts one Chromium per allocation.
pub struct Local {
    settings: Settings,
    has_told_notice: AtomicBool,
}

impl Local {
    /// Nothing is looked for or started yet.
    pub fn new(settings: Settings) -> Self {
        Self { settings, has_told_notice: AtomicBool::new(false) }
    }

    fn start(&self, prepared: Option<Capability>) -> Result<Grant, Fault> {
        let folder = match prepared {
            Some(Capability::Local(release)) => release.folder().to_owned(),
            _ => self.name_folder()?,
        };
        let program = find::find(&self.settings)?;
        let of_user = self.settings.args.clone();
        let lacks_sandbox = arguments::lacks_sandbox(&of_user);
        let profile = self.settings.profile.as_deref().map(Profile::lock).transpose()?;
        let launched = self.launch_in(&folder, &program, profile.as_ref(), of_user)?;
        let release = Release::running(folder, &launched, profile);
        Ok(Grant {
            endpoint: Endpoint::Pipe { reader: launched.reader, writer: launched.writer },
            capability: Capability::Local(release),
            notice: self.notice(lacks_sandbox),
        })
    }

    fn launch_in(
        &self,
        folder: &Path,
        program: &Path,
        profile: Option<&Profile>,
        of_user: Vec<String>,
    ) -> Result<Launched, Fault> {
        let kept = profile.map(|profile| profile.folder.clone());
        let data = kept.unwrap_or_else(|| Layout(folder).profile());
        let arguments = arguments::all(folder, &data, self.settings.headed, of_user);
        folder::create(folder, self.settings.variable("HOME"))
            .and_then(|()| launch(program, arguments, folder, &self.settings))
            .map_err(|error| {
                // What cannot be wiped is the smaller trouble, and the same disk's.
                let _ = folder::wipe(folder);
                not_started(program, folder, &error)
            })
    }

    fn name_folder(&self) -> Result<PathBuf, Fault> {
        folder::name(&self.settings.state_folder)
            .map_err(|error| Fault::new(FaultCode::NoBrowser, format!("/dev/urandom cannot be read: {error}")))
    }

    fn notice(&self, lacks_sandbox: bool) -> Option<String> {
        let is_news = lacks_sandbox && !self.has_told_notice.swap(true, Ordering::Relaxed);
        is_news.then(|| NO_SANDBOX.to_owned())
    }

    fn refuse_without_display(&self) -> Result<(), Fault> {
        let displays = ["DISPLAY", "WAYLAND_DISPLAY"];
        let has_display = displays.iter().any(|name| self.settings.variable(name).is_some());
        if !self.settings.headed || has_display || cfg!(target_os = "macos") {
            return Ok(());
        }
        let message = "GHOST_BROWSER_HEADED needs a display, and neither DISPLAY nor WAYLAND_DISPLAY is set";
        Err(Fault::new(FaultCode::Setting, message).hint("unset it, or run under `xvfb-run`"))
    }
}

impl Gateway for Local {
    fn name(&self) -> &str {
        "local"
    }

    fn prepare(&self) -> Result<Option<Capability>, Fault> {
        self.refuse_without_display()?;
        find::find(&self.settings)?;
        if let Err(error) = litter::sweep(&self.settings.state_folder) {
            tracing::error!(%error, "the folder of a dead browser could not be wiped");
        }
        let folder = self.name_folder()?;
        Ok(Some(Capability::Local(Release::prepared(folder))))
    }

    fn allocate(&self, ask: &Ask) -> Allocation {
        if ask.abandoned.is_cancelled() {
            return Allocation::Refused(Fault::new(FaultCode::Cancelled, "chromium is no longer wanted"));
        }
        ask.left.raise();
        match self.start(ask.prepared.clone()) {
            Ok(grant) => Allocation::Granted(grant),
            Err(fault) => Allocation::Refused(fault),
        }
    }
}

fn not_started(program: &Path, folder: &Path, error: &io::Error) -> Fault {
    let message = format!("{} could not be started in {}: {error}", program.display(), folder.display());
    Fault::new(FaultCode::NoBrowser, message)
}

#[cfg(test)]
mod tests;
