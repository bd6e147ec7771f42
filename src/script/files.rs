//! A folder whose files can be reached, and no others: no `..`, no link out of it, nothing that is not a file.
//!
//! What keeps a name inside is the folder's descriptor (`cap-std`), not a comparison of paths. Beside that, the files of
//! the kernel are refused wherever they are mounted: in them a process can read what others keep to themselves.

use std::fs::{File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt};

/// An open folder.
pub struct Folder(Dir);

impl Folder {
    /// Opens a folder by its path; from here on names are looked for inside of it only.
    ///
    /// # Errors
    /// Where there is no such folder.
    pub fn open(path: &Path) -> io::Result<Self> {
        Dir::open_ambient_dir(path, ambient_authority()).map(Self)
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// Where there is none inside the folder, or it is no ordinary file.
    pub fn file(&self, name: &Path) -> io::Result<File> {
        let mut options = OpenOptions::new();
        // A pipe that nobody writes to would block here for ever.
        options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
        ordinary(self.0.open_with(name, &options)?.into_std())
    }

    /// Reads a file of at most `most` bytes.
    ///
    /// # Errors
    /// As [`Folder::file`]; `FileTooLarge` where there is more.
    pub fn read(&self, name: &Path, most: usize) -> io::Result<Vec<u8>> {
        let file = self.file(name)?;
        let length = file.metadata()?.len();
        if length > most as u64 {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("{length} bytes; the most is {most}")));
        }
        let mut bytes = Vec::with_capacity(length as usize);
        file.take(length).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Writes a file whole. One that is new gets `mode`, whatever this process's umask is; one that was there keeps
    /// its own.
    ///
    /// # Errors
    /// Where it cannot be made inside the folder, or is no ordinary file.
    pub fn write(&self, name: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
        let mut file = self.create(name, mode)?;
        file.write_all(bytes)?;
        file.flush()
    }

    fn create(&self, name: &Path, mode: u32) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(mode).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
        match self.0.open_with(name, &options) {
            Ok(file) => {
                let file = file.into_std();
                file.set_permissions(Permissions::from_mode(mode))?;
                Ok(file)
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                options.create_new(false);
                let file = ordinary(self.0.open_with(name, &options)?.into_std())?;
                // Only now: nothing but an ordinary file is emptied.
                file.set_len(0)?;
                Ok(file)
            }
            Err(error) => Err(error),
        }
    }

    /// The names in a folder inside of this one, in order, those of folders with a slash behind; at most `most`.
    ///
    /// # Errors
    /// Where there is no such folder.
    pub fn names(&self, name: &Path, most: usize) -> io::Result<Vec<String>> {
        let name = if name.as_os_str().is_empty() { Path::new(".") } else { name };
        let mut names = Vec::new();
        for entry in self.0.read_dir(name)?.take(most) {
            let entry = entry?;
            let slash = if entry.file_type()?.is_dir() { "/" } else { "" };
            names.push(format!("{}{slash}", entry.file_name().to_string_lossy()));
        }
        names.sort();
        Ok(names)
    }
}

/// Refuses what is no file of bytes on a disk: a pipe or a device may block for ever.
pub(super) fn ordinary(file: File) -> io::Result<File> {
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is not an ordinary file"));
    }
    if is_the_kernels(&file)? {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it is a file of the kernel, not of the workspace",
        ));
    }
    Ok(file)
}

#[cfg(target_os = "linux")]
fn is_the_kernels(file: &File) -> io::Result<bool> {
    use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};
    Ok(fstatfs(file)?.filesystem_type() == PROC_SUPER_MAGIC)
}

#[cfg(not(target_os = "linux"))]
fn is_the_kernels(_file: &File) -> io::Result<bool> {
    Ok(false)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::testing::TempFolder;

    #[test]
    fn nothing_outside_the_folder_is_reached_by_any_name() {
        let temp = TempFolder::new();
        let inside = temp.path().join("in");
        std::fs::create_dir(&inside).unwrap();
        std::fs::write(temp.path().join("out"), "out").unwrap();
        symlink("../out", inside.join("link")).unwrap();
        symlink(temp.path().join("out"), inside.join("absolute")).unwrap();
        symlink("..", inside.join("up")).unwrap();
        let folder = Folder::open(&inside).unwrap();

        for name in ["../out", "link", "absolute", "up/out", "/etc/passwd", "./../out"] {
            assert!(folder.read(Path::new(name), 100).is_err(), "{name}");
            assert!(folder.write(Path::new(name), b"x", 0o644).is_err(), "{name}");
        }
        assert!(folder.names(Path::new("up"), 10).is_err());
        assert_eq!(std::fs::read_to_string(temp.path().join("out")).unwrap(), "out");
    }

    #[test]
    fn what_is_no_file_is_neither_waited_for_nor_emptied() {
        let temp = TempFolder::new();
        nix::unistd::mkfifo(&temp.path().join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        std::fs::create_dir(temp.path().join("folder")).unwrap();
        let folder = Folder::open(temp.path()).unwrap();

        for name in ["pipe", "folder"] {
            assert!(folder.read(Path::new(name), 100).is_err(), "{name}");
            assert!(folder.write(Path::new(name), b"x", 0o644).is_err(), "{name}");
        }
        assert_eq!(folder.names(Path::new(""), 10).unwrap(), ["folder/", "pipe"]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_files_of_the_kernel_are_refused_wherever_they_are() {
        let whole = Folder::open(Path::new("/")).unwrap();
        let process = Folder::open(Path::new("/proc/self")).unwrap();

        assert!(whole.read(Path::new("proc/self/environ"), 1 << 20).is_err());
        assert!(process.file(Path::new("environ")).is_err());
    }

    #[test]
    fn a_new_file_gets_its_mode_and_an_old_one_keeps_its_own() {
        let temp = TempFolder::new();
        let folder = Folder::open(temp.path()).unwrap();
        let mode = || std::fs::metadata(temp.path().join("f")).unwrap().permissions().mode() & 0o777;

        folder.write(Path::new("f"), b"long", 0o640).unwrap();
        assert_eq!(mode(), 0o640);
        folder.write(Path::new("f"), b"s", 0o666).unwrap();

        assert_eq!((mode(), folder.read(Path::new("f"), 10).unwrap()), (0o640, b"s".to_vec()));
    }
}
