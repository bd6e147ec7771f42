//! What a script can call. One file per family; each registers its functions into the module that all
//! engines share, and finds the script it was called from with `with_context`.
//!
//! Arguments arrive as loosely typed values and are checked here, so that a wrong one is named instead of
//! "function not found".

mod args;
mod cdp;
mod compare;
mod event;
mod file;
mod js;
mod json;
mod order;
mod output;
mod page;
mod parallel;
mod screenshot;
mod secret;
mod sized;
mod state;
mod time;

use rhai::Module;

/// What each primitive takes, for errors that must say so.
pub const SIGNATURES: &[(&str, &[&str])] = &[
    ("cdp", &["(method)", "(method, params)", "(method, params, session)", "(method, params, session, options)"]),
    ("cdp_all", &["(calls)", "(calls, options)"]),
    ("ensure_page", &["()", "(\"new\")", "(target_id)"]),
    ("js", &["(expression)", "(expression, options)"]),
    ("page_info", &["()"]),
    ("tabs", &["()"]),
    ("capture_screenshot", &["(path)", "(path, options)"]),
    ("drain_events", &["()", "(method)"]),
    ("wait_event", &["(method)", "(method, options)"]),
    ("expect_event", &["(method)", "(method, options)"]),
    ("parallel", &["(items, workers, |item, page| …)"]),
    ("print", &["(value)"]),
    ("debug", &["(value)"]),
    ("sleep", &["(seconds)"]),
    ("exit", &["()", "(value)"]),
    ("json_parse", &["(text)"]),
    ("json_stringify", &["(value)"]),
    ("base64_encode", &["(text)", "(blob)"]),
    ("base64_decode", &["(text)"]),
    ("state_get", &["(name)"]),
    ("state_set", &["(name, value)"]),
    ("state_keys", &["()"]),
    ("read_text", &["(path)"]),
    ("write_text", &["(path, text)"]),
    ("write_base64", &["(path, data)"]),
    ("list_files", &["()", "(path)"]),
    ("secret", &["(name)"]),
];

/// Registers everything.
pub fn register(module: &mut Module) {
    output::register(module);
    time::register(module);
    json::register(module);
    sized::register(module);
    compare::register(module);
    order::register(module);
    cdp::register(module);
    page::register(module);
    js::register(module);
    screenshot::register(module);
    event::register(module);
    parallel::register(module);
    state::register(module);
    file::register(module);
    secret::register(module);
}
