//! Copies of script values for another thread, which share nothing with the original.
//!
//! A closure shares the variables that it captured with the code around it, and with its own copies. Here every
//! captured variable is copied once, so that those which were one stay one, also where a value holds itself.

use std::collections::HashMap;

use rhai::{Array, Dynamic, FnPtr, Map};

use super::error::{End, Failure, Thrown};
use super::memory;
use super::value::DEPTH_LIMIT;
use crate::wire::FaultCode;

/// Copies values; what it has copied once, it finds again.
///
/// The originals must stay where they are for as long as it is used.
#[derive(Default)]
pub struct Copier {
    /// By the address of the original.
    variables: HashMap<usize, Dynamic>,
    depth: usize,
}

impl Copier {
    /// A copy that shares nothing.
    ///
    /// # Errors
    /// `limit` for a value that is nested too deep; the end of the script where it has no room.
    pub fn copy(&mut self, value: &Dynamic) -> Result<Dynamic, Failure> {
        if value.is_shared() {
            return self.nested(|copier| copier.variable(value));
        }
        if let Ok(map) = value.as_map_ref() {
            return self.nested(|copier| copier.map(&map).map(Dynamic::from_map));
        }
        if let Ok(array) = value.as_array_ref() {
            return self.nested(|copier| copier.array(&array).map(Dynamic::from_array));
        }
        match value.read_lock::<FnPtr>() {
            Some(function) => self.nested(|copier| copier.function(&function).map(Dynamic::from)),
            None => Ok(value.clone()),
        }
    }

    /// A copy of a function, with the variables that it captured.
    ///
    /// # Errors
    /// As [`Copier::copy`].
    pub fn function(&mut self, function: &FnPtr) -> Result<FnPtr, Failure> {
        let mut copy = function.clone();
        for captured in copy.iter_curry_mut() {
            *captured = self.copy(captured)?;
        }
        Ok(copy)
    }

    fn variable(&mut self, variable: &Dynamic) -> Result<Dynamic, Failure> {
        let original = variable.read_lock::<Dynamic>().ok_or_else(in_use)?;
        let address = std::ptr::from_ref::<Dynamic>(&original).addr();
        if let Some(copy) = self.variables.get(&address) {
            return Ok(copy.clone());
        }
        let mut copy = Dynamic::UNIT.into_shared();
        // Before its value is looked at: the way may lead here again.
        self.variables.insert(address, copy.clone());
        let value = self.copy(&original)?;
        *copy.write_lock::<Dynamic>().ok_or_else(in_use)? = value;
        Ok(copy)
    }

    fn map(&mut self, map: &Map) -> Result<Map, Failure> {
        map.iter().map(|(key, value)| Ok((key.clone(), self.copy(value)?))).collect()
    }

    fn array(&mut self, array: &Array) -> Result<Array, Failure> {
        array.iter().map(|value| self.copy(value)).collect()
    }

    fn nested<T>(&mut self, copy: impl FnOnce(&mut Self) -> Result<T, Failure>) -> Result<T, Failure> {
        if self.depth >= DEPTH_LIMIT {
            let message = format!("a value nested deeper than {DEPTH_LIMIT} levels cannot go to another thread");
            return Err(Thrown::new(FaultCode::Limit, message).into());
        }
        if memory::is_over() {
            return Err(End::Memory.into());
        }
        self.depth += 1;
        let outcome = copy(self);
        self.depth -= 1;
        outcome
    }
}

fn in_use() -> Failure {
    Thrown::new(FaultCode::BadParams, "a captured variable is being changed by this very call")
        .hint("call it as a function: `parallel(items, 4, |item, page| …)`")
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(variable: &Dynamic) -> i64 {
        variable.flatten_clone().as_int().unwrap()
    }

    fn set(variable: &mut Dynamic, value: i64) {
        *variable.write_lock::<Dynamic>().unwrap() = value.into();
    }

    fn capturing(variables: &[Dynamic]) -> Dynamic {
        let mut function = FnPtr::new("f").unwrap();
        function.set_curry(variables.iter().cloned());
        function.into()
    }

    fn captured(function: &Dynamic) -> Vec<Dynamic> {
        function.read_lock::<FnPtr>().unwrap().curry().to_vec()
    }

    #[test]
    fn a_captured_variable_is_copied_once_and_shares_nothing_with_its_original() {
        let mut original = Dynamic::from(1_i64).into_shared();
        let functions = Dynamic::from_array(vec![capturing(&[original.clone()]), capturing(&[original.clone()])]);

        let copies = Copier::default().copy(&functions).unwrap().into_array().unwrap();
        set(&mut original, 2);
        let (mut one, other) = (captured(&copies[0]).remove(0), captured(&copies[1]).remove(0));
        assert_eq!((number(&one), number(&other)), (1, 1));

        set(&mut one, 3);
        assert_eq!((number(&original), number(&other)), (2, 3));
    }

    #[test]
    fn a_value_that_holds_itself_is_copied() {
        let mut variable = Dynamic::UNIT.into_shared();
        let function = capturing(&[variable.clone()]);
        *variable.write_lock::<Dynamic>().unwrap() = function.clone();

        let copy = Copier::default().copy(&function).unwrap();

        let inner = captured(&copy).remove(0);
        let address = |variable: &Dynamic| std::ptr::from_ref(&*variable.read_lock::<Dynamic>().unwrap()).addr();
        let again = captured(&inner.flatten_clone()).remove(0);
        assert_eq!(address(&inner), address(&again));
        assert_ne!(address(&inner), address(&variable));
    }

    #[test]
    fn a_value_that_is_nested_too_deep_is_refused() {
        // Values of scripts live on large stacks.
        let work = || {
            let deep = (0..=DEPTH_LIMIT).fold(Dynamic::UNIT, |inner, _| Dynamic::from_array(vec![inner]));
            Copier::default().copy(&deep).map(drop)
        };
        let outcome = std::thread::Builder::new().stack_size(256 << 20).spawn(work).unwrap().join().unwrap();

        assert!(matches!(outcome, Err(Failure::Thrown(_))));
    }
}
