//! `workspace`: the folder for helper modules.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::call::Call;
use super::exit::Exit;
use super::{helpers, output};
use crate::wire::{Fault, FaultCode};

pub(super) fn workspace(call: &Call) -> Exit {
    Exit::after(print_folder(call))
}

/// What a new workspace's own helpers begin with.
const MAIN: &str = "\
//! Functions that every script of this workspace has. Change them as you like: they are loaded again at the next call.
";

fn print_folder(call: &Call) -> Result<(), Fault> {
    let folder = make_helpers(&call.door()?.session.root)?;
    seed(&folder.join("main.rhai"))?;
    print(&folder)
}

/// Prints a path as the bytes that it is.
pub(super) fn print(path: &Path) -> Result<(), Fault> {
    let mut line = path.as_os_str().as_bytes().to_vec();
    line.push(b'\n');
    output::write(line)
}

fn seed(path: &Path) -> Result<(), Fault> {
    match helpers::write_new(path, MAIN) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(cannot_make(path, &error)),
        _ => Ok(()),
    }
}

/// Makes `.ghost/helpers` in `root`, closed to the writing of others.
pub(super) fn make_helpers(root: &Path) -> Result<PathBuf, Fault> {
    let ghost = root.join(".ghost");
    let helpers = ghost.join("helpers");
    for folder in [&ghost, &helpers] {
        make(folder).map_err(|error| cannot_make(folder, &error))?;
    }
    fs::canonicalize(&helpers).map_err(|error| cannot_make(&helpers, &error))
}

fn make(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o755).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => check(folder),
        made => made,
    }
}

/// Code is loaded from here: nobody else may have made it or be able to change it.
fn check(folder: &Path) -> io::Result<()> {
    let data = fs::symlink_metadata(folder)?;
    let ours = data.uid() == nix::unistd::getuid().as_raw();
    if data.is_dir() && ours && data.mode() & 0o022 == 0 {
        return Ok(());
    }
    Err(io::Error::other("it is not a folder of yours that only you can write"))
}

fn cannot_make(folder: &Path, error: &io::Error) -> Fault {
    let message = format!("cannot use {} for helper modules", folder.display());
    Fault::new(FaultCode::Denied, message).caused_by(error)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::testing::TempFolder;

    #[test]
    fn the_folder_is_made_once_and_found_again() {
        let temp = TempFolder::new();

        let made = make_helpers(temp.path()).unwrap();

        assert_eq!(made, temp.path().join(".ghost/helpers"));
        assert_eq!(make_helpers(temp.path()).unwrap(), made);
    }

    #[test]
    fn a_folder_that_others_can_write_is_refused() {
        let temp = TempFolder::new();
        let ghost = temp.path().join(".ghost");
        fs::create_dir(&ghost).unwrap();
        fs::set_permissions(&ghost, fs::Permissions::from_mode(0o777)).unwrap();

        let fault = make_helpers(temp.path()).unwrap_err();

        assert_eq!(fault.code, FaultCode::Denied);
        assert!(!ghost.join("helpers").exists());
    }
}
