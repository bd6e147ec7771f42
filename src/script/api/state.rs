//! `state_get`, `state_set`, `state_keys`: what one script leaves to the next.

use rhai::{Array, Dynamic, EvalAltResult, Module, NativeCallContext};

use super::args::text;
use crate::script::context::{Context, with_context};
use crate::script::error::{Failure, Thrown};
use crate::script::value::{Form, Refusal, parse, write};
use crate::wire::FaultCode;

type Native<T> = Result<T, Box<EvalAltResult>>;

/// The longest name, in bytes.
const NAME_LIMIT: usize = 1024;

pub fn register(module: &mut Module) {
    module.set_native_fn("state_get", |call: NativeCallContext, name: Dynamic| -> Native<Dynamic> {
        with_context(&call, |context| get(context, &name))
    });
    module.set_native_fn("state_set", |call: NativeCallContext, name: Dynamic, value: Dynamic| -> Native<()> {
        with_context(&call, |context| set(context, &name, &value))
    });
    module.set_native_fn("state_keys", |call: NativeCallContext| -> Native<Array> {
        with_context(&call, |context| Ok(context.state.names().into_iter().map(Dynamic::from).collect()))
    });
}

fn get(context: &Context, name: &Dynamic) -> Result<Dynamic, Failure> {
    match context.state.get(&text("state_get: the name", name)?) {
        Some(json) => Ok(parse(&json)?),
        None => Ok(Dynamic::UNIT),
    }
}

/// `()` is what an unknown name gives, so setting it forgets the name.
fn set(context: &Context, name: &Dynamic, value: &Dynamic) -> Result<(), Failure> {
    let name = text("state_set: the name", name)?;
    if name.len() > NAME_LIMIT {
        let message = format!("state_set: the name has {} bytes; the most is {NAME_LIMIT}", name.len());
        return Err(Thrown::new(FaultCode::Limit, message).into());
    }
    if value.is_unit() {
        context.state.remove(&name);
        return Ok(());
    }
    let json = write(value, Form::Exact).map_err(|refusal| unsayable(&name, refusal))?;
    context.state.set(&name, &json).map_err(|full| {
        Thrown::new(FaultCode::Limit, format!("state_set: no room for `{name}`: {full}"))
            .hint("let go of what is done: `state_set(name, ())`; large data belongs in a file: `write_text`")
            .into()
    })
}

fn unsayable(name: &str, refusal: Refusal) -> Failure {
    match refusal {
        Refusal::Unsayable { .. } => {
            Thrown::new(FaultCode::BadParams, format!("state_set: `{name}`: {refusal}")).into()
        }
        other => other.into(),
    }
}
