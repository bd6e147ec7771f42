//! The script's page: `ensure_page`, `page_info`, `tabs`.

use std::time::Duration;

use rhai::{Array, Dynamic, EvalAltResult, Map, Module, NativeCallContext};

use super::args::{text, wrong};
use crate::cdp::{CallError, Dialog, Page, PageChoice, PageInfo};
use crate::script::browser::{Browser, failure, map, page_map};
use crate::script::context::{Context, with_context};
use crate::script::error::Failure;

type Native<T> = Result<T, Box<EvalAltResult>>;

/// How long a page may take to describe itself; then its target does.
const DESCRIBE_WITHIN: Duration = Duration::from_secs(3);

const DESCRIBE: &str = concat!(
    r#"{"returnByValue":true,"expression":"({url: location.href, title: document.title, "#,
    r#"width: innerWidth, height: innerHeight})"}"#
);

pub fn register(module: &mut Module) {
    module.set_native_fn("ensure_page", |call: NativeCallContext| -> Native<Map> {
        with_context(&call, |context| Ok(page_map(&context.browser()?.page_that_is_there(context)?)))
    });
    module.set_native_fn("ensure_page", |call: NativeCallContext, choice: Dynamic| -> Native<Map> {
        with_context(&call, |context| ensure(context, &choice))
    });
    module.set_native_fn("page_info", |call: NativeCallContext| -> Native<Map> { with_context(&call, page_info) });
    module.set_native_fn("tabs", |call: NativeCallContext| -> Native<Array> { with_context(&call, tabs) });
}

fn ensure(context: &Context, choice: &Dynamic) -> Result<Map, Failure> {
    let browser = context.browser()?;
    let target = match choice.as_map_ref() {
        Ok(page) => page.get("target_id").cloned().unwrap_or_default(),
        Err(_) => choice.clone(),
    };
    if !target.is_string() {
        return Err(wrong("ensure_page: the page", "\"new\" or a target id", choice));
    }
    let choice = match text("ensure_page: the page", &target)?.as_str() {
        "new" => PageChoice::New,
        id => PageChoice::Target(id.into()),
    };
    Ok(page_map(&browser.choose(context, choice)?))
}

fn tabs(context: &Context) -> Result<Array, Failure> {
    let browser = context.browser()?;
    Ok(browser.pages(context)?.iter().map(|info| Dynamic::from_map(tab(info))).collect())
}

fn tab(info: &PageInfo) -> Map {
    let mut map = Map::new();
    map.insert("target_id".into(), info.target.as_str().into());
    map.insert("url".into(), info.url.as_str().into());
    map.insert("title".into(), info.title.as_str().into());
    map
}

fn page_info(context: &Context) -> Result<Map, Failure> {
    let browser = context.browser()?;
    let page = browser.page(context)?;
    if let Some(dialog) = browser.caller.dialog(&page.target) {
        return blocked(context, browser, &page, Some(dialog));
    }
    let params = DESCRIBE;
    match browser.call_page(context, &page, "Runtime.evaluate", params, DESCRIBE_WITHIN) {
        Ok(answer) => match described(map(&answer)?) {
            Some(info) => Ok(remember_size(browser, &page, info)),
            None => blocked(context, browser, &page, None),
        },
        Err(Failure::Thrown(_)) => {
            let dialog = browser.caller.dialog(&page.target);
            blocked(context, browser, &page, dialog)
        }
        Err(ended) => Err(ended),
    }
}

/// `result.value` of an evaluation by value.
fn described(mut reply: Map) -> Option<Map> {
    let mut result = reply.remove("result")?.try_cast::<Map>()?;
    result.remove("value")?.try_cast::<Map>()
}

fn remember_size(browser: &Browser, page: &Page, info: Map) -> Map {
    let side = |name: &str| info.get(name).and_then(|side| side.as_int().ok());
    if let (Some(width), Some(height)) = (side("width"), side("height")) {
        browser.set_size(&page.target, (width, height));
    }
    info
}

/// What is known of a page that cannot be asked: its target's word, and its size as it was.
fn blocked(context: &Context, browser: &Browser, page: &Page, dialog: Option<Dialog>) -> Result<Map, Failure> {
    let pages = browser.pages(context)?;
    let Some(info) = pages.iter().find(|info| info.target == page.target) else {
        let gone = CallError::TargetGone(page.target.clone());
        return Err(failure(context, gone));
    };
    let mut map = tab(info);
    map.remove("target_id");
    let size = browser.last_size(&page.target);
    map.insert("width".into(), size.map_or(Dynamic::UNIT, |(width, _)| width.into()));
    map.insert("height".into(), size.map_or(Dynamic::UNIT, |(_, height)| height.into()));
    if let Some(dialog) = dialog {
        map.insert("dialog".into(), dialog_map(&dialog).into());
    }
    Ok(map)
}

fn dialog_map(dialog: &Dialog) -> Map {
    let mut map = Map::new();
    map.insert("type".into(), dialog.kind.as_str().into());
    map.insert("message".into(), dialog.message.as_str().into());
    map
}
