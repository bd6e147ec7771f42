//! `==` and `!=` of arrays and maps. The language's own go through the engine once per level, at a cost in
//! stack that a deep value would turn into the end of the process.

use rhai::{Array, Dynamic, EvalAltResult, Map, Module, NativeCallContext};

use crate::script::context::with_context;
use crate::script::error::{Failure, Thrown};
use crate::script::value::DEPTH_LIMIT;
use crate::wire::FaultCode;

type Native<T> = Result<T, Box<EvalAltResult>>;

pub fn register(module: &mut Module) {
    equality::<Array>(module, |a, b| arrays(a, b, 0));
    equality::<Map>(module, |a, b| maps(a, b, 0));
}

fn equality<T: rhai::Variant + Clone>(
    module: &mut Module,
    same: impl Fn(&T, &T) -> Result<bool, Failure> + Copy + Send + Sync + 'static,
) {
    module.set_native_fn("==", move |call: NativeCallContext, a: &mut T, b: T| -> Native<bool> {
        with_context(&call, |_| same(a, &b))
    });
    module.set_native_fn("!=", move |call: NativeCallContext, a: &mut T, b: T| -> Native<bool> {
        with_context(&call, |_| same(a, &b).map(|same| !same))
    });
}

fn arrays(a: &Array, b: &Array, depth: usize) -> Result<bool, Failure> {
    if a.len() != b.len() {
        return Ok(false);
    }
    for (a, b) in a.iter().zip(b) {
        if !values(a, b, depth)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn maps(a: &Map, b: &Map, depth: usize) -> Result<bool, Failure> {
    if a.len() != b.len() {
        return Ok(false);
    }
    for ((key, a), (other, b)) in a.iter().zip(b) {
        if key != other || !values(a, b, depth)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn values(a: &Dynamic, b: &Dynamic, depth: usize) -> Result<bool, Failure> {
    if depth >= DEPTH_LIMIT {
        let message = format!("values nested deeper than {DEPTH_LIMIT} levels cannot be compared");
        return Err(Thrown::new(FaultCode::Limit, message).into());
    }
    if a.is_shared() || b.is_shared() {
        return values(&a.flatten_clone(), &b.flatten_clone(), depth + 1);
    }
    if let (Ok(a), Ok(b)) = (a.as_array_ref(), b.as_array_ref()) {
        return arrays(&a, &b, depth + 1);
    }
    if let (Ok(a), Ok(b)) = (a.as_map_ref(), b.as_map_ref()) {
        return maps(&a, &b, depth + 1);
    }
    Ok(scalars(a, b))
}

fn scalars(a: &Dynamic, b: &Dynamic) -> bool {
    if let (Some(a), Some(b)) = (number(a), number(b)) {
        return match (a, b) {
            (Number::Int(a), Number::Int(b)) => a == b,
            (Number::Int(a), Number::Float(b)) | (Number::Float(b), Number::Int(a)) => a as f64 == b,
            (Number::Float(a), Number::Float(b)) => a == b,
        };
    }
    if let (Ok(a), Ok(b)) = (a.as_immutable_string_ref(), b.as_immutable_string_ref()) {
        return *a == *b;
    }
    if let (Ok(a), Ok(b)) = (a.as_blob_ref(), b.as_blob_ref()) {
        return *a == *b;
    }
    a.type_id() == b.type_id()
        && (a.is_unit()
            || a.as_bool().is_ok_and(|a| Ok(a) == b.as_bool())
            || a.as_char().is_ok_and(|a| Ok(a) == b.as_char()))
}

enum Number {
    Int(i64),
    Float(f64),
}

fn number(value: &Dynamic) -> Option<Number> {
    let integer = value.as_int().map(Number::Int);
    integer.or_else(|_| value.as_float().map(Number::Float)).ok()
}
