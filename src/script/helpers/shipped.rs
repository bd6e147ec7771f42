//! The modules that the program carries.

/// One module.
#[derive(Debug, Clone, Copy)]
pub struct Shipped {
    /// What `import` calls it.
    pub name: &'static str,
    /// Its source text.
    pub source: &'static str,
}

/// All of them, in order of their names.
pub const SHIPPED: &[Shipped] = &[Shipped { name: "page", source: include_str!("../../../helpers/page.rhai") }];

/// The module of that name.
pub fn shipped(name: &str) -> Option<Shipped> {
    SHIPPED.iter().copied().find(|module| module.name == name)
}
