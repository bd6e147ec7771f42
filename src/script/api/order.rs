//! Sorting and thinning out by a function of the script. The language's own swallow what that function throws, a
//! cancel included, and give an order that means nothing.

use std::cmp::Ordering;

use rhai::{Array, Dynamic, EvalAltResult, FnPtr, Module, NativeCallContext};

use crate::script::error::{Failure, Thrown};
use crate::script::hints;
use crate::wire::FaultCode;

type Native<T> = Result<T, Box<EvalAltResult>>;

pub fn register(module: &mut Module) {
    for name in ["sort", "sort_by"] {
        module.set_native_fn(name, |call: NativeCallContext, array: &mut Array, by: FnPtr| -> Native<()> {
            *array = ordered(&call, array, &by)?;
            Ok(())
        });
    }
    for name in ["order", "order_by"] {
        module.set_native_fn(name, |call: NativeCallContext, array: &mut Array, by: FnPtr| ordered(&call, array, &by));
    }
    module.set_native_fn("dedup", |call: NativeCallContext, array: &mut Array, same: FnPtr| -> Native<()> {
        *array = without_neighbours(&call, array, &same)?;
        Ok(())
    });
}

/// The items in the order that `by` gives them; equal ones stay as they were.
fn ordered(call: &NativeCallContext, array: &Array, by: &FnPtr) -> Native<Array> {
    let places = merge_sort((0..array.len()).collect(), &mut |a, b| {
        let answer = by.call_within_context::<Dynamic>(call, (array[a].clone(), array[b].clone()))?;
        ordering(&answer).map_err(|failure| failure.at(call.call_position()))
    })?;
    Ok(places.into_iter().map(|place| array[place].clone()).collect())
}

/// Below zero or true: the first comes first.
fn ordering(answer: &Dynamic) -> Result<Ordering, Failure> {
    if let Ok(number) = answer.as_int() {
        return Ok(number.cmp(&0));
    }
    match answer.as_bool() {
        Ok(true) => Ok(Ordering::Less),
        Ok(false) => Ok(Ordering::Greater),
        Err(_) => Err(no_order(answer).into()),
    }
}

fn no_order(answer: &Dynamic) -> Thrown {
    let seen = hints::kind(answer.type_name());
    Thrown::new(FaultCode::BadParams, format!("the function that sorts must give an integer, not {seen}"))
        .hint("`|a, b| a - b`, or `|a, b| if a < b { -1 } else { 1 }`")
}

type Compare<'a> = dyn FnMut(usize, usize) -> Native<Ordering> + 'a;

fn merge_sort(mut items: Vec<usize>, compare: &mut Compare<'_>) -> Native<Vec<usize>> {
    if items.len() < 2 {
        return Ok(items);
    }
    let right = items.split_off(items.len() / 2);
    let (left, right) = (merge_sort(items, compare)?, merge_sort(right, compare)?);
    merge(&left, &right, compare)
}

fn merge(mut left: &[usize], mut right: &[usize], compare: &mut Compare<'_>) -> Native<Vec<usize>> {
    let mut merged = Vec::with_capacity(left.len() + right.len());
    while let ([a, rest_left @ ..], [b, rest_right @ ..]) = (left, right) {
        if compare(*a, *b)? == Ordering::Greater {
            merged.push(*b);
            right = rest_right;
        } else {
            merged.push(*a);
            left = rest_left;
        }
    }
    merged.extend_from_slice(left);
    merged.extend_from_slice(right);
    Ok(merged)
}

/// The items without those that `same` says are like the one before.
fn without_neighbours(call: &NativeCallContext, array: &Array, same: &FnPtr) -> Native<Array> {
    let mut kept = Array::new();
    for item in array {
        let is_same = match kept.last() {
            Some(last) => same.call_within_context::<bool>(call, (last.clone(), item.clone()))?,
            None => false,
        };
        if !is_same {
            kept.push(item.clone());
        }
    }
    Ok(kept)
}
