//! `sleep`, which a cancel wakes.

use std::thread;
use std::time::{Duration, Instant};

use rhai::{EvalAltResult, Module, NativeCallContext};

use crate::cancel::CancelReason;
use crate::script::context::{Context, with_context};
use crate::script::error::{End, Failure, Thrown};
use crate::wire::FaultCode;

type Native<T> = Result<T, Box<EvalAltResult>>;

/// The longest sleep, in seconds: a day. More is a mistake in the unit.
const LONGEST_S: f64 = 86_400.0;

pub fn register(module: &mut Module) {
    module.set_native_fn("sleep", |call: NativeCallContext, seconds: i64| -> Native<()> {
        with_context(&call, |context| sleep(context, seconds as f64))
    });
    module.set_native_fn("sleep", |call: NativeCallContext, seconds: f64| -> Native<()> {
        with_context(&call, |context| sleep(context, seconds))
    });
}

fn sleep(context: &Context, seconds: f64) -> Result<(), Failure> {
    if !(0.0..=LONGEST_S).contains(&seconds) {
        let message = format!("sleep takes 0 to 86400 seconds, not {seconds:?}");
        return Err(Thrown::new(FaultCode::BadParams, message).into());
    }
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    park(context, context.deadline.map_or(end, |deadline| deadline.min(end)))?;
    if Instant::now() < end {
        return Err(End::from(CancelReason::Deadline).into());
    }
    Ok(())
}

/// Waits until `end`, or ends the script when it is cancelled before.
fn park(context: &Context, end: Instant) -> Result<(), Failure> {
    let sleeper = thread::current();
    let _waker = context.cancel.on_cancel(move || sleeper.unpark());
    loop {
        if let Some(reason) = context.cancel.reason() {
            return Err(End::from(reason).into());
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        thread::park_timeout(left);
    }
}
