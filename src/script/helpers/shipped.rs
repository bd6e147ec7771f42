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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::helpers::Helpers;

    #[test]
    fn every_shipped_module_loads_and_says_what_it_and_its_functions_are_for() {
        let library = Helpers::new(None).current();
        for Shipped { name, source } in SHIPPED {
            assert!(library.module(name, &[]).is_ok(), "{name}");
            assert!(source.starts_with("//! "), "{name}");
            let lines: Vec<&str> = source.lines().collect();
            for pair in lines.windows(2).filter(|pair| pair[1].starts_with("fn ")) {
                // A second form of a function stands right behind the first.
                let has_words = pair[0].starts_with("///") || source.matches(first_word(pair[1])).count() > 1;
                assert!(has_words, "{name}: {}", pair[1]);
            }
        }
    }

    fn first_word(line: &str) -> &str {
        line.split('(').next().unwrap_or(line)
    }
}
