//! Names of single addresses: what a reader asks for that got a profile without names.

use std::collections::HashMap;
use std::sync::Arc;

use rtprof_profiler::sampling;

use crate::names;
use crate::symbol_cache::Function;
use crate::symbolizer::{Symbolization, Symbolizer};

/// Looks up names. The debug information that it opens, tens of megabytes for a large program, is released when it is
/// dropped; answers are remembered.
pub struct FunctionNames {
    symbolizer: Symbolizer,
    known: HashMap<Arc<Function>, Arc<str>>,
}

impl FunctionNames {
    /// For the modules as they are now.
    #[allow(clippy::new_without_default, reason = "it reads the list of modules")]
    pub fn new() -> Self {
        let _workspace = sampling::workspace();
        Self { symbolizer: Symbolizer::new(Symbolization::Full), known: HashMap::new() }
    }

    /// The function that has the code at `address`; `None` where nothing is known. Go: `runtime.FuncForPC`.
    ///
    /// Of functions that were inlined there it is the one that they were inlined into: a reader gives the address a
    /// single name, and the innermost one would stand for the whole frame, often one of the standard library's.
    ///
    /// The addresses in a profile lie inside the call, unlike those that it returns to.
    pub fn at(&mut self, address: usize) -> Option<Arc<str>> {
        let _workspace = sampling::workspace();
        let (_, symbols) = self.symbolizer.resolve(address.wrapping_add(1));
        let function = symbols.lines.last().map(|line| &line.function).or(symbols.left_out.as_ref())?;
        let known = self.known.entry(function.clone());
        Some(known.or_insert_with(|| full_name(function)).clone())
    }
}

/// With trait and type arguments: the reader drops frames by patterns that tell the program's traits on our types by them.
fn full_name(function: &Function) -> Arc<str> {
    if names::is_mangled(&function.system_name) {
        names::demangle(&function.system_name).full.into()
    } else {
        function.name.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn somewhere() -> usize {
        std::hint::black_box(1)
    }

    #[test]
    fn names_a_function_by_its_first_address() {
        assert_eq!(somewhere(), 1);
        let mut names = FunctionNames::new();
        let name = names.at(somewhere as fn() -> usize as usize).unwrap();
        assert_eq!(&*name, "rtprof_pprof_out::function_names::tests::somewhere");
        for nowhere in [0, 1, usize::MAX] {
            assert_eq!(names.at(nowhere), None);
        }
    }
}
