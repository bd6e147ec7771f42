//! `capture_screenshot`: from the reply's text straight into a file.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use nix::libc;
use rhai::{Dynamic, EvalAltResult, Map, Module, NativeCallContext};

use super::args::{DEFAULT_TIMEOUT, Options, text};
use crate::cdp::Page;
use crate::script::browser::{Browser, map};
use crate::script::context::{Context, with_context};
use crate::script::error::{Failure, Thrown};
use crate::script::files;
use crate::script::value::{Form, write};
use crate::wire::FaultCode;

type Native<T> = Result<T, Box<EvalAltResult>>;

/// How much base64 text is decoded at once; a multiple of four.
const CHUNK: usize = 64 << 10;

pub fn register(module: &mut Module) {
    module.set_native_fn("capture_screenshot", |call: NativeCallContext, path: Dynamic| {
        capture_screenshot(&call, &path, Dynamic::UNIT)
    });
    module.set_native_fn("capture_screenshot", |call: NativeCallContext, path: Dynamic, options: Dynamic| {
        capture_screenshot(&call, &path, options)
    });
}

fn capture_screenshot(call: &NativeCallContext, path: &Dynamic, options: Dynamic) -> Native<String> {
    with_context(call, |context| {
        let path = context.path(&text("capture_screenshot: the path", path)?);
        let mut options = Options::new("capture_screenshot", options)?;
        let full_page = options.flag("full_page", false)?;
        let mut params = Map::new();
        for (name, value) in [
            ("format", options.text("format")?.map(Dynamic::from)),
            ("quality", options.integer("quality")?.map(Dynamic::from)),
            ("clip", options.map("clip")?.map(Dynamic::from)),
        ] {
            params.extend(value.map(|value| (name.into(), value)));
        }
        options.finish()?;
        let browser = context.browser()?;
        let page = browser.page(context)?;
        if full_page {
            params.insert("clip".into(), whole_page(context, browser, &page)?);
            params.insert("captureBeyondViewport".into(), true.into());
        }
        capture(context, browser, &page, params, &path)?;
        Ok(path.to_string_lossy().into_owned())
    })
}

fn capture(context: &Context, browser: &Browser, page: &Page, mut params: Map, path: &Path) -> Result<(), Failure> {
    if let Some(Ok(mut clip)) = params.get_mut("clip").map(|clip| clip.as_map_mut()) {
        // CDP insists on it, and nobody means anything else.
        clip.entry("scale".into()).or_insert(Dynamic::from_int(1));
    }
    let params = write(&params.into(), Form::Params)?;
    let answer = browser.call_page(context, page, "Page.captureScreenshot", &params, DEFAULT_TIMEOUT)?;
    let data = base64_of(answer.result())
        .ok_or_else(|| Thrown::new(FaultCode::CdpError, "Page.captureScreenshot: the reply holds no image"))?;
    save(path, data, context.umask).map_err(|error| cannot_write(path, &error).into())
}

/// The clip that covers all of the page.
fn whole_page(context: &Context, browser: &Browser, page: &Page) -> Result<Dynamic, Failure> {
    let answer = browser.call_page(context, page, "Page.getLayoutMetrics", "{}", DEFAULT_TIMEOUT)?;
    let mut metrics = map(&answer)?;
    let size = metrics.remove("cssContentSize").or_else(|| metrics.remove("contentSize"));
    Ok(size.unwrap_or_default())
}

/// The text of `"data":"…"`; base64 has no escapes.
fn base64_of(result: &str) -> Option<&str> {
    let start = result.find("\"data\"")? + "\"data\"".len();
    let text = result[start..].trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?;
    text.split('"').next()
}

/// Decodes into the file piece by piece.
fn save(path: &Path, data: &str, umask: u32) -> io::Result<()> {
    let mut file = create(path, umask)?;
    let mut bytes = vec![0; CHUNK / 4 * 3];
    for piece in data.as_bytes().chunks(CHUNK) {
        let length = BASE64.decode_slice(piece, &mut bytes);
        let length = length.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        file.write_all(&bytes[..length])?;
    }
    file.flush()
}

/// A file that is new gets the caller's mode, whatever this process's umask is; one that was there keeps its own.
fn create(path: &Path, umask: u32) -> io::Result<File> {
    let mode = 0o666 & !umask;
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(mode).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    match options.open(path) {
        Ok(file) => {
            file.set_permissions(Permissions::from_mode(mode))?;
            Ok(file)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let file = files::ordinary(options.create_new(false).open(path)?)?;
            // Only now: nothing but an ordinary file is emptied.
            file.set_len(0)?;
            Ok(file)
        }
        Err(error) => Err(error),
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> Thrown {
    let message = format!("capture_screenshot: cannot write {}: {error}", path.display());
    let thrown = Thrown::new(FaultCode::Denied, message);
    match error.kind() {
        io::ErrorKind::NotFound => thrown.hint("the folder must be there already"),
        _ => thrown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_reaches_its_file_whole_and_with_the_callers_mode() {
        let folder = std::env::temp_dir().join(format!("ghost-screenshot-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("shot.png");
        let image: Vec<u8> = (0..200_000_u32).map(|index| index as u8).collect();
        let reply = format!("{{\"data\": \"{}\"}}", BASE64.encode(&image));

        save(&path, base64_of(&reply).unwrap(), 0o027).unwrap();

        let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!((std::fs::read(&path).unwrap(), mode), (image, 0o640));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
