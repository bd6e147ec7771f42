//! Just enough JavaScript for the tests: literals, `+`, a few properties of the page, an object of these.

use serde_json::{Map, Value, json};

/// What a page knows about itself.
pub(super) struct Page<'a> {
    pub(super) url: &'a str,
    pub(super) title: &'a str,
}

/// The `result` of `Runtime.evaluate` for `params`: exact for what is understood, a `ReferenceError` for the rest.
pub(super) fn evaluate(params: &Value, page: &Page<'_>) -> Value {
    let source = params["expression"].as_str().unwrap_or_default();
    match value(source, page) {
        Some(value) => json!({"result": remote(&value)}),
        None => reference_error(source),
    }
}

fn value(source: &str, page: &Page<'_>) -> Option<Value> {
    let source = bare(source);
    match source {
        "document.title" => return Some(json!(page.title)),
        "location.href" => return Some(json!(page.url)),
        "innerWidth" | "window.innerWidth" => return Some(json!(800)),
        "innerHeight" | "window.innerHeight" => return Some(json!(600)),
        _ => {}
    }
    if let Ok(literal) = serde_json::from_str(source) {
        return Some(literal);
    }
    object(source, page).or_else(|| sum(source, page))
}

/// Without a final semicolon and outer parentheses.
fn bare(source: &str) -> &str {
    let source = source.trim().trim_end_matches(';').trim();
    let inner = source.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
    inner.map_or(source, bare)
}

fn object(source: &str, page: &Page<'_>) -> Option<Value> {
    let inner = source.strip_prefix('{')?.strip_suffix('}')?;
    let fields = inner.split(',').map(|field| {
        let (key, of) = field.split_once(':')?;
        Some((key.trim().trim_matches('"').to_owned(), value(of, page)?))
    });
    fields.collect::<Option<Map<_, _>>>().map(Value::Object)
}

fn sum(source: &str, page: &Page<'_>) -> Option<Value> {
    let (left, right) = source.rsplit_once('+')?;
    match (value(left, page)?, value(right, page)?) {
        (Value::Number(a), Value::Number(b)) => Some(json!(a.as_i64()? + b.as_i64()?)),
        (Value::String(a), Value::String(b)) => Some(json!(a + b.as_str())),
        _ => None,
    }
}

/// A remote object that carries the value in both forms, plain and deep.
fn remote(value: &Value) -> Value {
    let mut object = json!({"type": type_of(value), "value": value, "deepSerializedValue": deep(value)});
    match value {
        Value::Null => object["subtype"] = json!("null"),
        Value::Array(_) => object["subtype"] = json!("array"),
        Value::Number(number) => object["description"] = json!(number.to_string()),
        _ => {}
    }
    object
}

fn deep(value: &Value) -> Value {
    match value {
        Value::Null => json!({"type": "null"}),
        Value::Array(items) => {
            json!({"type": "array", "value": items.iter().map(deep).collect::<Vec<_>>()})
        }
        Value::Object(fields) => {
            let pairs: Vec<_> = fields.iter().map(|(key, of)| json!([key, deep(of)])).collect();
            json!({"type": "object", "value": pairs})
        }
        plain => json!({"type": type_of(plain), "value": plain}),
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null | Value::Array(_) | Value::Object(_) => "object",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
    }
}

fn reference_error(source: &str) -> Value {
    let text = format!("ReferenceError: {source} is not defined\n    at <anonymous>:1:1");
    let exception = json!({"type": "object", "subtype": "error", "className": "ReferenceError", "description": text, "objectId": "1.1.1"});
    let details =
        json!({"exceptionId": 1, "text": "Uncaught", "lineNumber": 0, "columnNumber": 0, "exception": exception});
    json!({"result": exception, "exceptionDetails": details})
}
