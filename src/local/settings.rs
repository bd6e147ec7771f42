//! What the caller may choose about a local Chromium. Read from the environment elsewhere, once.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::config::{FOR_A_WINDOW, FOR_CHROMIUM, FOR_THE_NETWORK};
use crate::raw_path::RawPath;

/// The choices, and the places of this session.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Settings {
    /// `GHOST_BROWSER_CHROMIUM`: a path, or a name to look for on PATH.
    pub chromium: Option<OsString>,
    /// `GHOST_BROWSER_CHROMIUM_ARGS`, split into words.
    pub args: Vec<String>,
    /// `GHOST_BROWSER_HEADED`: with a window.
    pub headed: bool,
    /// `GHOST_BROWSER_PROFILE`, absolute: a profile that is kept.
    pub profile: Option<OsString>,
    /// The state folder: exists, 0700, ours.
    pub state_folder: RawPath,
    /// Where Chromium's stderr goes; emptied at each launch.
    pub log: RawPath,
    /// What [`Settings::keep_environment`] kept of the caller's environment.
    pub environment: Vec<(OsString, OsString)>,
}

impl Settings {
    /// No choice made: the first Chromium on PATH, without a window, with a fresh profile. Its log lies in the state folder.
    pub fn new(state_folder: &Path, environment: Vec<(OsString, OsString)>) -> Self {
        Self {
            chromium: None,
            args: Vec::new(),
            headed: false,
            profile: None,
            state_folder: state_folder.into(),
            log: state_folder.join("chromium.log").into(),
            environment,
        }
    }

    /// Keeps of a caller's environment what a Chromium needs, and `HOME` to find the user's certificates and fonts
    /// (Chromium is given another one). No token and no `GHOST_*` variable is among it.
    pub fn keep_environment(variables: impl Iterator<Item = (OsString, OsString)>) -> Vec<(OsString, OsString)> {
        variables.filter(|(name, value)| name == "HOME" || is_kept(name, value) || is_headed(name)).collect()
    }

    /// A variable of the caller, if it is set and kept.
    pub(super) fn variable(&self, name: &str) -> Option<&OsStr> {
        let found = self.environment.iter().find(|(kept, _)| kept == name);
        found.map(|(_, value)| value.as_os_str()).filter(|value| !value.is_empty())
    }

    /// What Chromium itself gets of it.
    pub(super) fn passed_on(&self) -> impl Iterator<Item = &(OsString, OsString)> {
        self.environment.iter().filter(|(name, value)| is_kept(name, value) || (self.headed && is_headed(name)))
    }
}

fn is_kept(name: &OsStr, value: &OsStr) -> bool {
    let Some(name) = name.to_str() else {
        return false;
    };
    let is_open = !value.as_encoded_bytes().contains(&b'@');
    FOR_CHROMIUM.contains(&name) || (FOR_THE_NETWORK.contains(&name) && is_open)
}

fn is_headed(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| FOR_A_WINDOW.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(pairs: &[(&str, &str)]) -> Vec<String> {
        let pairs = pairs.iter().map(|(name, value)| (name.into(), value.into()));
        let kept = Settings::keep_environment(pairs);
        kept.into_iter().map(|(name, _)| name.into_string().unwrap()).collect()
    }

    #[test]
    fn no_token_and_no_password_is_kept_for_chromium() {
        let kept = kept(&[
            ("PATH", "/bin"),
            ("APIFY_TOKEN", "t"),
            ("GHOST_GATEWAY_URL", "local"),
            ("AWS_SECRET_ACCESS_KEY", "k"),
            ("HTTPS_PROXY", "http://user:password@proxy:1"),
            ("http_proxy", "http://proxy:1"),
            ("LC_ALL", "C.UTF-8"),
        ]);

        assert_eq!(kept, ["PATH", "http_proxy", "LC_ALL"]);
    }
}
