//! The engine of one script, its limits, and its source.
//!
//! What never changes (the language's own functions and ours) is built once and shared by all engines;
//! an engine itself is limits and two callbacks, so that a warm call pays microseconds for it. The limits
//! are what Rhai 1.27 was measured to need: a script must never end or wedge the process it runs in.

use std::sync::{Arc, LazyLock};

use rhai::packages::{Package, StandardPackage};
use rhai::{AST, Array, Dynamic, Engine, Identifier, Module, OptimizationLevel, Position, Scope, Shared};

use super::context::{Context, Handle};
use super::{api, error};
use crate::wire::{Fault, FaultCode};

/// The parser is quadratic and cannot be interrupted.
pub const SOURCE_LIMIT: usize = 128 << 10;

const CALL_LEVELS: usize = 64;
const EXPRESSION_DEPTH: usize = 128;
const FUNCTION_EXPRESSION_DEPTH: usize = 64;
const FUNCTIONS: usize = 500;
const MODULES: usize = 100;

static LANGUAGE: LazyLock<Shared<Module>> = LazyLock::new(|| StandardPackage::new().as_shared_module());

static OURS: LazyLock<Shared<Module>> = LazyLock::new(|| {
    let mut module = Module::new();
    api::register(&mut module);
    module.build_index();
    module.into()
});

/// Builds what all engines share, so that no script waits for it.
pub fn warm_up() {
    LazyLock::force(&LANGUAGE);
    LazyLock::force(&OURS);
}

/// The text of a script and what errors call it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// `stdin`, `-e`, or the path as it was typed.
    pub origin: String,
    text: String,
}

impl Source {
    /// Takes `text` without a byte order mark, with its `#!` line emptied and its line ends as `\n`.
    pub fn new(text: &str, origin: &str) -> Self {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        // The first line stays as an empty one, so that positions stay true.
        let text = match text.strip_prefix("#!") {
            Some(rest) => rest.find('\n').map_or("", |end| &rest[end..]),
            None => text,
        };
        Self { origin: origin.to_owned(), text: text.replace("\r\n", "\n") }
    }

    /// The text as it is compiled.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The line at `position`, or nothing.
    pub fn line(&self, position: Position) -> &str {
        let line = position.line().and_then(|line| self.text.lines().nth(line - 1));
        line.unwrap_or("").trim_end()
    }

    /// The position of a byte, as the engine counts: lines and characters from 1.
    pub fn position(&self, at: usize) -> Option<Position> {
        let before = self.text.get(..at)?;
        let column = before.rsplit('\n').next()?.chars().count() + 1;
        let line = before.matches('\n').count() + 1;
        Some(Position::new(u16::try_from(line).ok()?, u16::try_from(column).ok()?))
    }
}

/// The engine that runs a script with this context.
pub fn build(context: &Arc<Context>) -> Engine {
    let mut engine = limited();
    engine.register_global_module(arguments(&context.args));
    context.library.equip(&mut engine).iter().for_each(|sentence| context.warn(sentence.clone()));
    engine.set_default_tag(Dynamic::from(Handle(context.clone())));
    let context = context.clone();
    engine.on_progress(move |_| context.must_end().map(Dynamic::from));
    engine
}

/// The scope that a script starts with.
pub fn scope(args: &[String]) -> Scope<'static> {
    let mut scope = Scope::new();
    scope.push_constant("args", array(args));
    scope
}

/// `args` once more, where functions see it: the scope ends at their door.
fn arguments(args: &[String]) -> Shared<Module> {
    let mut module = Module::new();
    module.set_var("args", array(args));
    module.build_index();
    module.into()
}

fn array(args: &[String]) -> Array {
    args.iter().map(|arg| Dynamic::from(arg.clone())).collect()
}

/// Compiles, with everything found that can be found before anything runs.
///
/// # Errors
/// `usage` for a source that is too long, `syntax` for one that does not parse or names an unknown variable.
pub fn compile(engine: &Engine, source: &Source, scope: &Scope<'_>) -> Result<AST, Fault> {
    if source.text().len() > SOURCE_LIMIT {
        return Err(too_long(source));
    }
    let compiled = engine.compile_with_scope(scope, source.text());
    let mut ast = compiled.map_err(|error| error::syntax(&error, source))?;
    ast.set_source(Identifier::from(source.origin.as_str()));
    Ok(ast)
}

/// An engine that can compile and, but for its context, run.
pub fn limited() -> Engine {
    let mut engine = Engine::new_raw();
    engine.register_global_module(LANGUAGE.clone());
    // Registered later, found earlier: ours replace the language's of the same name.
    engine.register_global_module(OURS.clone());
    // The default optimizer doubles its time with each nested `switch`.
    engine.set_optimization_level(OptimizationLevel::None);
    engine.set_strict_variables(true);
    engine.set_max_call_levels(CALL_LEVELS);
    engine.set_max_expr_depths(EXPRESSION_DEPTH, FUNCTION_EXPRESSION_DEPTH);
    engine.set_max_functions(FUNCTIONS);
    engine.set_max_modules(MODULES);
    // A few dozen bytes of it overflow any stack.
    engine.disable_symbol("eval");
    engine
}

fn too_long(source: &Source) -> Fault {
    let message =
        format!("the script has {} KiB; the most is {} KiB", source.text().len().div_ceil(1024), SOURCE_LIMIT >> 10);
    Fault::new(FaultCode::Usage, message)
        .hint("keep data out of the script: pass it as an argument, or fetch it in the page with `js`")
        .with("source", source.origin.as_str())
}
