//! The layers of `src/`, enforced: a file names only modules of its own layer or of lower ones.
//!
//! A module that is not in the table fails too: whoever adds one says where it belongs.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Higher knows lower. `main` is the door's handle.
const LAYERS: &[(u8, &[&str])] = &[
    (7, &["main"]),
    (6, &["cli", "repl"]),
    (5, &["client"]),
    (4, &["daemon"]),
    (3, &["script"]),
    (2, &["lease", "cdp", "gateway", "local"]),
    (
        1,
        &[
            "wire",
            "launch",
            "raw_path",
            "testing",
            "secret",
            "redact",
            "workspace",
            "places",
            "config",
            "proxy",
            "ids",
            "cancel",
        ],
    ),
];

/// Who must not know whom, though the layers would allow it, and why.
const STRANGERS: &[(&str, &str, &str)] = &[
    ("client", "daemon", "it starts one by running its own executable"),
    ("lease", "cdp", "a debt outlives every connection"),
    ("cdp", "lease", "it is given a transport and knows nothing of debts"),
    ("cdp", "gateway", "it is given a transport"),
    ("cdp", "local", "it is given a transport"),
    ("repl", "cli", "a door is made from `wire`, not from another door"),
];

#[test]
fn a_file_imports_only_from_its_own_layer_and_lower_ones() {
    let mut wrongs = Vec::new();
    for file in sources() {
        let from = module_of(&file);
        for to in imports(&fs::read_to_string(&file).unwrap()) {
            wrongs.extend(wrong(&from, &to).map(|why| format!("{}: crate::{to}: {why}", file.display())));
        }
    }
    assert!(wrongs.is_empty(), "\n{}\n", wrongs.join("\n"));
}

#[test]
fn the_reader_of_imports_sees_every_form() {
    let source = "use crate::wire::{Fault, Request};\nuse crate::{gateway::hosted, local,\n    cdp::{pending, events}};\n\
        // use crate::comment;\nlet x = crate::ids::CallId(1); $crate::not_ours::x; pub(in crate::script) fn f() {}";

    let found: Vec<_> = imports(source).into_iter().collect();

    assert_eq!(found, ["cdp", "gateway", "ids", "local", "script", "wire"]);
}

#[test]
fn strangers_and_upward_imports_are_told() {
    assert!(wrong("wire", "daemon").is_some());
    assert!(wrong("client", "daemon").is_some());
    assert!(wrong("daemon", "newcomer").is_some());
    assert!(wrong("daemon", "lease").is_none());
    assert!(wrong("gateway", "local").is_none());
}

fn wrong(from: &str, to: &str) -> Option<String> {
    if from == to {
        return None;
    }
    if let Some((_, _, why)) = STRANGERS.iter().find(|(a, b, _)| *a == from && *b == to) {
        return Some(format!("{from} does not know {to}: {why}"));
    }
    match (layer(from), layer(to)) {
        (Some(own), Some(other)) if own >= other => None,
        (Some(own), Some(other)) => Some(format!("layer {own} imports from layer {other}")),
        _ => Some(format!("{from} or {to} has no layer in this test's table")),
    }
}

fn layer(module: &str) -> Option<u8> {
    LAYERS.iter().find(|(_, modules)| modules.contains(&module)).map(|(layer, _)| *layer)
}

/// The modules of this crate that a source names after `crate::`.
fn imports(source: &str) -> BTreeSet<String> {
    let code: Vec<_> = source.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let code = code.join("\n").replace("$crate::", "");
    let after = code.split("crate::").skip(1);
    // `pub(in crate::script)` and `use crate::{…}` included; what follows `my_crate::` is not of ours, and there is none.
    after.flat_map(first_names).collect()
}

fn first_names(after: &str) -> Vec<String> {
    match after.strip_prefix('{') {
        Some(group) => top_level(group).iter().map(|path| first_name(path)).collect(),
        None => vec![first_name(after)],
    }
}

/// The parts of a group, up to its closing brace, without looking into inner groups.
fn top_level(group: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut depth = 0;
    for letter in group.chars() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => parts.push(String::new()),
            _ if depth == 0 => parts.last_mut().unwrap().push(letter),
            _ => {}
        }
    }
    parts.retain(|part| !part.trim().is_empty());
    parts
}

fn first_name(path: &str) -> String {
    let path = path.trim_start();
    path.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect()
}

fn sources() -> Vec<PathBuf> {
    let mut found = Vec::new();
    collect(&root(), &mut found);
    found.retain(|file| file.file_name().is_some_and(|name| name != "lib.rs"));
    found
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

fn module_of(file: &Path) -> String {
    let below = file.strip_prefix(root()).unwrap();
    let first = below.components().next().unwrap().as_os_str().to_string_lossy();
    first.trim_end_matches(".rs").to_owned()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}
