//! Folders of browsers whose daemon and keeper were both killed: nobody is left to wipe them but the next one.

use std::fs::{self, DirEntry};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::folder::{self, BESIDE, Layout, SHARED, SHARED_PREFIX};
use super::processes;

/// A younger folder may belong to a browser that is being started.
const YOUNG: Duration = Duration::from_secs(60);

/// Wipes what no living browser owns. A browser without a daemon ends by itself, since its pipe is closed.
///
/// # Errors
/// When the system does not list its processes, or a folder cannot be wiped.
pub(super) fn sweep(state_folder: &Path) -> io::Result<()> {
    let old = old_folders(state_folder);
    if old.is_empty() {
        return Ok(());
    }
    let living: Vec<Vec<u8>> = processes::all()?.iter().map(|process| processes::arguments(process.pid)).collect();
    let is_used = |folder: &PathBuf| {
        let marker = Layout(folder).marker();
        living.iter().any(|arguments| arguments.split(|&byte| byte == 0).any(|argument| argument == marker.as_bytes()))
    };
    old.iter().filter(|folder| !is_used(folder)).try_for_each(|folder| folder::wipe(folder))
}

fn old_folders(state_folder: &Path) -> Vec<PathBuf> {
    let places = [(state_folder, BESIDE), (Path::new(SHARED), SHARED_PREFIX)];
    let entries = places.iter().flat_map(|(place, prefix)| {
        let entries = fs::read_dir(place).into_iter().flatten().flatten();
        entries.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(prefix.as_bytes()))
    });
    entries.filter(is_old_and_ours).map(|entry| entry.path()).collect()
}

fn is_old_and_ours(entry: &DirEntry) -> bool {
    entry.metadata().is_ok_and(|data| {
        let is_old = data.modified().is_ok_and(|at| at.elapsed().is_ok_and(|age| age >= YOUNG));
        data.is_dir() && data.uid() == nix::unistd::getuid().as_raw() && is_old
    })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::process::{Command, Stdio};
    use std::time::SystemTime;

    use super::*;

    fn folder(state: &Path, name: &str, age: Duration) -> PathBuf {
        let folder = state.join(name);
        folder::create(&folder, None).unwrap();
        File::open(&folder).unwrap().set_modified(SystemTime::now() - age).unwrap();
        folder
    }

    #[test]
    fn only_old_folders_that_no_browser_uses_are_swept() {
        let state = tempfile::tempdir().unwrap();
        let dead = folder(state.path(), "chromium-dead", YOUNG);
        let young = folder(state.path(), "chromium-young", Duration::ZERO);
        let used = folder(state.path(), "chromium-used", YOUNG);
        let other = folder(state.path(), "something", YOUNG);
        // `cat` reads its standard input first, and never gets to what it takes for a file.
        let marker = Layout(&used).marker();
        let mut browser = Command::new("cat").args(["-", "--", &marker]).stdin(Stdio::piped()).spawn().unwrap();

        sweep(state.path()).unwrap();
        browser.kill().unwrap();
        browser.wait().unwrap();

        assert!(!dead.exists());
        assert!(young.exists() && used.exists() && other.exists());
    }
}
