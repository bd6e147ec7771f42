//! `secret`: a value to use and not to see.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Instant;

use rhai::{Dynamic, EvalAltResult, ImmutableString, Module, NativeCallContext};

use super::args::text;
use crate::cancel::CancelReason;
use crate::script::context::{Context, with_context};
use crate::script::error::{End, Failure, Thrown};
use crate::script::memory::{self, uncounted};
use crate::script::secret::Veiled;
use crate::wire::{Fault, FaultCode, Granted};

type Native<T> = Result<T, Box<EvalAltResult>>;

pub fn register(module: &mut Module) {
    module.set_custom_type::<Veiled>("secret");
    module.set_native_fn("secret", |call: NativeCallContext, name: Dynamic| -> Native<Veiled> {
        with_context(&call, |context| secret(context, &name))
    });
    module.set_native_fn("+", |call: NativeCallContext, left: Veiled, right: Veiled| joined(&call, left, right));
    module.set_native_fn("+", |call: NativeCallContext, left: Veiled, right: ImmutableString| {
        joined(&call, left, right.into())
    });
    module.set_native_fn("+", |call: NativeCallContext, left: ImmutableString, right: Veiled| {
        joined(&call, left.into(), right)
    });
    // The language's own would append what is printed of the secret.
    module.set_native_fn("+=", |call: NativeCallContext, _: &mut ImmutableString, _: Veiled| -> Native<()> {
        with_context(&call, |_| Err(text_stays_text()))
    });
    for name in ["to_string", "to_debug"] {
        module.set_native_fn(name, |value: Veiled| -> Native<String> { Ok(value.to_string()) });
    }
}

fn text_stays_text() -> Failure {
    Thrown::new(FaultCode::BadParams, "a string cannot take a secret into itself: it could be read there")
        .hint("`text = text + secret(…)` makes another opaque value")
        .into()
}

fn joined(call: &NativeCallContext, left: Veiled, right: Veiled) -> Native<Veiled> {
    with_context(call, |_| {
        if !memory::has_room(left.size() + right.size()) {
            return Err(End::Memory.into());
        }
        Ok(left.join(right))
    })
}

fn secret(context: &Context, name: &Dynamic) -> Result<Veiled, Failure> {
    let name = text("secret: the name", name)?;
    // The answer is made on another thread, so it stays out of this one's memory count.
    let heard = uncounted(|| ask(context, &name));
    match heard {
        Heard::Granted(granted) => Ok(Veiled::new(&name, granted)),
        Heard::Refused(fault) => {
            let thrown = Thrown::new(fault.code, fault.message);
            Err(fault.hint.into_iter().fold(thrown, Thrown::hint).into())
        }
        Heard::End(reason) => Err(End::from(reason).into()),
    }
}

/// What a wait for a secret came to.
enum Heard {
    Granted(Granted),
    Refused(Fault),
    End(CancelReason),
}

/// Waits for the answer, the cancel or the deadline: whichever comes first is one message in one channel.
fn ask(context: &Context, name: &str) -> Heard {
    let (tell, told) = mpsc::channel();
    let cancelled = (context.cancel.clone(), tell.clone());
    let _wakes = context.cancel.on_cancel(move || {
        let reason = cancelled.0.reason().unwrap_or(CancelReason::ClientGone);
        // A script that has its answer no longer listens.
        let _ = cancelled.1.send(Heard::End(reason));
    });
    let answer = move |answer| {
        let heard = match answer {
            Ok(granted) => Heard::Granted(granted),
            Err(fault) => Heard::Refused(fault),
        };
        // A script that was ended meanwhile no longer listens.
        let _ = tell.send(heard);
    };
    context.secrets.ask(name, Box::new(answer));
    next(&told, context.deadline).unwrap_or(Heard::End(CancelReason::Deadline))
}

fn next(told: &Receiver<Heard>, deadline: Option<Instant>) -> Result<Heard, RecvTimeoutError> {
    match deadline {
        Some(deadline) => told.recv_timeout(deadline.saturating_duration_since(Instant::now())),
        None => told.recv().map_err(|_| RecvTimeoutError::Disconnected),
    }
}
