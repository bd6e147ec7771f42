//! `print`, `debug`, `exit`, and the texts of values wherever a script makes one.

use rhai::{Array, Dynamic, EvalAltResult, FnPtr, ImmutableString, Map, Module, NativeCallContext};

use crate::script::context::with_context;
use crate::script::value::{Form, show, write};
use crate::wire::Stream;

type Native<T> = Result<T, Box<EvalAltResult>>;

/// Registers for each type that the language prints by itself: an exact type is found before any.
macro_rules! for_printed_types {
    ($module:ident, $register:ident) => {
        $register::<ImmutableString>($module);
        $register::<char>($module);
        $register::<bool>($module);
        $register::<i64>($module);
        $register::<f64>($module);
        $register::<()>($module);
        $register::<FnPtr>($module);
        $register::<Array>($module);
        $register::<Map>($module);
        $register::<Dynamic>($module);
    };
}

pub fn register(module: &mut Module) {
    for_printed_types!(module, printed);
    texts::<Array>(module);
    texts::<Map>(module);
    module.set_native_fn("exit", |call: NativeCallContext| exit(&call, Dynamic::UNIT));
    module.set_native_fn("exit", |call: NativeCallContext, value: Dynamic| exit(&call, value));
    module.set_native_fn("print", |call: NativeCallContext| say(&call, Stream::Stdout, Dynamic::from("")));
    module.set_native_fn("debug", |call: NativeCallContext| say(&call, Stream::Stderr, Dynamic::from("")));
}

fn printed<T: rhai::Variant + Clone>(module: &mut Module) {
    module.set_native_fn("print", |call: NativeCallContext, value: T| say(&call, Stream::Stdout, Dynamic::from(value)));
    module.set_native_fn("debug", |call: NativeCallContext, value: T| say(&call, Stream::Stderr, Dynamic::from(value)));
}

/// `to_string` and the like: JSON, as `print` has it, and safe at any depth.
fn texts<T: rhai::Variant + Clone>(module: &mut Module) {
    for name in ["to_string", "to_debug"] {
        module.set_native_fn(name, |call: NativeCallContext, value: T| -> Native<String> {
            with_context(&call, |_| Ok(show(&Dynamic::from(value))?))
        });
    }
    module.set_native_fn("to_json", |call: NativeCallContext, value: T| -> Native<String> {
        with_context(&call, |_| Ok(write(&Dynamic::from(value), Form::Json)?))
    });
}

/// Ends the script with a value, which is shown also where a `;` follows.
fn exit(call: &NativeCallContext, value: Dynamic) -> Native<()> {
    with_context(call, |context| {
        context.exit();
        Ok(())
    })?;
    Err(EvalAltResult::Exit(value, call.call_position()).into())
}

fn say(call: &NativeCallContext, stream: Stream, value: Dynamic) -> Native<()> {
    with_context(call, |context| context.say(stream, show(&value)?))
}
