//! A folder whose files can be reached, and no others: no `..`, no link out of it, nothing that is not a file.
//!
//! What keeps a name inside is the folder's descriptor (`cap-std`), not a comparison of paths. Beside that, the files of
//! the kernel are refused wherever they are mounted: in them a process can read what others keep to themselves.

use std::fs::{File, Metadata, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

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

    /// Writes a file whole, or leaves what was there. One that is new gets `mode`, whatever this process's umask is; one
    /// that was there keeps its own.
    ///
    /// # Errors
    /// Where it cannot be made inside the folder, or is no ordinary file.
    pub fn write(&self, name: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
        self.write_by(name, mode, |file| file.write_all(bytes))
    }

    fn write_by(&self, name: &Path, mode: u32, fill: impl Fn(&mut File) -> io::Result<()>) -> io::Result<()> {
        let Some(mut old) = self.old(name)? else { return self.replace(name, mode, fill) };
        let known = old.metadata()?;
        if !is_ours_alone(&known) {
            return in_place(&mut old, fill);
        }
        // A link inside the folder stays one: the file behind it is replaced.
        match self.replace(&self.0.canonicalize(name)?, known.mode() & 0o777, &fill) {
            Err(error) if is_the_folders(&error) => in_place(&mut old, fill),
            replaced => replaced,
        }
    }

    /// The file that is there, open for writing.
    fn old(&self, name: &Path) -> io::Result<Option<File>> {
        let mut options = OpenOptions::new();
        options.write(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
        match self.0.open_with(name, &options) {
            Ok(file) => ordinary(file.into_std()).map(Some),
            // A link to nothing is not a place for a new file.
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.0.symlink_metadata(name).is_err() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes beside the file and then takes its place: a disk that is full costs nothing of what was there.
    fn replace(&self, name: &Path, mode: u32, fill: impl Fn(&mut File) -> io::Result<()>) -> io::Result<()> {
        let beside = beside(name);
        let mut options = OpenOptions::new();
        let mut file = self.0.open_with(&beside, options.write(true).create_new(true).mode(0o600))?.into_std();
        let made = fill(&mut file).and_then(|()| file.set_permissions(Permissions::from_mode(mode)));
        made.and_then(|()| self.0.rename(&beside, &self.0, name)).inspect_err(|_| {
            // Where it cannot even be removed, the first error says enough.
            let _ = self.0.remove_file(&beside);
        })
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

/// A name in the same folder that nobody has.
fn beside(name: &Path) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    name.with_file_name(format!(".ghost-browser-{}-{number}", std::process::id()))
}

/// Whether a new file in its place is the same to everyone: it has no other name and no other owner.
fn is_ours_alone(file: &Metadata) -> bool {
    file.nlink() == 1 && file.uid() == nix::unistd::geteuid().as_raw()
}

/// Whether it is the folder that takes no other file: it is closed to us, or the file is mounted in it.
fn is_the_folders(error: &io::Error) -> bool {
    use io::ErrorKind as E;
    matches!(error.kind(), E::PermissionDenied | E::ReadOnlyFilesystem | E::ResourceBusy)
}

fn in_place(file: &mut File, fill: impl Fn(&mut File) -> io::Result<()>) -> io::Result<()> {
    file.set_len(0)?;
    fill(file)
}

/// Refuses what is no file of bytes on a disk: a pipe or a device may block for ever.
pub(super) fn ordinary(file: File) -> io::Result<File> {
    let data = file.metadata()?;
    if data.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a folder"));
    }
    if !data.is_file() {
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

    #[test]
    fn a_file_that_cannot_be_written_whole_is_as_it_was() {
        let temp = TempFolder::new();
        std::fs::write(temp.path().join("old"), "what was there").unwrap();
        let folder = Folder::open(temp.path()).unwrap();
        let full = |file: &mut File| {
            file.write_all(b"a part")?;
            Err(io::ErrorKind::StorageFull.into())
        };

        for name in ["old", "new"] {
            let error = folder.write_by(Path::new(name), 0o644, full).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{name}");
        }

        assert_eq!(folder.read(Path::new("old"), 100).unwrap(), b"what was there");
        assert_eq!(folder.names(Path::new(""), 10).unwrap(), ["old"]);
    }

    #[test]
    fn a_file_keeps_its_names_when_it_is_written_anew() {
        let temp = TempFolder::new();
        let at = |name: &str| temp.path().join(name);
        std::fs::create_dir(at("in")).unwrap();
        std::fs::write(at("in/file"), "old").unwrap();
        symlink("in/file", at("link")).unwrap();
        symlink("nothing", at("dangling")).unwrap();
        let folder = Folder::open(temp.path()).unwrap();

        folder.write(Path::new("link"), b"by link", 0o644).unwrap();
        assert_eq!(std::fs::read_to_string(at("in/file")).unwrap(), "by link");
        std::fs::hard_link(at("in/file"), at("other")).unwrap();
        folder.write(Path::new("link"), b"by both", 0o644).unwrap();

        assert_eq!(std::fs::read_to_string(at("other")).unwrap(), "by both");
        assert!(at("link").is_symlink());
        assert!(folder.write(Path::new("dangling"), b"x", 0o644).is_err());
    }
}
