//! The language's functions that make much out of little in one call, with a look at the room first.
//!
//! Between two operations the script's memory is checked; these could fill the machine within one.

use std::any::TypeId;
use std::mem::size_of;
use std::ops::{Range, RangeInclusive};

use rhai::{Array, Blob, Dynamic, EvalAltResult, ImmutableString, Module, NativeCallContext};

use crate::script::context::with_context;
use crate::script::error::{End, Failure};
use crate::script::memory;

type Native<T> = Result<T, Box<EvalAltResult>>;
type Text = ImmutableString;

/// What a short string costs beside its place in an array: its shared block.
const STRING_COST: usize = 64;

pub fn register(module: &mut Module) {
    register_pad(module);
    register_blob(module);
    register_replace(module);
    register_split(module);
    register_chars(module);
    register_parts(module);
}

/// Ends the script where `count` things of `size` bytes have no room.
fn room(call: &NativeCallContext, count: usize, size: usize) -> Native<()> {
    with_context(call, |_| match count.checked_mul(size) {
        Some(bytes) if memory::has_room(bytes) => Ok(()),
        _ => Err(Failure::from(End::Memory)),
    })
}

fn register_pad(module: &mut Module) {
    module.set_native_fn("pad", |call: NativeCallContext, text: &mut Text, len: i64, fill: char| {
        pad_text(&call, text, len, fill.encode_utf8(&mut [0; 4]))
    });
    module.set_native_fn("pad", |call: NativeCallContext, text: &mut Text, len: i64, fill: Text| {
        pad_text(&call, text, len, &fill)
    });
    module.set_native_fn("pad", |call: NativeCallContext, array: &mut Array, len: i64, item: Dynamic| {
        pad_array(&call, array, len, item)
    });
    module.set_native_fn("pad", |call: NativeCallContext, blob: &mut Blob, len: i64, byte: i64| {
        let missing = length(len).saturating_sub(blob.len());
        room(&call, missing, 1)?;
        blob.resize(blob.len() + missing, byte as u8);
        Native::Ok(())
    });
}

fn pad_text(call: &NativeCallContext, text: &mut Text, len: i64, fill: &str) -> Native<()> {
    let fill_length = fill.chars().count().max(1);
    let missing = length(len).saturating_sub(text.chars().count());
    if missing == 0 || fill.is_empty() {
        return Ok(());
    }
    room(call, missing.div_ceil(fill_length), fill.len())?;
    let last: String = fill.chars().take(missing % fill_length).collect();
    let mut padded = fill.repeat(missing / fill_length);
    padded.push_str(&last);
    room(call, text.len(), 1)?;
    padded.insert_str(0, text);
    *text = padded.into();
    Ok(())
}

fn pad_array(call: &NativeCallContext, array: &mut Array, len: i64, item: Dynamic) -> Native<()> {
    let missing = length(len).saturating_sub(array.len());
    room(call, missing, weight(&item))?;
    array.resize(array.len() + missing, item);
    Ok(())
}

fn register_blob(module: &mut Module) {
    module.set_native_fn("blob", |call: NativeCallContext, len: i64| blob(&call, len, 0));
    module.set_native_fn("blob", |call: NativeCallContext, len: i64, byte: i64| blob(&call, len, byte));
    module.set_native_fn("to_array", |call: NativeCallContext, blob: &mut Blob| -> Native<Array> {
        room(&call, blob.len(), size_of::<Dynamic>())?;
        Ok(blob.iter().map(|&byte| Dynamic::from_int(byte.into())).collect())
    });
}

fn blob(call: &NativeCallContext, len: i64, byte: i64) -> Native<Blob> {
    room(call, length(len), 1)?;
    Ok(vec![byte as u8; length(len)])
}

fn register_replace(module: &mut Module) {
    module.set_native_fn("replace", |call: NativeCallContext, text: &mut Text, from: Text, to: Text| {
        replace(&call, text, &from, &to)
    });
    module.set_native_fn("replace", |call: NativeCallContext, text: &mut Text, from: Text, to: char| {
        replace(&call, text, &from, to.encode_utf8(&mut [0; 4]))
    });
    module.set_native_fn("replace", |call: NativeCallContext, text: &mut Text, from: char, to: Text| {
        replace(&call, text, from.encode_utf8(&mut [0; 4]), &to)
    });
    module.set_native_fn("replace", |call: NativeCallContext, text: &mut Text, from: char, to: char| {
        replace(&call, text, from.encode_utf8(&mut [0; 4]), to.encode_utf8(&mut [0; 4]))
    });
}

fn replace(call: &NativeCallContext, text: &mut Text, from: &str, to: &str) -> Native<()> {
    room(call, text.matches(from).count(), to.len())?;
    room(call, text.len(), 1)?;
    *text = text.replace(from, to).into();
    Ok(())
}

fn register_split(module: &mut Module) {
    module.set_native_fn("split", |call: NativeCallContext, text: &mut Text| {
        let parts = text.split_whitespace();
        if text.is_empty() { collect(&call, std::iter::once("")) } else { collect(&call, parts) }
    });
    module.set_native_fn("split", |call: NativeCallContext, text: &mut Text, by: Text| {
        collect(&call, text.split(by.as_str()))
    });
    module.set_native_fn("split", |call: NativeCallContext, text: &mut Text, by: char| collect(&call, text.split(by)));
    module.set_native_fn("split", |call: NativeCallContext, text: &mut Text, by: Text, parts: i64| {
        collect(&call, text.splitn(length(parts).max(1), by.as_str()))
    });
    module.set_native_fn("split", |call: NativeCallContext, text: &mut Text, by: char, parts: i64| {
        collect(&call, text.splitn(length(parts).max(1), by))
    });
    module.set_native_fn("split_rev", |call: NativeCallContext, text: &mut Text, by: Text| {
        collect(&call, text.rsplit(by.as_str()))
    });
    module.set_native_fn("split_rev", |call: NativeCallContext, text: &mut Text, by: char| {
        collect(&call, text.rsplit(by))
    });
    module.set_native_fn("split_rev", |call: NativeCallContext, text: &mut Text, by: Text, parts: i64| {
        collect(&call, text.rsplitn(length(parts).max(1), by.as_str()))
    });
    module.set_native_fn("split_rev", |call: NativeCallContext, text: &mut Text, by: char, parts: i64| {
        collect(&call, text.rsplitn(length(parts).max(1), by))
    });
}

fn collect<'a>(call: &NativeCallContext, parts: impl Iterator<Item = &'a str> + Clone) -> Native<Array> {
    let (count, bytes) = parts.clone().fold((0, 0), |(count, bytes), part| (count + 1, bytes + part.len()));
    room(call, count, size_of::<Dynamic>() + STRING_COST)?;
    room(call, bytes, 1)?;
    Ok(parts.map(|part| Dynamic::from(Text::from(part))).collect())
}

fn register_chars(module: &mut Module) {
    // The language's own iteration makes an array of all characters first.
    module.set_iter(TypeId::of::<Text>(), |text| Box::new(Characters::new(text.cast::<Text>())));
    module.set_iter(TypeId::of::<Characters>(), |text| Box::new(text.cast::<Characters>()));
    module.set_native_fn("chars", |text: Text| Native::Ok(Characters::new(text)));
    module.set_native_fn("chars", |text: Text, start: i64| Native::Ok(Characters::part(text, start, i64::MAX)));
    module.set_native_fn("chars", |text: Text, start: i64, len: i64| Native::Ok(Characters::part(text, start, len)));
    module.set_native_fn("chars", |text: Text, range: Range<i64>| {
        let start = range.start.max(0);
        Native::Ok(Characters::part(text, start, range.end.saturating_sub(start)))
    });
    module.set_native_fn("chars", |text: Text, range: RangeInclusive<i64>| {
        let start = (*range.start()).max(0);
        let len = range.end().saturating_sub(start).saturating_add(1);
        Native::Ok(Characters::part(text, start, len))
    });
    module.set_native_fn("to_chars", |call: NativeCallContext, text: &mut Text| -> Native<Array> {
        room(&call, text.len(), size_of::<Dynamic>())?;
        Ok(text.chars().map(Dynamic::from_char).collect())
    });
    module.set_native_fn("to_blob", |call: NativeCallContext, text: &mut Text| -> Native<Blob> {
        room(&call, text.len(), 1)?;
        Ok(text.as_bytes().to_vec())
    });
}

/// The language's own put all characters of the whole into an array first: four times its size.
fn register_parts(module: &mut Module) {
    module.set_native_fn("sub_string", |text: Text, start: i64| Native::Ok(part(&text, start, i64::MAX)));
    module.set_native_fn("sub_string", |text: Text, start: i64, len: i64| Native::Ok(part(&text, start, len)));
    module.set_native_fn("sub_string", |text: Text, range: Range<i64>| Native::Ok(range_of(&text, &range)));
    module.set_native_fn("sub_string", |text: Text, range: RangeInclusive<i64>| {
        Native::Ok(range_of(&text, &open_end(&range)))
    });
    module.set_native_fn("crop", |text: &mut Text, start: i64| {
        *text = part(text, start, i64::MAX);
        Native::Ok(())
    });
    module.set_native_fn("crop", |text: &mut Text, start: i64, len: i64| {
        *text = part(text, start, len);
        Native::Ok(())
    });
    module.set_native_fn("crop", |text: &mut Text, range: Range<i64>| {
        *text = range_of(text, &range);
        Native::Ok(())
    });
    module.set_native_fn("crop", |text: &mut Text, range: RangeInclusive<i64>| {
        *text = range_of(text, &open_end(&range));
        Native::Ok(())
    });
}

fn range_of(text: &str, range: &Range<i64>) -> Text {
    let start = range.start.max(0);
    part(text, start, range.end.saturating_sub(start))
}

fn open_end(range: &RangeInclusive<i64>) -> Range<i64> {
    *range.start()..range.end().saturating_add(1)
}

/// `len` characters from `start`; a start below zero counts from the end.
fn part(text: &str, start: i64, len: i64) -> Text {
    let from = &text[place(text, start)..];
    from[..byte_of(from, length(len))].into()
}

/// Where the character `start` begins; below zero it counts from the end.
fn place(text: &str, start: i64) -> usize {
    let skipped = if start < 0 {
        let back = usize::try_from(start.unsigned_abs()).unwrap_or(usize::MAX);
        text.chars().count().saturating_sub(back)
    } else {
        length(start)
    };
    byte_of(text, skipped)
}

fn byte_of(text: &str, character: usize) -> usize {
    text.char_indices().nth(character).map_or(text.len(), |(at, _)| at)
}

/// The characters of a string, one after the other.
#[derive(Clone)]
struct Characters {
    text: Text,
    at: usize,
    left: usize,
}

impl Characters {
    fn new(text: Text) -> Self {
        Self { text, at: 0, left: usize::MAX }
    }

    /// `len` characters from `start`; a start below zero counts from the end.
    fn part(text: Text, start: i64, len: i64) -> Self {
        let at = place(&text, start);
        Self { text, at, left: length(len) }
    }
}

impl Iterator for Characters {
    type Item = Dynamic;

    fn next(&mut self) -> Option<Dynamic> {
        self.left = self.left.checked_sub(1)?;
        let character = self.text[self.at..].chars().next()?;
        self.at += character.len_utf8();
        Some(Dynamic::from_char(character))
    }
}

/// A count that a script gave; below zero is none.
fn length(given: i64) -> usize {
    usize::try_from(given).unwrap_or(0)
}

/// What a copy of a value costs.
fn weight(value: &Dynamic) -> usize {
    let inner = if value.is_shared() {
        0
    } else if let Ok(array) = value.as_array_ref() {
        STRING_COST + array.iter().map(weight).sum::<usize>()
    } else if let Ok(map) = value.as_map_ref() {
        map.iter().map(|(key, value)| STRING_COST + key.len() + weight(value)).sum::<usize>() + STRING_COST
    } else if let Ok(blob) = value.as_blob_ref() {
        STRING_COST + blob.len()
    } else {
        0
    };
    size_of::<Dynamic>() + inner
}
