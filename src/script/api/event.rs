//! Events: those that came (`drain_events`), the next one (`wait_event`), the one that an act will cause
//! (`expect_event`, which subscribes before the act).

use std::sync::Arc;
use std::time::{Duration, Instant};

use rhai::{Array, Dynamic, EvalAltResult, FnPtr, Map, Module, NativeCallContext};

use super::args::{Options, text, wrong};
use super::cdp::Destination;
use crate::cdp::{CallError, CdpEvent, Subscription};
use crate::ids::SessionId;
use crate::script::browser::{Browser, failure};
use crate::script::context::{Context, with_context};
use crate::script::error::Failure;
use crate::script::memory::{Uncounted, uncounted};
use crate::script::value::parse;

type Native<T> = Result<T, Box<EvalAltResult>>;

pub fn register(module: &mut Module) {
    module.set_native_fn("drain_events", |call: NativeCallContext| -> Native<Array> {
        with_context(&call, |context| drain(context, None))
    });
    module.set_native_fn("drain_events", |call: NativeCallContext, method: Dynamic| -> Native<Array> {
        with_context(&call, |context| {
            let method = text("drain_events: the method", &method)?;
            drain(context, Some(&method))
        })
    });
    module.set_native_fn("wait_event", |call: NativeCallContext, method: Dynamic| {
        expect(&call, "wait_event", &method, Dynamic::UNIT)?.wait(&call)
    });
    module.set_native_fn("wait_event", |call: NativeCallContext, method: Dynamic, options: Dynamic| {
        expect(&call, "wait_event", &method, options)?.wait(&call)
    });
    module.set_native_fn("expect_event", |call: NativeCallContext, method: Dynamic| {
        expect(&call, "expect_event", &method, Dynamic::UNIT)
    });
    module.set_native_fn("expect_event", |call: NativeCallContext, method: Dynamic, options: Dynamic| {
        expect(&call, "expect_event", &method, options)
    });
    module.set_native_fn("wait", |call: NativeCallContext, expected: &mut Expectation| expected.clone().wait(&call));
    module.set_custom_type::<Expectation>("Expectation");
}

fn drain(context: &Context, method: Option<&str>) -> Result<Array, Failure> {
    let browser = context.browser()?;
    let events = Uncounted::new(|| browser.caller.drain(&mut browser.cursor(), method));
    events.iter().map(|event| Ok(Dynamic::from_map(event_map(event)?))).collect()
}

fn event_map(event: &CdpEvent) -> Result<Map, Failure> {
    let session = event.session.as_ref();
    let mut map = Map::new();
    map.insert("method".into(), event.method.as_str().into());
    map.insert("params".into(), parse(event.params())?);
    map.insert("session_id".into(), session.map_or(Dynamic::UNIT, |id| id.as_str().into()));
    Ok(map)
}

/// A wait that is already listening. Copies are the same wait.
#[derive(Clone)]
struct Expectation {
    subscription: Arc<Subscription>,
    matches: Option<FnPtr>,
    within: Duration,
}

fn expect(call: &NativeCallContext, of: &'static str, method: &Dynamic, options: Dynamic) -> Native<Expectation> {
    with_context(call, |context| {
        let method = text("the event", method)?;
        let mut options = Options::new(of, options)?;
        let session = session(context, options.value("session"))?;
        let matches = options.function("where")?;
        let within = options.timeout()?;
        options.finish()?;
        let subscribe = || context.browser().map(|browser| browser.caller.subscribe(&method, session));
        let subscription = Arc::new(uncounted(subscribe)?);
        Ok(Expectation { subscription, matches, within })
    })
}

/// The session whose events count; without one, any.
fn session(context: &Context, given: Option<Dynamic>) -> Result<Option<SessionId>, Failure> {
    match given.as_ref().map(Destination::new).transpose()? {
        None | Some(Destination::Browser) => Ok(None),
        Some(Destination::Session(session)) => Ok(Some(session)),
        Some(Destination::Page(page)) => Ok(Some(context.browser()?.present(&page).session)),
    }
}

impl Expectation {
    /// The next event that matches; the time counts from here.
    fn wait(self, call: &NativeCallContext) -> Native<Map> {
        let started = Instant::now();
        let deadline = with_context(call, |context| Ok(context.until(self.within)))?;
        loop {
            let event = with_context(call, |context| self.next(context, context.browser()?, deadline, started))?;
            if self.is_wanted(call, &event)? {
                return Ok(event);
            }
        }
    }

    fn next(&self, context: &Context, browser: &Browser, deadline: Instant, started: Instant) -> Result<Map, Failure> {
        let event = uncounted(|| browser.caller.next(&self.subscription, deadline));
        let event = Uncounted::new(|| event);
        match &*event {
            Ok(event) => event_map(event),
            Err(CallError::TimedOut { what, .. }) => {
                let waited = started.elapsed();
                Err(failure(context, CallError::TimedOut { what: what.clone(), waited }))
            }
            Err(error) => Err(failure(context, error.clone())),
        }
    }

    /// `where` runs on the script's thread and may call anything; what it throws ends the wait.
    fn is_wanted(&self, call: &NativeCallContext, event: &Map) -> Native<bool> {
        let Some(matches) = &self.matches else { return Ok(true) };
        let params = event.get("params").cloned().unwrap_or_default();
        let answer = matches.call_within_context::<Dynamic>(call, (params,))?;
        let no_answer = |_| wrong("what `where` gives", "true or false", &answer).at(call.call_position());
        answer.as_bool().map_err(no_answer)
    }
}
