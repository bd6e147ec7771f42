//! `cdp` and `cdp_all`: any command, its reply unchanged.

use std::time::{Duration, Instant};

use rhai::{Array, Dynamic, EvalAltResult, ImmutableString, Map, Module, NativeCallContext, Position};

use super::args::{DEFAULT_TIMEOUT, Options, text, wrong};
use crate::cdp::{Answer, Call, CallError, Page};
use crate::ids::SessionId;
use crate::script::browser::{Browser, failure, map, value};
use crate::script::context::{Context, with_context};
use crate::script::error::{Failure, Thrown};
use crate::script::memory::Uncounted;
use crate::script::protocol;
use crate::script::value::{Bound, Params, Refusal, write_params};
use crate::wire::FaultCode;

type Native<T> = Result<T, Box<EvalAltResult>>;

pub fn register(module: &mut Module) {
    module.set_native_fn("cdp", |call: NativeCallContext, method: Dynamic| {
        cdp(&call, method, Dynamic::UNIT, Dynamic::UNIT, Dynamic::UNIT)
    });
    module.set_native_fn("cdp", |call: NativeCallContext, method: Dynamic, params: Dynamic| {
        cdp(&call, method, params, Dynamic::UNIT, Dynamic::UNIT)
    });
    module.set_native_fn("cdp", |call: NativeCallContext, method: Dynamic, params: Dynamic, session: Dynamic| {
        cdp(&call, method, params, session, Dynamic::UNIT)
    });
    module.set_native_fn(
        "cdp",
        |call: NativeCallContext, method: Dynamic, params: Dynamic, session: Dynamic, options: Dynamic| {
            cdp(&call, method, params, session, options)
        },
    );
    module.set_native_fn("cdp_all", |call: NativeCallContext, calls: Dynamic| cdp_all(&call, calls, Dynamic::UNIT));
    module.set_native_fn("cdp_all", |call: NativeCallContext, calls: Dynamic, options: Dynamic| {
        cdp_all(&call, calls, options)
    });
}

fn cdp(
    call: &NativeCallContext,
    method: Dynamic,
    params: Dynamic,
    session: Dynamic,
    options: Dynamic,
) -> Native<Dynamic> {
    with_context(call, |context| {
        let command = Command::new(context, &method, &params, &session)?;
        let within = timeout("cdp", options)?;
        command.send(context, context.browser()?, within)
    })
}

/// The one option of both functions.
fn timeout(of: &'static str, options: Dynamic) -> Result<Duration, Failure> {
    if options.is_unit() {
        return Ok(DEFAULT_TIMEOUT);
    }
    let mut options = Options::new(of, options)?;
    let timeout = options.timeout()?;
    options.finish()?;
    Ok(timeout)
}

/// Where a command goes.
#[derive(Debug, Clone, PartialEq)]
pub enum Destination {
    /// The browser target.
    Browser,
    /// A session that the script named: it is used as it is.
    Session(SessionId),
    /// A page of `ensure_page`: it is followed to a new session of the same target.
    Page(Page),
}

impl Destination {
    /// Reads a `session` argument.
    ///
    /// # Errors
    /// `bad_params` for anything but a session id, a page or `()`.
    pub fn new(session: &Dynamic) -> Result<Self, Failure> {
        if session.is_unit() {
            return Ok(Self::Browser);
        }
        if let Ok(id) = session.as_immutable_string_ref() {
            return Ok(Self::Session(id.as_str().into()));
        }
        let expected = "a session id, a page of `ensure_page()`, or `()` for the browser";
        let map = session.as_map_ref().map_err(|_| wrong("the session", expected, session))?;
        let field = |name: &str| {
            let value = map.get(name)?.as_immutable_string_ref().ok()?;
            Some(value.clone())
        };
        match (field("target_id"), field("session_id").or_else(|| field("sessionId"))) {
            (Some(target), Some(session)) => {
                Ok(Self::Page(Page { target: target.as_str().into(), session: session.as_str().into() }))
            }
            (None, Some(session)) => Ok(Self::Session(session.as_str().into())),
            (_, None) => {
                let message = format!("the session must be {expected}; this map has no `session_id`");
                Err(Thrown::new(FaultCode::BadParams, message).into())
            }
        }
    }

    /// A page as it is attached now.
    fn present(&self, browser: &Browser) -> Self {
        match self {
            Self::Page(page) => Self::Page(browser.present(page)),
            other => other.clone(),
        }
    }

    fn session(&self) -> Option<&SessionId> {
        match self {
            Self::Browser => None,
            Self::Session(session) => Some(session),
            Self::Page(page) => Some(&page.session),
        }
    }

    /// The origin of the document that the session's page shows now, in the browser's own words; `None` for the browser.
    fn origin(&self, context: &Context, browser: &Browser, within: Duration) -> Result<Option<String>, Failure> {
        // The target's URL would not do: it is that of a navigation under way, while the old page is still there.
        const METHOD: &str = "Page.getFrameTree";
        let answer = match self {
            Self::Browser => return Ok(None),
            Self::Session(session) => {
                browser.call(context, &Call { method: METHOD, params: "{}", session: Some(session) }, within)?
            }
            Self::Page(page) => browser.call_page(context, page, METHOD, "{}", within)?,
        };
        let mut reply = map(&answer)?;
        let frame = reply.remove("frameTree").and_then(|tree| tree.try_cast::<Map>()?.remove("frame"));
        let origin = frame.and_then(|frame| frame.try_cast::<Map>()?.remove("securityOrigin"));
        Ok(Some(origin.and_then(|origin| origin.into_string().ok()).unwrap_or_default()))
    }
}

/// One command, checked.
struct Command {
    method: ImmutableString,
    params: String,
    /// The secrets in the parameters that not every page may see.
    bound: Vec<Bound>,
    to: Destination,
}

impl Command {
    fn new(context: &Context, method: &Dynamic, params: &Dynamic, session: &Dynamic) -> Result<Self, Failure> {
        let method = text("the CDP method", method)?;
        let Params { text, bound } = params_text(&method, params)?;
        let to = Destination::new(session)?;
        // What is refused before it is sent must not be spoken of as sent.
        wonder(context, &method, params);
        context.browser.iter().for_each(|browser| browser.before.sent(&method));
        Ok(Self { method, params: text, bound, to })
    }

    fn send(&self, context: &Context, browser: &Browser, within: Duration) -> Result<Dynamic, Failure> {
        self.check_origin(context, browser, within)?;
        let answer = match &self.to {
            Destination::Page(page) => browser.call_page(context, page, &self.method, &self.params, within)?,
            _ => browser.call(context, &self.as_call(self.to.session()), within)?,
        };
        value(&answer)
    }

    /// Refuses to send a secret to a page of another origin than its own.
    fn check_origin(&self, context: &Context, browser: &Browser, within: Duration) -> Result<(), Failure> {
        if self.bound.is_empty() {
            return Ok(());
        }
        let origin = self.to.origin(context, browser, within)?;
        match self.bound.iter().find(|bound| Some(&bound.origin) != origin.as_ref()) {
            Some(bound) => Err(elsewhere(&self.method, bound, origin.as_deref()).into()),
            None => Ok(()),
        }
    }

    fn as_call<'a>(&'a self, session: Option<&'a SessionId>) -> Call<'a> {
        Call { method: &self.method, params: &self.params, session }
    }
}

/// Warns of a parameter that the command does not have; it is sent all the same.
fn wonder(context: &Context, method: &str, params: &Dynamic) {
    let Ok(params) = params.as_map_ref() else { return };
    if let Some(sentence) = protocol::doubt(method, params.keys().map(|name| name.as_str())) {
        context.warn(sentence);
    }
}

/// The JSON text of a command's parameters.
fn params_text(method: &str, params: &Dynamic) -> Result<Params, Failure> {
    if params.is_unit() {
        return Ok(Params { text: "{}".to_owned(), bound: Vec::new() });
    }
    if !params.is_map() {
        return Err(wrong(&format!("{method}: the params"), "a map `#{…}`", params));
    }
    write_params(params).map_err(|refusal| match refusal {
        Refusal::Unsayable { .. } => {
            let message = format!("{method}: params {refusal}; nothing was sent");
            Thrown::new(FaultCode::BadParams, message).with("method", method.to_owned()).into()
        }
        other => other.into(),
    })
}

fn cdp_all(call: &NativeCallContext, calls: Dynamic, options: Dynamic) -> Native<Array> {
    with_context(call, |context| {
        let commands = commands(context, &calls)?;
        let within = timeout("cdp_all", options)?;
        let deadline = context.until(within);
        let browser = context.browser()?;
        commands.iter().try_for_each(|command| command.check_origin(context, browser, within))?;
        let replies = Uncounted::new(|| send_all(browser, &commands, deadline));
        if let Some(end) = context.must_end() {
            return Err(end.into());
        }
        let outcomes = replies.iter().map(|reply| match reply {
            Ok(answer) => Ok(outcome("result", true, value(answer)?)),
            Err(error) => match failure(context, error.clone()) {
                Failure::Thrown(thrown) => Ok(outcome("error", false, thrown.into_map(Position::NONE).into())),
                ended => Err(ended),
            },
        });
        outcomes.collect()
    })
}

/// Sends all at once; what did not run because its page's session is gone is sent to the same page again.
fn send_all(browser: &Browser, commands: &[Command], deadline: Instant) -> Vec<Result<Answer, CallError>> {
    let present: Vec<_> = commands.iter().map(|command| command.to.present(browser)).collect();
    let calls: Vec<_> = commands.iter().zip(&present).map(|(command, to)| command.as_call(to.session())).collect();
    let mut replies = browser.caller.call_all(&calls, deadline);
    for (command, reply) in commands.iter().zip(&mut replies) {
        if let (Destination::Page(page), Err(CallError::SessionGone { .. })) = (&command.to, &reply) {
            let again = |session: &SessionId| browser.caller.call(&command.as_call(Some(session)), deadline);
            *reply = browser.on_page(page, deadline, again);
        }
    }
    replies
}

fn elsewhere(method: &str, bound: &Bound, origin: Option<&str>) -> Thrown {
    let Bound { name, origin: wanted } = bound;
    let seen = match origin {
        None => "the browser itself".to_owned(),
        // What `about:blank` and its like say of themselves.
        Some("" | "null" | "://") => "a page without an origin".to_owned(),
        Some(origin) => format!("a page of {origin}"),
    };
    let message = format!("{method}: the secret `{name}` is for {wanted} only, not for {seen}; nothing was sent");
    Thrown::new(FaultCode::Denied, message)
        .with("method", method.to_owned())
        .hint("open a page of that origin and give its session; GHOST_BROWSER_SECRETS says which secret goes where")
}

/// Reads `[[method, params, session], …]`; params and session may be left out.
fn commands(context: &Context, calls: &Dynamic) -> Result<Vec<Command>, Failure> {
    let expected = "an array `[[method, params, session], …]`";
    let calls = calls.as_array_ref().map_err(|_| wrong("cdp_all: the calls", expected, calls))?;
    let commands = calls.iter().enumerate().map(|(index, item)| {
        let what = format!("cdp_all: item {index}");
        if item.is_string() {
            return Command::new(context, item, &Dynamic::UNIT, &Dynamic::UNIT);
        }
        let item = item.as_array_ref().map_err(|_| wrong(&what, "an array", item))?;
        match item.as_slice() {
            [method] => Command::new(context, method, &Dynamic::UNIT, &Dynamic::UNIT),
            [method, params] => Command::new(context, method, params, &Dynamic::UNIT),
            [method, params, session] => Command::new(context, method, params, session),
            _ => {
                let message = format!("{what} must have a method, params and session, not {} parts", item.len());
                Err(Thrown::new(FaultCode::BadParams, message).into())
            }
        }
    });
    commands.collect()
}

/// One of several: `#{ok, …}`.
pub fn outcome(name: &str, ok: bool, value: Dynamic) -> Dynamic {
    let mut map = Map::new();
    map.insert("ok".into(), ok.into());
    map.insert(name.into(), value);
    map.into()
}
