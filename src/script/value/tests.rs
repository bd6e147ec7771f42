//! What comes out equals what went in: a table of what is special, and any JSON against `serde_json`.

use proptest::prelude::*;
use rhai::{Dynamic, Map};
use serde_json::Value;

use super::deep::{self, Undecoded, Untold, plain};
use super::{DEPTH_LIMIT, Form, ParseFailure, Refusal, parse, show, write};
use crate::cancel::CancelReason;
use crate::script::error::End;
use crate::script::memory::{Meter, is_over, used};

fn round(text: &str, form: Form) -> String {
    write(&parse(text).unwrap(), form).unwrap()
}

#[test]
fn what_json_can_say_comes_back() {
    for text in [
        "null",
        "true",
        "0",
        "-1",
        "9223372036854775807",
        "-9223372036854775808",
        "1.5",
        "-0.0",
        "1e308",
        "\"\"",
        "\"a\\\"\\\\/\\b\\f\\n\\r\\t\\u0000\"",
        "\"😀é\"",
        "[]",
        "{}",
        "[[],{}]",
        "{\"a\":[1,2,{\"b\":null}],\"c\":\"d\"}",
    ] {
        assert_eq!(round(text, Form::Exact), text);
    }
}

#[test]
fn what_rhai_cannot_hold_changes_as_promised() {
    for (text, expected) in [
        ("9223372036854775808", "\"9223372036854775808\""),
        ("-18446744073709551616", "\"-18446744073709551616\""),
        ("-0", "-0.0"),
        ("1.0", "1.0"),
        ("1e2", "100.0"),
        ("{\"a\":1,\"a\":2}", "{\"a\":2}"),
        ("{\"b\":1,\"a\":2}", "{\"a\":2,\"b\":1}"),
        ("\"\\ud83d\\ude00\"", "\"😀\""),
        ("\"\\ud83d\"", "\"\u{fffd}\""),
        ("\"\\udc00x\"", "\"\u{fffd}x\""),
        ("\"\\ud83d\\u0041\"", "\"\u{fffd}A\""),
        ("\"\\ud83d\\ud83d\\ude00\"", "\"\u{fffd}😀\""),
        ("{\"\\ud800\":1}", "{\"\u{fffd}\":1}"),
        ("\"\\\\ud800\"", "\"\\\\ud800\""),
        (" [ 1 , 2 ] \n", "[1,2]"),
    ] {
        assert_eq!(round(text, Form::Exact), expected, "{text}");
    }
}

#[test]
fn what_is_not_json_is_refused() {
    for text in [
        "",
        " ",
        "[",
        "[1",
        "[1,",
        "[1,]",
        "[,1]",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{a:1}",
        "nul",
        "tru e",
        "01",
        "-",
        "1.",
        ".5",
        "1e",
        "+1",
        "NaN",
        "\"a",
        "\"\\x\"",
        "\"\\u12\"",
        "1 2",
        "[1}",
        "\"a\\\"",
    ] {
        assert!(matches!(parse(text), Err(ParseFailure::Expected(..))), "{text}");
    }
}

#[test]
fn nesting_is_read_and_written_up_to_the_limit_and_refused_beyond() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let check = move || {
        assert_eq!(round(&nested(300), Form::Params), nested(300));
        assert_eq!(round(&nested(DEPTH_LIMIT), Form::Params), nested(DEPTH_LIMIT));
        assert_eq!(parse(&nested(DEPTH_LIMIT + 2)).unwrap_err(), ParseFailure::TooDeep);
        assert_eq!(parse(&"[".repeat(1_000_000)).unwrap_err(), ParseFailure::TooDeep);
        let too_deep = Dynamic::from_array(vec![parse(&nested(DEPTH_LIMIT)).unwrap()]);
        assert_eq!(write(&too_deep, Form::Shown), Err(Refusal::TooDeep));
    };
    std::thread::Builder::new().stack_size(64 << 20).spawn(check).unwrap().join().unwrap();
}

#[test]
fn params_carry_integral_floats_as_integers() {
    for (value, expected) in [
        (10.0, "10"),
        (-3.0, "-3"),
        (0.5, "0.5"),
        (-0.0, "-0.0"),
        (9_007_199_254_740_992.0, "9007199254740992"),
        (1e308, "1e308"),
    ] {
        assert_eq!(write(&Dynamic::from_float(value), Form::Params).unwrap(), expected);
    }
}

#[test]
fn a_person_sees_what_json_cannot_say() {
    for (value, expected) in
        [(f64::NAN, "NaN"), (f64::INFINITY, "inf"), (f64::NEG_INFINITY, "-inf"), (-0.0, "-0.0"), (1.0, "1.0")]
    {
        assert_eq!(show(&value.into()).unwrap(), expected);
        assert_eq!(show(&vec![Dynamic::from_float(value)].into()).unwrap(), format!("[{expected}]"));
    }
    assert_eq!(show(&"a \"b\"".into()).unwrap(), "a \"b\"");
    assert_eq!(show(&Dynamic::from_char('c')).unwrap(), "c");
    assert_eq!(write(&Dynamic::from_blob(vec![1, 2, 3]), Form::Params).unwrap(), "\"AQID\"");
}

#[test]
fn what_json_cannot_say_is_refused_with_its_path() {
    let mut inner = Map::new();
    inner.insert("x".into(), f64::NAN.into());
    let value = Dynamic::from_array(vec![1.into(), inner.into()]);

    let refusal = write(&value, Form::Params).unwrap_err();

    assert_eq!(refusal.to_string(), "[1].x: NaN cannot be JSON");
    assert_eq!(write(&value, Form::Json).unwrap(), "[1,{\"x\":null}]");
}

/// The `result` of an evaluation, as Chromium writes it.
fn remote(text: &str) -> Map {
    parse(text).unwrap().try_cast::<Map>().unwrap()
}

fn decode(remote: Map) -> Result<Dynamic, Untold> {
    deep::decode(remote, &|| None).map_err(|undecoded| match undecoded {
        Undecoded::Untold(untold) => untold,
        Undecoded::Ended(end) => panic!("{end:?}"),
    })
}

fn deep(serialised: &str) -> Result<String, Untold> {
    let text = format!("{{\"type\":\"object\",\"className\":\"Thing\",\"deepSerializedValue\":{serialised}}}");
    decode(remote(&text)).map(|value| write(&value, Form::Shown).unwrap())
}

#[test]
fn deep_serialisation_gives_exact_values() {
    for (serialised, expected) in [
        (r#"{"type":"undefined"}"#, "null"),
        (r#"{"type":"number","value":2}"#, "2"),
        (r#"{"type":"number","value":"NaN"}"#, "NaN"),
        (r#"{"type":"number","value":"-0"}"#, "-0.0"),
        (r#"{"type":"number","value":"-Infinity"}"#, "-inf"),
        (r#"{"type":"bigint","value":"123"}"#, "\"123\""),
        (r#"{"type":"date","value":"2020-01-01T00:00:00.000Z"}"#, "\"2020-01-01T00:00:00.000Z\""),
        (r#"{"type":"regexp","value":{"pattern":"a+","flags":"gi"}}"#, "\"/a+/gi\""),
        (r#"{"type":"array","value":[{"type":"null"},{"type":"string","value":"x"}]}"#, "[null,\"x\"]"),
        (r#"{"type":"set","value":[{"type":"number","value":1}]}"#, "[1]"),
        (r#"{"type":"object","value":[["a",{"type":"number","value":1}]]}"#, "{\"a\":1}"),
        (r#"{"type":"map","value":[["k",{"type":"boolean","value":true}]]}"#, "{\"k\":true}"),
        (r#"{"type":"map","value":[[{"type":"number","value":1},{"type":"string","value":"one"}]]}"#, "[[1,\"one\"]]"),
        (
            r#"{"type":"node","value":{"nodeType":1,"localName":"p","childNodeCount":0,"attributes":{"id":"x"},"backendNodeId":7}}"#,
            r#"{"attributes":{"id":"x"},"backend_node_id":7,"name":"p","type":"node"}"#,
        ),
        (
            r#"{"type":"array","value":[{"type":"object","value":[],"weakLocalObjectReference":1},{"type":"object","weakLocalObjectReference":1}]}"#,
            "[{},{}]",
        ),
    ] {
        assert_eq!(deep(serialised).unwrap(), expected, "{serialised}");
    }
}

#[test]
fn what_has_no_value_is_named_by_its_class() {
    let cycle = r#"{"type":"object","weakLocalObjectReference":1,"value":[["me",{"type":"object","weakLocalObjectReference":1}]]}"#;
    assert_eq!(deep(cycle).unwrap_err().class, "a cycle");
    assert_eq!(deep(r#"{"type":"array","value":[{"type":"function"}]}"#).unwrap_err().class, "function");

    let function = r#"{"type":"function","className":"Function","description":"() => 1","deepSerializedValue":{"type":"function"}}"#;
    assert_eq!(decode(remote(function)).unwrap_err().class, "Function");
    let error = r#"{"type":"object","subtype":"error","className":"TypeError","description":"TypeError: bad\n    at x","deepSerializedValue":{"type":"error"}}"#;
    assert_eq!(decode(remote(error)).unwrap_err().class, "TypeError: bad");
}

#[test]
fn what_shows_nothing_of_itself_is_named_and_a_class_of_the_page_is_told() {
    let of = |class: &str, deep: &str| {
        let text =
            format!(r#"{{"type":"object","className":"{class}","deepSerializedValue":{{"type":"object"{deep}}}}}"#);
        decode(remote(&text)).map(|value| write(&value, Form::Shown).unwrap()).map_err(|untold| untold.class)
    };
    let (none, characters) = (r#","value":[]"#, r#","value":[["0",{"type":"string","value":"x"}]]"#);
    let field = r#","value":[["a",{"type":"number","value":1}]]"#;

    for class in ["Number", "Boolean", "BigInt", "String", "DataView", "Array Iterator", "MapIterator", "NumberFormat"]
    {
        assert_eq!(of(class, none), Err(class.to_owned()));
        assert_eq!(of(class, field), Ok("{\"a\":1}".to_owned()));
    }
    assert_eq!(of("String", characters), Err("String".to_owned()));
    for class in ["Object", "Foo", "Math"] {
        assert_eq!((of(class, none), of(class, "")), (Ok("{}".to_owned()), Ok("{}".to_owned())));
    }
}

/// An array of itself twice, so many times over: `innermost` is the one that holds something.
fn doubled(times: usize, innermost: &str) -> Map {
    let mut deep = format!(r#"{{"type":"array","weakLocalObjectReference":0,"value":[{innermost}]}}"#);
    for id in 1..=times {
        let again = format!(r#"{{"type":"array","weakLocalObjectReference":{}}}"#, id - 1);
        deep = format!(r#"{{"type":"array","weakLocalObjectReference":{id},"value":[{deep},{again}]}}"#);
    }
    remote(&format!(r#"{{"type":"object","className":"Array","deepSerializedValue":{deep}}}"#))
}

#[test]
fn what_is_referred_to_again_and_again_is_copied_only_while_there_is_room() {
    for innermost in [
        r#"{"type":"number","value":1}"#,
        r#"{"type":"object","value":[["a",{"type":"number","value":1}]]}"#,
        r#"{"type":"map","value":[[{"type":"number","value":1},{"type":"number","value":1}]]}"#,
        r#"{"type":"node","value":{"nodeType":1,"localName":"p","attributes":{"id":"x"},"backendNodeId":7}}"#,
    ] {
        let _meter = Meter::start(8 << 20);
        let must_end = || {
            assert!(used() < 9 << 20, "{innermost}: {}", used());
            is_over().then_some(End::Memory)
        };

        assert!(deep::decode(doubled(5, innermost), &must_end).is_ok());
        assert_eq!(deep::decode(doubled(60, innermost), &must_end).unwrap_err(), End::Memory.into());
    }
}

#[test]
fn what_nobody_waits_for_is_read_no_further() {
    let cancelled = || Some(End::from(CancelReason::Interrupted));

    let undecoded = deep::decode(doubled(3, r#"{"type":"number","value":1}"#), &cancelled).unwrap_err();

    assert_eq!(undecoded, End::from(CancelReason::Interrupted).into());
}

#[test]
fn values_by_value_are_plain_json() {
    assert_eq!(show(&plain(remote(r#"{"type":"object","value":{"a":[1]}}"#)).unwrap()).unwrap(), "{\"a\":[1]}");
    assert_eq!(show(&plain(remote(r#"{"type":"number","unserializableValue":"NaN"}"#)).unwrap()).unwrap(), "NaN");
    assert_eq!(show(&plain(remote(r#"{"type":"bigint","unserializableValue":"12n"}"#)).unwrap()).unwrap(), "12");
    assert!(plain(remote(r#"{"type":"undefined"}"#)).unwrap().is_unit());
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        // Floats that `serde_json` reads exactly: its reading is off by one bit on some others.
        any::<i32>().prop_map(|number| Value::from(f64::from(number) / 8.0)),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..8)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_json_comes_back_the_same(json in any_json()) {
        let text = json.to_string();
        let back: Value = serde_json::from_str(&round(&text, Form::Exact)).unwrap();

        prop_assert_eq!(back, json);
    }

    #[test]
    fn any_float_comes_back_to_the_bit(number in any::<f64>().prop_filter("finite", |number| number.is_finite())) {
        let back = parse(&write(&number.into(), Form::Exact).unwrap()).unwrap();

        prop_assert_eq!(back.as_float().map(f64::to_bits), Ok(number.to_bits()));
    }

    #[test]
    fn no_text_panics_and_what_serde_accepts_is_accepted(text in "[\\[\\]{}\",:0-9eE+\\-.tfn\\\\u ]{0,24}") {
        let ours = parse(&text);
        if serde_json::from_str::<Value>(&text).is_ok() {
            prop_assert!(ours.is_ok(), "{:?}", ours);
        }
    }
}
