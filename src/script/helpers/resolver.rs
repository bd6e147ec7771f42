//! `import "name" as name;`: the workspace's file, else the shipped module.
//!
//! The language's own resolver for files reads outside its folder, never looks again, and overflows on a cycle.

use std::sync::Arc;

use rhai::{Engine, EvalAltResult, ModuleResolver, Position, Shared};

use super::library::{Library, Miss};
use super::shipped::SHIPPED;
use crate::script::error::{Failure, Thrown};
use crate::script::hints;
use crate::wire::FaultCode;

/// The imports of one script, or of one module that is being loaded.
pub struct Resolver {
    pub library: Arc<Library>,
    /// The modules that are being loaded, outermost first.
    pub chain: Vec<String>,
}

impl ModuleResolver for Resolver {
    fn resolve(
        &self,
        _engine: &Engine,
        _source: Option<&str>,
        path: &str,
        position: Position,
    ) -> Result<Shared<rhai::Module>, Box<EvalAltResult>> {
        let found = name_of(path).map_err(Failure::from).and_then(|name| self.find(name));
        found.map_err(|failure| failure.at(position))
    }
}

impl Resolver {
    fn find(&self, name: &str) -> Result<Shared<rhai::Module>, Failure> {
        if self.chain.iter().any(|loading| loading == name) {
            let chain: Vec<&str> = self.chain.iter().map(String::as_str).chain([name]).collect();
            let message = format!("the modules import each other in a circle: {}", chain.join(" → "));
            return Err(Thrown::new(FaultCode::ScriptError, message).into());
        }
        match self.library.module(name, &self.chain) {
            Ok(module) => Ok(module),
            Err(Miss::Broken(broken)) => Err(broken.thrown(&format!("the module `{name}` does not load")).into()),
            Err(Miss::Unknown) => Err(self.unknown(name).into()),
        }
    }

    fn unknown(&self, name: &str) -> Thrown {
        let thrown = Thrown::new(FaultCode::ScriptError, format!("there is no helper module `{name}`"));
        let known = || self.library.names().chain(SHIPPED.iter().map(|module| module.name));
        match hints::nearest(name, known()) {
            Some(near) => thrown.hint(format!("did you mean `{near}`?")),
            None => thrown.hint("`ghost-browser helpers` lists what there is"),
        }
    }
}

/// The module that a path means: a plain name, and nothing that could lead out of the folder.
fn name_of(path: &str) -> Result<&str, Thrown> {
    let name = path.strip_suffix(".rhai").unwrap_or(path);
    let is_plain = !name.is_empty()
        && !name.starts_with('.')
        && !name.contains(|character: char| matches!(character, '/' | '\\') || character.is_control());
    if is_plain {
        return Ok(name);
    }
    let message = format!("import \"{path}\": a module is named without a folder");
    Err(Thrown::new(FaultCode::Denied, message)
        .hint("its file lies in `.ghost/helpers`: `ghost-browser helpers path` tells where that is"))
}
