//! `js`: an expression in the page, its value exactly.
//!
//! One round trip with deep serialisation. Each thing that Chromium is asked to do beside evaluating costs a few
//! percent of a short call, so it is asked for only what the source may need: `replMode`, which allows top-level
//! `await` and `const` declared again, where there is such a word (with it Chromium hands a promise back unawaited);
//! `awaitPromise` where something is called, since what is merely read is seldom a promise. A promise that comes back
//! all the same is awaited by its handle, in a second round trip.
//!
//! A page that is still busy at the deadline is told from one that merely waits by asking it something else; only
//! the busy one is ended.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use rhai::{Dynamic, EvalAltResult, Map, Module, NativeCallContext};

use super::args::{Options, text};
use super::cdp::Destination;
use crate::cdp::{Call, CallError, Caller, Dialog, Page};
use crate::ids::{SessionId, TargetId};
use crate::script::browser::{Browser, failure, map};
use crate::script::context::{Context, with_context};
use crate::script::error::{End, Failure, Thrown};
use crate::script::memory::{self, Uncounted, uncounted};
use crate::script::value::deep::{self, Undecoded, Untold};
use crate::wire::FaultCode;

type Native<T> = Result<T, Box<EvalAltResult>>;

/// How long a page has to show that it still answers.
const PROBE_WITHIN: Duration = Duration::from_millis(200);

/// How long it has after its code was ended.
const RECOVERY_WITHIN: Duration = Duration::from_secs(2);

/// How long a thrown object has to tell its fields; it may run code of its own for that.
const FIELDS_WITHIN: Duration = Duration::from_millis(500);

/// Tells the fields of a thrown object. As text: telling the object itself would end the page where a getter throws.
const FIELDS: &str = "function(){const text=JSON.stringify(this);return text.length>1000?text.slice(0,1000)+'…':text}";

/// CDP's code for what went wrong inside of the browser.
const INTERNAL_ERROR: i64 = -32603;

const GETTER_CRASHES: &str = "`Page.reload` revives the page; if it was this value that ended it, a getter in it throws: \
    pick fields, `({id: x.id})`; `#{by_value: true}` fails without ending the page";

const GETTER_FAILS: &str =
    "a getter or a `toJSON` of the value may throw: pick what you need in the expression, `({id: x.id})`";

/// Words that only `replMode` gives their meaning at the top level.
const REPL_WORDS: [&str; 5] = ["await", "let", "const", "class", "using"];

pub fn register(module: &mut Module) {
    module.set_native_fn("js", |call: NativeCallContext, expression: Dynamic| js(&call, &expression, Dynamic::UNIT));
    module.set_native_fn("js", |call: NativeCallContext, expression: Dynamic, options: Dynamic| {
        js(&call, &expression, options)
    });
}

fn js(call: &NativeCallContext, expression: &Dynamic, options: Dynamic) -> Native<Dynamic> {
    with_context(call, |context| {
        let expression = text("js: the expression", expression)?;
        // It is copied into the params, and these into the frame.
        if !memory::has_room(2 * expression.len()) {
            return Err(End::Memory.into());
        }
        let evaluation = Evaluation::new(context, options)?;
        evaluation.run(context, context.browser()?, &expression)
    })
}

/// How to evaluate, and where.
struct Evaluation {
    to: Target,
    await_promise: bool,
    by_value: bool,
    within: Duration,
}

/// What Chromium is asked to do beside evaluating.
#[derive(Clone, Copy, PartialEq)]
enum Asked {
    /// Nothing.
    Value,
    /// To await a promise.
    Awaited,
    /// To take the source as a console does.
    Repl,
}

impl Asked {
    fn new(evaluation: &Evaluation, expression: &str) -> Self {
        // All that makes a promise is a call.
        let may_wait = evaluation.by_value || expression.contains(['(', '`']);
        match has_repl_word(expression) {
            true => Self::Repl,
            false if evaluation.await_promise && may_wait => Self::Awaited,
            false => Self::Value,
        }
    }
}

/// Where an expression runs: followed when it is a page, used as it is when it is a session.
enum Target {
    Page(Page),
    Session(SessionId),
}

impl Evaluation {
    fn new(context: &Context, options: Dynamic) -> Result<Self, Failure> {
        let mut options = Options::new("js", options)?;
        let await_promise = options.flag("await_promise", true)?;
        let by_value = options.flag("by_value", false)?;
        let within = options.timeout()?;
        let session = options.value("session");
        options.finish()?;
        let to = match session.as_ref().map(Destination::new).transpose()? {
            Some(Destination::Session(session)) => Target::Session(session),
            Some(Destination::Page(page)) => Target::Page(page),
            None | Some(Destination::Browser) => Target::Page(context.browser()?.page(context)?),
        };
        Ok(Self { to, await_promise, by_value, within })
    }

    fn run(&self, context: &Context, browser: &Browser, expression: &str) -> Result<Dynamic, Failure> {
        let asked = Asked::new(self, expression);
        let params = self.evaluate_params(browser, expression, asked);
        let (reply, session) = self.call(context, browser, "Runtime.evaluate", &params)?;
        let (mut reply, session) = match self.handle_to_await(asked, &reply) {
            Some(handle) => {
                let params = self.await_params(browser, &handle);
                self.call(context, browser, "Runtime.callFunctionOn", &params)?
            }
            None => (reply, session),
        };
        match take_map(&mut reply, "exceptionDetails") {
            Some(details) => Err(exception(context, browser, &session, details)?.into()),
            None => self.told(context, reply),
        }
    }

    fn evaluate_params(&self, browser: &Browser, expression: &str, asked: Asked) -> String {
        let mut params = String::with_capacity(expression.len() + 160);
        params.push_str("{\"expression\":");
        push_json_string(&mut params, expression);
        match asked {
            Asked::Value => {}
            Asked::Awaited => params.push_str(",\"awaitPromise\":true"),
            Asked::Repl => params.push_str(",\"replMode\":true"),
        }
        // By value a promise would be an empty object: nothing would tell that it is one.
        let form = if self.is_deferred(asked) { "" } else { self.form() };
        close(params, browser, form)
    }

    /// Awaits what a handle stands for and serialises what comes of it, in one round trip; `Runtime.awaitPromise` cannot
    /// do the second.
    fn await_params(&self, browser: &Browser, handle: &str) -> String {
        let mut params = String::from("{\"functionDeclaration\":\"function(){return this}\",\"objectId\":");
        push_json_string(&mut params, handle);
        params.push_str(",\"awaitPromise\":true");
        close(params, browser, self.form())
    }

    /// How the value is to come.
    fn form(&self) -> &'static str {
        match self.by_value {
            true => ",\"returnByValue\":true",
            false => ",\"serializationOptions\":{\"serialization\":\"deep\"}",
        }
    }

    /// Whether the value of an object comes with a second command.
    fn is_deferred(&self, asked: Asked) -> bool {
        self.by_value && self.await_promise && asked == Asked::Repl
    }

    /// The handle of what came back without having been awaited, and has to be.
    fn handle_to_await(&self, asked: Asked, reply: &Map) -> Option<String> {
        if !self.await_promise || asked == Asked::Awaited {
            return None;
        }
        let result = reply.get("result")?.as_map_ref().ok()?;
        let text = |name: &str| result.get(name)?.as_immutable_string_ref().ok().map(|text| text.to_string());
        let waits = self.is_deferred(asked) || text("subtype").is_some_and(|subtype| subtype == "promise");
        text("objectId").filter(|_| waits)
    }

    /// Sends one of the two commands, and tells also which session answered; a deadline is looked into before it is told.
    fn call(
        &self,
        context: &Context,
        browser: &Browser,
        method: &str,
        params: &str,
    ) -> Result<(Map, SessionId), Failure> {
        let deadline = context.until(self.within);
        let send = |session: &SessionId| {
            let outcome = browser.try_call(&Call { method, params, session: Some(session) }, deadline);
            outcome.map(|answer| (answer, session.clone())).map_err(|error| (error, session.clone()))
        };
        let outcome = match &self.to {
            Target::Session(session) => send(session),
            Target::Page(page) => follow(browser, page, deadline, send),
        };
        match outcome {
            Ok((answer, session)) => {
                let reply = map(&answer)?;
                if holds_handle(&reply) {
                    browser.holds_handles(&session);
                }
                Ok((reply, session))
            }
            Err((error @ CallError::NoReply { .. }, session)) => Err(self.overdue(context, browser, &session, error)),
            Err((error @ CallError::Cancelled, session)) => {
                leave(&Uncounted::new(|| browser.caller.uncancelled()), &session);
                Err(failure(context, error))
            }
            Err((error, _)) => Err(self.refused(context, error)),
        }
    }

    /// What a getter that throws does to the browser is a defect of Chromium's, and tells nothing of the getter.
    fn refused(&self, context: &Context, error: CallError) -> Failure {
        let hint = match &error {
            CallError::PageCrashed { .. } if !self.by_value => Some(GETTER_CRASHES),
            CallError::Refused { code: INTERNAL_ERROR, .. } => Some(GETTER_FAILS),
            _ => None,
        };
        match (failure(context, error), hint) {
            (Failure::Thrown(thrown), Some(hint)) => thrown.hint(hint).into(),
            (failure, _) => failure,
        }
    }

    /// The deadline passed: is the page busy, or does it merely wait?
    fn overdue(&self, context: &Context, browser: &Browser, session: &SessionId, error: CallError) -> Failure {
        match answers(&browser.caller, session, PROBE_WITHIN) {
            Ok(true) if context.is_late() => failure(context, error),
            Ok(true) => {
                let message =
                    format!("js: no value within {}; the page is not busy, so a promise is pending", self.waited());
                ended(FaultCode::Timeout, message, "`#{timeout_ms: …}` waits longer")
            }
            Ok(false) => match browser.caller.dialog_near(session) {
                // Code that waits for an answer is not endless.
                Some((target, dialog)) if !context.is_late() => behind(&target, &dialog),
                Some(_) => failure(context, error),
                None => self.end_code(context, browser, session, error),
            },
            Err(other) => failure(context, other),
        }
    }

    /// Ends what runs in a busy page.
    fn end_code(&self, context: &Context, browser: &Browser, session: &SessionId, error: CallError) -> Failure {
        terminate(&browser.caller, session);
        if context.is_late() {
            return failure(context, error);
        }
        match answers(&browser.caller, session, RECOVERY_WITHIN) {
            Ok(true) => {
                let message = format!("js: the code was still running after {}, and was ended", self.waited());
                ended(FaultCode::Timeout, message, "`#{timeout_ms: …}` lets it run longer")
            }
            Ok(false) => {
                let message =
                    format!("js: the page does not respond, also after its code was ended ({})", self.waited());
                ended(FaultCode::PageUnresponsive, message, "`Page.navigate` elsewhere, or `Target.closeTarget`")
            }
            Err(other) => failure(context, other),
        }
    }

    fn waited(&self) -> String {
        format!("{} ms", self.within.as_millis())
    }

    fn told(&self, context: &Context, mut reply: Map) -> Result<Dynamic, Failure> {
        let remote = take_map(&mut reply, "result").unwrap_or_default();
        let told = match self.by_value {
            true => deep::plain(remote).map_err(Undecoded::from),
            false => deep::decode(remote, &|| context.must_end()),
        };
        told.map_err(|undecoded| match undecoded {
            Undecoded::Untold(untold) => cannot_tell(&untold).into(),
            Undecoded::Ended(end) => end.into(),
        })
    }
}

/// Ends the parameters of both commands.
fn close(mut params: String, browser: &Browser, form: &str) -> String {
    // Writing to a `String` cannot fail.
    let _ = write!(params, ",\"objectGroup\":\"{}\"{form}}}", browser.object_group);
    params
}

type Sent<T> = Result<(T, SessionId), (CallError, SessionId)>;

/// Sends to a page, once more where its session proved to be gone.
fn follow<T>(browser: &Browser, page: &Page, deadline: Instant, send: impl Fn(&SessionId) -> Sent<T>) -> Sent<T> {
    let failed = std::cell::RefCell::new(page.session.clone());
    let outcome = browser.on_page(page, deadline, |session| {
        send(session).map_err(|(error, session)| {
            failed.replace(session);
            error
        })
    });
    outcome.map_err(|error| (error, failed.into_inner()))
}

/// Whether the page answers what it answers at once unless it is busy.
fn answers(caller: &Caller, session: &SessionId, within: Duration) -> Result<bool, CallError> {
    let probe = Call { method: "Runtime.evaluate", params: "{\"expression\":\"0\"}", session: Some(session) };
    match uncounted(|| caller.call(&probe, Instant::now() + within).map(drop)) {
        Ok(()) => Ok(true),
        Err(CallError::NoReply { .. } | CallError::NotWritten { .. }) => Ok(false),
        Err(other) => Err(other),
    }
}

/// Ends the code that runs on a session. Whether it helped is seen by asking again: the reply may never come.
fn terminate(caller: &Caller, session: &SessionId) {
    // A connection that is gone has no code to end.
    let _ = caller.post(&Call { method: "Runtime.terminateExecution", params: "{}", session: Some(session) });
}

/// A script that is cancelled in the middle of an evaluation leaves no endless loop to the next one.
fn leave(caller: &Caller, session: &SessionId) {
    if caller.dialog_near(session).is_none() && matches!(answers(caller, session, PROBE_WITHIN), Ok(false)) {
        terminate(caller, session);
    }
}

fn behind(target: &TargetId, Dialog { kind, message }: &Dialog) -> Failure {
    let answer = format!("cdp(\"Page.handleJavaScriptDialog\", #{{accept: true}}, ensure_page(\"{target}\"))");
    ended(
        FaultCode::DialogOpen,
        format!("js: an open dialog holds the page up: {kind} {message:?}"),
        &format!("answer it: {answer}"),
    )
}

fn ended(code: FaultCode, message: String, hint: &str) -> Failure {
    Thrown::new(code, message).hint(hint).into()
}

/// Whether the source has a word that needs `replMode`, as a word of its own.
fn has_repl_word(expression: &str) -> bool {
    let is_part = |character: char| character.is_alphanumeric() || character == '_' || character == '$';
    expression.split(|character| !is_part(character)).any(|word| REPL_WORDS.contains(&word))
}

fn holds_handle(reply: &Map) -> bool {
    let has = |name: &str, inner: &str| {
        let outer = reply.get(name).and_then(|outer| outer.as_map_ref().ok().map(|map| map.contains_key(inner)));
        outer.unwrap_or(false)
    };
    has("result", "objectId") || has("exceptionDetails", "exception")
}

/// What the page threw, with its place and its stack.
fn exception(context: &Context, browser: &Browser, session: &SessionId, mut details: Map) -> Result<Thrown, Failure> {
    let mut exception = take_map(&mut details, "exception").unwrap_or_default();
    let description = take_text(&mut exception, "description").unwrap_or_default();
    let is_error = has_text(&exception, "subtype", "error");
    let thrown = match is_error {
        true => description.lines().next().unwrap_or_default().to_owned(),
        false => {
            let said = take_text(&mut details, "text").unwrap_or_else(|| "Uncaught".to_owned());
            format!("{said} {}", no_error(context, browser, session, exception, &description)?).trim_end().to_owned()
        }
    };
    let place = |name: &str| details.get(name).and_then(|number| number.as_int().ok()).map(|number| number + 1);
    let (line, column) = (place("lineNumber").unwrap_or(1), place("columnNumber").unwrap_or(1));
    let mut error = Thrown::new(FaultCode::JsError, thrown).with("line", line).with("column", column);
    let stack = Some(description).filter(|text| is_error && text.contains('\n'));
    error = error.with("stack", stack.unwrap_or_else(|| format!("at line {line}, column {column} of the expression")));
    Ok(match take_text(&mut details, "url").filter(|url| !url.is_empty()) {
        Some(url) => error.with("url", url),
        None => error,
    })
}

/// A thrown value that is no error, in a line: `5`, `null`, `{"code":5}`.
fn no_error(
    context: &Context,
    browser: &Browser,
    session: &SessionId,
    mut exception: Map,
    description: &str,
) -> Result<String, Failure> {
    if let Some(value) = exception.remove("value") {
        return Ok(primitive(&value));
    }
    let is_plain = !exception.contains_key("subtype") || has_text(&exception, "subtype", "array");
    if !is_plain || !has_text(&exception, "type", "object") {
        let kind = take_text(&mut exception, "type").unwrap_or_default();
        let first_line = description.lines().next().map(str::to_owned);
        return Ok(first_line.unwrap_or(kind));
    }
    let told = match take_text(&mut exception, "objectId") {
        Some(handle) => fields(context, browser, session, &handle)?,
        None => None,
    };
    // What has its fields from its class shows none of them as JSON.
    let fields = told.filter(|fields| fields != "{}").or_else(|| preview(&mut exception)).unwrap_or_default();
    Ok(match take_text(&mut exception, "className").unwrap_or_default().as_str() {
        "Object" | "Array" => fields,
        class => format!("{class} {fields}"),
    })
}

fn primitive(value: &Dynamic) -> String {
    match value.to_string() {
        _ if value.is_unit() => "null".to_owned(),
        text if text.is_empty() => "\"\"".to_owned(),
        text => text,
    }
}

/// The fields of a thrown object as JSON, in a round trip of their own. `None` where they cannot be told like that.
fn fields(context: &Context, browser: &Browser, session: &SessionId, handle: &str) -> Result<Option<String>, Failure> {
    let mut params = String::from("{\"functionDeclaration\":");
    push_json_string(&mut params, FIELDS);
    params.push_str(",\"objectId\":");
    push_json_string(&mut params, handle);
    let params = close(params, browser, ",\"returnByValue\":true");
    let call = Call { method: "Runtime.callFunctionOn", params: &params, session: Some(session) };
    match browser.try_call(&call, context.until(FIELDS_WITHIN)) {
        Ok(answer) => {
            let mut reply = map(&answer)?;
            Ok(take_map(&mut reply, "result").and_then(|mut result| take_text(&mut result, "value")))
        }
        Err(CallError::NoReply { .. } | CallError::Cancelled) => {
            leave(&Uncounted::new(|| browser.caller.uncancelled()), session);
            Ok(None)
        }
        // The error that the page threw says more than this one.
        Err(_) => Ok(None),
    }
}

/// The fields of an object as far as the browser tells them unasked: the first few, shortened, and no getter called.
fn preview(exception: &mut Map) -> Option<String> {
    let mut preview = take_map(exception, "preview")?;
    let fields = preview.remove("properties")?.into_array().ok()?.into_iter().filter_map(|field| {
        let mut field = field.try_cast::<Map>()?;
        let name = take_text(&mut field, "name")?;
        let value = take_text(&mut field, "value").unwrap_or_default();
        Some(match take_text(&mut field, "type")?.as_str() {
            "string" => format!("{name:?}:{value:?}"),
            "accessor" | "function" => format!("{name:?}:…"),
            _ => format!("{name:?}:{value}"),
        })
    });
    let mut fields: Vec<_> = fields.collect();
    if preview.get("overflow").is_some_and(|overflow| overflow.as_bool() == Ok(true)) {
        fields.push("…".to_owned());
    }
    Some(format!("{{{}}}", fields.join(",")))
}

const ITERATED: &str = "`[...x]` makes an array of all that it gives";

fn cannot_tell(untold: &Untold) -> Thrown {
    let error = Thrown::new(FaultCode::JsError, untold.to_string());
    if untold.by_value_helps {
        return error.hint("`js(expression, #{by_value: true})` gives what plain JSON has of it");
    }
    match untold.class.as_str() {
        "function" | "Function" => error.hint("call it in the expression: `(() => …)()`"),
        "promise" | "Promise" => error.hint("`await` it in the expression"),
        "BigInt" | "Boolean" | "Number" | "String" => error.hint("`.valueOf()` gives the value in it"),
        "generator" | "Generator" => error.hint(ITERATED),
        class if class.ends_with("Iterator") => error.hint(ITERATED),
        _ => error.hint("pick what you need in the expression: `({title: document.title})`"),
    }
}

fn has_text(map: &Map, name: &str, text: &str) -> bool {
    map.get(name).and_then(|value| value.as_immutable_string_ref().ok()).is_some_and(|value| value.as_str() == text)
}

fn take_map(map: &mut Map, name: &str) -> Option<Map> {
    map.remove(name)?.try_cast::<Map>()
}

fn take_text(map: &mut Map, name: &str) -> Option<String> {
    map.remove(name)?.into_string().ok()
}

fn push_json_string(out: &mut String, text: &str) {
    // A string always has a JSON form.
    out.push_str(&serde_json::to_string(text).unwrap_or_default());
}
