//! JSON and base64, for what is not a CDP value already.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rhai::{Blob, Dynamic, EvalAltResult, ImmutableString, Module, NativeCallContext};

use super::args::{text, wrong};
use crate::script::context::with_context;
use crate::script::error::{End, Failure, Thrown};
use crate::script::memory;
use crate::script::value::{Form, parse, write};
use crate::wire::FaultCode;

type Native<T> = Result<T, Box<EvalAltResult>>;

pub fn register(module: &mut Module) {
    for name in ["json_parse", "parse_json"] {
        module.set_native_fn(name, |call: NativeCallContext, json: ImmutableString| -> Native<Dynamic> {
            with_context(&call, |_| Ok(parse(&json)?))
        });
    }
    module.set_native_fn("json_stringify", |call: NativeCallContext, value: Dynamic| -> Native<String> {
        with_context(&call, |_| Ok(write(&value, Form::Exact)?))
    });
    module.set_native_fn("base64_encode", |call: NativeCallContext, value: Dynamic| -> Native<String> {
        with_context(&call, |_| encode(&value))
    });
    module.set_native_fn("base64_decode", |call: NativeCallContext, value: Dynamic| -> Native<Blob> {
        with_context(&call, |_| decode(&value))
    });
}

fn encode(value: &Dynamic) -> Result<String, Failure> {
    if let Ok(blob) = value.as_blob_ref() {
        return encode_bytes(&blob);
    }
    match value.as_immutable_string_ref() {
        Ok(text) => encode_bytes(text.as_bytes()),
        Err(_) => Err(wrong("base64_encode: the value", "a string or a blob", value)),
    }
}

fn encode_bytes(bytes: &[u8]) -> Result<String, Failure> {
    if !memory::has_room(bytes.len() / 3 * 4 + 4) {
        return Err(End::Memory.into());
    }
    Ok(BASE64.encode(bytes))
}

fn decode(value: &Dynamic) -> Result<Blob, Failure> {
    let encoded = text("base64_decode: the value", value)?;
    if !memory::has_room(encoded.len()) {
        return Err(End::Memory.into());
    }
    BASE64
        .decode(encoded.as_bytes())
        .map_err(|error| Thrown::new(FaultCode::BadParams, format!("not base64: {error}")).into())
}
