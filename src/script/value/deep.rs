//! Values of `Runtime.evaluate`: what Chromium's deep serialisation says, as script values.
//!
//! Deep serialisation names a type beside each value, which is how dates, maps, sets, `NaN` and DOM nodes
//! arrive whole. What has no value of its own (a function, a promise, a cycle) is an [`Untold`] that
//! names its class; nothing is quietly turned into `{}`.

use std::collections::HashMap;
use std::fmt;

use rhai::{Array, Dynamic, ImmutableString, Map};

/// A value that cannot be told to a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Untold {
    /// What it is: `function`, `Promise`, `TypeError: …`.
    pub class: String,
    /// Whether `by_value` (plain JSON) would give something.
    pub by_value_helps: bool,
}

impl fmt::Display for Untold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the value holds what a script cannot: {}", self.class)
    }
}

/// The value of a `RemoteObject` that was asked for with deep serialisation.
///
/// # Errors
/// [`Untold`]: it is, or holds, something with no value of its own.
pub fn decode(mut remote: Map) -> Result<Dynamic, Untold> {
    match remote.remove("deepSerializedValue").and_then(Dynamic::try_cast::<Map>) {
        Some(deep) => {
            let class = text(&remote, "className");
            let outcome = Decoder::default().value(deep);
            outcome.map_err(|untold| name_class(untold, class, &remote))
        }
        None => plain(remote),
    }
}

/// The value of a `RemoteObject` that was asked for by value.
///
/// # Errors
/// [`Untold`]: it has no value, such as a function.
pub fn plain(mut remote: Map) -> Result<Dynamic, Untold> {
    if let Some(value) = remote.remove("value") {
        return Ok(value);
    }
    if let Some(written) = text(&remote, "unserializableValue") {
        return Ok(unserializable(&written));
    }
    match text(&remote, "type").as_deref() {
        Some("undefined") | None => Ok(Dynamic::UNIT),
        Some(kind) => {
            Err(Untold { class: text(&remote, "className").unwrap_or_else(|| kind.to_owned()), by_value_helps: false })
        }
    }
}

/// The outermost value's class is known better from the `RemoteObject` around it.
fn name_class(untold: Untold, class: Option<String>, remote: &Map) -> Untold {
    let outermost = text(remote, "subtype").or_else(|| text(remote, "type"));
    match class {
        // A proxy's class is that of what it hides.
        Some(class) if untold.class != "proxy" && outermost.as_ref() == Some(&untold.class) => {
            let described = text(remote, "description").filter(|_| untold.class == "error");
            let first_line = described.and_then(|text| text.lines().next().map(str::to_owned));
            Untold { class: first_line.unwrap_or(class), ..untold }
        }
        _ => untold,
    }
}

#[derive(Default)]
struct Decoder {
    /// Values that are told once and referred to after. `None` while one is still being read: a cycle.
    seen: HashMap<i64, Option<Dynamic>>,
}

impl Decoder {
    fn value(&mut self, mut deep: Map) -> Result<Dynamic, Untold> {
        let kind = text(&deep, "type").unwrap_or_default();
        let reference = deep.get("weakLocalObjectReference").and_then(|id| id.as_int().ok());
        let Some(value) = deep.remove("value") else {
            return self.without_value(&kind, reference);
        };
        if let Some(id) = reference {
            self.seen.insert(id, None);
        }
        let decoded = self.with_value(&kind, value)?;
        if let Some(id) = reference {
            self.seen.insert(id, Some(decoded.clone()));
        }
        Ok(decoded)
    }

    fn without_value(&self, kind: &str, reference: Option<i64>) -> Result<Dynamic, Untold> {
        match (kind, reference.and_then(|id| self.seen.get(&id))) {
            ("undefined" | "null", _) => Ok(Dynamic::UNIT),
            (_, Some(Some(value))) => Ok(value.clone()),
            (_, Some(None)) => Err(untold("a cycle", false)),
            ("array" | "set" | "nodelist" | "htmlcollection", None) => Ok(Array::new().into()),
            ("object" | "map", None) => Ok(Map::new().into()),
            _ => Err(untold(kind, matches!(kind, "typedarray" | "proxy" | "error"))),
        }
    }

    fn with_value(&mut self, kind: &str, value: Dynamic) -> Result<Dynamic, Untold> {
        match kind {
            "number" => Ok(number(value)),
            "string" | "boolean" | "bigint" | "date" => Ok(value),
            "array" | "set" | "nodelist" | "htmlcollection" => self.items(value),
            "object" => self.pairs(value).map(Pairs::into_map),
            "map" => self.pairs(value).map(Pairs::into_map_or_pairs),
            "regexp" => Ok(regexp(value)),
            "node" => Ok(node(value)),
            _ => Err(untold(kind, matches!(kind, "typedarray" | "proxy" | "error"))),
        }
    }

    fn items(&mut self, value: Dynamic) -> Result<Dynamic, Untold> {
        let items = value.into_array().unwrap_or_default();
        let decoded: Result<Array, Untold> = items.into_iter().map(|item| self.inner(item)).collect();
        decoded.map(Dynamic::from_array)
    }

    /// `[[key, value], …]`; a key is a string or a value of its own.
    fn pairs(&mut self, value: Dynamic) -> Result<Pairs, Untold> {
        let items = value.into_array().unwrap_or_default();
        let mut pairs = Vec::with_capacity(items.len());
        for item in items {
            let mut pair = item.into_array().unwrap_or_default().into_iter();
            let key = pair.next().unwrap_or_default();
            let value = pair.next().unwrap_or_default();
            pairs.push((self.inner(key)?, self.inner(value)?));
        }
        Ok(Pairs(pairs))
    }

    fn inner(&mut self, value: Dynamic) -> Result<Dynamic, Untold> {
        match value.try_cast_result::<Map>() {
            Ok(deep) => self.value(deep),
            Err(plain) => Ok(plain),
        }
    }
}

struct Pairs(Vec<(Dynamic, Dynamic)>);

impl Pairs {
    fn into_map(self) -> Dynamic {
        let entries = self.0.into_iter();
        let map: Map = entries.map(|(key, value)| (key.to_string().into(), value)).collect();
        map.into()
    }

    fn into_map_or_pairs(self) -> Dynamic {
        if self.0.iter().all(|(key, _)| key.is_string()) {
            return self.into_map();
        }
        let pairs = self.0.into_iter();
        let array: Array = pairs.map(|(key, value)| Dynamic::from_array(vec![key, value])).collect();
        array.into()
    }
}

fn number(value: Dynamic) -> Dynamic {
    let written = value.as_immutable_string_ref().map(|text| text.to_string());
    written.map_or(value, |written| unserializable(&written))
}

/// `NaN`, `-0`, `Infinity` and `12n` as Chromium writes them; other digits stay a string.
fn unserializable(written: &str) -> Dynamic {
    match written {
        "NaN" => f64::NAN.into(),
        "Infinity" => f64::INFINITY.into(),
        "-Infinity" => f64::NEG_INFINITY.into(),
        "-0" => Dynamic::from_float(-0.0),
        _ => ImmutableString::from(written.strip_suffix('n').unwrap_or(written)).into(),
    }
}

fn regexp(value: Dynamic) -> Dynamic {
    let map = value.try_cast::<Map>().unwrap_or_default();
    let pattern = text(&map, "pattern").unwrap_or_default();
    let flags = text(&map, "flags").unwrap_or_default();
    format!("/{pattern}/{flags}").into()
}

fn node(value: Dynamic) -> Dynamic {
    let mut map = value.try_cast::<Map>().unwrap_or_default();
    let name = map.remove("localName").or_else(|| map.remove("nodeValue"));
    let mut node = Map::new();
    node.insert("type".into(), "node".into());
    node.insert("backend_node_id".into(), map.remove("backendNodeId").unwrap_or_default());
    node.insert("name".into(), name.unwrap_or_default());
    node.insert("attributes".into(), map.remove("attributes").unwrap_or_else(|| Map::new().into()));
    node.into()
}

fn untold(class: &str, by_value_helps: bool) -> Untold {
    Untold { class: class.to_owned(), by_value_helps }
}

fn text(map: &Map, key: &str) -> Option<String> {
    let value = map.get(key)?.as_immutable_string_ref().ok()?;
    Some(value.to_string())
}
