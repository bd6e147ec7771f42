//! The modules of a workspace as they are at one moment: compiled once, shared by all scripts until a file changes.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rhai::{AST, Dynamic, Engine, Module, Scope, Shared};

use super::broken::{Broken, stand_in};
use super::folder::{self, Listing, PLACE};
use super::plain;
use super::resolver::Resolver;
use super::shipped::shipped;
use crate::script::engine::{self, Source};
use crate::script::error::{End, uncaught};
use crate::script::{hints, memory};

/// The most steps that loading may take: it is constants, no work.
const STEPS: u64 = 1_000_000;

/// The most memory that loading one module may take.
const MEMORY: usize = 64 << 20;

/// The helpers of one workspace.
pub struct Helpers {
    root: Option<PathBuf>,
    library: Mutex<Option<Arc<Library>>>,
}

impl Helpers {
    /// Those of the workspace at `root`; without one, the shipped modules only.
    pub fn new(root: Option<PathBuf>) -> Self {
        Self { root, library: Mutex::default() }
    }

    /// The modules as they are now. All are loaded anew when one of the files has changed: they may use one another.
    pub fn current(&self) -> Arc<Library> {
        let listing = self.root.as_deref().map(folder::list).unwrap_or_default();
        let mut kept = self.library.lock().unwrap_or_else(PoisonError::into_inner);
        match &*kept {
            Some(library) if library.listing == listing => library.clone(),
            _ => kept.insert(Arc::new(Library::new(self.root.clone(), listing))).clone(),
        }
    }
}

/// The modules at one moment.
pub struct Library {
    root: Option<PathBuf>,
    listing: Listing,
    loaded: Mutex<HashMap<String, Arc<Loaded>>>,
    globals: OnceLock<Globals>,
}

/// What became of one module.
struct Loaded {
    source: Source,
    module: Result<Shared<Module>, Broken>,
    /// What it was made from, where it loads.
    ast: Option<AST>,
    /// Its functions that would have replaced one that every script has.
    refused: Vec<String>,
}

/// Why there is no module.
pub enum Miss {
    /// No file and nothing shipped has that name.
    Unknown,
    /// It does not load.
    Broken(Broken),
}

/// What every script gets without asking.
#[derive(Default)]
struct Globals {
    /// The first wins where two define the same.
    modules: Vec<Shared<Module>>,
    warnings: Vec<String>,
}

impl Library {
    fn new(root: Option<PathBuf>, listing: Listing) -> Self {
        Self { root, listing, loaded: Mutex::default(), globals: OnceLock::new() }
    }

    /// The names of the workspace's own modules.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.listing.modules.iter().map(|(name, _)| name.as_str())
    }

    /// Gives an engine the global helpers and `import`. Returns what the caller should know.
    pub fn equip(self: &Arc<Self>, engine: &mut Engine) -> &[String] {
        engine.set_module_resolver(Resolver { library: self.clone(), chain: Vec::new() });
        let globals = self.globals.get_or_init(|| memory::apart(MEMORY, || Globals::of(self)));
        // What is registered last is found first.
        globals.modules.iter().rev().for_each(|module| {
            engine.register_global_module(module.clone());
        });
        &globals.warnings
    }

    /// The source of a loaded module, for errors that show a line of it.
    pub fn source(&self, origin: &str) -> Option<Source> {
        let loaded = self.loaded();
        loaded.values().map(|loaded| &loaded.source).find(|source| source.origin == origin).cloned()
    }

    /// The module `name`, which modules of `chain` are being loaded for.
    pub fn module(self: &Arc<Self>, name: &str, chain: &[String]) -> Result<Shared<Module>, Miss> {
        self.load(name, chain)?.module.clone().map_err(Miss::Broken)
    }

    /// Modules outlive the script that they are loaded for, so they are none of its memory.
    fn load(self: &Arc<Self>, name: &str, chain: &[String]) -> Result<Arc<Loaded>, Miss> {
        memory::apart(MEMORY, || self.load_here(name, chain))
    }

    fn load_here(self: &Arc<Self>, name: &str, chain: &[String]) -> Result<Arc<Loaded>, Miss> {
        if let Some(loaded) = self.loaded().get(name) {
            return Ok(loaded.clone());
        }
        let source = match self.read(name) {
            Ok(Some(source)) => source,
            Ok(None) => return Err(Miss::Unknown),
            Err(broken) => return Err(Miss::Broken(broken)),
        };
        let loaded = match self.compile(name, &source, chain) {
            Ok((module, ast, refused)) => Loaded { source, module: Ok(module.into()), ast: Some(ast), refused },
            Err(broken) => Loaded { source, module: Err(broken), ast: None, refused: Vec::new() },
        };
        let loaded = Arc::new(loaded);
        self.loaded().insert(name.to_owned(), loaded.clone());
        Ok(loaded)
    }

    fn read(&self, name: &str) -> Result<Option<Source>, Broken> {
        let origin = own_origin(name);
        let is_usable = self.listing.modules.iter().any(|(known, _)| known == name);
        if let (Some(root), true) = (&self.root, is_usable)
            && let Some(text) = folder::read(root, name).map_err(|why| Broken::new(&origin, why))?
        {
            return Ok(Some(Source::new(&text, &origin)));
        }
        Ok(shipped(name).map(|module| Source::new(module.source, &format!("helpers/{name}.rhai"))))
    }

    /// The module, what it was made from, and the functions that it may not have.
    fn compile(
        self: &Arc<Self>,
        name: &str,
        source: &Source,
        chain: &[String],
    ) -> Result<(Module, AST, Vec<String>), Broken> {
        let engine = self.loader(name, chain);
        let mut ast = engine::compile(&engine, source, &Scope::new()).map_err(|fault| Broken::from(&fault))?;
        plain::check(&ast).map_err(|(what, position)| Broken::at(&source.origin, position, what))?;
        let refused = if self.is_global(name) { without_reserved(&mut ast) } else { Vec::new() };
        match Module::eval_ast_as_new(Scope::new(), &ast, &engine) {
            Ok(module) => Ok((module, ast, refused)),
            Err(error) => Err(Broken::from(&uncaught(*error, source, &|_| None))),
        }
    }

    /// An engine of its own: what loads for all scripts must not end with one of them.
    fn loader(self: &Arc<Self>, name: &str, chain: &[String]) -> Engine {
        let mut engine = engine::limited();
        engine.set_max_operations(STEPS);
        engine.on_progress(|_| memory::is_over().then(|| Dynamic::from(End::Memory)));
        let chain = chain.iter().cloned().chain([name.to_owned()]).collect();
        engine.set_module_resolver(Resolver { library: self.clone(), chain });
        engine
    }

    /// A workspace's file is, unless it stands in for a shipped module.
    fn is_global(&self, name: &str) -> bool {
        shipped(name).is_none() && self.names().any(|known| known == name)
    }

    fn loaded(&self) -> MutexGuard<'_, HashMap<String, Arc<Loaded>>> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Globals {
    fn of(library: &Arc<Library>) -> Self {
        let mut globals = Self { warnings: library.listing.complaint.iter().cloned().collect(), ..Self::default() };
        let mut defined = HashMap::new();
        let mut good = Vec::new();
        let mut stand_ins = Module::new();
        for name in library.names().filter(|name| library.is_global(name)) {
            match library.load(name, &[]) {
                Ok(loaded) => match &loaded.module {
                    Ok(module) => {
                        globals.warn_of_refused(name, &loaded.refused);
                        globals.warn_of_doubles(name, module, &mut defined);
                        good.push((name, module.clone(), loaded.clone()));
                    }
                    Err(broken) => {
                        stand_in(&mut stand_ins, broken, loaded.source.text());
                        globals.warnings.push(format!("a helper does not load: {broken}"));
                    }
                },
                Err(Miss::Broken(broken)) => globals.warnings.push(format!("a helper does not load: {broken}")),
                // It went away between two looks.
                Err(Miss::Unknown) => {}
            }
        }
        globals.warn_of_constants(&good);
        globals.modules = good
            .iter()
            .map(|(name, module, _)| {
                with_all_constants(library, name, &good).map_or_else(|| module.clone(), Module::into)
            })
            .collect();
        stand_ins.build_index();
        globals.modules.push(stand_ins.into());
        globals
    }

    fn warn_of_refused(&mut self, name: &str, refused: &[String]) {
        let origin = own_origin(name);
        let say = |function| format!("{origin}: every script has a `{function}`: a helper cannot replace it");
        self.warnings.extend(refused.iter().map(say));
    }

    fn warn_of_constants(&mut self, good: &[Good<'_>]) {
        let mut defined = HashMap::new();
        for (name, constant) in good.iter().flat_map(|(name, _, loaded)| {
            loaded.ast.iter().flat_map(plain::constants).map(move |(constant, _)| (*name, constant))
        }) {
            let first = *defined.entry(constant).or_insert(name);
            if first != name {
                let (first, second) = (own_origin(first), own_origin(name));
                self.warnings.push(format!("the constant `{constant}` is in {first} and {second}: rename one of them"));
            }
        }
    }

    fn warn_of_doubles<'n>(&mut self, name: &'n str, module: &Module, defined: &mut HashMap<(String, usize), &'n str>) {
        for (_, _, function, parameters, _) in module.iter_script_fn_info() {
            let key = (function.to_owned(), parameters);
            if let Some(first) = defined.get(&key) {
                let (first, second) = (own_origin(first), own_origin(name));
                self.warnings.push(format!("`{}` is defined in {first} and {second}: the first is used", key.0));
            } else {
                defined.insert(key, name);
            }
        }
    }
}

/// A global module that loads: its name, itself, and what became of it.
type Good<'n> = (&'n str, Shared<Module>, Arc<Loaded>);

/// A global module once more, with the constants of all others beside its own; `None` where there are none.
///
/// A helper's function that is called from another helper may be run with the constants of that one: where the language
/// finds a function in a calling module's text, it does not look for its surroundings.
fn with_all_constants(library: &Arc<Library>, name: &str, good: &[Good<'_>]) -> Option<Module> {
    let own = good.iter().find(|(known, ..)| *known == name)?.2.ast.as_ref()?;
    let others = good.iter().filter(|(known, ..)| *known != name);
    let others: Vec<_> = others
        .flat_map(|(.., loaded)| loaded.ast.iter().flat_map(plain::constants).map(|(_, constant)| constant.clone()))
        .collect();
    if others.is_empty() {
        return None;
    }
    let statements = others.into_iter().chain(own.statements().iter().cloned());
    let mut ast = AST::new(statements, own.shared_lib().clone());
    ast.set_source(own_origin(name));
    // What loads alone fails here only for want of memory: then it has its own constants.
    Module::eval_ast_as_new(Scope::new(), &ast, &library.loader(name, &[])).ok()
}

/// Takes out the functions that scripts have anyway, which stay what they are, and gives their names.
fn without_reserved(ast: &mut AST) -> Vec<String> {
    let names = ast.iter_functions().map(|function| function.name.to_owned());
    let refused: Vec<_> = names.filter(|name| hints::is_function(name)).collect();
    if !refused.is_empty() {
        ast.retain_functions(|_, _, name, _| !hints::is_function(name));
    }
    refused
}

fn own_origin(name: &str) -> String {
    Path::new(PLACE).join(format!("{name}.rhai")).display().to_string()
}
