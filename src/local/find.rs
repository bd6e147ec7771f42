//! Which Chromium: the one that was named, else the first known name on PATH, else a macOS bundle.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::settings::Settings;
use crate::wire::{Fault, FaultCode};

/// In the order in which they are tried.
const NAMES: &[&str] = &[
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "microsoft-edge",
    "brave-browser",
];

/// Inside `/Applications` and the user's own `Applications`.
const BUNDLES: &[&str] = &[
    "Chromium.app/Contents/MacOS/Chromium",
    "Google Chrome.app/Contents/MacOS/Google Chrome",
    "Microsoft Edge.app/Contents/MacOS/Microsoft Edge",
    "Brave Browser.app/Contents/MacOS/Brave Browser",
];

/// Larger files are programs, not Ubuntu's script that asks for a snap.
const STUB_LIMIT: u64 = 8 << 10;

const INSTALL: &str = if cfg!(target_os = "macos") {
    "install one with `brew install --cask chromium`, or name one with GHOST_BROWSER_CHROMIUM=/path/to/chromium"
} else {
    "install one, on Debian with `apt-get install chromium`, elsewhere as Google Chrome's package, or name one with \
     GHOST_BROWSER_CHROMIUM=/path/to/chromium"
};

/// Finds the program to start.
///
/// # Errors
/// `setting` when the named one cannot be run; `no_browser` when there is none.
pub(super) fn find(settings: &Settings) -> Result<PathBuf, Fault> {
    let path = settings.variable("PATH");
    if let Some(named) = &settings.chromium {
        return find_named(named, path);
    }
    let mut stub = None;
    for candidate in NAMES.iter().filter_map(|name| on_path(name.as_ref(), path)) {
        if !is_snap(&candidate) {
            return Ok(candidate);
        }
        stub.get_or_insert(candidate);
    }
    bundle(settings).ok_or_else(|| none(stub.as_deref()))
}

fn find_named(named: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, Fault> {
    let found = if named.as_encoded_bytes().contains(&b'/') {
        Some(PathBuf::from(named)).filter(|path| is_program(path))
    } else {
        on_path(named, path)
    };
    found.ok_or_else(|| {
        let message = format!("GHOST_BROWSER_CHROMIUM={} is not a program that can be run", named.display());
        Fault::new(FaultCode::Setting, message).hint("give the path of a Chromium, or unset it")
    })
}

fn on_path(name: &OsStr, path: Option<&OsStr>) -> Option<PathBuf> {
    // An empty or relative entry means the working directory: a cloned repository must not choose the program.
    std::env::split_paths(path?)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(name))
        .find(|candidate| is_program(candidate))
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

/// Whether it is Ubuntu's script that asks for a snap, or the snap: most containers cannot run it, and its confinement hides our folder.
fn is_snap(candidate: &Path) -> bool {
    let real = candidate.canonicalize().unwrap_or_else(|_| candidate.to_owned());
    real.ends_with("usr/bin/snap") || real.starts_with("/snap") || is_stub(&real).unwrap_or(false)
}

fn is_stub(program: &Path) -> std::io::Result<bool> {
    let file = std::fs::File::open(program)?;
    if file.metadata()?.len() > STUB_LIMIT {
        return Ok(false);
    }
    let mut text = Vec::new();
    file.take(STUB_LIMIT).read_to_end(&mut text)?;
    let text = String::from_utf8_lossy(&text);
    Ok(text.starts_with("#!") && (text.contains("/snap/bin/") || text.contains("chromium snap")))
}

fn bundle(settings: &Settings) -> Option<PathBuf> {
    if !cfg!(target_os = "macos") {
        return None;
    }
    let own = settings.variable("HOME").map(|home| Path::new(home).join("Applications"));
    [Some(PathBuf::from("/Applications")), own]
        .into_iter()
        .flatten()
        .flat_map(|folder| BUNDLES.iter().map(move |bundle| folder.join(bundle)))
        .find(|candidate| is_program(candidate))
}

fn none(stub: Option<&Path>) -> Fault {
    let message = match stub {
        None => "no Chromium was found on PATH".to_owned(),
        Some(stub) => format!(
            "no usable Chromium was found on PATH: {} is a snap, which does not work in most containers",
            stub.display()
        ),
    };
    Fault::new(FaultCode::NoBrowser, message).hint(INSTALL)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Folders to search, each with programs of the given names and texts.
    struct Search {
        root: tempfile::TempDir,
        settings: Settings,
    }

    impl Search {
        fn in_folders(folders: &[&[(&str, &str)]]) -> Self {
            let root = tempfile::tempdir().unwrap();
            let mut path = Vec::new();
            for (number, programs) in folders.iter().enumerate() {
                let folder = root.path().join(number.to_string());
                fs::create_dir(&folder).unwrap();
                for (name, text) in *programs {
                    let program = folder.join(name);
                    fs::write(&program, text).unwrap();
                    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
                }
                path.push(folder);
            }
            let path = std::env::join_paths(path).unwrap();
            let settings = Settings::new(root.path(), vec![("PATH".into(), path)]);
            Self { root, settings }
        }

        fn finds(&self) -> String {
            let found = find(&self.settings).unwrap();
            found.strip_prefix(self.root.path()).unwrap().display().to_string()
        }
    }

    const PROGRAM: &str = "#!/bin/sh\n";
    const STUB: &str = "#!/bin/sh\nif ! [ -x /snap/bin/chromium ]; then echo requires the chromium snap; exit 1; fi\n";

    #[test]
    fn an_earlier_name_wins_over_an_earlier_folder() {
        let search = Search::in_folders(&[&[("google-chrome", PROGRAM)], &[("chromium", PROGRAM)]]);

        assert_eq!(search.finds(), "1/chromium");
    }

    #[test]
    fn a_named_one_wins_by_path_and_by_name() {
        let mut search = Search::in_folders(&[&[("chromium", PROGRAM), ("other", PROGRAM)]]);

        search.settings.chromium = Some("other".into());
        assert_eq!(search.finds(), "0/other");
        search.settings.chromium = Some(search.root.path().join("0/other").into());
        assert_eq!(search.finds(), "0/other");
    }

    #[test]
    fn a_named_one_that_cannot_run_is_a_bad_setting() {
        let mut search = Search::in_folders(&[&[("chromium", PROGRAM)]]);
        search.settings.chromium = Some("/nowhere/chromium".into());

        let fault = find(&search.settings).unwrap_err();

        assert_eq!(fault.code, FaultCode::Setting);
        assert!(fault.message.contains("GHOST_BROWSER_CHROMIUM=/nowhere/chromium"), "{fault}");
    }

    #[test]
    fn a_snap_stub_is_passed_over() {
        let search = Search::in_folders(&[&[("chromium-browser", STUB), ("google-chrome", PROGRAM)]]);

        assert_eq!(search.finds(), "0/google-chrome");
    }

    #[test]
    fn where_there_is_only_a_snap_stub_it_is_named() {
        let search = Search::in_folders(&[&[("chromium-browser", STUB)]]);

        let fault = find(&search.settings).unwrap_err();

        assert_eq!(fault.code, FaultCode::NoBrowser);
        assert!(fault.message.contains("0/chromium-browser is a snap"), "{fault}");
    }

    #[test]
    fn without_any_the_hint_says_what_to_install() {
        let search = Search::in_folders(&[&[]]);

        let fault = find(&search.settings).unwrap_err();

        assert_eq!(fault.code, FaultCode::NoBrowser);
        assert!(fault.hint.unwrap().contains("install"));
    }
}
