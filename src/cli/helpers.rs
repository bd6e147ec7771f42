//! `helpers`: the modules that scripts can use, the workspace's own and the shipped ones.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::call::Call;
use super::exit::Exit;
use super::output;
use super::workspace;
use crate::script::helpers::{PLACE, SHIPPED, Shipped, own, shipped};
use crate::wire::{Fault, FaultCode};

/// What is to be done with them.
#[derive(clap::Subcommand, Default)]
pub(super) enum Helpers {
    /// List the modules: name, where its text is, what it is for (the default)
    #[default]
    List,
    /// Print the workspace's folder for them, without making it
    Path,
    /// Print the text of a module
    Show {
        /// The module's name
        name: String,
    },
    /// Copy a shipped module into the workspace: `import` finds the copy first, and you can change it
    Copy {
        /// The module's name
        name: String,
    },
}

pub(super) fn helpers(call: &Call, what: &Helpers) -> Exit {
    Exit::after(carry_out(call, what))
}

fn carry_out(call: &Call, what: &Helpers) -> Result<(), Fault> {
    let root = call.door()?.session.root.to_path_buf();
    match what {
        Helpers::List => output::write(list(&root)),
        Helpers::Path => workspace::print(&root.join(PLACE)),
        Helpers::Show { name } => output::write(text_of(&root, name)?),
        Helpers::Copy { name } => copy(&root, name),
    }
}

/// One line for each module, those of the workspace first.
fn list(root: &Path) -> String {
    let own = own(root);
    let mine = own.iter().map(|(name, path)| (name.clone(), format!("{PLACE}/{name}.rhai"), fs::read_to_string(path)));
    let others = SHIPPED.iter().filter(|module| own.iter().all(|(name, _)| name != module.name));
    let others = others.map(|module| (module.name.to_owned(), "shipped".to_owned(), Ok(module.source.to_owned())));
    let lines: Vec<_> = mine.chain(others).collect();
    let width = |pick: fn(&(String, String, io::Result<String>)) -> &String| {
        lines.iter().map(|line| pick(line).chars().count()).max().unwrap_or(0)
    };
    let (first, second) = (width(|line| &line.0), width(|line| &line.1));
    let line = |(name, place, text): &(String, String, io::Result<String>)| {
        let purpose = text.as_deref().map_or("(cannot be read)", purpose);
        format!("{name:first$}  {place:second$}  {purpose}").trim_end().to_owned() + "\n"
    };
    lines.iter().map(line).collect()
}

/// The first line of a module's own description.
fn purpose(text: &str) -> &str {
    let described = text.lines().find_map(|line| line.trim_start().strip_prefix("//!"));
    described.unwrap_or("").trim()
}

/// The text that `import` would take.
fn text_of(root: &Path, name: &str) -> Result<String, Fault> {
    match own(root).into_iter().find(|(known, _)| known == name) {
        Some((_, path)) => fs::read_to_string(&path).map_err(|error| unreadable(&path, &error)),
        None => Ok(known(name)?.source.to_owned()),
    }
}

fn copy(root: &Path, name: &str) -> Result<(), Fault> {
    let module = known(name)?;
    let path = workspace::make_helpers(root)?.join(format!("{name}.rhai"));
    write_new(&path, module.source).map_err(|error| uncopied(&path, &error))?;
    workspace::print(&path)
}

/// Writes a file that was not there; one that cannot be written whole is gone again, since it would be found first.
pub(super) fn write_new(path: &Path, text: &str) -> io::Result<()> {
    // Not more than the owner's to write, whatever the umask: else it would not be loaded.
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(path)?;
    file.write_all(text.as_bytes()).inspect_err(|_| {
        // It was made here. Where it cannot even be removed, the first error says enough.
        let _ = fs::remove_file(path);
    })
}

fn known(name: &str) -> Result<Shipped, Fault> {
    shipped(name).ok_or_else(|| {
        let names: Vec<_> = SHIPPED.iter().map(|module| module.name).collect();
        Fault::new(FaultCode::Usage, format!("there is no helper module `{name}`"))
            .hint(format!("shipped are: {}; `ghost-browser helpers` lists yours too", names.join(", ")))
    })
}

fn unreadable(path: &Path, error: &io::Error) -> Fault {
    Fault::new(FaultCode::Usage, format!("cannot read {}", path.display())).caused_by(error)
}

fn uncopied(path: &Path, error: &io::Error) -> Fault {
    let fault = Fault::new(FaultCode::Denied, format!("cannot write {}", path.display())).caused_by(error);
    match error.kind() {
        io::ErrorKind::AlreadyExists => fault.hint("it is yours already: remove it first for a fresh copy"),
        _ => fault,
    }
}
