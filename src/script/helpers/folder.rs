//! `.ghost/helpers` of a workspace: what is there, whether it changed, and whether it may be trusted.
//!
//! A folder above the workspace, or another user, must not be able to plant code: folders and files count only when they are
//! ours and nobody else may write them.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::script::engine::SOURCE_LIMIT;
use crate::script::files::Folder;

/// Where a workspace keeps its helpers.
pub const PLACE: &str = ".ghost/helpers";

const ENDING: &str = "rhai";

/// The most files that are looked at.
const MOST: usize = 100;

/// What is there. Equal listings mean that nothing was changed in between.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// The modules by name, in order.
    pub modules: Vec<(String, Stamp)>,
    /// Why the folder is not used.
    pub complaint: Option<String>,
}

/// What changes when a file does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp {
    file: (u64, u64),
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
    access: (u32, u32),
}

impl Stamp {
    fn of(data: &Metadata) -> Self {
        Self {
            file: (data.dev(), data.ino()),
            size: data.size(),
            modified: (data.mtime(), data.mtime_nsec()),
            changed: (data.ctime(), data.ctime_nsec()),
            access: (data.uid(), data.mode()),
        }
    }
}

/// Looks at the folder of the workspace at `root`: one look where there is none, else one more for each file.
pub fn list(root: &Path) -> Listing {
    let place = root.join(PLACE);
    let Ok(data) = fs::symlink_metadata(&place) else { return Listing::default() };
    let above = fs::symlink_metadata(root.join(".ghost"));
    if !is_trusted_folder(&data) || !above.is_ok_and(|data| is_trusted_folder(&data)) {
        let complaint = format!("{PLACE} is not loaded: it must be a folder of yours that only you can write");
        return Listing { complaint: Some(complaint), ..Listing::default() };
    }
    let mut modules: Vec<_> = paths(&place).filter_map(|(name, path)| Some((name, stamp(&path)?))).collect();
    modules.sort_by(|(a, _), (b, _)| a.cmp(b));
    let over = modules.len() > MOST;
    modules.truncate(MOST);
    let complaint = over.then(|| format!("{PLACE} holds more than {MOST} modules: the others are not loaded"));
    Listing { modules, complaint }
}

/// The workspace's own modules: name and path, in order of their names.
pub fn own(root: &Path) -> Vec<(String, PathBuf)> {
    let mut all: Vec<_> = paths(&root.join(PLACE)).collect();
    all.sort();
    all
}

fn paths(place: &Path) -> impl Iterator<Item = (String, PathBuf)> + use<> {
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let path = entry.path();
        let name = path.file_stem()?.to_str()?.to_owned();
        // Editors keep their own files beside, hidden.
        let is_module = path.extension()? == ENDING && !name.starts_with('.');
        is_module.then_some((name, path))
    })
}

/// The stamp of the file itself, also where a link leads to it; a link to nowhere has its own.
fn stamp(path: &Path) -> Option<Stamp> {
    fs::metadata(path).or_else(|_| fs::symlink_metadata(path)).ok().map(|data| Stamp::of(&data))
}

fn is_trusted_folder(data: &Metadata) -> bool {
    data.is_dir() && is_ours_alone(data)
}

fn is_ours_alone(data: &Metadata) -> bool {
    data.uid() == nix::unistd::getuid().as_raw() && data.mode() & 0o022 == 0
}

/// Reads the module `name`; `None` where there is none.
///
/// # Errors
/// Why it is not loaded: a link out of the folder, another owner, too long, not text.
pub fn read(root: &Path, name: &str) -> Result<Option<String>, String> {
    let folder = match Folder::open(&root.join(PLACE)) {
        Ok(folder) => folder,
        Err(_) => return Ok(None),
    };
    let file = PathBuf::from(format!("{name}.{ENDING}"));
    let found = match folder.file(&file) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let data = found.metadata().map_err(|error| error.to_string())?;
    if !is_ours_alone(&data) {
        return Err("it belongs to another user, or others may write it: not loaded".to_owned());
    }
    let bytes = folder.read(&file, SOURCE_LIMIT).map_err(|error| error.to_string())?;
    let text = String::from_utf8(bytes);
    text.map(Some).map_err(|error| format!("not UTF-8 text: byte {}", error.utf8_error().valid_up_to()))
}
