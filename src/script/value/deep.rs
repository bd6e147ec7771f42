//! Values of `Runtime.evaluate`: what Chromium's deep serialisation says, as script values.
//!
//! Deep serialisation names a type beside each value, which is how dates, maps, sets, `NaN` and DOM nodes
//! arrive whole. What has no value of its own (a function, a promise, a cycle) is an [`Untold`] that
//! names its class. So is, as the outermost value, an instance of a built-in class that keeps what it is out of sight,
//! such as `new Number(5)`: its fields are none, and only the `RemoteObject` around it names the class. A nested one
//! comes as `{}`: nothing tells it from an empty object.
//!
//! An object that is met again comes as a reference, and a script has no references: it gets a copy each time. A
//! reply of a few kilobytes can thereby mean more than any memory holds, so a copy is made only where it has room.

use std::collections::HashMap;
use std::fmt;

use rhai::{Array, Dynamic, ImmutableString, Map};

use crate::script::error::End;
use crate::script::memory;

/// Built-in classes that show nothing of what their instances hold; iterators are known by their names' ends.
const CLOSED: &[&str] = &[
    "BigInt",
    "Boolean",
    "Collator",
    "DataView",
    "DateTimeFormat",
    "DisplayNames",
    "Duration",
    "FinalizationRegistry",
    "Instant",
    "ListFormat",
    "Locale",
    "Number",
    "NumberFormat",
    "PlainDate",
    "PlainDateTime",
    "PlainMonthDay",
    "PlainTime",
    "PlainYearMonth",
    "PluralRules",
    "RelativeTimeFormat",
    "Segmenter",
    "String",
    "Symbol",
    "WeakRef",
    "ZonedDateTime",
];

/// What a container takes beside its places: its box and the allocator's headers, about.
const CONTAINER_BYTES: usize = 72;

/// What so many entries of a map take together, about: they share a node, and it is allocated whole.
const NODE_ENTRIES: usize = 11;
const NODE_BYTES: usize = 480;

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

/// Why a reply became no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undecoded {
    /// It is, or holds, something with no value of its own.
    Untold(Untold),
    /// The script must end: it has no room for the value, or nobody waits for it.
    Ended(End),
}

impl From<Untold> for Undecoded {
    fn from(untold: Untold) -> Self {
        Self::Untold(untold)
    }
}

impl From<End> for Undecoded {
    fn from(end: End) -> Self {
        Self::Ended(end)
    }
}

/// The value of a `RemoteObject` that was asked for with deep serialisation. `must_end` is asked at each value.
///
/// # Errors
/// [`Undecoded`]: it holds what cannot be told, or the script must end.
pub fn decode(mut remote: Map, must_end: &dyn Fn() -> Option<End>) -> Result<Dynamic, Undecoded> {
    match remote.remove("deepSerializedValue").and_then(Dynamic::try_cast::<Map>) {
        Some(deep) => {
            let class = text(&remote, "className");
            if let Some(class) = class.as_deref().filter(|class| is_closed(class, &deep)) {
                return Err(untold(class, false).into());
            }
            let decoder = Decoder { seen: HashMap::new(), bytes: 0, must_end };
            decoder.outermost(deep).map_err(|undecoded| match undecoded {
                Undecoded::Untold(untold) => name_class(untold, class, &remote).into(),
                ended => ended,
            })
        }
        None => Ok(plain(remote)?),
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

/// Whether an object of this class shows nothing of what it is. A page's own class may have one of the names: what has
/// fields to show is not closed.
fn is_closed(class: &str, deep: &Map) -> bool {
    let is_known = CLOSED.contains(&class) || class.ends_with("Iterator");
    is_known && text(deep, "type").as_deref() == Some("object") && shows_nothing(class, deep)
}

fn shows_nothing(class: &str, deep: &Map) -> bool {
    let Some(fields) = deep.get("value").and_then(|value| value.as_array_ref().ok()) else { return true };
    fields.iter().all(|field| {
        let key = field
            .as_array_ref()
            .ok()
            .and_then(|pair| pair.first()?.as_immutable_string_ref().ok().map(|key| key.clone()));
        // A boxed string shows its characters by their places.
        class == "String" && key.is_some_and(|key| key.bytes().all(|byte| byte.is_ascii_digit()))
    })
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

struct Decoder<'a> {
    /// Values that are told once and referred to after. `None` while one is still being read: a cycle.
    seen: HashMap<i64, Option<Known>>,
    /// What all values so far take, about; copies too.
    bytes: usize,
    must_end: &'a dyn Fn() -> Option<End>,
}

/// A value that may be referred to.
struct Known {
    value: Dynamic,
    bytes: usize,
}

impl Known {
    /// # Errors
    /// The script's end where a copy has no room.
    fn copy(&self) -> Result<Dynamic, End> {
        // Copying is one step that nothing interrupts, so its size must be known before.
        if !memory::has_room(self.bytes) {
            return Err(End::Memory);
        }
        Ok(self.value.clone())
    }
}

impl Decoder<'_> {
    fn outermost(mut self, deep: Map) -> Result<Dynamic, Undecoded> {
        self.value(deep)
    }

    fn value(&mut self, mut deep: Map) -> Result<Dynamic, Undecoded> {
        if let Some(end) = (self.must_end)() {
            return Err(end.into());
        }
        let kind = text(&deep, "type").unwrap_or_default();
        let reference = deep.get("weakLocalObjectReference").and_then(|id| id.as_int().ok());
        let Some(value) = deep.remove("value") else {
            return self.without_value(&kind, reference);
        };
        let Some(id) = reference else {
            return self.with_value(&kind, value);
        };
        self.seen.insert(id, None);
        let before = self.bytes;
        let value = self.with_value(&kind, value)?;
        let known = Known { value, bytes: self.bytes.saturating_sub(before) };
        let copy = known.copy()?;
        self.seen.insert(id, Some(known));
        Ok(copy)
    }

    fn without_value(&mut self, kind: &str, reference: Option<i64>) -> Result<Dynamic, Undecoded> {
        match (kind, reference.and_then(|id| self.seen.get(&id))) {
            ("undefined" | "null", _) => Ok(Dynamic::UNIT),
            (_, Some(Some(known))) => {
                self.bytes = self.bytes.saturating_add(known.bytes);
                Ok(known.copy()?)
            }
            (_, Some(None)) => Err(untold("a cycle", false).into()),
            ("array" | "set" | "nodelist" | "htmlcollection", None) => Ok(Array::new().into()),
            ("object" | "map", None) => Ok(Map::new().into()),
            _ => Err(without_form(kind).into()),
        }
    }

    fn with_value(&mut self, kind: &str, value: Dynamic) -> Result<Dynamic, Undecoded> {
        match kind {
            "number" => Ok(number(value)),
            "string" | "boolean" | "bigint" | "date" => Ok(value),
            "array" | "set" | "nodelist" | "htmlcollection" => self.items(value),
            "object" => self.pairs(value).map(Pairs::into_map),
            "map" => self.pairs(value).map(Pairs::into_map_or_pairs),
            "regexp" => Ok(regexp(value)),
            "node" => Ok(self.node(value)),
            _ => Err(without_form(kind).into()),
        }
    }

    fn items(&mut self, value: Dynamic) -> Result<Dynamic, Undecoded> {
        let items = value.into_array().unwrap_or_default();
        self.takes(CONTAINER_BYTES + items.len() * size_of::<Dynamic>());
        let decoded: Result<Array, Undecoded> = items.into_iter().map(|item| self.inner(item)).collect();
        decoded.map(Dynamic::from_array)
    }

    /// `[[key, value], …]`; a key is a string or a value of its own.
    fn pairs(&mut self, value: Dynamic) -> Result<Pairs, Undecoded> {
        let items = value.into_array().unwrap_or_default();
        self.takes(map_bytes(items.len()));
        let mut pairs = Vec::with_capacity(items.len());
        for item in items {
            let mut pair = item.into_array().unwrap_or_default().into_iter();
            let key = pair.next().unwrap_or_default();
            let value = pair.next().unwrap_or_default();
            // A copy of a string shares its text, but that of a map has its keys anew.
            self.takes(key.as_immutable_string_ref().map_or(CONTAINER_BYTES, |key| key.len()));
            pairs.push((self.inner(key)?, self.inner(value)?));
        }
        Ok(Pairs(pairs))
    }

    fn node(&mut self, value: Dynamic) -> Dynamic {
        let node = node(value);
        let attributes =
            node.as_map_ref().ok().and_then(|node| node["attributes"].as_map_ref().ok().map(|map| map.len()));
        self.takes(map_bytes(0) + NODE_BYTES + map_bytes(attributes.unwrap_or(0)));
        node
    }

    fn inner(&mut self, value: Dynamic) -> Result<Dynamic, Undecoded> {
        match value.try_cast_result::<Map>() {
            Ok(deep) => self.value(deep),
            Err(plain) => Ok(plain),
        }
    }

    fn takes(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// What a map with so many entries takes, about.
fn map_bytes(entries: usize) -> usize {
    CONTAINER_BYTES + entries.div_ceil(NODE_ENTRIES) * NODE_BYTES
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

fn without_form(kind: &str) -> Untold {
    untold(kind, matches!(kind, "typedarray" | "proxy" | "error"))
}

fn untold(class: &str, by_value_helps: bool) -> Untold {
    Untold { class: class.to_owned(), by_value_helps }
}

fn text(map: &Map, key: &str) -> Option<String> {
    let value = map.get(key)?.as_immutable_string_ref().ok()?;
    Some(value.to_string())
}
