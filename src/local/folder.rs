//! The folder that one Chromium has to itself: everything it writes is in there, and goes with it.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};

/// Chromium puts a socket below `TMPDIR`, aborts where its path is over 104 bytes (macOS) or 108 (Linux), and adds up
/// to 60 of its own.
const LONGEST: usize = 44;

/// How a folder beside the state is called, and one in a place for all users.
pub(super) const BESIDE: &str = "chromium-";
pub(super) const SHARED: &str = "/tmp";
pub(super) const SHARED_PREFIX: &str = "ghost-chromium-";

/// What the user put into their home for every browser: linked, so that it holds here too.
const LINKED: &[&str] = &[".pki", ".local/share/pki", ".fonts", ".local/share/fonts"];

/// Names a folder that does not exist yet, so that its wiping can be promised before it is made.
///
/// # Errors
/// The kernel's, when it gives no random bytes.
pub(super) fn name(state_folder: &Path) -> io::Result<PathBuf> {
    let mut random = [0; 6];
    File::open("/dev/urandom")?.read_exact(&mut random)?;
    let id: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let beside = state_folder.join(format!("{BESIDE}{id}"));
    // `/run` is memory, and small: no place for a browser's cache.
    let fits = beside.as_os_str().len() <= LONGEST && beside.to_str().is_some();
    if fits && !beside.starts_with("/run") {
        return Ok(beside);
    }
    Ok(Path::new(SHARED).join(format!("{SHARED_PREFIX}{id}")))
}

/// Where the parts are.
pub(super) struct Layout<'a>(pub(super) &'a Path);

impl Layout<'_> {
    pub(super) fn profile(&self) -> PathBuf {
        self.0.join("profile")
    }

    pub(super) fn temporary(&self) -> PathBuf {
        self.0.join("tmp")
    }

    pub(super) fn config(&self) -> PathBuf {
        self.0.join("config")
    }

    pub(super) fn cache(&self) -> PathBuf {
        self.0.join("cache")
    }

    pub(super) fn home(&self) -> PathBuf {
        self.0.join("home")
    }

    /// The argument that only this folder's browser has: how it is known before its number is.
    pub(super) fn marker(&self) -> String {
        format!("--crash-dumps-dir={}/crashes", self.0.display())
    }
}

/// Makes the folder and its parts, readable by nobody else.
///
/// # Errors
/// The file system's; a folder that exists already is one.
pub(super) fn create(folder: &Path, users_home: Option<&OsStr>) -> io::Result<()> {
    let layout = Layout(folder);
    let mut private = DirBuilder::new();
    private.mode(0o700).create(folder)?;
    let parts = [layout.profile(), layout.temporary(), layout.config(), layout.cache(), layout.home()];
    parts.iter().try_for_each(|part| private.create(part))?;
    if let Some(users_home) = users_home {
        private.recursive(true).create(layout.home().join(".local/share"))?;
        link_what_is_the_users(Path::new(users_home), &layout.home())?;
    }
    Ok(())
}

fn link_what_is_the_users(users_home: &Path, home: &Path) -> io::Result<()> {
    LINKED
        .iter()
        .map(|part| (users_home.join(part), home.join(part)))
        .filter(|(theirs, _)| theirs.is_dir())
        .try_for_each(|(theirs, ours)| symlink(theirs, ours))
}

/// Held while a Chromium is being started. It ends with the start, also where the starter dies between its `fork` and
/// the child's `exec`: the child's copy of the descriptor is closed by the `exec`.
///
/// # Errors
/// The file system's.
pub(super) fn lock_for_launch(folder: &Path) -> io::Result<Flock<File>> {
    Flock::lock(File::open(folder)?, FlockArg::LockExclusive).map_err(|(_, errno)| errno.into())
}

/// Removes the folder, following no link out of it.
///
/// # Errors
/// The file system's; a folder that is gone is none.
pub(super) fn wipe(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn it_is_beside_the_state_unless_that_is_memory_or_too_long_for_a_socket() {
        let long = format!("/var/{}", "x".repeat(60));

        for (state, beside) in [("/tmp/s", true), ("/run/user/1000/g", false), (&long, false)] {
            let folder = name(Path::new(state)).unwrap();

            assert_eq!(folder.starts_with(state), beside, "{state}: {}", folder.display());
            assert!(folder.as_os_str().len() <= LONGEST);
        }
    }

    #[test]
    fn nobody_else_can_read_it() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("f");

        create(&folder, None).unwrap();

        assert_eq!(folder.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        assert!(create(&folder, None).is_err(), "an existing folder is not ours");
    }

    #[test]
    fn wiping_keeps_what_is_linked_from_the_users_home() {
        let root = tempfile::tempdir().unwrap();
        let (home, folder) = (root.path().join("home"), root.path().join("f"));
        fs::create_dir_all(home.join(".pki/nssdb")).unwrap();

        create(&folder, Some(home.as_os_str())).unwrap();
        assert!(Layout(&folder).home().join(".pki/nssdb").exists());
        wipe(&folder).unwrap();

        assert!(!folder.exists());
        assert!(home.join(".pki/nssdb").exists());
        wipe(&folder).unwrap();
    }
}
