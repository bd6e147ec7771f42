//! `read_text`, `write_text`, `write_base64`, `list_files`: the workspace's files.

use std::io;
use std::path::{Component, Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rhai::{Array, Dynamic, EvalAltResult, Module, NativeCallContext};

use super::args::text;
use crate::script::context::{Context, with_context};
use crate::script::error::{End, Failure, Thrown};
use crate::script::files::Folder;
use crate::script::memory;
use crate::wire::FaultCode;

type Native<T> = Result<T, Box<EvalAltResult>>;

/// The most names that one list holds.
const NAMES: usize = 10_000;

pub fn register(module: &mut Module) {
    module.set_native_fn("read_text", |call: NativeCallContext, path: Dynamic| -> Native<String> {
        with_context(&call, |context| read_text(&Named::new("read_text", context, &path)?))
    });
    module.set_native_fn("write_text", |call: NativeCallContext, path: Dynamic, value: Dynamic| -> Native<String> {
        with_context(&call, |context| write_text(context, &path, &value))
    });
    module.set_native_fn("write_base64", |call: NativeCallContext, path: Dynamic, value: Dynamic| -> Native<String> {
        with_context(&call, |context| write_base64(context, &path, &value))
    });
    module.set_native_fn("list_files", |call: NativeCallContext| -> Native<Array> {
        with_context(&call, |context| list(&Named::new("list_files", context, &".".into())?))
    });
    module.set_native_fn("list_files", |call: NativeCallContext, path: Dynamic| -> Native<Array> {
        with_context(&call, |context| list(&Named::new("list_files", context, &path)?))
    });
}

/// A path that a script named for one of the functions here.
struct Named {
    function: &'static str,
    folder: Folder,
    /// From the workspace's folder.
    inside: PathBuf,
    whole: PathBuf,
}

impl Named {
    fn new(function: &'static str, context: &Context, path: &Dynamic) -> Result<Self, Failure> {
        let path = text(&format!("{function}: the path"), path)?;
        let root = context.root.as_deref().ok_or_else(|| Thrown::new(FaultCode::Denied, "there is no workspace"))?;
        let whole = context.path(&path);
        if Path::new(path.as_str()).components().any(|part| part == Component::ParentDir) {
            return Err(outside(function, &path, root).into());
        }
        let inside = match whole.strip_prefix(root).map_err(|_| outside(function, &path, root))? {
            // The workspace itself.
            inside if inside.as_os_str().is_empty() => PathBuf::from("."),
            inside => inside.to_owned(),
        };
        let folder = Folder::open(root).map_err(|error| failed(function, root, &error))?;
        Ok(Self { function, folder, inside, whole })
    }

    fn failed(&self, error: &io::Error) -> Failure {
        failed(self.function, &self.whole, error)
    }

    fn write(&self, bytes: &[u8], umask: u32) -> Result<String, Failure> {
        self.folder.write(&self.inside, bytes, 0o666 & !umask).map_err(|error| self.failed(&error))?;
        Ok(self.whole.to_string_lossy().into_owned())
    }
}

fn read_text(named: &Named) -> Result<String, Failure> {
    let file = named.folder.file(&named.inside).and_then(|file| file.metadata());
    let length = file.map_err(|error| named.failed(&error))?.len() as usize;
    if !memory::has_room(length) {
        return Err(End::Memory.into());
    }
    let bytes = named.folder.read(&named.inside, length).map_err(|error| named.failed(&error))?;
    String::from_utf8(bytes).map_err(|error| {
        let offset = error.utf8_error().valid_up_to();
        let message = format!("read_text: {} is not UTF-8 text: byte {offset}", named.whole.display());
        Thrown::new(FaultCode::BadParams, message).into()
    })
}

fn write_text(context: &Context, path: &Dynamic, value: &Dynamic) -> Result<String, Failure> {
    let named = Named::new("write_text", context, path)?;
    let content = text("write_text: the text", value)?;
    // What a page says of a secret is kept out of files as it is kept out of the output.
    named.write(context.secrets.hide(&content).as_bytes(), context.umask)
}

fn write_base64(context: &Context, path: &Dynamic, value: &Dynamic) -> Result<String, Failure> {
    let named = Named::new("write_base64", context, path)?;
    let encoded = text("write_base64: the data", value)?;
    if !memory::has_room(encoded.len()) {
        return Err(End::Memory.into());
    }
    let bytes = BASE64
        .decode(encoded.as_bytes())
        .map_err(|error| Thrown::new(FaultCode::BadParams, format!("write_base64: the data is not base64: {error}")))?;
    named.write(&bytes, context.umask)
}

fn list(named: &Named) -> Result<Array, Failure> {
    let names = named.folder.names(&named.inside, NAMES + 1).map_err(|error| named.failed(&error))?;
    if names.len() > NAMES {
        let message = format!("list_files: {} holds more than {NAMES} files", named.whole.display());
        return Err(Thrown::new(FaultCode::Limit, message).into());
    }
    Ok(names.into_iter().map(Dynamic::from).collect())
}

fn outside(function: &str, path: &str, root: &Path) -> Thrown {
    let message = format!("{function}: {path} is outside the workspace {}", root.display());
    Thrown::new(FaultCode::Denied, message)
        .hint("name a file below it, without `..`; for other files, read them yourself and pass them in as `args`")
}

fn failed(function: &str, path: &Path, error: &io::Error) -> Failure {
    let code = match error.kind() {
        io::ErrorKind::PermissionDenied => FaultCode::Denied,
        _ => FaultCode::ScriptError,
    };
    let thrown = Thrown::new(code, format!("{function}: {}: {error}", path.display()));
    match error.kind() {
        io::ErrorKind::NotFound if function.starts_with("write") => thrown.hint("the folder must be there already"),
        io::ErrorKind::NotFound if function == "list_files" => {
            thrown.hint("paths start at the workspace's folder: `list_files()` tells what is there")
        }
        io::ErrorKind::NotFound => thrown.hint("`list_files(folder)` tells what is there"),
        io::ErrorKind::IsADirectory if function == "read_text" => {
            thrown.hint("name a file in it: `list_files(folder)` tells what is there")
        }
        io::ErrorKind::IsADirectory => thrown.hint("name a file in it"),
        _ => thrown,
    }
    .into()
}
